"""A client that speaks bytes: what it sends is what the test says, what comes back is compared message by message.

``Wire`` logs in with SCRAM and gives messages as (type, payload). ``frames`` below make client messages.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

from pgstream.wire import frontend, scram

Message = tuple[str, bytes]


def frame(kind: str, body: bytes = b"") -> bytes:
    return kind.encode() + struct.pack(">I", len(body) + 4) + body


def _z(text: str | bytes) -> bytes:
    return (text if isinstance(text, bytes) else text.encode()) + b"\0"


def query(text: str | bytes) -> bytes:
    return frame("Q", _z(text))


def parse(text: str | bytes, name: str = "", oids: Sequence[int] = ()) -> bytes:
    body = _z(name) + _z(text) + struct.pack(">H", len(oids)) + b"".join(struct.pack(">I", o) for o in oids)
    return frame("P", body)


def bind(
    portal: str = "", name: str = "", values: Sequence[bytes | None] = (), forms: Sequence[int] = (),
    results: Sequence[int] = (),
) -> bytes:  # fmt: skip
    body = _z(portal) + _z(name) + struct.pack(f">H{len(forms)}H", len(forms), *forms)
    body += struct.pack(">H", len(values))
    body += b"".join(b"\xff\xff\xff\xff" if v is None else struct.pack(">I", len(v)) + v for v in values)
    return frame("B", body + struct.pack(f">H{len(results)}H", len(results), *results))


def describe(kind: str, name: str = "") -> bytes:
    return frame("D", kind.encode() + _z(name))


def close(kind: str, name: str = "") -> bytes:
    return frame("C", kind.encode() + _z(name))


def execute(portal: str = "", limit: int = 0) -> bytes:
    return frame("E", _z(portal) + struct.pack(">i", limit))


def run(text: str | bytes) -> bytes:
    """A statement in the extended protocol, in the unnamed places."""
    return parse(text) + bind() + execute()


SYNC, FLUSH, TERMINATE = frame("S"), frame("H"), frame("X")


class Wire:
    """One connection, logged in unless ``user`` is None."""

    def __init__(
        self, port: int, user: str | None = None, password: str = "", database: str = "main", **more: str
    ) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        if user is not None:
            self.send(frontend.encode_startup({"user": user, "database": database, **more}))
            self._log_in(password)

    def _log_in(self, password: str) -> None:
        exchange = scram.ClientExchange(password=password)
        while (message := self.read())[0] != "Z":
            kind, payload = message
            if kind == "E":
                raise ConnectionError(payload.decode())
            step = int.from_bytes(payload[:4], "big") if kind == "R" else 0
            if step == 10:
                self.send(frontend.encode_sasl_initial(scram.MECHANISM, exchange.first()))
            elif step == 11:
                self.send(frontend.encode_sasl(exchange.final(payload[4:])))

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self) -> Message:
        """The next message. Errors: EOFError at the end, TimeoutError after 20 s."""
        while len(self._buffer) < 5 or len(self._buffer) < 1 + int.from_bytes(self._buffer[1:5], "big"):
            data = self.socket.recv(1 << 16)
            if not data:
                raise EOFError(self._buffer)
            self._buffer += data
        end = 1 + int.from_bytes(self._buffer[1:5], "big")
        message, self._buffer = self._buffer[:end], self._buffer[end:]
        return chr(message[0]), message[5:]

    def until_ready(self, times: int = 1) -> list[Message]:
        out = []
        while times:
            out.append(self.read())
            times -= out[-1][0] == "Z"
        return out

    def rest(self) -> bytes:
        """All bytes up to the end of the connection."""
        out, self._buffer = self._buffer, b""
        while data := self.socket.recv(1 << 16):
            out += data
        return out

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def told(wire: Wire, data: bytes, times: int = 1) -> list[bytes]:
    """The rows of the answer, up to so many ReadyForQuery."""
    wire.send(data)
    return [payload for kind, payload in wire.until_ready(times) if kind == "D"]
