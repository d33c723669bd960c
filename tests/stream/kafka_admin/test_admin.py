"""Kafka's face without Spark, against a real broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import cast

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from pgstream import stores
from pgstream.errors import DuplicateObject, InvalidOption, PgStreamError, StoreUnreachable, UndefinedEntity
from pgstream.stores.kafka import STORE
from pgstream.stores.spec import Admin, Extent, Marking, NewRecord, Record
from tests.server import Kafka

PLAIN = {"tls.disabled": "true"}


@pytest.fixture
async def admin(kafka: Kafka) -> AsyncIterator[Admin]:
    opened = stores.open_admin(STORE, "k", {"uris": kafka.bootstrap, **PLAIN})
    yield opened
    await opened.close()
    await opened.close()  # may be called twice


async def first(records: AsyncIterator[Record], count: int) -> list[Record]:
    out: list[Record] = []
    async with aclosing(records) as open_records:  # type: ignore[type-var]
        async for record in open_records:
            out.append(record)
            if len(out) == count:
                break
    return out


async def test_a_topic_from_creation_to_drop(admin: Admin) -> None:
    await admin.check()
    await admin.create("ka_life", {"kafka.partitions": "3", "kafka.replicas": "1", "kafka.topic.retention.ms": "77"})
    assert "ka_life" in [e.name for e in await admin.list_entities()]
    found = await admin.describe("ka_life")
    assert (found.partitions, found.replicas, found.configs["retention.ms"]) == (3, 1, "77")
    with pytest.raises(DuplicateObject):
        await admin.create("ka_life", {})
    await admin.drop("ka_life")
    for gone in (admin.describe("ka_life"), admin.drop("ka_life"), admin.insert("ka_life", [NewRecord(b"{}")])):
        with pytest.raises(UndefinedEntity):
            await gone
    assert "ka_life" not in [e.name for e in await admin.list_entities()], "asking for a topic must not make it"


@pytest.mark.parametrize("options", [{"kafka.topic.no.such": "1"}, {"kafka.replicas": "9"}])
async def test_what_the_broker_refuses_is_a_wrong_option(admin: Admin, options: dict[str, str]) -> None:
    with pytest.raises(InvalidOption):
        await admin.create("ka_refused", {"kafka.partitions": "1", "kafka.replicas": "1", **options})


async def test_a_name_no_topic_can_have(admin: Admin) -> None:
    with pytest.raises(InvalidOption):
        await admin.create("no topic", {})


async def test_records_from_the_beginning_and_from_now(admin: Admin, kafka: Kafka) -> None:
    await admin.create("ka_read", {"kafka.partitions": "1"})
    await admin.insert("ka_read", [NewRecord(b'{"n": 1}', b"k1", [("h", b"1"), ("h", None)], 0)])
    (record,) = await first(admin.read("ka_read", from_beginning=True), 1)
    assert (record.key, record.value, record.position) == (b"k1", b'{"n": 1}', "0:0")
    assert list(record.headers) == [("h", b"1"), ("h", None)]
    assert await admin.extents("ka_read") == [Extent(0, 0, 1)]
    with pytest.raises(InvalidOption):
        await admin.insert("ka_read", [NewRecord(b"{}", partition=1)])
    assert abs((record.timestamp_ms or 0) / 1000 - time.time()) < 60
    later = asyncio.create_task(first(admin.read("ka_read", from_beginning=False), 1))
    writer = stores.open_admin(STORE, "k", {"uris": kafka.bootstrap, **PLAIN})
    n = 1
    while not later.done():  # what is written before the reader stands is rightly not seen
        n += 1
        await writer.insert("ka_read", [NewRecord(b'{"n": %d}' % n)])
        await asyncio.sleep(0.05)
    await writer.close()
    assert later.result()[0].value != b'{"n": 1}'


async def test_several_records_are_written_all_or_none(admin: Admin, kafka: Kafka) -> None:
    await admin.create("ka_all", {"kafka.partitions": "2"})
    with pytest.raises(PgStreamError, match="too large"):
        await admin.insert("ka_all", [NewRecord(b"1", b"a"), NewRecord(b"x" * 2_000_000, b"b")])
    await admin.insert("ka_all", [NewRecord(b"%d" % n, b"%d" % n) for n in range(2, 8)])
    found = await first(admin.read("ka_all", from_beginning=True), 6)
    assert sorted(r.value or b"" for r in found) == [b"%d" % n for n in range(2, 8)]


async def test_uncommitted_records_are_not_shown(admin: Admin, kafka: Kafka) -> None:
    await admin.create("ka_tx", {"kafka.partitions": "1"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "ka-tx"})
    await asyncio.to_thread(producer.init_transactions)
    producer.begin_transaction()
    producer.produce("ka_tx", b"aborted")
    await asyncio.to_thread(producer.flush)
    await asyncio.to_thread(producer.abort_transaction)
    producer.begin_transaction()
    producer.produce("ka_tx", b"committed")
    await asyncio.to_thread(producer.commit_transaction)
    assert [r.value for r in await first(admin.read("ka_tx", from_beginning=True), 1)] == [b"committed"]


async def test_what_a_querys_writers_kept_of_its_batches_goes(admin: Admin, kafka: Kafka) -> None:
    await admin.create("ka_marks", {"kafka.partitions": "1"})
    for group in ("pgstream-ka1-t0", "pgstream-ka1-o1-p3", "pgstream-ka10-t0"):
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
        await asyncio.to_thread(consumer.commit, offsets=[TopicPartition("ka_marks", 0, 7)], asynchronous=False)
        consumer.close()
    marking = cast(Marking, admin)
    await marking.unmark("ka1")
    await marking.unmark("ka1")  # nothing is left to do
    listed = (await asyncio.to_thread(kafka.admin.list_consumer_groups().result)).valid
    assert [g.group_id for g in listed if g.group_id.startswith("pgstream-ka")] == ["pgstream-ka10-t0"]


async def test_a_cancelled_reader_stops_at_once(admin: Admin, kafka: Kafka) -> None:
    await admin.create("ka_quiet", {"kafka.partitions": "1"})
    kafka.produce("ka_quiet", [(None, "{}")])
    records = admin.read("ka_quiet", from_beginning=True)
    await anext(records)  # it reads, and there is nothing more
    task = asyncio.create_task(first(records, 1))
    await asyncio.sleep(0)
    started = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - started < 2


@pytest.mark.parametrize("uris", ["127.0.0.1:1", "no-such-host.invalid:9092"])
async def test_a_store_that_is_not_there_is_named_within_ten_seconds(uris: str) -> None:
    admin = stores.open_admin(STORE, "away", {"uris": uris, **PLAIN})
    started = time.monotonic()
    for ask in (admin.check, admin.list_entities, lambda: admin.describe("t")):
        with pytest.raises(StoreUnreachable) as e:
            await ask()
        assert uris in e.value.text and "away" in e.value.text
    assert time.monotonic() - started < 10
    await admin.close()


async def test_tls_to_a_plain_listener_says_so(kafka: Kafka) -> None:
    admin = stores.open_admin(STORE, "tls", {"uris": kafka.bootstrap})
    with pytest.raises(PgStreamError) as e:
        await admin.check()
    assert "does not speak TLS" in e.value.text and "tls.disabled" in (e.value.hint or "")
    await admin.close()
