"""Two catalogues open on one PostgreSQL, as two servers have them: they take turns, and hear one another."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import psycopg
import pytest
from sqlalchemy import text

from pgstream.catalog import postgres as pg
from pgstream.catalog import queries, store
from pgstream.catalog.store import Catalog
from pgstream.config import Config
from pgstream.embedded.postgres import Postgres
from pgstream.engine import forward
from pgstream.engine.forward import Ask, Forward
from pgstream.errors import DuplicateRelation, PgStreamError, RelayedError, Superseded, UndefinedQuery
from pgstream.names import beside
from tests.pg.catalog.conftest import eventually
from tests.pg.catalog.test_catalog import query, stream, view
from tests.pg.catalog.test_kill_points import INDEX
from tests.pg.catalog.test_replacing import COUNTS, always, other

pytestmark = pytest.mark.pg


@pytest.fixture
def another(catalog: Catalog, postgres: Postgres, config: Config) -> Callable[[], Coroutine[Any, Any, Catalog]]:
    """Open the catalogue once more."""
    return lambda: Catalog.open(config, postgres.url, config.data_dir)


@pytest.fixture
async def second(another) -> AsyncIterator[Catalog]:
    opened = await another()
    yield opened
    await opened.close()


class Held:
    """Stops the change that comes by, once."""

    def __init__(self, real: Any) -> None:
        self.real, self.come, self.go = real, asyncio.Event(), asyncio.Event()

    async def __call__(self, *given: Any) -> Any:
        if not self.come.is_set():
            self.come.set()
            await self.go.wait()
        return await self.real(*given)


async def test_a_replacement_under_way_is_left_to_the_server_that_makes_it(
    catalog: Catalog, second: Catalog, another, ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL has the exchange, the catalogue not yet; one server looks for what a crash has left, one starts."""
    made = await catalog.create_query(other(), view())
    new = await catalog.create_replacement(other(), view())
    ask(f"INSERT INTO {beside(new.id)} VALUES ('b', 2)", None)
    await second.refresh()
    held = Held(catalog._tell)
    monkeypatch.setattr(catalog, "_tell", held)
    making = asyncio.create_task(catalog.replace_view(new.id, always, 1))
    await held.come.wait()
    looking = asyncio.create_task(second.finish_replacements())
    starting = asyncio.create_task(another())
    change = asyncio.create_task(second.describe_relation(COUNTS, "mine"))
    assert not (await asyncio.wait({looking, starting, change}, timeout=0.5))[0]
    held.go.set()
    assert await making is True
    assert await looking == []
    third = await starting
    assert third.repaired == []
    await change
    for each in (catalog, second, third):
        await each.refresh()
        kept = each.snapshot.relations[COUNTS.key]
        assert (kept.query, kept.description) == (new.id, "mine")
    assert (await second.query(made.id)).intended == "terminated"
    await third.close()


async def test_a_replacement_whose_server_died_is_finished(
    catalog: Catalog, second: Catalog, ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await catalog.create_query(other(), view())
    new = await catalog.create_replacement(other(), view())
    ask(f"INSERT INTO {beside(new.id)} VALUES ('b', 2)", None)

    async def die(*_: object) -> None:
        raise ConnectionError

    with monkeypatch.context() as m, pytest.raises(ConnectionError):
        m.setattr(catalog, "_tell", die)
        await catalog.replace_view(new.id, always, 1)
    await second.refresh()
    assert await second.finish_replacements(["main"]) == [f"main.public.counts is kept by query {new.id}"]
    assert await second.finish_replacements() == []
    await eventually(lambda: catalog.snapshot.relations[COUNTS.key].query == new.id)
    old = await catalog.query(made.id)
    assert (old.intended, old.actual) == ("terminated", "terminate_requested")


async def test_a_change_that_has_come_to_its_end_is_whole(
    catalog: Catalog, ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is canceled while it commits is so afterwards, and knows what was made, as PostgreSQL does."""
    held = Held(catalog._tell)
    monkeypatch.setattr(catalog, "_tell", held)
    making = asyncio.create_task(catalog.create_query(query("counts"), view()))
    await held.come.wait()
    for _ in range(2):
        making.cancel()
        await asyncio.sleep(0.05)
    assert not making.done()
    held.go.set()
    with pytest.raises(asyncio.CancelledError):
        await making
    assert COUNTS.key in catalog.snapshot.relations and ask("TABLE counts") == []
    keeper = catalog.snapshot.relations[COUNTS.key].query or ""
    await catalog.set_query(keeper, intended="terminated", actual="terminated")
    held = Held(catalog._tell)
    monkeypatch.setattr(catalog, "_tell", held)
    dropping = asyncio.create_task(catalog.drop_relation(COUNTS))
    await held.come.wait()
    dropping.cancel()
    held.go.set()
    with pytest.raises(asyncio.CancelledError):
        await dropping
    assert COUNTS.key not in catalog.snapshot.relations
    assert ask("SELECT to_regclass('counts')") == [[None]]


async def test_what_another_server_died_over_is_in_nobodys_way(
    catalog: Catalog, second: Catalog, ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL has a view, and a stream, that the catalogue never heard of: they are made all the same."""

    async def die(*_: object) -> None:
        raise ConnectionError

    with monkeypatch.context() as m:
        m.setattr(catalog, "_tell", die)
        for made in (catalog.create_query(query("counts"), view()), catalog.create_relation(stream())):
            with pytest.raises(ConnectionError):
                await made
    ask("CREATE VIEW over AS TABLE counts; CREATE TABLE mine (i int)", None)
    again = await second.create_query(query("counts"), view())
    await second.create_relation(stream())
    assert ask("SELECT query::text FROM pg_pgstream.ledger", None) == [[again.id]]
    assert ask("TABLE counts") == [] and ask("SELECT to_regclass('over')") == [[None]]
    with pytest.raises(DuplicateRelation):  # that is a client's own
        await second.create_query(query("mine"), view("mine"))


async def test_an_index_that_another_server_has_just_made_stays(catalog: Catalog, second: Catalog, ask) -> None:
    """This one has not heard of it when it makes a view's rows and own indexes anew."""
    await catalog.create_query(other(), view())
    new = await catalog.create_replacement(other(key=("userid", "n")), view())
    assert catalog._watch is not None
    catalog._watch.cancel()
    await second.refresh()
    await second.create_relation(dataclasses.replace(INDEX, id=""))
    assert INDEX.full.key not in catalog.snapshot.relations
    assert await catalog.replace_view(new.id, always, 1)
    assert ask("SELECT to_regclass('by_n')") == [["by_n"]]


async def test_who_went_by_what_is_replaced_knows_it_then(catalog: Catalog, second: Catalog) -> None:
    """So that its statement can be run again at once."""
    await catalog.create_query(other(), view())
    await second.refresh()
    assert second._watch is not None
    second._watch.cancel()
    new = await catalog.create_replacement(other(), view())
    assert await catalog.replace_view(new.id, always, 1)
    seen = second.snapshot.relations[COUNTS.key]
    assert seen.query != new.id
    with pytest.raises(Superseded):
        await second.create_replacement(other(), seen)
    assert second.snapshot.relations[COUNTS.key].query == new.id


async def test_staging_tables_of_two_queries_of_a_view_have_names_of_their_own(catalog: Catalog) -> None:
    """They are named after attempts: one that takes over has another than the one that still ends."""
    made = await catalog.create_query(other(), view())
    new = await catalog.create_replacement(other(), view())
    await catalog.set_query(made.id, attempt=4)
    assert (await catalog.attempts_beside(query("counts")), await catalog.attempts_beside(new)) == (0, 4)
    assert await catalog.replace_view(new.id, always, 1)
    assert await catalog.attempts_beside(await catalog.query(new.id)) == 4
    await catalog.set_query(made.id, actual="terminated")
    assert await catalog.attempts_beside(await catalog.query(new.id)) == 0


async def test_what_was_heard_half_is_heard_again(
    catalog: Catalog, second: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refresh is canceled when it has read what is new: the next one reads that once more."""
    assert catalog._watch is not None
    catalog._watch.cancel()
    heard: list[Any] = []

    async def spread(delta: Any) -> None:
        heard.append(delta)

    held = Held(spread)
    monkeypatch.setattr(catalog, "spread", held)
    await second.create_query(query("counts"), view())
    hearing = asyncio.create_task(catalog.refresh())
    await held.come.wait()
    hearing.cancel()
    await asyncio.wait({hearing})
    assert heard == []
    await catalog.refresh()
    assert len(heard) == 1 and COUNTS.key in heard[0]["relations"].found
    await catalog.refresh()
    assert len(heard) == 1 and COUNTS.key in catalog.snapshot.relations


async def test_a_turn_that_does_not_come_is_an_error(
    catalog: Catalog, second: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "'600s'" in pg.TAKE_TURN
    short = pg.TAKE_TURN.replace("'600s'", "'100ms'")
    monkeypatch.setattr("pgstream.catalog.store._TAKE_TURN", text(short))
    async with pg.turn(pg.Administrator(lambda *_: catalog.control_url), "", pg.CHANGE):
        with pytest.raises(RelayedError) as e:
            await second.describe_relation(COUNTS, "x")
    assert e.value.sqlstate == "55P03"
    with pytest.raises(PgStreamError):
        await second.describe_relation(COUNTS, "x")  # there is none; the turn came


async def test_a_client_holds_no_turn(catalog: Catalog, postgres: Postgres, another) -> None:
    """A lock of its own making stops neither a server that starts nor a change."""
    whats = ", ".join(f"pg_advisory_lock(hashtextextended('{what}', 0))" for what in (pg.CHANGE, pg.OPEN))
    with contextlib.ExitStack() as stack:
        for database in ("postgres", "main"):
            url = postgres.url(database, "admin", "first's password")
            stack.enter_context(psycopg.connect(url)).execute(f"SELECT {whats}".encode())
        async with asyncio.timeout(60):
            third = await another()
            await third.create_schema("main", "beside", "sysadmin")
            await third.close()
    assert ("main", "beside") in third.snapshot.schemas


async def test_a_control_database_that_a_first_start_left_open_is_closed(
    catalog: Catalog, postgres: Postgres, another
) -> None:
    with psycopg.connect(postgres.url("postgres"), autocommit=True) as conn:
        conn.execute("GRANT CONNECT ON DATABASE pgstream_control TO PUBLIC")
    await (await another()).close()
    with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
        psycopg.connect(postgres.url("pgstream_control", "admin", "first's password"))


async def test_queries_on_their_way_for_long_are_strays(catalog: Catalog, ask, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = await catalog.create_query(query("counts"), view())
    ended = await catalog.create_query(dataclasses.replace(query("x"), id="0" * 8 + begun.id[8:]), view("x"))
    await catalog.set_query(ended.id, intended="terminated", actual="terminate_requested")
    assert await catalog.strays() == []
    monkeypatch.setattr(queries, "STRAY_S", 0)
    assert {q.id for q in await catalog.strays()} == {begun.id, ended.id}
    await catalog.set_query(begun.id, actual="running")
    await catalog.set_query(ended.id, actual="terminated")
    assert await catalog.strays() == []
    await catalog.set_query(begun.id, actual="errored")
    assert await catalog.strays() == []


class Door:
    """A server as far as others ask it."""

    def __init__(self, catalog: Catalog, has: bool) -> None:
        self.has, self.did, self.fault = has, list[Ask](), None
        self.forward = Forward(catalog, lambda pool: self.has, self._do)
        self.hearing = asyncio.create_task(self.forward.run())

    async def _do(self, ask: Ask) -> None:
        self.did.append(ask)
        if self.fault is not None:
            raise self.fault

    async def close(self) -> None:
        self.hearing.cancel()
        await asyncio.wait({self.hearing})


async def test_steps_go_from_server_to_server(
    catalog: Catalog, second: Catalog, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when nobody hears, for a while, and with faults longer than a notification."""
    monkeypatch.setattr(forward, "AGAIN_S", 0.1)
    asking, holder = Door(catalog, False), Door(second, True)
    assert await asking.forward.ask("p", "restart", "1") is True
    with psycopg.connect(postgres.url("postgres"), autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN pgstream_pool%'")
    holder.fault = UndefinedQuery(name="q", hint="ü" * 9000, at=3)  # type: ignore[assignment]
    with pytest.raises(PgStreamError, match='query "q" does not exist') as e:
        await asking.forward.ask("p", "restart", "2")
    assert e.value.hint is not None and len(e.value.hint) > 1000 and e.value.at == 3
    assert [a.query for a in holder.did] == ["1", "2"] and not asking.did
    for door in (asking, holder):
        await door.close()


async def test_the_system_tables_are_what_the_last_change_made_them(catalog: Catalog, second: Catalog, ask) -> None:
    """Each server knows what it has written itself, which another one may have changed and the first change back."""
    made = await catalog.create_query(query("counts"), view())
    await catalog.copy_system_tables("main")
    await eventually(lambda: "main" in second.snapshot.system_copies)

    def shown() -> list[Any]:
        return ask("SELECT facts->>'current_state' FROM pg_pgstream.system WHERE of = 'queries'", None)

    for server, state in ((catalog, "running"), (second, "errored"), (catalog, "running"), (second, "errored")):
        await server.set_query(made.id, actual=state)
        assert shown() == [[state]]


async def test_system_tables_follow_again_after_a_write_that_failed(
    catalog: Catalog, ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what a query tells, which is no change of the catalogue; and a query that never ran is gone from them."""
    made = await catalog.create_query(query("counts"), view())
    await catalog.copy_system_tables("main")
    asked = "SELECT facts->>'current_state' FROM pg_pgstream.system WHERE of = 'queries'"

    async def fails(*_: object) -> None:
        raise RelayedError(code="53100", text="no room")

    with monkeypatch.context() as m:
        m.setattr(store.system_copies, "_write", fails)
        await catalog.set_query(made.id, actual="running")
    assert ask(asked, None) == [["starting"]]
    await catalog.set_query(made.id, actual="errored")
    assert ask(asked, None) == [["errored"]]
    await catalog.discard_query(made.id)
    assert ask(asked, None) == []


async def test_system_tables_that_cannot_be_written_keep_nothing_back(
    catalog: Catalog, second: Catalog, ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await catalog.create_query(query("counts"), view())
    await catalog.copy_system_tables("main")
    await eventually(lambda: "main" in second.snapshot.system_copies)
    real, short = store._COPY_TURN, text(f"SET LOCAL lock_timeout = '50ms'; {store.system_copies.TURN}")
    monkeypatch.setattr(store, "_COPY_TURN", short)
    with psycopg.connect(catalog.control_url) as hung:
        hung.execute(store.system_copies.TURN)
        await second.set_query(made.id, actual="errored")
        await second.describe_relation(COUNTS, "mine")
    monkeypatch.setattr(store, "_COPY_TURN", real)
    await second.describe_relation(COUNTS, "mine, too")
    asked = "SELECT facts->>'current_state' FROM pg_pgstream.system WHERE of = 'queries'"
    assert ask(asked, None) == [["errored"]]
