"""What a topic holds, and the names of its configuration.

Owns: first and next offsets of partitions, asked for all at once; which configuration a misspelt name may have meant.
Must not know: how a client is made, and on which thread it runs (``admin``). Start reading at ``extents``.
"""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Collection
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from pgstream.stores.spec import Extent

# Topic configurations of Apache Kafka 4; others' brokers have more, so that these only serve to suggest.
CONFIGS = (
    "cleanup.policy", "compression.gzip.level", "compression.lz4.level", "compression.type", "compression.zstd.level",
    "delete.retention.ms", "file.delete.delay.ms", "flush.messages", "flush.ms",
    "follower.replication.throttled.replicas", "index.interval.bytes", "leader.replication.throttled.replicas",
    "local.retention.bytes", "local.retention.ms", "max.compaction.lag.ms", "max.message.bytes",
    "message.timestamp.after.max.ms", "message.timestamp.before.max.ms", "message.timestamp.type",
    "min.cleanable.dirty.ratio", "min.compaction.lag.ms", "min.insync.replicas", "preallocate",
    "remote.log.copy.disable", "remote.log.delete.on.disable", "remote.storage.enable", "retention.bytes",
    "retention.ms", "segment.bytes", "segment.index.bytes", "segment.jitter.ms", "segment.ms",
    "unclean.leader.election.enable",
)  # fmt: skip
_UNKNOWN = re.compile(r"unknown topic config name: (?P<name>\S+)", re.IGNORECASE)


_MOVING = {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.REPLICA_NOT_AVAILABLE,
           KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH}  # fmt: skip


def extents(client: Any, entity: str, partitions: Collection[int], patience_s: float) -> list[Extent]:
    """The first and the next offset of each partition: two requests a broker, however many partitions.

    Asked for again while a partition has no leader that knows to be it: of a topic that was just made, or is moved.
    """
    end = time.monotonic() + patience_s / 2
    while True:
        try:
            return _extents(client, entity, partitions, patience_s)
        except KafkaException as e:
            if e.args[0].code() not in _MOVING or time.monotonic() > end:
                raise
        time.sleep(0.1)


def _extents(client: Any, entity: str, partitions: Collection[int], patience_s: float) -> list[Extent]:
    ends = []
    for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):
        wanted = {TopicPartition(entity, p): spec for p in partitions}
        found = client.list_offsets(wanted, request_timeout=patience_s) if wanted else {}
        ends.append({tp.partition: f.result().offset for tp, f in found.items()})
    return [Extent(p, ends[0][p], ends[1][p]) for p in sorted(ends[0])]


def ends(client: Any, entity: str, partitions: Collection[int], patience_s: float) -> dict[int, int]:
    """Where each partition ends for who reads what is committed: at the first record of an open transaction."""
    wanted = {TopicPartition(entity, p): OffsetSpec.latest() for p in partitions}
    committed = IsolationLevel.READ_COMMITTED
    found = client.list_offsets(wanted, isolation_level=committed, request_timeout=patience_s)
    return {tp.partition: f.result().offset for tp, f in found.items()}


def meant(why: str) -> str | None:
    """A hint for a broker's refusal of a configuration that it does not know."""
    m = _UNKNOWN.search(why)
    if m is None:
        return None
    close = difflib.get_close_matches(m["name"], CONFIGS, 1, 0.6)
    if close:
        return f"Perhaps you meant 'kafka.topic.{close[0]}'."
    return "DESCRIBE ENTITY shows the configuration that a topic has."
