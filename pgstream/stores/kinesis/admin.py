"""Kinesis without Spark: check, list, describe, print, create, drop, insert, through botocore.

Owns: ``KinesisAdmin``. Why something failed, for a person, is ``reasons``; reading records is ``shards``.
Must not know: statements, Spark. botocore blocks, so every call runs on a thread of the object's own; each answers or
raises within ``PATIENCE_S``. Start reading at ``KinesisAdmin``.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from pgstream.errors import InvalidOption, NotSupported, StoreUnreachable, UndefinedEntity
from pgstream.stores.kinesis import reasons, shards
from pgstream.stores.kinesis.client import client, connection
from pgstream.stores.spec import EntityColumn, EntityInfo, EntityRow, Extent, NewRecord, Record

T = TypeVar("T")
PATIENCE_S = 9.0
_WAIT_S = 6.0
_LONGEST_KEY = 256
_POLL_S = 0.3
_DEFAULT_HOURS = 24


class KinesisAdmin:
    """One store for one statement. See ``stores.spec.Admin`` for the contract."""

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        self.name = name
        self._connection = connection(options)
        self._client: Any = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"kinesis-{name}")

    async def check(self) -> None:
        await self._call(self._check)

    async def list_entities(self, path: Sequence[str] = ()) -> list[EntityRow]:
        if path:
            raise UndefinedEntity(name=".".join(path), store=self.name)
        return [EntityRow(n) for n in sorted(await self._call(self._streams))]

    async def describe(self, entity: str) -> EntityInfo:
        return await self._call(lambda: self._describe(entity), entity)

    async def extents(self, entity: str) -> list[Extent]:
        return await self._call(lambda: self._extents(entity), entity)

    async def create(
        self,
        entity: str,
        options: Mapping[str, str],
        columns: Sequence[EntityColumn] = (),
        primary_key: Sequence[str] = (),
    ) -> None:
        await self._call(lambda: self._create(entity, options), entity, making=True)

    async def update(self, entity: str, options: Mapping[str, str], unset: frozenset[str]) -> None:
        await self._call(lambda: self._update(entity, options, unset), entity)

    async def drop(self, entity: str) -> None:
        await self._call(lambda: self._drop(entity), entity)

    async def insert(self, entity: str, records: Sequence[NewRecord]) -> None:
        for key, data in [(_partition_key(r), _data(r)) for r in records]:
            await self._call(partial(self._put, entity, key, data), entity)

    def _put(self, entity: str, key: str, data: bytes) -> None:
        self._kinesis().put_record(StreamName=entity, Data=data, PartitionKey=key)

    async def read(self, entity: str, from_beginning: bool) -> AsyncIterator[Record]:
        reader = await self._call(lambda: shards.Reader(self._kinesis(), entity, from_beginning), entity)
        while True:
            records = await self._call(reader.poll, entity)
            for record in records:
                yield record
            if not records:
                await asyncio.sleep(_POLL_S)

    async def close(self) -> None:
        self._client = None
        self._thread.shutdown(wait=False)

    async def _call(self, work: Callable[[], T], entity: str = "", making: bool = False) -> T:
        loop = asyncio.get_running_loop()
        try:
            # Not wait_for: in Python 3.11 it swallows a cancel that comes when the work is just done.
            async with asyncio.timeout(PATIENCE_S):
                return await loop.run_in_executor(self._thread, work)
        except (ClientError, BotoCoreError) as e:
            raise reasons.translate(e, self.name, self._connection, entity, making) from None
        except TimeoutError:
            why = f"{self._connection.place} did not answer in time"
            raise StoreUnreachable(name=self.name, why=why, hint=reasons.hint(self._connection)) from None

    # What follows blocks, and runs on the thread only.

    def _kinesis(self) -> Any:
        if self._client is None:
            self._client = client(self._connection)
        return self._client

    def _check(self) -> None:
        found = self._kinesis().list_streams(Limit=1)
        for stream in found.get("StreamSummaries", []):
            self._check_account(stream["StreamARN"])

    def _check_account(self, arn: str) -> None:
        wanted, has = self._connection.account, arn.split(":")[4]
        if wanted and has != wanted:
            raise InvalidOption(
                what=f'store "{self.name}" is of AWS account {has}, not {wanted}',
                hint="Check 'kinesis.account.id' and the credentials.",
            )

    def _streams(self) -> list[str]:
        pages = self._kinesis().get_paginator("list_streams").paginate()
        return [name for page in pages for name in page["StreamNames"]]

    def _summary(self, entity: str) -> dict[str, Any]:
        found: dict[str, Any] = self._kinesis().describe_stream_summary(StreamName=entity)["StreamDescriptionSummary"]
        return found

    def _describe(self, entity: str) -> EntityInfo:
        s = self._summary(entity)
        self._check_account(s["StreamARN"])
        configs = {
            "arn": s["StreamARN"],
            "status": s["StreamStatus"],
            "mode": s.get("StreamModeDetails", {}).get("StreamMode", "PROVISIONED"),
            "retention.hours": str(s["RetentionPeriodHours"]),
            "encryption": s.get("EncryptionType", "NONE"),
        }
        return EntityInfo(entity, s["OpenShardCount"], configs=configs)

    def _extents(self, entity: str) -> list[Extent]:
        """Sequence numbers of shards. An open one says nothing of its end."""
        pages = self._kinesis().get_paginator("list_shards").paginate(StreamName=entity)
        found = {s["ShardId"]: s["SequenceNumberRange"] for page in pages for s in page["Shards"]}
        return [Extent(id, r["StartingSequenceNumber"], r.get("EndingSequenceNumber")) for id, r in found.items()]

    def _create(self, entity: str, options: Mapping[str, str]) -> None:
        kinesis = self._kinesis()
        kinesis.create_stream(StreamName=entity, ShardCount=int(options.get("kinesis.shards", "1")))
        self._until_active(entity)
        if (hours := options.get("kinesis.retention.hours")) is not None:
            self._keep(entity, int(hours))

    def _update(self, entity: str, options: Mapping[str, str], unset: frozenset[str]) -> None:
        has = self._summary(entity)
        count = options.get("kinesis.shards")
        if count is not None and int(count) != has["OpenShardCount"]:
            kinesis = self._kinesis()
            kinesis.update_shard_count(StreamName=entity, TargetShardCount=int(count), ScalingType="UNIFORM_SCALING")
            self._until_active(entity)
        hours = options.get("kinesis.retention.hours")
        if hours is not None or "kinesis.retention.hours" in unset:
            self._keep(entity, int(hours or _DEFAULT_HOURS))

    def _keep(self, entity: str, hours: int) -> None:
        has, kinesis = self._summary(entity)["RetentionPeriodHours"], self._kinesis()
        if hours > has:
            kinesis.increase_stream_retention_period(StreamName=entity, RetentionPeriodHours=hours)
        elif hours < has:
            kinesis.decrease_stream_retention_period(StreamName=entity, RetentionPeriodHours=hours)

    def _drop(self, entity: str) -> None:
        self._kinesis().delete_stream(StreamName=entity, EnforceConsumerDeletion=True)
        self._until(lambda: entity not in self._streams())

    def _until_active(self, entity: str) -> None:
        """AWS takes up to half a minute, which a statement does not wait: readers and writers then do."""
        self._until(lambda: self._summary(entity)["StreamStatus"] == "ACTIVE")

    def _until(self, seen: Callable[[], bool]) -> None:
        end = time.monotonic() + _WAIT_S
        while not seen() and time.monotonic() < end:
            time.sleep(0.2)


def _partition_key(record: NewRecord) -> str:
    if record.key is None:
        return uuid.uuid4().hex
    try:
        text = record.key.decode()
    except UnicodeDecodeError:
        text = ""
    if not 1 <= len(text) <= _LONGEST_KEY:
        raise InvalidOption(what=f"the key of a Kinesis record is text of 1 to {_LONGEST_KEY} characters")
    return text


def _data(record: NewRecord) -> bytes:
    given = {
        "headers": bool(record.headers),
        "a partition": record.partition is not None,
        "a timestamp": record.timestamp_ms is not None,
    }
    for what, has in given.items():
        if has:
            raise NotSupported(
                what=f"a record with {what} in a Kinesis store",
                detail="A record there is a partition key and data; the service gives it its shard and arrival time.",
            )
    if record.value is None:
        raise NotSupported(
            what="a record without a value in a Kinesis store", detail="A record there is a partition key and data."
        )
    return record.value
