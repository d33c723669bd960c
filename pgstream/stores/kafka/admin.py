"""Kafka without Spark: check, list, describe, print, create, drop, insert, through confluent-kafka.

Owns: ``KafkaAdmin``. Why something failed, for a person, is ``reasons``.
Must not know: statements, Spark. confluent-kafka blocks, so every call runs on a thread of the object's own; each
answers or raises within ``PATIENCE_S``. Start reading at ``KafkaAdmin``.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from pgstream.errors import InvalidOption, StoreUnreachable, UndefinedEntity
from pgstream.stores.kafka import reasons
from pgstream.stores.kafka.client import connection, librdkafka
from pgstream.stores.kafka.msk import CannotSign
from pgstream.stores.kafka.tls import complaint
from pgstream.stores.kafka.tokens import NoToken
from pgstream.stores.kafka.topics import ends, extents
from pgstream.stores.spec import EntityColumn, EntityInfo, EntityRow, Extent, NewRecord, Record

T = TypeVar("T")
PATIENCE_S = 8.0
_ATTEMPT_S = 1.5


class KafkaAdmin:
    """One store for one statement. See ``stores.spec.Admin`` for the contract."""

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        self.name = name
        self._connection = connection(options)
        self._settings: dict[str, Any] = {**librdkafka(options), "socket.timeout.ms": 6000, "log_level": 0}
        self._brokers = self._settings["bootstrap.servers"]
        self._reports: list[KafkaError] = []
        self._client: AdminClient | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"kafka-{name}")

    async def check(self) -> None:
        await self._call(self._check)

    async def list_entities(self, path: Sequence[str] = ()) -> list[EntityRow]:
        if path:
            raise UndefinedEntity(name=".".join(path), store=self.name)
        topics = await self._call(self._topics)
        return [EntityRow(t) for t in sorted(topics) if not t.startswith("__")]

    async def describe(self, entity: str) -> EntityInfo:
        return await self._call(lambda: self._describe(entity), entity)

    async def extents(self, entity: str) -> list[Extent]:
        return await self._call(
            lambda: extents(self._admin(), entity, self._topic(entity).partitions, PATIENCE_S), entity
        )

    async def ends(self, entity: str) -> dict[int, int]:
        return await self._call(lambda: ends(self._admin(), entity, self._topic(entity).partitions, PATIENCE_S), entity)

    async def create(
        self,
        entity: str,
        options: Mapping[str, str],
        columns: Sequence[EntityColumn] = (),
        primary_key: Sequence[str] = (),
    ) -> None:
        await self._call(lambda: self._create(entity, options), entity)

    async def update(self, entity: str, options: Mapping[str, str], unset: frozenset[str]) -> None:
        await self._call(lambda: self._update(entity, options, unset), entity)

    async def drop(self, entity: str) -> None:
        await self._call(lambda: self._drop(entity), entity)

    async def insert(self, entity: str, records: Sequence[NewRecord]) -> None:
        await self._call(lambda: self._insert(entity, records), entity)

    async def unmark(self, query: str) -> None:
        await self._call(lambda: self._unmark(query))

    async def read(self, entity: str, from_beginning: bool) -> AsyncIterator[Record]:
        # The consumer lives on the one thread: closing it waits its turn behind the poll that is running.
        consumer = await self._call(lambda: self._open_reader(entity, from_beginning), entity)
        try:
            while True:
                for message in await self._call(lambda: consumer.consume(500, 0.1), entity):
                    if message.error() is not None:
                        raise reasons.translate(message.error(), self.name, self._connection, entity)
                    yield _record(message)
        finally:
            self._thread.submit(consumer.close)

    async def close(self) -> None:
        self._client = None
        self._thread.shutdown(wait=False)

    async def _call(self, work: Callable[[], T], entity: str = "") -> T:
        loop = asyncio.get_running_loop()
        try:
            # Not wait_for: in Python 3.11 it swallows a cancel that comes when the work is just done.
            async with asyncio.timeout(PATIENCE_S + 1.5):
                return await loop.run_in_executor(self._thread, work)
        except KafkaException as e:
            raise reasons.translate(e.args[0], self.name, self._connection, entity) from None
        except (CannotSign, NoToken) as e:
            raise reasons.refused(self.name, self._connection, str(e)) from None
        except TimeoutError:
            raise StoreUnreachable(name=self.name, why=f"broker {self._brokers} did not answer in time") from None

    # What follows blocks, and runs on the thread only.

    def _admin(self) -> AdminClient:
        if self._client is None:
            if (sign := self._settings.get("oauth_cb")) is not None:
                # Here, because the library waits ten seconds for a callback that fails, and does not say why it did.
                sign()
            self._client = AdminClient({**self._settings, "error_cb": self._reports.append})
        return self._client

    def _unmark(self, query: str) -> None:
        """The consumer groups of ``KafkaWriter.scala``: else the brokers keep them for offsets.retention.minutes."""
        self._topics()
        found = self._admin().list_consumer_groups(request_timeout=PATIENCE_S).result()
        groups = [g.group_id for g in found.valid if g.group_id.startswith(f"pgstream-{query}-")]
        if groups:
            for deleted in self._admin().delete_consumer_groups(groups, request_timeout=PATIENCE_S).values():
                deleted.result()
        if found.errors:
            raise found.errors[0]  # a broker did not answer: it may have more

    def _topics(self) -> dict[str, Any]:
        """All topics. Not asked by name: brokers may create a topic that a metadata request names."""
        client, end = self._admin(), time.monotonic() + PATIENCE_S
        while True:
            try:
                topics: dict[str, Any] = client.list_topics(timeout=_ATTEMPT_S).topics
                return topics
            except KafkaException as e:
                client.poll(0)
                hopeless = any(r.code() in reasons.HOPELESS for r in self._reports)
                if hopeless or time.monotonic() + _ATTEMPT_S > end:
                    raise reasons.unreachable(self.name, self._connection, e.args[0], self._reports) from None

    def _check(self) -> None:
        # The library cannot be held to some versions of TLS: a broker that has none of them shows here.
        if self._connection.versions and (found := complaint(self._connection)) is not None:
            raise StoreUnreachable(name=self.name, why=f"broker {self._brokers}: {found.why}", hint=found.hint)
        self._topics()

    def _topic(self, entity: str) -> Any:
        topic = self._topics().get(entity)
        if topic is None or (topic.error is not None and topic.error.code() in reasons.MISSING):
            raise UndefinedEntity(name=entity, store=self.name)
        return topic

    def _describe(self, entity: str) -> EntityInfo:
        topic = self._topic(entity)
        resource = ConfigResource(ResourceType.TOPIC, entity)
        found = self._admin().describe_configs([resource], request_timeout=PATIENCE_S)[resource].result()
        configs = {n: c.value for n, c in sorted(found.items()) if c.value is not None and not c.is_sensitive}
        replicas = min((len(p.replicas) for p in topic.partitions.values()), default=0)
        return EntityInfo(entity, len(topic.partitions), replicas, configs, kept_ms=_kept(configs))

    def _create(self, entity: str, options: Mapping[str, str]) -> None:
        self._topics()
        config = {k.removeprefix("kafka.topic."): v for k, v in options.items() if k.startswith("kafka.topic.")}
        new = NewTopic(
            entity,
            num_partitions=int(options.get("kafka.partitions", -1)),
            replication_factor=int(options.get("kafka.replicas", -1)),
            config=config,
        )
        self._admin().create_topics([new], operation_timeout=PATIENCE_S, request_timeout=PATIENCE_S)[entity].result()
        self._until(lambda: entity in self._topics())

    def _update(self, entity: str, options: Mapping[str, str], unset: frozenset[str]) -> None:
        self._describe(entity)
        said: list[tuple[str, str | None]] = [*options.items(), *((name, None) for name in unset)]
        changes = [
            ConfigEntry(
                name.removeprefix("kafka.topic."),
                value,
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for name, value in said
            if name.startswith("kafka.topic.")
        ]
        if changes:
            resource = ConfigResource(ResourceType.TOPIC, entity, incremental_configs=changes)
            self._admin().incremental_alter_configs([resource], request_timeout=PATIENCE_S)[resource].result()
        if (count := options.get("kafka.partitions")) is not None:
            grown = self._admin().create_partitions([NewPartitions(entity, int(count))], request_timeout=PATIENCE_S)
            grown[entity].result()
            self._until(lambda: len(self._topics()[entity].partitions) == int(count))

    def _drop(self, entity: str) -> None:
        if entity not in self._topics():
            raise UndefinedEntity(name=entity, store=self.name)
        self._admin().delete_topics([entity], operation_timeout=PATIENCE_S, request_timeout=PATIENCE_S)[entity].result()
        self._until(lambda: entity not in self._topics())

    def _until(self, seen: Callable[[], bool]) -> None:
        """Metadata follows the controller's answer after a moment; the next statement should see the change."""
        end = time.monotonic() + PATIENCE_S / 2
        while not seen() and time.monotonic() < end:
            time.sleep(0.02)

    def _insert(self, entity: str, records: Sequence[NewRecord]) -> None:
        partitions = self._topic(entity).partitions
        for record in records:
            if record.partition is not None and record.partition not in partitions:
                raise InvalidOption(what=f'entity "{entity}" has no partition {record.partition}')
        # Keys go where other clients' would: the reader of a partitioned topic counts on it.
        settings = {"acks": "all", "partitioner": "murmur2_random", "message.timeout.ms": int(PATIENCE_S * 1000) - 500}
        several = len(records) > 1  # all of them or none
        if several:
            settings |= {"transactional.id": f"pgstream-insert-{uuid.uuid4()}", "transaction.timeout.ms": 20_000}
        producer = Producer({**self._settings, **settings})
        if several:
            producer.init_transactions(PATIENCE_S)
            producer.begin_transaction()
        try:
            self._send(producer, entity, records)
            if several:
                producer.commit_transaction(PATIENCE_S)
        except Exception:
            # At once: until the brokers give it up, nobody would read what others write behind it.
            with contextlib.suppress(KafkaException):
                producer.purge()
                if several:
                    producer.abort_transaction(PATIENCE_S)
            raise

    def _send(self, producer: Producer, entity: str, records: Sequence[NewRecord]) -> None:
        failed: list[KafkaError] = []
        for record in records:
            given = {"partition": record.partition, "timestamp": record.timestamp_ms}
            producer.produce(
                entity,
                record.value,
                record.key,
                on_delivery=lambda e, _: failed.append(e) if e is not None else None,
                headers=list(record.headers),
                **{k: v for k, v in given.items() if v is not None},
            )
        left = producer.flush(PATIENCE_S)
        if failed:
            raise KafkaException(failed[0])
        if left:
            raise StoreUnreachable(name=self.name, why=f"broker {self._brokers} did not take the record in time")

    def _open_reader(self, entity: str, from_beginning: bool) -> Any:
        numbers = self._topic(entity).partitions
        settings = {
            "group.id": "pgstream-print", "enable.auto.commit": False, "isolation.level": "read_committed",
            # In the server's memory, of each who prints: what is shown next, not 64 MB ahead of it.
            "queued.max.messages.kbytes": 2048, "queued.min.messages": 1000, "fetch.max.bytes": 4 << 20,
        }  # fmt: skip
        consumer = Consumer({**self._settings, **settings, "allow.auto.create.topics": False})
        # Positions are settled now: what is written after the statement began is shown.
        held = extents(self._admin(), entity, numbers, PATIENCE_S)
        consumer.assign([TopicPartition(entity, e.partition, e.first if from_beginning else e.next) for e in held])
        return consumer


def _kept(configs: Mapping[str, str]) -> int | None:
    kept = configs.get("retention.ms", "-1")
    return int(kept) if kept != "-1" and "delete" in configs.get("cleanup.policy", "delete") else None


def _record(message: Message) -> Record:
    kind, stamp = message.timestamp()
    return Record(
        key=message.key(),
        value=message.value(),
        timestamp_ms=stamp if kind else None,
        position=f"{message.partition()}:{message.offset()}",
        headers=message.headers() or (),
    )
