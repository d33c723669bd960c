"""Server to client messages: encoded for our own answers; the few we must read from PostgreSQL decoded.

Owns: the layout of every message a server may send, and how a ``PgStreamError`` looks on the wire.
Must not know: sessions, statements. Start reading at ``error``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from pgstream.errors import PgStreamError, ProtocolViolation, RelayedError
from pgstream.wire.encodings import UTF8, encode

_int16 = struct.Struct(">H").pack
_int32 = struct.Struct(">i").pack
_length = struct.Struct(">I").pack


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + _length(len(body) + 4) + body


# Start-up

AUTHENTICATION_OK = message(b"R", _int32(0))
AUTHENTICATION_CLEARTEXT_PASSWORD = message(b"R", _int32(3))


def authentication_sasl(mechanisms: Sequence[str]) -> bytes:
    return message(b"R", _int32(10) + b"".join(m.encode() + b"\0" for m in mechanisms) + b"\0")


def authentication_sasl_continue(data: bytes) -> bytes:
    return message(b"R", _int32(11) + data)


def authentication_sasl_final(data: bytes) -> bytes:
    return message(b"R", _int32(12) + data)


def parameter_status(name: str, value: str) -> bytes:
    return message(b"S", name.encode() + b"\0" + value.encode() + b"\0")


def backend_key_data(pid: int, key: bytes) -> bytes:
    return message(b"K", _int32(pid) + key)


def negotiate_protocol_version(minor: int, options: Sequence[str]) -> bytes:
    names = b"".join(o.encode() + b"\0" for o in options)
    return message(b"v", _int32((3 << 16) | minor) + _int32(len(options)) + names)


# Answers

PARSE_COMPLETE = message(b"1")
BIND_COMPLETE = message(b"2")
CLOSE_COMPLETE = message(b"3")
NO_DATA = message(b"n")
PORTAL_SUSPENDED = message(b"s")
EMPTY_QUERY_RESPONSE = message(b"I")
COPY_DONE = message(b"c")


def ready_for_query(status: int) -> bytes:
    """``status`` is the byte ``I`` (idle), ``T`` (in a transaction block) or ``E`` (in a failed one)."""
    return b"Z\0\0\0\5" + bytes((status,))


def command_complete(tag: str) -> bytes:
    return message(b"C", tag.encode() + b"\0")


def parameter_description(oids: Sequence[int]) -> bytes:
    return message(b"t", _int16(len(oids)) + b"".join(_length(o) for o in oids))


def copy_out_response(binary: bool, columns: int) -> bytes:
    form = _int16(int(binary))
    return message(b"H", bytes((int(binary),)) + _int16(columns) + form * columns)


def row_description(columns: Sequence[tuple[str, int, int, int]], formats: Sequence[int], codec: str = UTF8) -> bytes:
    """``columns``: name, type oid, type length (-1: varies), type modifier; ``formats`` one a column."""
    fields = (
        encode(name, codec) + b"\0\0\0\0\0\0\0" + struct.pack(">IhiH", oid, size, modifier, form)
        for (name, oid, size, modifier), form in zip(columns, formats, strict=True)
    )
    return message(b"T", _int16(len(columns)) + b"".join(fields))


def data_row(values: Sequence[bytes | None]) -> bytes:
    parts = [_int16(len(values))]
    for value in values:
        if value is None:
            parts.append(b"\xff\xff\xff\xff")
        else:
            parts.append(_length(len(value)))
            parts.append(value)
    return message(b"D", b"".join(parts))


# Errors and notices


def _fields(codec: str, *fields: tuple[str, str | None]) -> bytes:
    return b"".join(k.encode() + v.encode(codec, "replace") + b"\0" for k, v in fields if v) + b"\0"


def error(e: PgStreamError, *, offset: int = 0, severity: str | None = None, codec: str = UTF8) -> bytes:
    """An ErrorResponse. ``offset``: where the statement begins in the client's text; ``P`` counts from 1."""
    severity = severity or e.severity
    position = None if e.at is None else str(e.at + offset + 1)
    return message(
        b"E",
        _fields(
            codec,
            ("S", severity),
            ("V", severity),
            ("C", e.sqlstate),
            ("M", e.text or type(e).__name__),
            ("D", e.detail),
            ("H", e.hint),
            ("P", position),
            ("R", None if isinstance(e, RelayedError) else e.condition),
        ),
    )


def notice(
    text: str, *, severity: str = "NOTICE", code: str | None = None, detail: str | None = None,
    hint: str | None = None, codec: str = UTF8,
) -> bytes:  # fmt: skip
    """A NoticeResponse; the code is PostgreSQL's for a warning or a plain notice unless given."""
    code = code or ("01000" if severity == "WARNING" else "00000")
    return message(
        b"N", _fields(codec, ("S", severity), ("V", severity), ("C", code), ("M", text), ("D", detail), ("H", hint))
    )


def decode_fields(payload: bytes) -> dict[str, str]:
    """Fields of an ErrorResponse or NoticeResponse, by their letter."""
    return {f[:1].decode(): f[1:].decode(errors="replace") for f in payload.split(b"\0") if f}


def moved(message_: bytes, by: int) -> bytes:
    """A whole ErrorResponse or NoticeResponse whose position, if it tells one, is ``by`` characters further on."""
    fields = message_[5:].split(b"\0")
    fields = [b"P%d" % (int(f[1:]) + by) if f[:1] == b"P" else f for f in fields]
    return message(message_[:1], b"\0".join(fields))


def decode_error(payload: bytes) -> RelayedError:
    """PostgreSQL's ErrorResponse as an exception. Its position counts in a text the client never saw: not in ``at``."""
    f = decode_fields(payload)
    return RelayedError(
        code=f.get("C", "XX000"),
        text=f.get("M", ""),
        detail=f.get("D"),
        hint=f.get("H"),
        severity=f.get("V", "ERROR"),
        position=int(f["P"]) - 1 if "P" in f else None,
    )


def decode_authentication(payload: bytes) -> tuple[int, bytes]:
    """Kind of an Authentication message (0 ok, 10 SASL, 11 continue, 12 final …) and its data."""
    if len(payload) < 4:
        raise ProtocolViolation(what="invalid message format")
    return int.from_bytes(payload[:4], "big"), payload[4:]
