"""Shapes that statements of many kinds share: CREATE, UPDATE, DROP, LIST and DESCRIBE of a named object.

Owns: their grammar, IF [NOT] EXISTS, options checked and parted from their secrets, the usual rows. A class of such a
statement says its kind (``pgstream.catalog.kinds``), its options, its columns, and what is special about it.
Must not know: any kind. Start reading at ``Create``; objects with a table of their own override ``found`` and ``make``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from pgstream.catalog import kinds
from pgstream.catalog.records import ObjectRecord
from pgstream.errors import InvalidOption
from pgstream.names import Name
from pgstream.properties import Options
from pgstream.sql.cursor import Cursor
from pgstream.statements import access, attachments, places
from pgstream.statements.access import Need
from pgstream.statements.answers import ddl, done, exists, json_text, listing, missing
from pgstream.statements.base import DDL_ROW, Column, Context, Result, Statement
from pgstream.statements.heading import expect
from pgstream.stores.spec import OptionTable

MASK = "********"
NOTHING = OptionTable("an object", ())


_TAGS = {"UPDATE": "ALTER", "COPY": "CREATE"}
"""A client reads a count of rows behind PostgreSQL's UPDATE and COPY, and complains where there is none."""


class Words(Statement):
    """A statement of its words and nothing else."""

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        expect(c, *cls.words)
        c.end()
        return cls()


class OfKind(Statement):
    """A statement about objects of one kind; its words come from the kind's."""

    kind: ClassVar[str]
    verb: ClassVar[str] = ""

    def __init_subclass__(cls, **kw: Any) -> None:
        super().__init_subclass__(**kw)
        if cls.verb and "kind" in cls.__dict__ and "words" not in cls.__dict__:
            kind = kinds.KINDS[cls.kind]
            cls.words = (cls.verb, *(kind.plural if cls.verb == "LIST" else kind.words).split())
            cls.tag = " ".join((_TAGS.get(cls.verb, cls.verb), *cls.words[1:]))

    def found(self, ctx: Context) -> bool:
        """Whether an object of that name is there."""
        return places.find(ctx, self.kind, self.label) is not None

    @property
    def label(self) -> str:
        """The object's name as rows and errors show it."""
        name: Name = self.name  # type: ignore[attr-defined]
        return name.text

    def path(self, ctx: Context) -> Sequence[str]:
        return [self.label]


@dataclass(frozen=True, slots=True)
class Create(OfKind):
    """CREATE kind [IF NOT EXISTS] name [WITH ( … )]"""

    verb: ClassVar[str] = "CREATE"
    columns: ClassVar[tuple[Column, ...]] = DDL_ROW
    options: ClassVar[OptionTable] = NOTHING
    needs_with: ClassVar[bool] = True

    name: Name
    if_not_exists: bool
    given: Options

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        if_not_exists = c.accept("IF", "NOT", "EXISTS")
        name = c.name()
        if cls.needs_with:
            c.expect("WITH")
        given = c.properties() if cls.needs_with or c.accept("WITH") else {}
        c.end()
        return cls(name, if_not_exists, given)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (access.creates(self.kind),)

    async def execute(self, ctx: Context) -> Result:
        if self.found(ctx):
            if not self.if_not_exists:
                raise kinds.duplicate(self.kind, self.label, self.name.at)
            words = kinds.KINDS[self.kind].called
            ctx.notice(f'{words} "{self.label}" already exists, skipping')
            return done(self.tag, exists(self.kind, self.label, self.path(ctx)))
        return await self.make(ctx)

    async def make(self, ctx: Context) -> Result:
        """Check, record, answer."""
        record, secrets = await self.record(ctx)
        await ctx.catalog.inventory.create(record, secrets, at=self.name.at)
        return done(self.tag, ddl(self.kind, self.label, "CREATE", self.path(ctx)))

    async def record(self, ctx: Context) -> tuple[ObjectRecord, dict[str, str]]:
        """The object and its secrets; nothing is changed yet."""
        table = self.options
        given = await attachments.resolve(ctx, self.given, table)
        checked = table.check(given)
        places.check_named(ctx, table, given, checked)
        shown, secrets = parted(table, checked)
        record = ObjectRecord(
            self.kind,
            self.label,
            shown.pop("type", ""),
            shown,
            ctx.session.role,
            organization=ctx.session.organization,
            created_by=ctx.session.user,
        )
        return record, secrets


def parted(table: OptionTable, checked: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Options that may be shown, and those that may not."""
    hidden = table.hidden(checked)
    return {k: v for k, v in checked.items() if k not in hidden}, {k: v for k, v in checked.items() if k in hidden}


@dataclass(frozen=True, slots=True)
class Update(OfKind):
    """UPDATE kind name WITH ( … )"""

    verb: ClassVar[str] = "UPDATE"
    columns: ClassVar[tuple[Column, ...]] = DDL_ROW
    options: ClassVar[OptionTable] = NOTHING
    fixed: ClassVar[tuple[str, ...]] = ("type", "access_region")

    name: Name
    given: Options

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        name = c.name()
        c.expect("WITH")
        given = c.properties()
        c.end()
        return cls(name, given)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (access.changes(self.kind, self.name),)

    async def execute(self, ctx: Context) -> Result:
        record = places.object(ctx, self.kind, self.name)
        checked = await self.changed(ctx, self.options, await full_options(ctx, record))
        shown, secrets = parted(self.options, checked)
        shown.pop("type", None)
        await ctx.catalog.inventory.update(replace(record, options=shown), secrets, at=self.name.at)
        return done(self.tag, ddl(self.kind, self.label, "UPDATE", self.path(ctx)))

    async def changed(self, ctx: Context, table: OptionTable, current: Mapping[str, str]) -> dict[str, str]:
        """The options as they will be: those given replace, NULL unsets."""
        given = await attachments.resolve(ctx, self.given, table)
        for name in self.fixed:
            if (g := given.get(name)) is not None:
                words = kinds.KINDS[self.kind].called
                raise InvalidOption(
                    what=f'parameter "{name}" of a {words} cannot be changed',
                    at=g.at,
                    hint=f"Drop the {words} and create it again.",
                )
        checked = table.update(current, given)
        places.check_named(ctx, table, given, checked)
        return checked


async def full_options(ctx: Context, record: ObjectRecord) -> dict[str, str]:
    """Every option in clear, its type too."""
    out = {**record.options, **await ctx.catalog.inventory.secrets(record)}
    return out | ({"type": record.type} if record.type else {})


@dataclass(frozen=True, slots=True)
class Drop(OfKind):
    """DROP kind [IF EXISTS] name"""

    verb: ClassVar[str] = "DROP"
    columns: ClassVar[tuple[Column, ...]] = DDL_ROW

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
        return (access.changes(self.kind, self.name, self.if_exists),)

    async def execute(self, ctx: Context) -> Result:
        if self.if_exists and not self.found(ctx):
            return missing(ctx, self.tag, self.kind, self.label, self.path(ctx))
        await self.drop(ctx)
        return done(self.tag, ddl(self.kind, self.label, "DROP", self.path(ctx)))

    async def drop(self, ctx: Context) -> None:
        """Take it out of the catalogue."""
        record = places.object(ctx, self.kind, self.name)
        await ctx.catalog.inventory.drop(record.key, at=self.name.at)


@dataclass(frozen=True, slots=True)
class List(OfKind, Words):
    """LIST kinds"""

    verb: ClassVar[str] = "LIST"
    free: ClassVar[str] = "it shows what the role sees"

    async def execute(self, ctx: Context) -> Result:
        return listing(self.columns, await self.lines(ctx))

    async def lines(self, ctx: Context) -> list[Sequence[Any]]:
        return [self.line(ctx, record) for record in places.objects(ctx, self.kind)]

    @classmethod
    def line(cls, ctx: Context, record: ObjectRecord) -> Sequence[Any]:
        """One object's row."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Describe(OfKind):
    """DESCRIBE kind name: the row of LIST, and every option as JSON, with what is secret masked."""

    verb: ClassVar[str] = "DESCRIBE"
    of: ClassVar[type[List]]

    name: Name

    def __init_subclass__(cls, **kw: Any) -> None:
        # Not super(): a dataclass with slots is made anew, and its zero-argument super() names the first one.
        OfKind.__init_subclass__.__func__(cls, **kw)  # type: ignore[attr-defined]
        if "of" in cls.__dict__:
            cls.columns = (*cls.of.columns, Column("Details"))

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        name = c.name()
        c.end()
        return cls(name)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need(access.SEES, self.kind, self.name),)

    async def execute(self, ctx: Context) -> Result:
        record = places.object(ctx, self.kind, self.name)
        hidden = dict.fromkeys(await ctx.catalog.inventory.secrets(record), MASK)
        details = json_text(dict(sorted({**record.options, **hidden}.items())))
        return listing(self.columns, [(*self.of.line(ctx, record), details)])
