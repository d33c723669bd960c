"""INSERT INTO … SELECT: a continuous query into a relation that is there.

Owns: the grammar, and how output columns fill the sink's: by position, or those of a list in its order, as PostgreSQL
does it (the manual is silent).
Must not know: how a select is planned or a query started.
Manual: "INSERT INTO". INSERT INTO of PostgreSQL's own tables never comes here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from pgstream import types
from pgstream.catalog.records import ColumnRecord, RelationRecord
from pgstream.errors import (
    DuplicateColumn,
    InvalidOption,
    InvalidStatement,
    NotSupported,
    NotYet,
    TypeMismatch,
    UndefinedColumn,
    WrongKind,
)
from pgstream.names import Name, QName, closest, quote_spark
from pgstream.planner.held import lateness
from pgstream.planner.plan import Expr, Project
from pgstream.planner.select import Planned
from pgstream.properties import Options
from pgstream.sql.cursor import Cursor
from pgstream.sql.select import Select
from pgstream.statements import access, continuous, places, postgres_queries, sinks
from pgstream.statements.access import Need
from pgstream.statements.answers import ddl, done
from pgstream.statements.base import DDL_ROW, Context, Result, Statement
from pgstream.statements.continuous import Prepared
from pgstream.statements.create_as import output
from pgstream.statements.declared import Declared
from pgstream.statements.explained import Explained, relation_facts
from pgstream.stores.shared import LATENESS, LATENESS_MS
from pgstream.stores.spec import Can

# A type takes values of the types to its left in its row without loss.
_WIDENING = (("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "DECIMAL", "FLOAT", "DOUBLE"), ("VARBINARY", "BYTES"),
             ("BYTES", "VARBINARY"))  # fmt: skip

_CONSTANT = re.compile(r"'(?:[^'\\]++|\\.|'')*+'|-?\d[\w.+-]*|true|false", re.I | re.S)  # a literal as Spark SQL


@dataclass(frozen=True, slots=True)
class InsertInto(Statement):
    """INSERT INTO relation_name [( column [, ...] )] [WITH ( 'parameter' = value [, ...] )] select_statement
    [PARTITION BY column [, ...]] [QUERY WITH ( 'parameter' = value [, ...] )];

    Start a continuous query that writes into an existing stream, changelog or table, exactly once. The select's columns
    fill the relation's, or those that are listed, by position and take their types; others are NULL. The record key is
    made of the PARTITION BY columns (named as in the relation), or as the relation says. A changelog's primary key is
    filled by the key of the select, and by constants beside it, which tell the rows of several selects apart. A table
    with a primary key has one row of each, a later one in place of an earlier; a table without has every row. WITH
    tunes this query's producer ('kafka.producer.linger.ms'). QUERY WITH ('execution.mode' = 'realtime') writes each
    record as it comes, at least once, as in CREATE STREAM AS SELECT. The answer is the query's row.
    """

    words: ClassVar = ("INSERT", "INTO")
    tag: ClassVar = "INSERT 0 0"
    columns: ClassVar = DDL_ROW

    name: QName
    listed: tuple[Name, ...]
    given: Options
    select: Select
    partition_by: tuple[Name, ...]
    query_with: Options

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        name = c.qname()
        is_list = c.peek("(") and not (c.peek("(", "SELECT") or c.peek("(", "WITH") or c.peek("(", "("))
        listed = tuple(c.name_list()) if is_list else ()
        if c.peek("VALUES") or c.peek("DEFAULT"):  # ``insert_values`` has those that stand by themselves
            raise NotSupported(
                what="INSERT INTO … VALUES in another statement", at=c.at,
                hint="It writes records at once; a query is INSERT INTO … SELECT.",
            )  # fmt: skip
        given = c.properties() if c.peek("WITH", "(") and c.accept("WITH") else {}
        select = c.select()
        partition_by = c.partition_by()
        query_with = c.query_with()
        c.end()
        return cls(name, listed, given, select, partition_by, query_with)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need("create_query"), Need("insert", "relation", self.name), *access.reads(self.select),
                access.runs(ctx.session))  # fmt: skip

    async def execute(self, ctx: Context) -> Result:
        query = await continuous.begin(ctx, self.select.text, await self.prepare(ctx), self.name.at)
        return done(self.tag, ddl("query", query.id, "CREATE", [query.id]))

    async def explain(self, ctx: Context) -> Explained:
        p = await self.prepare(ctx)
        sources = tuple(relation_facts(s) for s in p.planned.sources)
        return Explained("INSERT_INTO", sink=relation_facts(p.into), sources=sources, plan=p.plan)

    async def prepare(self, ctx: Context) -> Prepared:
        """Everything checked and typed; no effects."""
        into = self._into(ctx)
        want = {"stream": "stream", "table": "view"}.get(into.kind, "changelog")
        options = continuous.query_options(self.query_with)
        planned = await postgres_queries.plan(ctx, self.select, want, expires=options.expires)
        if into.kind != "stream" and self.partition_by:
            raise InvalidStatement(
                what=f"PARTITION BY cannot be used in INSERT INTO a {into.label}",
                at=self.partition_by[0].at,
                hint="Its record key is the primary key." if into.kind == "changelog" else "A table has no record key.",
            )
        if into.kind == "stream":
            sinks.check_kind(planned, "stream", "INSERT INTO a stream", self.select.at)
        columns = await continuous.analyze(ctx, planned.root)
        filling = self._targets(into, len(columns))
        filled = replace(planned, root=self._fill(into, filling, planned, columns))
        self._check_primary_key(into, filling, planned, columns)
        if into.kind == "table":
            return self._table(ctx, into, planned, filled, options)
        d = sinks.settle(
            placed(ctx, into, self.partition_by, self.given),
            planned,
            into.columns,
            self.partition_by,
            into.primary_key,
            at=self.select.at,
        )
        options = continuous.query_options(self.query_with)
        names = [c.name for c in into.columns]
        plan = continuous.plan(ctx, filled, sinks.record_sink(into, d, planned.mode, names), into.columns, options)
        late = lateness(planned.root)
        if late is not None and late > int(into.properties.get(LATENESS.name, LATENESS_MS)):
            ctx.notice(
                f'some rows come so much later than others that queries over "{into.full.name}" take them'
                f" for late, unless they read it WITH ('{LATENESS.name}' = {late})"
            )
        return Prepared("insert_into", plan, planned, options, into, None, d)

    def _table(
        self, ctx: Context, into: RelationRecord, planned: Planned, filled: Planned, options: continuous.QueryOptions
    ) -> Prepared:
        d = placed(ctx, into, (), self.given)
        plan = continuous.plan(ctx, filled, sinks.table_sink(into, d, planned, self.select.at), into.columns, options)
        return Prepared("insert_into", plan, planned, options, into, None, d)

    def _into(self, ctx: Context) -> RelationRecord:
        into = places.relation(ctx, self.name)
        if into.kind not in ("stream", "changelog", "table") or into.store is None:
            raise WrongKind(name=str(self.name), is_a=into.label, wanted="stream or changelog", at=self.name.at)
        places.store_type(ctx.snapshot.store_of(into)).require(Can.SINK, self.name.at)
        return into

    def _targets(self, into: RelationRecord, given: int) -> Sequence[ColumnRecord]:
        """The columns that the select's fill, in its order; ``given``: how many those are."""
        if given < len(found := targets(into, self.listed)) and self.listed:
            what = "INSERT INTO has more target columns than expressions"
            raise InvalidStatement(what=what, at=self.listed[given].at)
        return found

    def _fill(
        self, into: RelationRecord, targets: Sequence[ColumnRecord], planned: Planned, columns: Sequence[ColumnRecord]
    ) -> Project:
        if len(columns) > len(targets):
            raise InvalidStatement(
                what="INSERT INTO has more expressions than target columns", at=self._at(planned, len(targets))
            )
        of = {target.name: i for i, target in enumerate(targets[: len(columns)])}
        filled = []
        for target in into.columns:
            i = of.get(target.name)
            if i is None:
                if not target.nullable:
                    raise TypeMismatch(
                        what=f'column "{target.name}" cannot be null, and the select has no value for it',
                        at=self.select.at,
                    )
                filled.append(Expr(target.name, f"CAST(NULL AS {target.type.spark})"))
                continue
            found = columns[i]
            if not _takes(target.type, found.type):
                raise TypeMismatch(
                    what=f'column "{target.name}" is of type {target.type} but expression is of type {found.type}',
                    at=self._at(planned, i),
                    hint="You will need to rewrite or cast the expression.",
                )
            value = quote_spark(found.name)
            same = target.type.spark == found.type.spark
            filled.append(Expr(target.name, value if same else f"CAST({value} AS {target.type.spark})"))
        return Project(planned.root, filled)

    def _at(self, planned: Planned, index: int) -> int:
        expressions = output(planned)
        at = expressions[index].at if index < len(expressions) else None
        return at if at is not None else self.select.at

    def _check_primary_key(
        self, into: RelationRecord, targets: Sequence[ColumnRecord], planned: Planned, columns: Sequence[ColumnRecord]
    ) -> None:
        """Rows that replace each other must do so under the sink's key too."""
        if planned.mode != "upsert":
            return
        position = {c.name: i for i, c in enumerate(columns)}
        key = {targets[position[k]].name for k in planned.key if k in position}
        # A constant is the same for every row, so rows of one key of the select are of one key of the sink beside it.
        same = {t.name for t, e in zip(targets, output(planned), strict=False) if _CONSTANT.fullmatch(e.sql)}
        if planned.key and not into.primary_key:
            raise InvalidStatement(
                what=f'{into.label} "{into.full}" has no primary key, and rows of the select replace each other'
                f" by ({', '.join(planned.key)})",
                at=self.select.at,
                hint=f"A {into.label} that is declared with a PRIMARY KEY has the latest of each.",
            )
        if not key <= set(into.primary_key) <= key | same or len(key) < len(planned.key):
            raise InvalidStatement(
                what=f"the select's key ({', '.join(planned.key)}) does not fill the primary key "
                f'({", ".join(into.primary_key)}) of {into.label} "{into.full}"',
                at=self.select.at,
            )


def targets(into: RelationRecord, listed: Sequence[Name]) -> Sequence[ColumnRecord]:
    """Those of a list, in its order; all of them where there is none. Errors: UndefinedColumn, DuplicateColumn."""
    columns, found = {c.name: c for c in into.columns}, {}
    for name in listed:
        if name.text not in columns:
            raise UndefinedColumn(name=name.text, at=name.at, hint=closest(name.text, columns))
        if name.text in found:
            raise DuplicateColumn(name=name.text, at=name.at)
        found[name.text] = columns[name.text]
    return tuple(found.values()) or into.columns


def placed(ctx: Context, into: RelationRecord, partition_by: Sequence[Name], given: Options) -> Declared:
    """An existing relation as a sink. Its key columns: as it says, those its key's fields name, or the primary key."""
    store = ctx.snapshot.store_of(into)
    kind = places.store_type(store)
    properties = {k: v for k, v in into.properties.items() if k not in ("timestamp", "starting.position")}
    for g in given.values():
        if not kind.sending or not g.name.startswith(kind.sending):
            raise InvalidOption(
                what=f'parameter "{g.name}" cannot be set in INSERT INTO', at=g.at,
                hint=f"Only {', '.join(f'{s}…' for s in kind.sending) or 'none'} can; the others are the relation's.",
            )  # fmt: skip
    tuned = kind.relation_options.check(given) if given else {}
    properties |= tuned
    columns = {c.name for c in into.columns}
    excluded = properties.pop("value.columns.exclude", None)
    if partition_by or into.kind == "changelog":
        properties = {k: v for k, v in properties.items() if k not in ("key.columns", "key.type")}
    elif excluded is not None:
        raise NotYet(
            what=f'INSERT INTO "{into.full}", whose record key has columns that the stream has not',
            hint="PARTITION BY makes the key of columns of the stream.",
        )
    elif "key.columns" in properties:
        properties.pop("key.type", None)
    elif "key.type" in properties:
        type_ = types.parse(properties.pop("key.type"))
        fields = [n for n, _ in type_.fields]
        if fields and set(fields) <= columns:
            properties["key.columns"] = ",".join(fields)
        else:
            properties.pop("key.format", None)
    return Declared(store, kind, into.entity or "", properties, {}, {})


def _takes(target: types.Type, found: types.Type) -> bool:
    """Whether a column of type ``target`` takes values of type ``found`` as they are or by widening."""
    if target.name != found.name:
        for row in _WIDENING:
            if target.name in row and found.name in row:
                return row.index(found.name) < row.index(target.name)
        return False
    if target.name == "STRUCT":
        return len(target.fields) == len(found.fields) and all(
            a[0] == b[0] and _takes(a[1], b[1]) for a, b in zip(target.fields, found.fields, strict=True)
        )
    return all(_takes(a, b) for a, b in zip(target.args, found.args, strict=True))
