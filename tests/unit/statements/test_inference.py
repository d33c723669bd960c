"""Columns guessed from records of JSON."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pgstream.statements.inference import Seen
from pgstream.types import parse


def seen(*texts: str) -> Seen:
    out = Seen()
    for text in texts:
        out.add(json.loads(text, parse_float=Decimal))
    return out


def guessed(*texts: str) -> str:
    s = seen(*texts)
    return str(s.type(s.layout()))


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        (["true", "false", "null"], "BOOLEAN"),
        (["1", "-2", "null"], "BIGINT"),
        (["1", "2.5"], "DOUBLE"),
        (["1e3", "2"], "DOUBLE"),
        (["123456789012345678901"], "DECIMAL(38, 0)"),
        (["12345678901234567.25", "1"], "DECIMAL(38, 2)"),
        (["1" * 37 + ".25"], "DOUBLE"),
        (['"2026-01-02"', '"2026-12-31"'], "DATE"),
        (['"2026-01-02"', '"2026-02-30"'], "VARCHAR"),
        (['"2026-01-02 03:04:05"', '"2026-01-02 03:04:05.123"'], "TIMESTAMP(3)"),
        (['"2026-01-02T03:04:05.123456"'], "TIMESTAMP(6)"),
        (['"2026-01-02T03:04:05Z"', '"2026-01-02T03:04:05.1234567+02:00"', '"2026-01-02T03:04:05"'],
         "TIMESTAMP_LTZ(9)"),
        (['"2026-01-02T03:04:05Z"', '"2026-01-02 03:04:05"'], "VARCHAR"),
        (['"2026-01-02 25:04:05"'], "VARCHAR"),
        (['"2026-01-02"', '"2026-01-02 03:04:05"'], "VARCHAR"),
        (["1", '"x"'], "VARCHAR"),
        (["true", "1"], "VARCHAR"),
        (["null"], "VARCHAR"),
        (["{}"], "VARCHAR"),
        (["[]"], "ARRAY<VARCHAR>"),
        (["[1, 2]", "[]", "[3.5]", "null"], "ARRAY<DOUBLE>"),
        (['[{"a": 1}, {"b": "x"}]'], "ARRAY<STRUCT<a BIGINT, b VARCHAR>>"),
        (['{"a": {"B c": 1}}', '{"a": {"d": true}}'], 'STRUCT<a STRUCT<"B c" BIGINT, d BOOLEAN>>'),
        (['{"a": 1}', "[1]"], "VARCHAR"),
        (['{"u1": 1, "u2": 2}', '{"u3": 1}', '{"u4": 1.5}', '{"u5": null}'], "MAP<VARCHAR, DOUBLE>"),
        (['{"u1": 1, "u2": 2}', '{"u3": 1}', '{"u4": "x"}', '{"u5": null}'],
         "STRUCT<u1 BIGINT, u2 BIGINT, u3 BIGINT, u4 VARCHAR, u5 VARCHAR>"),
    ],
)  # fmt: skip
def test_the_type_that_holds_what_was_seen(values: list[str], type_: str) -> None:
    assert guessed(*values) == type_


def test_how_sure_it_is() -> None:
    s = seen(*['{"a": 1, "b": "x"}'] * 6, '{"a": null, "b": 1}', '{"a": 2}').fields
    assert (s["a"].values, s["a"].nulls, s["a"].found, round(s["a"].confidence("sql"), 2)) == (8, 1, "7 integer", 0.89)
    # Text and numbers: VARCHAR holds both, but what comes next is less certain.
    assert (s["b"].values, s["b"].found, round(s["b"].confidence("sql"), 2)) == (7, "6 text, 1 integer", 0.78)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
    | st.datetimes().map(str) | st.dates().map(str),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=6),
    max_leaves=20,
)  # fmt: skip


@given(st.lists(VALUES, min_size=1, max_size=6))
@example([{"_$": None}])
def test_any_guess_is_a_type_and_is_no_less_sure_than_nothing(values: list[Any]) -> None:
    s = seen(*map(json.dumps, values))
    type_ = s.type(s.layout())
    assert parse(str(type_)) == type_
    assert 0 < s.confidence(s.layout()) < 1
