"""Any split of a byte stream gives the same messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgstream.errors import NoStartUp, ProtocolViolation
from pgstream.wire import frontend
from pgstream.wire.framing import Framer

MESSAGES = st.lists(st.tuples(st.sampled_from(b"QPBDECSHXFdcfp"), st.binary(max_size=40)), max_size=8)


def encode(kind: int, payload: bytes) -> bytes:
    return bytes((kind,)) + (len(payload) + 4).to_bytes(4, "big") + payload


def drain(framer: Framer) -> list[tuple[int, bytes]]:
    return list(iter(framer.next, None))


@given(MESSAGES, st.data())
def test_any_split(messages, data):
    stream = b"".join(encode(*m) for m in messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    framer, got = Framer(), []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        framer.feed(stream[begin:end])
        got += drain(framer)
    assert got == messages
    assert framer.rest() == b""


def test_startup_then_typed():
    framer = Framer(startup=True)
    framer.feed(frontend.encode_startup({"user": "a", "database": "b"}) + encode(ord("p"), b"x"))
    kind, payload = framer.next()
    assert kind == 0
    assert frontend.decode_startup(payload) == frontend.Startup(3, 0, {"user": "a", "database": "b"})
    framer.typed()
    assert framer.next() == (ord("p"), b"x")


@pytest.mark.parametrize("head", [b"Q\0\0\0\3", b"Q\x7f\xff\xff\xff", b"S\0\1\0\0", b"!\0\0\0\4"])
def test_bad_header(head):
    framer = Framer()
    framer.feed(head)
    with pytest.raises(ProtocolViolation):
        framer.next()


@pytest.mark.parametrize("head", [b"\0\0\0\7", b"\0\0\x27\x15", b"GET "])
def test_bad_startup_length(head):
    framer = Framer(startup=True)
    framer.feed(head + b"\0" * 8)
    with pytest.raises(NoStartUp):
        framer.next()


@given(st.sampled_from(b"QPBDEC"), st.binary(max_size=60))
def test_garbage_is_a_violation_or_a_message(kind, payload):
    try:
        frontend.decode(kind, payload)
    except Exception as e:
        assert type(e).__name__ in ("ProtocolViolation", "InvalidEncoding")
