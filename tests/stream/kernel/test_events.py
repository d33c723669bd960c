"""AWS's event streams, in pieces of any size: each message once it is whole, and none that is broken."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tests.fanout import message

pytestmark = pytest.mark.stream
SENT = [message({"n": n, "text": "é" * (n * 997)}, message_type="event", event_type=f"E{n}") for n in range(4)]
LOOKED = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def read(spark: SparkSession, pieces: list[bytes]) -> list[tuple[str, bytes]]:
    """The type and payload of each message."""
    jvm: Any = spark._jvm
    decoder, out = jvm.org.apache.spark.sql.pgstream.EventDecoder(), []
    for piece in pieces:
        decoder.add(jvm.java.nio.ByteBuffer.wrap(piece))
        while (found := decoder.next()).isDefined():
            m = found.get()
            out.append((str(m.headers().apply(":event-type")), bytes(m.payload())))
    return out


@LOOKED
@given(st.lists(st.integers(1, 6000), max_size=12))
def test_messages_come_in_pieces(spark: SparkSession, sizes: list[int]) -> None:
    sent, pieces = b"".join(SENT) * 8, []
    for size in sizes:
        pieces.append(sent[:size])
        sent = sent[size:]
    told = read(spark, [*pieces, sent])
    assert [kind for kind, _ in told] == ["E0", "E1", "E2", "E3"] * 8
    assert all(payload in whole for (_, payload), whole in zip(told, SENT * 8, strict=True))


@LOOKED
@given(st.integers(0, len(SENT[1]) - 1), st.integers(1, 255))
def test_a_byte_that_is_wrong_is_seen(spark: SparkSession, at: int, change: int) -> None:
    """Also in the lengths: it is not waited for what would be the rest."""
    broken = bytearray(SENT[1])
    broken[at] ^= change
    with pytest.raises(Py4JJavaError, match="a message of the event stream is broken"):
        read(spark, [bytes(broken)])
