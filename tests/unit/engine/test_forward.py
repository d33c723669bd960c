"""Steps of queries asked of the server that has the pool; a wire in memory takes PostgreSQL's place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pgstream import traces
from pgstream.engine import forward
from pgstream.engine.forward import Ask, Forward
from pgstream.errors import EngineUnavailable, PgStreamError, RelayedError, UndefinedQuery


class Wire:
    """What LISTEN and NOTIFY do: everybody hears everything."""

    control_url = ""

    def __init__(self) -> None:
        self.servers: list[Forward] = []
        self.said: list[str] = []
        self.lost: Callable[[str], bool] = lambda text: False
        self.down = 0

    async def notify(self, channel: str, text: str) -> None:
        assert channel == forward.CHANNEL and len(text.encode()) < 8000
        if self.down:
            self.down -= 1
            raise RelayedError(code="57P03", text="the database system is starting up")
        self.said.append(text)
        if self.lost(text):
            return
        for server in self.servers:
            server._heard(text)

    async def refresh(self) -> None:
        pass


class Server:
    """One that has the pools ``has``, and does steps by ``fault`` and ``hold``."""

    def __init__(self, wire: Wire, *has: str) -> None:
        self.has = set(has)
        self.did: list[Ask] = []
        self.fault: Exception | None = None
        self.hold: asyncio.Event | None = None
        self.forward = Forward(wire, self.has.__contains__, self.do)
        wire.servers.append(self.forward)

    async def do(self, ask: Ask) -> None:
        self.did.append(ask)
        if self.hold is not None:
            await self.hold.wait()
        if self.fault is not None:
            raise self.fault


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    monkeypatch.setattr(forward, "AGAIN_S", 0.02)
    return Wire()


async def test_the_one_that_has_the_pool_does_it_once(wire: Wire) -> None:
    asking, holder, other = Server(wire), Server(wire, "p"), Server(wire, "q")
    holder.hold = asyncio.Event()
    asked = asyncio.ensure_future(asking.forward.ask("p", "move", "query-1", "q"))
    await asyncio.sleep(0.1)  # it asks again meanwhile
    assert len(wire.said) > 2 and not asked.done()
    holder.hold.set()
    assert await asked is True
    assert [(a.step, a.query, a.to) for a in holder.did] == [("move", "query-1", "q")]
    assert not asking.did and not other.did


async def test_a_trace_goes_on_at_the_other_server(wire: Wire, sent: InMemorySpanExporter) -> None:
    asking, holder = Server(wire), Server(wire, "p")
    with traces.entry("CREATE STREAM", {}):
        assert await asking.forward.ask("p", "launch", "query-1") is True
    there, statement = sent.get_finished_spans()
    assert there.name == "launch for another server" and holder.did[0].trace
    assert there.parent is not None and there.parent.span_id == statement.context.span_id


@pytest.mark.parametrize("letter", ["x", "ü", "\N{GRINNING FACE}", '"', "\x01"])
async def test_its_fault_is_raised_with_all_that_fits(wire: Wire, letter: str) -> None:
    asking, holder = Server(wire), Server(wire, "p")
    holder.fault = UndefinedQuery(name="q", at=7, hint=letter * 3000)
    with pytest.raises(PgStreamError, match='query "q" does not exist') as e:
        await asking.forward.ask("p", "launch", "x")
    assert (e.value.sqlstate, e.value.at) == (UndefinedQuery.sqlstate, 7)
    assert e.value.hint is not None and len(e.value.hint) > 400 and not e.value.hint.strip(letter)


async def test_a_bug_there_is_an_internal_error_here(wire: Wire, caplog: Any) -> None:
    asking, holder = Server(wire), Server(wire, "p")
    holder.fault = ZeroDivisionError("secret")
    with pytest.raises(PgStreamError, match="internal error") as e:
        await asking.forward.ask("p", "launch", "x")
    assert e.value.sqlstate == "XX000" and "secret" not in repr(wire.said)


async def test_an_answer_that_was_missed_comes_again(wire: Wire) -> None:
    asking, holder = Server(wire), Server(wire, "p")
    wire.lost = lambda text: '"answer"' in text and len(wire.said) < 4
    assert await asking.forward.ask("p", "restart", "1") is True
    assert len(holder.did) == 1 and sum('"answer"' in text for text in wire.said) > 1


async def test_a_catalogue_that_is_away_for_a_while_is_asked_again(wire: Wire) -> None:
    asking, holder = Server(wire), Server(wire, "p")
    wire.down = 3
    assert await asking.forward.ask("p", "restart", "1") is True
    assert len(holder.did) == 1 and wire.down == 0


async def test_whoever_takes_the_pool_over_is_asked_too(wire: Wire) -> None:
    asking, dead = Server(wire), Server(wire, "p")
    dead.hold = asyncio.Event()
    asked = asyncio.ensure_future(asking.forward.ask("p", "restart", "1"))
    await asyncio.sleep(0.05)
    wire.servers.remove(dead.forward)
    heir = Server(wire, "p")
    assert await asked is True
    assert [a.step for a in heir.did] == ["restart"]


async def test_it_is_this_one_itself_in_the_end(wire: Wire) -> None:
    asking = Server(wire)
    asked = asyncio.ensure_future(asking.forward.ask("p", "restart", "1"))
    await asyncio.sleep(0.05)
    asking.has.add("p")
    assert await asked is False
    assert not asking.did


async def test_nobody_answers(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward, "ANSWER_S", 0.1)
    with pytest.raises(EngineUnavailable, match="does not answer"):
        await Server(wire).forward.ask("p", "restart", "1")


async def test_what_is_not_understood_is_left_alone(wire: Wire, capsys: Any) -> None:
    holder = Server(wire, "p")
    for text in ("", "{}", '{"type": "new", "id": "1"}'):
        await wire.notify(forward.CHANNEL, text)
    assert not holder.did
