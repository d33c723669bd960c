"""The engine against a worker without Spark: desired state, failures, death, results, questions."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pgstream import traces
from pgstream.catalog.records import ObjectRecord, Snapshot
from pgstream.catalog.rights import Reading
from pgstream.engine import channel, compute, engine, leave, leftover, life, pool, readers, results, suspects
from pgstream.engine.channel import Ended, Fault
from pgstream.engine.computation import Computation
from pgstream.engine.history import History
from pgstream.engine.readers import Readers
from pgstream.engine.requests import Limits
from pgstream.errors import (
    CrashedWorkers,
    DependentsExist,
    EngineUnavailable,
    InsufficientPrivilege,
    NotReady,
    RelayedError,
    StoreUnreachable,
    TooManyStreams,
)
from pgstream.planner.plan import VERSION, Plan, RecordSink
from tests.unit.engine.conftest import FAKE, Bench, FakeCatalog, result_plan, source, until, view_plan


def alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def sleeper(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", *arguments], start_new_session=True)


async def test_launch_returns_when_the_query_runs(bench: Bench) -> None:
    await bench.engine.start()
    id = bench.catalog.add()
    await bench.engine.launch(id)
    record = await bench.state(id, "running")
    assert record.attempt == 1
    (start,) = bench.heard("Start")
    assert start["stores"] == {"k": {"uris": "b", "password": "hush"}}
    assert start["databases"] == {"main": "postgresql://worker@h/main"}
    await until(lambda: bench.engine.progress(id))
    assert bench.engine.progress(id)["sources"] == {"main.public.s": {"lag": 1}}
    await bench.engine.stop()
    assert bench.catalog.records[id].progress["rows_in"] == 10


async def test_no_executor_is_said_where_one_looks(bench: Bench, tmp_path: Path) -> None:
    await bench.engine.start()
    id = bench.catalog.add(unserved=str(tmp_path / "served"))
    await bench.engine.launch(id)
    why = "waiting: the cluster has given the pool no executor yet"
    await until(lambda: bench.catalog.records[id].message == why)
    assert bench.engine.pool_state("default") == ("running", why)
    later = bench.catalog.add()
    launched = asyncio.create_task(bench.engine.launch(later))
    await until(lambda: bench.catalog.records[later].message == why)
    (tmp_path / "served").touch()
    await launched
    await until(lambda: bench.catalog.records[id].message == bench.catalog.records[later].message == "")
    assert bench.engine.pool_state("default") == ("running", "")
    await bench.engine.stop()


async def test_attempt_is_recorded_before_the_worker_hears_it(bench: Bench) -> None:
    id = bench.catalog.add()
    bench.catalog.records[id] = replace(bench.catalog.records[id], attempt=41, actual="running")
    await bench.engine.start()
    await bench.state(id, "running")
    await until(lambda: bench.heard("Start"))
    assert bench.heard("Start")[0]["attempt"] == 42
    assert (id, {"attempt": 42, "actual": "starting", "message": ""}) in bench.catalog.history


async def test_an_attempt_is_none_of_those_that_write_the_same_view(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker's staging tables are named after it."""

    async def beside(record: Any) -> int:
        return 6

    monkeypatch.setattr(bench.catalog, "attempts_beside", beside)
    id = bench.catalog.add()
    await bench.engine.start()
    await bench.state(id, "running")
    assert bench.heard("Start")[0]["attempt"] == 7


async def test_a_query_whose_role_has_lost_a_right_does_not_start(bench: Bench) -> None:
    id = bench.catalog.add()
    bench.catalog.records[id] = replace(bench.catalog.records[id], owner="keepers")
    await bench.engine.start()
    record = await bench.state(id, "errored")
    assert record.message == (
        'permission denied: role "keepers" does not have CREATE_QUERY on the organization. '
        "Grant it again, then RESTART QUERY."
    )
    assert not bench.heard("Start")
    bench.catalog.records[id] = replace(record, owner="sysadmin")
    await bench.engine.restart(id)
    await bench.state(id, "running")


async def test_launch_raises_the_fault_and_leaves_nothing(bench: Bench) -> None:
    await bench.engine.start()
    id = bench.catalog.add(fault="user")
    with pytest.raises(RelayedError) as e:
        await bench.engine.launch(id)
    assert (e.value.sqlstate, e.value.text, e.value.hint, e.value.at) == ("22000", "no good", "Try another.", 7)
    assert bench.catalog.discarded == [id]


async def test_data_fault_needs_restart(bench: Bench) -> None:
    await bench.engine.start()
    id = bench.catalog.add(fault="data", times="1", after_running="1")
    await bench.engine.launch(id)
    record = await bench.state(id, "errored")
    assert record.message == "no good. Try another."
    await bench.engine.restart(id)
    record = await bench.state(id, "running")
    assert (record.attempt, record.message) == (2, "")


async def test_errored_query_stays_errored_at_the_next_start(bench: Bench) -> None:
    id, other = bench.catalog.add(), bench.catalog.add()
    bench.catalog.records[id] = replace(bench.catalog.records[id], actual="errored", message="why")
    await bench.engine.start()
    await bench.state(other, "running")
    assert bench.catalog.records[id].actual == "errored"
    assert [s["query"] for s in bench.heard("Start")] == [other]


@pytest.mark.parametrize("kind", ["store", "engine"])
async def test_outside_fault_is_retried_with_pauses(bench: Bench, kind: str) -> None:
    await bench.engine.start()
    id = bench.catalog.add(fault=kind, times="3")
    await bench.engine.launch(id)
    record = await bench.state(id, "running")
    assert record.attempt == 4
    waits = [c for i, c in bench.catalog.history if c.get("message", "").startswith("waiting: no good")]
    assert len(waits) == 3


async def test_what_another_start_has_written_is_looked_for_again(bench: Bench, pauses: dict[str, list[int]]) -> None:
    """Its worker may not have ended yet, so that the checkpoint said less. What stays so was put back by somebody."""
    passes, stays = (bench.catalog.add(fault="overtaken", times=n) for n in ("2", "9"))
    await bench.engine.start()
    assert (await bench.state(passes, "running")).attempt == 3
    assert (await bench.state(stays, "errored", "no good")).attempt == 4
    assert sorted(pauses["queries"]) == [1, 1, 2, 2, 3]


def test_pauses_grow_to_a_limit() -> None:
    assert [pool.pause(n) for n in (0, 1, 2, 3, 4, 5, 6, 99)] == [0, 1, 2, 4, 8, 16, 30, 30]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """The failures in a row that each pause of the worker, and of the queries, was for."""
    asked: dict[str, list[int]] = {"worker": [], "queries": []}
    for name, module in (("worker", pool), ("queries", life)):
        monkeypatch.setattr(module, "pause", lambda n, name=name: asked[name].append(n) or 0.01)
    return asked


async def test_pauses_grow_only_as_long_as_nothing_works(bench: Bench, pauses: dict[str, list[int]]) -> None:
    await bench.engine.start()
    bad, better = (
        bench.catalog.add(fault="store", times="4"),
        bench.catalog.add(fault="store", times="4", after_a_batch="1"),
    )
    for id in (bad, better):
        await bench.engine.launch(id)
    for id in (bad, better):
        await until(lambda id=id: bench.catalog.records[id].attempt == 5)
        await bench.state(id, "running")
    assert sorted(pauses["queries"]) == [1, 1, 1, 1, 1, 2, 3, 4]


async def test_who_has_failed_is_not_started_before_its_pause(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by a server that looks for what was left to start, nor because a worker is ready at that moment."""
    monkeypatch.setattr(life, "pause", lambda _: 600)
    await bench.engine.start()
    id = bench.catalog.add()
    await bench.engine.launch(id)
    record = await bench.state(id, "running")
    queries = bench.engine.pool("default")._queries
    queries.ended(Ended(id, record.attempt, Fault("store", "58030", "it is away")))
    queries.mend([bench.catalog.records[id]])
    await queries._reconcile()
    assert (await bench.state(id, "starting", "it is away")).attempt == record.attempt
    run = queries._run(id)
    assert run.retry is not None and not run.at_worker and not run.failing


async def test_a_worker_that_ran_its_queries_comes_back_at_once(bench: Bench, pauses: dict[str, list[int]]) -> None:
    await bench.engine.start()
    id = bench.catalog.add()
    await bench.engine.launch(id)
    for _ in range(3):
        attempt = (await bench.state(id, "running")).attempt
        # What a worker says after its first batch is the last that the fake one says.
        await until(lambda n=attempt: bench.engine.progress(id).get("sources") == {"main.public.s": {"lag": n}})
        os.killpg(bench.worker_pid(), signal.SIGKILL)
        await until(lambda n=attempt: bench.catalog.records[id].attempt > n)
    await bench.state(id, "running")
    assert pauses["worker"] == [0, 0, 0]


async def test_killed_worker_comes_back_with_its_queries(bench: Bench) -> None:
    await bench.engine.start()
    ids = [bench.catalog.add() for _ in range(3)]
    for id in ids:
        await bench.engine.launch(id)
    for _ in range(2):
        pid = bench.worker_pid()
        os.killpg(pid, signal.SIGKILL)
        await until(lambda pid=pid: (bench.folder / "worker-default.pid").exists() and bench.worker_pid() != pid)
        for id in ids:
            await bench.state(id, "running")
    assert [bench.catalog.records[id].attempt for id in ids] == [3, 3, 3]
    assert any("restarted" in c.get("message", "") for _, c in bench.catalog.history)


async def test_query_that_kills_the_worker_is_tried_again(bench: Bench) -> None:
    await bench.engine.start()
    id = bench.catalog.add(die="1", times="2")
    await bench.engine.launch(id)
    assert (await bench.state(id, "running")).attempt == 3


async def test_a_start_is_a_part_of_the_trace_that_asks_for_it(bench: Bench, sent: InMemorySpanExporter) -> None:
    await bench.engine.start()
    id = bench.catalog.add(die="1", times="1")
    with traces.entry("CREATE STREAM", {}):
        await bench.engine.launch(id)
    await bench.state(id, "running")
    with traces.entry("RESTART QUERY", {}):
        await bench.engine.restart(id)
    await until(lambda: len(bench.heard("Start")) == 3)
    made, again, restarted = ((s["trace"], s["origin"]) for s in bench.heard("Start"))
    asked = [f"{s.context.span_id:016x}" for s in sent.get_finished_spans() if s.name == "start query"]
    # After the worker's death nobody asks; what the query goes back to is its creation all the time.
    assert [made[0].split("-")[2], again[0], restarted[0].split("-")[2]] == [asked[0], "", asked[1]]
    assert made[1] == again[1] == restarted[1] == made[0]


async def test_query_that_crashes_the_worker_again_and_again_is_kept_out(bench: Bench) -> None:
    bad = bench.catalog.add(crash="1", times="100")
    well = [bench.catalog.add() for _ in range(4)]
    bench.catalog.records |= {id: bench.catalog.records.pop(id) for id in (*well[:2], bad, *well[2:])}
    await bench.engine.start()
    record = await bench.state(bad, "errored", "crashed 3 times in a row in this query's first batch")
    for id in well:
        await bench.state(id, "running")
    assert bench.catalog.records[bad].intended == "running"
    pid = bench.worker_pid()
    # Somebody asks to try again, in vain: the same once more, and nobody else comes to harm for good.
    await bench.engine.restart(bad)
    await until(lambda: bench.catalog.records[bad].attempt > record.attempt)
    await bench.state(bad, "errored", "crashed 3 times")
    for id in well:
        await bench.state(id, "running")
    assert bench.worker_pid() != pid
    assert not bench.heard("Shutdown")


async def test_crashes_that_end_are_forgiven(bench: Bench) -> None:
    await bench.engine.start()
    id = bench.catalog.add(crash="1", times="2")
    await bench.engine.launch(id)
    assert (await bench.state(id, "running")).attempt == 3


async def test_a_slow_query_is_not_taken_for_the_one_that_crashes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspects, "TRIAL_S", 0.2)
    slow, bad = bench.catalog.add(slow="1"), bench.catalog.add(crash="1", times="100")
    well = bench.catalog.add()
    await bench.engine.start()
    await bench.state(bad, "errored", "crashed 3 times")
    for id in (slow, well):
        await bench.state(id, "running")


async def test_terminate(bench: Bench) -> None:
    await bench.engine.start()
    id = bench.catalog.add()
    await bench.engine.launch(id)
    place = bench.folder / "checkpoints" / id
    await until(place.exists)
    await bench.engine.terminate(id)
    record = bench.catalog.records[id]
    assert (record.intended, record.actual) == ("terminated", "terminated")
    assert bench.heard("Stop") == [{"type": "Stop", "query": id, "forget": True}]
    await until(lambda: not place.exists())
    with pytest.raises(NotReady):
        await bench.engine.restart(id)


async def test_a_checkpoint_that_comes_back_goes_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark writes a snapshot of the state of a run that has failed when it lets it go."""
    monkeypatch.setattr(life, "LATE_S", (0.3, 0.1))
    id = bench.catalog.add(fault="data")
    place = bench.folder / "checkpoints" / id
    (place / "sources").mkdir(parents=True)
    await bench.engine.terminate(id)
    assert not place.exists()
    (place / "state").mkdir(parents=True)
    await until(lambda: not place.exists())


async def test_what_comes_back_after_a_server_has_died_is_swept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a query of which the catalogue knows nothing any more; another PostgreSQL's queries may have their folders
    beside it.
    """
    await bench.engine.start()
    id = bench.catalog.add(fault="data")
    folder = bench.folder / "checkpoints"
    for name in (id, str(uuid.uuid4())):
        (folder / name).mkdir(parents=True)
    with pytest.raises(RelayedError):
        await bench.engine.launch(id)
    await until(lambda: not (folder / id).exists())
    await bench.engine.stop()
    (folder / id / "state").mkdir(parents=True)
    monkeypatch.setattr(life, "LATE_S", (0.1, 0.1))
    bench.engine = bench.new_engine()
    await bench.engine.start()
    await until(lambda: not (folder / id).exists())
    (folder / id / "state").mkdir(parents=True)
    await until(lambda: not (folder / id).exists() and not list((folder / life.OVER).iterdir()))
    assert len(list(folder.iterdir())) == 2


async def test_what_an_ended_query_left_is_swept(bench: Bench) -> None:
    """A server died when it had recorded the end; what is not of a query stays."""
    ended, lives = bench.catalog.add(), bench.catalog.add()
    bench.catalog.records[ended] = replace(bench.catalog.records[ended], intended="terminated", actual="terminated")
    places = [bench.folder / "checkpoints" / id for id in (ended, lives, "interactive")]
    for place in places:
        place.mkdir(parents=True)
    await bench.engine.start()
    await until(lambda: not places[0].exists())
    assert places[1].exists() and places[2].exists()


async def test_terminate_without_worker(bench: Bench) -> None:
    id = bench.catalog.add()
    await bench.engine.terminate(id)
    assert bench.catalog.records[id].actual == "terminated"


async def test_what_the_writers_of_an_ended_query_kept_goes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the stores that it wrote into; a store that is away keeps it, and the query has ended all the same."""
    asked: list[str] = []

    class Store:
        async def unmark(self, query: str) -> None:
            asked.append(query)
            raise StoreUnreachable(name="k", why="it is away")

        async def close(self) -> None:
            asked.append("closed")

    monkeypatch.setattr(leave.stores, "open_admin", lambda *_: Store())
    writes, keeps_a_view = bench.catalog.add(), bench.catalog.add()
    plan = Plan(source(), RecordSink("main.public.out", "k", "out", "append", "json", ["n"]))
    bench.catalog.records[writes] = replace(bench.catalog.records[writes], plan=plan.json())
    for id in (keeps_a_view, writes):
        await bench.engine.terminate(id)
    await until(lambda: asked == [writes, "closed"])
    assert bench.catalog.records[writes].actual == "terminated"
    # The first batch of one that is refused may have written what came before a bad record.
    await bench.engine.start()
    refused = bench.catalog.add(fault="user")
    bench.catalog.records[refused] = replace(bench.catalog.records[refused], plan=plan.json())
    with pytest.raises(RelayedError):
        await bench.engine.launch(refused)
    await until(lambda: asked[2:] == [refused, "closed"])


async def test_a_query_that_is_gone_is_forgotten_whatever_its_discard_said(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when its client leaves in the midst of it; the client is told the fault else."""
    real = bench.catalog.discard_query
    come, go = asyncio.Event(), asyncio.Event()

    async def discard(id: str, also: Any = ()) -> None:
        await real(id, also)
        come.set()
        await go.wait()
        raise StoreUnreachable(name="k", why="it is away")

    monkeypatch.setattr(bench.catalog, "discard_query", discard)
    await bench.engine.start()
    for is_canceled in (True, False):
        come.clear(), go.clear()
        id = bench.catalog.add(fault="data")
        place = bench.folder / "checkpoints" / id
        place.mkdir(parents=True)
        launching = asyncio.create_task(bench.engine.launch(id))
        await asyncio.wait_for(come.wait(), 30)
        if is_canceled:
            launching.cancel()
        await asyncio.sleep(0)
        go.set()
        with pytest.raises(asyncio.CancelledError if is_canceled else RelayedError):
            await launching
        await until(lambda place=place: not place.exists())
        assert not bench.engine.pool("default")._queries.owns(id)


async def test_a_query_that_is_kept_can_be_restarted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def discard(id: str, also: Any = ()) -> None:
        raise DependentsExist(kind="stream", name="s", users=[("query", "2")])

    monkeypatch.setattr(bench.catalog, "discard_query", discard)
    await bench.engine.start()
    id = bench.catalog.add(fault="data")
    with pytest.raises(RelayedError):
        await bench.engine.launch(id)
    assert bench.catalog.records[id].actual == "errored" and bench.engine.pool("default")._queries.owns(id)


async def test_the_end_of_a_query_is_one_at_a_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store does not answer; somebody finds every few seconds that the query has not ended."""
    asked, go = list[str](), asyncio.Event()

    async def slow(catalog: Any, folder: Path) -> None:
        asked.append(folder.name)
        await go.wait()

    monkeypatch.setattr(life, "leave", slow)
    id = bench.catalog.add()
    (bench.folder / "checkpoints" / id).mkdir(parents=True)
    bench.catalog.old.add(id)
    await bench.engine.start()
    await bench.state(id, "running")
    await bench.engine.terminate(id)
    for _ in range(20):
        bench.engine.pool("default")._queries.reconcile()
        await asyncio.sleep(0.02)
    assert asked == [id] and bench.catalog.records[id].actual == "terminate_requested"
    go.set()
    await bench.state(id, "terminated")


async def test_a_store_that_fails_in_any_way_keeps_no_query(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Store:
        async def forget(self, left: Any) -> None:
            asked.append(left["slot"])
            raise ValueError("not a slot's name")

        async def close(self) -> None:
            """Nothing is open."""

    monkeypatch.setattr(leave.stores, "open_admin", lambda *_: Store())
    id = bench.catalog.add()
    for number in (0, 1):
        place = bench.folder / "checkpoints" / id / "sources" / str(number)
        place.mkdir(parents=True)
        (place / "intent").write_text(json.dumps({"store": "k", "slot": f"s{number}"}))
    await bench.engine.terminate(id)
    assert asked == ["s0", "s1"] and bench.catalog.records[id].actual == "terminated"
    assert not (bench.folder / "checkpoints" / id).exists()


async def test_what_a_store_kept_that_was_away_goes_when_it_is_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, away = list[str](), True

    class Store:
        async def forget(self, left: Any) -> None:
            asked.append(left["slot"])
            if away:
                raise StoreUnreachable(name="k", why="it is away")

        async def close(self) -> None:
            """Nothing is open."""

    monkeypatch.setattr(leave.stores, "open_admin", lambda *_: Store())
    monkeypatch.setattr(leave, "PAUSE_S", 0.0)
    id, folder = bench.catalog.add(), bench.folder / "checkpoints"
    for number in (0, 1):
        place = folder / id / "sources" / str(number)
        place.mkdir(parents=True)
        (place / "intent").write_text(json.dumps({"store": "k", "slot": f"s{number}"}))
    await bench.engine.terminate(id)
    assert bench.catalog.records[id].actual == "terminated" and not (folder / id).exists()
    leftovers = leave.Leftovers(bench.catalog, folder)  # type: ignore[arg-type]
    await leftovers.look()
    assert asked == ["s0", "s1", "s0"], "of a store that is still away the rest waits, too"
    away = False
    await leftovers.look()
    await leftovers.look()
    assert asked[3:] == ["s0", "s1"]
    assert not list((folder / leave.LEFT).rglob("*.json"))


async def test_a_query_ends_where_nothing_can_be_remembered(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> Any:
        raise StoreUnreachable(name="k", why="it is away")

    monkeypatch.setattr(leave.stores, "open_admin", away)
    id, folder = bench.catalog.add(), bench.folder / "checkpoints"
    (folder / id / "sources" / "0").mkdir(parents=True)
    (folder / id / "sources" / "0" / "intent").write_text(json.dumps({"store": "k"}))
    (folder / leave.LEFT).write_text("in the way, as a full disk would be")
    await bench.engine.terminate(id)
    assert bench.catalog.records[id].actual == "terminated" and not (folder / id).exists()


async def test_what_stores_have_kept_is_of_one_organization(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a server share a ``checkpoint_dir``: another has no such store, or one of the same name."""

    class Away:
        async def forget(self, left: Any) -> None:
            raise StoreUnreachable(name="k", why="it is away")

        async def close(self) -> None:
            """Nothing is open."""

    monkeypatch.setattr(leave.stores, "open_admin", lambda *_: Away())
    folder, other = bench.folder / "checkpoints", FakeCatalog()
    (folder / "q" / "sources" / "0").mkdir(parents=True)
    (folder / "q" / "sources" / "0" / "intent").write_text(json.dumps({"store": "k"}))
    await leave.leave(bench.catalog, folder / "q")  # type: ignore[arg-type]
    own = ObjectRecord("organization", "acme", id="acme", organization="", owner="orgadmin")
    other.snapshot = Snapshot(objects={own.key: own})
    await leave.Leftovers(other, folder).look()  # type: ignore[arg-type]
    assert len(list((folder / leave.LEFT).rglob("*.json"))) == 1
    bench.catalog.snapshot = Snapshot()
    await leave.Leftovers(bench.catalog, folder).look()  # type: ignore[arg-type]
    assert not list((folder / leave.LEFT).rglob("*.json")), "the store is dropped: nobody can be asked"


async def test_old_queries_are_forgotten_when_it_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Forgetful:
        async def forget_ended(self, days: int) -> int:
            asked.append(days)
            raise NotReady(what="PostgreSQL")  # the next time, then

    for days in (0, 30):
        history = History(Forgetful(), days)  # type: ignore[arg-type]
        await history.look()
        await history.look()
        monkeypatch.setattr(history, "_next", 0.0)
        await history.look()
    assert asked == [30, 30]


async def test_terminate_that_takes_long_ends_all_the_same(bench: Bench) -> None:
    await bench.engine.start()
    id = bench.catalog.add(deaf="1")
    await bench.engine.launch(id)
    await bench.engine.terminate(id)
    assert bench.catalog.records[id].actual == "terminate_requested"
    os.killpg(bench.worker_pid(), signal.SIGKILL)
    await bench.state(id, "terminated")
    assert len(bench.heard("Start")) == 1


async def test_terminate_in_the_middle_of_a_start(bench: Bench) -> None:
    await bench.engine.start()
    await until(lambda: bench.engine.is_ready())
    go, options = asyncio.Event(), bench.catalog.store_options

    async def slow(name: str) -> dict[str, str]:
        await go.wait()
        return await options(name)

    bench.catalog.store_options = slow  # type: ignore[method-assign]
    id = bench.catalog.add()
    launching = asyncio.create_task(bench.engine.launch(id))
    await until(lambda: bench.engine.pool("default")._queries._run(id).lock.locked())
    ending = asyncio.create_task(bench.engine.terminate(id))
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(launching, ending)
    assert bench.catalog.records[id].actual == "terminated"
    assert [len(bench.heard(kind)) for kind in ("Start", "Stop")] == [1, 1]


async def test_restart_runs_again_once_stopped(bench: Bench) -> None:
    await bench.engine.start()
    id = bench.catalog.add()
    await bench.engine.launch(id)
    await bench.engine.restart(id)
    assert (await bench.state(id, "running")).attempt == 2
    assert bench.heard("Stop")[0]["forget"] is False


async def test_plan_of_a_newer_version(bench: Bench) -> None:
    id = bench.catalog.add()
    record = bench.catalog.records[id]
    written = f'"version":{VERSION}'.encode()
    assert written in record.plan
    bench.catalog.records[id] = replace(record, plan=record.plan.replace(written, b'"version":99'))
    await bench.engine.start()
    await bench.state(id, "errored", "newer")


async def test_next_server_ends_what_it_should(bench: Bench) -> None:
    id = bench.catalog.add()
    bench.catalog.records[id] = replace(bench.catalog.records[id], intended="terminated", actual="terminate_requested")
    await bench.engine.start()
    await bench.state(id, "terminated")


async def test_stop_keeps_intentions_and_leaves_no_process(bench: Bench) -> None:
    await bench.engine.start()
    id = bench.catalog.add()
    await bench.engine.launch(id)
    pid = bench.worker_pid()
    await bench.engine.stop()
    assert not alive(pid) and not (bench.folder / "worker-default.pid").exists()
    assert bench.catalog.records[id].intended == "running"
    bench.engine = bench.new_engine()
    await bench.engine.start()
    await until(lambda: bench.catalog.records[id].attempt == 2)
    await bench.state(id, "running")


async def test_worker_that_ignores_everything_is_killed(bench: Bench) -> None:
    bench.environ["FAKE_MUTE"] = "1"
    bench.config = replace(bench.config, shutdown_grace_s=0)
    bench.engine = bench.new_engine()
    await bench.engine.start()
    await until(lambda: (bench.folder / "worker-default.pid").exists())
    pid = bench.worker_pid()
    await bench.engine.stop()
    assert not alive(pid)


async def test_left_over_worker_is_ended(bench: Bench) -> None:
    left, other = sleeper(leftover.MARK), sleeper()
    path = bench.folder / "worker-default.pid"
    try:
        leftover.write(path, other.pid)
        assert leftover.find(path) is None
        leftover.write(path, left.pid)
        # A program that was started just now may have no command line yet.
        await until(lambda: leftover.find(path) == left.pid)
        await bench.engine.start()
        await until(lambda: left.poll() is not None)
        await until(lambda: bench.engine.is_ready())
        assert other.poll() is None
    finally:
        for process in (left, other):
            process.kill()
            process.wait()


async def test_analyze(bench: Bench) -> None:
    await bench.engine.start()
    found = await bench.engine.analyze(result_plan())
    assert [(n, str(t), null) for n, t, null in found] == [
        ("n", "BIGINT", False),
        ("d", "DECIMAL(10, 2)", True),
        ("a", "ARRAY<VARCHAR>", True),
    ]
    with pytest.raises(RelayedError) as e:
        await bench.engine.analyze(result_plan("wrong"))
    assert (e.value.sqlstate, e.value.at) == ("42804", 12)
    with pytest.raises(EngineUnavailable, match="restarted"):
        await bench.engine.analyze(result_plan("dies"))
    assert await bench.engine.analyze(result_plan())


async def test_analyze_without_worker_says_why(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "READY_S", 0)
    assert not bench.engine.is_ready()
    with pytest.raises(EngineUnavailable, match="starting"):
        await bench.engine.analyze(result_plan())


async def test_what_a_worker_prepares_once_is_waited_for(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.environ["FAKE_PREPARES"] = str(tmp_path / "done")
    bench.engine = bench.new_engine()
    await bench.engine.start()
    await until(lambda: "being compiled" in bench.engine.pool("default").facts().why)
    monkeypatch.setattr(compute, "READY_S", 0.02)
    asked = asyncio.create_task(bench.engine.analyze(result_plan()))
    await asyncio.sleep(0.2)
    assert not asked.done()
    (tmp_path / "done").touch()
    assert await asked


async def test_results_flow_within_credit(bench: Bench) -> None:
    await bench.engine.start()
    rows = bench.engine.open_result(result_plan(), "sysadmin")
    taken = [await anext(rows) for _ in range(results.STEP)]
    assert taken[:2] == [["1", None], ["2", None]]
    await until(lambda: len(bench.heard("More")) == 2)
    assert [m["credit"] for m in bench.heard("More")] == [results.WINDOW, results.STEP]
    await until(lambda: len(rows._rows) == results.WINDOW)
    await rows.aclose()
    await rows.aclose()
    await until(lambda: bench.heard("Stop"))
    with pytest.raises(StopAsyncIteration):
        await anext(rows)
    assert not bench.engine.pool("default")._results


async def test_results_end_with_limit_fault_or_death(bench: Bench) -> None:
    await bench.engine.start()
    assert [r[0] async for r in bench.engine.open_result(result_plan(limit=4), "sysadmin")] == ["1", "2", "3", "4"]
    for alias, error, text in (("fails", RelayedError, "rotten"), ("dies", EngineUnavailable, "restarted")):
        seen = []
        with pytest.raises(error, match=text):
            async for row in bench.engine.open_result(result_plan(alias), "sysadmin"):
                seen.append(row[0])
        assert seen == ["1", "2", "3"]
    assert not bench.engine.pool("default")._results


async def test_who_may_not_read_any_more_reads_no_further(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[InsufficientPrivilege] = []
    monkeypatch.setattr(Reading, "lost", lambda self, _: lost[0] if lost and self.role == "readers" else None)
    monkeypatch.setattr(engine, "LOOK_S", 0.01)
    await bench.engine.start()
    rows, others = (bench.engine.open_result(result_plan(), role) for role in ("readers", "sysadmin"))
    await anext(rows)
    over = bench.engine.open_result(result_plan(limit=4), "readers")  # all of it has come, and most is not taken
    await anext(over)
    await until(lambda: over._state == "ended")
    await anext(others)
    await until(lambda: rows.ready and others.ready)
    lost.append(InsufficientPrivilege(kind="relation", name="t"))
    await until(lambda: bench.heard("Stop"))
    for denied in (rows, over):
        with pytest.raises(InsufficientPrivilege):  # nor what had come for it
            await anext(denied)
    rows.arrived(channel.Rows(rows.query, [["9", None]]))  # nor what is under way
    assert not rows.ready
    await anext(others)
    assert [m["query"] for m in bench.heard("Stop")] == [rows.query]
    await others.aclose()


async def test_a_user_reads_so_many_at_once(bench: Bench) -> None:
    await bench.engine.start()
    bench.engine._readers = Readers(2)

    def opened(user: str) -> results.ResultStream:
        return bench.engine.open_result(result_plan(), "sysadmin", user=user)

    unread, first, second, third = (opened("ann") for _ in range(4))
    for rows in (first, second):
        await anext(rows)
    with pytest.raises(TooManyStreams, match="may run 2"):
        await anext(third)
    other = opened("bob")
    await anext(other)
    await first.aclose()
    await first.aclose()
    fourth = opened("ann")
    await anext(fourth)
    with pytest.raises(TooManyStreams):
        await anext(opened("ann"))
    for rows in (unread, second, third, fourth, other):
        await rows.aclose()
    assert not bench.engine._readers._reading


async def test_whose_results_crash_the_worker_waits(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no continuous query is blamed, of which all begin anew after each crash."""
    id = bench.catalog.add()
    await bench.engine.start()

    async def first(user: str, alias: str) -> list[str | None]:
        rows = bench.engine.open_result(result_plan(alias), "sysadmin", user=user)
        try:
            return await anext(rows)
        finally:
            await rows.aclose()

    for _ in range(suspects.CRASHES):
        with pytest.raises(EngineUnavailable):
            await first("ann", "crashes")
    with pytest.raises(CrashedWorkers, match="crash 3 times") as e:
        await first("ann", "s")
    assert (e.value.sqlstate, "10 min" in str(e.value.hint)) == ("53200", True)
    assert await first("bob", "s") == ["1", None]
    await bench.state(id, "running")
    monkeypatch.setattr(readers, "WAITS_S", 0.0)
    assert await first("ann", "s") == ["1", None]


async def test_nobody_is_blamed_where_several_began(bench: Bench) -> None:
    await bench.engine.start()
    for _ in range(suspects.CRASHES + 1):
        beside = bench.engine.open_result(result_plan(), "sysadmin", user="bob")
        await anext(beside)
        with pytest.raises(EngineUnavailable):
            await anext(bench.engine.open_result(result_plan("crashes"), "sysadmin", user="ann"))
        await beside.aclose()


async def test_a_computation_lasts_as_long_as_its_context(bench: Bench) -> None:
    await bench.engine.start()
    bench.engine._readers = Readers(1)
    limits = Limits({"s": {0: 7, -1: 0}}, 5)

    def computed(id: str, alias: str = "s") -> Computation:
        plan = msgspec.structs.replace(view_plan(), root=source(alias))
        return bench.engine.computation(id, plan, "pg_pgstream.r_q", limits, user="ann")

    async with computed("q") as one:
        one.check()
        with pytest.raises(TooManyStreams):  # it counts as one of the user's results
            async with computed("r"):
                raise AssertionError
        (start,) = await until(lambda: bench.heard("Start"))
        assert (start["query"], start["beside"], start["checkpoint"]) == ("q", "pg_pgstream.r_q", None)
        assert (start["limits"], start["ceiling_ms"]) == ({"s": {"0": 7, "-1": 0}}, 5)
        assert start["databases"] == {"main": "postgresql://worker@h/main"}
    # It has ended by now, at the worker, too.
    assert bench.heard("Stop") == [{"type": "Stop", "query": "q", "forget": True}]
    with pytest.raises(EngineUnavailable, match="ended by itself"):
        one.check()
    for alias, error, text in (("fails", RelayedError, "rotten"), ("dies", EngineUnavailable, "restarted")):
        async with computed(alias, alias) as other:
            await until(other._gone.is_set)
            with pytest.raises(error, match=text):
                other.check()
    assert len(bench.heard("Stop")) == 1 and not bench.engine._readers._reading
    assert not bench.engine.pool("default")._results


async def test_a_computation_is_waited_for_though_its_statement_is_canceled_twice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.engine.start()
    ended: list[channel.Ended] = []
    arrived = Computation.ended
    monkeypatch.setattr(Computation, "ended", lambda self, event: (ended.append(event), arrived(self, event)))

    async def statement() -> None:
        async with bench.engine.computation("q", view_plan(), "pg_pgstream.r_q", Limits({}, 0)):
            await asyncio.sleep(600)

    task = asyncio.create_task(statement())
    await until(lambda: bench.heard("Start"))
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: ended and not bench.engine.pool("default")._results)


async def test_closing_wakes_the_reader(bench: Bench) -> None:
    await bench.engine.start()
    rows = bench.engine.open_result(result_plan(limit=1), "sysadmin")
    assert await anext(rows) == ["1", None]
    waiting = bench.engine.open_result(result_plan(), "sysadmin")
    reader = asyncio.create_task(anext(waiting))
    await asyncio.sleep(0)
    await waiting.aclose()
    with pytest.raises(StopAsyncIteration):
        await reader
    await rows.aclose()


async def test_who_waits_long_for_the_first_row_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "QUIET_S", 0.01)
    told: list[str] = []

    async def begin(_: results.ResultStream) -> None:
        pass

    def opened(name: str) -> results.ResultStream:
        rows = results.ResultStream(name, begin, lambda _: None, lambda _: None)
        rows.tell_when_quiet(lambda: told.append(name))
        return rows

    slow, quick, ended = opened("slow"), opened("quick"), opened("ended")
    readers = [asyncio.create_task(anext(rows, None)) for rows in (slow, quick, ended)]
    await asyncio.sleep(0)
    quick.arrived(channel.Rows("quick", [["1"]]))
    await ended.aclose()
    await until(lambda: told)
    slow.arrived(channel.Rows("slow", [["1"]]))
    assert [await reader for reader in readers] == [["1"], ["1"], None]
    assert told == ["slow"]


async def test_credit_is_given_back_for_what_was_taken() -> None:
    """By what rows cost, and so often that the worker may always send what costs the most."""
    sent: list[channel.More] = []

    async def begin(_: results.ResultStream) -> None: ...

    rows = results.ResultStream("q", begin, lambda r: sent.append(cast(channel.More, r)), lambda _: None)
    reading = asyncio.create_task(anext(rows))
    await asyncio.sleep(0)
    left = results.WINDOW
    most = results.WINDOW - results.STEP
    for count, cost in [(1, 1), (2, most), (500, 500), (1, most), (499, 499), (1, most)]:
        assert left >= cost
        left -= cost
        rows.arrived(channel.Rows("q", [["x"]] * count, cost))
        for n in range(count):
            assert (await reading if count == 1 and cost == 1 else await anext(rows)) == ["x"], n
        left += sum(m.credit for m in sent[1:])
        del sent[1:]
    assert sent == [channel.More("q", results.WINDOW)]


async def test_stopping_ends_results(bench: Bench) -> None:
    await bench.engine.start()
    rows = bench.engine.open_result(result_plan(), "sysadmin")
    await anext(rows)
    await bench.engine.stop()
    with pytest.raises(EngineUnavailable, match="stopping"):
        async for _ in rows:
            pass


def test_the_server_does_not_import_pyspark() -> None:
    code = """if True:
        import sys, pgstream.engine.engine
        sys.exit({m.split('.')[0] for m in sys.modules} & {'pyspark', 'py4j', 'alembic'} != set())
    """
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(FAKE).parents[3]).returncode == 0


def test_worker_settings_hold_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    from pgstream.config import Config
    from pgstream.engine import launch

    monkeypatch.setattr(launch, "fetch", lambda config, report: [Path("/x.jar")])
    monkeypatch.setattr(launch, "find_java", lambda config: Path("/java"))
    monkeypatch.setenv("PGSTREAM_ADMIN_PASSWORD", "hush")
    monkeypatch.setenv("PGSTREAM_POSTGRES_URL", "postgresql://u:hush@h/d")
    started = time.monotonic()
    made = asyncio.run(launch.prepare(Config(secret_key="hush"), {}))
    assert time.monotonic() - started < 5
    assert "hush" not in str(made) and made.argv[1:] == ["-m", "pgstream.spark"]
    assert '"java": "/java"' in made.environ["PGSTREAM_WORKER"]
