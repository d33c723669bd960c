"""Protobuf by descriptors, from end to end: attached to an entity, read without columns, written for other programs."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as P
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from pgstream.formats import protobuf
from tests.server import Kafka, Server, within

pytestmark = pytest.mark.stream


def files() -> bytes:
    """shop.Order and shop.Key, as protoc makes them of a proto3 file."""
    out = FileDescriptorSet()
    file = out.file.add(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    state = file.enum_type.add(name="State")
    for i, name in enumerate(("NEW", "PAID")):
        state.value.add(name=name, number=i)
    line = file.message_type.add(name="Line")
    line.field.add(name="sku", number=1, type=P.TYPE_STRING, label=P.LABEL_OPTIONAL)
    line.field.add(name="n", number=2, type=P.TYPE_UINT32, label=P.LABEL_OPTIONAL)
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=P.TYPE_INT64, label=P.LABEL_OPTIONAL)
    order.field.add(name="state", number=2, type=P.TYPE_ENUM, type_name=".shop.State", label=P.LABEL_OPTIONAL)
    order.field.add(name="at", number=3, type=P.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp",
                    label=P.LABEL_OPTIONAL)  # fmt: skip
    order.field.add(name="lines", number=4, type=P.TYPE_MESSAGE, type_name=".shop.Line", label=P.LABEL_REPEATED)
    order.field.add(name="note", number=5, type=P.TYPE_STRING, label=P.LABEL_OPTIONAL, proto3_optional=True,
                    oneof_index=0)  # fmt: skip
    order.oneof_decl.add(name="_note")
    order.field.add(name="parts", number=6, type=P.TYPE_MESSAGE, type_name=".shop.Order", label=P.LABEL_REPEATED)
    file.message_type.add(name="Key").field.add(name="id", number=1, type=P.TYPE_INT64, label=P.LABEL_OPTIONAL)
    slim = file.message_type.add(name="Slim")
    slim.field.extend(f for f in order.field if f.name != "parts")
    slim.oneof_decl.add(name="_note")
    return out.SerializeToString()


FILES = files()


def made(name: str) -> Any:
    return message_factory.GetMessageClass(protobuf.message(FILES, name))


@pytest.fixture(scope="module")
def db(server: Server, kafka: Kafka) -> Iterator[psycopg.Connection[Any]]:
    with server.connect() as c:
        c.execute("CREATE DATABASE protobuf")
    with server.connect("protobuf") as c:
        c.execute(f"CREATE DESCRIPTOR_SOURCE shop_files WITH ('file' = 'base64:{base64.b64encode(FILES).decode()}')")
        c.execute(f"CREATE STORE pb WITH ('type' = KAFKA, 'uris' = '{kafka.bootstrap}', 'tls.disabled' = TRUE)")
        c.execute("USE STORE pb")
        yield c


def rows(db: psycopg.Connection[Any], sql: str) -> list[Any]:
    return db.execute(sql).fetchall()  # type: ignore[call-overload, no-any-return]


def refused(db: psycopg.Connection[Any], sql: str) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as e:
        db.execute(sql)  # type: ignore[call-overload]
    return e.value


def test_an_attached_descriptor_reads_and_writes(db: psycopg.Connection[Any], kafka: Kafka) -> None:
    db.execute(
        "CREATE ENTITY pb_in WITH ('kafka.partitions' = 1, 'kafka.replicas' = 1, "
        "'value.descriptor' = 'shop_files.shop.Slim', 'key.descriptor' = 'shop_files.shop.Key')"
    )
    assert rows(db, "DESCRIBE ENTITY pb_in")[0][4:6] == ("shop_files.shop.Key", "shop_files.shop.Slim")
    order, key = made("shop.Slim"), made("shop.Key")
    orders = [order(id=1, state=1, lines=[{"sku": "a", "n": 2}, {"sku": "b"}]), order(id=2, note="n"), order()]
    orders[0].at.FromJsonString("2026-01-01T00:00:01Z")
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for o in orders:
        producer.produce("pb_in", key=key(id=o.id).SerializeToString(), value=o.SerializeToString())
    assert producer.flush(30) == 0
    db.execute(
        "CREATE STREAM pb_orders WITH ('topic' = 'pb_in', 'value.format' = 'protobuf', 'key.format' = 'protobuf', "
        "'starting.position' = 'earliest')"
    )
    described = [(r[0], r[1]) for r in rows(db, "DESCRIBE STREAM COLUMNS pb_orders")]
    assert described == [("id", "BIGINT"), ("state", "VARCHAR"), ("at", "TIMESTAMP_LTZ(6)"),
                         ("lines", "ARRAY<STRUCT<sku VARCHAR, n INTEGER>>"), ("note", "VARCHAR")]  # fmt: skip
    db.execute("CREATE ENTITY pb_out WITH ('kafka.partitions' = 1, 'kafka.replicas' = 1)")
    db.execute("UPDATE ENTITY pb_out WITH ('value.descriptor' = 'shop_files.shop.Slim')")
    db.execute(
        "CREATE STREAM pb_paid WITH ('topic' = 'pb_out', 'value.format' = 'protobuf') AS "
        "SELECT id, 'PAID' AS state, at, lines, note FROM pb_orders WITH ('starting.position' = 'earliest')"
    )
    db.execute("CREATE MATERIALIZED VIEW pb_seen AS SELECT id, state, note, rowkey()->id AS k FROM pb_orders")
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "pb", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition("pb_out", 0, 0)])
    got: list[Any] = []

    def all_there() -> bool:
        m = consumer.poll(1)
        if m is not None and m.error() is None:
            got.append(order.FromString(m.value()))
        return len(got) >= 3

    within(90, all_there)
    consumer.close()
    for o in orders:
        o.state = 1
    assert got == orders
    within(60, lambda: rows(db, "SELECT count(*) FROM pb_seen") == [(3,)])
    assert rows(db, "SELECT * FROM pb_seen ORDER BY id") == [
        (0, "NEW", None, 0), (1, "PAID", None, 1), (2, "NEW", "n", 2),
    ]  # fmt: skip


def test_single_records(db: psycopg.Connection[Any], kafka: Kafka) -> None:
    db.execute("CREATE ENTITY pb_some WITH ('kafka.partitions' = 1, 'value.descriptor' = 'shop_files.shop.Slim')")
    document = '{"id": 7, "state": "PAID", "at": "2026-01-01T00:00:01Z", "lines": [{"sku": "a", "n": 2}]}'
    db.execute(
        f"INSERT INTO ENTITY pb_some VALUE('{document}') "
        """WITH ('key' = '{"id": 7}', 'key.format' = protobuf, 'key.descriptor.name' = 'shop_files.shop.Key')"""
    )
    order = made("shop.Slim")
    value = order(id=7, state=1, lines=[{"sku": "a", "n": 2}])
    value.at.FromJsonString("2026-01-01T00:00:01Z")
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "pb"})
    consumer.assign([TopicPartition("pb_some", 0, 0)])
    got = consumer.poll(30)
    consumer.close()
    assert got is not None and (got.key(), order.FromString(got.value())) == (b"\x08\x07", value)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce("pb_some", value=b"\xff")
    assert producer.flush(30) == 0
    shown = rows(db, "PRINT ENTITY pb_some WITH ('from_beginning') LIMIT 2")
    assert [r[1] for r in shown] == [document, "\\xff"]
    wrong = refused(db, """INSERT INTO ENTITY pb_some VALUE('{"id": 7, "sttae": "PAID"}')""")
    assert wrong.sqlstate == "22P02" and "sttae" in str(wrong) and "shop_files.shop.Slim" in str(wrong)
    assert refused(db, "INSERT INTO ENTITY pb_in2 VALUE('{}') WITH ('value.format' = protobuf)").sqlstate == "55000"


def test_ddl_out_of_a_descriptor(db: psycopg.Connection[Any]) -> None:
    ddl = rows(db, "GENERATE STREAM DDL pb_made WITH ('topic' = 'pb_in', 'value.format' = protobuf)")[0][0]
    assert "STRUCT<sku VARCHAR, n INTEGER>" in ddl and "'key.type' = 'STRUCT<id BIGINT>'" in ddl
    db.execute(ddl)
    assert rows(db, "DESCRIBE STREAM COLUMNS pb_made") == rows(db, "DESCRIBE STREAM COLUMNS pb_orders")


def test_another_store_of_the_name(db: psycopg.Connection[Any], kafka: Kafka) -> None:
    store = f"CREATE STORE pb2 WITH ('type' = KAFKA, 'uris' = '{kafka.bootstrap}', 'tls.disabled' = TRUE)"
    db.execute(store)  # type: ignore[call-overload]
    db.execute("CREATE ENTITY pb_two IN STORE pb2 WITH ('value.descriptor' = 'shop_files.shop.Slim')")
    assert rows(db, "DESCRIBE ENTITY pb_two IN STORE pb2")[0][5] == "shop_files.shop.Slim"
    db.execute("DROP STORE pb2")
    db.execute(store)  # type: ignore[call-overload]
    assert rows(db, "DESCRIBE ENTITY pb_two IN STORE pb2")[0][5] is None


def test_what_is_refused(db: psycopg.Connection[Any], kafka: Kafka) -> None:
    with_ = "WITH ('topic' = 'pb_no', 'topic.partitions' = 1, 'topic.replicas' = 1, 'value.format' = "
    named = "'protobuf', 'value.descriptor.name' = "
    gone = refused(db, f"CREATE STREAM no {with_}{named}'shop_files.shop.Nothing')")
    assert (gone.sqlstate, "shop_files.shop.Nothing" in str(gone)) == ("42704", True)
    assert refused(db, f"CREATE STREAM no {with_}{named}'nowhere.shop.Order')").sqlstate == "42704"
    endless = refused(db, f"CREATE STREAM no {with_}{named}'shop_files.shop.Order')")
    assert (endless.sqlstate, "contains itself" in str(endless)) == ("42804", True)
    assert refused(db, f"CREATE STREAM no {with_}'json', 'value.descriptor.name' = 'shop_files.shop.Key')").sqlstate
    assert refused(db, f"CREATE STREAM no {with_}'protobuf')").sqlstate == "55000"
    wrong = f"CREATE STREAM no {with_}{named}'shop_files.shop.Key') AS SELECT note AS id FROM pb_orders"
    mismatch = refused(db, wrong)
    assert mismatch.sqlstate == "42804" and 'column "id" of type VARCHAR cannot be written' in str(mismatch)
    used = refused(db, "DROP DESCRIPTOR_SOURCE shop_files")
    assert used.sqlstate == "2BP01" and "value of pb_in in pb" in str(used)
    # The columns that are wanted can be read of a message that has no columns as a whole.
    db.execute(f"CREATE STREAM some (id BIGINT, note VARCHAR) {with_}{named}'shop_files.shop.Order')")
