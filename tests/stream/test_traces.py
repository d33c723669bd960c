"""Traces as a collector of OpenTelemetry gets them: one from a client's statement to Spark, and no secret in any."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pgstream import traces
from tests.collector import Collector, Seen, collecting
from tests.server import PASSWORD, Kafka, Server, within

SECRETS = ("hunter2", "row-of-a-stream", PASSWORD)
SETUP = """
CREATE STORE traced_store WITH ('type' = KAFKA, 'uris' = '{bootstrap}', 'tls.disabled' = TRUE,
  'kafka.sasl.hash_function' = NONE, 'kafka.sasl.username' = 'u', 'kafka.sasl.password' = 'hunter2');
CREATE STREAM traced_in (id BIGINT, word VARCHAR) WITH ('store' = traced_store, 'topic' = '{topic}',
  'value.format' = 'json', 'starting.position' = 'earliest')
"""
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
VIEW = f"""
CREATE MATERIALIZED VIEW traced_view AS SELECT id, count(*) AS n FROM traced_in WHERE word <> 'hunter2' GROUP BY id
/*application='a%20test',traceparent='00-{TRACE}-{SPAN}-01'*/"""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


def path(span: Seen, spans: list[Seen]) -> list[str]:
    """The names from a span up to the one that its trace begins with here."""
    by_id = {s.id: s for s in spans}
    names = [span.name]
    while span.parent in by_id:
        span = by_id[span.parent]
        names.append(span.name)
    return names


@pytest.mark.parametrize("workers", ["1", "2"])
def test_one_trace_from_the_statement_to_spark(
    workspace: Path, kafka: Kafka, collector: Collector, workers: str
) -> None:
    topic = f"traced_in_{workers}"
    kafka.topic(topic, 1)
    kafka.produce(topic, [(None, json.dumps({"id": n % 3, "word": "row-of-a-stream"})) for n in range(20)])
    environ = collector.environ | {"OTEL_EXPORTER_OTLP_HEADERS": "x-key=abc", "OTEL_SERVICE_NAME": "ours"}
    server = Server(workspace / f"traced{workers}", environ=environ, workers=workers)
    try:
        with server.connect() as db:
            for text in SETUP.format(bootstrap=kafka.bootstrap, topic=topic).split(";"):
                db.execute(text)
            db.execute(VIEW)
            assert db.execute("SELECT id FROM traced_in LIMIT 1").fetchone()
            _fail(db)
            _extended(db)
            db.execute("ALTER USER admin PASSWORD 'hunter2'")
            within(60, lambda: [b for b in collector.named("batch", "pgstream.batch.rows_in", 20) if TRACE in b.links])
    finally:
        assert server.stop() == 0
    assert all(h["x-key"] == "abc" for h in collector.headers) and {s.service for s in collector.spans} == {"ours"}
    _is_one_trace(collector, workers)
    _fails_are_told(collector)
    [store] = collector.named("CREATE STORE")
    assert store.parent == "" and store.kind == 2 and not store.failed
    assert store.attributes["db.namespace"] == "main.public" and store.attributes["db.system.name"] == "postgresql"
    assert store.attributes["db.query.text"].startswith("CREATE STORE traced_store WITH (? = ?, ")
    for secret in SECRETS:
        assert not [body for body in collector.bodies if secret.encode() in body]


def _is_one_trace(collector: Collector, workers: str) -> None:
    spans = [s for s in collector.spans if s.trace == TRACE]
    [statement] = [s for s in spans if s.parent == SPAN]
    assert statement.name == statement.attributes["db.operation.name"] == "CREATE MATERIALIZED VIEW"
    assert statement.process == ("server" if workers == "1" else "listener")
    over = ["CREATE MATERIALIZED VIEW"] if workers == "1" else ["in the server process", "CREATE MATERIALIZED VIEW"]
    paths = {(s.process, *path(s, spans)) for s in spans}
    assert {
        ("worker", "begin stream", "start stream", "start query", *over),
        ("worker", "compile plan", "start stream", "start query", *over),
        ("worker", "analyze", "analyze", *over),
        ("server", "change the catalogue", *over),
        ("server", "plan", *over),
    } <= paths
    [query] = {s.attributes[traces.QUERY_ID] for s in spans if traces.QUERY_ID in s.attributes}
    batches = collector.named("batch", traces.QUERY_ID, query)
    assert batches and all(b.links == [TRACE] and b.process == "worker" for b in batches)


def _fail(db: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.UndefinedColumn):
        db.execute("SELECT nope FROM traced_in WHERE word = 'hunter2'")
    for binary in (False, True):
        with pytest.raises(psycopg.errors.SyntaxError):
            db.execute("LIST STORES 'hunter2'", binary=binary)
    with pytest.raises(psycopg.errors.DivisionByZero):
        db.execute("SELECT 1 / 0 AS hunter2")


def _fails_are_told(collector: Collector) -> None:
    syntax = collector.named("LIST STORES", "error.type", "42601")
    assert len(syntax) == 2 and all(s.failed and "db.query.text" not in s.attributes for s in syntax)
    [column] = collector.named("SELECT", "error.type", "42703")
    assert column.failed and column.attributes["db.query.text"].endswith("WHERE word = ?")
    assert not [s for s in collector.spans if s.attributes.get("error.type") == "22012"]  # PostgreSQL's own


def _extended(db: psycopg.Connection) -> None:
    assert db.execute("LIST STORES", binary=True).fetchall()
    assert db.execute("SELECT word FROM traced_in WHERE id = %s LIMIT 1", (1,)).fetchone()


def test_a_collector_that_is_away_is_only_logged(workspace: Path, collector: Collector) -> None:
    nobody = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    server = Server(workspace / "untraced", environ=collector.environ | nobody, log_format="json")
    try:
        with server.connect() as db:
            assert db.execute("LIST STORES").fetchall() == []
        within(30, lambda: '"event": "traces"' in server.log.read_text())
    finally:
        assert server.stop() == 0
    lines = [line for line in server.log.read_text().splitlines() if not line.startswith("WARNING: Using incubator")]
    assert all("timestamp" in json.loads(line) for line in lines)
