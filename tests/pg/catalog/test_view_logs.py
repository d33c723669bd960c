"""What waits for a query that reads a view: every change once, in the order of the commits, and gone with the query."""

from __future__ import annotations

import asyncio
import json
import subprocess
import uuid
from collections.abc import Iterator

import psycopg
import pytest

from pgstream.catalog import store
from pgstream.catalog.records import QueryRecord
from pgstream.catalog.store import Catalog
from pgstream.embedded.cluster import binaries
from pgstream.engine.backlogs import Backlogs
from pgstream.engine.requests import check_logs
from pgstream.errors import DependentsExist, NotReady, RelayedError, UndefinedQuery
from pgstream.names import FullName, view_log
from pgstream.planner.plan import Plan, ViewSink, ViewSource
from tests.pg.catalog.test_catalog import query, view
from tests.server import within

pytestmark = pytest.mark.pg
COUNTS = FullName("main", "public", "counts")


async def read(catalog: Catalog, mode: str = "upsert", key: tuple[str, ...] = ("userid",)) -> QueryRecord:
    """A view with a row, and a query that reads it."""
    await catalog.create_query(query("counts", mode, key), view())
    with psycopg.connect(catalog.worker_url("main"), autocommit=True) as worker:
        worker.execute("INSERT INTO public.counts VALUES ('a', 1)")
    return await catalog.create_query(
        query("more", id=str(uuid.uuid4()), sources=(str(COUNTS),)), view("more"), reads=[COUNTS]
    )


def log(catalog: Catalog, reader: QueryRecord) -> str:
    found = catalog.snapshot.relations["main", "public", "counts"]
    return f"pg_pgstream.{view_log(reader.id, found.id)}"


@pytest.fixture
def worker(catalog: Catalog) -> Iterator[psycopg.Connection]:
    with psycopg.connect(catalog.worker_url("main"), autocommit=True) as conn:
        yield conn


async def test_rows_then_changes(catalog: Catalog, worker: psycopg.Connection) -> None:
    reader = await read(catalog)
    worker.execute("INSERT INTO public.counts VALUES ('b', 2), ('a', 5) ON CONFLICT (userid) DO UPDATE SET n = 5")
    worker.execute("DELETE FROM public.counts WHERE userid = 'b'")
    await catalog.truncate_relation(COUNTS)
    found = worker.execute(f"SELECT userid, n, __delete FROM {log(catalog, reader)} ORDER BY __seq").fetchall()
    assert found[:1] == [("a", 1, False)]
    assert sorted(found[1:3]) == [("a", 5, False), ("b", 2, False)]
    assert found[3:] == [("b", 2, True), ("a", 5, True)]


async def test_rows_that_retention_takes_away_have_come(catalog: Catalog, worker: psycopg.Connection) -> None:
    reader = await read(catalog, mode="append", key=())
    with worker.cursor().copy("COPY public.counts FROM STDIN") as copy:
        copy.write_row(("b", 2))
    await catalog.truncate_relation(COUNTS)
    found = worker.execute(f"SELECT userid, n, __delete FROM {log(catalog, reader)} ORDER BY __seq").fetchall()
    assert found == [("a", 1, False), ("b", 2, False)]


async def test_numbers_are_in_the_order_of_commits(catalog: Catalog, worker: psycopg.Connection) -> None:
    """A second writer waits for the first one's end, before it has locked or numbered anything."""
    reader = await read(catalog)
    with worker.transaction():
        worker.execute("INSERT INTO public.counts VALUES ('b', 2)")
        emptied = asyncio.create_task(catalog.truncate_relation(COUNTS))
        await asyncio.to_thread(within, 30, lambda: waits(catalog))
        worker.execute("INSERT INTO public.counts VALUES ('c', 3), ('a', 2) ON CONFLICT (userid) DO UPDATE SET n = 2")
    await emptied
    found = worker.execute(f"SELECT userid, __delete, __tx::text FROM {log(catalog, reader)} ORDER BY __seq").fetchall()
    assert [deleted for _, deleted, _ in found] == [False] * 4 + [True]
    assert [len({t for _, _, t in part}) for part in (found[:1], found[1:4], found[4:])] == [1, 1, 1]
    assert found[4][0] == "a", "what it saw when it began"


def waits(catalog: Catalog) -> bool:
    """Whether somebody waits for a lock."""
    with psycopg.connect(catalog.control_url, autocommit=True) as c:
        return bool(c.execute("SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchall())


async def test_its_end_waits_for_no_reader_of_the_view(catalog: Catalog, reopen, worker: psycopg.Connection) -> None:
    reader = await read(catalog)
    table = log(catalog, reader)
    with worker.transaction():
        worker.execute("SELECT * FROM public.counts")
        await catalog.drop_view_logs(reader.id)
        assert worker.execute("SELECT to_regclass(%s)", [table]).fetchone() == (None,)
        assert worker.execute("SELECT DISTINCT tgenabled FROM pg_trigger").fetchall() == [("D",)]
    worker.execute("INSERT INTO public.counts VALUES ('b', 2)")
    await catalog.set_query(reader.id, intended="terminated", actual="terminated")
    again = await reopen()
    assert worker.execute("SELECT count(*) FROM pg_trigger").fetchone() == (0,)
    await again.close()


async def test_what_a_crash_leaves_over_goes(catalog: Catalog, reopen, worker: psycopg.Connection) -> None:
    reader = await read(catalog)
    await catalog.create_query(query("third", sources=(str(COUNTS),)), view("third"), reads=[COUNTS])
    await catalog.set_query(reader.id, intended="terminated", actual="terminated")
    again = await reopen()
    assert again.repaired == [f"left-over view log {view_log(reader.id)} dropped"]
    logs = worker.execute("SELECT relname FROM pg_class WHERE relname LIKE 'c\\_%' AND relkind = 'r'").fetchall()
    assert len(logs) == 1, "that of the query which lives"
    assert worker.execute("SELECT count(*) FROM pg_trigger").fetchone() == (4,)
    await again.close()


async def test_a_statement_that_fails_leaves_no_log(catalog: Catalog, worker: psycopg.Connection) -> None:
    reader = await read(catalog)
    await catalog.discard_query(reader.id)
    assert worker.execute("SELECT count(*) FROM pg_trigger").fetchone() == (0,)


async def test_a_dump_names_no_trigger(catalog: Catalog, postgres) -> None:
    await read(catalog)
    command = [binaries() / "pg_dump", "--dbname", postgres.url("main"), "-t", "counts"]
    told = await asyncio.to_thread(subprocess.check_output, command, text=True, timeout=60)
    assert "counts" in told and "log_changes" not in told and "TRIGGER" not in told


async def test_a_view_that_is_made_again_is_read_on(
    catalog: Catalog, reopen, worker: psycopg.Connection, postgres
) -> None:
    """Somebody took away its table: its triggers went with it, and what waits is there still."""
    reader = await read(catalog)
    await catalog.close()
    with psycopg.connect(postgres.url("main"), autocommit=True) as superuser:
        superuser.execute("DROP TABLE public.counts")
    again = await reopen()
    table = log(again, reader)
    assert again.repaired == [
        "materialized view main.public.counts made again",
        f"view log {table.partition('.')[2]} of main.public.counts goes on",
    ]
    worker.execute("INSERT INTO public.counts VALUES ('b', 2)")
    assert worker.execute(f"SELECT userid FROM {table} ORDER BY __seq").fetchall() == [("a",), ("b",)]
    await again.close()
    third = await reopen()
    assert third.repaired == []
    await third.close()


async def test_a_log_that_somebody_dropped_stops_nobody(
    catalog: Catalog, reopen, worker: psycopg.Connection, postgres
) -> None:
    """The query that reads it says so; the one that writes the view goes on."""
    reader = await read(catalog)
    with psycopg.connect(postgres.url("main"), autocommit=True) as superuser:
        superuser.execute(f"DROP TABLE {log(catalog, reader)}")
    with pytest.raises(psycopg.errors.UndefinedTable):
        worker.execute("INSERT INTO public.counts VALUES ('b', 2)")
    again = await reopen()
    worker.execute("INSERT INTO public.counts VALUES ('b', 2)")
    with pytest.raises(NotReady, match=r"changes of main\.public\.counts that the query had still to read"):
        await check_logs(again, reader, plan_of(again, reader))
    await again.close()


async def test_what_waits_for_an_errored_query_is_bounded(catalog: Catalog, worker: psycopg.Connection) -> None:
    reader = await read(catalog)
    other = await catalog.create_query(query("third", sources=(str(COUNTS),)), view("third"), reads=[COUNTS])
    plan = plan_of(catalog, reader)
    await catalog.set_query(reader.id, actual="errored", message="it was wrong.")
    worker.execute("INSERT INTO public.counts SELECT repeat(md5(i::text), 50), i FROM generate_series(1, 1000) i")
    await Backlogs(catalog, 0).look()
    await Backlogs(catalog, 100).look()
    await check_logs(catalog, reader, plan)
    await Backlogs(catalog, 1).look()
    assert await catalog.view_logs(reader) == {}
    assert list(await catalog.view_logs(other)), "one that is not errored reads what waits"
    said = (await catalog.query(reader.id)).message
    assert said == "it was wrong. What waited for it grew past 1 MB and was given up: it cannot be restarted."
    with pytest.raises(NotReady, match="were given up"):
        await check_logs(catalog, reader, plan)
    worker.execute("INSERT INTO public.counts VALUES ('b', 2)")


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
async def test_who_writes_several_views_is_not_met_in_the_midst_of_them(
    catalog: Catalog, worker: psycopg.Connection, order: tuple[str, str]
) -> None:
    """A query that reads them all is created as a batch of theirs is written."""
    one, two = view("one"), view("two")
    plan = {"sinks": [{"relation": str(v.full), "mode": "upsert", "key": ["userid"]} for v in (one, two)]}
    writer = query("one", sinks=(str(one.full), str(two.full)), plan=json.dumps({"sink": plan}).encode())
    await catalog.create_query(writer, application=[(one, True, 0), (two, True, 0)])
    reader = query("more", sources=writer.sinks)
    creating = catalog.create_query(reader, view("more"), reads=[one.full, two.full])
    with psycopg.connect(catalog.worker_url("main")) as batch:
        batch.execute("SELECT FROM pg_pgstream.ledger WHERE query = %s::uuid FOR UPDATE", [writer.id])
        batch.execute(f"INSERT INTO public.{order[0]} VALUES ('a', 1)".encode())
        task = asyncio.create_task(creating)
        await asyncio.sleep(0.3)
        await asyncio.to_thread(batch.execute, f"INSERT INTO public.{order[1]} VALUES ('a', 1)".encode())
    await task
    assert len(await catalog.view_logs(reader)) == 2


async def test_what_waits_for_a_discarded_query_goes_when_it_can(
    catalog: Catalog, worker: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long batch writes the view, or an error comes, when the query is discarded."""
    monkeypatch.setattr(store, "_LEFT_WAIT_S", 0.1)
    reader = await read(catalog)
    with psycopg.connect(catalog.worker_url("main")) as batch:
        batch.execute("INSERT INTO public.counts VALUES ('b', 2)")
        await catalog.discard_query(reader.id)
        with pytest.raises(UndefinedQuery):
            await catalog.query(reader.id)
    assert await catalog.view_logs(reader)
    await Backlogs(catalog, 0).look()
    assert await catalog.view_logs(reader) == {} and catalog._left_logs == {}

    async def fails() -> None:
        raise RelayedError(code="53100", text="no room")

    again = await catalog.create_query(query("more", sources=(str(COUNTS),)), view("more"), reads=[COUNTS])
    with monkeypatch.context() as m, pytest.raises(RelayedError):
        m.setattr(catalog, "refresh", fails)
        await catalog.discard_query(again.id)
    await Backlogs(catalog, 0).look()
    assert await catalog.view_logs(again) == {} and catalog._left_logs == {}


async def test_what_waits_for_a_query_that_could_not_be_discarded_stays(catalog: Catalog) -> None:
    reader = await read(catalog)
    third = query("third", sources=("main.public.more",))
    await catalog.create_query(third, view("third"))
    with pytest.raises(DependentsExist):
        await catalog.discard_query(reader.id)
    await Backlogs(catalog, 0).look()
    assert list(await catalog.view_logs(reader)) and catalog._left_logs == {}


def plan_of(catalog: Catalog, reader: QueryRecord) -> Plan:
    found = catalog.snapshot.relations["main", "public", "counts"]
    source = ViewSource("counts", str(found.full), "main", found.id, columns=[], mode="upsert", key=["userid"])
    return Plan(source, ViewSink("main.public.more", "main", "t", "upsert", ["userid"]))
