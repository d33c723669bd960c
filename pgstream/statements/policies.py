"""Row-level security of materialized views: CREATE, ALTER, DROP and LIST of policies, and the switch.

Owns: the grammar, which is PostgreSQL's as far as a view that is only read has a use for it, and the answers.
Must not know: PostgreSQL's policies behind them (``catalog.policies``). Policies of PostgreSQL's own tables are
PostgreSQL's: ``shared.py`` decides. The product has no such statements.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from pgstream import types
from pgstream.catalog.policies import Using
from pgstream.catalog.privileges import PUBLIC
from pgstream.catalog.records import PolicyRecord, RelationRecord
from pgstream.errors import NotSupported, ReservedName, UndefinedObject
from pgstream.names import Name, QName
from pgstream.sql.cursor import Cursor
from pgstream.statements import access, places
from pgstream.statements.access import Need
from pgstream.statements.answers import ddl, done, listing
from pgstream.statements.base import DDL_ROW, Column, Context, Result, Statement
from pgstream.statements.heading import expect
from pgstream.statements.indexes import ODD
from pgstream.statements.roles import known


@dataclass(frozen=True, slots=True)
class Expression:
    """What stands inside USING: PostgreSQL's, as it was written."""

    text: str
    at: int


def _using(c: Cursor) -> Expression | None:
    if not c.accept("USING"):
        return None
    text, at = c.parenthesized()
    # Read as PostgreSQL reads it, or not at all.
    if odd := ODD.search(text):
        hint = "Write it as a plain string, without comments."
        raise NotSupported(what=f"{odd[0].strip()} in a policy", at=at + odd.start(), hint=hint)
    return Expression(text, at)


def _roles(c: Cursor) -> tuple[Name, ...] | None:
    """``TO role, …``; PUBLIC is everybody."""
    return tuple(c.names()) if c.accept("TO") else None


def _view(ctx: Context, name: QName) -> RelationRecord:
    return places.relation(ctx, name, "materialized_view")


def _named(ctx: Context, roles: Iterable[Name]) -> tuple[str, ...]:
    """The roles as they are kept: none for everybody."""
    found = tuple(ctx.session.role if r.text in ("current_role", "current_user") else known(ctx, r) for r in roles)
    return () if PUBLIC in found else tuple(dict.fromkeys(found))


def _policy(view: RelationRecord, name: Name) -> PolicyRecord:
    found = next((p for p in view.policies if p.name == name.text), None)
    if found is None:
        hint = "LIST POLICIES shows those you can see."
        raise UndefinedObject(kind="policy", name=name.text, at=name.at, hint=hint)
    return found


def _check_name(name: Name) -> None:
    if name.text.startswith("pgstream_"):
        raise ReservedName(kind="policy", name=name.text, at=name.at)


@dataclass(frozen=True, slots=True)
class CreatePolicy(Statement):
    """CREATE POLICY policy_name ON [[database_name.]schema_name.]view_name [AS { PERMISSIVE | RESTRICTIVE }]
    [FOR { ALL | SELECT }] [TO { role_name | PUBLIC | CURRENT_ROLE } [, ...]] USING ( expression );

    Say which rows of a materialized view a role may read, once ALTER MATERIALIZED VIEW … ENABLE ROW LEVEL SECURITY has
    switched policies on. As in PostgreSQL, a row is read if one permissive policy and every restrictive one let it
    through; the expression is PostgreSQL's, over the view's columns, and what is not PostgreSQL's own is named with its
    schema, on which the role that writes it needs USAGE. The view's own role reads all rows but those that a
    restrictive policy withholds. PostgreSQL enforces it, so it holds for reads of every kind. It needs the view.
    """

    words: ClassVar = ("CREATE", "POLICY")
    tag: ClassVar = "CREATE POLICY"
    columns: ClassVar = DDL_ROW

    name: Name
    on: QName
    permissive: bool
    roles: tuple[Name, ...]
    using: Expression

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        name = c.name()
        c.expect("ON")
        on = c.qname()
        permissive = True
        if c.accept("AS"):
            permissive = not c.accept("RESTRICTIVE")
            if permissive:
                c.expect("PERMISSIVE")
        if c.accept("FOR") and not (c.accept("SELECT") or c.accept("ALL")):
            hint = "A materialized view is only read: FOR SELECT, or nothing."
            raise NotSupported(what="a policy for writing to a materialized view", at=c.at, hint=hint)
        roles = _roles(c)
        using = _using(c)
        if using is None:
            raise c.fault()
        c.end()
        return cls(name, on, permissive, roles or (), using)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (access.owns("relation", self.on),)

    async def execute(self, ctx: Context) -> Result:
        view = _view(ctx, self.on)
        _check_name(self.name)
        policy = PolicyRecord(self.name.text, _named(ctx, self.roles), self.using.text, self.permissive)
        using = Using(ctx.session.role, self.using.at)
        await ctx.catalog.policies.create(view.full, policy, self.name.at, using)
        if not view.row_security:
            ctx.notice(
                f'policies of "{view.full.name}" are not asked yet',
                hint=f"ALTER MATERIALIZED VIEW {self.on} ENABLE ROW LEVEL SECURITY",
            )
        return done(self.tag, ddl("policy", policy.name, "CREATE", [*view.full.path, policy.name]))


@dataclass(frozen=True, slots=True)
class AlterPolicy(Statement):
    """ALTER POLICY policy_name ON [[database_name.]schema_name.]view_name
    { RENAME TO new_name | [TO { role_name | PUBLIC | CURRENT_ROLE } [, ...]] [USING ( expression )] };

    Change a policy of a materialized view; what is not given stays. It needs the view.
    """

    words: ClassVar = ("ALTER", "POLICY")
    tag: ClassVar = "ALTER POLICY"
    columns: ClassVar = DDL_ROW

    name: Name
    on: QName
    new_name: Name | None
    roles: tuple[Name, ...] | None
    using: Expression | None

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        name = c.name()
        c.expect("ON")
        on = c.qname()
        if c.at_end:
            raise c.fault()
        new_name = c.name() if c.accept("RENAME", "TO") else None
        roles, using = (None, None) if new_name is not None else (_roles(c), _using(c))
        c.end()
        return cls(name, on, new_name, roles, using)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (access.owns("relation", self.on),)

    async def execute(self, ctx: Context) -> Result:
        view = _view(ctx, self.on)
        policy = _policy(view, self.name)
        if self.new_name is not None:
            _check_name(self.new_name)
            policy = replace(policy, name=self.new_name.text)
        if self.roles is not None:
            policy = replace(policy, roles=_named(ctx, self.roles))
        if self.using is not None:
            policy = replace(policy, using=self.using.text)
        at = self.new_name.at if self.new_name is not None else self.name.at
        using = Using(ctx.session.role, self.using.at) if self.using is not None else None
        await ctx.catalog.policies.alter(view.full, self.name.text, policy, at, using)
        summary = f'policy "{policy.name}" was successfully updated'
        return done(self.tag, ddl("policy", policy.name, "ALTER", [*view.full.path, policy.name], summary))


@dataclass(frozen=True, slots=True)
class DropPolicy(Statement):
    """DROP POLICY [IF EXISTS] policy_name ON [[database_name.]schema_name.]view_name [CASCADE | RESTRICT];

    Remove a policy of a materialized view. Where row-level security is on and no permissive policy is left, only the
    view's own role reads rows. It needs the view.
    """

    words: ClassVar = ("DROP", "POLICY")
    tag: ClassVar = "DROP POLICY"
    columns: ClassVar = DDL_ROW

    name: Name
    if_exists: bool
    on: QName

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        if_exists = c.accept("IF", "EXISTS")
        name = c.name()
        c.expect("ON")
        on = c.qname()
        _ = c.accept("CASCADE") or c.accept("RESTRICT")
        c.end()
        return cls(name, if_exists, on)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (access.owns("relation", self.on),)

    async def execute(self, ctx: Context) -> Result:
        view, name = _view(ctx, self.on), self.name.text
        path = [*view.full.path, name]
        if self.if_exists and name not in {p.name for p in view.policies}:
            sentence = f'policy "{name}" does not exist'
            ctx.notice(f"{sentence}, skipping")
            return done(self.tag, ddl("policy", name, "DROP", path, sentence))
        await ctx.catalog.policies.drop(view.full, name, self.name.at)
        return done(self.tag, ddl("policy", name, "DROP", path))


@dataclass(frozen=True, slots=True)
class AlterRowSecurity(Statement):
    """ALTER MATERIALIZED VIEW [[database_name.]schema_name.]view_name { ENABLE | DISABLE } ROW LEVEL SECURITY;

    Switch the policies of a materialized view on or off; RELATION, VIEW or TABLE may stand for MATERIALIZED VIEW. While
    they are on, a role to which no policy applies reads no row. It needs the view.
    """

    words: ClassVar = ("ALTER", "MATERIALIZED", "VIEW")
    tag: ClassVar = "ALTER MATERIALIZED VIEW"
    columns: ClassVar = DDL_ROW

    name: QName
    on: bool

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect("ALTER")
        if not any(c.accept(*w) for w in (("MATERIALIZED", "VIEW"), ("RELATION",), ("VIEW",), ("TABLE",))):
            raise c.fault()
        c.accept("IF", "EXISTS")
        c.accept("ONLY")
        name = c.qname()
        at = c.at
        if c.accept("FORCE") or c.accept("NO", "FORCE"):
            hint = "Restrictive policies hold for the view's own role too."
            raise NotSupported(what="FORCE ROW LEVEL SECURITY on a materialized view", at=at, hint=hint)
        on = c.accept("ENABLE")
        if not on:
            c.expect("DISABLE")
        c.expect("ROW", "LEVEL", "SECURITY")
        c.end()
        return cls(name, on)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (access.owns("relation", self.name),)

    async def execute(self, ctx: Context) -> Result:
        view = _view(ctx, self.name)
        await ctx.catalog.policies.switch(view.full, self.on, self.name.at)
        summary = f"row-level security of {view.full} was {'enabled' if self.on else 'disabled'}"
        return done(self.tag, ddl(view.kind, str(view.full), "ALTER", view.full.path, summary))


@dataclass(frozen=True, slots=True)
class ListPolicies(Statement):
    """LIST POLICIES [ON [[database_name.]schema_name.]view_name];

    The policies of the materialized views of the session's schema, or of one view. Enabled says whether they are asked;
    Roles is {} for everybody.
    """

    words: ClassVar = ("LIST", "POLICIES")
    free: ClassVar = "it shows what the role sees"
    columns: ClassVar = (
        Column("Name"), Column("Relation"), Column("Permissive", types.BOOLEAN), Column("Roles"), Column("Using"),
        Column("Enabled", types.BOOLEAN),
    )  # fmt: skip

    on: QName | None

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        expect(c, *cls.words)
        on = c.qname() if c.accept("ON") else None
        c.end()
        return cls(on)

    async def execute(self, ctx: Context) -> Result:
        if self.on is not None:
            views = [_view(ctx, self.on)]
        else:
            place = places.schema(ctx, None)
            views = [r for r in ctx.snapshot.relations.values() if (r.full.database, r.full.schema) == place]
        lines = [
            (p.name, str(v.full), p.permissive, "{" + ",".join(p.roles) + "}", p.using, v.row_security)
            for v in sorted(views, key=lambda v: v.full.name)
            for p in v.policies
        ]
        return listing(self.columns, lines)
