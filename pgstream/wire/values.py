"""Single values between PostgreSQL's text and binary format.

Owns: text to binary for columns that a client wants in binary; binary to text for bound parameters. Our rows always
come as PostgreSQL text.
Must not know: messages, statements. Start reading at ``encoder`` and ``decoder``; both are asked once a column.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from functools import cache

from pgstream.errors import NotSupported
from pgstream.wire import arrays, times
from pgstream.wire.encodings import UTF8, encode

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


def _one(data: bytes) -> int:
    (byte,) = data
    return byte


def _jsonb(data: bytes, codec: str) -> str:
    if data[:1] != b"\1":
        raise ValueError("unsupported jsonb version number")
    return data[1:].decode(codec)


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
    1082: times.date_to_binary,
    1083: times.time_to_binary,
    1114: times.timestamp_to_binary,
    1184: times.timestamp_to_binary,
    1700: times.numeric_to_binary,
    2950: lambda text: bytes.fromhex(text.replace("-", "")),
    _JSONB: lambda text: b"\1" + text.encode(),
    **dict.fromkeys(_TEXTS, str.encode),
}
_DECODERS: dict[int, Decoder] = {
    16: lambda data: "t" if _one(data) else "f",
    20: _unpacks(">q"),
    21: _unpacks(">h"),
    23: _unpacks(">i"),
    26: _unpacks(">I"),
    700: _unpacks(">f", _float_text),
    701: _unpacks(">d", _float_text),
    _BYTEA: lambda data: "\\x" + data.hex(),
    1082: times.date_to_text,
    1083: times.time_to_text,
    1114: times.timestamp_to_text,
    1184: lambda data: times.timestamp_to_text(data, "+00"),
    1700: times.numeric_to_text,
    2950: lambda data: str(uuid.UUID(bytes=data)),
}


@cache
def encoder(oid: int, codec: str = UTF8) -> Encoder:
    """Text to binary of a type, for a client of an encoding. Errors: NotSupported for a type nobody can convert."""
    if oid in arrays.ELEMENTS:
        element = arrays.ELEMENTS[oid]
        encode_element = encoder(element, codec)
        return lambda text: arrays.encode(text, element, encode_element)
    found = _ENCODERS.get(oid)
    if found is None:
        raise NotSupported(what=f"binary format of type {oid}")
    if codec != UTF8 and oid in _TEXTS:
        return lambda text: encode(text, codec)
    return (lambda text: b"\1" + encode(text, codec)) if codec != UTF8 and oid == _JSONB else found


@cache
def decoder(oid: int, codec: str = UTF8) -> Decoder:
    """Binary to text of a type; the inverse of ``encoder``."""
    if oid in arrays.ELEMENTS:
        decode_element = decoder(arrays.ELEMENTS[oid], codec)
        return lambda data: arrays.decode(data, decode_element)
    if oid in (_ANY_TEXT, *_TEXTS):
        return lambda data: data.decode(codec)
    if oid == _JSONB:
        return lambda data: _jsonb(data, codec)
    found = _DECODERS.get(oid)
    if found is None:
        raise NotSupported(what=f"binary format of type {oid}")
    return found
