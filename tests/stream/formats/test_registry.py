"""Avro from end to end: foreign producers and consumers, columns out of the registry, a registry that is away."""

from __future__ import annotations

import datetime as dt
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import psycopg
import pytest
from confluent_kafka import DeserializingConsumer, SerializingProducer, TopicPartition
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

from tests.false_registry import false_registry
from tests.server import Kafka, Server, within

pytestmark = pytest.mark.stream

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "doc": "What was bought.",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"], "default": None, "doc": "Of the buyer."},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [{"name": "sku", "type": "string"}, {"name": "n", "type": "int"}],
                },
            },
        },
        {"name": "who", "type": ["null", "long", "string"], "default": None},
    ],
}
KEY = {"type": "record", "name": "OrderKey", "fields": [{"name": "id", "type": "long"}]}


def order(id_: int, **more: Any) -> dict[str, Any]:
    at = dt.datetime(2026, 1, 1, 0, 0, id_, tzinfo=dt.UTC)
    return {"id": id_, "state": "NEW", "price": Decimal(id_) / 4, "at": at, "note": None,
            "lines": [{"sku": f"s{id_}", "n": id_}], "who": None} | more  # fmt: skip


# By the topic's name, said: left to themselves they first ask for associations, a path that Apicurio has not, and after
# whose 404 it now and then does not read the connection's next request.
SUBJECTS = {"subject.name.strategy": topic_subject_name_strategy}


class Foreign:
    """Confluent's own serializers."""

    def __init__(self, client: SchemaRegistryClient, kafka: Kafka) -> None:
        self.client, self.bootstrap = client, kafka.bootstrap

    def produce(self, topic: str, schema: Any, rows: list[tuple[Any, Any]], key: Any = KEY) -> None:
        def serializer(s: Any) -> Callable[[Any, Any], Any]:
            made: Callable[[Any, Any], Any] = AvroSerializer(self.client, json.dumps(s), conf=SUBJECTS)
            return made

        settings = {"bootstrap.servers": self.bootstrap, "key.serializer": serializer(key),
                    "value.serializer": serializer(schema)}  # fmt: skip
        producer = SerializingProducer(settings)
        for k, v in rows:
            producer.produce(topic, key=k, value=v)
        assert producer.flush(30) == 0

    def consume(self, topic: str, wanted: int) -> list[tuple[Any, Any]]:
        settings = {"bootstrap.servers": self.bootstrap, "group.id": f"g-{topic}", "isolation.level": "read_committed",
                    "key.deserializer": AvroDeserializer(self.client, conf=SUBJECTS),
                    "value.deserializer": AvroDeserializer(self.client, conf=SUBJECTS)}  # fmt: skip
        consumer = DeserializingConsumer(settings)
        consumer.assign([TopicPartition(topic, 0, 0)])
        out: list[tuple[Any, Any]] = []

        def enough() -> bool:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                out.append((message.key(), message.value()))
            return len(out) >= wanted

        within(60, enough)
        consumer.close()
        return out


class Door(ThreadingHTTPServer):
    """In front of a registry: asks for a password, and can be shut."""

    def __init__(self, target: str) -> None:
        self.target, self.shut, self.asked = target, False, 0
        super().__init__(("127.0.0.1", 0), Knock)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Knock(BaseHTTPRequestHandler):
    server: Door

    def _pass(self) -> None:
        self.server.asked += 1
        body = self.rfile.read(int(self.headers.get("Content-Length", "0"))) or None
        status, answer = 503, b"{}"
        if self.headers.get("Authorization") != "Basic dXNlcjpzM2NyM3Q=":  # user:s3cr3t
            status, answer = 401, b'{"error_code": 40101, "message": "no"}'
        elif not self.server.shut:
            request = urllib.request.Request(self.server.target + self.path, body, method=self.command)
            request.add_header("Content-Type", "application/json")
            try:
                with urllib.request.urlopen(request, timeout=10) as found:
                    status, answer = found.status, found.read()
            except urllib.error.HTTPError as e:
                status, answer = e.code, e.read()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = _pass  # noqa: N815

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def door(registry: str) -> Iterator[Door]:
    d = Door(registry)
    yield d
    d.shutdown()
    d.server_close()


@pytest.fixture(scope="module")
def foreign(registry: str, kafka: Kafka) -> Iterator[Foreign]:
    with SchemaRegistryClient({"url": registry, "timeout": 30}) as client:
        yield Foreign(client, kafka)


@pytest.fixture(scope="module")
def db(server: Server, kafka: Kafka, door: Door) -> Iterator[psycopg.Connection[Any]]:
    """A database, and store ``av`` whose registry has two URLs, the first of them dead."""
    with server.connect() as c:
        c.execute("CREATE DATABASE avro")
    with server.connect("avro") as c:
        c.execute(
            "CREATE SCHEMA_REGISTRY reg WITH ('type' = CONFLUENT, 'uris' = 'http://127.0.0.1:9,"
            f"{door.url}', 'confluent.username' = 'user', 'confluent.password' = 's3cr3t')"
        )
        c.execute(
            f"CREATE STORE av WITH ('type' = KAFKA, 'uris' = '{kafka.bootstrap}', 'tls.disabled' = TRUE, "
            "'schema_registry.name' = reg)"
        )
        c.execute("USE STORE av")
        yield c


def rows(db: psycopg.Connection[Any], sql: str) -> list[Any]:
    return db.execute(sql).fetchall()  # type: ignore[call-overload, no-any-return]


def test_columns_come_from_the_registry(db: psycopg.Connection[Any], foreign: Foreign, kafka: Kafka) -> None:
    kafka.topic("av_orders", 1)
    foreign.produce("av_orders", ORDER, [({"id": i}, order(i, who=who)) for i, who in ((1, None), (2, 7), (3, "ann"))])
    db.execute(
        "CREATE STREAM orders WITH ('topic' = 'av_orders', 'value.format' = 'avro', 'key.format' = 'avro', "
        "'timestamp' = 'at', 'starting.position' = 'earliest')"
    )
    described = [(r[0], r[1]) for r in rows(db, "DESCRIBE STREAM COLUMNS orders")]
    assert described == [
        ("id", "BIGINT"), ("state", "VARCHAR"), ("price", "DECIMAL(9, 2)"), ("at", "TIMESTAMP_LTZ(3)"),
        ("note", "VARCHAR"), ("lines", 'ARRAY<STRUCT<sku VARCHAR, n INTEGER>>'),
        ("who", 'STRUCT<long BIGINT, string VARCHAR>'),
    ]  # fmt: skip
    db.execute(
        "CREATE MATERIALIZED VIEW bought AS SELECT id, state, price, at, lines[1]->sku AS sku, who->long AS n, "
        "who->string AS s, rowkey()->id AS k FROM orders"
    )
    within(60, lambda: rows(db, "SELECT count(*) FROM bought") == [(3,)])
    got = rows(db, "SELECT id, state, price::text, extract(second FROM at)::int, sku, n, s, k FROM bought ORDER BY id")
    assert got == [(1, "NEW", "0.25", 1, "s1", None, None, 1), (2, "NEW", "0.50", 2, "s2", 7, None, 2),
                   (3, "NEW", "0.75", 3, "s3", None, "ann", 3)]  # fmt: skip


def test_a_stream_out_of_a_schema_runs_as_it_stands(
    db: psycopg.Connection[Any], foreign: Foreign, kafka: Kafka
) -> None:
    columns = rows(db, "GENERATE COLUMNS WITH ('topic' = 'av_orders', 'value.format' = 'avro')")
    assert columns[2] == ("price", "DECIMAL(9, 2)", False, None, None, None, None, None)
    ((ddl,),) = rows(db, "GENERATE STREAM DDL again WITH ('topic' = 'av_orders', 'value.format' = 'avro')")
    assert "'key.format' = 'avro', 'key.type' = 'STRUCT<id BIGINT>'" in ddl
    db.execute(ddl.encode())
    described = [r[:2] for r in rows(db, "DESCRIBE STREAM COLUMNS again")]
    assert described == [r[:2] for r in columns]
    got = rows(db, "SELECT id, who->string AS s, rowkey()->id AS k FROM again "
                   "WITH ('starting.position' = 'earliest') LIMIT 3")  # fmt: skip
    assert sorted(got) == [(1, None, 1), (2, None, 2), (3, "ann", 3)]
    with pytest.raises(psycopg.Error) as none:
        db.execute("GENERATE COLUMNS WITH ('topic' = 'av_nothing', 'value.format' = 'avro')")
    assert 'subject "av_nothing-value"' in str(none.value)


def test_single_records_are_written_and_shown(db: psycopg.Connection[Any], foreign: Foreign, kafka: Kafka) -> None:
    kafka.topic("av_single", 1)
    foreign.produce("av_single", ORDER, [({"id": 1}, order(1, who="ann"))])
    insert = "INSERT INTO ENTITY av_single VALUE('{}') WITH ('key' = '{}')"
    given = """{"id": 2, "state": "PAID", "price": 0.5, "at": "2026-01-01T00:00:02Z", "note": "it", "lines": []}"""
    db.execute(insert.format(given, '{"id": 2}').encode())
    assert foreign.consume("av_single", 2)[1] == (
        {"id": 2}, order(2, state="PAID", note="it", lines=[]),
    )  # fmt: skip
    shown = rows(db, "PRINT ENTITY av_single WITH ('from_beginning') LIMIT 2")
    assert [(r[0], json.loads(r[1])["who"], json.loads(r[1])["price"], r[3]) for r in shown] == [
        ('{"id": 1}', "ann", 0.25, "0:0"), ('{"id": 2}', None, 0.5, "0:1"),
    ]  # fmt: skip
    with pytest.raises(psycopg.Error) as wrong:
        db.execute(insert.format(given.replace("0.5", "0.555"), '{"id": 2}').encode())
    assert wrong.value.sqlstate == "22P02"
    assert 'field "price" must be decimal(9, 2), found the number 0.555' in str(wrong.value.diag.message_detail)
    described = rows(db, "DESCRIBE ENTITY av_single")[0]
    assert described[7:9] == ('{"0": {"first": 0, "next": 2}}', 2)
    assert [json.loads(d)["type"] for d in described[9:]] == ["AVRO", "AVRO"]


def test_schemas_evolve_while_a_query_runs(db: psycopg.Connection[Any], foreign: Foreign, kafka: Kafka) -> None:
    def schema(*fields: Any) -> Any:
        return {"type": "record", "name": "m", "fields": list(fields)}

    n, opt = {"name": "n", "type": "int"}, {"name": "more", "type": ["null", "string"], "default": None}
    wide, gone = {"name": "n", "type": "long"}, {"name": "old", "type": "string", "default": "x"}
    kafka.topic("av_moving", 1)
    foreign.produce("av_moving", schema(n, gone), [(None, {"n": 1, "old": "o"})], key="null")
    db.execute(
        "CREATE STREAM moving (n BIGINT, old VARCHAR, more VARCHAR) WITH ('topic' = 'av_moving', "
        "'value.format' = 'avro', 'starting.position' = 'earliest')"
    )
    db.execute("CREATE MATERIALIZED VIEW moved AS SELECT * FROM moving")
    within(60, lambda: rows(db, "SELECT n, old, more FROM moved") == [(1, "o", None)])
    foreign.produce("av_moving", schema(wide, opt), [(None, {"n": 2**40, "more": "m"})], key="null")
    within(60, lambda: rows(db, "SELECT n, old, more FROM moved ORDER BY n") == [(1, "o", None), (2**40, None, "m")])
    # A type that does not fit ends the query at the record, and says which field of it.
    bad = {"type": "record", "name": "m", "fields": [{"name": "n", "type": "string"}]}
    foreign.produce("av_moving", bad, [(None, {"n": "no"})], key="null")
    bad_one = 'field "n" must be BIGINT, the schema says string'
    within(60, lambda: bad_one in str(rows(db, "LIST QUERIES")))
    (said,) = [str(r) for r in rows(db, "LIST QUERIES") if bad_one in str(r)]
    assert "errored" in said.lower() and "offset 2" in said


def test_foreign_consumers_read_what_a_query_writes(
    db: psycopg.Connection[Any], foreign: Foreign, kafka: Kafka, door: Door
) -> None:
    foreign.client.register_schema("av_paid-value", Schema(json.dumps(ORDER), "AVRO"))
    db.execute(
        "CREATE STREAM paid WITH ('topic' = 'av_paid', 'topic.partitions' = 1, 'topic.replicas' = 1, "
        "'key.format' = 'avro', 'key.columns' = 'id') AS SELECT id, 'PAID' AS state, price, at, note, lines "
        "FROM orders WITH ('starting.position' = 'earliest')"
    )
    got = foreign.consume("av_paid", 3)
    assert sorted(k["id"] for k, _ in got) == [1, 2, 3]
    first = next(v for k, v in got if k["id"] == 1)
    wanted = order(1, state="PAID")
    del wanted["who"]
    assert first == wanted
    written = json.loads(foreign.client.get_latest_version("av_paid-value").schema.schema_str)
    kept = {f["name"]: f for f in written["fields"]}
    full = ".".join(filter(None, (written.get("namespace"), written["name"])))
    assert (full, written["doc"], kept["note"]["doc"]) == ("shop.Order", ORDER["doc"], "Of the buyer.")
    assert (kept["id"]["type"], kept["state"]["type"]["symbols"]) == ("long", ["NEW", "PAID"])


def test_what_the_registry_refuses_is_said(db: psycopg.Connection[Any], foreign: Foreign) -> None:
    foreign.client.set_compatibility("av_strict-value", level="BACKWARD")
    columns = (
        "CREATE STREAM strict WITH ('topic' = 'av_strict', 'topic.partitions' = 1, 'topic.replicas' = 1) "
        "AS SELECT {} FROM orders"
    )
    db.execute(columns.format("id, state"))
    query = rows(db, "LIST QUERIES")[-1][0]
    db.execute(f"TERMINATE QUERY {query}")
    db.execute("DROP STREAM strict")
    with pytest.raises(psycopg.Error) as refused:
        db.execute(columns.format("state AS id"))
    assert refused.value.sqlstate == "42804" and "av_strict-value" in str(refused.value)


LATE = {
    "avro": ('{"type": "record", "name": "late", "fields": [{"name": "n", "type": "long"}]}',
             '{"type": "record", "name": "late", "fields": [{"name": "n", "type": "long"}, '
             '{"name": "more", "type": ["null", "string"], "default": null}]}'),
    "protobuf": ('syntax = "proto3"; message Late { int64 n = 1; }',
                 'syntax = "proto3"; message Late { int64 n = 1; string more = 2; }'),
}  # fmt: skip
"""Two versions of a schema with a number."""


def late(format_: str, id_: int, n: int) -> bytes:
    """A record of either version: the number, of less than 64, and nothing more."""
    head = b"\0" + id_.to_bytes(4, "big")
    return head + (bytes([2 * n, 0]) if format_ == "avro" else bytes([0, 8, n, 0x12, 0]))


@pytest.mark.parametrize("format_", LATE)
def test_a_registry_that_is_away_loses_nothing(
    format_: str, db: psycopg.Connection[Any], foreign: Foreign, kafka: Kafka, door: Door
) -> None:
    """At the start of a query, and again when records of a new schema come among those of one that it knows."""
    topic, query = f"late_{format_}", f"q_{format_}"
    kafka.topic(topic, 1)
    db.execute(
        f"CREATE STREAM {topic} (n BIGINT) WITH ('topic' = '{topic}', 'value.format' = '{format_}', "
        "'starting.position' = 'earliest')".encode()
    )
    ids = [foreign.client.register_schema(f"{topic}-value", Schema(text, format_.upper())) for text in LATE[format_]]
    # Of Avro the first version has one field only.
    first = [late(format_, ids[0], n)[: 6 if format_ == "avro" else 8] for n in range(50)]
    second = [late(format_, ids[1], n) for n in range(50)]
    view = f"CREATE MATERIALIZED VIEW seen_{topic} AS SELECT n FROM {topic} QUERY WITH ('query.name' = {query})"

    def away() -> None:
        within(60, lambda: "does not answer" in waits() or "answers with status 503" in waits())

    def waits() -> str:
        return str([e[4] for e in rows(db, f"DESCRIBE QUERY EVENTS {query}") if e[1] == "waiting"][-1:])

    def total() -> Any:
        return rows(db, f"SELECT count(*), sum(n) FROM seen_{topic}")

    door.shut = True
    with pytest.raises(psycopg.Error) as refused:
        db.execute(f"CREATE STREAM nothing WITH ('topic' = '{topic}', 'value.format' = '{format_}')".encode())
    assert refused.value.sqlstate == "58000" and "s3cr3t" not in str(refused.value)
    db.execute(view.encode())
    kafka.produce(topic, [(None, v) for v in first])
    away()
    door.shut = False
    within(90, lambda: total() == [(50, 1225)])
    door.shut = True
    seen = len(rows(db, f"DESCRIBE QUERY EVENTS {query}"))
    kafka.produce(topic, [(None, v) for pair in zip(first, second, strict=True) for v in pair])
    within(60, lambda: len(rows(db, f"DESCRIBE QUERY EVENTS {query}")) > seen)
    away()
    assert total() == [(50, 1225)] and "s3cr3t" not in waits()
    door.shut = False
    within(90, lambda: total() == [(150, 3 * 1225)])


def test_wrong_credentials_are_named(db: psycopg.Connection[Any], door: Door, kafka: Kafka) -> None:
    db.execute("UPDATE SCHEMA_REGISTRY reg WITH ('confluent.password' = 'wr0ng')")
    with pytest.raises(psycopg.Error) as refused:
        db.execute("CREATE STREAM nothing WITH ('topic' = 'av_orders', 'value.format' = 'avro')")
    assert "refuses the credentials" in str(refused.value) and "wr0ng" not in str(refused.value)
    db.execute("UPDATE SCHEMA_REGISTRY reg WITH ('confluent.password' = 's3cr3t')")


def test_a_registry_that_is_silent_holds_no_statement(db: psycopg.Connection[Any], kafka: Kafka) -> None:
    with false_registry() as r:
        r.manner = "silent"
        db.execute(f"CREATE SCHEMA_REGISTRY quiet WITH ('type' = CONFLUENT, 'uris' = '{r.url}')")
        db.execute(
            f"CREATE STORE hushed WITH ('type' = KAFKA, 'uris' = '{kafka.bootstrap}', 'tls.disabled' = TRUE, "
            "'schema_registry.name' = quiet)"
        )
        asks = "CREATE STREAM nothing WITH ('store' = hushed, 'topic' = 'av_orders', 'value.format' = 'avro')"
        db.execute("SET statement_timeout = '300ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            db.execute(asks)
        db.execute("RESET statement_timeout")
        before = r.asked
        cancel = threading.Thread(target=lambda: (within(20, lambda: r.asked > before), db.cancel_safe()))
        cancel.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            db.execute(asks)
        cancel.join()


def test_a_store_without_a_registry(db: psycopg.Connection[Any], kafka: Kafka) -> None:
    db.execute(f"CREATE STORE bare WITH ('type' = KAFKA, 'uris' = '{kafka.bootstrap}', 'tls.disabled' = TRUE)")
    with pytest.raises(psycopg.Error) as missing:
        db.execute("CREATE STREAM nothing WITH ('store' = bare, 'topic' = 'av_orders', 'value.format' = 'avro')")
    assert missing.value.sqlstate == "55000"
