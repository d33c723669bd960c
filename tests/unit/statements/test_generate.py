"""What is looked at of a topic that nobody has described: a bounded part, whatever its records are."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pgstream.errors import InvalidText, NotReady, TooDeep
from pgstream.statements import generate
from pgstream.stores.spec import Record


def record(value: bytes, offset: int = 0) -> Record:
    return Record(None, value, 0, f"0:{offset}")


async def endless(value: bytes) -> AsyncIterator[Record]:
    offset = 0
    while True:
        yield record(value, offset)
        offset += 1


TOPIC = cast(Any, SimpleNamespace(entity="t"))


async def test_records_are_looked_at_until_there_are_enough_bytes() -> None:
    size = generate.MOST_BYTES // 8
    assert len(await generate._first(endless(b"x" * size), 1000)) == 8
    assert len(await generate._first(endless(b"x"), 5)) == 5


def test_a_sample_of_many_names() -> None:
    sample = [record(json.dumps({f"k{i}_{j}": j for j in range(2000)}).encode(), i) for i in range(5)]
    found = generate._guessed(TOPIC, [record(json.dumps({"m": json.loads(r.value or b"")}).encode()) for r in sample])
    assert [(c.name, str(c.type)) for c in found.columns] == [("m", "MAP<VARCHAR, BIGINT>")]


def test_records_that_tell_nothing() -> None:
    with pytest.raises(TooDeep, match='record 0:7 of topic "t" is nested too deeply'):
        generate._guessed(TOPIC, [record(b'{"a":' * 50_000 + b"1" + b"}" * 50_000, 7)])
    with pytest.raises(InvalidText):
        generate._guessed(TOPIC, [record(b"{")])
    with pytest.raises(NotReady):
        generate._guessed(TOPIC, [record(b"[1]")])
