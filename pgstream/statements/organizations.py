"""Everything about ORGANIZATION: CREATE, LIST, DESCRIBE, USE.

Owns: the grammar and the answers. Must not know: what keeps organizations apart (``server.organizations``).
Manual: "CREATE ORGANIZATION", "LIST ORGANIZATIONS", "USE".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pgstream import types
from pgstream.catalog import kinds
from pgstream.catalog.privileges import ADMIN
from pgstream.catalog.records import DEFAULT_ORGANIZATION
from pgstream.errors import InsufficientPrivilege, InvalidStatement
from pgstream.names import Name
from pgstream.sql.cursor import Cursor
from pgstream.statements.access import Need, owns
from pgstream.statements.answers import CONTEXT_ROW, ddl, done, listing
from pgstream.statements.base import DDL_ROW, Column, Context, Member, Result, Statement
from pgstream.statements.shapes import Words

_COLUMNS = (
    Column("ID"), Column("Name"), Column("Is Current", types.BOOLEAN), Column("Is Default", types.BOOLEAN),
    Column("Description"), Column("Profile Image Uri"), Column("Created At", types.TIMESTAMP_LTZ),
)  # fmt: skip


def _line(member: Member) -> Sequence[Any]:
    o = member.record
    return (o.id, o.name, member.is_current, member.is_default, o.options.get("description"), None, o.created_at)


async def named(ctx: Context, name: Name) -> Member:
    """One of the user's by its name. Errors: UndefinedObject."""
    found = next((m for m in await ctx.organizations() if m.record.name == name.text), None)
    if found is None:
        raise kinds.missing("organization", name.text, name.at)
    return found


@dataclass(frozen=True, slots=True)
class CreateOrganization(Statement):
    """CREATE ORGANIZATION organization_name;

    Make an organization, and go on in it as its first user: with the same name and password, and all roles. Nothing of
    one organization can be seen from another. A client that names the database ``organization_name/database_name``
    logs in to it. For users who may be orgadmin in the server's first organization, whatever role they work in.
    """

    words: ClassVar = ("CREATE", "ORGANIZATION")
    tag: ClassVar = "CREATE ORGANIZATION"
    columns: ClassVar = DDL_ROW

    name: Name

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        name = c.name()
        c.end()
        if not name.text or "/" in name.text or any(sign < " " for sign in name.text):
            what = "an organization's name cannot be empty, nor hold a slash or a control character"
            raise InvalidStatement(what=what, at=name.at)
        return cls(name)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return () if ADMIN in ctx.catalog.snapshot.access.usable(ctx.session.user) else (owns("organization", None),)

    async def execute(self, ctx: Context) -> Result:
        here, name = ctx.catalog.snapshot.organization, self.name.text
        if here.id != DEFAULT_ORGANIZATION or ctx.session.user in ctx.catalog.snapshot.access.tokens:
            detail = "Organizations are made by users of the server's first one, not by tokens."
            raise InsufficientPrivilege(kind="organization", name=here.name, detail=detail)
        await ctx.create_organization(name, self.name.at)
        return done(self.tag, ddl("organization", name, "CREATE", [name]))


@dataclass(frozen=True, slots=True)
class ListOrganizations(Words):
    """LIST ORGANIZATIONS;

    The organizations of the user, one a row: those that the session's name and password open.
    """

    words: ClassVar = ("LIST", "ORGANIZATIONS")
    free: ClassVar[str] = "it shows the user's own"
    columns: ClassVar = _COLUMNS

    async def execute(self, ctx: Context) -> Result:
        return listing(self.columns, [_line(m) for m in await ctx.organizations()])


@dataclass(frozen=True, slots=True)
class DescribeOrganization(Statement):
    """DESCRIBE ORGANIZATION [organization_name];

    One organization of the user's, or the session's: its row of LIST ORGANIZATIONS. An addition of ours.
    """

    words: ClassVar = ("DESCRIBE", "ORGANIZATION")
    free: ClassVar[str] = "it shows the user's own"
    columns: ClassVar = _COLUMNS

    name: Name | None

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        name = None if c.at_end else c.name()
        c.end()
        return cls(name)

    async def execute(self, ctx: Context) -> Result:
        if self.name is not None:
            return listing(self.columns, [_line(await named(ctx, self.name))])
        return listing(self.columns, [_line(m) for m in await ctx.organizations() if m.is_current])


@dataclass(frozen=True, slots=True)
class UseOrganization(Statement):
    """USE ORGANIZATION organization_name;

    Make an organization the session's, as if it had begun there: in the user's default database, role and store. Only
    where the session's name and password are a user's; elsewhere log in anew, to ``organization_name/database_name``.
    """

    words: ClassVar = ("USE", "ORGANIZATION")
    free: ClassVar[str] = "it takes the user's own"
    columns: ClassVar = CONTEXT_ROW

    name: Name

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        name = c.name()
        c.end()
        return cls(name)

    async def execute(self, ctx: Context) -> Result:
        await ctx.use_organization(self.name.text, self.name.at)
        summary = f'using organization "{self.name}"'
        return Result("USE", CONTEXT_ROW, [["organization", self.name.text, "USE", summary]])
