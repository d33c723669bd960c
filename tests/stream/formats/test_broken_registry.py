"""The kernel's client of a registry: TLS, several URLs, answers that never end, and how often it asks."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from pgstream.formats.registry import java
from tests.false_registry import client, false_registry, tls
from tests.pg.door.certificates import Authority
from tests.stream.formats.test_avro import EPOCH
from tests.stream.frames import RECORD, frame

pytestmark = [pytest.mark.stream, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]
DEAD = "http://127.0.0.1:9"


def decode(spark: SparkSession, ids: list[int], mode: str = "terminate", **options: str) -> int:
    """How many records can be decoded, one of each schema id; ``options`` are those of the registry."""
    kernel: Any = spark._jvm.org.apache.spark.sql.pgstream  # type: ignore[union-attr]
    registry = java("reg", {k.replace("__", "."): v for k, v in options.items()})
    config = {
        "columns": "n BIGINT", "kind": "stream", "topic": "t", "on_bad_record": mode, "watermark": False,
        "primary_key": [], "key": None, "limits": {},
        "value": {"format": "avro", "timestamp_format": "sql", "registry": registry},
    }  # fmt: skip
    records = [(None, b"\0" + struct.pack(">i", id_) + b"\x02", EPOCH, 0, i) for i, id_ in enumerate(ids)]
    raw = frame(spark, records, RECORD)
    bad = kernel.Kernel.counter(raw._jdf, "bad")
    decoded = DataFrame(kernel.Kernel.decode(raw._jdf, json.dumps(config), bad), spark)
    return len(decoded.where("r IS NOT NULL").select("r.*").collect())


def why(spark: SparkSession, **options: str) -> str:
    with pytest.raises(Py4JJavaError) as e:
        decode(spark, [1], **options)
    return str(e.value.java_exception.getCause().getMessage())


def test_an_unknown_schema_is_not_asked_for_by_every_record(spark: SparkSession) -> None:
    with false_registry() as r:
        started = time.monotonic()
        assert decode(spark, [7] * 500 + [1] * 500, "ignore", uris=r.url) == 500
        assert r.asked <= 3 + time.monotonic() - started
        r.schemas["/schemas/ids/7"] = r.schemas["/schemas/ids/1"]
        deadline = time.monotonic() + 20
        while decode(spark, [7], "ignore", uris=r.url) == 0:
            assert time.monotonic() < deadline, "a schema that came later is still unknown"


def test_one_of_several_servers_has_not_heard_of_a_schema_yet(spark: SparkSession) -> None:
    with false_registry() as behind, false_registry() as ahead:
        ahead.schemas["/schemas/ids/7"] = ahead.schemas["/schemas/ids/1"]
        assert decode(spark, [1, 7], uris=f"{behind.url},{ahead.url}") == 2
        assert decode(spark, [1, 8, 7], "ignore", uris=f"{behind.url},{ahead.url}") == 2


def test_the_server_that_has_a_schema_may_be_the_one_that_is_away(spark: SparkSession) -> None:
    """A record is not taken for a bad one then: the query waits."""
    with false_registry() as behind, false_registry() as ahead:
        ahead.schemas["/schemas/ids/7"] = ahead.schemas["/schemas/ids/1"]
        assert decode(spark, [1], uris=f"{behind.url},{DEAD}") == 1
        with pytest.raises(Py4JJavaError, match="could not reach schema registry"):
            decode(spark, [7], "ignore", uris=f"{behind.url},{DEAD}")
        assert decode(spark, [1, 7], uris=f"{behind.url},{ahead.url},{DEAD}") == 2


def test_tls_and_the_next_url(spark: SparkSession, tmp_path: Path) -> None:
    own, other = Authority(tmp_path / "own"), Authority(tmp_path / "other", "another ca")
    root = own.root.read_text()
    mine = {k.replace(".", "__"): v for k, v in client(own).items()}
    with false_registry(tls(own, mutual=True)) as r, false_registry(tls(own, hosts=("other.host",))) as elsewhere:
        assert decode(spark, [1], uris=f"{DEAD},{r.url}", **mine) == 1
        assert r.url in why(spark, uris=r.url, tls__ca_cert_file=root)
        assert "unable to find valid certification path" in why(
            spark, uris=r.url, tls__ca_cert_file=other.root.read_text()
        )
        assert "127.0.0.1" in why(spark, uris=elsewhere.url, tls__ca_cert_file=root)


@pytest.mark.parametrize(
    ("manner", "said"),
    [("endless", "too large"), ("page", "something else"), ("refuses", "refuses the credentials"), ("slow", "in time")],
)
def test_a_broken_registry_is_named(spark: SparkSession, manner: str, said: str) -> None:
    with false_registry() as r:
        r.manner = manner
        text = why(spark, uris=r.url, confluent__username="bob", confluent__password="hush")
        assert said in text and r.url in text and "hush" not in text
