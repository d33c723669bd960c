"""Everything about ROLE: CREATE, DROP, LIST, DESCRIBE, USE; GRANT and REVOKE of roles.

Owns: the grammar and the answers. ``grants.py`` has privileges and ownership.
Must not know: PostgreSQL's roles behind ours (``catalog.authority``).
Manual: "CREATE ROLE", "DROP ROLE", "DESCRIBE ROLE", "LIST ROLES", "LIST USER ROLES", "GRANT ROLE", "REVOKE ROLE",
"USE".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pgstream import types
from pgstream.catalog import kinds
from pgstream.catalog.privileges import BUILT_IN, MEMBERS, OWNERSHIP, PUBLIC, Membership
from pgstream.catalog.records import DEFAULT_ORGANIZATION, ObjectRecord
from pgstream.errors import InsufficientPrivilege, NameTooLong, ReservedName
from pgstream.names import Name
from pgstream.sql.cursor import MAX_NAME_BYTES, Cursor
from pgstream.statements import access
from pgstream.statements.access import Need
from pgstream.statements.answers import CONTEXT_ROW, ddl, done, exists, listing, missing
from pgstream.statements.base import DDL_ROW, Column, Context, Result, Statement
from pgstream.statements.shapes import Words

GRANT_ROW = (Column("Type"), Column("Command"), Column("Summary"))
KEPT = frozenset({"none", "current_user", "session_user", "current_role", "user", "pgstream_worker"})


def known(ctx: Context, role: Name) -> str:
    """A role that is named to be given something: every role may be named, as in PostgreSQL."""
    if (DEFAULT_ORGANIZATION, "role", role.text) not in ctx.catalog.snapshot.objects:
        raise kinds.missing("role", role.text, role.at)
    return role.text


def user(c: Cursor) -> Name:
    """``'e-mail'``, or a name."""
    if not c.peek_string():
        return c.name()
    at, text = c.at, c.string()
    if len(text.encode()) > MAX_NAME_BYTES:
        raise NameTooLong(name=text, at=at)
    return Name(text, at)


def known_user(ctx: Context, name: Name) -> str:
    snapshot = ctx.catalog.snapshot
    known = (DEFAULT_ORGANIZATION, "user", name.text) in snapshot.objects or snapshot.access.is_member(name.text)
    if not known:
        raise kinds.missing("user", name.text, name.at)
    return name.text


@dataclass(frozen=True, slots=True)
class CreateRole(Statement):
    """CREATE ROLE [IF NOT EXISTS] role_name
    [WITH ( [IN ROLE ( role_name [, ...] )] [, ROLE ( role_name [, ...] )] )];

    Make a role. IN ROLE: the roles that it is granted, and so inherits; ROLE: the roles that it is granted to. Its
    owner is the session's role. It can do nothing until it is granted privileges.
    """

    words: ClassVar = ("CREATE", "ROLE")
    tag: ClassVar = "CREATE ROLE"
    columns: ClassVar = DDL_ROW

    name: Name
    if_not_exists: bool
    inherits: tuple[Name, ...]
    members: tuple[Name, ...]

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        if_not_exists = c.accept("IF", "NOT", "EXISTS")
        name = c.name()
        inherits: list[Name] = []
        members: list[Name] = []
        if c.accept("WITH"):
            c.expect("(")
            while not c.accept(")"):
                if c.accept("IN", "ROLE"):
                    inherits += c.name_list()
                else:
                    c.expect("ROLE")
                    members += c.name_list()
                c.accept(",")
        c.end()
        return cls(name, if_not_exists, tuple(inherits), tuple(members))

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need("manage_members"),)

    async def execute(self, ctx: Context) -> Result:
        name = self.name.text
        if name in KEPT or name.startswith(("pg_", "pgstream_")):
            raise ReservedName(kind="role", name=name, at=self.name.at)
        if (DEFAULT_ORGANIZATION, "role", name) in ctx.catalog.snapshot.objects:
            if not self.if_not_exists:
                raise kinds.duplicate("role", name, self.name.at)
            ctx.notice(f'role "{name}" already exists, skipping')
            return done(self.tag, exists("role", name, [name]))
        record = ObjectRecord("role", name, owner=ctx.session.role, created_by=ctx.session.user)
        inherits, members = ([known(ctx, r) for r in given] for given in (self.inherits, self.members))
        await ctx.catalog.authority.create_role(record, inherits, members, self.name.at)
        return done(self.tag, ddl("role", name, "CREATE", [name]))


@dataclass(frozen=True, slots=True)
class DropRole(Statement):
    """DROP ROLE [IF EXISTS] role_name;

    Remove a role with its privileges. Refused for a built-in role, for one that owns an object, and for one that has
    been granted other roles.
    """

    words: ClassVar = ("DROP", "ROLE")
    tag: ClassVar = "DROP ROLE"
    columns: ClassVar = DDL_ROW

    name: Name
    if_exists: bool

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        if_exists = c.accept("IF", "EXISTS")
        name = c.name()
        c.end()
        return cls(name, if_exists)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need(OWNERSHIP, "role", self.name, self.if_exists, unless="manage_members"),)

    async def execute(self, ctx: Context) -> Result:
        name = self.name.text
        # What the role does not see was not asked about: to it there is nothing to drop.
        everything = ctx.catalog.snapshot.access.manages(ctx.session.role, MEMBERS)
        if await access.find(ctx, "role", self.name, everything=everything) is None:
            return missing(ctx, self.tag, "role", name, [name])
        await ctx.catalog.authority.drop_role(name, at=self.name.at)
        return done(self.tag, ddl("role", name, "DROP", [name]))


@dataclass(frozen=True, slots=True)
class ListRoles(Words):
    """LIST ROLES;

    The roles that you may work in, own, or have USAGE on; with MANAGE_MEMBERS, all. Current marks the session's.
    """

    words: ClassVar = ("LIST", "ROLES")
    free: ClassVar = "it shows what the role sees"
    columns: ClassVar = (
        Column("Name"), Column("Current", types.BOOLEAN), Column("Created at", types.TIMESTAMP_LTZ), Column("Owner"),
    )  # fmt: skip

    async def execute(self, ctx: Context) -> Result:
        session, seen = ctx.session, ctx.snapshot
        found = {r.name: r for r in seen.of_kind(DEFAULT_ORGANIZATION, "role")}
        mine = seen.access.usable(session.user)
        found |= {r.name: r for r in ctx.catalog.snapshot.of_kind(DEFAULT_ORGANIZATION, "role") if r.name in mine}
        lines = [(n, n == session.role, r.created_at, r.owner) for n, r in sorted(found.items())]
        return listing(self.columns, lines)


@dataclass(frozen=True, slots=True)
class ListUserRoles(Words):
    """LIST USER ROLES;

    The roles that you may work in. Is Inherited marks those that come with another role.
    """

    words: ClassVar = ("LIST", "USER", "ROLES")
    free: ClassVar = "it shows the user's own roles"
    columns: ClassVar = (
        Column("Name"), Column("Is Current", types.BOOLEAN), Column("Is Default", types.BOOLEAN),
        Column("Is Inherited", types.BOOLEAN),
    )  # fmt: skip

    async def execute(self, ctx: Context) -> Result:
        session, snapshot = ctx.session, ctx.catalog.snapshot
        direct, default = snapshot.access.roles_of(session.user), snapshot.first_role(session.user)
        usable = sorted(snapshot.access.usable(session.user))
        return listing(self.columns, [(r, r == session.role, r == default, r not in direct) for r in usable])


@dataclass(frozen=True, slots=True)
class DescribeRole(Statement):
    """DESCRIBE ROLE role_name;

    The roles that a role was granted, and its privileges, one a row.
    """

    words: ClassVar = ("DESCRIBE", "ROLE")
    columns: ClassVar = (
        Column("Type"), Column("Name"), Column("Privilege"), Column("With Grant Option", types.BOOLEAN),
        Column("Granted By"),
    )  # fmt: skip

    name: Name

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        name = c.name()
        c.end()
        return cls(name)

    def needs(self, ctx: Context) -> Iterable[Need]:
        mine = self.name.text in ctx.catalog.snapshot.access.usable(ctx.session.user)
        return () if mine else (Need(access.SEES, "role", self.name, unless="manage_members"),)

    async def execute(self, ctx: Context) -> Result:
        return listing(self.columns, list(self._lines(ctx)))

    def _lines(self, ctx: Context) -> Iterator[tuple[Any, ...]]:
        rules, role = ctx.catalog.snapshot.access, self.name.text
        for m in sorted(rules.memberships, key=lambda m: m.role):
            if m.member == role and not m.is_user:
                yield "role", m.role, "usage", False, m.grantor
        for (kind, name), grants in sorted(rules.grants.items()):
            shown = ctx.catalog.snapshot.organization.name if kind == "organization" else name
            for g in sorted(grants, key=lambda g: (g.privilege, g.column)):
                if g.role == role:
                    privilege = f"{g.privilege} ({g.column})" if g.column else g.privilege
                    yield kind, shown, privilege, g.grant_option, g.grantor


@dataclass(frozen=True, slots=True)
class UseRole(Statement):
    """USE ROLE role_name;

    Work in another of your roles: what you see and may do is what this role sees and may do, in PostgreSQL's
    statements too. What you make belongs to it.
    """

    words: ClassVar = ("USE", "ROLE")
    free: ClassVar = "it takes the user's own roles only"
    columns: ClassVar = CONTEXT_ROW

    name: Name

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        name = c.name()
        c.end()
        return cls(name)

    async def execute(self, ctx: Context) -> Result:
        snapshot, name = ctx.catalog.snapshot, self.name.text
        if name not in snapshot.access.usable(ctx.session.user):
            if (DEFAULT_ORGANIZATION, "role", name) not in ctx.snapshot.objects:
                raise kinds.missing("role", name, self.name.at)
            raise InsufficientPrivilege(
                kind="role", name=name, at=self.name.at, detail=f'User "{ctx.session.user}" has not been granted it.'
            )
        await ctx.use_role(name)
        return Result("USE", CONTEXT_ROW, [["role", name, "USE", f'using role "{name}"']])


@dataclass(frozen=True, slots=True)
class GrantRole(Statement):
    """GRANT ROLE role_name [, ...] { TO USER 'user' | TO ROLE role_name [, ...] };

    Let a user work in a role, or let a role inherit all that another has. It needs MANAGE_MEMBERS, or both roles.
    """

    words: ClassVar[tuple[str, ...]] = ("GRANT", "ROLE")
    tag: ClassVar[str] = "GRANT ROLE"
    columns: ClassVar = GRANT_ROW
    to: ClassVar[str] = "TO"

    roles: tuple[Name, ...]
    members: tuple[Name, ...]
    is_user: bool

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        roles = tuple(c.names())
        c.expect(cls.to)
        is_user = c.accept("USER")
        if not is_user:
            c.expect("ROLE")
        members = (user(c),) if is_user else tuple(c.names())
        c.end()
        return cls(roles, members, is_user)

    def needs(self, ctx: Context) -> Iterable[Need]:
        if self.is_user:
            return (Need("manage_members"),)
        return [Need(OWNERSHIP, "role", r, unless="manage_members") for r in (*self.roles, *self.members)]

    def memberships(self, ctx: Context) -> list[Membership]:
        roles = [known(ctx, r) for r in self.roles]
        members = [known_user(ctx, m) if self.is_user else known(ctx, m) for m in self.members]
        return [Membership(r, m, self.is_user, ctx.session.role) for r in roles for m in members]

    def answer(self, what: str, done: str) -> Result:
        roles = ", ".join(f'"{r}"' for r in self.roles)
        # "user user" is what the product says.
        kind = "user user" if self.is_user and self.to == "TO" else "user" if self.is_user else "role"
        members = ", ".join(f'"{m}"' for m in self.members)
        summary = f"Role(s) {roles} {done} {self.to.lower()} {kind} {members}"
        return Result(self.tag, GRANT_ROW, [[f"role {what}", "ALTER", summary]])

    async def execute(self, ctx: Context) -> Result:
        await ctx.catalog.authority.grant_roles(self.memberships(ctx))
        return self.answer("grant", "granted")


class RevokeRole(GrantRole):
    """REVOKE ROLE role_name [, ...] { FROM USER 'user' | FROM ROLE role_name [, ...] };

    Take back what GRANT ROLE gave. Sessions that work in the role are refused from their next statement on.
    """

    words: ClassVar[tuple[str, ...]] = ("REVOKE", "ROLE")
    tag: ClassVar[str] = "REVOKE ROLE"
    to: ClassVar[str] = "FROM"

    async def execute(self, ctx: Context) -> Result:
        wanted = [m for m in self.memberships(ctx) if m.role != PUBLIC and not _founding(m)]
        gone = await ctx.catalog.authority.revoke_roles(wanted)
        if len(gone) < len(self.roles) * len(self.members):
            ctx.notice("not every role was granted, or could be revoked", severity="WARNING", code="01006")
        return self.answer("revoke", "revoked")


def _founding(m: Membership) -> bool:
    """Built-in roles inherit what they inherit."""
    return not m.is_user and m.role in BUILT_IN.get(m.member, ())
