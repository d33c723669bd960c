"""Queries that read a data stream by a consumer of their own (enhanced fan-out): Kinesis sends, they do not ask."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.aws import Aws, ending
from tests.server import ON_A_CLUSTER, Server, within
from tests.stream.kinesis.test_source import begin, ended, one, put
from tests.stream.test_kill import worker_of
from tests.stream.test_outage import facts, run

pytestmark = pytest.mark.stream
VIEW = """CREATE MATERIALIZED VIEW {name}_view AS SELECT id FROM {name}_in
  WITH ('kinesis.consumer.name' = 'app', 'source.max.records.per.trigger' = 500)"""


@pytest.fixture(autouse=True)
def every_fault_was_met(aws: Aws) -> Iterator[None]:
    yield
    assert not aws.subscriptions.cuts and not aws.subscriptions.failures
    aws.subscriptions.lasts_s = 300


def subscribed(db: psycopg.Connection[Any], aws: Aws, name: str, shards: int = 1) -> list[str]:
    """The view's query."""
    begin(db, aws, name, shards)
    aws.consumer(name, "app")
    return run(db, VIEW.format(name=name))


def whole(db: psycopg.Connection[Any], name: str, count: int) -> None:
    within(90, lambda: one(db, f"SELECT count(*) FROM {name}_view")[0] >= count)
    assert one(db, f"SELECT count(*), count(DISTINCT id) FROM {name}_view") == (count, count)


def test_records_are_sent(db: psycopg.Connection[Any], aws: Aws) -> None:
    """And nothing is asked for, whether they were there or come."""
    aws.asked.clear()
    queries = subscribed(db, aws, "kin_fan", 2)
    put(aws, "kin_fan", range(1000))
    whole(db, "kin_fan", 1000)
    put(aws, "kin_fan", range(1000, 1100))
    whole(db, "kin_fan", 1100)
    assert aws.asked.count("SubscribeToShard") == 2 and (ON_A_CLUSTER or "GetRecords" not in aws.asked)
    within(10, lambda: facts(db, queries[0])["lag of main.public.kin_fan_in"] == "0")
    ended(db, *queries)


def test_a_subscription_goes_on_where_one_ended(db: psycopg.Connection[Any], aws: Aws) -> None:
    """After its time, a cut inside a message, a failure that it told of, and one that it was refused with."""
    sent = aws.subscriptions
    sent.lasts_s = 1.0
    queries = subscribed(db, aws, "kin_fan_cut")
    put(aws, "kin_fan_cut", range(100))
    whole(db, "kin_fan_cut", 100)
    begun = len(sent.begun)
    within(20, lambda: len(sent.begun) > begun + 1)
    sent.lasts_s = 300
    sent.cuts += [7, 50, 400]
    sent.failures += ["InternalFailureException", "ResourceInUseException"]
    aws.faults["SubscribeToShard"] = [
        (400, "LimitExceededException", "Rate exceeded."),
        (500, "InternalFailure", "Oops."),
    ]
    put(aws, "kin_fan_cut", range(100, 400))
    whole(db, "kin_fan_cut", 400)
    assert facts(db, queries[0])["attempts"] == "1", "it went on without a new start"
    assert "100" in sent.begun, sent.begun
    ended(db, *queries)


def test_a_consumer_is_for_one_query(db: psycopg.Connection[Any], aws: Aws) -> None:
    """A second one is refused; a SELECT reads without it, and says so."""
    queries = subscribed(db, aws, "kin_fan_one")
    put(aws, "kin_fan_one", range(10))
    whole(db, "kin_fan_one", 10)
    with pytest.raises(psycopg.errors.ObjectInUse) as e:
        db.execute(VIEW.format(name="kin_fan_one").replace("VIEW kin_", "VIEW again_").encode())
    told = e.value.diag
    assert told.message_primary == f'consumer "app" of entity "kin_fan_one" is read by query {queries[0]} already'
    assert "'kinesis.consumer.name'" in str(told.message_hint)
    said: list[str] = []
    db.add_notice_handler(lambda n: said.append(str(n.message_primary)))
    begun = len(aws.subscriptions.begun)
    rows = db.execute("""SELECT id FROM kin_fan_one_in
        WITH ('kinesis.consumer.name' = 'app', 'starting.position' = 'earliest') LIMIT 10""").fetchall()
    assert {r[0] for r in rows} == set(range(10))
    assert f"parameter 'kinesis.consumer.name' = 'app' is left out: query {queries[0]} reads by it" in said
    assert len(aws.subscriptions.begun) == begun
    ended(db, *queries)
    # It is free again.
    ended(db, *run(db, VIEW.format(name="kin_fan_one").replace("VIEW kin_", "VIEW again_")))


def test_none_is_left_when_its_query_has_ended(db: psycopg.Connection[Any], aws: Aws) -> None:
    """Also one that was asked for and is answered afterwards."""
    sent = aws.subscriptions
    within(20, lambda: sent.open == 0)
    sent.waits_s, begun = 3.0, len(sent.begun)
    aws.asked.clear()
    queries = subscribed(db, aws, "kin_fan_left")
    within(60, lambda: "SubscribeToShard" in aws.asked)
    ended(db, *queries)
    sent.waits_s = 0.0
    within(20, lambda: len(sent.begun) > begun)
    within(10, lambda: sent.open == 0)
    time.sleep(2)
    assert sent.open == 0


def test_shards_end_and_begin(db: psycopg.Connection[Any], aws: Aws) -> None:
    with ending():
        aws.asked.clear()
        queries = subscribed(db, aws, "kin_fan_split", 2)
        put(aws, "kin_fan_split", range(500))
        for shard in aws.client.list_shards(StreamName="kin_fan_split")["Shards"]:
            aws.split("kin_fan_split", shard)
        put(aws, "kin_fan_split", range(500, 1000))
        whole(db, "kin_fan_split", 1000)
        assert aws.asked.count("SubscribeToShard") == 6 and (ON_A_CLUSTER or "GetRecords" not in aws.asked)
        ended(db, *queries)


def test_a_service_that_does_not_end_its_shards(db: psycopg.Connection[Any], splitting: Aws) -> None:
    """Another's events; what is left of a shard is asked for."""
    queries = subscribed(db, splitting, "kin_fan_other", 1)
    put(splitting, "kin_fan_other", range(100))
    whole(db, "kin_fan_other", 100)
    splitting.split("kin_fan_other", splitting.client.list_shards(StreamName="kin_fan_other")["Shards"][0])
    put(splitting, "kin_fan_other", range(100, 200))
    whole(db, "kin_fan_other", 200)
    ended(db, *queries)


def test_the_worker_is_killed_while_it_is_sent_records(db: psycopg.Connection[Any], aws: Aws, server: Server) -> None:
    """A batch that is repeated asks for its records: a subscription has no end to stop at."""
    queries = subscribed(db, aws, "kin_fan_kill", 2)
    put(aws, "kin_fan_kill", range(6000))
    within(60, lambda: one(db, "SELECT count(*) FROM kin_fan_kill_view")[0] > 1000)
    worker_of(server).kill()
    put(aws, "kin_fan_kill", range(6000, 8000))
    whole(db, "kin_fan_kill", 8000)
    ended(db, *queries)


def test_a_consumer_that_is_not_registered_is_named(db: psycopg.Connection[Any], aws: Aws) -> None:
    begin(db, aws, "kin_fan_none", 1)
    queries = run(db, VIEW.format(name="kin_fan_none"))
    within(60, lambda: facts(db, queries[0])["state"] == "errored")
    assert "no such consumer" in str(facts(db, queries[0])) and "register-stream-consumer" in str(facts(db, queries[0]))
    ended(db, *queries)
