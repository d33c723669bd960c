"""Everything about USER: LIST, DESCRIBE, DROP, and ALTER USER … PASSWORD. ``invitations.py`` makes users.

Owns: the grammar and the answers. Must not know: the login role behind a user (``catalog.users``).
Manual: "LIST USERS", "DESCRIBE USER", "DROP USER".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Self

from pgstream import types
from pgstream.catalog.privileges import MEMBERS, Membership
from pgstream.catalog.records import DEFAULT_ORGANIZATION
from pgstream.catalog.users import ACTIVE
from pgstream.errors import InvalidStatement, ObjectInUse
from pgstream.names import Name
from pgstream.sql.cursor import Cursor
from pgstream.statements.access import Need
from pgstream.statements.answers import ddl, done, listing, missing
from pgstream.statements.base import DDL_ROW, Column, Context, Result, Statement
from pgstream.statements.roles import known_user, user
from pgstream.statements.shapes import Words
from pgstream.wire.scram import MOST_ITERATIONS, Verifier


@dataclass(frozen=True, slots=True)
class ListUsers(Words):
    """LIST USERS;

    The members of the organization: with MANAGE_MEMBERS all, without it yourself. Who was invited and has not accepted
    is none yet.
    """

    words: ClassVar = ("LIST", "USERS")
    free: ClassVar = "who does not manage the members sees only the own row"
    columns: ClassVar = (
        Column("Given Name"), Column("Family Name"), Column("Is Current", types.BOOLEAN), Column("Email"),
        Column("Locale"),
    )  # fmt: skip

    async def execute(self, ctx: Context) -> Result:
        snapshot = ctx.catalog.snapshot
        me = snapshot.access.user_of(ctx.session.user)
        found = {u.name for u in snapshot.of_kind(DEFAULT_ORGANIZATION, "user") if u.state == ACTIVE}
        found |= snapshot.access.users
        if not snapshot.access.manages(ctx.session.role, MEMBERS):
            found &= {me}
        return listing(self.columns, [(None, None, name == me, name, None) for name in sorted(found)])


@dataclass(frozen=True, slots=True)
class DescribeUser(Statement):
    """DESCRIBE USER 'user';

    The roles of a user, one a row. Your own, or with MANAGE_MEMBERS anybody's.
    """

    words: ClassVar = ("DESCRIBE", "USER")
    columns: ClassVar = (
        Column("Role Name"), Column("Granted By"), Column("Inherited", types.BOOLEAN),
        Column("Updated At", types.TIMESTAMP_LTZ), Column("Created At", types.TIMESTAMP_LTZ),
    )  # fmt: skip

    name: Name

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        name = user(c)
        c.end()
        return cls(name)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return () if self.name.text == ctx.session.user else (Need(MEMBERS),)

    async def execute(self, ctx: Context) -> Result:
        name, rules = known_user(ctx, self.name), ctx.catalog.snapshot.access
        direct = {m.role: m for m in rules.memberships if m.is_user and m.member == name}
        usable = rules.usable(name)
        via = {m.role: m for m in rules.memberships if not m.is_user and m.member in usable}
        lines = []
        for role in sorted(usable):
            m = direct.get(role) or via.get(role) or Membership(role, name)
            lines.append((role, m.grantor, role not in direct, m.granted_at, m.granted_at))
        return listing(self.columns, lines)


@dataclass(frozen=True, slots=True)
class DropUser(Statement):
    """DROP USER [IF EXISTS] 'user';

    Remove a user from the organization, with roles, defaults and tokens; the user's sessions end. What the user made
    stays: it belongs to roles. Not yourself, nor the last user of orgadmin.
    """

    words: ClassVar = ("DROP", "USER")
    tag: ClassVar = "DROP USER"
    columns: ClassVar = DDL_ROW

    name: Name
    if_exists: bool

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        if_exists = c.accept("IF", "EXISTS")
        name = user(c)
        c.end()
        return cls(name, if_exists)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need(MEMBERS),)

    async def execute(self, ctx: Context) -> Result:
        name, snapshot = self.name.text, ctx.catalog.snapshot
        if name == snapshot.access.user_of(ctx.session.user):
            raise ObjectInUse(kind="user", name=name, at=self.name.at, detail="It is the session's own.")
        known = (DEFAULT_ORGANIZATION, "user", name) in snapshot.objects or snapshot.access.is_member(name)
        if not known and self.if_exists:
            return missing(ctx, self.tag, "user", name, [name])
        await ctx.catalog.users.drop(known_user(ctx, self.name), at=self.name.at)
        return done(self.tag, ddl("user", name, "DROP", [name], f"user {name} was dropped from the organization"))


_ME = ("CURRENT_USER", "SESSION_USER", "CURRENT_ROLE")


@dataclass(frozen=True, slots=True)
class AlterUser(Statement):
    """ALTER USER { 'user' | CURRENT_USER } [WITH] [ENCRYPTED] PASSWORD 'password';

    Change a password: your own, or with MANAGE_MEMBERS anybody's; an addition of ours. It is PostgreSQL's statement, as
    psql's ``\\password`` sends it: a SCRAM verifier in the place of a password is taken as it is.
    """

    words: ClassVar = ("ALTER", "USER")
    tag: ClassVar = "ALTER ROLE"

    name: Name | None
    password: str = field(repr=False)

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect("ALTER")
        if not c.accept("ROLE"):
            c.expect("USER")
        name = None if any(c.accept(word) for word in _ME) else user(c)
        c.accept("WITH")
        c.accept("ENCRYPTED")
        c.expect("PASSWORD")
        at, password = c.at, c.string()
        c.end()
        verifier = Verifier.parse(password)
        if not password or password.startswith("md5") or (verifier and verifier.iterations > MOST_ITERATIONS):
            raise InvalidStatement(what="a password must be given as text, or as a SCRAM-SHA-256 verifier", at=at)
        return cls(name, password)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return () if self.name is None or self.name.text == ctx.session.user else (Need(MEMBERS),)

    async def execute(self, ctx: Context) -> Result:
        name = known_user(ctx, self.name or Name(ctx.session.user))
        await ctx.catalog.users.set_password(name, self.password, self.name.at if self.name else None)
        return Result(self.tag)
