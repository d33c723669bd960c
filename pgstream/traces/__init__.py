"""Traces: what a statement or a query took, as spans for OpenTelemetry, where the environment asks for them.

Owns: whether there are any (``OTEL_EXPORTER_OTLP_ENDPOINT``), and what the rest of the program says of spans. Off,
which is the default, nothing of OpenTelemetry is imported and every function here returns at once.
Must not know: statements, queries, OpenTelemetry itself (``otel``). An attribute never holds a value, a message or an
option: names, kinds, numbers, SQLSTATEs. Start reading at ``configure``, then ``span``.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from pgstream.errors import ConfigurationError

if TYPE_CHECKING:
    from pgstream.traces.otel import Tracing

Attributes = Mapping[str, str | int | float]
ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PRIVATE = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS")
"""Where a key of the collector's stands: for processes of ours alone."""
NOTHING: AbstractContextManager[None] = contextlib.nullcontext()
QUERY_ID = "pgstream.query.id"
_tracing: Tracing | None = None


def is_wanted(environ: Mapping[str, str]) -> bool:
    """Whether the environment asks for traces. Errors: ConfigurationError for what is not there."""
    if not any(environ.get(name) for name in ENDPOINTS) or environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = environ.get("OTEL_TRACES_EXPORTER") or "otlp"
    if exporter == "none":
        return False
    if exporter != "otlp":
        raise ConfigurationError(what=f'OTEL_TRACES_EXPORTER must be otlp or none, not "{exporter}"')
    protocol = next((environ[name] for name in PROTOCOLS if environ.get(name)), "http/protobuf")
    if protocol != "http/protobuf":
        raise ConfigurationError(
            what=f'the protocol of OTLP must be http/protobuf, not "{protocol}"',
            hint="Collectors take it on port 4318; OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf says so.",
        )
    return True


def configure(process: str) -> None:
    """Send traces of this process, if the environment asks for it. ``process``: server, listener or worker.

    Errors: ConfigurationError where it asks and the libraries are missing.
    """
    if (tracing := load()) is not None:
        use(tracing(process))


def load() -> type[Tracing] | None:
    """What sends traces; None: the environment does not ask for any. Errors: as of ``configure``."""
    if not is_wanted(os.environ):
        return None
    try:
        from pgstream.traces.otel import Tracing
    except ModuleNotFoundError as e:
        if not (e.name or "").startswith("opentelemetry"):
            raise
        raise ConfigurationError(
            what="traces need the libraries of OpenTelemetry, which are not installed",
            detail="OTEL_EXPORTER_OTLP_ENDPOINT asks for traces.",
            hint='pip install "pgstream[otel]", or OTEL_SDK_DISABLED=true.',
        ) from None
    return Tracing


def use(tracing: Tracing | None) -> None:
    """Send traces by this; None: no more."""
    global _tracing  # noqa: PLW0603  # of the process
    _tracing = tracing


def close() -> None:
    """Send what waits, for a second at most."""
    if _tracing is not None:
        _tracing.close()
        use(None)


def is_on() -> bool:
    """Whether spans go anywhere."""
    return _tracing is not None


def entry(name: str, attributes: Attributes, parent: str = "") -> AbstractContextManager[object]:
    """A span of what somebody asks of this process: in the trace of ``parent`` (a W3C traceparent), or in a new one.

    An exception that leaves it marks it as failed, by its SQLSTATE or class; its message is not kept.
    """
    return NOTHING if _tracing is None else _tracing.entry(name, attributes, parent)


def joined(name: str, attributes: Attributes, parent: str) -> AbstractContextManager[object]:
    """The same, for a part of a trace that another process began: nothing without one."""
    return NOTHING if _tracing is None or not parent else _tracing.entry(name, attributes, parent)


def span(name: str, attributes: Attributes | None = None) -> AbstractContextManager[object]:
    """A step inside the current span; nothing where there is none, or it has ended."""
    return NOTHING if _tracing is None else _tracing.span(name, attributes or {})


def past(name: str, began_s: float, duration_ms: int, attributes: Attributes, link: str) -> None:
    """A span, in a trace of its own, of what is over; ``link``: the traceparent of what it goes back to, if known."""
    if _tracing is not None:
        _tracing.past(name, began_s, duration_ms, attributes, link)


def is_recorded() -> bool:
    """Whether there is a current span, and attributes of it are kept."""
    return _tracing is not None and _tracing.is_recorded()


def note(attributes: Attributes) -> None:
    """Attributes of the current span."""
    if _tracing is not None:
        _tracing.note(attributes)


def fail(sqlstate: str) -> None:
    """The current span has failed, though no exception leaves it."""
    if _tracing is not None:
        _tracing.fail(sqlstate)


def carried() -> str:
    """The current span as a W3C traceparent, for another process; empty where there is none that is kept."""
    return "" if _tracing is None else _tracing.carried()
