"""Organizations behind one port: who comes into which, and that nothing of one is there for another."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from pgstream.config import Config
from pgstream.errors import ConfigurationError
from pgstream.server import hba
from pgstream.server.listener import Listener
from tests.pg.access.conftest import PASSWORD, House
from tests.pg.catalog.test_catalog import stream
from tests.server import within

pytestmark = [
    pytest.mark.pg,
    pytest.mark.skipif(
        int(os.environ.get("PGSTREAM_WORKERS", "1")) > 1, reason="listener processes serve one organization"
    ),
]

SECRETS = ("acme_db", "acme_schema", "acme_store", "acme_stream", "acme_role", "acme_user", "acme_secret", "acme_token",
           "acme_pool", "acme-password", "acme/", "acme-broker")  # fmt: skip


@pytest.fixture(scope="module")
def acme(house: House) -> Iterator[House]:
    """The house, with a second organization in it that has one of everything."""
    with house.connect() as admin:
        made = admin.execute("CREATE ORGANIZATION acme").fetchone()
        assert made[:4] == ("organization", "acme", "CREATE", 'organization "acme" was successfully created')
        # As the product has it: the session is in the new organization at once.
        for text in (
            "CREATE DATABASE acme_db",
            "CREATE SCHEMA acme_schema IN DATABASE acme_db",
            "CREATE SECRET acme_secret WITH ('type' = GENERIC_SECRET, 'secret_string' = 'acme-password')",
            "CREATE COMPUTE_POOL acme_pool WITH ('compute_pool.size' = 'small')",
            "USE ROLE orgadmin",
            "CREATE ROLE acme_role",
            "INVITE USER 'acme_user' WITH ('default_role' = acme_role, 'password' = 'acme-password-1')",
        ):
            admin.execute(text.encode())
    catalog = house.listener.organizations.find("acme").catalog
    options = {"uris": "acme-broker:9092", "kafka.sasl.password": "acme-password"}
    house.run(catalog.create_store("acme_store", "kafka", options, frozenset({"kafka.sasl.password"}), "sysadmin"))
    house.run(catalog.create_relation(stream("acme_stream")))
    return house


def everything(db: psycopg.Connection) -> str:
    """All that a session is told by lists, system tables and PostgreSQL's own catalogue."""
    texts = [f"LIST {what}" for what in (
        "DATABASES", "SCHEMAS", "RELATIONS", "STORES", "SECRETS", "ROLES", "USERS",
        "API_TOKENS", "SCHEMA_REGISTRIES", "FUNCTIONS", "PENDING INVITATIONS", "ORGANIZATIONS")]  # fmt: skip
    texts += [
        f'SELECT * FROM deltastream.sys."{name}"'
        for name in (
            "databases",
            "relations",
            "relation_columns",
            "stores",
            "roles",
            "user_grants",
            "role_privileges",
            "secrets",
            "organizations",
        )
    ]
    texts += [
        f"SELECT {column} FROM pg_catalog.{table}"
        for table, column in (
            ("pg_database", "datname"),
            ("pg_roles", "rolname"),
            ("pg_stat_activity", "datname, usename, query"),
            ("pg_namespace", "nspname"),
            ("pg_class", "relname"),
            ("pg_shdescription", "description"),
            ("pg_settings", "name, setting"),
            ("pg_stat_database", "datname"),
            ("pg_locks", "database, locktype"),
        )
    ]
    return "\n".join(str(db.execute(t.encode()).fetchall()) for t in texts)


def refused(db: psycopg.Connection, text: str) -> str:
    with pytest.raises(psycopg.Error) as e:
        db.execute(text.encode())
    return f"{e.value.sqlstate} {e.value.diag.message_primary}"


def test_nothing_of_another_is_seen_by_whoever_may_do_everything(acme: House) -> None:
    """Not even by PostgreSQL's catalogues of what the whole cluster has: it is another cluster."""
    acme.user("root_admin", "orgadmin")
    acme.superuser("ALTER ROLE root_admin PASSWORD 'another-1'")
    with acme.connect("root_admin", password="another-1") as db, acme.connect("admin", "acme/acme_db") as other:
        db.execute("USE ROLE orgadmin")
        other.execute("SELECT 'acme_db'")
        told = everything(db)
        assert [s for s in SECRETS if s in told] == []
    with acme.connect("admin", "acme/main") as other, acme.connect("root_admin", password="another-1"):
        other.execute("USE ROLE orgadmin")
        told = everything(other)
        assert "acme_db" in told and "root_admin" not in told


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("USE DATABASE acme_db", "3D000"), ('USE DATABASE "acme/main"', "3D000"), ("USE STORE acme_store", "42704"),
        ("DROP STORE acme_store", "42704"), ("SELECT * FROM acme_stream", "42P01"), ("DROP DATABASE acme_db", "3D000"),
        ("DESCRIBE SECRET acme_secret", "42704"), ("GRANT ROLE acme_role TO USER 'admin'", "42704"),
        ("DROP USER 'acme_user'", "42704"), ("USE ROLE acme_role", "42704"), ("DROP COMPUTE_POOL acme_pool", "42704"),
        ("SET ROLE acme_role", "22023"), ("GRANT SELECT ON RELATION acme_stream TO ROLE sysadmin", "42P01"),
    ],
)  # fmt: skip
def test_names_of_another_do_not_exist(acme: House, text: str, code: str) -> None:
    with acme.connect() as db:
        db.execute("USE ROLE orgadmin")
        assert refused(db, text).startswith(code)


def test_each_has_its_own_users(acme: House) -> None:
    acme.user("only_here", "sysadmin")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        acme.connect("only_here", "acme/main")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        acme.connect("acme_user", password="acme-password-1")
    with acme.connect("acme_user", "acme/postgres", password="acme-password-1") as db:
        [(id, of, _)] = db.execute("LIST MY INVITATIONS").fetchall()
        assert of == "acme"
        db.execute(f"ACCEPT INVITATION {id}".encode())
        assert [r[1] for r in db.execute("LIST ORGANIZATIONS").fetchall()] == ["acme"]
        assert refused(db, "USE ORGANIZATION default") == '42704 organization "default" does not exist'


def test_the_same_name_with_another_password_is_somebody_else(acme: House) -> None:
    with acme.connect("admin", "acme/main") as db:
        db.execute("USE ROLE orgadmin")
        db.execute("INVITE USER 'twin' WITH ('default_role' = acme_role, 'password' = 'the-twins-own')")
    acme.user("twin", "orgadmin")
    with acme.connect("twin") as db:
        assert [r[1] for r in db.execute("LIST ORGANIZATIONS").fetchall()] == ["default"]
        assert refused(db, "USE ORGANIZATION acme") == '42704 organization "acme" does not exist'
        assert refused(db, "DESCRIBE ORGANIZATION acme") == '42704 organization "acme" does not exist'
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        acme.connect("twin", "acme/main")


def test_who_is_not_known_cannot_tell_which_there_are(acme: House) -> None:
    """One that exists and one that does not are answered alike, and with the same salt each time."""
    said = set()
    for database in ("acme/main", "acme/nothing", "nowhere/main", "nowhere/nothing"):
        with pytest.raises(psycopg.OperationalError) as e:
            acme.connect("nobody", database)
        said.add(str(e.value).rpartition("FATAL:")[2].strip())
    assert said == {'password authentication failed for user "nobody"'}


def test_a_session_goes_from_one_to_the_other(acme: House) -> None:
    with acme.connect() as db:
        db.execute("CREATE TABLE only_in_default (i int)")
        first = db.execute("LIST ORGANIZATIONS").fetchall()
        assert [(r[1], r[2], r[3]) for r in first] == [("acme", False, False), ("default", True, True)]
        assert db.execute("USE ORGANIZATION acme").fetchone()[3] == 'using organization "acme"'
        [(id, name, current, *_)] = db.execute("DESCRIBE ORGANIZATION").fetchall()
        assert (name, current) == ("acme", True)
        assert db.execute('SELECT id, name FROM deltastream.sys."organizations"').fetchall() == [(id, "acme")]
        assert {r[0] for r in db.execute("LIST DATABASES").fetchall()} == {"main", "acme_db"}
        assert refused(db, "SELECT * FROM only_in_default").startswith("42P01")
        db.execute("USE DATABASE acme_db")
        assert db.execute("SELECT current_database()").fetchone() == ("acme_db",)
        db.execute("USE ORGANIZATION default")
        assert db.execute("SELECT count(*) FROM only_in_default").fetchone() == (0,)
        db.execute("BEGIN")
        assert refused(db, "USE ORGANIZATION acme") == "25001 USE ORGANIZATION cannot run inside a transaction block"


def test_the_default_of_a_user_is_where_it_logs_in(acme: House) -> None:
    with acme.connect() as db:
        db.execute("SET DEFAULT ORGANIZATION acme")
        row = db.execute("CREATE API_TOKEN t WITH ('token.role_name' = sysadmin)").fetchone()
    with acme.connect("admin~t", password=row[4]) as db:
        assert "acme_db" not in str(db.execute("LIST DATABASES").fetchall())
        db.execute("USE ROLE sysadmin")
        assert refused(db, "USE ORGANIZATION acme") == '42704 organization "acme" does not exist'
    with acme.connect() as db:
        assert "acme_db" in str(db.execute("LIST DATABASES").fetchall())
        assert refused(db, "SET DEFAULT ORGANIZATION default").startswith("0A000")
    with acme.connect(database="default/main") as db:
        assert "acme_db" not in str(db.execute("LIST DATABASES").fetchall())
        db.execute("SET DEFAULT ORGANIZATION default")


@pytest.mark.parametrize(
    ("name", "said"),
    [("acme", '42710 organization "acme" already exists'), ("DEFAULT", "42710"), ('"a/b"', "42601"), ('""', "42601")],
)
def test_names_are_checked(acme: House, name: str, said: str) -> None:
    with acme.connect() as db:
        db.execute("USE ROLE orgadmin")
        assert refused(db, f"CREATE ORGANIZATION {name}").startswith(said)


def test_only_who_may_be_orgadmin_in_the_first_makes_one(acme: House) -> None:
    acme.user("many_roles", "sysadmin", "useradmin", "securityadmin")
    with acme.connect("many_roles") as db:
        for role in ("sysadmin", "useradmin", "securityadmin"):
            db.execute(f"USE ROLE {role}".encode())
            assert refused(db, "CREATE ORGANIZATION more") == "42501 permission denied for organization default"
    with acme.connect(database="acme/main") as db:
        db.execute("USE ROLE orgadmin")
        assert refused(db, "CREATE ORGANIZATION more") == "42501 permission denied for organization acme"
    assert len(list((acme.config.data_dir / "organizations").iterdir())) == 1


def test_a_cancel_request_finds_the_session(acme: House) -> None:
    with acme.connect(database="acme/main") as db, acme.connect(database="acme/main") as other:
        sleeps = "SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(600)' AND state = 'active'"
        db.pgconn.send_query(b"SELECT pg_sleep(600)")
        within(60, lambda: other.execute(sleeps).fetchone() == (1,))
        db.cancel_safe()

        def answered() -> bool:
            db.pgconn.consume_input()
            return not db.pgconn.is_busy()

        within(60, answered)  # libpq waits with the interpreter's lock, and the server is in this process
        result = db.pgconn.get_result()
        assert result is not None and result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == b"57014"
        within(60, answered)
        assert db.pgconn.get_result() is None


def test_they_are_there_after_a_start_and_what_a_crash_left_is_not(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path, listen="127.0.0.1:0", admin_password=PASSWORD, shutdown_grace_s=1)
    house = House(config)
    with house.connect() as db:
        db.execute("USE ROLE orgadmin")
        db.execute("CREATE ORGANIZATION kept")
        db.execute("CREATE TABLE t (i int)")
    house.stop()
    left = tmp_path / "organizations" / "11111111-1111-4111-8111-111111111111"
    (left / "postgres").mkdir(parents=True)
    house = House(config)
    with house.connect(database="kept/main") as db:
        assert db.execute("SELECT count(*) FROM t").fetchone() == (0,)
        assert len(db.execute("LIST ORGANIZATIONS").fetchall()) == 2
    house.stop()
    assert not left.exists()
    for other, why in ((replace(config, workers=2), "several listener processes"),
                       (replace(config, postgres_url="postgresql://x@y/z"), "an external PostgreSQL")):  # fmt: skip
        with pytest.raises(ConfigurationError, match=f"not supported with {why}") as e:
            asyncio.run(Listener(other).organizations.open())
        assert "pgstream organizations --drop" in (e.value.hint or "")


def test_the_administrator_drops_one(tmp_path: Path) -> None:
    """While the server is stopped; one that holds something only with --cascade. Its name is free again."""
    config = Config(data_dir=tmp_path, listen="127.0.0.1:0", admin_password=PASSWORD, shutdown_grace_s=1)
    house = House(config)

    def pgstream(*words: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "pgstream", "organizations", "--data-dir", str(tmp_path), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + (done.stderr if done.returncode else "")

    with house.connect() as db:
        db.execute("USE ROLE orgadmin")
        db.execute("CREATE ORGANIZATION acme")
    assert "is in use by process" in pgstream("--drop", "acme")[1]
    catalog = house.listener.organizations.find("acme").catalog
    house.run(catalog.create_store("s", "kafka", {"uris": "b:1"}, frozenset(), "sysadmin"))
    house.stop()
    [folder] = (tmp_path / "organizations").iterdir()
    assert pgstream() == (0, f"acme  {folder}\n")
    code, said = pgstream("--drop", "acme")
    assert (code, folder.exists()) == (1, True) and "It holds store s." in said and "--cascade" in said
    assert 'organization "nope" does not exist' in pgstream("--drop", "nope")[1]
    assert pgstream("--drop", "acme", "--cascade") == (0, 'organization "acme" was dropped\n')
    assert not folder.exists()
    house = House(config)
    with house.connect() as db:
        assert [r[1] for r in db.execute("LIST ORGANIZATIONS").fetchall()] == ["default"]
        db.execute("USE ROLE orgadmin")
        db.execute("CREATE ORGANIZATION acme")
    house.stop()


def test_the_access_table_is_asked_for_organization_and_database(acme: House, tmp_path: Path) -> None:
    """At log-in and by USE ORGANIZATION; ``main`` in the table is the first one's alone."""
    lines = tmp_path / "hba"
    before = acme.listener.access
    try:
        for text, default, other in (
            ("host main all all scram-sha-256", True, False),
            ("host acme/main all all scram-sha-256", False, True),
            ("host acme/main all all reject\nhost all all all scram-sha-256", True, False),
            ("host all all all scram-sha-256", True, True),
        ):
            lines.write_text(text + "\n")
            acme.listener.access = hba.load(replace(acme.config, hba_file=lines))
            for database, let_in in (("main", default), ("acme/main", other)):
                if not let_in:
                    with pytest.raises(psycopg.OperationalError, match=r"pg_hba\.conf"):
                        acme.connect(database=database)
            if default:
                with acme.connect() as db:
                    if other:
                        db.execute("USE ORGANIZATION acme")
                    else:
                        assert refused(db, "USE ORGANIZATION acme").startswith("28000")
                        assert db.execute("SELECT 1").fetchone() == (1,)
    finally:
        acme.listener.access = before
