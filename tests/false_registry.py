"""A schema registry that does what a broken one does: it answers for ever, slowly, not at all, or with a web page."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.pg.door.certificates import Authority

LONG = {"type": "record", "name": "n", "fields": [{"name": "n", "type": "long"}]}


class FalseRegistry(ThreadingHTTPServer):
    """``schemas`` by path; ``manner``: answers, endless, slow, silent, page or refuses. ``asked`` counts requests."""

    daemon_threads = True

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.schemas: dict[str, Any] = {
            "/schemas/ids/1": {"schema": json.dumps(LONG)},
            "/subjects/t-value/versions/latest": {"id": 1, "version": 1, "schema": json.dumps(LONG)},
        }
        self.manner, self.asked, self.over = "answers", 0, threading.Event()
        self.headers: list[str | None] = []
        super().__init__(("127.0.0.1", 0), _Answer)
        self.scheme = "http"
        if context is not None:
            self.scheme, self.socket = "https", secured(self.socket, context)

    def handle_error(self, *_: Any) -> None:
        """A client that leaves in the middle is what the tests are about."""

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_address[1]}"


class _Answer(BaseHTTPRequestHandler):
    server: FalseRegistry

    def do_GET(self) -> None:
        s = self.server
        s.asked += 1
        s.headers.append(self.headers.get("Authorization"))
        found = s.schemas.get(self.path)
        match s.manner:
            case "silent":
                s.over.wait(30)
            case "endless" | "slow":
                self.send_response(200)
                self.end_headers()
                part = b" " * 65536 if s.manner == "endless" else b" "
                while not s.over.wait(0 if s.manner == "endless" else 0.05):
                    self.wfile.write(part)
            case "page":
                self._say(200, b"<html>a page</html>")
            case "refuses":
                self._say(401, b"{}")
            case _ if found is None:
                self._say(404, b'{"error_code": 40403, "message": "not found"}')
            case _:
                self._say(200, json.dumps(found).encode())

    def _say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def secured(listener: socket.socket, context: ssl.SSLContext) -> ssl.SSLSocket:
    """Handshakes are left to the threads that answer: a connection whose handshake fails is closed there."""
    return context.wrap_socket(listener, server_side=True, do_handshake_on_connect=False)


@contextlib.contextmanager
def false_registry(context: ssl.SSLContext | None = None) -> Iterator[FalseRegistry]:
    server = FalseRegistry(context)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()


def tls(authority: Authority, mutual: bool = False, hosts: tuple[str, ...] = ("127.0.0.1",)) -> ssl.SSLContext:
    """A server's side: a certificate for ``hosts``; ``mutual``: clients need one of the same authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("registry", hosts=hosts))
    if mutual:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.root)
    return context


def client(authority: Authority, name: str = "worker") -> dict[str, str]:
    """A client's options for mutual TLS."""
    certificate, key = (Path(p).read_text() for p in authority.issue(name))
    return {"tls.ca_cert_file": authority.root.read_text(), "tls.client.cert_file": certificate,
            "tls.client.key_file": key}  # fmt: skip
