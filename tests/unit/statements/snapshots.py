"""A small catalogue for tests that need no server."""

from __future__ import annotations

from pgstream import types
from pgstream.catalog.records import (
    ColumnRecord,
    DatabaseRecord,
    RelationRecord,
    SchemaRecord,
    Snapshot,
    StoreRecord,
)
from pgstream.names import FullName
from pgstream.statements.base import Session

COLUMNS = (
    ColumnRecord("viewtime", types.BIGINT),
    ColumnRecord("userid", types.TEXT),
    ColumnRecord("pageid", types.TEXT),
)


def relation(name: str, kind: str) -> RelationRecord:
    return RelationRecord(
        id=f"id of {name}", full=FullName("main", "public", name), kind=kind, columns=COLUMNS, owner="sysadmin",
        store=None if kind == "materialized_view" else "k", entity=name,
        primary_key=("userid",) if kind == "changelog" else (),
    )  # fmt: skip


SNAPSHOT = Snapshot(
    databases={"main": DatabaseRecord("main", "sysadmin")},
    schemas={("main", "public"): SchemaRecord("main", "public", "sysadmin")},
    stores={"k": StoreRecord("1", "k", "kafka", {"uris": "b:9092"}, "sysadmin")},
    relations={
        ("main", "public", name): relation(name, kind)
        for name, kind in (("pageviews", "stream"), ("users", "changelog"), ("totals", "materialized_view"))
    },
)


def session() -> Session:
    return Session(user="admin", database="main", store="k")
