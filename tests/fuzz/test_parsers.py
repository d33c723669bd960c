"""The targets of ``parsers`` by hypothesis: any bytes, and what is near to what they are made for."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz import parsers


@st.composite
def near(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """Two beginnings joined somewhere, with a few bytes changed."""
    one, two = draw(st.sampled_from(seeds)), draw(st.sampled_from(seeds))
    data = bytearray(one[: draw(st.integers(0, len(one)))] + two[draw(st.integers(0, len(two))) :])
    for at, byte in draw(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=4)):
        if data:
            data[at % len(data)] = byte
    return bytes(data)


@pytest.mark.parametrize("name", parsers.TARGETS)
def test_refuses_or_reads(name: str) -> None:
    seeds = parsers.seeds(name)

    @settings(max_examples=600, deadline=None, derandomize=True)
    @given(data=st.one_of(st.binary(max_size=80), near(seeds), near(seeds)))
    def check(data: bytes) -> None:
        parsers.run(parsers.TARGETS[name], data)

    for seed in seeds:
        parsers.run(parsers.TARGETS[name], seed)
    check()
