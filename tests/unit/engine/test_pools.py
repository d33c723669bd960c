"""Several compute pools: each awake when it is needed, queries moving between them."""

from __future__ import annotations

import asyncio

import pytest

from pgstream.catalog.records import DEFAULT_ORGANIZATION, ObjectRecord, Snapshot
from pgstream.config import Config
from pgstream.engine import engine, launch
from pgstream.errors import NotReady
from tests.unit.engine.conftest import Bench, result_plan, until


def pools(bench: Bench, **states: str) -> None:
    """What the catalogue says of the pools; ``1 min`` is a timeout."""
    objects = {}
    for name, state in states.items():
        options = {"compute_pool.timeout_min": "1"} if state == "1 min" else {}
        state = "stopped" if state == "stopped" else "ready"
        record = ObjectRecord("compute_pool", name, options=options, state=state, owner="sysadmin")
        objects[DEFAULT_ORGANIZATION, "compute_pool", name] = record
    bench.catalog.snapshot = Snapshot(stores=bench.catalog.snapshot.stores, objects=objects)


async def test_a_pool_starts_when_it_is_needed(bench: Bench) -> None:
    pools(bench, default="ready", other="ready")
    await bench.engine.start()
    assert bench.engine.pool_state("other") == ("stopped", "")
    await bench.engine.analyze(result_plan(), "other")
    assert bench.engine.pool_state("other") == ("running", "")
    assert bench.worker_pid("other") != bench.worker_pid("default")


async def test_a_query_left_in_a_pool_wakes_it(bench: Bench) -> None:
    pools(bench, default="stopped", other="ready")
    id = bench.catalog.add(pool="other")
    await bench.engine.start()
    await bench.state(id, "running")
    assert bench.engine.pool_state("default") == ("stopped", "")


async def test_a_stopped_pool_lets_its_queries_wait_and_refuses_new_ones(bench: Bench) -> None:
    pools(bench, default="ready", other="ready")
    await bench.engine.start()
    id = bench.catalog.add(pool="other")
    await bench.engine.launch(id)
    pools(bench, default="ready", other="stopped")
    await bench.engine.stop_pool("other")
    await bench.state(id, "starting", "waiting: the compute pool is stopped")
    with pytest.raises(NotReady, match='compute pool "other" is stopped') as e:
        await bench.engine.analyze(result_plan(), "other")
    assert e.value.ds_code == "3E004"
    pools(bench, default="ready", other="ready")
    await bench.engine.start_pool("other")
    await bench.state(id, "running")
    assert bench.catalog.records[id].attempt == 2


async def test_a_query_moves_by_restart(bench: Bench) -> None:
    pools(bench, default="ready", other="ready")
    await bench.engine.start()
    id = bench.catalog.add()
    await bench.engine.launch(id)
    await bench.engine.restart(id, "other")
    await bench.state(id, "running")
    assert bench.catalog.records[id].pool == "other"
    # It was stopped where it ran, keeping its place, before it was started in the other pool.
    assert [(m["query"], m["forget"]) for m in bench.heard("Stop")] == [(id, False)]
    assert [m["attempt"] for m in bench.heard("Start")] == [1, 2]


async def test_an_idle_pool_sleeps_and_wakes_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "MINUTE_S", 0.05)
    pools(bench, default="ready", other="1 min")
    await bench.engine.start()
    await bench.engine.analyze(result_plan(), "other")
    await until(lambda: bench.engine.pool_state("other") == ("stopped", ""))
    await bench.engine.analyze(result_plan(), "other")


async def test_a_pool_woken_while_it_ends_serves_whoever_woke_it(bench: Bench) -> None:
    pools(bench, default="ready", other="ready")
    await bench.engine.start()
    await bench.engine.analyze(result_plan(), "other")
    ended = bench.worker_pid("other")
    stopping = asyncio.create_task(bench.engine.stop_pool("other"))
    await asyncio.sleep(0)
    assert bench.engine.pool_state("other") == ("stopped", "")
    await bench.engine.analyze(result_plan(), "other")
    await stopping
    assert bench.worker_pid("other") != ended
    assert bench.engine.is_ready("other")


def test_sizes_and_settings_of_a_pool() -> None:
    config = Config(spark_memory_mb=1000)
    assert launch.sized(config, {}) == {"master": "local[*]", "memory_mb": 1000, "spark": {}}
    options = {"compute_pool.size": "LARGE", "compute_pool.cores": "3", "spark.sql.shuffle.partitions": "7"}
    assert launch.sized(config, options) == {
        "master": "local[3]", "memory_mb": 4000, "spark": {"spark.sql.shuffle.partitions": "7"},
    }  # fmt: skip
    stored = options | {"spark.driver.resource.gpu.discoveryScript": "/bin/sh", "spark.jars": "x"}
    assert launch.sized(config, stored) == launch.sized(config, options), "taken by an earlier pgstream"
    own = {"compute_pool.master": "spark://h:7077", "compute_pool.memory_mb": "512"}
    own |= {"compute_pool.silent_partition_ms": "0"}
    assert launch.sized(config, own) == {
        "master": "spark://h:7077", "memory_mb": 512, "spark": {"spark.pgstream.silentPartitionMs": "0"},
    }  # fmt: skip
