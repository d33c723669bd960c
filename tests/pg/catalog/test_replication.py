"""A materialized view as the source of PostgreSQL's logical replication: its table in a publication."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import psycopg

from pgstream.catalog.store import Catalog
from pgstream.config import Config
from pgstream.embedded.postgres import external
from tests.pg.catalog.test_catalog import query, view
from tests.postgres import PASSWORD, USER, Postgres, postgres
from tests.server import within


async def test_another_database_subscribes(tmp_path: Path) -> None:
    """As docs/howto/views.md has it: by the administrator of PostgreSQL, on PostgreSQL itself."""
    plain = {"wal_level": "minimal", "max_wal_senders": "0"}
    with postgres(tmp_path / "main") as main, postgres(tmp_path / "copy", **plain) as copy:
        url = external(f"postgresql://{USER}:{quote(PASSWORD)}@127.0.0.1:{main.port}/postgres").url
        catalog = await Catalog.open(Config(data_dir=tmp_path, admin_password="first's password"), url, tmp_path)
        try:
            await catalog.create_query(query("counts"), view())
            follow(main, copy, catalog.worker_url("main"), url("main"))
        finally:
            await catalog.close()


def follow(main: Postgres, copy: Postgres, worker_url: str, url: str) -> None:
    def write(*statements: str) -> None:  # as a batch does
        with psycopg.connect(worker_url) as worker:
            for statement in statements:
                worker.execute(statement.encode())

    with main.connect("main") as su:
        write("INSERT INTO public.counts VALUES ('a', 1), (NULL, 2)")
        su.execute("ALTER TABLE public.counts REPLICA IDENTITY FULL")
        su.execute("CREATE PUBLICATION counts FOR TABLE public.counts")
    copy.run("CREATE TABLE public.counts (userid text, n bigint)",
             f"CREATE SUBSCRIPTION counts CONNECTION $${url}$$ PUBLICATION counts")  # fmt: skip

    def has(*rows: tuple[object, ...]) -> bool:
        return copy.rows("SELECT * FROM counts ORDER BY userid") == list(rows)

    within(30, lambda: has(("a", 1), (None, 2)))
    write(
        "UPDATE public.counts SET n = 5 WHERE userid IS NULL",
        "INSERT INTO public.counts VALUES ('b', 3) ON CONFLICT (userid) DO UPDATE SET n = excluded.n",
    )
    within(30, lambda: has(("a", 1), ("b", 3), (None, 5)))
    write("DELETE FROM public.counts WHERE userid = 'a'")
    within(30, lambda: has(("b", 3), (None, 5)))
    copy.run("DROP SUBSCRIPTION counts")
