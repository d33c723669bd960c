"""Fixtures of the cheapest tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pgstream import traces
from pgstream.traces.otel import Tracing


@pytest.fixture
def sent() -> Iterator[InMemorySpanExporter]:
    """The spans that end while a test runs."""
    exporter = InMemorySpanExporter()
    traces.use(Tracing("server", SimpleSpanProcessor(exporter)))
    yield exporter
    traces.use(None)
