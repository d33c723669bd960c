"""When one query has read all that another has, by what the ledger says of both."""

from __future__ import annotations

from typing import Any

import pytest

from pgstream.engine.replacements import _passed, places


def table(lsn: str, part: int = 0, left: int = 0, seq: int = 5) -> list[dict[str, Any]]:
    at: dict[str, Any] = {"public.t": {"0": seq}, "lsn": lsn, "part": part, "beat": 0}
    return [{"store": "s", "at": at | ({"left": left} if left else {})}]


def topic(**parts: Any) -> list[dict[str, Any]]:
    return [{"store": "k", "at": {"t": {p.strip("_"): at for p, at in parts.items()}}}]


@pytest.mark.parametrize(
    ("wanted", "has", "passed"),
    [
        (topic(_0=5, _1=7), topic(_0=5, _1=8), True),
        (topic(_0=5, _1=7), topic(_0=5, _1=6), False),
        (topic(_0=5, _1=7), topic(_0=5), False),
        ([], topic(_0=0), True),
        (topic(_0={"last": "90", "count": 4}), topic(_0={"last": "100", "count": 1}), True),
        (topic(_0={"last": "100", "count": 1}), topic(_0={"last": "90", "count": 4}), False),
        (topic(_0={"last": "100", "count": 1}), topic(_0={"last": "90", "done": True}), True),
        # The changes of a table: each counts its own records, from where its slot began.
        (table("0/20", seq=1000), table("0/20", seq=3), True),
        (table("0/20", seq=3), table("0/1F", seq=1000), False),
        (table("A/0"), table("9/FFFFFFFF"), False),
        (table("9/FFFFFFFF"), table("A/0"), True),
        (table("0/20", part=2), table("0/20", part=7), False),
        (table("0/20"), table("0/30", part=7), True),
        # Rows that the table had and the new query has not read yet.
        (table("0/20"), table("0/30", left=4), False),
        (table("0/20", left=9), table("0/30", left=4), False),
        (table("0/20", left=9), table("0/30"), True),
        (topic(_0=1), table("0/30", left=4), False),
    ],
)
def test_one_has_read_what_the_other_has(wanted: Any, has: Any, passed: bool) -> None:
    assert _passed(places(wanted), places(has)) is passed
