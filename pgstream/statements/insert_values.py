"""INSERT INTO … VALUES: records of a stream or changelog, written at once.

Owns: the grammar; having PostgreSQL compute the rows, in the client's session; a row's record, in the formats of the
relation. Must not know: how bytes are made of a value (``written_rows``), how a store writes.
The manual has no such statement; PostgreSQL's is followed. Start reading at ``InsertValues``.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar, Self

from pgstream import types
from pgstream.catalog.records import ColumnRecord, RelationRecord, Snapshot
from pgstream.errors import (
    InvalidStatement,
    NullViolation,
    PgStreamError,
    ReadOnlyTransaction,
    RelayedError,
    RowsTooLong,
    TooDeep,
    UndefinedParameter,
    WrongKind,
)
from pgstream.names import Name, QName
from pgstream.planner.slices import place
from pgstream.sql.cursor import Cursor
from pgstream.sql.dialect import tokenize
from pgstream.statements import places, registered, sinks
from pgstream.statements.access import Need
from pgstream.statements.base import Context, Result, Session, Statement
from pgstream.statements.insert import placed, targets
from pgstream.statements.settle import READ_ONLY
from pgstream.statements.written_rows import Written
from pgstream.stores.spec import Can, NewRecord

_PARAMETER = re.compile(r"\$([0-9]{1,9})")
_MOST = 8 << 20
"""Bytes of all rows as JSON: they are kept, and while they are taken apart, a second at most, every session waits."""
Items = Sequence[tuple[str, int]]


def is_values(c: Cursor) -> bool:
    """Whether an INSERT INTO has VALUES."""
    c.expect("INSERT", "INTO")
    c.qname()
    if c.peek("(") and not (c.peek("(", "SELECT") or c.peek("(", "WITH") or c.peek("(", "(")):
        c.items()
    return c.peek("VALUES") or c.peek("DEFAULT", "VALUES")


@dataclass(frozen=True, slots=True)
class InsertValues(Statement):
    """INSERT INTO relation_name [( column [, ...] )] VALUES ( { expression | DEFAULT } [, ...] ) [, ...];

    Write a record into a stream or changelog for each row, in the formats of the relation. The expressions are
    PostgreSQL's, computed by it in the session; what has no value is NULL. A STRUCT, a MAP and an array of them are
    given as JSON, `'{"city": "Oslo"}'`. The record key is as the relation says; of a changelog it is the primary key,
    so a row replaces that of its key. In Kafka the rows of a statement are written all or none, and at once: a ROLLBACK
    does not take them back. A query that goes on is INSERT INTO … SELECT.
    """

    words: ClassVar = ("INSERT", "INTO")
    tag: ClassVar = "INSERT 0 1"

    name: QName
    listed: tuple[Name, ...]
    rows: tuple[Items, ...]

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        name = c.qname()
        listed = tuple(c.name_list()) if c.peek("(") else ()
        if c.accept("DEFAULT"):
            c.expect("VALUES")
            c.end()
            return cls(name, listed, ((),))
        c.expect("VALUES")
        c.bound("VALUES")
        rows = [c.items()]
        while c.accept(","):
            rows.append(c.items())
        c.end()
        for row in rows:
            if len(row) != len(rows[0]):
                raise InvalidStatement(what="VALUES lists must all be the same length", at=row[0][1])
        return cls(name, listed, tuple(rows))

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need("insert", "relation", self.name),)

    def parameter_types(self, snapshot: Snapshot, session: Session) -> Mapping[int, int]:
        into = snapshot.seen_by(session.role).relation(self.name, session.database, session.schema)
        if into is None:
            return {}
        try:
            columns = targets(into, self.listed)
        except PgStreamError:
            return {}  # told when it is run
        cells = ((m, c) for row in self.rows for (text, _), c in zip(row, columns, strict=False)
                 if (m := _PARAMETER.fullmatch(text)))  # fmt: skip
        return {int(m[1]): c.type.oid for m, c in cells}

    async def execute(self, ctx: Context) -> Result:
        into = self._into(ctx)
        columns = targets(into, self.listed)
        given = len(self.rows[0])
        if given > len(columns):
            raise InvalidStatement(
                what="INSERT has more expressions than target columns", at=self.rows[0][len(columns)][1]
            )
        if self.listed and given < len(columns):
            raise InvalidStatement(what="INSERT has more target columns than expressions", at=self.listed[given].at)
        if await ctx.postgres(READ_ONLY) == "on":
            raise ReadOnlyTransaction(what="INSERT")
        # Schemas are registered for rows that there are.
        computed = await self._computed(ctx, columns[:given])
        written = await self._written(ctx, into)
        # In a thread: millions of values take long, and other sessions go on.
        records = await asyncio.to_thread(self._records, into, columns[:given], computed, written)
        store = ctx.snapshot.store_of(into)
        async with places.open_store(ctx, store, self.name.at) as admin:
            await admin.insert(into.entity or "", records)
        return Result(f"INSERT 0 {len(records)}")

    def _into(self, ctx: Context) -> RelationRecord:
        into = places.relation(ctx, self.name)
        if into.kind not in ("stream", "changelog") or into.store is None:
            raise WrongKind(name=str(self.name), is_a=into.label, wanted="stream or changelog", at=self.name.at)
        kind = places.store_type(ctx.snapshot.store_of(into))
        kind.require(Can.SINK, self.name.at)
        kind.require(Can.INSERT, self.name.at)
        return into

    async def _written(self, ctx: Context, into: RelationRecord) -> Written:
        """What the relation's records are made by, its schemas registered."""
        d = sinks.settle(placed(ctx, into, (), {}), None, into.columns, (), into.primary_key, at=self.name.at)
        sink = sinks.record_sink(into, d, "append", [c.name for c in into.columns])
        sink = await registered.schemas(ctx, d, sink, {c.name: c.type for c in into.columns})
        return await Written.of(ctx, sink, into.columns, self.name.at)

    def _records(
        self, into: RelationRecord, columns: Sequence[ColumnRecord], computed: str, written: Written
    ) -> list[NewRecord]:
        """The records of the rows that PostgreSQL gave as JSON."""
        try:
            rows: list[list[object]] = json.loads(computed, parse_float=Decimal, parse_int=Decimal)
        except RecursionError:
            raise TooDeep(what="a value", at=self.name.at) from None
        records = []
        for row, values in zip(self.rows, rows, strict=True):
            found = dict.fromkeys(c.name for c in into.columns) | {
                c.name: written.value(v, c, at)
                for c, v, (_, at) in zip(columns, values, row, strict=True)
            }  # fmt: skip
            self._check_nulls(into, found)
            records.append(written.record(found, self.name.at))
        return records

    def _check_nulls(self, into: RelationRecord, row: Mapping[str, object]) -> None:
        for c in into.columns:
            if row[c.name] is None and (not c.nullable or c.name in into.primary_key):
                raise NullViolation(column=c.name, relation=str(into.full), at=self.name.at)

    async def _computed(self, ctx: Context, columns: Sequence[ColumnRecord]) -> str:
        """The rows as PostgreSQL gives them as JSON. Errors: RelayedError, at the client's place, RowsTooLong."""
        if not columns:
            return "[[]]"  # DEFAULT VALUES
        self._check_parameters(ctx)
        shown = ", ".join(_shown(c.type, f"v.c{i}") for i, c in enumerate(columns))
        rows = f"SELECT pg_catalog.json_agg(pg_catalog.json_build_array({shown}))::pg_catalog.text AS rows"
        few = f"pg_catalog.octet_length(a.rows) OPERATOR(pg_catalog.<=) {_MOST}"
        text = f"SELECT CASE WHEN {few} THEN a.rows END FROM ({rows} FROM (VALUES "
        found: list[tuple[int, int]] = []
        for number, row in enumerate(self.rows):
            text += ", (" if number else "("
            for i, (item, at) in enumerate(row):
                text += ", CAST(" if i else "CAST("
                found.append((len(text), at))
                text += f"{'NULL' if item.upper() == 'DEFAULT' else item} AS {_computed_as(columns[i].type)})"
            text += ")"
        names = ", ".join(f"c{i}" for i in range(len(columns)))
        try:
            # Values are bound, not written into the text: what is a string or comment in it only PostgreSQL knows.
            answer = await ctx.postgres(f"{text}) AS v({names})) AS a", ctx.parameter_oids, ctx.parameters)
        except RelayedError as e:
            e.at = place(found, e.position) if e.position is not None else None
            raise
        if answer is None:
            raise RowsTooLong(most=_MOST, at=self.name.at, hint="Write them in several statements.")
        return answer

    def _check_parameters(self, ctx: Context) -> None:
        for item, at in (cell for row in self.rows for cell in row if "$" in cell[0]):
            for token in tokenize(item):
                match = _PARAMETER.fullmatch(token.text)
                if match is None or item[token.start] != "$":
                    continue
                if not 1 <= int(match[1]) <= len(ctx.parameters):
                    raise UndefinedParameter(number=match[1], at=at + token.start)


def _computed_as(type_: types.Type) -> str:
    """The type in which PostgreSQL computes a column. The length of a text is looked at afterwards, not cut to."""
    if type_.pg == "jsonb":
        return "pg_catalog.json"
    if type_.name == "VARCHAR":
        return "pg_catalog.text"
    # The names of the others are words of PostgreSQL's grammar, in whose place no client's type can be.
    return ("pg_catalog." if type_.pg.removesuffix("[]") in ("bytea", "date") else "") + type_.pg


def _shown(type_: types.Type, value: str) -> str:
    """A column's value such that its JSON does not depend on the session's settings."""
    if type_.name in ("VARBINARY", "BYTES"):
        return f"pg_catalog.encode({value}, 'hex')"
    return f"pg_catalog.timezone('UTC', {value})" if type_.name == "TIMESTAMP_LTZ" else value
