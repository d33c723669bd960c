"""Files of sources: what a JAR or a descriptor set holds, looked through once and within bounds.

Owns: what is wrong with such a file when it comes in. Others' bytes: a few of them may say that they are very many
classes or messages. Must not know: statements, the catalogue, what a message gives (``formats.protobuf``).
Start reading at ``has_classes`` and ``messages``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

_SET = 4 << 20
"""Bytes of a descriptor set. Read by the library at one stroke, during which nobody else is served, it takes up to
sixty times as much memory."""
_MESSAGES = 10_000
_NAMES = 1 << 20
"""Characters of all names of a set's messages, which the catalogue keeps in memory."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*\Z")
_ENTRIES = 65_535
"""What the end of a ZIP can count."""
_END = struct.Struct("<4s4H2LH")
_ENTRY = struct.Struct("<4s24x3H12x")
"""Of an entry of a ZIP's directory, the lengths of its name and of the two texts behind it."""
_COMMENT = 65_535
_IN_64 = 0xFFFFFFFF
"""In the place of a size that stands in those numbers."""
_END64 = 76
"""Bytes in front of a ZIP's end that has numbers of 64 bits, too."""


class Unusable(ValueError):
    """A file that is not one for a source; the text is a sentence for a person."""

    def __init__(self, why: str, hint: str | None = None) -> None:
        super().__init__(why)
        self.hint = hint


def has_classes(jar: bytes) -> bool:
    """Whether a JAR holds classes. Errors: Unusable."""
    return any(name.endswith(b".class") for name in list(_entries(jar)))


def _entries(jar: bytes) -> Iterator[bytes]:
    """The names of a ZIP's directory, which stands before its end (APPNOTE.TXT, "Overall .ZIP file format")."""
    stop = jar.rfind(b"PK\5\6", max(0, len(jar) - _END.size - _COMMENT))
    if stop < 0 or stop + _END.size > len(jar):
        raise Unusable("It is not a JAR: File is not a zip file.")
    size = _END.unpack_from(jar, stop)[5]
    if jar[max(0, stop - 20) : stop].startswith(b"PK\6\7"):
        stop -= _END64
        if size == _IN_64 and jar.startswith(b"PK\6\6", max(0, stop)):
            size = int.from_bytes(jar[stop + 40 : stop + 48], "little")
    at = stop - size
    for _ in range(_ENTRIES):
        if at == stop:
            return
        if at < 0 or at + _ENTRY.size > stop or not jar.startswith(b"PK\1\2", at):
            raise Unusable("It is not a JAR: its directory is broken.")
        _, *lengths = _ENTRY.unpack_from(jar, at)
        begin = at + _ENTRY.size
        yield jar[begin : begin + lengths[0]]
        at = begin + sum(lengths)
    if at != stop:
        raise Unusable(f"It has more than {_ENTRIES} entries.", "Leave out what the functions do not need.")


def messages(descriptors: bytes) -> list[str]:
    """The message types of a descriptor set, by full name. Errors: Unusable."""
    if len(descriptors) > _SET:
        raise Unusable(
            f"It is larger than {_SET >> 20} MB.",
            "Leave out --include_source_info, or make a set of each part of the files.",
        )
    try:
        files = FileDescriptorSet.FromString(descriptors).file
        if len(files) > _MESSAGES:
            raise _too_many("files")
        found = _bounded(name for file in files for name in _within(file.package, file.message_type))
    except (DecodeError, UnicodeDecodeError):
        raise _no_set() from None
    if not found:
        raise Unusable("It describes no message.")
    return found


def _within(place: str, types: Iterable[DescriptorProto]) -> Iterator[str]:
    for one in types:
        if not one.options.map_entry:
            name = f"{place}.{one.name}" if place else one.name
            yield name
            yield from _within(name, one.nested_type)


def _bounded(names: Iterator[str]) -> list[str]:
    out: list[str] = []
    left = _NAMES
    for name in names:
        left -= len(name) + 1
        if len(out) == _MESSAGES or left < 0:
            raise _too_many("messages") if left >= 0 else Unusable(f"Its names have more than {_NAMES} characters.")
        # The library gives a name that is no UTF-8 as bytes.
        if not isinstance(name, str) or not _NAME.match(name):
            raise _no_set()
        out.append(name)
    return out


def _no_set() -> Unusable:
    return Unusable("It is not the output of protoc --descriptor_set_out.")


def _too_many(what: str) -> Unusable:
    return Unusable(f"It has more than {_MESSAGES} {what}.", "Make a set of each part of the files.")
