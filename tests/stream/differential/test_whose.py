"""Random queries are told from PostgreSQL's by their text, whatever their CTEs hide: no Spark, no server."""

from __future__ import annotations

from dataclasses import replace

from pgstream import statements
from pgstream.statements.create_as import CreateMaterializedViewAs
from pgstream.statements.select import SelectStream
from tests.stream.differential import data, queries
from tests.unit.statements.snapshots import SNAPSHOT, session


def test_what_reads_a_stream_is_ours() -> None:
    records = [*(r.record for r in data.relations("1")), data.view("public")]
    relations = {("main", "public", r.full.name): replace(r, owner="sysadmin") for r in records}
    snapshot = replace(SNAPSHOT, relations=relations)
    for seed in range(1000):
        text = queries.case(str(seed)).ours
        assert statements.recognize(text, snapshot, session()) is SelectStream, text
        made = f"CREATE MATERIALIZED VIEW v AS {text}"
        assert statements.recognize(made, snapshot, session()) is CreateMaterializedViewAs, made
