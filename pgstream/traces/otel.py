"""Spans by OpenTelemetry's SDK, sent as OTLP over HTTP.

Owns: the SDK's provider, which is not made the process's own (libraries would add spans with texts of theirs), what a
failed span says, the SDK's log lines among ours. The SDK reads the other variables ``OTEL_…`` itself.
Must not know: what is traced. The only module that imports OpenTelemetry. Start reading at ``Tracing``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from contextlib import AbstractContextManager
from types import TracebackType

import structlog
from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import pgstream
from pgstream.errors import Canceled, PgStreamError
from pgstream.traces import NOTHING, Attributes

CLOSE_S = 1.0
"""How long a process that ends waits for a collector."""
QUIET_S = 60.0
"""How often the log says at most that traces do not arrive."""
_W3C = TraceContextTextMapPropagator()
_ROOT = Context()
log = structlog.get_logger(__name__)


class _LogLines(logging.Handler):
    """What OpenTelemetry's libraries log, as lines of ours: one in ``QUIET_S``, since a collector that is away is tried
    again and again.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last = -QUIET_S

    def emit(self, record: logging.LogRecord) -> None:
        if (now := time.monotonic()) - self._last >= QUIET_S:
            self._last = now
            log.warning("traces", said=record.getMessage())


class _Entered:
    """A span that is the current one while its context lasts."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def __enter__(self) -> Span:
        self._token = context.attach(trace.set_span_in_context(self._span))
        return self._span

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        context.detach(self._token)
        if isinstance(error, PgStreamError):
            _fail(self._span, error.sqlstate)
        elif isinstance(error, asyncio.CancelledError):
            _fail(self._span, Canceled.sqlstate)
        elif error is not None:
            self._span.set_attribute("error.type", type(error).__name__)
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()


class Tracing:
    """Makes spans and sends them. ``processor`` is replaced by tests."""

    def __init__(self, process: str, processor: SpanProcessor | None = None) -> None:
        said = logging.getLogger("opentelemetry")
        if not said.handlers:
            said.addHandler(_LogLines())
            said.propagate = False
        self._provider = TracerProvider(resource=_resource(process), shutdown_on_exit=False)
        self._provider.add_span_processor(processor or BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("pgstream", pgstream.__version__)

    def close(self) -> None:
        """Send what waits. A collector that does not answer keeps nobody."""
        closing = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        closing.start()
        closing.join(CLOSE_S)

    def entry(self, name: str, attributes: Attributes, parent: str) -> AbstractContextManager[object]:
        given = _W3C.extract({"traceparent": parent}, _ROOT) if parent else _ROOT
        return _Entered(self._tracer.start_span(name, given, SpanKind.SERVER, dict(attributes)))

    def span(self, name: str, attributes: Attributes) -> AbstractContextManager[object]:
        if not self.is_recorded():
            return NOTHING
        return _Entered(self._tracer.start_span(name, attributes=dict(attributes)))

    def past(self, name: str, began_s: float, duration_ms: int, attributes: Attributes, link: str) -> None:
        known = trace.get_current_span(_W3C.extract({"traceparent": link}, _ROOT)).get_span_context()
        links = [Link(known)] if known.is_valid else []
        began = int(began_s * 1e9)
        made = self._tracer.start_span(name, _ROOT, attributes=dict(attributes), links=links, start_time=began)
        made.end(began + duration_ms * 1_000_000)

    def is_recorded(self) -> bool:
        return trace.get_current_span().is_recording()

    def note(self, attributes: Attributes) -> None:
        trace.get_current_span().set_attributes(dict(attributes))

    def fail(self, sqlstate: str) -> None:
        _fail(trace.get_current_span(), sqlstate)

    def carried(self) -> str:
        if not self.is_recorded():
            return ""
        carrier: dict[str, str] = {}
        _W3C.inject(carrier)
        return carrier["traceparent"]


def _resource(process: str) -> Resource:
    """The environment's words win over ours."""
    found = Resource.create({"process.pid": os.getpid(), "pgstream.process": process})
    ours = {SERVICE_VERSION: pgstream.__version__}
    if str(found.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        return found.merge(Resource({**ours, SERVICE_NAME: "pgstream"}))
    return Resource(ours).merge(found)


def _fail(span: Span, sqlstate: str) -> None:
    span.set_attributes({"error.type": sqlstate, "db.response.status_code": sqlstate})
    span.set_status(Status(StatusCode.ERROR))
