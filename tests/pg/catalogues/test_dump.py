"""pg_dump by an ordinary user: it ends well, holds what the user sees and no more, and can be restored elsewhere."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Iterator

import psycopg
import pytest

from pgstream.config import Config
from pgstream.embedded.cluster import binaries
from pgstream.embedded.postgres import Postgres, open_postgres
from tests.pg.catalogues.conftest import Both

pytestmark = pytest.mark.pg


def dump(url: str, *options: str) -> str:
    done = subprocess.run(
        [binaries() / "pg_dump", "--dbname", url, *options], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    # Newer versions fence a dump with a key made anew each time.
    return re.sub(r"^\\(un)?restrict .*$", "", done.stdout, flags=re.M)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A PostgreSQL that knows nothing of pgstream."""
    runner = asyncio.Runner()
    try:
        running = runner.run(open_postgres(Config(data_dir=tmp_path_factory.mktemp("elsewhere"))))
        yield running
        runner.run(running.stop())
    finally:
        runner.close()


def restore(elsewhere: Postgres, text: str, database: str) -> psycopg.Connection:
    with psycopg.connect(elsewhere.url("postgres"), autocommit=True) as c:
        c.execute(f"CREATE DATABASE {database} TEMPLATE template0".encode())
    done = subprocess.run(
        [binaries() / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", elsewhere.url(database)],
        input=text, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return psycopg.connect(elsewhere.url(database), autocommit=True)


OPTIONS = """
--schema-only
--schema-only -t views_per_user
--schema-only --section=post-data
--data-only -t views_per_user
--clean --create --if-exists
--inserts --rows-per-insert=10
-n "Reports"
"""


@pytest.mark.parametrize("options", OPTIONS.split("\n")[:-1])
def test_a_dump_is_postgresqls_and_holds_nothing_hidden(both: Both, options: str) -> None:
    ours = dump(both.ours, *options.split())
    assert ours == dump(both.direct, *options.split())
    assert "pg_pgstream" not in ours and "ledger" not in ours


def test_a_schema_dump_can_be_restored_elsewhere(both: Both, elsewhere: Postgres) -> None:
    with restore(elsewhere, dump(both.ours, "--schema-only", "--no-owner", "--no-privileges"), "schema_only") as c:
        kinds = dict(
            c.execute("SELECT relname, relkind FROM pg_class WHERE relnamespace = 'public'::regnamespace").fetchall()
        )
        assert [kinds[n] for n in ("pageviews", "users", "views_per_user", "busy")] == ["v", "v", "r", "v"]
        assert c.execute("SELECT * FROM views_per_user").fetchall() == []
        c.execute("INSERT INTO views_per_user VALUES ('u1', 1)")
        with pytest.raises(psycopg.errors.UniqueViolation):
            c.execute("INSERT INTO views_per_user VALUES ('u1', 2)")
        comments = c.execute(
            """SELECT obj_description('pageviews'::regclass), obj_description('"Reports"."Odd ''stream''"'::regclass)"""
        )
        assert comments.fetchone() == ("stream", 'it\'s "odd"')
        with pytest.raises(psycopg.errors.UndefinedFunction):
            c.execute("SELECT * FROM pageviews")


def test_a_full_dump_holds_the_rows(both: Both, elsewhere: Postgres) -> None:
    with restore(elsewhere, dump(both.ours, "--no-owner", "--no-privileges"), "everything") as c:
        assert c.execute("SELECT userid, n FROM views_per_user ORDER BY 1").fetchall() == [("u1", 1), ("u2", 2)]
        assert c.execute("SELECT * FROM busy").fetchall() == [("u2",)]


def test_a_view_alone_can_be_restored(both: Both, elsewhere: Postgres) -> None:
    text = dump(both.ours, "--no-owner", "--no-privileges", "-t", "views_per_user")
    with restore(elsewhere, text, "one_view") as c:
        assert c.execute("SELECT count(*) FROM views_per_user").fetchone() == (2,)
    text = dump(both.ours, "--schema-only", "--no-owner", "--no-privileges", "-t", "pageviews")
    with restore(elsewhere, text, "one_stream") as c:
        assert c.execute("SELECT count(*) FROM pg_attribute WHERE attrelid = 'pageviews'::regclass").fetchone() == (9,)


def test_with_the_roles_a_dump_is_restored_whole(both: Both, elsewhere: Postgres) -> None:
    with psycopg.connect(elsewhere.url("postgres"), autocommit=True) as c:
        for role in ("admin", "sysadmin", "pgstream_worker"):
            c.execute(f"CREATE ROLE {role}".encode())
    with restore(elsewhere, dump(both.ours), "whole") as c:
        owner = c.execute("SELECT relowner::regrole::text FROM pg_class WHERE relname = 'views_per_user'").fetchone()
        assert owner == ("pgstream_worker",)
        assert c.execute("SELECT has_table_privilege('sysadmin', 'views_per_user', 'SELECT')").fetchone() == (True,)
