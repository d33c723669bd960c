"""INSERT INTO … VALUES from a program: parameters in text and binary, formats with schemas, pipelines."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.server import Kafka, Server

pytestmark = pytest.mark.stream
AT = dt.datetime(2026, 1, 2, 3, 4, 5, 678_000)


@pytest.fixture(scope="module")
def db(server: Server, kafka: Kafka, registry: str) -> Iterator[psycopg.Connection[Any]]:
    with server.connect() as c:
        c.execute("CREATE DATABASE inserted")
        c.execute(f"CREATE SCHEMA_REGISTRY iv_r WITH ('type' = CONFLUENT, 'uris' = '{registry}')")
        c.execute(
            f"CREATE STORE iv_f WITH ('type' = KAFKA, 'uris' = '{kafka.bootstrap}', 'tls.disabled' = TRUE, "
            "'kafka.sasl.hash_function' = NONE, 'schema_registry.name' = iv_r)"
        )
    with server.connect("inserted") as c:
        yield c


def _read(c: psycopg.Connection[Any], columns: str, n: int, relation: str) -> list[tuple[Any, ...]]:
    """The first records of a relation, as Spark decodes them."""
    return c.execute(f"SELECT {columns} FROM {relation} WITH ('starting.position' = 'earliest') LIMIT {n}").fetchall()


@pytest.mark.parametrize("way", ["%s", "%b", "%t"])
def test_avro(db: psycopg.Connection[Any], kafka: Kafka, way: str) -> None:
    name = {"%s": "auto", "%b": "bin", "%t": "txt"}[way]
    kafka.topic(f"iv_{name}", 1)
    db.execute(
        f"CREATE STREAM {name} (id BIGINT, n INTEGER, price DECIMAL(12, 3), d DOUBLE, ok BOOLEAN, s VARCHAR, "
        f"at TIMESTAMP(3), day DATE, raw BYTES, who STRUCT<name VARCHAR, tags ARRAY<VARCHAR>>) "
        f"WITH ('store' = iv_f, 'topic' = 'iv_{name}', 'value.format' = 'avro', 'key.format' = 'avro', "
        "'key.type' = 'STRUCT<id BIGINT>')"
    )
    who = {"name": "Ann", "tags": ["x", "ü"]}
    row = (1, -7, Decimal("12.345"), 0.1, True, "it's \\ ü", AT, AT.date(), b"\x00\xff", Jsonb(who))
    places = ", ".join([way] * len(row))
    with db.cursor() as c:
        c.execute(f"INSERT INTO {name} VALUES ({places})", row)
        assert c.statusmessage == "INSERT 0 1"
        c.executemany(f"INSERT INTO {name} (id, s) VALUES ({way}, {way})", [(i, None) for i in range(2, 5)])
        assert c.rowcount == 3
    found = sorted(_read(db, "id, n, price, d, ok, s, at, day, raw, who->name, who->tags[2]", 4, name))
    assert found[0] == (*row[:-1], "Ann", "ü")
    assert [r[:2] for r in found[1:]] == [(i, None) for i in range(2, 5)]
    assert all(r[5] is None for r in found[1:])


def test_protobuf(db: psycopg.Connection[Any], kafka: Kafka) -> None:
    kafka.topic("iv_pb", 1)
    db.execute(
        "CREATE CHANGELOG pb (k VARCHAR, n BIGINT, d DOUBLE, tags ARRAY<VARCHAR>, PRIMARY KEY (k)) "
        "WITH ('store' = iv_f, 'topic' = 'iv_pb', 'value.format' = 'protobuf', 'key.format' = 'protobuf')"
    )
    db.execute("INSERT INTO pb VALUES ('a', 1, 0.5, ARRAY['x']), ('a', 9007199254740993, NULL, NULL)")
    assert sorted(_read(db, "k, n, d", 2, "pb"))[1] == ("a", 9007199254740993, None)
    db.execute("CREATE STREAM pb_day (day DATE) WITH ('store' = iv_f, 'topic' = 'iv_pb', 'value.format' = 'protobuf')")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="DATE in PROTOBUF") as told:
        db.execute("INSERT INTO pb_day VALUES ('2026-01-01')")
    assert told.value.diag.message_hint == "INSERT INTO … SELECT writes it."


def test_in_a_transaction(server: Server, db: psycopg.Connection[Any], kafka: Kafka) -> None:
    """Its rows stay after a ROLLBACK, which is said; what PostgreSQL refuses fails the transaction."""
    kafka.topic("iv_tx", 1)
    db.execute("CREATE STREAM tx (n BIGINT) WITH ('store' = iv_f, 'topic' = 'iv_tx', 'value.format' = 'json')")
    notices: list[str] = []
    db.add_notice_handler(lambda d: notices.append(d.message_primary or ""))
    with pytest.raises(psycopg.errors.DivisionByZero), db.transaction():
        db.execute("INSERT INTO tx VALUES (1)")
        db.execute("INSERT INTO tx VALUES (1 / 0)")
    assert notices == ["INSERT INTO takes effect at once and will not be rolled back"] * 2
    with db.pipeline():
        done = [db.execute("INSERT INTO tx VALUES (%s)", (n,)) for n in (2, 3)]
    assert [d.statusmessage for d in done] == ["INSERT 0 1"] * 2
    db.execute("SET default_transaction_read_only = on")
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        db.execute("INSERT INTO tx VALUES (4)")
    db.execute("RESET default_transaction_read_only")
    db.execute("INSERT INTO tx VALUES (5)")
    assert sorted(_read(db, "n", 4, "tx")) == [(1,), (2,), (3,), (5,)]
