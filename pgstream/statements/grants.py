"""GRANT and REVOKE of privileges and ownership, ALTER … OWNER TO, and CAN I.

Owns: the grammar and the answers, PostgreSQL's own form of GRANT over relations of ours included. ``roles.py`` has
GRANT ROLE. Must not know: the rules (``catalog.privileges``) nor PostgreSQL's privileges (``catalog.acl``).
Manual: "GRANT PRIVILEGES", "REVOKE PRIVILEGES", "GRANT OWNERSHIP", "ALTER … OWNER TO", "CAN I".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Self

from pgstream import types
from pgstream.catalog import kinds
from pgstream.catalog.privileges import OWNERSHIP, Grant
from pgstream.errors import InsufficientPrivilege, InvalidGrant, NotSupported, PgStreamError, UndefinedColumn
from pgstream.names import FullName, Name, QName
from pgstream.sql.cursor import Cursor
from pgstream.statements import access, owners
from pgstream.statements.access import Need, Target
from pgstream.statements.answers import ddl, done, listing
from pgstream.statements.base import DDL_ROW, Column, Context, Result, Statement
from pgstream.statements.regions import LOCAL
from pgstream.statements.roles import GRANT_ROW

_RELATIONS = ("RELATION", "STREAM", "CHANGELOG", "TABLE", "MATERIALIZED VIEW", "VIEW", "INDEX")
_OBJECTS = {
    **dict.fromkeys(_RELATIONS, "relation"),
    **{k.words: k.name for k in kinds.KINDS.values() if k.name != "organization" and (k.privileges or k.owned)},
}
_QUALIFIED = frozenset({"schema", "relation", "function"})


@dataclass(frozen=True, slots=True)
class Object:
    """An object as a statement names it."""

    kind: str
    name: QName | Name | None

    def __str__(self) -> str:
        return str(self.name) if self.name is not None else ""


def object_(c: Cursor, default: str | None = None) -> Object:
    """``DATABASE name``, ``SCHEMA [database.]name``, …; without a kind's words, ``default``."""
    for words, kind in _OBJECTS.items():
        if c.accept(*words.split()):
            return Object(kind, name_of(c, kind))
    if default is None:
        raise c.fault()
    return Object(default, name_of(c, default))


def name_of(c: Cursor, kind: str) -> QName | Name:
    at = c.at
    if kind == "query":
        return Name(c.query_ref(), at)
    if kind == "function":
        return c.signature()
    return c.qname() if kind in _QUALIFIED else c.name()


def grantees(c: Cursor, word: str) -> tuple[Name, ...]:
    """``TO [ROLE] name [, …]``; CURRENT_ROLE is the session's."""
    c.expect(word)
    out = []
    while True:
        _ = c.accept("ROLE") or c.accept("GROUP")
        out.append(owners.read(c))
        if not c.accept(","):
            return tuple(out)


@dataclass(frozen=True, slots=True)
class Privilege:
    """A privilege as written, with its columns."""

    name: str
    columns: tuple[Name, ...]
    at: int


@dataclass(frozen=True, slots=True)
class GrantPrivileges(Statement):
    """GRANT { privilege [, ...] | ALL [PRIVILEGES] } ON { ORGANIZATION | object_type object_name }
    TO ROLE role_name [, ...] [WITH GRANT OPTION];

    Give privileges on an object: USAGE and CREATE on databases and schemas, SELECT and INSERT on relations, USAGE on
    everything else, CREATE_… and MANAGE_… on the organization. SELECT (column, …) gives single columns of a
    materialized view. It needs the object, MANAGE_GRANTS, or the privilege with grant option. CURRENT_ROLE is the
    session's. In the extended protocol it answers with its command tag alone, as PostgreSQL's statement of this name
    does.
    """

    words: ClassVar[tuple[str, ...]] = ("GRANT",)
    tag: ClassVar[str] = "GRANT"
    columns: ClassVar = GRANT_ROW
    as_postgres: ClassVar = True
    to: ClassVar[str] = "TO"

    privileges: tuple[Privilege, ...]
    object: Object
    roles: tuple[Name, ...]
    grant_option: bool

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(cls.words[0])
        option = cls.to == "FROM" and c.accept("GRANT", "OPTION", "FOR")
        privileges = _privileges(c)
        if c.accept("ON"):
            named = Object("organization", None) if c.accept("ORGANIZATION") else _one_object(c)
        elif cls.to == "FROM":  # REVOKE of the organization's has no ON
            named = Object("organization", None)
        else:
            raise c.fault()
        roles = grantees(c, cls.to)
        option |= cls.to == "TO" and c.accept("WITH", "GRANT", "OPTION")
        c.end()
        return cls(tuple(privileges), named, roles, option)

    def wanted(self) -> list[Privilege]:
        """Each privilege, ALL spelled out. Errors: InvalidGrant for one that the kind does not have."""
        known = kinds.KINDS[self.object.kind].privileges
        out = []
        for p in self.privileges:
            if p.name == "all":
                out += [Privilege(k, p.columns, p.at) for k in known if not (p.columns and k != "select")]
            elif p.name not in known:
                raise InvalidGrant(
                    what=f"invalid privilege type {p.name.upper()} for {kinds.KINDS[self.object.kind].called}",
                    at=p.at, hint=f"It has {', '.join(k.upper() for k in known)}.",
                )  # fmt: skip
            else:
                out.append(p)
        return out

    def needs(self, ctx: Context) -> Iterable[Need]:
        return [Need(p.name, self.object.kind, self.object.name, granting=True) for p in self.wanted()]

    async def grants(self, ctx: Context) -> tuple[Target, list[Grant]]:
        target = await access.find(ctx, self.object.kind, self.object.name, everything=True)
        assert target is not None  # needs() found it
        roles = [owners.named(ctx, r) for r in self.roles]
        columns = {c for p in self.wanted() for c in _columns(ctx, target, p)}
        if columns and self.object.kind != "relation":
            raise InvalidGrant(what="column privileges are only valid for relations", at=self.privileges[0].at)
        return target, [
            Grant(role, p.name, target.kind, target.name, column, self.grant_option, ctx.session.role)
            for role in roles
            for p in self.wanted()
            for column in (_columns(ctx, target, p) or [""])
        ]

    def answer(self, ctx: Context, target: Target, what: str, done: str) -> Result:
        privileges = ", ".join(p.name.upper() for p in self.wanted())
        where = "organization" if target.kind == "organization" else f'{target.kind} "{target.name}"'
        roles = ", ".join(f'"{owners.named(ctx, r)}"' for r in self.roles)
        summary = f"Privilege(s) {privileges} on {where} {done} {self.to.lower()} role(s) {roles}"
        return Result(self.tag, GRANT_ROW, [[f"privilege {what}", "ALTER", summary]])

    async def execute(self, ctx: Context) -> Result:
        target, grants = await self.grants(ctx)
        await ctx.catalog.authority.grant(grants)
        return self.answer(ctx, target, "grant", "granted")


class RevokePrivileges(GrantPrivileges):
    """REVOKE { privilege [, ...] | ALL [PRIVILEGES] } [ON { ORGANIZATION | object_type object_name }]
    FROM ROLE role_name [, ...];

    Take privileges back. What a role granted on, having held the privilege with grant option, stays.
    """

    words: ClassVar[tuple[str, ...]] = ("REVOKE",)
    tag: ClassVar[str] = "REVOKE"
    to: ClassVar[str] = "FROM"

    async def execute(self, ctx: Context) -> Result:
        target, grants = await self.grants(ctx)
        if not await ctx.catalog.authority.revoke(grants, option_only=self.grant_option):
            ctx.notice("no privileges could be revoked", severity="WARNING", code="01006")
        return self.answer(ctx, target, "revoke", "revoked")


def _one_object(c: Cursor) -> Object:
    """PostgreSQL's lists of objects are refused by name: half of what they name may be PostgreSQL's own tables."""
    at = c.at
    if c.accept("ALL", "TABLES"):
        raise NotSupported(
            what="GRANT or REVOKE on all tables of a schema that holds relations of pgstream", at=at,
            hint="Name one relation a statement: GRANT SELECT ON RELATION name TO ROLE role.",
        )  # fmt: skip
    found = object_(c, "relation")
    if c.peek(","):
        raise NotSupported(what="GRANT or REVOKE on several objects", at=c.at, hint="Name one object a statement.")
    return found


def _privileges(c: Cursor) -> list[Privilege]:
    out = []
    while True:
        at = c.at
        if c.accept("ALL"):
            c.accept("PRIVILEGES")
            name = "all"
        else:
            word = c.words(1)
            if not word:
                raise c.fault()
            c.expect(*word)
            name = word[0].lower()
        out.append(Privilege(name, tuple(c.name_list()) if c.peek("(") else (), at))
        if not c.accept(","):
            return out


def _columns(ctx: Context, target: Target, p: Privilege) -> list[str]:
    """The columns of a privilege; they exist, and only a view's can be granted one by one."""
    if not p.columns:
        return []
    relation = next((r for r in ctx.catalog.snapshot.relations.values() if str(r.full) == target.name), None)
    if relation is None or p.name != "select" or relation.kind != "materialized_view":
        raise InvalidGrant(
            what="column privileges are only valid for SELECT on a materialized view", at=p.columns[0].at,
            hint="A materialized view with the columns that may be read can be granted as a whole.",
        )  # fmt: skip
    for column in p.columns:
        if column.text not in {c.name for c in relation.columns}:
            raise UndefinedColumn(name=column.text, at=column.at)
    return [column.text for column in p.columns]


@dataclass(frozen=True, slots=True)
class GrantOwnership(Statement):
    """GRANT OWNERSHIP ON object_type object_name TO [ROLE] role_name;

    Make another role the owner of an object. The session's role must own it, and have been granted the other role.
    """

    words: ClassVar[tuple[str, ...]] = ("GRANT", "OWNERSHIP")
    tag: ClassVar[str] = "GRANT OWNERSHIP"
    columns: ClassVar[tuple[Column, ...]] = GRANT_ROW

    object: Object
    role: Name

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        c.expect("ON")
        named = object_(c)
        role = grantees(c, "TO")
        c.end()
        if len(role) > 1:
            raise InvalidGrant(what="an object has one owner", at=role[1].at)
        return cls(named, role[0])

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (access.owns(self.object.kind, self.object.name),)

    async def give(self, ctx: Context) -> Target:
        target = await access.find(ctx, self.object.kind, self.object.name)
        assert target is not None  # needs() found it
        role = owners.named(ctx, self.role)
        if role not in ctx.catalog.snapshot.access.held(ctx.session.role):
            raise InsufficientPrivilege(
                kind="role", name=role, at=self.role.at,
                detail=f'Role "{ctx.session.role}" has not been granted it, so it cannot give it an object.',
            )  # fmt: skip
        await ctx.catalog.authority.give(target.kind, target.name, role)
        return target

    async def execute(self, ctx: Context) -> Result:
        target = await self.give(ctx)
        summary = f'Ownership of "{target.name}" granted to role "{owners.named(ctx, self.role)}"'
        return Result(self.tag, GRANT_ROW, [["ownership grant", "ALTER", summary]])


@dataclass(frozen=True, slots=True)
class AlterOwner(GrantOwnership):
    """ALTER object_type object_name OWNER TO role_name;

    GRANT OWNERSHIP in another form. In the extended protocol it answers with its command tag alone, as PostgreSQL's
    statement of this name does.
    """

    words: ClassVar[tuple[str, ...]] = ("ALTER",)
    tag: ClassVar[str] = "ALTER"
    columns: ClassVar[tuple[Column, ...]] = DDL_ROW
    as_postgres: ClassVar = True

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        named = object_(c)
        c.expect("OWNER")
        role = grantees(c, "TO")
        c.end()
        return cls(named, role[0])

    async def execute(self, ctx: Context) -> Result:
        target = await self.give(ctx)
        summary = f'Ownership of "{target.name}" granted to role "{owners.named(ctx, self.role)}"'
        in_parts = target.kind in ("relation", "schema")
        path = FullName.parse(target.name) if in_parts else (target.name,)
        tag = f"{self.tag} {target.kind.upper()}"
        return done(tag, ddl(target.kind, target.name, "ALTER", path, summary))


REGION = "region"
"""Asked for only: there is one, which everybody uses and nobody owns."""
_ACTIONS = {"USE": "usage", "CREATE IN": "create", "SELECT FROM": "select", "INSERT INTO": "insert", "DROP": OWNERSHIP}


@dataclass(frozen=True, slots=True)
class CanI(Statement):
    """CAN I { organization_privilege | { USE | CREATE IN | SELECT FROM | INSERT INTO | DROP } object_type name };

    Whether the session's role may do something, as one boolean. What it cannot see, it cannot do.
    """

    words: ClassVar = ("CAN", "I")
    free: ClassVar = "it tells what the role may do, and not whether what it cannot see exists"
    columns: ClassVar = (Column("Can I", types.BOOLEAN),)

    privilege: str
    object: Object

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        for words, privilege in _ACTIONS.items():
            if c.accept(*words.split()):
                named = Object(REGION, c.name()) if c.accept("REGION") else object_(c)
                c.end()
                return cls(privilege, named)
        said = c.words(1)
        if not said or said[0].lower() not in kinds.KINDS["organization"].privileges:
            raise c.fault()
        c.expect(*said)
        c.end()
        return cls(said[0].lower(), Object("organization", None))

    async def execute(self, ctx: Context) -> Result:
        if self.object.kind == REGION:
            return listing(self.columns, [(self.privilege == "usage" and str(self.object.name) == LOCAL,)])
        try:
            await access.require(ctx, Need(self.privilege, self.object.kind, self.object.name))
        except PgStreamError:
            return listing(self.columns, [(False,)])
        return listing(self.columns, [(True,)])
