"""A topic's first records as columns: what they may be made of."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from pgstream.errors import InvalidText, NotReady, TooDeep
from pgstream.statements import generate
from pgstream.stores.spec import Record

D: Any = SimpleNamespace(entity="t")


def record(value: bytes) -> Record:
    return Record(key=None, value=value, timestamp_ms=None, position="0:0")


@pytest.mark.parametrize("levels", [101, 300, 100_000])
def test_records_deeper_than_types_may_be_are_told(levels: int) -> None:
    with pytest.raises(TooDeep) as e:
        generate._guessed(D, [record(b'{"a": ' + b"[" * levels + b"]" * levels + b"}")])
    assert 'topic "t"' in e.value.text


async def test_only_so_many_bytes_of_records_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async def records() -> AsyncIterator[Record]:
        for _ in range(100):
            yield record(b"x" * 10)

    monkeypatch.setattr(generate, "_SAMPLE", 25)
    assert len(await generate._first(records(), 50)) == 3


def test_a_sample_of_many_names() -> None:
    sample = [record(json.dumps({"m": {f"k{i}_{j}": j for j in range(2000)}}).encode()) for i in range(5)]
    assert [(c.name, str(c.type)) for c in generate._guessed(D, sample).columns] == [("m", "MAP<VARCHAR, BIGINT>")]


def test_records_that_tell_nothing() -> None:
    with pytest.raises(InvalidText):
        generate._guessed(D, [record(b"{")])
    with pytest.raises(NotReady):
        generate._guessed(D, [record(b"[1]")])
