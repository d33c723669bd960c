"""SubscribeToShard over moto, which has consumers but sends them nothing: the messages that AWS would send.

One subscription of a consumer and shard at a time, the newest; it ends after ``lasts_s``, or with its shard.
botocore reads these messages as AWS's (``tests/unit/stores/test_fanout.py``). Start reading at ``Subscriptions``.
"""

from __future__ import annotations

import json
import struct
import time
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

from moto.kinesis.models import Record, Shard, kinesis_backends

_JSON = "application/json"
_AT_ONCE = 50
_SILENT_S = 0.2


def message(payload: dict[str, Any], **headers: str) -> bytes:
    """A message of AWS's event stream; ``event_type`` is ``:event-type``."""
    told = b""
    for name, value in headers.items():
        key, text = f":{name.replace('_', '-')}".encode(), value.encode()
        told += struct.pack(">B", len(key)) + key + b"\x07" + struct.pack(">H", len(text)) + text
    body = json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(told) + len(body), len(told))
    whole = prelude + struct.pack(">I", zlib.crc32(prelude)) + told + body
    return whole + struct.pack(">I", zlib.crc32(whole))


def _told(r: Record) -> dict[str, Any]:
    """With its data in base 64, as it is kept."""
    return {"Data": r.data if isinstance(r.data, str) else r.data.decode(), "PartitionKey": r.partition_key,
            "SequenceNumber": str(r.sequence_number), "ApproximateArrivalTimestamp": r.created_at}  # fmt: skip


class Subscriptions:
    """``cuts``: after how many bytes of a message with records coming subscriptions lose their connection.
    ``failures``: codes that those after them end with.
    """

    def __init__(self) -> None:
        self.lasts_s = 300.0
        self.waits_s = 0.0
        """Until one is answered."""
        self.open = 0
        """How many are being sent to."""
        self.cuts: list[int] = []
        self.failures: list[str] = []
        self.begun: list[str] = []
        """Where each began: TRIM_HORIZON, or a sequence number."""
        self._newest: dict[tuple[str, str], int] = {}

    def answer(self, region: str, start: Any, body: bytes) -> Iterable[bytes]:
        asked = json.loads(body)
        backend = next(a[region] for a in kinesis_backends.values() if region in a)
        stream = next((s for s in backend.streams.values() if s.get_consumer_by_arn(asked["ConsumerARN"])), None)
        if stream is None:
            start("400 Refused", [("Content-Type", "application/x-amz-json-1.1")])
            return [json.dumps({"__type": "ResourceNotFoundException", "message": "No such consumer."}).encode()]
        shard, place = stream.shards[asked["ShardId"]], asked["StartingPosition"]
        match place["Type"]:
            case "TRIM_HORIZON":
                last = 0
            case "AFTER_SEQUENCE_NUMBER":
                last = int(place["SequenceNumber"])
            case "AT_TIMESTAMP":
                last = next((r.sequence_number - 1 for r in shard.records.values()
                             if r.created_at >= place["Timestamp"]), len(shard.records))  # fmt: skip
            case other:
                raise NotImplementedError(other)
        time.sleep(self.waits_s)
        self.begun.append(place.get("SequenceNumber", place["Type"]))
        key = (asked["ConsumerARN"], asked["ShardId"])
        mine = self._newest[key] = self._newest.get(key, 0) + 1
        start("200 OK", [("Content-Type", "application/vnd.amazon.eventstream")])
        return self._counted(self._sent(shard, last, [s for s in stream.shards.values() if s.parent == shard.shard_id],
                          lambda: self._newest[key] == mine))  # fmt: skip

    def _counted(self, sent: Iterator[bytes]) -> Iterator[bytes]:
        self.open += 1
        try:
            yield from sent
        finally:
            self.open -= 1

    def _sent(self, shard: Shard, last: int, children: list[Shard], newest: Any) -> Iterator[bytes]:
        yield message({}, event_type="initial-response", content_type=_JSON, message_type="event")
        if self.failures:
            yield message({"message": "No."}, exception_type=self.failures.pop(0), message_type="exception")
            return
        end = time.monotonic() + self.lasts_s
        while newest() and time.monotonic() < end:
            numbers = list(shard.records)
            at = bisect_right(numbers, last)
            found = [shard.records[n] for n in numbers[at : at + _AT_ONCE]]
            event: dict[str, Any] = {"MillisBehindLatest": 0, "Records": [_told(r) for r in found]}
            last = found[-1].sequence_number if found else last
            if over := not shard.is_open and (not numbers or last >= numbers[-1]):
                event["ChildShards"] = [{"ShardId": c.shard_id, "ParentShards": [shard.shard_id]} for c in children]
            else:
                event["ContinuationSequenceNumber"] = str(last)
            sent = message(event, event_type="SubscribeToShardEvent", content_type=_JSON, message_type="event")
            if found and self.cuts:
                yield sent[: self.cuts.pop(0)]
                raise ConnectionAbortedError("cut, as a test asked")
            yield sent
            if over:
                return
            if not found:
                time.sleep(_SILENT_S)
