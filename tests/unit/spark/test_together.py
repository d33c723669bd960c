"""Which outputs of a query are one sink."""

from __future__ import annotations

import pytest

from pgstream.spark.query import together
from pgstream.spark.step import Refused


def table(name: str, url: str = "jdbc:postgresql://h/d", user: str = "u", store: str = "s") -> dict[str, object]:
    return {"type": "TableSink", "url": url, "user": user, "table": name, "store": store, "mode": "append", "key": []}


def test_tables_of_a_database_are_one_sink() -> None:
    topic = {"type": "kafka", "topic": "t"}
    other = table("c", "jdbc:postgresql://h/e")
    made = together([table("a"), topic, table("b", store="s2"), other])
    assert [numbers for numbers, _ in made] == [[0, 2], [1], [3]]
    assert [view["table"] for view in made[0][1]["views"]] == ["a", "b"]
    assert [view["store"] for view in made[0][1]["views"]] == ["s", "s2"]


def test_two_stores_of_one_database_are_refused() -> None:
    """They would share a row of the ledger: what the first has written the second would take for its own."""
    with pytest.raises(Refused) as e:
        together([table("a"), table("b", user="v")])
    assert e.value.fault.sqlstate == "0A000" and e.value.fault.hint
