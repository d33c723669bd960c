"""Two engines on one catalogue: one has the pool, any takes a step; locks and notifications are in memory."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pgstream.catalog.records import RelationRecord
from pgstream.engine import compute, forward
from pgstream.engine.engine import Engine
from pgstream.engine.lock import Holder
from pgstream.engine.replacements import Replacements
from pgstream.errors import PgStreamError
from pgstream.names import FullName
from tests.unit.engine.conftest import Bench, FakeCatalog, until


class SharedLock:
    """The lock of a pool among the servers of this process, in the order in which they want it."""

    locks: dict[str, asyncio.Lock]

    def __init__(self, url: str, pool: str) -> None:
        self._lock = self.locks.setdefault(pool, asyncio.Lock())
        self.holder = Holder.NOBODY
        self.lost: asyncio.Event | None = None

    async def is_elsewhere(self) -> bool:
        return self._lock.locked() and self.holder is not Holder.HERE

    @contextlib.asynccontextmanager
    async def hold(self) -> AsyncIterator[asyncio.Task[Any]]:
        if self._lock.locked():
            self.holder = Holder.ELSEWHERE
        async with self._lock:
            self.holder, self.lost = Holder.HERE, asyncio.Event()
            task = asyncio.create_task(self.lost.wait())
            try:
                yield task
            finally:
                self.holder = Holder.NOBODY
                task.cancel()


class Wired(FakeCatalog):
    """A catalogue whose notifications reach every server."""

    def __init__(self) -> None:
        super().__init__()
        self.hearing: list[forward.Forward] = []
        self.said: list[str] = []

    async def notify(self, channel: str, text: str) -> None:
        self.said.append(text)
        for each in self.hearing:
            each._heard(text)

    async def refresh(self) -> None:
        pass


class Two(Bench):
    """``engine`` has the pool, ``other`` does not."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.catalog: Wired = Wired()
        self.config = replace(self.config, checkpoint_dir=str(folder / "checkpoints"))
        self.engine = self.start(folder / "a")
        self.other = self.start(folder / "b")

    def start(self, data_dir: Path) -> Engine:
        data_dir.mkdir()
        self.config = replace(self.config, data_dir=data_dir)
        made = self.new_engine()
        self.catalog.hearing.append(made._forward)
        return made

    async def begin(self) -> None:
        await self.engine.start()
        await until(lambda: self.engine._has("default") and self.engine.is_ready())
        await self.other.start()
        await until(lambda: self.other.is_ready())

    def lose(self, engine: Engine) -> None:
        """The lock goes with its connection."""
        lost = engine.pool("default")._lock.lost  # type: ignore[attr-defined]
        assert lost is not None
        lost.set()


@pytest.fixture
async def two(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Two]:
    monkeypatch.setattr(SharedLock, "locks", {}, raising=False)
    monkeypatch.setattr(compute, "PoolLock", SharedLock)
    monkeypatch.setattr(forward, "AGAIN_S", 0.02)
    (tmp_path / "two").mkdir()
    made = Two(tmp_path / "two")
    yield made
    await made.other.stop()
    await made.engine.stop()


async def test_steps_are_done_by_the_server_that_has_the_pool(two: Two) -> None:
    await two.begin()
    id = two.catalog.add()
    await two.other.launch(id)
    assert (await two.state(id, "running")).attempt == 1
    await until(lambda: two.engine.progress(id))
    assert not two.other.progress(id)  # which then says what the catalogue has
    await two.other.restart(id)
    await until(lambda: two.catalog.records[id].attempt == 2)
    await two.state(id, "running")
    await two.other.terminate(id)
    assert two.catalog.records[id].actual == "terminated"
    assert [start["attempt"] for start in two.heard("Start")] == [1, 2]
    assert not any("password" in text or "hush" in text for text in two.catalog.said)


async def test_a_fault_is_told_where_the_statement_came(two: Two) -> None:
    await two.begin()
    id = two.catalog.add(fault="user")
    with pytest.raises(PgStreamError, match="no good") as e:
        await two.other.launch(id)
    assert (e.value.sqlstate, e.value.hint, e.value.at) == ("22000", "Try another.", 7)
    assert two.catalog.discarded == [id]


async def test_the_wait_for_another_server_can_be_given_up(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    await two.begin()
    id = two.catalog.add(slow="yes", deaf="yes")
    holding = asyncio.Event()
    begun = two.engine.pool("default").launch

    async def launch(*given: Any) -> None:
        holding.set()
        await begun(*given)
        await asyncio.Event().wait()

    monkeypatch.setattr(two.engine.pool("default"), "launch", launch)
    asked = asyncio.create_task(two.other.launch(id))
    await holding.wait()
    asked.cancel()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await asked
    await two.other.terminate(id)  # as the statement undoes what it has begun
    assert two.catalog.records[id].intended == "terminated"


async def test_what_the_holder_does_not_answer_is_wished_all_the_same(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    await two.begin()
    id = two.catalog.add()
    await two.other.launch(id)
    await two.state(id, "running")
    monkeypatch.setattr(compute, "END_S", 0.1)
    two.catalog.hearing.clear()
    await two.other.terminate(id)
    record = two.catalog.records[id]
    assert (record.intended, record.actual) == ("terminated", "terminate_requested")
    two.catalog.old.add(id)  # the server that has the pool finds it
    await two.state(id, "terminated")


async def test_another_takes_over(two: Two) -> None:
    await two.begin()
    id = two.catalog.add()
    await two.engine.launch(id)
    await two.state(id, "running")
    two.lose(two.engine)
    await until(lambda: two.other._has("default") and two.catalog.records[id].attempt == 2)
    await two.state(id, "running")
    await until(lambda: two.other.progress(id))
    # The one before tells nothing of it any more: neither its state, which is the other's, nor its progress.
    await until(lambda: two.engine.pool("default")._lock.holder is Holder.ELSEWHERE)
    assert not two.engine.progress(id) and two.catalog.records[id].actual == "running"
    assert not [m for q, m in two.catalog.history if "another server" in m.get("message", "")]
    await two.engine.restart(id)
    await until(lambda: two.catalog.records[id].attempt == 3)


async def test_a_query_that_nobody_launched_is_started(two: Two) -> None:
    """The server that recorded it died before it asked."""
    await two.begin()
    id = two.catalog.add()
    await asyncio.sleep(0.1)
    assert not two.heard("Start")
    two.catalog.old.add(id)
    await two.state(id, "running")
    assert len(two.heard("Start")) == 1


async def test_a_checkpoint_that_is_elsewhere_is_not_begun_anew(two: Two) -> None:
    await two.begin()
    id = two.catalog.add()
    two.catalog.records[id] = replace(two.catalog.records[id], progress={"batch": 7})
    with contextlib.suppress(PgStreamError):
        await two.engine.launch(id)
    record = await two.state(id, "starting", "the query's checkpoint is not in")
    assert "checkpoint_dir" in record.message and not two.heard("Start")


VIEW = RelationRecord("1", FullName("main", "public", "v"), "materialized_view", (), "sysadmin", query="old")


class Replaced:
    """A catalogue with one view that is being replaced by a query of the pool p."""

    def __init__(self) -> None:
        query = SimpleNamespace(id="new", pool="p", actual="running", stores=("k",), message="")
        self.pairs: list[Any] = [(VIEW, query)]
        self.snapshot = SimpleNamespace(relations={VIEW.full.key: VIEW})
        self.asked: list[str] = []

    async def replacements(self) -> list[Any]:
        return self.pairs

    async def finish_replacements(self, databases: Any) -> list[str]:
        self.asked.append("finish")
        return []

    async def consumed(self, view: Any, ids: Any) -> dict[str, Any]:
        self.asked.append("consumed")
        at = [{"store": "k", "at": {"t": {"0": 1}}}]
        return {"old": (1, at), "new": (1, at)}

    async def replace_view(self, id: str, enough: Any, within_s: float) -> bool:
        self.asked.append("replace")
        return True


async def test_a_view_is_replaced_by_the_server_that_has_the_new_query() -> None:
    catalog, pools, taken = Replaced(), {"default"}, []

    async def take(new: str, old: str) -> None:
        taken.append((new, old))

    here = Replacements(catalog, pools.__contains__, lambda id: {}, lambda id: 0.0, take)  # type: ignore[arg-type]
    for _ in range(3):
        await here.look()
    assert not catalog.asked and not taken
    pools.add("p")
    for _ in range(2):
        await here.look()
    assert "replace" in catalog.asked and taken == [("new", "old")]


async def test_what_a_server_died_over_is_finished_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog, taken = Replaced(), []

    async def finish(databases: Any) -> list[str]:
        assert databases == {"main"}
        catalog.snapshot.relations[VIEW.full.key] = replace(VIEW, query="new")
        return ["main.public.v is kept by query new"]

    async def take(new: str, old: str) -> None:
        taken.append((new, old))

    monkeypatch.setattr(catalog, "finish_replacements", finish)
    here = Replacements(catalog, {"p"}.__contains__, lambda id: {}, lambda id: 0.0, take)  # type: ignore[arg-type]
    await here.look()
    assert taken == [("new", "old")] and catalog.asked == []


async def test_one_that_began_again_with_nothing_new_has_read_it_all() -> None:
    """It reads a topic that the old one does not, and tells no progress since a start: there was nothing."""
    catalog, taken, idle = Replaced(), list[Any](), dict[str, float]()

    async def consumed(view: Any, ids: Any) -> dict[str, Any]:
        both = [{"store": "k", "at": {t: {"0": 1}}} for t in ("t", "u")]
        return {"old": (1, both[:1]), "new": (1, both)}

    async def take(new: str, old: str) -> None:
        taken.append((new, old))

    catalog.consumed = consumed  # type: ignore[method-assign]
    here = Replacements(
        catalog, {"p"}.__contains__, lambda id: {}, lambda id: idle.get(id, 0.0), take  # type: ignore[arg-type]
    )  # fmt: skip
    for _ in range(3):
        await here.look()
    assert taken == []
    idle["new"] = 1.0
    await here.look()
    assert taken == [("new", "old")]


async def test_a_place_that_a_topic_does_not_have_any_more_is_not_waited_for() -> None:
    """The topic was made anew: its records are all read, and will not be as many as the old query had of the first."""
    catalog, taken, idle = Replaced(), list[Any](), dict[str, float]()

    async def consumed(view: Any, ids: Any) -> dict[str, Any]:
        return {
            id: (1, [{"store": "k", "at": {"t": at}}]) for id, at in (("old", {"0": 90, "1": 4}), ("new", {"0": 7}))
        }

    async def replace_view(id: str, enough: Any, within_s: float) -> bool:
        at = await consumed(None, ())
        assert not enough([{"store": "k", "at": {"t": {"0": 91}}}], at["new"][1])
        return bool(enough(at["old"][1], at["new"][1]))

    async def take(new: str, old: str) -> None:
        taken.append((new, old))

    catalog.consumed = consumed  # type: ignore[method-assign]
    catalog.replace_view = replace_view  # type: ignore[method-assign]
    here = Replacements(
        catalog, {"p"}.__contains__, lambda id: {}, lambda id: idle.get(id, 0.0), take  # type: ignore[arg-type]
    )  # fmt: skip
    idle["new"] = time.time()  # before the old one was seen there
    for _ in range(3):
        await here.look()
    assert taken == []
    idle["new"] = time.time()
    await here.look()
    assert taken == [("new", "old")]
