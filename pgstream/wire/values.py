"""Single values between PostgreSQL's text and binary format.

Owns: text to binary for columns that a client wants in binary; binary to text for bound parameters. Our rows always
come as PostgreSQL text. psycopg's adapters do the work for types that are not a line here.
Must not know: messages, statements. Start reading at ``encoder`` and ``decoder``; both are asked once a column.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from functools import cache

from pgstream.errors import NotSupported

Encoder = Callable[[str], bytes]
Decoder = Callable[[bytes], str]

_TEXTS = (18, 19, 25, 114, 705, 1042, 1043)  # char, name, text, json, unknown, bpchar, varchar
_JSONB = 3802
_BYTEA = 17
_ANY_TEXT = 0


def _packs(code: str, convert: Callable[[str], float]) -> Encoder:
    pack = struct.Struct(code).pack
    return lambda text: pack(convert(text))


def _unpacks(code: str, show: Callable[[float], str] = str) -> Decoder:
    unpack = struct.Struct(code).unpack
    return lambda data: show(unpack(data)[0])


def _float_text(value: float) -> str:
    return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(str(value), repr(value))


_ENCODERS: dict[int, Encoder] = {
    16: lambda text: b"\1" if text in ("t", "true") else b"\0",
    20: _packs(">q", int),
    21: _packs(">h", int),
    23: _packs(">i", int),
    26: _packs(">I", int),
    700: _packs(">f", float),
    701: _packs(">d", float),
    _BYTEA: lambda text: bytes.fromhex(text.removeprefix("\\x")),
    2950: lambda text: bytes.fromhex(text.replace("-", "")),
    _JSONB: lambda text: b"\1" + text.encode(),
    **dict.fromkeys(_TEXTS, str.encode),
}
_DECODERS: dict[int, Decoder] = {
    16: lambda data: "t" if data != b"\0" else "f",
    20: _unpacks(">q"),
    21: _unpacks(">h"),
    23: _unpacks(">i"),
    26: _unpacks(">I"),
    700: _unpacks(">f", _float_text),
    701: _unpacks(">d", _float_text),
    _BYTEA: lambda data: "\\x" + data.hex(),
    2950: lambda data: str(uuid.UUID(bytes=data)),
    _JSONB: lambda data: data[1:].decode(),
    **dict.fromkeys((_ANY_TEXT, *_TEXTS), bytes.decode),
}


@cache
def encoder(oid: int) -> Encoder:
    """Text to binary of a type. Errors: NotSupported for a type nobody can convert."""
    return _ENCODERS.get(oid) or _converter(oid, to_binary=True)


@cache
def decoder(oid: int) -> Decoder:
    """Binary to text of a type; the inverse of ``encoder``."""
    if oid in _DECODERS:
        return _DECODERS[oid]
    convert = _converter(oid, to_binary=False)
    return lambda data: convert(data).decode()


def _converter(oid: int, *, to_binary: bool) -> Callable[[str | bytes], bytes]:
    import psycopg  # heavy, and needed only by clients that want binary of a rarer type
    from psycopg import pq
    from psycopg.adapt import Transformer

    source, target = (
        (pq.Format.TEXT, pq.Format.BINARY) if to_binary else (pq.Format.BINARY, pq.Format.TEXT)
    )  # fmt: skip
    adapters = psycopg.adapters
    try:
        dumper_class = adapters.get_dumper_by_oid(oid, target)
    except psycopg.ProgrammingError:
        raise NotSupported(what=f"binary format of type {oid}") from None
    transformer = Transformer()
    load = transformer.get_loader(oid, source).load

    def convert(value: str | bytes) -> bytes:
        loaded = load(value.encode() if isinstance(value, str) else value)
        # A list dumper learns its element's type from the first value: a new dumper each time.
        dumped = dumper_class(type(loaded), transformer).dump(loaded)
        return b"" if dumped is None else bytes(dumped)

    return convert
