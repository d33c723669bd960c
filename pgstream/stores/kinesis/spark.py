"""Kinesis in the worker: a data stream as a streaming DataFrame of raw records.

Owns: what the kernel's source is told (``KinesisSource.scala``), and that it always has keys that are good: those of a
role or a profile end, and are renewed here. Must not know: formats, SQL, the checkpoint. The only file of this store
that imports pyspark. Start reading at ``KinesisStreams``.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog
from botocore.exceptions import BotoCoreError, ClientError
from pyspark.sql import DataFrame, SparkSession

from pgstream.stores import aws
from pgstream.stores.kinesis import reasons
from pgstream.stores.kinesis.client import Connection, connection

log = structlog.get_logger(__name__)

# While catching up, a batch this large keeps Spark's fixed costs small and one core's memory bounded.
CATCH_UP_RECORDS = 200_000
POLL_MS = 250
_PROVIDER = "org.apache.spark.sql.pgstream.KinesisSourceProvider"
_SINK = "org.apache.spark.sql.pgstream.KinesisSink"
_RENEW_EVERY_S = 60.0
_UNUSED_ROUNDS = 5


class KinesisStreams:
    """A Kinesis store seen from Spark."""

    def read(self, spark: SparkSession, source: Any, access: Any, group: str) -> DataFrame:
        """The records of a stream: key, value, ``__time``, ``__partition``, ``__offset``, ``__headers``.

        Records that are gone fail the query instead of being skipped.
        """
        place, keys = told(spark, access.name, access.options)
        config = place | {
            "stream": source.entity,
            "begin": begin(source.starting_position),
            "most": int(source.options.get("source.max.records.per.trigger", CATCH_UP_RECORDS)),
            "poll_ms": int(source.options.get("kinesis.poll.interval.millis", POLL_MS)),
            "consumer": source.options.get("kinesis.consumer.name", ""),
        }
        return spark.readStream.format(_PROVIDER).options(config=json.dumps(config), password=keys).load()

    def write(self, sink: Any, access: Any) -> dict[str, Any]:
        """A data stream, by PutRecords (``KinesisSink.scala``): at least once."""
        place, keys = told(SparkSession.active(), access.name, access.options)
        return {"type": _SINK, "stream": sink.entity, **place, "keys": keys}


def told(spark: SparkSession, store: str, options: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """A connection as the kernel reads it: where the service is, and apart the keys of now."""
    c = connection(options)
    who, keys = _KEYS.of(spark, store, c)
    endpoint = c.endpoint or aws.session(c.who).create_client("kinesis", region_name=c.who.region).meta.endpoint_url
    return {"endpoint": endpoint, "region": c.who.region, "who": who}, json.dumps(keys)


def begin(position: str) -> str:
    """Where reading begins, in the kernel's words: ``latest`` is now, told before the query is said to run."""
    word, _, value = position.partition(":")
    if word == "earliest":
        return "trim"
    return f"time:{value if word == 'timestamp' else int(time.time() * 1000)}"


@dataclass(slots=True)
class _Known:
    """Keys under the name that the kernel knows them by. ``unused``: rounds in which no query had them."""

    who: str
    credentials: Any
    unused: int = 0


class Keys:
    """The keys of each identity, renewed while a query has them; the kernel asks for them by name at each call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[Connection, _Known] = {}
        self._thread: threading.Thread | None = None

    def of(self, spark: SparkSession, store: str, c: Connection) -> tuple[str, dict[str, str]]:
        with self._lock:
            if c not in self._known:
                self._known[c] = _Known(uuid.uuid4().hex, aws.session(c.who).get_credentials())
            known = self._known[c]
            known.unused = 0
            if self._thread is None:
                self._thread = threading.Thread(target=self._renew, args=(spark,), daemon=True)
                self._thread.start()
        try:
            keys = _frozen(known.credentials)
        except (ClientError, BotoCoreError) as e:
            raise reasons.translate(e, store, c) from None
        _tell(spark, known.who, keys)
        return known.who, keys

    def _renew(self, spark: SparkSession) -> None:
        while self.round(spark):
            time.sleep(_RENEW_EVERY_S)

    def round(self, spark: SparkSession) -> bool:
        """Renew what queries have, and forget what none has had for some rounds: one may be about to start with it.
        False: there is nothing left to renew."""
        jvm: Any = spark._jvm
        kernel = jvm.org.apache.spark.sql.pgstream.AwsKeys
        with self._lock:
            for c, known in list(self._known.items()):
                known.unused = 0 if kernel.used(known.who) else known.unused + 1
                if known.unused > _UNUSED_ROUNDS:
                    del self._known[c]
                    kernel.forget(known.who)
            left = list(self._known.values())
            if not left:
                self._thread = None
        for known in left:
            try:
                _tell(spark, known.who, _frozen(known.credentials))
            except (ClientError, BotoCoreError) as e:
                log.warning("aws credentials not renewed", error=type(e).__name__)
        return bool(left)


def _frozen(credentials: Any) -> dict[str, str]:
    found = credentials.get_frozen_credentials()
    return {"id": found.access_key, "secret": found.secret_key, "token": found.token or ""}


def _tell(spark: SparkSession, who: str, keys: Mapping[str, str]) -> None:
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.pgstream.AwsKeys.renew(who, keys["id"], keys["secret"], keys["token"])


_KEYS = Keys()
