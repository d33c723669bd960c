"""Records of a data stream as they come, for PRINT ENTITY: its shards in turn, and those that follow them.

Owns: shard iterators and their end. Must not know: which thread it blocks. Start reading at ``Reader``.
"""

from __future__ import annotations

import datetime as dt
import time
from typing import Any

from botocore.exceptions import ClientError

from pgstream.stores.spec import Record

_AT_ONCE = 500
_PACE_S = 0.2


class Reader:
    """Positions are settled when it is made: what is written after the statement began is shown."""

    def __init__(self, kinesis: Any, stream: str, from_beginning: bool) -> None:
        self._kinesis, self._stream = kinesis, stream
        self._iterators: dict[str, str] = {}
        self._last: dict[str, str] = {}
        self._made_at = dt.datetime.now(dt.UTC)
        self._kind = "TRIM_HORIZON" if from_beginning else "LATEST"
        pages = kinesis.get_paginator("list_shards").paginate(StreamName=stream)
        shards = {s["ShardId"]: s for page in pages for s in page["Shards"]}
        self._parents = {
            id: {p for k in ("ParentShardId", "AdjacentParentShardId") if (p := s.get(k)) in shards}
            for id, s in shards.items()
        }
        for id, s in shards.items():
            ended = "EndingSequenceNumber" in s["SequenceNumberRange"]
            if not self._parents[id] if from_beginning else not ended:
                self._open(id, self._kind)
        self._next_at = 0.0

    def poll(self) -> list[Record]:
        """What has come, at most some hundreds of each shard."""
        time.sleep(max(0.0, self._next_at - time.monotonic()))  # five calls a second are what a shard allows
        self._next_at = time.monotonic() + _PACE_S
        return [r for shard in list(self._iterators) for r in self._take(shard)]

    def _open(self, shard: str, kind: str, **more: Any) -> None:
        found = self._kinesis.get_shard_iterator(StreamName=self._stream, ShardId=shard, ShardIteratorType=kind, **more)
        self._iterators[shard] = found["ShardIterator"]

    def _take(self, shard: str) -> list[Record]:
        try:
            found = self._kinesis.get_records(ShardIterator=self._iterators[shard], Limit=_AT_ONCE)
        except ClientError as e:
            code = e.response["Error"]["Code"]
            if code == "ExpiredIteratorException":
                self._again(shard)
            elif code != "ProvisionedThroughputExceededException":
                raise
            return []
        records = found["Records"]
        if records:
            self._last[shard] = records[-1]["SequenceNumber"]
        if following := found.get("NextShardIterator"):
            self._iterators[shard] = following
        else:
            self._end(shard, {c["ShardId"]: set(c["ParentShards"]) for c in found.get("ChildShards", [])})
        return [_record(shard, r) for r in records]

    def _again(self, shard: str) -> None:
        if last := self._last.get(shard):
            self._open(shard, "AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=last)
        elif self._kind == "LATEST":
            self._open(shard, "AT_TIMESTAMP", Timestamp=self._made_at)
        else:
            self._open(shard, self._kind)

    def _end(self, shard: str, children: dict[str, set[str]]) -> None:
        """A shard was split or merged; its children are read once all their parents are at their ends."""
        del self._iterators[shard]
        self._parents = children | self._parents
        for child in [c for c, parents in self._parents.items() if shard in parents]:
            self._parents[child].discard(shard)
            if not self._parents[child] & self._iterators.keys():
                self._open(child, "TRIM_HORIZON")


def _record(shard: str, r: dict[str, Any]) -> Record:
    arrived = r.get("ApproximateArrivalTimestamp")
    return Record(
        key=r["PartitionKey"].encode(),
        value=r["Data"],
        timestamp_ms=round(arrived.timestamp() * 1000) if arrived is not None else None,
        position=f"{shard}:{r['SequenceNumber']}",
    )
