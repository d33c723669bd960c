"""An engine over the fake worker and a catalogue in memory; pauses are a hundredth of the real ones."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pgstream.catalog.records import QueryRecord, Snapshot, StoreRecord
from pgstream.config import Config
from pgstream.engine import compute, engine, forward, life, pool
from pgstream.engine.engine import Engine
from pgstream.engine.launch import Launch
from pgstream.engine.lock import Holder
from pgstream.errors import UndefinedQuery
from pgstream.planner.plan import Column, Plan, ResultSink, Source, ViewSink

FAKE = Path(__file__).with_name("fake_worker.py")
ROOT = Path(__file__).parents[3]


class FakeCatalog:
    """What the engine asks of a catalogue, in memory; ``history`` keeps every state that was recorded."""

    control_url = ""

    def __init__(self) -> None:
        self.snapshot = Snapshot(stores={"k": StoreRecord("1", "k", "kafka", {"uris": "b"}, "sysadmin")})
        self.records: dict[str, QueryRecord] = {}
        self.history: list[tuple[str, dict[str, Any]]] = []
        self.discarded: list[str] = []
        self.old: set[str] = set()

    async def replacements(self) -> list[Any]:
        return []

    async def attempts_beside(self, record: QueryRecord) -> int:
        return 0

    async def finish_replacements(self) -> list[str]:
        return []

    async def strays(self) -> list[QueryRecord]:
        """None is old enough, unless a test is."""
        return [q for q in self.records.values() if q.id in self.old and q.actual not in ("running", "terminated")]

    async def forget_ended(self, days: int) -> int:
        return 0

    async def end_beside(self, id: str) -> None:
        """No view of it has a replacement."""

    def add(self, pool: str = "default", **settings: str) -> str:
        id = str(uuid.uuid4())
        plan = view_plan().json()
        sources = ("main.public.s",)
        self.records[id] = QueryRecord(
            id,
            None,
            1,
            "view",
            "…",
            plan,
            "sysadmin",
            "main",
            sources,
            ("main.public.v",),
            ("k",),
            settings=settings,
            pool=pool,
        )
        return id

    async def query(self, ref: str) -> QueryRecord:
        if ref not in self.records:
            raise UndefinedQuery(name=ref)
        return self.records[ref]

    async def queries(self, include_ended: bool = False) -> list[QueryRecord]:
        return [q for q in self.records.values() if include_ended or q.actual != "terminated"]

    async def set_query(self, id: str, **changes: Any) -> QueryRecord:
        self.history.append((id, changes))
        self.records[id] = replace(await self.query(id), **changes)
        return self.records[id]

    async def view_logs(self, record: Any) -> dict[str, int]:
        return {}

    async def drop_view_logs(self, id: str) -> None:
        await self.query(id)

    async def drop_left_logs(self) -> None:
        """Nothing was left."""

    async def record_progress(self, progress: Any) -> None:
        for id, values in progress.items():
            self.records[id] = replace(self.records[id], progress=values)

    async def discard_query(self, id: str, also: Any = ()) -> None:
        self.discarded.append(id)
        del self.records[id]

    async def busy_pools(self) -> set[str]:
        return {q.pool for q in self.records.values() if q.actual not in ("terminated", "errored")}

    async def store_options(self, name: str) -> dict[str, str]:
        return {"uris": "b", "password": "hush"}

    def worker_url(self, database: str) -> str:
        return f"postgresql://worker@h/{database}"


async def alone(_: object) -> None:
    """There is no other server to hear."""


class FreeLock:
    """A pool lock that nobody else wants."""

    def __init__(self, url: str, pool: str) -> None:
        pass

    holder = Holder.HERE

    async def is_elsewhere(self) -> bool:
        return False

    @contextlib.asynccontextmanager
    async def hold(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(asyncio.Event().wait())
        yield task
        task.cancel()


def source(alias: str = "s") -> Source:
    return Source(alias, "main.public.s", "stream", "k", "s", [Column("n", "BIGINT")], "json")


def view_plan() -> Plan:
    return Plan(source(), ViewSink("main.public.v", "main", "v_1", "append"))


def result_plan(alias: str = "s", limit: int | None = None) -> Plan:
    return Plan(source(alias), ResultSink(limit))


async def until(probe: Callable[[], Any], seconds: float = 30) -> Any:
    async with asyncio.timeout(seconds):
        while not (answer := probe()):  # noqa: ASYNC110 - any condition at all
            await asyncio.sleep(0.005)
        return answer


class Bench:
    """The engine under test, its catalogue, and what its worker heard."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trace = folder / "trace"
        self.catalog = FakeCatalog()
        self.environ = {**os.environ, "FAKE_TRACE": str(self.trace), "PYTHONPATH": str(ROOT)}
        self.config = Config(data_dir=folder, shutdown_grace_s=2)
        self.engine = self.new_engine()

    def new_engine(self) -> Engine:
        async def prepare(config: Config, options: Mapping[str, str]) -> Launch:
            return Launch([sys.executable, str(FAKE)], self.environ)

        return Engine(self.config, self.catalog, prepare)  # type: ignore[arg-type]

    def heard(self, kind: str) -> list[dict[str, Any]]:
        if not self.trace.exists():
            return []
        lines = [json.loads(line) for line in self.trace.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [line for line in lines if line["type"] == kind]

    def worker_pid(self, pool: str = "default") -> int:
        return int((self.folder / f"worker-{pool}.pid").read_text().split()[0])

    async def state(self, id: str, actual: str, message: str | None = None) -> QueryRecord:
        def reached() -> bool:
            record = self.catalog.records[id]
            return record.actual == actual and (message is None or message in record.message)

        await until(reached)
        return self.catalog.records[id]


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr(pool, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(life, "STOP_S", 0.3)
    monkeypatch.setattr(compute, "PoolLock", FreeLock)
    monkeypatch.setattr(forward.Forward, "run", alone)
    monkeypatch.setattr(engine, "LOOK_S", 0.02)
    made = Bench(tmp_path)
    yield made
    await made.engine.stop()
