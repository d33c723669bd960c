"""Virtual relations: those that only the statements of an application see.

Owns: their grammar. Must not know: applications, which run them; outside of one they are refused.
Manual: "APPLICATION". Start reading at ``CreateVirtual``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from pgstream.catalog.records import VIRTUAL
from pgstream.errors import InvalidStatement
from pgstream.sql.cursor import Cursor
from pgstream.statements.base import DDL_ROW, Context, Result, Statement
from pgstream.statements.create_as import CreateChangelogAs, CreateStreamAs

_OUTSIDE = "A virtual relation has no topic, and only the statements of its application see it."


@dataclass(frozen=True, slots=True)
class CreateVirtual(Statement):
    """A relation of an application without a topic."""

    of: ClassVar[type[CreateStreamAs]]
    columns: ClassVar = DDL_ROW
    free: ClassVar = "outside an application it does nothing"

    create: CreateStreamAs
    at: int

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        at = c.at
        c.expect(*cls.words)
        create = cls.of.tail(c)
        name = create.name
        if len(name.parts) == 3 and name.parts[0] != VIRTUAL:
            raise InvalidStatement(
                what=f'a virtual relation is in database "{VIRTUAL}", not in "{name.parts[0]}"', at=name.at
            )
        if create.given:
            given = next(iter(create.given.values()))
            raise InvalidStatement(what="a virtual relation has no parameters", at=given.at, hint="It has no topic.")
        if create.partition_by:
            raise InvalidStatement(
                what="PARTITION BY cannot be used in a virtual relation", at=create.partition_by[0].at,
                hint="It has no topic, and no record keys.",
            )  # fmt: skip
        return cls(create, at)

    async def execute(self, ctx: Context) -> Result:
        raise InvalidStatement(what=f"{self.tag} can only be used in an application", at=self.at, hint=_OUTSIDE)


class CreateVirtualStream(CreateVirtual):
    """CREATE VIRTUAL STREAM virtual.public.stream_name AS select_statement;

    In an application: a stream without a topic, which its other statements read. Each of them has its query in the
    place of its name. Elsewhere it is an error.
    """

    words: ClassVar[tuple[str, ...]] = ("CREATE", "VIRTUAL", "STREAM")
    tag: ClassVar[str] = "CREATE VIRTUAL STREAM"
    of: ClassVar[type[CreateStreamAs]] = CreateStreamAs


class CreateVirtualChangelog(CreateVirtual):
    """CREATE VIRTUAL CHANGELOG virtual.public.changelog_name AS select_statement;

    In an application: a changelog without a topic, which its other statements read, as CREATE VIRTUAL STREAM. Elsewhere
    it is an error.
    """

    words: ClassVar[tuple[str, ...]] = ("CREATE", "VIRTUAL", "CHANGELOG")
    tag: ClassVar[str] = "CREATE VIRTUAL CHANGELOG"
    of: ClassVar[type[CreateStreamAs]] = CreateChangelogAs
