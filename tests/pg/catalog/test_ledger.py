"""Waiting until a view has what was written: ``pgstream_wait_for``, over what a sink leaves in the ledger."""

from __future__ import annotations

import asyncio
import json
import threading
import time

import psycopg
import pytest

from pgstream.catalog.store import Catalog
from tests.pg.catalog.test_catalog import query, view

KAFKA = [{"store": "k", "at": {"moves": {"0": 10, "1": 4}}}, {"store": "k2", "at": {"other": {"0": 1}}}]


@pytest.fixture
async def made(catalog: Catalog) -> str:
    """The query of a view ``counts`` that has read some of its topics."""
    return (await catalog.create_query(query("counts"), view())).id


@pytest.fixture
def advance(catalog: Catalog, made: str):
    """As the sink does it."""

    def run(consumed: object) -> None:
        with psycopg.connect(catalog.worker_url("main"), autocommit=True) as worker:
            worker.execute(
                "UPDATE pg_pgstream.ledger SET batch = batch + 1, consumed = %s::jsonb WHERE query = %s",
                [json.dumps(consumed), made],
            )

    return run


def wait(positions: str, timeout: str = "0 s", view: str = "public.counts") -> str:
    return f"SELECT pgstream_wait_for('{view}', '{positions}', '{timeout}')"


def refused(ask, sql: str, **who: str) -> psycopg.errors.Diagnostic:
    with pytest.raises(psycopg.Error) as e:
        ask(sql, **who)
    return e.value.diag


async def test_what_was_read_is_there_at_once(ask, advance) -> None:
    advance(KAFKA)
    assert ask(wait("moves:0:9")) == [[""]]
    assert ask(wait(" moves:0:9, moves:1:3,other:0:0")) == [[""]]
    assert ask(wait("\n\tmoves:0:9,\r\n  moves:1:3\n,other:0:0\n")) == [[""]]
    said = refused(ask, wait("moves:0:10"))
    assert (said.sqlstate, said.message_primary) == ("57014", "public.counts has not read moves:0:10 within 00:00:00")
    assert said.message_detail == "It has read up to: moves:0:10, moves:1:4, other:0:1."
    assert refused(ask, wait("moves:7:0")).sqlstate == "57014"  # a partition that is to come


async def test_a_topic_of_two_stores_is_waited_for_in_both(ask, advance) -> None:
    advance([{"store": "a", "at": {"t": {"0": 5}}}, {"store": "b", "at": {"t": {"0": 3}}}])
    assert ask(wait("t:0:2")) == [[""]]
    assert refused(ask, wait("t:0:4")).sqlstate == "57014"


async def test_shards_of_kinesis(ask, advance) -> None:
    shard = {"number": 0, "count": 3, "last": "49671246667567228643283430150187087032206582658"}
    advance([{"store": "k", "at": {"s": {"shardId-0": shard, "shardId-1": {"last": "", "done": True}}, "@begin": "x"}}])
    assert ask(wait("s:shardId-0:49671246667567228643283430150187087032206582658,s:shardId-1:7")) == [[""]]
    assert refused(ask, wait("s:shardId-0:49671246667567228643283430150187087032206582659")).sqlstate == "57014"
    assert refused(ask, wait("x:0:1")).message_hint == "It reads: s."


async def test_it_waits_for_the_batch(ask, advance) -> None:
    assert refused(ask, wait("moves:0:9")).message_detail == "It has read up to: nothing yet."
    timer = threading.Timer(0.5, advance, [KAFKA])
    timer.start()
    begun = time.monotonic()
    await asyncio.to_thread(ask, wait("moves:0:9", "20 s"))
    assert 0.4 < time.monotonic() - begun < 10
    timer.join()


async def test_parameters_of_both_protocols(catalog, postgres, advance) -> None:
    advance(KAFKA)
    url = postgres.url("main", "admin", "first's password")
    with psycopg.connect(url, options="-c role=sysadmin") as conn:
        for types in ("", "::text::regclass, %s::text, %s::interval", "::varchar, %s::varchar, %s::interval"):
            call = f"SELECT pgstream_wait_for(%s{types or ', %s, %s'})"
            conn.execute(call.encode(), ["public.counts", "moves:0:9", "1 s"])
        with pytest.raises(psycopg.errors.QueryCanceled):
            conn.execute("SET LOCAL statement_timeout = 100; SELECT pgstream_wait_for('public.counts', 'moves:0:10')")


async def test_in_a_snapshot_of_before_nothing_is_waited_for(ask, advance) -> None:
    advance(KAFKA)
    repeatable = "BEGIN ISOLATION LEVEL REPEATABLE READ; "
    assert ask(repeatable + wait("moves:0:9")) == []
    said = refused(ask, repeatable + wait("moves:0:10", "20 s"))
    assert said.sqlstate == "25001" and said.message_primary.endswith("in a repeatable read transaction")


async def test_refused(ask, advance) -> None:
    advance(KAFKA)
    for sql, code in (
        (wait("moves:0"), "22P02"),
        (wait("moves:0:x"), "22P02"),
        (wait(""), "22P02"),
        (wait("movies:0:1"), "22023"),
        (wait("moves:0:1", view="pg_class"), "42809"),
        (wait("moves:0:1", view="nowhere"), "42P01"),
        ("SELECT pgstream_wait_for(NULL, 'moves:0:1')", "22004"),
        ("SELECT pgstream_wait_for(4294967295::oid, 'moves:0:1')", "42P01"),
    ):
        assert refused(ask, sql).sqlstate == code, sql


async def test_who_may_not_read_is_told_nothing(catalog: Catalog, postgres, ask, advance) -> None:
    advance(KAFKA)
    ask("CREATE ROLE nosy LOGIN PASSWORD 'nosy''s password'", user=None)
    ask("GRANT USAGE ON SCHEMA public TO nosy", user=None)
    who = {"user": "nosy", "password": "nosy's password"}
    assert refused(ask, wait("moves:0:9"), **who).sqlstate == "42501"
    # The login's role, not that of the function.
    ask("GRANT SELECT (n) ON public.counts TO nosy", user=None)
    assert ask(wait("moves:0:9"), **who) == [[""]]


async def test_a_ledger_of_before_is_brought_up_to_date(catalog: Catalog, made: str, reopen, ask) -> None:
    ask("DROP FUNCTION pgstream_wait_for", user=None)
    ask("ALTER TABLE pg_pgstream.ledger DROP COLUMN consumed", user=None)
    ask("UPDATE pg_pgstream.ledger SET sink = ''", user=None)
    again = await reopen()
    assert again.repaired == []
    assert ask("SELECT sink, consumed FROM pg_pgstream.ledger", user=None) == [['"public"."counts"', None]]
    assert refused(ask, wait("moves:0:1")).sqlstate == "57014"
    await again.close()


async def test_what_an_earlier_version_left_open_is_closed(catalog: Catalog, made: str, reopen, ask) -> None:
    """Functions that found temporary relations first, and a hidden schema that was the worker's."""
    functions = "pgstream_wait_for(regclass, text, interval)", "pgstream_own_activity"
    for function in functions:
        ask(f"ALTER FUNCTION {function} SET search_path = pg_catalog", user=None)
    ask("ALTER SCHEMA pg_pgstream OWNER TO pgstream_worker", user=None)
    ask("ALTER TABLE pg_pgstream.ledger OWNER TO pgstream_worker", user=None)
    again = await reopen()
    assert ask("SELECT DISTINCT proconfig FROM pg_proc WHERE prosecdef") == [[["search_path=pg_catalog, pg_temp"]]]
    assert ask("SELECT relowner::regrole::text, nspowner::regrole::text FROM pg_class JOIN pg_namespace n"
               " ON n.oid = relnamespace WHERE relname = 'ledger'") == [["pgstream", "pgstream"]]  # fmt: skip
    with psycopg.connect(again.worker_url("main")) as worker:
        worker.execute("SELECT FROM pg_pgstream.ledger FOR UPDATE; UPDATE pg_pgstream.ledger SET batch = 7;"
                       " CREATE TABLE pg_pgstream.s_1_1 (i int); DROP TABLE pg_pgstream.s_1_1")  # fmt: skip
    await again.close()
