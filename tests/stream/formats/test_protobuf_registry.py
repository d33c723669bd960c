"""Protobuf through a schema registry: foreign serializers, schemas of .proto texts that import others, evolution."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient, topic_subject_name_strategy
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as P
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from pgstream.formats import protobuf
from tests.registry import store_behind
from tests.server import Kafka, Server, within
from tests.stream.formats.test_descriptors import made, refused, rows

pytestmark = pytest.mark.stream

CONF = {"use.deprecated.format": False, "subject.name.strategy": topic_subject_name_strategy}
EACH = """syntax = "proto3";
package moving;
import "part.proto";
import "google/protobuf/wrappers.proto";
import "google/type/date.proto";
// What moves.
message Moving {
  message Inner { int32 x = 1; }
  int32 n = 1;
  optional string old = 2;
  parts.Part part = 3;
  google.protobuf.Int64Value big = 4;
  google.type.Date day = 5;
  map<string, Inner> inners = 6;
  oneof either { string text = 7; bool flag = 8; }
}
message Other { string s = 1; }
"""
PART = 'syntax = "proto2"; package parts; message Part { required int32 a = 1; repeated sint32 b = 2 [packed = true]; }'


@pytest.fixture(scope="module")
def db(server: Server, kafka: Kafka, registry: str) -> Iterator[psycopg.Connection[Any]]:
    with store_behind(server, kafka, registry, "protobuf_registry", "pbr") as c:
        yield c


def register(registry: str, subject: str, text: str, *references: dict[str, Any]) -> int:
    body = {"schemaType": "PROTOBUF", "schema": text, "references": list(references)}
    answer = httpx2.post(f"{registry}/subjects/{subject}/versions", json=body, timeout=30)
    assert answer.is_success, answer.text
    return int(answer.json()["id"])


def send(kafka: Kafka, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for value in values:
        producer.produce(topic, value=value)
    assert producer.flush(30) == 0


def taken(kafka: Kafka, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": topic, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    got: list[bytes] = []

    def enough() -> bool:
        m = consumer.poll(1)
        if m is not None and m.error() is None:
            got.append(m.value())
        return len(got) >= count

    within(90, enough)
    consumer.close()
    return got


def test_foreign_serializers_and_back(db: psycopg.Connection[Any], kafka: Kafka, registry: str) -> None:
    kafka.topic("pbr_in", 1)
    order, where = made("shop.Slim"), SerializationContext("pbr_in", MessageField.VALUE)
    orders = [order(id=1, state=1, lines=[{"sku": "a", "n": 2}]), order(id=2, note="n")]
    orders[0].at.FromJsonString("2026-01-01T00:00:01Z")
    with SchemaRegistryClient({"url": registry, "timeout": 30}) as client:
        serializer = ProtobufSerializer(order, client, CONF)
        send(kafka, "pbr_in", *[serializer(o, where) for o in orders])
    # The fourth message of its file, which the indexes before a record say; the first is what has the columns.
    db.execute(
        "CREATE STREAM orders (id BIGINT, state VARCHAR, at TIMESTAMP_LTZ(6), "
        "lines ARRAY<STRUCT<sku VARCHAR, n BIGINT>>, note VARCHAR) WITH ('topic' = 'pbr_in', "
        "'value.format' = 'protobuf', "
        "'starting.position' = 'earliest')"
    )  # fmt: skip
    db.execute(
        "CREATE STREAM paid WITH ('topic' = 'pbr_out', 'topic.partitions' = 1, 'topic.replicas' = 1) AS SELECT id, "
        "CAST(id AS DECIMAL(9, 2)) AS price, at, lines, note FROM orders"
    )
    got = taken(kafka, "pbr_out", 2)
    text = httpx2.get(f"{registry}/subjects/pbr_out-value/versions/latest").json()["schema"]
    assert "optional int64 id = 1;" in text and "repeated Lines lines = 4;" in text
    # What was written is read by a program that was made from the registered schema.
    out = FileDescriptorSet()
    file = out.file.add(name="o.proto", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    decimal = file.message_type.add(name="Decimal")
    decimal.field.add(name="value", number=1, type=P.TYPE_BYTES, label=P.LABEL_OPTIONAL)
    decimal.field.add(name="precision", number=2, type=P.TYPE_UINT32, label=P.LABEL_OPTIONAL)
    decimal.field.add(name="scale", number=3, type=P.TYPE_INT32, label=P.LABEL_OPTIONAL)
    line = file.message_type.add(name="Line")
    line.field.add(name="sku", number=1, type=P.TYPE_STRING, label=P.LABEL_OPTIONAL)
    line.field.add(name="n", number=2, type=P.TYPE_INT64, label=P.LABEL_OPTIONAL)
    paid = file.message_type.add(name="Paid")
    for i, (name, type_, of) in enumerate((("id", P.TYPE_INT64, ""), ("price", P.TYPE_MESSAGE, ".Decimal"),
                                           ("at", P.TYPE_MESSAGE, ".google.protobuf.Timestamp"),
                                           ("lines", P.TYPE_MESSAGE, ".Line"),
                                           ("note", P.TYPE_STRING, "")), 1):  # fmt: skip
        many = P.LABEL_REPEATED if name == "lines" else P.LABEL_OPTIONAL
        paid.field.add(name=name, number=i, type=type_, label=many, **({"type_name": of} if of else {}))
    type_ = message_factory.GetMessageClass(protobuf.message(out.SerializeToString(), "Paid"))
    # Confluent's deserializer asks the registry for a compiled schema, which Apicurio has not of such imports.
    assert all(v[:1] == b"\0" and v[5:6] == b"\0" for v in got)
    found = [type_.FromString(v[6:]) for v in got]
    assert [(m.id, int.from_bytes(m.price.value, signed=True), m.price.scale) for m in found] == [
        (1, 100, 2),
        (2, 200, 2),
    ]
    assert (
        found[0].at.ToJsonString() == orders[0].at.ToJsonString() and found[0].lines[0].n == 2 and found[1].note == "n"
    )
    # Its columns come back with their types.
    db.execute("CREATE STREAM again WITH ('topic' = 'pbr_out', 'value.format' = 'protobuf')")
    assert [r[1] for r in rows(db, "DESCRIBE STREAM COLUMNS again")] == [
        "BIGINT", "DECIMAL(9, 2)", "TIMESTAMP_LTZ(6)", "ARRAY<STRUCT<sku VARCHAR, n BIGINT>>", "VARCHAR",
    ]  # fmt: skip
    wrong = refused(db, "CREATE STREAM wrong WITH ('topic' = 'pbr_out') AS SELECT note AS id FROM orders")
    assert wrong.sqlstate == "42804"
    # Single records: the fourth message of its file, and one that is written by the first of the subject's schema.
    shown = [json.loads(r[1]) for r in rows(db, "PRINT ENTITY pbr_in WITH ('from_beginning') LIMIT 2")]
    assert [m["id"] for m in shown] == [1, 2] and shown[1]["note"] == "n"
    db.execute("""INSERT INTO ENTITY pbr_out VALUE('{"id": 3, "note": "by hand"}')""")
    (by_hand,) = taken(kafka, "pbr_out", 3)[2:]
    assert by_hand[:6] == got[0][:6] and type_.FromString(by_hand[6:]) == type_(id=3, note="by hand")
    ddl = rows(db, "GENERATE STREAM DDL made WITH ('topic' = 'pbr_out', 'value.format' = protobuf)")[0][0]
    db.execute(ddl)
    assert rows(db, "DESCRIBE STREAM COLUMNS made") == rows(db, "DESCRIBE STREAM COLUMNS again")


def test_imports_and_evolution(db: psycopg.Connection[Any], kafka: Kafka, registry: str) -> None:
    kafka.topic("pbr_moving", 1)
    register(registry, "part.proto", PART)
    reference = {"name": "part.proto", "subject": "part.proto", "version": 1}
    first = register(registry, "pbr_moving-value", EACH, reference)

    def framed(id_: int, value: bytes, way: bytes = b"\0") -> bytes:
        return b"\0" + id_.to_bytes(4, "big") + way + value

    db.execute("CREATE STREAM moving WITH ('topic' = 'pbr_moving', 'value.format' = 'protobuf', "
               "'starting.position' = 'earliest')")  # fmt: skip
    assert [tuple(r[:2]) for r in rows(db, "DESCRIBE STREAM COLUMNS moving")] == [
        ("n", "INTEGER"), ("old", "VARCHAR"), ("part", "STRUCT<a INTEGER, b ARRAY<INTEGER>>"), ("big", "BIGINT"),
        ("day", "DATE"), ("inners", "MAP<VARCHAR, STRUCT<x INTEGER>>"), ("text", "VARCHAR"), ("flag", "BOOLEAN"),
    ]  # fmt: skip
    db.execute("CREATE MATERIALIZED VIEW moved AS SELECT n, old, part->b[2] AS b, big, text, flag FROM moving")
    send(
        kafka, "pbr_moving", framed(first, b"\x08\x01\x12\x01o\x1a\x06\x08\x01\x12\x02\x02\x03\x22\x02\x08\x09\x40\x01")
    )
    within(90, lambda: rows(db, "SELECT * FROM moved") == [(1, "o", -2, 9, None, True)])
    # Wider, one field fewer, one more; and the second message of the file, by its index.
    wider = EACH.replace("int32 n = 1;", "int64 n = 1; string more = 9;").replace("optional string old = 2;", "")
    second = register(registry, "pbr_moving-value", wider, reference)
    assert second != first
    send(kafka, "pbr_moving", framed(second, b"\x08\x02\x4a\x01m\x3a\x01t"))
    within(90, lambda: rows(db, "SELECT * FROM moved ORDER BY n")[1:] == [(2, None, None, None, "t", None)])
    # A type that does not fit ends the query at the record.
    third = register(registry, "pbr_moving-value", EACH.replace("int32 n = 1;", "string n = 1;"), reference)
    send(kafka, "pbr_moving", framed(third, b"\x0a\x01x"))
    bad_one = 'field "n" must be INTEGER, the descriptor says string'
    within(60, lambda: bad_one in str(rows(db, "LIST QUERIES")))
    (said,) = [str(r) for r in rows(db, "LIST QUERIES") if bad_one in str(r)]
    assert "errored" in said.lower() and "offset 2" in said


GROUPS = """syntax = "proto2"; package moving;
import "part.proto";
/* What is grouped. */
message Grouped {
  optional group Inner = 1 { optional int32 a = 1; repeated Deep deep = 2; }
  oneof either { parts.Part part = 2; group Chosen = 3 { optional bool b = 1; } }
  reserved 4 to 9; reserved "gone";
}
message Deep { optional string s = 1; }
"""


def test_groups_and_fields_that_a_sink_adds(db: psycopg.Connection[Any], kafka: Kafka, registry: str) -> None:
    """By subjects that are records' names. The message of a sink gets fields for columns that it has none for."""
    kafka.topic("pbr_groups", 1)
    register(registry, "part.proto", PART)
    reference = {"name": "part.proto", "subject": "part.proto", "version": 1}
    first = register(registry, "moving.Grouped", GROUPS, reference)
    register(registry, "moving.Wider", GROUPS, reference)
    db.execute("CREATE STREAM groups WITH ('topic' = 'pbr_groups', 'value.format' = 'protobuf', "
               "'value.subject' = 'moving.Grouped', 'starting.position' = 'earliest')")  # fmt: skip
    assert [tuple(r[:2]) for r in rows(db, "DESCRIBE STREAM COLUMNS groups")] == [
        ("inner", "STRUCT<a INTEGER, deep ARRAY<STRUCT<s VARCHAR>>>"), ("part", "STRUCT<a INTEGER, b ARRAY<INTEGER>>"),
        ("chosen", "STRUCT<b BOOLEAN>"),
    ]  # fmt: skip
    sink = (
        "WITH ('topic' = 'pbr_wider', 'value.subject' = 'moving.Wider', 'topic.partitions' = 1, 'topic.replicas' = 1)"
    )
    wrong = refused(db, f'CREATE STREAM wrong {sink} AS SELECT "inner"->a AS gone FROM groups')
    assert wrong.sqlstate == "42804" and "is reserved there" in str(wrong)
    db.execute(
        f'CREATE STREAM wider {sink} AS SELECT "inner", chosen, "inner"->a + 1 AS more, "inner"->deep AS lines '
        "FROM groups"
    )
    newest = httpx2.get(f"{registry}/subjects/moving.Wider/versions/latest").json()
    added = "  message Lines {\n    optional string s = 1;\n  }\n  repeated Lines lines = 11;\n}\n"
    assert newest["schema"] == GROUPS.replace('"gone";\n}\n', f'"gone";\n  optional int32 more = 10;\n{added}')
    assert newest["references"] == [reference]
    # Inner of a, and two of deep; then chosen.
    foreign = b"\x0b\x08\x05\x12\x03\x0a\x01s\x12\0\x0c" + b"\x1b\x08\x01\x1c"
    send(kafka, "pbr_groups", b"\0" + first.to_bytes(4, "big") + b"\0" + foreign)
    (got,) = taken(kafka, "pbr_wider", 1)
    assert got == b"\0" + newest["id"].to_bytes(4, "big") + b"\0" + foreign + b"\x50\x06" + b"\x5a\x03\x0a\x01s\x5a\0"
