"""What DESCRIBE <statement> shows of a statement: its kind, what it would make, read and write, and its plan.

Owns: ``Explained`` and the words in which a plan is shown. Must not know: which statements can be described.
Start reading at ``Explained``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pgstream.catalog.records import RelationRecord
from pgstream.planner.explain import explain, physical
from pgstream.planner.plan import Kept, Plan, RecordSink, ResultSink, TableSink, ViewSink, output_mode, outputs
from pgstream.planner.real_time import DELIVERY


@dataclass(frozen=True, slots=True)
class Explained:
    """``kind`` as in ``statements.md`` "DESCRIBE <statement>"; objects as ``relation_facts`` makes them."""

    kind: str
    ddl: Mapping[str, Any] | None = None
    sink: Mapping[str, Any] | None = None
    sources: tuple[Mapping[str, Any], ...] = ()
    plan: Plan | None = None

    @property
    def info(self) -> dict[str, Any]:
        out: dict[str, Any] = {}
        if self.ddl is not None:
            out["ddl"] = self.ddl
        if self.sink is not None:
            out["sink"] = self.sink
        if self.sources:
            out["sources"] = list(self.sources)
        return out

    @property
    def steps(self) -> str | None:
        """The plan, for a person."""
        return plan_text(self.plan) if self.plan is not None else None

    @property
    def operators(self) -> str | None:
        """How the plan runs, for a person."""
        return physical_text(self.plan) if self.plan is not None else None


def relation_facts(r: RelationRecord) -> dict[str, Any]:
    """A relation in the words of DESCRIBE <statement>."""
    return {
        "fqn": str(r.full),
        "type": r.kind.upper(),
        "db_name": r.full.database,
        "schema_name": r.full.schema,
        "name": r.full.name,
        "store_name": r.store,
    }


def plan_text(plan: Plan) -> str:
    """A plan as an indented tree, the sink first; of an application each."""
    how = f", {DELIVERY}" if plan.real_time else ""
    return "\n\n".join(f"{_sink(sink)}{how}\n{explain(node)}" for node, sink in outputs(plan))


def physical_text(plan: Plan) -> str:
    """The operators of a plan as an indented tree, the last first; of an application each."""
    mode = "real time" if plan.real_time else f"output mode {output_mode(plan.root)}"
    return "\n\n".join(f"Spark query, {mode}\n{physical(node)}" for node, _ in outputs(plan))


def _sink(sink: Kept | ResultSink) -> str:
    match sink:
        case ViewSink() as s:
            key = f", key {', '.join(s.key)}" if s.key else ""
            return f"Materialized view {s.relation}, {s.mode}{key}"
        case RecordSink() as s:
            key = f", key {s.key_format} of {', '.join(s.key_columns)}" if s.key_columns else ""
            return f"Sink {s.relation}, store {s.store}, entity {s.entity}, {s.mode}, value {s.value_format}{key}"
        case TableSink() as s:
            key = f", key {', '.join(s.key)}" if s.key else ""
            return f"Table {s.relation}, store {s.store}, entity {s.entity}, {s.mode}{key}"
        case ResultSink() as s:
            return "Result" + (f", limit {s.limit}" if s.limit is not None else "")
