"""JARs and descriptor sets as they come in: what they hold, and what is refused before it costs much."""

from __future__ import annotations

import io
import struct
import zipfile

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from pgstream.statements.source_files import Unusable, has_classes, messages


def jar(*names: str, comment: bytes = b"", before: bytes = b"") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name in names:
            z.writestr(name, "text")
        z.comment = comment
    return before + out.getvalue()


def directory(entries: int, said: int = 1) -> bytes:
    """A ZIP that is a directory of entries without files, of which its end says other numbers."""
    one = struct.pack("<4s4B4HL2L5H2L", b"PK\1\2", 20, 0, 20, 0, 0, 0, 0, 0x21, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    size = len(one) * entries
    return one * entries + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, said, said, size, 0, 0)


def wide(entries: int) -> bytes:
    """The same, with an end of 64 bits."""
    data, size = directory(entries)[:-22], 47 * entries
    end = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, entries, entries, size, 0)
    place = struct.pack("<4sLQL", b"PK\6\7", 0, size, 1)
    return data + end + place + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, size, 0, 0)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (jar("a/B.class", "a/c.txt"), True),
        (jar("a/c.txt", "B.class", comment=b"by hand" * 1000, before=b"#!/bin/sh\n"), True),
        (jar("a/class"), False),
        (jar(), False),
        (wide(3), False),
        (directory(65_535), False),
    ],
)
def test_a_jar_has_classes_or_not(data: bytes, expected: bool) -> None:
    assert zipfile.is_zipfile(io.BytesIO(data))
    assert has_classes(data) is expected


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "File is not a zip file"),
        (b"PK\5\6", "File is not a zip file"),
        (b"not a jar" * 10_000, "File is not a zip file"),
        (jar("B.class").replace(b"PK\1\2", b"PK\1\3"), "its directory is broken"),
        (jar("B.class")[-40:], "its directory is broken"),
        (directory(65_536), "more than 65535 entries"),
        (wide(65_536), "more than 65535 entries"),
    ],
)
def test_what_is_no_jar_is_said(data: bytes, why: str) -> None:
    with pytest.raises(Unusable, match=why):
        has_classes(data)


def described(*names: str, package: str = "") -> bytes:
    out = FileDescriptorSet()
    file = out.file.add(name="m.proto", package=package)
    for name in names:
        file.message_type.add(name=name)
    return out.SerializeToString()


def nested(levels: int, name: str) -> bytes:
    out = FileDescriptorSet()
    m = out.file.add(name="m.proto").message_type.add(name=name)
    for _ in range(levels):
        m = m.nested_type.add(name=name)
    return out.SerializeToString()


def test_messages_by_their_full_names() -> None:
    out = FileDescriptorSet.FromString(described("B", "A", package="x.y"))
    out.file[0].message_type[0].nested_type.add(name="C").nested_type.add(name="D")
    out.file[0].message_type[1].nested_type.add(name="MapEntry").options.map_entry = True
    assert messages(out.SerializeToString()) == ["x.y.B", "x.y.B.C", "x.y.B.C.D", "x.y.A"]
    assert len(messages(described(*(f"m{i}" for i in range(10_000))))) == 10_000


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "It describes no message"),
        (b"\xff", "not the output of protoc"),
        (described("a,b"), "not the output of protoc"),
        (described("a\0"), "not the output of protoc"),
        (described("AB").replace(b"AB", b"\xff\xff"), "not the output of protoc"),
        (described(*["a"] * 10_001), "more than 10000 messages"),
        (FileDescriptorSet(file=[{"name": f"{i}"} for i in range(10_001)]).SerializeToString(), "10000 files"),  # type: ignore[list-item]
        (nested(50, "a" * 50_000), "names have more than 1048576 characters"),
        (described("a" * (4 << 20)), "larger than 4 MB"),
    ],
)
def test_what_is_no_descriptor_set_is_said(data: bytes, why: str) -> None:
    with pytest.raises(Unusable, match=why):
        messages(data)
