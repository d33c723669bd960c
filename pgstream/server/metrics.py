"""What Prometheus is told: the figures of the processes, the pools and the queries, by name.

Owns: every metric's name, labels and sentence; ``docs/howto/observe.md`` is checked against ``FAMILIES``. Labels are
names of objects, kinds, states, SQLSTATEs and numbers: no text of a statement, no option of a store, no value.
Must not know: HTTP (``observe``), where the figures come from. Start reading at ``families``.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

import pgstream
from pgstream.catalog.records import QueryRecord
from pgstream.engine.compute import PoolFacts
from pgstream.engine.lock import Holder
from pgstream.server.counts import Figures
from pgstream.server.processes import Usage

POOL = ("organization", "pool")
QUERY = ("organization", "query", "sink", "pool")
SOURCE = (*QUERY, "relation", "partition")


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: ``gauge``, ``counter`` (its samples end in ``_total``) or ``summary``."""

    kind: str
    say: str
    labels: tuple[str, ...] = ()


FAMILIES: dict[str, Family] = {
    "pgstream_build_info": Family("gauge", "1; the version of this server.", ("version",)),
    "pgstream_ready": Family("gauge", "1 when /ready says yes."),
    "pgstream_catalogue_up": Family("gauge", "1 when the catalogue answers.", ("organization",)),
    "pgstream_process_memory_bytes": Family("gauge", "Resident memory of a process of this server.", ("process",)),
    "pgstream_process_cpu_seconds": Family("counter", "Processor time of a process of this server.", ("process",)),
    "pgstream_listener_process_ends": Family("counter", "Listener processes that ended and were started again."),
    "pgstream_sessions": Family("gauge", "Client sessions that are open."),
    "pgstream_sessions_limit": Family("gauge", "Setting max_connections."),
    "pgstream_sessions_starting": Family("gauge", "Connections that are not authenticated yet."),
    "pgstream_connections": Family("counter", "Connections that clients made."),
    "pgstream_connections_refused": Family(
        "counter", "Clients that were refused, by SQLSTATE; empty where the protocol gives none.", ("sqlstate",)
    ),
    "pgstream_received_bytes": Family("counter", "Bytes that clients sent."),
    "pgstream_relayed_bytes": Family("counter", "Bytes that PostgreSQL answered and clients were sent as they came."),
    "pgstream_relayed_statements": Family("counter", "Queries and Syncs that PostgreSQL answered to clients."),
    "pgstream_relayed_errors": Family("counter", "Errors of PostgreSQL that clients were sent."),
    "pgstream_statements": Family(
        "counter", "Statements of pgstream, by their first words and SQLSTATE (00000: success).", ("kind", "sqlstate")
    ),
    "pgstream_statement_seconds": Family(
        "summary", "Time that statements of pgstream took, but for rows that stream.", ("kind",)
    ),
    "pgstream_pool_state": Family(
        "gauge", "1 for the state that a compute pool has here: running, starting or stopped.", (*POOL, "state")
    ),
    "pgstream_pool_lock": Family("gauge", "1 when this server has the pool, 0 when another has or nobody.", POOL),
    "pgstream_pool_worker_starts": Family("counter", "Workers that were started for a pool.", POOL),
    "pgstream_pool_memory_bytes": Family("gauge", "Resident memory of a pool's worker and its JVM.", POOL),
    "pgstream_pool_cpu_seconds": Family("counter", "Processor time of a pool's worker and its JVM.", POOL),
    "pgstream_pool_streams": Family("gauge", "Interactive streaming SELECTs that run in a pool.", POOL),
    "pgstream_query_state": Family(
        "gauge",
        "1 for the state that a query has in the catalogue; every server tells it.",
        (*QUERY, "state"),
    ),
    "pgstream_query_attempts": Family("gauge", "Starts of a query since it was created.", QUERY),
    "pgstream_query_freshness_seconds": Family(
        "gauge", "How long ago the moment is up to which a query has everything that came to its sources.", QUERY
    ),
    "pgstream_query_rows_in": Family("counter", "Rows that a query read since it was started.", QUERY),
    "pgstream_query_rows_out": Family("counter", "Rows or changes that a query wrote since it was started.", QUERY),
    "pgstream_query_batch_seconds": Family("summary", "Micro-batches of a query since it was started.", QUERY),
    "pgstream_query_last_batch_seconds": Family("gauge", "Time that the newest told micro-batch took.", QUERY),
    "pgstream_query_late_rows": Family("counter", "Rows dropped for being too late, since the query started.", QUERY),
    "pgstream_query_bad_records": Family("counter", "Records that could not be read, since the query started.", QUERY),
    "pgstream_query_state_rows": Family("gauge", "Rows in a query's state.", QUERY),
    "pgstream_query_state_bytes": Family("gauge", "Memory of a query's state as Spark reports it.", QUERY),
    "pgstream_query_watermark_timestamp_seconds": Family("gauge", "A query's watermark.", QUERY),
    "pgstream_query_lag_records": Family(
        "gauge", "Records of a partition that a query had still to read after its newest batch.", SOURCE
    ),
}
STATES = ("running", "starting", "stopped")


@dataclass(frozen=True, slots=True)
class OfOrganization:
    """What there is to see of one: ``queries`` None where the catalogue does not answer; ``used``: by pool."""

    name: str
    queries: Sequence[QueryRecord] | None
    pools: Sequence[PoolFacts]
    used: Mapping[str, Usage]


@dataclass(frozen=True, slots=True)
class Seen:
    """All that is shown at one look."""

    ready: bool
    limit: int
    figures: Figures
    ends: int
    processes: Mapping[str, Usage]
    organizations: Sequence[OfOrganization]


class _Made:
    """Families, filled one sample at a time."""

    def __init__(self) -> None:
        self.found: dict[str, Metric] = {}

    def add(self, name: str, labels: Iterable[str] = (), value: float = 1) -> None:
        self._family(name).add_metric(list(labels), value)

    def summary(self, name: str, labels: Iterable[str], count: float, total: float) -> None:
        self._family(name).add_metric(list(labels), count, total)

    def _family(self, name: str) -> Any:
        if name not in self.found:
            family = FAMILIES[name]
            of = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "summary": SummaryMetricFamily}
            self.found[name] = of[family.kind](name, family.say, labels=family.labels)
        return self.found[name]


def families(seen: Seen) -> list[Metric]:
    """Every family that has something to show."""
    out = _Made()
    out.add("pgstream_build_info", [pgstream.__version__])
    out.add("pgstream_ready", value=seen.ready)
    for name, used in seen.processes.items():
        out.add("pgstream_process_memory_bytes", [name], used.memory)
        out.add("pgstream_process_cpu_seconds", [name], used.cpu_s)
    _server(out, seen)
    for organization in seen.organizations:
        out.add("pgstream_catalogue_up", [organization.name], organization.queries is not None)
        for pool in organization.pools:
            _pool(out, organization, pool)
        _queries(out, organization)
    return list(out.found.values())


def _server(out: _Made, seen: Seen) -> None:
    f = seen.figures
    out.add("pgstream_listener_process_ends", value=seen.ends)
    out.add("pgstream_sessions", value=f.sessions)
    out.add("pgstream_sessions_limit", value=seen.limit)
    out.add("pgstream_sessions_starting", value=f.starting)
    out.add("pgstream_connections", value=f.connections)
    out.add("pgstream_received_bytes", value=f.received)
    out.add("pgstream_relayed_bytes", value=f.relayed)
    out.add("pgstream_relayed_statements", value=f.rounds)
    out.add("pgstream_relayed_errors", value=f.errors)
    for sqlstate, count in sorted(f.refused.items()):
        out.add("pgstream_connections_refused", [sqlstate], count)
    counts: dict[str, int] = {}
    for (kind, sqlstate), count in sorted(f.statements.items()):
        out.add("pgstream_statements", [kind, sqlstate], count)
        counts[kind] = counts.get(kind, 0) + count
    for kind, count in counts.items():
        out.summary("pgstream_statement_seconds", [kind], count, f.seconds[kind])


def _pool(out: _Made, organization: OfOrganization, pool: PoolFacts) -> None:
    labels = [organization.name, pool.name]
    for state in STATES:
        out.add("pgstream_pool_state", [*labels, state], pool.state == state)
    out.add("pgstream_pool_lock", labels, pool.holder is Holder.HERE)
    out.add("pgstream_pool_worker_starts", labels, pool.starts)
    out.add("pgstream_pool_streams", labels, pool.streams)
    if (used := organization.used.get(pool.name)) is not None:
        out.add("pgstream_pool_memory_bytes", labels, used.memory)
        out.add("pgstream_pool_cpu_seconds", labels, used.cpu_s)


_FIGURES = {
    "pgstream_query_late_rows": ("late_rows", 1),
    "pgstream_query_bad_records": ("bad_records", 1),
    "pgstream_query_state_rows": ("state_rows", 1),
    "pgstream_query_state_bytes": ("state_bytes", 1),
    "pgstream_query_last_batch_seconds": ("batch_ms", 0.001),
}


def _queries(out: _Made, organization: OfOrganization) -> None:
    progress = {id: found for pool in organization.pools for id, found in pool.progress.items()}
    fresh = {id: at for pool in organization.pools for id, at in pool.fresh.items()}
    now = time.time()
    for query in organization.queries or ():
        labels = [organization.name, query.id, ", ".join(query.sinks), query.pool]
        out.add("pgstream_query_state", [*labels, query.actual])
        out.add("pgstream_query_attempts", labels, query.attempt)
        if query.id in fresh:
            out.add("pgstream_query_freshness_seconds", labels, max(0.0, now - fresh[query.id]))
        if query.id in progress:
            _query(out, labels, progress[query.id])


def _query(out: _Made, labels: list[str], p: Mapping[str, Any]) -> None:
    for name, (figure, unit) in _FIGURES.items():
        out.add(name, labels, p[figure] * unit)
    if totals := p["totals"]:
        out.add("pgstream_query_rows_in", labels, totals["rows_in"])
        out.add("pgstream_query_rows_out", labels, totals["rows_out"])
        out.summary("pgstream_query_batch_seconds", labels, totals["batches"], totals["batch_ms"] / 1000)
    if p["watermark"] is not None:
        at = dt.datetime.fromisoformat(p["watermark"]).timestamp()
        out.add("pgstream_query_watermark_timestamp_seconds", labels, at)
    for relation, source in p["sources"].items():
        for partition, end in source.get("latest", {}).items():
            read = source.get("offset", {}).get(partition, 0)
            if isinstance(end, int) and isinstance(read, int):  # other places are not counted
                out.add("pgstream_query_lag_records", [*labels, relation, partition], max(0, end - read))
