"""A query in real time reads and writes stores that can."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pgstream.catalog.records import StoreRecord
from pgstream.errors import PgStreamError
from pgstream.planner import plan as p
from pgstream.properties import Given
from pgstream.statements import continuous

SOURCE = p.Source("s", "main.public.s", "stream", "from", "topic", [p.Column("a", "BIGINT")], "json")
SINK = p.RecordSink("main.public.t", "to", "t", "append", "json", ["a"])


def made(**stores: str) -> p.Plan:
    known = {"from": "kafka", "to": "kafka"} | stores
    snapshot = SimpleNamespace(store_behind=lambda n: StoreRecord(n, n, known[n], {}, "sysadmin"))
    ctx: Any = SimpleNamespace(snapshot=snapshot)
    planned: Any = SimpleNamespace(root=SOURCE, stores=("from",), state_ttl_ms=None)
    options = continuous.query_options({"execution.mode": Given("execution.mode", "realtime", 30, 49)})
    return continuous.plan(ctx, planned, SINK, (), options)


def test_kafka_can() -> None:
    assert made().real_time


@pytest.mark.parametrize("stores", [{"from": "kinesis"}, {"to": "kinesis"}, {"from": "postgresql"}])
def test_others_cannot(stores: dict[str, str]) -> None:
    with pytest.raises(PgStreamError, match="running a query in real time in a ") as e:
        made(**stores)
    assert (e.value.sqlstate, e.value.at) == ("0A000", 30)


@pytest.mark.parametrize("value", ["fast", "true", ""])
def test_a_mode_that_is_none(value: str) -> None:
    with pytest.raises(PgStreamError, match=f"invalid value '{value}'") as e:
        continuous.query_options({"execution.mode": Given("execution.mode", value, 30, 49)})
    assert (e.value.sqlstate, e.value.at, e.value.hint) == ("22023", 49, "Use one of MICROBATCH, REALTIME.")


def test_the_default_has_batches() -> None:
    assert continuous.query_options({}).real_time is None
    assert continuous.query_options({"execution.mode": Given("execution.mode", "microbatch", 1, 2)}).real_time is None
