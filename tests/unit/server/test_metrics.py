"""What Prometheus is told, read back by its own client's parser."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse
from prometheus_client.registry import CollectorRegistry

from pgstream.catalog.records import QueryRecord
from pgstream.engine.channel import Idle, Progress
from pgstream.engine.compute import PoolFacts
from pgstream.engine.lock import Holder
from pgstream.engine.progress import ProgressLog
from pgstream.server import metrics
from pgstream.server.counts import Counts, Figures
from pgstream.server.observe import _Once
from pgstream.server.processes import Usage
from pgstream.statements.queries import ListQueries

DOCS = Path(__file__).parents[3] / "docs"
QUERY = "11111111-2222-3333-4444-555555555555"
ODD = 'a "b"\\\nc'
"""A name with all that the text format escapes."""


async def nowhere(_news: object) -> None:
    pass


def progress(**changes: Any) -> Progress:
    sources = {ODD: {"offset": {"0": 7, "1": 3}, "latest": {"0": 9, "1": 3, "2": 4}, "lag": 6, "rows_in": 5}}
    given = {
        "began": "2026-01-01T00:00:00.000Z",
        "totals": {"batches": 3, "batch_ms": 1500, "rows_in": 9, "rows_out": 4},
    }
    return Progress(QUERY, 1, 5, 2, 1.5, 20, 3, 400, 1, "2026-01-01T00:00:00.000Z", sources, **(given | changes))


def seen(log: ProgressLog, queries: list[QueryRecord] | None) -> metrics.Seen:
    pool = PoolFacts("default", "running", "", Holder.HERE, 7, 2, 1, dict(log.latest), dict(log.fresh))
    counts = Counts()
    counts.ran(ListQueries, "00000", 0.25)
    counts.ran(ListQueries, "42601", 0.0)
    counts.connections = 4
    figures = (
        counts.figures(2, 1, {"28P01": 3}) + Figures(sessions=1, connections=1, refused=Counter({"": 1})).left_behind()
    )
    organization = metrics.OfOrganization("default", queries, [pool], {"default": Usage(10, 2.5)})
    return metrics.Seen(True, 1000, figures, 1, {"server": Usage(5, 1.5)}, [organization])


def samples(of: metrics.Seen) -> dict[tuple[str, ...], float]:
    """By name and the values of the labels."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(metrics.families(of)))
    found = {}
    for family in parse(generate_latest(registry).decode()):
        for s in family.samples:
            order = metrics.FAMILIES[family.name].labels
            found[s.name, *(s.labels[name] for name in order)] = s.value
    told = [s for f in parse_openmetrics(openmetrics(registry).decode()) for s in f.samples]
    assert len(told) == len(found)
    return found


def query() -> QueryRecord:
    return QueryRecord(
        QUERY, None, 1, "materialized_view", "CREATE … 'password'", b"{}", "sysadmin", "main", (ODD,), (ODD,), ("s",),
        actual="running", attempt=2, message="could not log in as bob",
    )  # fmt: skip


async def test_every_figure_is_told_under_its_labels() -> None:
    log = ProgressLog(nowhere)
    log.add(progress())
    got = samples(seen(log, [query()]))
    of = ("default", QUERY, ODD, "default")
    assert got["pgstream_sessions",] == 2
    assert got["pgstream_connections_total",] == 5
    assert got["pgstream_connections_refused_total", "28P01"] == 3
    assert got["pgstream_connections_refused_total", ""] == 1
    assert got["pgstream_statements_total", "LIST QUERIES", "42601"] == 1
    assert got["pgstream_statement_seconds_count", "LIST QUERIES"] == 2
    assert got["pgstream_statement_seconds_sum", "LIST QUERIES"] == 0.25
    assert got["pgstream_pool_state", "default", "default", "running"] == 1
    assert got["pgstream_pool_lock", "default", "default"] == 1
    assert got["pgstream_pool_memory_bytes", "default", "default"] == 10
    assert got["pgstream_query_state", *of, "running"] == 1
    assert got["pgstream_query_rows_in_total", *of] == 9
    assert got["pgstream_query_batch_seconds_sum", *of] == 1.5
    assert got["pgstream_query_lag_records", *of, ODD, "0"] == 2
    assert got["pgstream_query_lag_records", *of, ODD, "2"] == 4
    assert got["pgstream_query_watermark_timestamp_seconds", *of] == dt.datetime(2026, 1, 1, tzinfo=dt.UTC).timestamp()
    assert not any("password" in label or "bob" in label for labels in got for label in labels)


async def test_freshness_is_the_age_of_the_last_moment_of_which_nothing_is_missing() -> None:
    log = ProgressLog(nowhere)

    def told() -> float | None:
        return samples(seen(log, [query()])).get(("pgstream_query_freshness_seconds", "default", QUERY, ODD, "default"))

    def ago(seconds: float) -> str:
        return (dt.datetime.now(dt.UTC) - dt.timedelta(seconds=seconds)).isoformat()

    log.add(progress(began=ago(100), caught_up=False))
    assert told() is None  # it has never had everything
    log.add(progress(began=ago(90), caught_up=True))
    assert 90 <= told() < 95
    log.add(progress(began=ago(10), caught_up=False))
    assert 90 <= told() < 95
    log.idle(Idle(QUERY, ago(5)))
    assert 5 <= told() < 10
    log.forget(QUERY)
    assert told() is None


async def test_without_the_catalogue_the_rest_is_told() -> None:
    got = samples(seen(ProgressLog(nowhere), None))
    assert got["pgstream_catalogue_up", "default"] == 0
    assert got["pgstream_sessions",] == 2
    assert not any(name.startswith("pgstream_query") for name, *_ in got)


def expressions() -> list[str]:
    """Of the Grafana board, and of the page that says what to watch."""
    board = json.loads((DOCS / "grafana.json").read_text())
    shown = [t["expr"] + " " + t["legendFormat"] for panel in board["panels"] for t in panel.get("targets", ())]
    page = (DOCS / "howto" / "observe.md").read_text()
    return shown + re.findall(r"^\|.*\| `(.*pgstream_.*)` \|$", page, re.M)


@pytest.mark.parametrize("expression", expressions())
def test_what_the_board_and_the_page_ask_for_is_told(expression: str) -> None:
    told = {
        name + end: {*family.labels, "instance"}
        for name, family in metrics.FAMILIES.items()
        for end in {"gauge": [""], "counter": ["_total"], "summary": ["_count", "_sum"]}[family.kind]
    }
    names = re.findall(r"\bpgstream_\w+", expression)
    assert names and set(names) <= told.keys()
    for group in re.findall(r"\b(?:by|without) \(([^)]*)\)", expression) + re.findall(r"\{\{(\w+)\}\}", expression):
        assert all(set(group.split(", ")) <= told[name] for name in names)
    for name, chosen in re.findall(r"\b(pgstream_\w+)\{([^}]*)\}", expression):
        assert set(re.findall(r"(\w+)(?:=~|!=|=)\"", chosen)) <= told[name]
    assert expression.count("(") == expression.count(")") and expression.count("[") == expression.count("]")
