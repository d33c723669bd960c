"""Client to server messages: decoded for the sessions we serve, encoded for the backend connections we open.

Owns: the layout of every message a client may send. ``decode_*`` raise ProtocolViolation on a malformed one.
Must not know: framing (payloads come without type and length), sessions. Start reading at ``decode``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pgstream.errors import InvalidEncoding, ProtocolViolation

PROTOCOL_3_0 = 0x00030000
_CANCEL, _SSL, _GSSENC = 80877102, 80877103, 80877104


@dataclass(frozen=True, slots=True)
class Startup:
    """A session begins. ``parameters`` holds user, database, options and settings."""

    major: int
    minor: int
    parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SSLRequest:
    """The client would like TLS."""


@dataclass(frozen=True, slots=True)
class GSSENCRequest:
    """The client would like GSSAPI encryption."""


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """Another session's running statement shall end."""

    pid: int
    key: bytes


@dataclass(frozen=True, slots=True)
class Query:
    """One or several statements, simple protocol. ``text`` is undecoded: it may not be UTF-8."""

    text: bytes


@dataclass(frozen=True, slots=True)
class Parse:
    """Prepare a statement."""

    name: str
    text: bytes
    oids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bind:
    """Make a portal from a prepared statement and values. Formats: 0 text, 1 binary."""

    portal: str
    statement: str
    formats: tuple[int, ...]
    values: tuple[bytes | None, ...]
    result_formats: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Describe:
    """Ask for parameters and columns. ``kind`` is ``S`` (statement) or ``P`` (portal)."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Close:
    """Forget a statement or portal."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Execute:
    """Run a portal, at most ``limit`` rows; 0 means all."""

    portal: str
    limit: int


@dataclass(frozen=True, slots=True)
class SASLInitialResponse:
    """The client chose a mechanism."""

    mechanism: str
    data: bytes


class _Reader:
    """Takes fields from a payload, left to right."""

    def __init__(self, payload: bytes) -> None:
        self.payload, self.at = payload, 0

    def fail(self) -> ProtocolViolation:
        return ProtocolViolation(what="invalid message format")

    def raw(self) -> bytes:
        end = self.payload.find(0, self.at)
        if end < 0:
            raise self.fail()
        self.at, begin = end + 1, self.at
        return self.payload[begin:end]

    def text(self) -> str:
        try:
            return self.raw().decode()
        except UnicodeDecodeError:
            raise InvalidEncoding(encoding="UTF8") from None

    def bytes(self, n: int) -> bytes:
        if n < 0 or self.at + n > len(self.payload):
            raise self.fail()
        self.at += n
        return self.payload[self.at - n : self.at]

    def int16(self) -> int:
        return int.from_bytes(self.bytes(2), "big")

    def int32(self) -> int:
        return int.from_bytes(self.bytes(4), "big", signed=True)

    def end(self) -> None:
        if self.at != len(self.payload):
            raise self.fail()


def decode_startup(payload: bytes) -> Startup | SSLRequest | GSSENCRequest | CancelRequest:
    """Read a start-up packet (without its length)."""
    r = _Reader(payload)
    code = r.int32()
    if code == _SSL:
        return SSLRequest()
    if code == _GSSENC:
        return GSSENCRequest()
    if code == _CANCEL:
        return CancelRequest(r.int32(), r.bytes(len(payload) - 8))
    parameters: dict[str, str] = {}
    if code >> 16 == 3:
        while name := r.text():
            parameters[name] = r.text()
        r.end()
    return Startup(code >> 16, code & 0xFFFF, parameters)


def decode_query(payload: bytes) -> Query:
    r = _Reader(payload)
    message = Query(r.raw())
    r.end()
    return message


def decode_parse(payload: bytes) -> Parse:
    r = _Reader(payload)
    message = Parse(r.text(), r.raw(), tuple(r.int32() & 0xFFFFFFFF for _ in range(r.int16())))
    r.end()
    return message


def decode_bind(payload: bytes) -> Bind:
    r = _Reader(payload)
    portal, statement = r.text(), r.text()
    formats = tuple(r.int16() for _ in range(r.int16()))
    values = tuple(None if (n := r.int32()) == -1 else r.bytes(n) for _ in range(r.int16()))
    result_formats = tuple(r.int16() for _ in range(r.int16()))
    r.end()
    if len(formats) > 1 and len(formats) != len(values):
        raise ProtocolViolation(what=f"bind message has {len(formats)} parameter formats but {len(values)} parameters")
    return Bind(portal, statement, formats, values, result_formats)


def _named(payload: bytes) -> tuple[str, str]:
    r = _Reader(payload)
    kind, name = r.bytes(1).decode("latin-1"), r.text()
    r.end()
    if kind not in ("S", "P"):
        raise r.fail()
    return kind, name


def decode_describe(payload: bytes) -> Describe:
    return Describe(*_named(payload))


def decode_close(payload: bytes) -> Close:
    return Close(*_named(payload))


def decode_execute(payload: bytes) -> Execute:
    r = _Reader(payload)
    message = Execute(r.text(), r.int32())
    r.end()
    return message


def decode_sasl_initial(payload: bytes) -> SASLInitialResponse:
    r = _Reader(payload)
    mechanism = r.text()
    n = r.int32()
    message = SASLInitialResponse(mechanism, b"" if n == -1 else r.bytes(n))
    r.end()
    return message


Message = Query | Parse | Bind | Describe | Execute | Close

DECODERS: dict[int, Callable[[bytes], Message]] = {
    ord("Q"): decode_query,
    ord("P"): decode_parse,
    ord("B"): decode_bind,
    ord("D"): decode_describe,
    ord("E"): decode_execute,
    ord("C"): decode_close,
}


def decode(kind: int, payload: bytes) -> Message:
    """Decode a message of the simple or extended query protocol; other types have no fields that we read."""
    decoder = DECODERS.get(kind)
    if decoder is None:
        raise ProtocolViolation(what=f"invalid frontend message type {kind}")
    return decoder(payload)


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">I", len(body) + 4) + body


def encode_startup(parameters: Mapping[str, str], protocol: int = PROTOCOL_3_0) -> bytes:
    body = struct.pack(">I", protocol) + b"".join(p.encode() + b"\0" for kv in parameters.items() for p in kv) + b"\0"
    return struct.pack(">I", len(body) + 4) + body


def encode_cancel(pid: int, key: bytes) -> bytes:
    return struct.pack(">IIi", 12 + len(key), _CANCEL, pid) + key


def encode_parse(text: bytes, name: bytes = b"", oids: Sequence[int] = ()) -> bytes:
    """A statement, with the types of its parameters."""
    return _message(b"P", name + b"\0" + text + b"\0" + struct.pack(f">H{len(oids)}I", len(oids), *oids))


def encode_close(kind: bytes, name: bytes) -> bytes:
    return _message(b"C", kind + name + b"\0")


def encode_run(text: bytes, name: bytes, oids: Sequence[int] = (), given: Sequence[bytes | None] = ()) -> bytes:
    """Run a statement under a name of its own: seven messages, seven answers. ``given``: its parameters, as text.

    The name is freed before too: an error skips what would have freed it after, and a client may have taken it.
    """
    values = b"".join(b"\xff\xff\xff\xff" if v is None else struct.pack(">I", len(v)) + v for v in given)
    bind = _message(b"B", name + b"\0" + name + b"\0\0\0" + struct.pack(">H", len(given)) + values + b"\0\0")
    free, free_rows = encode_close(b"S", name), encode_close(b"P", name)
    run = encode_parse(text, name, oids) + bind + _message(b"E", name + b"\0" + bytes(4))
    return free + free_rows + run + free_rows + free


def encode_sasl_initial(mechanism: str, data: bytes) -> bytes:
    return _message(b"p", mechanism.encode() + b"\0" + struct.pack(">I", len(data)) + data)


def encode_sasl(data: bytes) -> bytes:
    return _message(b"p", data)


SSL_REQUEST = struct.pack(">II", 8, _SSL)
SYNC = _message(b"S", b"")
FLUSH = _message(b"H", b"")
TERMINATE = _message(b"X", b"")
