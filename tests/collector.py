"""A collector of OpenTelemetry in the test's own process: an HTTP port that keeps the spans it is sent."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Seen:
    """A span as it was sent; ids in hexadecimal, ``links`` the traces that it goes back to."""

    name: str
    trace: str
    id: str
    parent: str
    process: str
    service: str
    kind: int
    failed: bool
    attributes: dict[str, Any]
    links: list[str]


@dataclass
class Collector:
    """``bodies``: what came, as it came."""

    port: int = 0
    spans: list[Seen] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    @property
    def environ(self) -> dict[str, str]:
        """What makes a server send its spans here, soon."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.port}", "OTEL_BSP_SCHEDULE_DELAY": "100"}

    def named(self, name: str, attribute: str = "", value: Any = None) -> list[Seen]:
        """Those of a name, and of this value of an attribute where one is given."""
        return [s for s in self.spans if s.name == name and (not attribute or s.attributes.get(attribute) == value)]

    def take(self, body: bytes) -> None:
        self.bodies.append(body)
        for of in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = _attributes(of.resource.attributes)
            self.spans += [
                Seen(
                    span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(),
                    resource["pgstream.process"], resource["service.name"], span.kind, span.status.code == 2,
                    _attributes(span.attributes), [link.trace_id.hex() for link in span.links],
                )
                for scope in of.scope_spans
                for span in scope.spans
            ]  # fmt: skip


def _attributes(pairs: Any) -> dict[str, Any]:
    return {p.key: getattr(p.value, p.value.WhichOneof("value")) for p in pairs}


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.path == "/v1/traces", self.path
            collector.headers.append({k.lower(): v for k, v in self.headers.items()})
            collector.take(body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        collector.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
