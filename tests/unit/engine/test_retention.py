"""When views are looked at for rows whose time is over, and what happens when that fails."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pgstream import types
from pgstream.catalog.records import ColumnRecord, RelationRecord
from pgstream.catalog.store import Catalog
from pgstream.engine.retention import Retention, pause_s
from pgstream.errors import NotReady
from pgstream.names import FullName


def view(name: str, **properties: str) -> RelationRecord:
    kept = {k.replace("__", "."): v for k, v in properties.items()}
    columns = (ColumnRecord("t", types.parse("BIGINT")),)
    return RelationRecord(
        name, FullName("main", "public", name), "materialized_view", columns, "o", properties=kept
    )  # fmt: skip


class FakeCatalog:
    def __init__(self, *views: RelationRecord) -> None:
        self.snapshot = SimpleNamespace(relations={v.id: v for v in views})
        self.looked: list[str] = []
        self.fails = False

    async def expire_rows(self, record: RelationRecord) -> int:
        self.looked.append(record.id)
        if self.fails:
            raise NotReady(what="PostgreSQL")
        return 1


@pytest.mark.parametrize("millis, seconds", [("1", 1), ("30000", 3), ("86400000", 60)])
def test_a_view_is_looked_at_often_enough(millis: str, seconds: float) -> None:
    assert pause_s(view("v", retention__millis=millis)) == seconds


async def test_only_views_with_an_end_are_looked_at_and_each_when_it_is_due() -> None:
    catalog = FakeCatalog(view("short", retention__millis="1000"), view("kept"))
    retention = Retention(cast(Catalog, cast(Any, catalog)))
    await retention.look()
    await retention.look()
    assert catalog.looked == ["short"]
    retention._next["short"] = 0
    await retention.look()
    assert catalog.looked == ["short", "short"]


async def test_a_failure_is_told_and_tried_again() -> None:
    catalog = FakeCatalog(view("v", retention__millis="1000"))
    catalog.fails = True
    retention = Retention(cast(Catalog, cast(Any, catalog)))
    await retention.look()
    catalog.fails, retention._next["v"] = False, 0
    await retention.look()
    assert catalog.looked == ["v", "v"]
