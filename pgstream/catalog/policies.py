"""Row-level security of materialized views: PostgreSQL's policies, as the catalogue has them.

Owns: the rows of policies, and the comparison with what PostgreSQL has. The worker owns a view's table, and PostgreSQL
asks no owner, so a view's query is never held up; the view's own role sees all rows by a policy of ours.
Must not know: who may make a policy. What is inside USING was checked by its statement; PostgreSQL reads it in the
superuser's session, so that no code of a client's may run then (``_read``). What its writer could not name in a view of
PostgreSQL's is refused afterwards, as PostgreSQL keeps whatever a policy names from being dropped. Start reading at
``Policies``; ``heal`` runs at each start.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import psycopg
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from pgstream.catalog import models, relations, rows, view_logs
from pgstream.catalog.databases import STATE
from pgstream.catalog.postgres import WORKER, Connection, relayed, run
from pgstream.catalog.records import PolicyRecord, RelationRecord
from pgstream.catalog.roles import pg_role
from pgstream.errors import ChangesAreRead, DuplicateObject, InsufficientPrivilege, PgStreamError, UndefinedObject
from pgstream.names import FullName, is_space, lexemes
from pgstream.names import quote_always as q

if TYPE_CHECKING:
    from pgstream.catalog.store import Change

OWNERS = "pgstream_owner"
"""The policy by which a view's own role sees all rows."""
_STATE = """
SELECT c.relrowsecurity, p.polname, p.polpermissive, p.polcmd::text, pg_get_expr(p.polqual, p.polrelid),
    (SELECT array_agg(pg_get_userbyid(r) ORDER BY r) FROM unnest(p.polroles) r)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_policy p ON p.polrelid = c.oid
WHERE n.nspname = %s AND c.relname = %s ORDER BY p.polname"""
_TOUCHED = f"""
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relowner = '{WORKER}'::regrole AND c.relkind = 'r'
    AND (c.relrowsecurity OR EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid))"""
# The schemas of all that a table's policies name: relations, functions, types, and constants that stand for such.
_NAMED = """
SELECT p.polname, s.nspname, s.oid FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_depend d ON d.classid = 'pg_policy'::regclass AND d.objid = p.oid
CROSS JOIN LATERAL pg_identify_object(d.refclassid, d.refobjid, d.refobjsubid) o
JOIN pg_namespace s ON quote_ident(s.nspname) = CASE WHEN o.type = 'schema' THEN o.name ELSE o.schema END
WHERE n.nspname = %s AND c.relname = %s"""
_HIDDEN = f"SELECT DISTINCT polname FROM ({_NAMED}) x WHERE nspname = '{STATE}' ORDER BY 1"
_CLOSED = f"""
SELECT nspname FROM ({_NAMED}) x
WHERE polname = %s AND (nspname = '{STATE}' OR NOT has_schema_privilege(%s, oid, 'USAGE')) ORDER BY 1 LIMIT 1"""

_TYPES = frozenset({"date", "time", "timestamp", "timestamptz", "timetz", "zone", "interval", "numeric", "text"})
"""Words before a string that say its type, which is PostgreSQL's own where no schema is before them."""


@dataclass(frozen=True, slots=True)
class Using:
    """A policy's expression that is new: the role that wrote it, and where it stood."""

    by: str
    at: int


@dataclass(frozen=True, slots=True)
class Policies:
    """Changes them; ``change`` is the catalogue's transaction."""

    change: Callable[..., AbstractAsyncContextManager[Change]]

    async def create(self, full: FullName, policy: PolicyRecord, at: int | None, using: Using) -> None:
        async with self.change(full) as change:
            row = await relations.find(change.session, full)
            if await change.session.get(models.PolicyRow, (row.id, policy.name)) is not None:
                raise DuplicateObject(kind="policy", name=policy.name, at=at)
            change.session.add(_row(row.id, policy))
            await settle(change, row, policy.name, using)

    async def alter(self, full: FullName, name: str, policy: PolicyRecord, at: int | None, using: Using | None) -> None:
        """``policy`` may have another name."""
        async with self.change(full) as change:
            row = await relations.find(change.session, full)
            await change.session.delete(await _find(change.session, row.id, name, at))
            await change.session.flush()
            if await change.session.get(models.PolicyRow, (row.id, policy.name)) is not None:
                raise DuplicateObject(kind="policy", name=policy.name, at=at)
            change.session.add(_row(row.id, policy))
            await settle(change, row, policy.name, using)

    async def drop(self, full: FullName, name: str, at: int | None) -> None:
        async with self.change(full) as change:
            row = await relations.find(change.session, full)
            await change.session.delete(await _find(change.session, row.id, name, at))
            await settle(change, row)

    async def switch(self, full: FullName, on: bool, at: int | None = None) -> None:
        """Ask the policies of a view, or none."""
        async with self.change(full) as change:
            row = await relations.find(change.session, full)
            if on and (read := await view_logs.readers(await change.dropping(full.database), full)):
                users = [("query", id) for id in read]
                raise ChangesAreRead(kind="view", users=users, says="Its changes are read as a whole by", at=at)
            row.row_security = on
            await settle(change, row)


async def _find(session: AsyncSession, relation: str, name: str, at: int | None) -> models.PolicyRow:
    found = await session.get(models.PolicyRow, (relation, name))
    if found is None:
        raise UndefinedObject(kind="policy", name=name, at=at, hint="LIST POLICIES shows those you can see.")
    return found


def _row(relation: str, policy: PolicyRecord) -> models.PolicyRow:
    definition = {"roles": policy.roles, "using": policy.using, "permissive": policy.permissive}
    return models.PolicyRow(relation=relation, name=policy.name, definition=json.dumps(definition))


async def settle(change: Change, row: models.RelationRow, name: str = "", using: Using | None = None) -> None:
    """Bring PostgreSQL's policies of a view to the rows as they are now; committed after the catalogue.

    ``using``: what is new in the policy ``name``. Errors: InsufficientPrivilege, and what PostgreSQL finds in it.
    """
    row.updated_at = func.now()  # the log of changes has the relation
    await change.session.flush()
    await change.session.refresh(row)
    kept = await change.session.scalars(select(models.PolicyRow).where(models.PolicyRow.relation == row.id))
    record = rows.relation(row, tuple(map(rows.policy, kept)))
    conn = await change.dropping(record.full.database)
    try:
        await _make(conn, record)
        if using is not None:
            await _check(conn, record, name, using)
        await _shut(conn, record)
    except psycopg.Error as e:
        raise _faulty(e, using.at if using is not None else None) from None


async def _check(conn: Connection, record: RelationRecord, name: str, using: Using) -> None:
    """Refuse what is in a schema that its writer has no USAGE on, as CREATE VIEW would."""
    of = [record.full.schema, record.full.name, name, pg_role(using.by)]
    if (closed := await (await conn.execute(_CLOSED.encode(), of)).fetchone()) is not None:
        raise InsufficientPrivilege(kind="schema", name=closed[0], at=using.at)


async def _shut(conn: Connection, record: RelationRecord) -> list[str]:
    """Let policies that name what is hidden let nothing through, and keep nothing; which they are."""
    found = await conn.execute(_HIDDEN.encode(), [record.full.schema, record.full.name])
    names = [name for (name,) in await found.fetchall()]
    await run(conn, *(f"ALTER POLICY {q(name)} ON {_on(record)} USING (false)" for name in names))
    return names


def _faulty(e: psycopg.Error, at: int | None) -> PgStreamError:
    error = relayed(e)
    error.at = at
    if error.sqlstate in ("42P01", "42883"):
        error.hint = error.hint or "Write the schema before the name of a table or function that is not PostgreSQL's."
    return error


async def uses(session: AsyncSession, role: str) -> list[tuple[str, str]]:
    """Policies that are for a role."""
    found = await session.scalars(select(models.PolicyRow))
    return [("policy", p.name) for p in found if role in rows.policy(p).roles]


def _wanted(record: RelationRecord) -> list[str]:
    on = _on(record)
    switch = "ENABLE" if record.row_security else "DISABLE"
    policies = record.policies
    if record.row_security:
        policies = (*policies, PolicyRecord(OWNERS, (record.owner,), "true"))
    return [f"ALTER TABLE {on} {switch} ROW LEVEL SECURITY", *(_create(on, p) for p in policies)]


def _on(record: RelationRecord) -> str:
    return f"{q(record.full.schema)}.{q(record.full.name)}"


def _create(on: str, p: PolicyRecord) -> str:
    kind = "PERMISSIVE" if p.permissive else "RESTRICTIVE"
    to = ", ".join(q(pg_role(role)) for role in p.roles) or "PUBLIC"
    return f"CREATE POLICY {q(p.name)} ON {on} AS {kind} FOR SELECT TO {to} USING ({_read(p.using)})"


def _read(using: str) -> str:
    """An expression in words that PostgreSQL reads without running a client's code.

    A string without a type becomes a value of one while it is read: where that is a client's type, by the CHECK of a
    domain in it. So where a schema is named, strings are text, and what else they are to be they become in a reader's
    session.
    """
    parts: list[str] = []
    before, last, is_named = "", "", False
    for part in lexemes(using):
        is_named |= part == "." and last.lower() != "pg_catalog"
        typed = last.lower() in _TYPES and before != "."
        parts.append(f"({part}::pg_catalog.text)" if part[0] == "'" and not typed else part)
        if not is_space(part):
            before, last = last, part
    return "".join(parts) if is_named else using


async def _state(conn: Connection, record: RelationRecord) -> list[tuple[Any, ...]]:
    """What PostgreSQL has, comparable."""
    return await (await conn.execute(_STATE.encode(), [record.full.schema, record.full.name])).fetchall()


async def _make(conn: Connection, record: RelationRecord) -> None:
    """Make them all anew, inside the caller's transaction."""
    await run(conn, f"SET LOCAL ROLE {WORKER}")
    for _, name, *_rest in await _state(conn, record):
        if name is not None:
            await run(conn, f"DROP POLICY {q(name)} ON {_on(record)}")
    for statement in _wanted(record):
        # Part of it is the client's text: the extended protocol takes a single statement.
        await conn.execute(statement.encode(), binary=True)
    await run(conn, "RESET ROLE")


async def heal(conn: Connection, views: Iterable[RelationRecord]) -> list[str]:
    """Bring a database's policies to the records, after one read if there are none. Says what it did."""
    touched = set(await (await conn.execute(_TOUCHED.encode())).fetchall())
    done: list[str] = []
    for view in views:
        if view.kind != "materialized_view":
            continue
        if view.row_security or view.policies or (view.full.schema, view.full.name) in touched:
            done += await _heal(conn, view)
    return done


async def _heal(conn: Connection, view: RelationRecord) -> list[str]:
    """An expression reads the same after PostgreSQL has read it again, so all are made anew and then compared."""
    done = [f"policies of {view.full} made again"]
    before = await _state(conn, view)
    async with conn.transaction() as whole:
        try:
            async with conn.transaction():
                await _make(conn, view)
        except psycopg.Error as e:
            # Something that a policy reads was dropped. No policy must let more through than it did.
            done = [f"policies of {view.full} cannot be made again ({relayed(e).text}): they let nothing through"]
            shut = tuple(replace(p, using="false") for p in view.policies)
            await _make(conn, replace(view, policies=shut))
        if hidden := await _shut(conn, view):
            done = [f"policies of {view.full} name what is hidden ({', '.join(hidden)}): they let nothing through"]
        if await _state(conn, view) == before:
            done = []
            raise psycopg.Rollback(whole)
    return done
