"""Relations of a FROM by their names: sources, and windows around them.

Owns: what a relation's step and scope are, the checks of a window function's arguments. Must not know: queries, CTEs.
Start reading at ``Relations.named``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from pgstream import stores, types
from pgstream.catalog.records import RelationRecord, Snapshot
from pgstream.errors import InvalidStatement, NotYet, TooComplex, UndefinedRelation
from pgstream.names import FullName, QName
from pgstream.planner import plan, sources
from pgstream.planner.answers import Answers, Named
from pgstream.planner.bind import Column, Item, Scope
from pgstream.planner.plan import WINDOW_BOUNDS
from pgstream.planner.steps import Bounds, Step, watermarked
from pgstream.properties import Given
from pgstream.sql.dialect import WindowCall
from pgstream.sql.select import Select, qname

MOST = 128
"""Relations that a query reads, one that it reads twice counted twice: a few CTEs that name each other twice would be
more than there is room for."""
_ONCE = "A CTE, or a relation of an application, is read as often as it is named: keep it as a stream of its own."
_WINDOW_TYPE = types.Type("TIMESTAMP", (3,))


@dataclass(frozen=True, slots=True)
class Virtual:
    """A relation of an application that is no more than its query; ``database`` and ``schema`` are those of names in
    it.
    """

    record: RelationRecord
    select: Select
    database: str
    schema: str


@dataclass(slots=True)
class Relations:
    """The catalogue as one statement sees it. ``read`` collects the relations that are read, in the order of the text;
    ``met`` those that it names: a virtual one (``virtuals``) stands there for what it reads. ``ttls``: how long the
    state of what is made of each is kept, in ms. ``want``: see ``plan_select``. ``opened``: all that were, each
    time.
    """

    snapshot: Snapshot
    database: str
    schema: str
    want: str
    read: list[RelationRecord] = field(default_factory=list)
    answers: Answers = field(default_factory=Answers)
    virtuals: Mapping[FullName, Virtual] | None = None
    met: list[RelationRecord] = field(default_factory=list)
    ttls: list[int | None] = field(default_factory=list)
    opened: list[RelationRecord] = field(default_factory=list)

    def virtual(self, name: QName) -> Virtual | None:
        """The virtual relation that a name means."""
        return (self.virtuals or {}).get(self.snapshot.full_name(name, self.database, self.schema))

    def within(self, virtual: Virtual) -> Relations:
        """For the query of a virtual relation: what it reads is read here, too."""
        self.met.append(virtual.record)
        return replace(self, database=virtual.database, schema=virtual.schema, want=virtual.record.kind, met=[])

    def known(self, name: QName) -> RelationRecord | None:
        """The relation of the catalogue that a name means."""
        return self.snapshot.relation(name, self.database, self.schema)

    def missing(self, name: QName) -> UndefinedRelation:
        """The error for a name that means no relation: to be raised."""
        return self.snapshot.no_relation(name, self.database, self.schema)

    def foreign(self, name: QName) -> RelationRecord | None:
        """The relation of PostgreSQL's own that a name means. Raises Unanswered."""
        full = self.snapshot.full_name(name, self.database, self.schema)
        return self.answers.named(Named(full)) if full.database in self.snapshot.databases else None

    def expire(self, tree: exp.Expr) -> bool:
        """Whether every relation of the catalogue that a query names says how long its state is kept."""
        tables = [t for t in tree.find_all(exp.Table) if isinstance(t.this, exp.Identifier)]
        if not any(sources.STATE_TTL.name in given(t) for t in tables):
            return False
        kept = [t for t in tables if self.known(qname(t)) is not None and self.looked_up(qname(t)) is None]
        return all(sources.STATE_TTL.name in given(t) for t in kept)

    def looked_up(self, name: QName) -> RelationRecord | None:
        """The table of a store that a name means, if the store answers for rows of a stream."""
        found = self.known(name) if self.virtual(name) is None else None
        return found if found is not None and sources.is_looked_up(found, self.snapshot) else None

    def is_view(self, node: exp.Table) -> bool:
        """Whether a relation is a materialized view."""
        relation = self.known(qname(node))
        return relation is not None and relation.kind == "materialized_view"

    def named(self, node: exp.Table, alias: str) -> tuple[Step, Scope]:
        """The step that reads a relation. Errors: UndefinedRelation, NotYet, InvalidStatement."""
        name, window = qname(node), node.meta.get("window")
        if self.known(name) is None:
            if self.foreign(name) is None:
                raise self.missing(name)
            raise NotYet(
                what="a table of PostgreSQL as the source of a continuous query", at=name.at,
                hint="Its rows can be looked up: FROM stream JOIN table ON …"
                + "; PostgreSQL's own CREATE MATERIALIZED VIEW ends with WITH DATA." * (self.want == "view"),
            )  # fmt: skip
        relation = sources.find(name, self.snapshot, self.database, self.schema)
        self.opened.append(relation)
        if len(self.opened) > MOST:
            raise TooComplex(what="the query", detail=f"It reads more than {MOST} relations.", hint=_ONCE, at=name.at)
        self.read.append(relation)
        self.met.append(relation)
        label = alias or name.name
        columns = tuple(Column(c.name, c.name, c.type) for c in relation.columns)
        step = self._source(relation, columns, node, label, name)
        path = () if alias else tuple(relation.full.path)
        kind = None if relation.store is None else stores.find(self.snapshot.store_of(relation).type)
        return step, windowed(Scope((Item(label, columns, path, relation, kind, at=name.at),)), window)

    def _source(
        self, relation: RelationRecord, columns: tuple[Column, ...], node: exp.Table, label: str, name: QName
    ) -> Step:
        source: plan.Source | plan.ViewSource
        if relation.kind == "materialized_view":
            if self.want == "result":
                raise NotYet(
                    what="reading the changes of a materialized view in an interactive SELECT", at=name.at,
                    hint="Keep the result: CREATE MATERIALIZED VIEW … AS SELECT …",
                )  # fmt: skip
            source = sources.open_view(relation, label, given(node), name.at)
        else:
            source = sources.open_source(relation, label, given(node), self.snapshot, name.at)
        self.ttls.append(sources.state_ttl(given(node)))
        times = frozenset(() if source.timestamp is None else (source.timestamp,))
        step, mode = Step(source, columns, times=times), plan.mode(source)
        if mode == "retract":
            return replace(step, mode=mode, kind="changelog", keyless=True, placed=False)
        if mode == "upsert":
            return replace(step, mode=mode, kind="changelog", key=relation.primary_key)
        return step


def given(node: exp.Table) -> Mapping[str, Given]:
    """The properties in WITH after a relation."""
    hints = node.args.get("hints") or []
    found: Mapping[str, Given] = hints[0].meta["given"] if hints else {}
    return found


def _check_window(window: WindowCall) -> None:
    if window.size_ms % window.advance_ms:
        raise InvalidStatement(
            what=f"the size of {window.kind.upper()} must be a multiple of its advance", at=window.at
        )  # fmt: skip


def check_window_input(step: Step, window: WindowCall, otherwise: str = ", or group it by time") -> None:
    """That the rows of a window function only come: those of a stream, or of windows that are final. Error: NotYet."""
    if step.mode != "append":
        raise NotYet(
            what="a window over a changelog", at=window.at, hint=f"Declare its topic as a stream{otherwise}."
        )  # fmt: skip
    if step.kind == "changelog" and window.kind == "session":
        raise NotYet(
            what="a session of windows", at=window.at, hint="Write them into a topic, and declare it as a stream."
        )


def windowed(scope: Scope, window: WindowCall | None) -> Scope:
    """The one relation of a scope with a window function around it. Error: InvalidStatement."""
    if window is None:
        return scope
    _check_window(window)
    [item] = scope.items
    bounds = tuple(Column(b, b, _WINDOW_TYPE, bound=True) for b in WINDOW_BOUNDS)
    columns = (*(c for c in item.columns if c.name not in WINDOW_BOUNDS), *bounds)
    return replace(scope, items=(replace(item, columns=columns, window=window),))


def opened(step: Step, scope: Scope) -> tuple[Step, Scope]:
    """The rows of a window function that is not grouped: its bounds are columns like any other."""
    window = scope.window
    if window is None:
        return step, scope
    check_window_input(step, window, "")
    items = tuple(
        replace(i, window=None, columns=tuple(replace(c, bound=False) for c in i.columns)) for i in scope.items
    )
    columns = tuple(c for i in items for c in i.columns)
    shape = plan.Window(window.kind, window.size_ms, window.advance_ms)
    bounds = Bounds.of(window)
    if window.kind == "session":
        # What a row was read from is not known of a whole session's.
        items = tuple(replace(i, relation=None) for i in items)
        node = _sessions(watermarked(step.node), shape, columns)
        made = Step(node, columns, joined=step.joined, stateful=True, placed=False, bounds=bounds)
        return made, replace(scope, items=items, placed=False)
    # Each row stands for itself, also a final one of other windows: it may be in several of these.
    made = replace(step, node=plan.Windows(step.node, shape), columns=columns, bounds=bounds)
    made = replace(made, kind="stream", key=(), keyless=False, other_key=())
    return made, replace(scope, items=items)


def _sessions(node: plan.Node, shape: plan.Window, columns: tuple[Column, ...]) -> plan.Node:
    """Each row with the bounds of its session, when that closes: gathered, and given out in the order of event time."""
    kept = [c for c in columns if c.field not in WINDOW_BOUNDS]
    row = ", ".join(["`__time` AS t", *(f"{c.sql} AS c{i}" for i, c in enumerate(kept))])
    gathered = plan.Aggregate(node, [], [plan.Expr("__session", f"collect_list(struct({row}))")], shape, final=True)
    order = "(a, b) -> CASE WHEN a.t < b.t THEN -1 WHEN a.t > b.t THEN 1 ELSE 0 END"
    each = [plan.Expr(c.field, f"`__item`.c{i}") for i, c in enumerate(kept)]
    rows = plan.Unnest(gathered, plan.Expr("item", f"array_sort(`__session`, {order})"), each)
    return plan.Project(rows, [plan.Expr(c.field, Column(c.field, c.field).sql) for c in columns])
