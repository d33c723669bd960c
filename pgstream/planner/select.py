"""SELECT to plan: the planner's door.

Owns: the order of things (FROM, joins, WHERE, GROUP BY, HAVING, select list, UNION ALL, CTEs, subqueries), output
names, and which changelog mode, kind and key the result has. What is not whole yet is refused with its position.
Must not know: Spark beyond its SQL text, the sink, sessions. Everything is pure: a snapshot goes in, a plan comes out.
Start reading at ``plan_select``, then ``Planner.select``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from sqlglot import exp

from pgstream import types
from pgstream.catalog.records import RelationRecord, Snapshot
from pgstream.errors import (
    InvalidStatement,
    NotSupported,
    NotYet,
    PgStreamError,
)
from pgstream.planner import joins, plan, sources
from pgstream.planner import parameters as bound
from pgstream.planner.bind import WINDOW_BOUNDS, Column, Item, Scope, at, check_names
from pgstream.planner.expressions import Compiler, has_aggregate
from pgstream.planner.grouping import Grouped, aggregate, distinct_rows, group, needs_kernel
from pgstream.planner.outputs import Output, only, project, select_list
from pgstream.planner.steps import Step, wanting
from pgstream.properties import Given
from pgstream.sql.select import Select, fold, qname

_WINDOW_TYPE = types.Type("TIMESTAMP", (3,))
_REFUSED_CLAUSES = (
    ("order", "ORDER BY"),
    ("offset", "OFFSET"),
    ("qualify", "QUALIFY"),
    ("windows", "WINDOW"),
    ("laterals", "LATERAL"),
    ("into", "SELECT INTO"),
    ("kind", "SELECT AS STRUCT"),
    ("locks", "FOR UPDATE"),
    ("hint", "a hint"),
)


@dataclass(frozen=True, slots=True)
class Planned:
    """A planned select. ``key``: output names of a changelog's key. ``limit``: of an interactive select."""

    root: plan.Node
    mode: str
    kind: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    sources: tuple[RelationRecord, ...]
    stores: tuple[str, ...]
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Cte:
    """A common table expression: its query, and the names that held where it was written."""

    query: exp.Expr
    env: Mapping[str, Cte] = field(default_factory=lambda: MappingProxyType({}))


def plan_select(
    select: Select,
    snapshot: Snapshot,
    database: str,
    schema: str,
    want: str,
    *,
    parameters: Sequence[bound.Parameter] = (),
    expires: bool = False,
) -> Planned:
    """Plan a select for ``want``: view (early results), stream, changelog (final windows) or result (interactive).
    ``expires``: its state has a time to live.

    Errors: UndefinedRelation, UndefinedColumn, UndefinedFunction, GroupingError, NotYet … with ``at`` in the text.
    """
    planner = Planner(snapshot, database, schema, want, expires)
    try:
        tree = bound.bind(select.tree, parameters)
        limit = planner.take_limit(tree)
        step = planner.query(tree, {}, top=True, last=True)
    except PgStreamError as e:
        # What has no token of its own, such as an empty list, is said at the query.
        e.at = select.at if e.at is None else e.at
        raise
    if step.mode == "retract" and want != "result":
        # A topic holds the last record of a key: what is replaced must not be taken back after it.
        top = step.node if want == "view" else plan.Normalize(step.node, list(step.key), upserts=True)
        step = replace(step, node=top, mode="upsert")
    stores = dict.fromkeys(s for source in plan.sources(step.node) for s in (source.store, source.bad_record_store))
    return Planned(
        step.node,
        step.mode,
        step.kind,
        step.key,
        tuple(c.field for c in step.columns),
        tuple({r.id: r for r in planner.relations_read}.values()),
        tuple(s for s in stores if s is not None),
        limit,
    )


class Planner:
    """Plans one select. ``relations_read`` collects the relations met, in the order of the text."""

    def __init__(self, snapshot: Snapshot, database: str, schema: str, want: str, expires: bool) -> None:
        self.snapshot, self.database, self.schema, self.want = snapshot, database, schema, want
        self.expires = expires
        self.relations_read: list[RelationRecord] = []

    def take_limit(self, tree: exp.Expr) -> int | None:
        """The top query's LIMIT, for an interactive select; removed so that only inner ones are refused below."""
        limit = tree.args.get("limit")
        if limit is None or self.want != "result":
            return None
        count = limit.expression if isinstance(limit, exp.Limit) else None
        if count is None or not isinstance(count, exp.Literal) or not str(count.this).isdigit():
            raise NotSupported(what="LIMIT other than a whole number", at=at(limit))
        return int(str(count.this))

    # Queries

    def query(self, tree: exp.Expr, env: Mapping[str, Cte], top: bool = False, last: bool = False) -> Step:
        """Any query: a select, a union, or one of them in parentheses. ``last``: no operator with state is above it."""
        env = self._ctes(tree, env)
        if isinstance(tree, exp.Subquery):
            only(tree, "this", "with_", "limit" if top else "")
            return self.query(tree.this, env, top, last)
        if isinstance(tree, exp.SetOperation):
            return self._union(tree, env, top)
        if not isinstance(tree, exp.Select):
            raise NotYet(what=tree.key.upper(), at=at(tree))
        return self.select(tree, env, top, last)

    def _ctes(self, tree: exp.Expr, env: Mapping[str, Cte]) -> Mapping[str, Cte]:
        clause = tree.args.get("with_")
        if clause is None:
            return env
        if clause.args.get("recursive"):
            raise NotYet(what="WITH RECURSIVE", at=at(clause))
        for cte in clause.expressions:
            alias = cte.args["alias"]
            if alias.args.get("columns"):
                raise NotYet(what="a column list after the name of a CTE", at=at(alias))
            only(cte, "this", "alias")
            env = {**env, fold(alias.this): Cte(cte.this, env)}
        return env

    def _union(self, tree: exp.SetOperation, env: Mapping[str, Cte], top: bool) -> Step:
        if not isinstance(tree, exp.Union):
            raise NotYet(what=tree.key.upper(), at=at(tree.expression))
        if tree.args.get("distinct"):
            raise NotYet(what="UNION without ALL", at=at(tree.expression), hint="Use UNION ALL.")
        only(tree, "this", "expression", "distinct", "with_", "limit" if self.want == "result" and top else "")
        steps = [self.query(tree.this, env), self.query(tree.expression, env)]
        for side, step in zip((tree.this, tree.expression), steps, strict=True):
            if not step.is_plain:
                raise NotYet(what="UNION ALL over a changelog", at=at(side))
        first, second = steps
        if len(first.columns) != len(second.columns):
            raise InvalidStatement(
                what="each UNION query must have the same number of columns", at=at(tree.expression)
            )  # fmt: skip
        inputs = [*(first.node.inputs if isinstance(first.node, plan.Union) else [first.node]), second.node]
        columns = tuple(
            c if c.type == other.type else replace(c, type=None)
            for c, other in zip(first.columns, second.columns, strict=True)
        )
        if top and self.want != "result":
            check_names(columns)
        return Step(plan.Union(inputs), columns, joined=any(s.joined for s in steps), placed=False)

    def select(self, tree: exp.Select, env: Mapping[str, Cte], top: bool, last: bool) -> Step:
        """One SELECT."""
        self._refuse_clauses(tree, top)
        having = tree.args.get("having")
        found = next((n for n in (*tree.expressions, having) if n is not None and has_aggregate(n)), None)
        grouped = tree.args.get("group") or having or found
        distinct = tree.args.get("distinct")
        if distinct is not None:
            only(distinct)
        place = (top and distinct is None, last and distinct is None)
        step = self._rows(tree, env, place, grouped)
        return step if distinct is None else distinct_rows(step, top, self.want)

    def _rows(
        self, tree: exp.Select, env: Mapping[str, Cte], place: tuple[bool, bool], grouped: exp.Expr | None
    ) -> Step:
        """The select before DISTINCT. ``place``: whether it is the top query, and has no operator with state above."""
        top, last = place
        step, scope = self._from(tree, env, last and grouped is None)
        where = tree.args.get("where")
        wants: set[str] = set()
        if where is not None:
            step = self._filter(step, Compiler(scope, "WHERE"), where.this, wants)
        if grouped is None:
            if scope.window is not None:
                raise NotYet(what="a window without GROUP BY", at=scope.window.at)
            rows = Compiler(scope, "the select list")
            outputs = select_list(tree, scope, rows)
            step = replace(step, node=wanting(step.node, wants | rows.wants))
            return self._project(step, outputs, tree, top)
        return self._grouped(tree, step, scope, wants, place)

    def _grouped(self, tree: exp.Select, step: Step, scope: Scope, wants: set[str], place: tuple[bool, bool]) -> Step:
        top, last = place
        grouping = group(tree, scope, tree.expressions, needs_kernel(tree, step, scope, last and not self.expires))
        compiler = Grouped(scope, grouping, "the select list")
        outputs = select_list(tree, scope, compiler)
        having = tree.args.get("having")
        condition = compiler.compile(having.this) if having is not None else None
        wants = wants | grouping.wants | compiler.inside.wants
        made = aggregate(step, scope, grouping, wants, last and self.want == "view")
        if condition is not None and having is not None:
            made = replace(made, node=plan.Filter(made.node, plan.Expr("having", condition.sql, at(having.this))))
        return self._project(made, outputs, tree, top)

    def _project(self, step: Step, outputs: list[Output], tree: exp.Select, top: bool) -> Step:
        return project(step, outputs, tree, top, shown=self.want == "result")

    def _filter(self, step: Step, compiler: Compiler, condition: exp.Expr, wants: set[str]) -> Step:
        sql = compiler.sql(condition)
        wants |= compiler.wants
        return replace(step, node=plan.Filter(step.node, plan.Expr("where", sql, at(condition))))

    def _refuse_clauses(self, tree: exp.Select, top: bool) -> None:
        for key, words in _REFUSED_CLAUSES:
            if tree.args.get(key):
                raise NotYet(what=words, at=_place(tree.args[key], tree))
        if tree.args.get("limit") and not (top and self.want == "result"):
            raise NotSupported(
                what="LIMIT in a continuous query", at=at(tree.args["limit"]), hint="It has no end to count from."
            )
        if not tree.args.get("from_"):
            raise NotSupported(what="a continuous query without FROM", at=at(tree))
        only(
            tree,
            "with_",
            "expressions",
            "distinct",
            "from_",
            "where",
            "group",
            "having",
            "joins",
            "limit",
            "operation_modifiers",
        )

    # FROM

    def _from(self, tree: exp.Select, env: Mapping[str, Cte], last: bool) -> tuple[Step, Scope]:
        step, scope = self._relation(tree.args["from_"].this, env, last and not tree.args.get("joins"))
        if "within" in tree.args["from_"].this.meta:
            raise InvalidStatement(
                what="WITHIN stands after the right relation of a join", at=tree.args["from_"].this.meta["within"][1]
            )
        for join in tree.args.get("joins") or []:
            right, right_scope = self._relation(join.this, env)
            step, scope = joins.join(step, scope, join, right, right_scope)
            if self.expires and isinstance(step.node, plan.TemporalJoin):
                raise NotYet(what="a time to live of the state of a temporal join", at=at(join))
        return step, scope

    def _relation(self, node: exp.Expr, env: Mapping[str, Cte], last: bool = False) -> tuple[Step, Scope]:
        alias = node.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            raise NotYet(what="a column list after an alias", at=at(alias))
        name = fold(alias.this) if alias is not None else ""
        if isinstance(node, exp.Subquery):
            only(node, "this", "alias", "with_")
            step = self.query(node.this, self._ctes(node, env), last=last)
            return step, Scope((Item(name or "unnamed_subquery", step.columns, at=at(node)),), placed=step.placed)
        if not isinstance(node, exp.Table):
            raise NotYet(what=node.key.upper(), at=at(node))
        if not isinstance(node.this, exp.Identifier):
            raise NotYet(what="a table function", at=at(node))
        only(node, "this", "db", "catalog", "alias", "hints")
        return self._named(node, name, env, last)

    def _named(self, node: exp.Table, alias: str, env: Mapping[str, Cte], last: bool) -> tuple[Step, Scope]:
        name, window = qname(node), node.meta.get("window")
        hints = node.args.get("hints") or []
        given: dict[str, Given] = hints[0].meta["given"] if hints else {}
        cte = env.get(name.name) if len(name.parts) == 1 else None
        if cte is not None:
            if window is not None:
                raise NotSupported(what="a CTE in a window function", at=name.at)
            if given:
                raise NotSupported(what="WITH after a CTE", at=next(iter(given.values())).at)
            step = self.query(cte.query, cte.env, last=last)
            return step, Scope((Item(alias or name.name, step.columns, at=name.at),), placed=step.placed)
        relation = sources.find(name, self.snapshot, self.database, self.schema)
        self.relations_read.append(relation)
        label = alias or name.name
        source = sources.open_source(relation, label, given, self.snapshot, name.at)
        columns = tuple(Column(c.name, c.name, c.type) for c in relation.columns)
        step = Step(source, columns)
        if relation.kind == "changelog":
            step = replace(step, mode="upsert", kind="changelog", key=relation.primary_key)
        if window is not None:
            if window.size_ms % window.advance_ms:
                raise InvalidStatement(
                    what=f"the size of {window.kind.upper()} must be a multiple of its advance", at=window.at
                )
            bounds = tuple(Column(b, b, _WINDOW_TYPE, bound=True) for b in WINDOW_BOUNDS)
            columns = (*(c for c in columns if c.name not in WINDOW_BOUNDS), *bounds)
        path = () if alias else tuple(relation.full.path)
        return step, Scope((Item(label, columns, path, relation, window, name.at),))


def _place(clause: object, tree: exp.Expr) -> int | None:
    found = at(clause) if isinstance(clause, exp.Expr) else None
    return at(tree) if found is None else found
