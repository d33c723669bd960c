"""Everything about ORGANIZATION: LIST, DESCRIBE, USE. A server has one, ``default``; CREATE is in ``later.py``.

Owns: the grammar and the answers. Must not know: who is a member. Manual: "LIST ORGANIZATIONS", "USE".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pgstream import types
from pgstream.catalog.records import ObjectRecord
from pgstream.names import Name
from pgstream.sql.cursor import Cursor
from pgstream.statements import defaults
from pgstream.statements.answers import CONTEXT_ROW, listing
from pgstream.statements.base import Column, Context, Result, Statement
from pgstream.statements.shapes import Words

_COLUMNS = (
    Column("ID"), Column("Name"), Column("Is Current", types.BOOLEAN), Column("Is Default", types.BOOLEAN),
    Column("Description"), Column("Profile Image Uri"), Column("Created At", types.TIMESTAMP_LTZ),
)  # fmt: skip


def _line(ctx: Context, o: ObjectRecord) -> Sequence[Any]:
    kept = ctx.catalog.snapshot.defaults.get((ctx.session.user, ctx.session.organization), {})
    default = kept.get("organization", ctx.session.organization)
    return (o.id, o.name, o.id == ctx.session.organization, o.id == default, o.options.get("description"), None,
            o.created_at)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ListOrganizations(Words):
    """LIST ORGANIZATIONS;

    The organizations of the user, one a row.
    """

    words: ClassVar = ("LIST", "ORGANIZATIONS")
    free: ClassVar[str] = "it shows the user's own"
    columns: ClassVar = _COLUMNS

    async def execute(self, ctx: Context) -> Result:
        return listing(self.columns, [_line(ctx, o) for o in ctx.catalog.snapshot.of_kind("", "organization")])


@dataclass(frozen=True, slots=True)
class UseOrganization(Statement):
    """USE ORGANIZATION organization_name;

    Make an organization the session's.
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
        ctx.session.organization = defaults.organization(ctx, self.name)
        summary = f'using organization "{self.name}"'
        return Result("USE", CONTEXT_ROW, [["organization", self.name.text, "USE", summary]])
