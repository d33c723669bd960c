"""Privileges: what a statement needs, and the one place where it is asked for before the statement runs.

Owns: ``Need``, how the object it names is found in a session, and the two errors: what a role may not see *does not
exist*, what it sees and may not do is *permission denied*.
Must not know: what a statement does. The rules are ``catalog.privileges``. Start reading at ``check``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgstream.catalog import kinds
from pgstream.catalog.privileges import ADMIN, MEMBERS, OWNERSHIP
from pgstream.catalog.records import DEFAULT_ORGANIZATION, QueryRecord, SchemaRecord, Snapshot
from pgstream.errors import DependentsExist, InsufficientPrivilege, NoCurrentStore, UndefinedQuery
from pgstream.names import FullName, Name, QName, quote
from pgstream.properties import Options
from pgstream.sql.select import Select, names

if TYPE_CHECKING:
    from pgstream.statements.base import Context, Session, Statement

SEES = ""
"""The privilege of a need that any privilege on the object meets."""


@dataclass(frozen=True, slots=True)
class Need:
    """A privilege on an object. Without a name: the organization, or the session's database, schema or store.

    ``if_exists``: a missing object is the statement's own business. ``unless``: a privilege on the organization that
    does as well, and shows the object. ``granting``: the right to pass the privilege on.
    """

    privilege: str
    kind: str = "organization"
    name: QName | Name | None = None
    if_exists: bool = False
    unless: str = ""
    granting: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """An object as privileges name it. ``shown`` is its name in errors."""

    kind: str
    name: str
    owner: str
    shown: str = ""


def owns(kind: str, name: QName | Name | None, if_exists: bool = False) -> Need:
    return Need(OWNERSHIP, kind, name, if_exists)


def creates(kind: str) -> Need:
    """What the container of a new object of a kind is asked for."""
    privilege = kinds.KINDS[kind].create
    assert privilege is not None, kind
    return Need(privilege)


def changes(kind: str, name: Name, if_exists: bool = False) -> Need:
    """Ownership; whoever manages the members manages what only they may make."""
    create = kinds.KINDS[kind].create
    return Need(OWNERSHIP, kind, name, if_exists, unless=MEMBERS if create == MEMBERS else "")


def reads(select: Select) -> list[Need]:
    """SELECT on everything that a query reads."""
    return [Need("select", "relation", name) for name in names(select)]


def runs(session: Session) -> Need:
    """USAGE on the compute pool that a session's queries run in."""
    return Need("usage", "compute_pool", Name(session.pool))


def makes_relation(name: QName) -> Need:
    """CREATE on the schema that a new relation's name lies in."""
    return Need("create", "schema", QName(name.parts[:-1], name.at) if len(name.parts) > 1 else None)


async def check(ctx: Context, statement: Statement) -> None:
    """Whether the session's role may run a statement. Errors: Undefined…, InsufficientPrivilege."""
    access, role = ctx.catalog.snapshot.access, ctx.session.role
    if role not in access.usable(ctx.session.user):
        raise InsufficientPrivilege(kind="role", name=role, hint="USE ROLE takes a role that you have been granted.")
    for need in statement.needs(ctx):
        await require(ctx, need)


async def require(ctx: Context, need: Need) -> None:
    """One need of the session's role."""
    over = _manages(ctx, ctx.session.role, need)
    found = await find(ctx, need.kind, need.name, everything=over)
    at = need.name.at if need.name is not None else None
    if found is None:
        if need.if_exists or await _is_postgres(ctx, need):
            return
        if need.kind == "schema" and isinstance(need.name, QName) and len(need.name.parts) > 1:
            await require(ctx, Need(SEES, "database", Name(need.name.parts[0], at)))
        if need.kind == "relation" and isinstance(need.name, QName):
            raise ctx.snapshot.no_relation(need.name, ctx.session.database, ctx.session.schema)
        raise kinds.missing(need.kind, shown(ctx.session, need.kind, need.name), at)
    if over or need.privilege == SEES:
        return
    if not _may(ctx, ctx.session.role, need, found):
        raise _denied(ctx, need, found, at)


def _manages(ctx: Context, role: str, need: Need) -> bool:
    """Whether a privilege on the organization does for a need."""
    return ctx.catalog.snapshot.access.manages(role, need.unless or ("manage_grants" if need.granting else ""))


def _may(ctx: Context, role: str, need: Need, target: Target) -> bool:
    access = ctx.catalog.snapshot.access
    may = access.may_grant if need.granting else access.has
    return may(role, need.privilege, target.kind, target.name, target.owner)


async def _is_postgres(ctx: Context, need: Need) -> bool:
    """Whether a relation is PostgreSQL's own, which says itself who reads it."""
    from pgstream.statements import postgres_queries

    wanted = need.kind == "relation" and need.privilege == "select" and isinstance(need.name, QName)
    return wanted and isinstance(need.name, QName) and await postgres_queries.exists(ctx, need.name)


def _denied(ctx: Context, need: Need, target: Target, at: int | None) -> InsufficientPrivilege:
    """The error for an object that is seen, to be raised."""
    privilege = need.privilege
    label, name = kinds.KINDS[target.kind].called, target.shown or target.name
    if target.kind == "organization":
        name = ctx.catalog.snapshot.organization.name
    if privilege == OWNERSHIP:
        detail = f'Role "{ctx.session.role}" does not own it; its owner is role "{target.owner}".'
    elif target.kind == "organization":
        detail = f'Role "{ctx.session.role}" does not have {privilege.upper()} on the organization.'
    else:
        detail = f'Role "{ctx.session.role}" does not have {privilege.upper()} on it.'
    return InsufficientPrivilege(kind=label, name=name, detail=detail, hint=_another_role(ctx, need, target), at=at)


def _another_role(ctx: Context, need: Need, target: Target) -> str | None:
    """Which of the user's other roles may; the one that inherits least, if several do."""
    access = ctx.catalog.snapshot.access
    roles = access.usable(ctx.session.user) - {ctx.session.role}
    able = [role for role in roles if _manages(ctx, role, need) or _may(ctx, role, need, target)]
    if not able:
        return None
    role = min(able, key=lambda role: (len(access.held(role)), role))
    return f"USE ROLE {quote(role)}: that role of yours may."


async def find(ctx: Context, kind: str, name: QName | Name | None, everything: bool = False) -> Target | None:
    """The object that a name means, if the role sees it; ``everything``: whoever sees it."""
    snapshot = ctx.catalog.snapshot if everything else ctx.snapshot
    if kind != "query":
        return _find(snapshot, ctx.session, kind, name)
    try:
        query = await ctx.catalog.query(str(name), at=name.at if name is not None else None)
    except UndefinedQuery:
        return None
    if not everything and not snapshot.access.sees(ctx.session.role, "query", query.id, query.owner):
        return None
    return Target("query", query.id, query.owner, query.id)


async def name_only_seen(ctx: Context, e: DependentsExist) -> None:
    """Of what stands in the way of a DROP, say what the role sees."""
    if not e.users:
        return
    # Who may grant itself any role may know what one owns.
    everything = e.values["kind"] == "role" and ctx.catalog.snapshot.access.manages(ctx.session.role, MEMBERS)
    seen = []
    for kind, name in e.users:
        named = QName(FullName.parse(name)) if kind in ("relation", "schema") else Name(name)
        # A policy has no privileges, and only its own name is said.
        if kind == "policy" or await find(ctx, kind, named, everything=everything) is not None:
            seen.append((kind, name))
    e.naming(seen)


async def query(ctx: Context, privilege: str, ref: str, at: int | None) -> QueryRecord:
    """The query that a name, or an id, means now. A name may mean another one's newer query than when it was asked
    for: the privilege is asked for of what was found. Errors: UndefinedQuery, InsufficientPrivilege.
    """
    found = await ctx.catalog.query(ref, at=at)
    if await find(ctx, "query", Name(found.id)) is None:
        raise kinds.missing("query", ref, at)
    await require(ctx, Need(privilege, "query", Name(found.id, at)))
    return found


def _find(snapshot: Snapshot, session: Session, kind: str, name: QName | Name | None) -> Target | None:
    parts = () if name is None else (name.text,) if isinstance(name, Name) else name.parts
    if kind == "organization":
        return Target("organization", "", ADMIN)
    if kind == "relation":
        relation = snapshot.relation(QName(parts), session.database, session.schema)
        return Target(kind, str(relation.full), relation.owner, relation.full.name) if relation else None
    if kind == "schema":
        where = ((session.database, *parts) if parts else (session.database, session.schema))[-2:]
        schema: SchemaRecord | None = snapshot.schemas.get((where[0], where[1]))
        return Target(kind, schema.full_name, schema.owner, schema.name) if schema else None
    if kind == "store":
        if not parts and session.store is None:
            raise NoCurrentStore()
        store = snapshot.stores.get(parts[0] if parts else session.store or "")
        return Target(kind, store.name, store.owner, store.name) if store else None
    if kind == "database":
        database = snapshot.databases.get(parts[0] if parts else session.database)
        return Target(kind, database.name, database.owner, database.name) if database else None
    found = snapshot.objects.get((DEFAULT_ORGANIZATION, kind, str(name)))
    return Target(kind, found.name, found.owner, found.name) if found else None


def shown(session: Session, kind: str, name: QName | Name | None) -> str:
    """A name in an error: as the client wrote it."""
    if name is None:
        return {"database": session.database, "schema": session.schema, "store": session.store or ""}.get(kind, "")
    return name.name if isinstance(name, QName) and kind == "schema" else str(name)


def in_store(given: Options) -> Need:
    """USAGE on the store that a WITH names, or the session's."""
    store = given.get("store")
    if store is None or store.value is None:
        return Need("usage", "store")
    return Need("usage", "store", Name(store.value, store.value_at))
