"""Runs of rows are skipped to the same place as by walking every header."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from pgstream.server.runs import Runs

MESSAGES = st.lists(
    st.tuples(st.sampled_from(b"DDDDDdCZ"), st.sampled_from([0, 1, 7, 7, 7, 30, 251, 252, 300, 5000])), max_size=120
)


def walk(data: bytes, pos: int) -> int:
    """The first message that is no row, or does not lie whole in the data."""
    while len(data) - pos >= 5 and data[pos] in b"Dd":
        after = pos + 1 + struct.unpack_from(">I", data, pos + 1)[0]
        if after > len(data):
            break
        pos = after
    return pos


@given(MESSAGES, st.integers(0, 200), st.binary(min_size=1, max_size=3))
def test_a_run_ends_where_a_walk_ends(messages: list[tuple[int, int]], cut: int, fill: bytes) -> None:
    data = b"".join(struct.pack(">BI", k, n + 4) + (fill * n)[:n] for k, n in messages)
    data = data[: max(0, len(data) - cut)]
    runs = Runs()
    for _ in range(3):  # the second and third time with lengths it has learnt
        pos = 0
        while len(data) - pos >= 5 and data[pos] in b"Dd":
            length = struct.unpack_from(">I", data, pos + 1)[0]
            if pos + 1 + length > len(data):
                assert runs.after(data, pos, length) == pos + 1 + length
                break
            after = runs.after(data, pos, length)
            assert pos < after <= walk(data, pos)
            pos = after
        assert pos == walk(data, 0)
