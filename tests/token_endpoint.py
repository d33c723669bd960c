"""An endpoint that gives tokens of OAUTHBEARER, or is another thing, says too much, or never ends."""

from __future__ import annotations

import base64
import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any
from urllib.parse import parse_qs

from pgstream.stores.kafka.tokens import Bearer, Tokens
from tests.false_registry import secured, tls
from tests.pg.door.certificates import Authority

LATER = int(time.time()) + 100_000
"""Seconds, behind the end of any run of tests."""
SECRET = "s3cret"


def jwt(**claims: Any) -> str:
    parts = (base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in ({"alg": "none"}, claims))
    return f"{'.'.join(parts)}.x"


class Endpoint(ThreadingHTTPServer):
    """Answers with ``status`` and ``body``; ``manner``: answers, endless, slow, silent or another protocol."""

    daemon_threads = True
    status, body, manner = 200, b"{}", "answers"

    def __init__(self, authority: Authority | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.over, self.told, self.who, self.scheme = Event(), {}, "", "http"  # type: ignore[var-annotated]
        if authority is not None:
            self.scheme, self.socket = "https", secured(self.socket, tls(authority))
        Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def server_close(self) -> None:
        """The end of the context that it is: who still answers does so no longer."""
        self.over.set()
        self.shutdown()
        super().server_close()

    def handle_error(self, *_: Any) -> None:
        """A client that leaves is what the tests are about."""

    def answers(self, status: int, body: Any) -> None:
        self.status, self.body = status, body if isinstance(body, bytes) else json.dumps(body).encode()

    def asked(self, **more: str) -> Bearer:
        place = f"{self.scheme}://127.0.0.1:{self.server_address[1]}/token"
        return Bearer(Tokens(place, "me", SECRET, **more))


class _Answer(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        s = self.server
        s.told = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        s.who = self.headers["Authorization"]
        if s.manner == "silent":
            s.over.wait(30)
        elif s.manner == "other":
            self.wfile.write(b"SSH-2.0-internal-secret\r\n")
        else:
            self.send_response(s.status)
            self.end_headers()
            self.wfile.write(s.body)
            while s.manner != "answers" and not s.over.wait(0 if s.manner == "endless" else 0.05):
                self.wfile.write(b" " * (65536 if s.manner == "endless" else 1))

    def log_message(self, *_: Any) -> None:
        pass
