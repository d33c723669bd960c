"""Spans: what asks for them, what they say, and what they keep to themselves."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from structlog.testing import capture_logs

from pgstream import traces
from pgstream.engine.channel import Progress
from pgstream.errors import ConfigurationError, UndefinedStore
from pgstream.server.spans import parent
from pgstream.spark import events
from pgstream.sql.shown import LONGEST, shown
from pgstream.traces import otel

AT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
CLIENT = f"00-{'a' * 32}-{'b' * 16}-01"


def one(sent: InMemorySpanExporter, name: str) -> ReadableSpan:
    [found] = [s for s in sent.get_finished_spans() if s.name == name]
    return found


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "x"}, False),
        (AT, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, True),
        (AT | {"OTEL_SDK_DISABLED": "true"}, False),
        (AT | {"OTEL_TRACES_EXPORTER": "none"}, False),
        (AT | {"OTEL_TRACES_EXPORTER": "otlp"}, True),
        (AT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, True),
        (AT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}, True),
    ],
)
def test_the_environment_asks_for_traces(environ: dict[str, str], wanted: bool) -> None:
    assert traces.is_wanted(environ) is wanted


@pytest.mark.parametrize("more", [{"OTEL_TRACES_EXPORTER": "console"}, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}])
def test_what_is_not_there_is_refused(more: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError):
        traces.is_wanted(AT | more)


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_without_the_extra_the_start_fails_and_says_what_to_install() -> None:
    said = run(
        "import os, sys; sys.modules['opentelemetry'] = None\n"
        "from pgstream import errors, traces\n"
        "traces.configure('server')\n"  # off: nothing is missed
        f"os.environ |= {AT}\n"
        "try: traces.configure('server')\n"
        "except errors.ConfigurationError as e: print(e.sqlstate, e.text, '|', e.hint)"
    )
    assert said.startswith("F0000 traces need the libraries of OpenTelemetry")
    assert 'pip install "pgstream[otel]"' in said


def test_off_nothing_is_imported() -> None:
    code = "import sys, pgstream.server.main, pgstream.server.extended, pgstream.server.worker\n"
    assert run(code + "print([m for m in sys.modules if m.startswith('opentelemetry')])") == "[]"
    with traces.entry("a", {}), traces.span("b"):
        assert not traces.is_recorded() and traces.carried() == ""


def test_a_collector_that_is_away_is_told_of_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    times = (0.0, 1.0, 59.0, 61.0, 62.0)
    now = iter(times)
    monkeypatch.setattr(otel.time, "monotonic", lambda: next(now))
    lines, record = otel._LogLines(), logging.LogRecord("opentelemetry", logging.ERROR, "", 1, "away", (), None)
    with capture_logs() as said:
        for _ in times:
            lines.emit(record)
    assert [line["said"] for line in said] == ["away", "away"]


def test_steps_lie_in_their_statement_and_other_processes_join(sent: InMemorySpanExporter) -> None:
    with traces.entry("CREATE STORE", {"db.operation.name": "CREATE STORE"}, CLIENT):
        with traces.span("plan"):
            carried = traces.carried()
        traces.note({"pgstream.query.id": "q"})
    with traces.joined("analyze", {}, carried):
        pass
    with traces.joined("nobody asked", {}, ""):
        pass
    statement, plan, there = (one(sent, name) for name in ("CREATE STORE", "plan", "analyze"))
    assert statement.parent is not None and plan.parent is not None and there.parent is not None
    assert statement.parent.is_remote and f"{statement.parent.span_id:x}" == "b" * 16
    assert plan.parent.span_id == statement.context.span_id and there.parent.span_id == plan.context.span_id
    assert {f"{s.context.trace_id:x}" for s in (statement, plan, there)} == {"a" * 32}
    assert statement.attributes == {"db.operation.name": "CREATE STORE", "pgstream.query.id": "q"}
    assert len(sent.get_finished_spans()) == 3
    assert statement.resource.attributes["service.name"] == "pgstream"


def test_a_client_that_does_not_sample_is_not_traced(sent: InMemorySpanExporter) -> None:
    with traces.entry("LIST STORES", {}, CLIENT[:-1] + "0"), traces.span("plan"):
        assert not traces.is_recorded() and traces.carried() == ""
    assert not sent.get_finished_spans()


def test_a_failure_is_told_by_its_sqlstate_alone(sent: InMemorySpanExporter) -> None:
    with pytest.raises(UndefinedStore), traces.entry("DROP STORE", {}), traces.span("plan"):
        raise UndefinedStore(name="hunter2")
    with pytest.raises(ValueError), traces.entry("bug", {}):
        raise ValueError("hunter2")
    with pytest.raises(asyncio.CancelledError), traces.entry("canceled", {}):
        raise asyncio.CancelledError
    for name, sqlstate in (("DROP STORE", UndefinedStore.sqlstate), ("plan", UndefinedStore.sqlstate),
                           ("bug", "ValueError"), ("canceled", "57014")):  # fmt: skip
        span = one(sent, name)
        assert span.status.status_code is StatusCode.ERROR and span.status.description is None
        assert span.attributes is not None and span.attributes["error.type"] == sqlstate
    assert "hunter2" not in "".join(s.to_json() for s in sent.get_finished_spans())


async def test_what_goes_on_after_a_statement_is_not_its_own(sent: InMemorySpanExporter) -> None:
    ended = asyncio.Event()

    async def later() -> str:
        await ended.wait()
        with traces.span("much later"):
            return traces.carried()

    with traces.entry("CREATE STREAM", {}):
        task = asyncio.create_task(later())
        await asyncio.sleep(0)
    ended.set()
    assert await task == "" and [s.name for s in sent.get_finished_spans()] == ["CREATE STREAM"]


def test_a_batch_is_a_trace_of_its_own_that_goes_back_to_its_query(sent: InMemorySpanExporter) -> None:
    batch = Progress("q", 7, 20, 3, 1.0, 250, 3, 900, 0, None, {}, durations={"addBatch": 200},
                     began="2026-01-02T03:04:05.500Z")  # fmt: skip
    events.trace(batch, CLIENT)
    events.trace(batch, "")
    linked, alone = sent.get_finished_spans()
    assert linked.parent is None and f"{linked.links[0].context.trace_id:x}" == "a" * 32 and not alone.links
    assert linked.start_time is not None and linked.end_time is not None
    assert linked.end_time - linked.start_time == 250_000_000 and linked.start_time == 1767323045_500_000_000
    assert linked.attributes is not None and linked.attributes["pgstream.batch.addBatch_ms"] == 200
    assert linked.attributes["pgstream.batch.rows_in"] == 20


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"LIST STORES /*traceparent='{CLIENT}'*/", CLIENT),
        (f"/*action='x',traceparent='{CLIENT}',b='c'*/ LIST STORES", CLIENT),
        ("LIST STORES /* traceparent */", ""),
        (f"LIST STORES -- traceparent='{CLIENT}'", ""),
        (f"LIST STORES /* no */ traceparent='{CLIENT}'", ""),
        (f"LIST STORES /*traceparent='{CLIENT}'", ""),
    ],
)
def test_a_client_names_its_span_in_a_comment(text: str, found: str) -> None:
    assert parent(text) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("CREATE STORE k WITH ('type' = KAFKA, 'kafka.sasl.password' = 'hunter2') -- hunter2",
         "CREATE STORE k WITH (? = ?, ? = ?)"),
        # Values need no quotes, or take others.
        ("CREATE STORE k WITH ('kafka.sasl.password' = hunter2, 'a' = \"hunter2\", 'n' = -5, 'f')",
         "CREATE STORE k WITH (? = ?, ? = ?, ? = ?, ?)"),
        ("ALTER USER \"o'b\" PASSWORD 'hun''ter2';", "ALTER USER \"o'b\" PASSWORD ?;"),
        ("SELECT a::INT,  b->>'k', 1.5e3, $1\nFROM s /* hunter2 */ WHERE c = 'x' LIMIT 5",
         "SELECT a::INT, b->>?, ?, $1 FROM s WHERE c = ? LIMIT ?"),
        ("RESTART QUERY 0b0c1234-1234-4321-8888-0123456789ab", "RESTART QUERY ?"),
        # Not read as PostgreSQL does, or not to the end: not shown.
        (r"ALTER USER a PASSWORD E'hun\'ter2'", None),
        ("ALTER USER a PASSWORD $$hunter2$$", None),
        ("ALTER USER a PASSWORD 'hunter2", None),
        ("LIST STORES" + " " * LONGEST, None),
    ],
)  # fmt: skip
def test_a_text_is_shown_without_its_values(text: str, said: str | None) -> None:
    assert shown(text) == said
