"""What a statement has PostgreSQL answer: planning with the planner's questions asked and answered.

Owns: asking for a relation of PostgreSQL's own, and for the columns of a query in its language, with the rights of the
session's role; PostgreSQL's errors at the client's place.
Must not know: what is bounded (``planner.lookups``). Start reading at ``plan``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import psycopg

from pgstream import traces, types
from pgstream.catalog.postgres import relayed
from pgstream.catalog.records import ColumnRecord, RelationRecord
from pgstream.errors import PgStreamError, TooComplex
from pgstream.names import FullName, QName, quote_always
from pgstream.planner.answers import Answers, Described, Named, Unanswered
from pgstream.planner.parameters import Parameter
from pgstream.planner.plan import Column, Plan, ResultSink
from pgstream.planner.select import Planned, plan_select
from pgstream.planner.slices import place
from pgstream.sql.select import Select
from pgstream.statements import places
from pgstream.statements.base import Context
from pgstream.stores.spec import Asked

# Relations that a client made, with their columns; not those of the catalogue, whose objects are the worker's.
_COLUMNS = """
SELECT pg_get_userbyid(c.relowner), array_agg(a.attname::text ORDER BY a.attnum) FILTER (WHERE a.attname IS NOT NULL)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
    AND pg_get_userbyid(c.relowner) <> 'pgstream_worker' AND n.nspname <> 'pg_pgstream'
GROUP BY c.oid"""
LONGEST = 1 << 20
"""Bytes of a plan beside what was written: Spark reads one at a time."""
_BY_OID = {row.oid: name for name, row in reversed(types.TABLE.items()) if name not in ("TINYINT", "BYTES")} | {
    25: "VARCHAR", 1042: "VARCHAR"
}  # fmt: skip


async def plan(
    ctx: Context, select: Select, want: str, parameters: Sequence[Parameter] = (), expires: bool = False
) -> Planned:
    """The plan of a select, once PostgreSQL has said what must be known. Errors: the planner's, PostgreSQL's."""
    with traces.span("plan"):
        return await _plan(ctx, select, want, parameters, expires)


async def _plan(ctx: Context, select: Select, want: str, parameters: Sequence[Parameter], expires: bool) -> Planned:
    session, answers = ctx.session, Answers()
    while True:
        try:
            return _bounded(plan_select(
                select, ctx.snapshot, session.database, session.schema, want, parameters=parameters, expires=expires,
                answers=answers, virtuals=ctx.virtuals,
            ), select)  # fmt: skip
        except Unanswered as e:
            question = e.question
        if isinstance(question, Named):
            answers.relations[question] = await named(ctx, question.full)
        else:
            answers.queries[question] = await _described(ctx, question)


def _bounded(planned: Planned, select: Select) -> Planned:
    """The same. Errors: TooComplex, where much more is to be read than was written."""
    most = LONGEST + len(select.text)
    if len(Plan(planned.root, ResultSink()).json()) > most:
        detail = f"Written out for Spark it has more than {most} characters."
        raise TooComplex(what="the query", detail=detail, at=select.at)
    return planned


async def exists(ctx: Context, name: QName) -> bool:
    """Whether a name means a relation of PostgreSQL's own. Whether the role may read it, PostgreSQL says itself."""
    full = ctx.snapshot.full_name(name, ctx.session.database, ctx.session.schema)
    return full.database in ctx.snapshot.databases and await named(ctx, full) is not None


async def named(ctx: Context, full: FullName) -> RelationRecord | None:
    """A relation of PostgreSQL's own."""
    found = await ctx.catalog.postgres_relation(full, _COLUMNS)
    if found is None:
        return None
    owner, names = found
    columns = tuple(ColumnRecord(n, types.TEXT) for n in names or ())
    return RelationRecord("", full, "table", columns, owner)


async def _described(ctx: Context, question: Described) -> tuple[Column, ...]:
    role = ctx.session.role
    sql, head = probe(question)
    if question.store:
        await _answers(ctx, question, sql)
        return ()
    url = await ctx.catalog.reader_url(question.database, role)
    try:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True, connect_timeout=10) as conn:
            for setting in settings(role, question.schema):
                await conn.execute(setting.encode())
            return columns(await conn.execute(sql.encode(), binary=True))
    except psycopg.Error as e:
        raise _at(e, head, question) from None


async def _answers(ctx: Context, question: Described, sql: str) -> None:
    """Whether a store, which the role need not see, can answer. Errors: StoreUnreachable, UndefinedEntity,
    UndefinedColumn and the like.
    """
    try:
        async with places.open_store(ctx, ctx.catalog.snapshot.stores[question.store]) as admin:
            await cast(Asked, admin).answers(question.entity, sql)
    except PgStreamError as e:
        e.at = question.places[0][1] if e.at is None and question.places else e.at
        raise


def probe(question: Described) -> tuple[str, int]:
    """A statement with the question's columns, and where the question's own text begins in it.

    Nothing is run: what the role may not read is refused all the same.
    """
    arguments = ", ".join(f"NULL::{t} AS p{i}" for i, t in enumerate(question.arguments, 1)) or "1 AS p0"
    head = f'SELECT q.* FROM (SELECT {arguments}) AS "__row" CROSS JOIN LATERAL ('
    return f"{head}{question.sql}) AS q LIMIT 0", len(head)


def settings(role: str, schema: str) -> list[str]:
    """What a reader's session is set to."""
    from pgstream.catalog.roles import pg_role

    return [
        f"SET ROLE {quote_always(pg_role(role))}",
        f"SET search_path = {quote_always(schema)}",
        "SET default_transaction_read_only = on",
    ]


def columns(cursor: psycopg.AsyncCursor[Any] | psycopg.Cursor[Any]) -> tuple[Column, ...]:
    """Those of an answer. What has no type of ours is read as text."""
    assert cursor.pgresult is not None
    return tuple(_column(c.name, c.type_code, cursor.pgresult.fmod(i)) for i, c in enumerate(cursor.description or ()))


def _column(name: str, oid: int, modifier: int) -> Column:
    kind = _BY_OID.get(oid, "VARCHAR")
    params: tuple[int, ...] = ()
    if kind == "DECIMAL":
        params = (38, 18) if modifier < 4 else ((modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF)
        params = params if params[0] <= 38 and params[1] <= params[0] else (38, 18)
    elif kind in types.CLOCKS:
        params = (modifier if modifier >= 0 else 6,)
    return Column(name, str(types.Type(kind, params)))


def _at(e: psycopg.Error, head: int, question: Described) -> PgStreamError:
    error = relayed(e)
    position = e.diag.statement_position
    if position is not None:
        error.at = place(question.places, int(position) - 1 - head)
    return error
