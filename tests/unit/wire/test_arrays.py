"""Arrays in PostgreSQL's text form."""

from __future__ import annotations

import time

import pytest

from pgstream.wire.arrays import items


def test_elements() -> None:
    given = '{ a , "b ""c" ,null, "NULL" , d e ,"" }'.replace('""c', '\\"c')
    assert list(items(given)) == ["a", 'b "c', None, "NULL", "d e", ""]
    assert list(items("{ }")) == []


@pytest.mark.parametrize("text", ["{" + " " * 100_000 + '"', '{"' + " " * 100_000, '{"a"' + " " * 100_000 + "b}", "{a"])
def test_what_is_no_array_is_looked_at_once(text: str) -> None:
    began = time.monotonic()
    with pytest.raises(ValueError, match="malformed array literal"):
        list(items(text))
    assert time.monotonic() - began < 2
