"""Protobuf messages as JSON that a person reads or writes: PRINT ENTITY and INSERT INTO ENTITY.

Owns: a message's bytes as JSON text by Protobuf's own mapping, with the fields' own names; where a message stands in
its file, as Confluent's wire format says it ("Wire format", message indexes).
Must not know: registries, statements. The hot path is the kernel's (``spark/kernel/formats``).
Start reading at ``shown`` and ``written``.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, EncodeError
from google.protobuf.message_factory import GetMessageClass

from pgstream.formats.columns import Unfit

FIRST = b"\0"
"""The message indexes of a file's first message."""
_MOST = 64
"""Messages do not lie deeper in each other than anybody writes them."""
_TEXT = 256 << 20
"""Characters of names that the bytes of a message may stand for at the worst."""


def shown(data: bytes, message: Descriptor) -> str:
    """A message as JSON text, with the fields that are set. Unfit for bytes that are none, or that say too much."""
    if len(data) * _longest(message) > _TEXT:
        raise Unfit("it is longer than is shown")
    made = GetMessageClass(message)()
    try:
        made.ParseFromString(data)
        return json_format.MessageToJson(
            made,
            preserving_proto_field_name=True,
            indent=None,
            ensure_ascii=False,
            unquote_int64_if_possible=True,
            descriptor_pool=message.file.pool,
        )
    except (DecodeError, json_format.Error, ValueError, TypeError, OverflowError, RecursionError) as e:
        raise Unfit(str(e) or type(e).__name__) from None


@lru_cache(maxsize=32)
def _longest(message: Descriptor) -> int:
    """Characters of the longest name that a byte of the message may stand for."""
    found, seen, names = [message], {message.full_name}, [""]
    while found:
        for f in found.pop().fields:
            names.append(f.name)
            if f.enum_type is not None:
                names.append(max(f.enum_type.values_by_name, key=len))
            if f.message_type is not None and f.message_type.full_name not in seen:
                seen.add(f.message_type.full_name)
                found.append(f.message_type)
    return max(map(len, names))


def written(value: Any, message: Descriptor) -> bytes:
    """The bytes of a message given as JSON. Unfit, saying what does not fit."""
    if not isinstance(value, dict) and message.file.package != "google.protobuf":
        raise Unfit(f"message {message.full_name} is a JSON object")
    made = GetMessageClass(message)()
    try:
        # As text again, because the library knows no Decimal.
        json_format.Parse(json.dumps(value, default=float), made, descriptor_pool=message.file.pool)
        return made.SerializeToString()
    except (json_format.Error, EncodeError, ValueError, TypeError, OverflowError, RecursionError) as e:
        raise Unfit(" ".join(str(e).split()).removesuffix(".") or type(e).__name__) from None


def indexes(data: bytes) -> tuple[tuple[int, ...], bytes]:
    """The message indexes that data begins with, and the message behind them. Unfit when there are none."""
    count, at = _number(data, 0)
    if count == 0:
        return (0,), data[at:]
    if not 0 < count <= _MOST:
        raise Unfit("no message indexes")
    out = []
    for _ in range(count):
        index, at = _number(data, at)
        out.append(index)
    return tuple(out), data[at:]


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag number, and the place behind it."""
    raw = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
    raise Unfit("no message indexes")
