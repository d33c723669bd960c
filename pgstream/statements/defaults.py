"""SET DEFAULT: what a user's later sessions begin with.

Owns: the grammar, and what is checked before a default is kept. Must not know: how a session begins; ``begin`` tells
the server what to begin it with. Manual: "SET DEFAULT".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from pgstream.catalog import kinds
from pgstream.catalog.records import DEFAULT_ORGANIZATION, Snapshot
from pgstream.errors import NotSupported
from pgstream.names import Name, QName, quote
from pgstream.sql.cursor import Cursor
from pgstream.statements import organizations, places
from pgstream.statements.answers import CONTEXT_ROW
from pgstream.statements.base import Context, Result, Session, Statement
from pgstream.statements.heading import accept

KINDS = ("DATABASE", "ORGANIZATION", "ROLE", "SCHEMA", "STORE", "COMPUTE_POOL")


@dataclass(frozen=True, slots=True)
class SetDefault(Statement):
    """SET DEFAULT { DATABASE | ORGANIZATION | ROLE | SCHEMA | STORE | COMPUTE_POOL } object_name;

    Choose what the user's later sessions begin with; this one goes on as it is (USE changes it). The default database
    is that of a client which names none; a schema is a default in its own database. COMPUTE_POOL is an addition of
    ours.
    """

    words: ClassVar = ("SET", "DEFAULT")
    free: ClassVar[str] = "a default is the user's own, and names what the role sees"
    tag: ClassVar = "SET DEFAULT"
    columns: ClassVar = CONTEXT_ROW

    kind: str
    name: QName

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        kind = next((k for k in KINDS if accept(c, k)), None)
        if kind is None:
            raise c.fault()
        name = c.qname() if kind == "SCHEMA" else _one(c.name())
        c.end()
        return cls(kind.lower(), name)

    async def execute(self, ctx: Context) -> Result:
        value = await self._value(ctx)
        await ctx.catalog.inventory.set_default(ctx.session.user, ctx.session.organization, self.kind, value)
        said = self.name.name if self.kind != "schema" else value
        summary = f"Default {self.kind} was successfully updated to {said}"
        return Result(self.tag, CONTEXT_ROW, [["default", said, "UPDATE", summary]])

    async def _value(self, ctx: Context) -> str:
        """What is kept, once the object is known to be there."""
        name = Name(self.name.name, self.name.at)
        match self.kind:
            case "database":
                return places.database(ctx, name)
            case "schema":
                return str(QName(places.schema(ctx, self.name)))
            case "store":
                return places.store(ctx, name).name
            case "compute_pool":
                return places.object(ctx, "compute_pool", name).name
            case "organization":
                return await organization(ctx, name)
        return role(ctx, name)


def _one(name: Name) -> QName:
    return QName((name.text,), name.at)


async def organization(ctx: Context, name: Name) -> str:
    """The id of an organization by its name. The first one knows where its users go."""
    found = await organizations.named(ctx, name)
    if ctx.catalog.snapshot.organization.id != DEFAULT_ORGANIZATION:
        raise NotSupported(
            what="SET DEFAULT ORGANIZATION in another organization than the server's first",
            hint="Name the organization when you log in: organization_name/database_name.",
            at=name.at,
        )
    return found.record.id


def role(ctx: Context, name: Name) -> str:
    """A role that the user may work in, by its name."""
    if name.text not in ctx.catalog.snapshot.access.usable(ctx.session.user):
        raise kinds.missing("role", name.text, name.at)
    return name.text


def begin(user: str, database: str, role: str, snapshot: Snapshot) -> Session:
    """The context that a user's session begins with. A default that is gone, or hidden from the role, is as none."""
    kept, seen = snapshot.kept(user), snapshot.seen_by(role)
    session = Session(user=user, database=database, role=role)
    if (store := kept.get("store")) in seen.stores:
        session.store = store
    pool = kept.get("compute_pool", session.pool)
    if (session.organization, "compute_pool", pool) in seen.objects:
        session.pool = pool
    return session


def search_path(user: str, database: str, snapshot: Snapshot) -> str | None:
    """What PostgreSQL's search path begins as: the default schema, if it is one of this database."""
    for (of, schema), _ in snapshot.schemas.items():
        if of == database and str(QName((of, schema))) == snapshot.kept(user).get("schema"):
            return quote(schema)
    return None


def database(user: str, snapshot: Snapshot) -> str:
    """Where a client goes that names no database: the default one, or, as with PostgreSQL, that of the user's name."""
    kept = snapshot.kept(user).get("database", user)
    return kept if kept in snapshot.databases else user
