"""GRANT and REVOKE of privileges and ownership, ALTER … OWNER TO, and CAN I.

Owns: the grammar and the answers, PostgreSQL's own form of GRANT over relations of ours included. ``roles.py`` has
GRANT ROLE. Must not know: the rules (``catalog.privileges``) nor PostgreSQL's privileges (``catalog.acl``).
Manual: "GRANT PRIVILEGES", "REVOKE PRIVILEGES", "GRANT OWNERSHIP", "ALTER … OWNER TO", "CAN I".
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self, TypeVar

from pgstream import types
from pgstream.catalog import kinds
from pgstream.catalog.postgres import WORKER
from pgstream.catalog.privileges import OWNERSHIP, Grant
from pgstream.catalog.roles import pg_role
from pgstream.errors import (
    InsufficientPrivilege,
    InvalidGrant,
    NotSupported,
    PgStreamError,
    RelayedError,
    UndefinedColumn,
)
from pgstream.names import FullName, Name, QName, quote_always, quote_anywhere
from pgstream.sql.cursor import Cursor
from pgstream.statements import access, owners, places
from pgstream.statements.access import Need, Target
from pgstream.statements.answers import ddl, done, listing
from pgstream.statements.base import DDL_ROW, Column, Context, Result, Statement, TextRow
from pgstream.statements.regions import LOCAL
from pgstream.statements.roles import GRANT_ROW

T = TypeVar("T")
_RELATIONS = ("RELATION", "STREAM", "CHANGELOG", "TABLE", "MATERIALIZED VIEW", "VIEW", "INDEX")
_OBJECTS = {
    **dict.fromkeys(_RELATIONS, "relation"),
    **{k.words: k.name for k in kinds.KINDS.values() if k.name != "organization" and (k.privileges or k.owned)},
}
_QUALIFIED = frozenset({"schema", "relation", "function"})
_POSTGRESQLS = {("database", "connect"): "usage"}
"""What PostgreSQL calls a privilege of ours."""
_OF_TABLES = frozenset(("update", "delete", "truncate", "references", "trigger", "maintain"))
"""What PostgreSQL's own tables have beside what relations have."""


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
    """GRANT { privilege [, ...] | ALL [PRIVILEGES] }
    ON { ORGANIZATION | object_type object_name [, ...] | ALL TABLES IN SCHEMA schema_name [, ...] }
    TO ROLE role_name [, ...] [WITH GRANT OPTION];

    Give privileges on objects: USAGE and CREATE on databases and schemas, SELECT and INSERT on relations, USAGE on
    everything else, CREATE_… and MANAGE_… on the organization. SELECT (column, …) gives single columns of a
    materialized view. It needs the object, MANAGE_GRANTS, or the privilege with grant option. CURRENT_ROLE is the
    session's.

    As in PostgreSQL, TABLE or nothing may stand for RELATION, CONNECT is a database's USAGE, and ALL TABLES are all
    relations of a schema that the role sees and all tables of PostgreSQL's own in it. What only a table has (UPDATE,
    DELETE, …) is then given on PostgreSQL's own alone, and on those alone a ROLLBACK takes it back. In the extended
    protocol it answers with its command tag alone, as PostgreSQL's statement of this name does.
    """

    words: ClassVar[tuple[str, ...]] = ("GRANT",)
    tag: ClassVar[str] = "GRANT"
    columns: ClassVar = GRANT_ROW
    as_postgres: ClassVar = True
    to: ClassVar[str] = "TO"

    privileges: tuple[Privilege, ...]
    objects: tuple[Object, ...]
    schemas: tuple[QName, ...]
    roles: tuple[Name, ...]
    grant_option: bool

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(cls.words[0])
        option = cls.to == "FROM" and c.accept("GRANT", "OPTION", "FOR")
        privileges = _privileges(c)
        if c.accept("ON"):
            objects, schemas = _objects(c)
        elif cls.to == "FROM":  # REVOKE of the organization's has no ON
            objects, schemas = (Object("organization", None),), ()
        else:
            raise c.fault()
        roles = grantees(c, cls.to)
        option |= cls.to == "TO" and c.accept("WITH", "GRANT", "OPTION")
        c.end()
        return cls(tuple(privileges), objects, schemas, roles, option)

    def needs(self, ctx: Context) -> Iterable[Need]:
        objects, tables, _ = self._found(ctx)
        return [Need(p.name, o.kind, o.name, granting=True) for o in objects for p in self._wanted(o, bool(tables))]

    def _found(self, ctx: Context) -> tuple[list[Object], list[str], dict[str, str]]:
        """What is in the catalogue of what is named, and the rest of a list of relations: tables of PostgreSQL's. Among
        these are names that nothing has, for PostgreSQL to say so: each stands for a relation that only others see.
        """
        if len(self.objects) == 1:
            return list(self.objects), [], {}
        objects, tables, hidden = list[Object](), list[str](), dict[str, str]()
        for o in self.objects:
            if o.kind != "relation" or not isinstance(o.name, QName) or self._is_seen(ctx, o.name):
                objects.append(o)
            else:
                parts = o.name.parts
                if self._is_hidden(ctx, o.name):
                    nothing = f"pgstream_{uuid.uuid4().hex}"
                    hidden[nothing] = parts[-1]
                    parts = *parts[:-1], nothing
                tables.append(".".join(map(quote_always, parts)))
        for name in self.schemas:
            place = places.schema(ctx, name)
            if place[0] != ctx.session.database:
                hint = "USE that database first: PostgreSQL's own tables in it are granted with the session's rights."
                raise NotSupported(what="GRANT or REVOKE on all tables of another database", at=name.at, hint=hint)
            there = (r for r in ctx.snapshot.relations.values() if r.kind != "index")
            within = (r.full for r in there if (r.full.database, r.full.schema) == place)
            objects += [Object("relation", QName(tuple(full.path), name.at)) for full in within]
        return objects, tables, hidden

    def _is_seen(self, ctx: Context, name: QName) -> bool:
        """Whether the role sees a relation, or grants on all."""
        grants = ctx.catalog.snapshot.access.manages(ctx.session.role, "manage_grants")
        snapshot = ctx.catalog.snapshot if grants else ctx.snapshot
        return snapshot.relation(name, ctx.session.database, ctx.session.schema) is not None

    def _is_hidden(self, ctx: Context, name: QName) -> bool:
        return ctx.catalog.snapshot.relation(name, ctx.session.database, ctx.session.schema) is not None

    def _wanted(self, object: Object, among_tables: bool = False) -> list[Privilege]:
        """Each privilege on an object, ALL spelled out. Errors: InvalidGrant for one that its kind does not have,
        unless it is one of the tables ``among`` which the object is.
        """
        kind, out = kinds.KINDS[object.kind], []
        for p in self.privileges:
            name = _POSTGRESQLS.get((object.kind, p.name), p.name)
            if name == "all":
                out += [Privilege(k, p.columns, p.at) for k in kind.privileges if not (p.columns and k != "select")]
            elif name in kind.privileges:
                out.append(Privilege(name, p.columns, p.at))
            elif not ((among_tables or self.schemas) and name in _OF_TABLES):
                raise InvalidGrant(
                    what=f"invalid privilege type {p.name.upper()} for {kind.called}",
                    at=p.at, hint=f"It has {', '.join(k.upper() for k in kind.privileges)}.",
                )  # fmt: skip
        return out

    async def execute(self, ctx: Context) -> Result:
        objects, tables, hidden = self._found(ctx)
        roles = [owners.named(ctx, r) for r in self.roles]
        made = [await self._grants(ctx, o, roles, bool(tables)) for o in objects]
        if self.schemas:
            tables += await _tables(ctx, self.schemas)
        if tables:  # first: what PostgreSQL refuses, nobody has
            try:
                await ctx.postgres(self._of_tables(tables, roles))
            except RelayedError as e:
                said = e.text
                for nothing, name in hidden.items():
                    said = said.replace(nothing, name)
                raise RelayedError(code=e.sqlstate, text=said, detail=e.detail, hint=e.hint) from None
        await self.change(ctx, [g for _, grants in made for g in grants])
        lines = [
            self._line(self._wanted(o, bool(tables)), _where(t), roles) for o, (t, _) in zip(objects, made, strict=True)
        ]
        if tables:
            lines.append(self._line(self.privileges, f"table(s) {', '.join(tables)}", roles))
        return Result(self.tag, GRANT_ROW, [line for line in lines if line is not None])

    async def change(self, ctx: Context, grants: list[Grant]) -> None:
        await ctx.catalog.authority.grant(grants)

    async def _grants(
        self, ctx: Context, object: Object, roles: Sequence[str], among_tables: bool
    ) -> tuple[Target, list[Grant]]:
        target = await access.find(ctx, object.kind, object.name, everything=True)
        assert target is not None  # needs() found it
        wanted = [(p, _columns(ctx, target, p)) for p in self._wanted(object, among_tables)]
        if object.kind != "relation" and any(columns for _, columns in wanted):
            raise InvalidGrant(what="column privileges are only valid for relations", at=self.privileges[0].at)
        return target, [
            Grant(role, p.name, target.kind, target.name, column, self.grant_option, ctx.session.role)
            for role in roles
            for p, columns in wanted
            for column in (columns or [""])
        ]

    def _of_tables(self, tables: Sequence[str], roles: Sequence[str]) -> str:
        """The same of PostgreSQL's own tables."""
        before, after = ("GRANT OPTION FOR ", "") if self.to == "FROM" else ("", " WITH GRANT OPTION")
        if not self.grant_option:
            before = after = ""
        listed = (
            f" ({', '.join(quote_always(n.text) for n in p.columns)})" if p.columns else "" for p in self.privileges
        )
        privileges = ", ".join(p.name.upper() + columns for p, columns in zip(self.privileges, listed, strict=True))
        to = ", ".join(quote_always(pg_role(r)) for r in roles)
        return f"{self.words[0]} {before}{privileges} ON TABLE {', '.join(tables)} {self.to} {to}{after}"

    def _line(self, wanted: Sequence[Privilege], where: str, roles: Sequence[str]) -> TextRow | None:
        if not wanted:
            return None
        privileges = ", ".join(p.name.upper() for p in wanted)
        named = ", ".join(f'"{r}"' for r in roles)
        what, done = ("grant", "granted") if self.to == "TO" else ("revoke", "revoked")
        summary = f"Privilege(s) {privileges} on {where} {done} {self.to.lower()} role(s) {named}"
        return [f"privilege {what}", "ALTER", summary]


class RevokePrivileges(GrantPrivileges):
    """REVOKE { privilege [, ...] | ALL [PRIVILEGES] }
    [ON { ORGANIZATION | object_type object_name [, ...] | ALL TABLES IN SCHEMA schema_name [, ...] }]
    FROM ROLE role_name [, ...];

    Take privileges back. What a role granted on, having held the privilege with grant option, stays.
    """

    words: ClassVar[tuple[str, ...]] = ("REVOKE",)
    tag: ClassVar[str] = "REVOKE"
    to: ClassVar[str] = "FROM"

    async def change(self, ctx: Context, grants: list[Grant]) -> None:
        if not await ctx.catalog.authority.revoke(grants, option_only=self.grant_option) and grants:
            ctx.notice("no privileges could be revoked", severity="WARNING", code="01006")


def _objects(c: Cursor) -> tuple[tuple[Object, ...], tuple[QName, ...]]:
    """What stands after ON: objects of one kind, or the schemas of ALL TABLES."""
    if c.accept("ORGANIZATION"):
        return (Object("organization", None),), ()
    if c.accept("ALL", "TABLES", "IN", "SCHEMA"):
        return (), tuple(_list(c, c.qname))
    first = object_(c, "relation")
    more = _list(c, lambda: Object(first.kind, name_of(c, first.kind))) if c.accept(",") else []
    return (first, *more), ()


def _list(c: Cursor, read: Callable[[], T]) -> list[T]:
    out = [read()]
    while c.accept(","):
        out.append(read())
    return out


async def _tables(ctx: Context, schemas: Iterable[QName]) -> list[str]:
    """PostgreSQL's own tables and views in schemas of the session's database."""
    among = ", ".join(quote_anywhere(name.parts[-1]) for name in schemas)
    found = await ctx.postgres(
        "SELECT pg_catalog.json_agg(pg_catalog.format('%I.%I', n.nspname, c.relname) ORDER BY n.nspname, c.relname)"
        " FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace"
        f" WHERE n.nspname::pg_catalog.text OPERATOR(pg_catalog.=) ANY (ARRAY[{among}])"
        " AND pg_catalog.strpos('rvmfp', c.relkind::pg_catalog.text) OPERATOR(pg_catalog.>) 0"
        f" AND pg_catalog.pg_get_userbyid(c.relowner) OPERATOR(pg_catalog.<>) '{WORKER}'"
    )
    return list(json.loads(found)) if found else []


def _where(target: Target) -> str:
    return "organization" if target.kind == "organization" else f'{target.kind} "{target.name}"'


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


@dataclass(frozen=True, slots=True)
class AlterDefaultPrivileges(Statement):
    """ALTER DEFAULT PRIVILEGES [FOR ROLE role_name [, ...]] [IN SCHEMA schema_name [, ...]]
    { GRANT privilege [, ...] ON TABLES TO role_name [, ...] [WITH GRANT OPTION] |
    REVOKE [GRANT OPTION FOR] privilege [, ...] ON TABLES FROM role_name [, ...] [CASCADE | RESTRICT] };

    PostgreSQL's statement about tables that the session's role makes later. In a database with streams, changelogs or
    materialized views a notice says that those take no default privileges.
    """

    words: ClassVar[tuple[str, ...]] = ("ALTER", "DEFAULT", "PRIVILEGES")
    tag: ClassVar[str] = "ALTER DEFAULT PRIVILEGES"
    free: ClassVar[str] = "PostgreSQL asks for what it needs"
    rolls_back: ClassVar[bool] = True

    text: str

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        while True:  # in either order
            if c.accept("FOR", "ROLE") or c.accept("FOR", "USER"):
                _list(c, lambda: owners.read(c))
            elif c.accept("IN", "SCHEMA"):
                _list(c, c.name)
            else:
                break
        grants = c.accept("GRANT")
        if not grants:
            c.expect("REVOKE")
            c.accept("GRANT", "OPTION", "FOR")
        _privileges(c)
        c.expect("ON", "TABLES")
        grantees(c, "TO" if grants else "FROM")
        _ = c.accept("WITH", "GRANT", "OPTION") if grants else c.accept("CASCADE") or c.accept("RESTRICT")
        c.end()
        return cls(c.text)

    async def execute(self, ctx: Context) -> Result:
        try:
            await ctx.postgres(self.text)
        except RelayedError as e:
            e.at = e.position
            raise
        hint = "GRANT … ON ALL TABLES IN SCHEMA gives privileges on those that are there."
        ctx.notice("relations of pgstream take no default privileges", hint=hint)
        return Result(self.tag)


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
