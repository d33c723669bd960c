"""An application's statements checked one after the other, each where those before it would have been done.

Owns: the session and the catalogue as they would be then, and what DESCRIBE shows of the whole. Nothing is made.
Must not know: an application's grammar, how one runs. Start reading at ``Trial.run``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pgstream.catalog.records import DatabaseRecord, RelationRecord, SchemaRecord, Snapshot
from pgstream.errors import DuplicateRelation, InvalidStatement
from pgstream.names import FullName, QName
from pgstream.statements import access, continuous, places
from pgstream.statements.access import Need
from pgstream.statements.base import Context, Statement
from pgstream.statements.create_as import CreateAs, CreateStreamAs
from pgstream.statements.explained import Explained, plan_text, relation_facts
from pgstream.statements.insert import InsertInto
from pgstream.statements.streams import CreateStream
from pgstream.statements.use import UseDatabase, UseSchema, UseStore
from pgstream.statements.virtual import VIRTUAL, CreateVirtual


@dataclass(frozen=True, slots=True)
class Whole:
    """What DESCRIBE shows of an application."""

    statements: tuple[Explained, ...]
    sinks: tuple[dict[str, Any], ...]
    kind: str = "APPLICATION"
    plan: None = None

    @property
    def info(self) -> dict[str, Any]:
        parts = [{"type": s.kind, **s.info} for s in self.statements]
        return {
            "ddls": [s.ddl for s in self.statements if s.ddl is not None],
            "statements": parts,
            "sources": _each(source for s in self.statements for source in s.sources),
            "sinks": _each(self.sinks),
        }

    @property
    def steps(self) -> str:
        return "\n\n".join(plan_text(s.plan) for s in self.statements if s.plan is not None)


def _each(facts: Iterable[Any]) -> list[Any]:
    """Every relation once, in the order of the statements."""
    return list({f["fqn"]: f for f in facts}.values())


class _Catalog:
    """The catalogue with the relations that the application would have made."""

    def __init__(self, catalog: Any, role: str) -> None:
        self._catalog = catalog
        before: Snapshot = catalog.snapshot
        self.snapshot = replace(
            before,
            databases={**before.databases, VIRTUAL: DatabaseRecord(VIRTUAL, role)},
            schemas={**before.schemas, (VIRTUAL, "public"): SchemaRecord(VIRTUAL, "public", role)},
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    async def postgres_relation(self, full: FullName, *given: Any) -> Any:
        """PostgreSQL has no database of that name, or another one."""
        return None if full.database == VIRTUAL else await self._catalog.postgres_relation(full, *given)

    def add(self, r: RelationRecord) -> None:
        place = (r.full.database, r.full.schema, r.full.name)
        self.snapshot = replace(self.snapshot, relations={**self.snapshot.relations, place: r})


@dataclass(slots=True)
class Trial:
    """One run over an application's statements."""

    ctx: Context
    catalog: _Catalog
    explained: list[Explained] = field(default_factory=list)
    written: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, ctx: Context) -> Trial:
        catalog: Any = _Catalog(ctx.catalog, ctx.session.role)
        return cls(replace(ctx, session=replace(ctx.session), catalog=catalog), catalog)

    async def run(self, statements: Sequence[Statement], options: continuous.QueryOptions) -> Whole:
        """Errors: those of each statement, at its place in the text."""
        for statement in statements:
            for need in statement.needs(self.ctx):
                await access.require(self.ctx, need)
            match statement:
                case UseDatabase() | UseSchema() | UseStore():
                    self._use(statement)
                case CreateStream():
                    await self._create(statement)
                case CreateAs():
                    await self._create_as(statement)
                case InsertInto():
                    await self._insert(statement)
                case CreateVirtual():
                    await self._virtual(statement.create, options)
        return Whole(tuple(self.explained), tuple(self.written))

    def _use(self, statement: UseDatabase | UseSchema | UseStore) -> None:
        session = self.ctx.session
        match statement:
            case UseDatabase():
                session.database, session.schema = places.database(self.ctx, statement.name), "public"
            case UseSchema():
                session.database, session.schema = places.schema(self.ctx, statement.name)
            case UseStore():
                session.store = places.store(self.ctx, statement.name).name

    def _new(self, name: QName, *, if_not_exists: bool) -> FullName | None:
        """None: it is there already, and may be."""
        full = places.new_relation(self.ctx, name)
        if (full.database, full.schema, full.name) not in self.ctx.snapshot.relations:
            return full
        if not if_not_exists:
            raise DuplicateRelation(name=str(full), at=name.at)
        return None

    async def _create(self, statement: CreateStream) -> None:
        full = self._new(statement.name, if_not_exists=statement.if_not_exists)
        if full is not None:
            relation = await statement.relation(self.ctx, full)
            self._add(Explained(f"CREATE_{statement.kind.upper()}", ddl=facts(relation)), relation)

    async def _create_as(self, statement: CreateAs) -> None:
        if self._new(statement.name, if_not_exists=statement.if_not_exists) is None:
            return
        p = await statement.prepare(self.ctx)
        self.written.append(facts(p.into))
        kind = f"CREATE_{statement.kind.upper()}_AS"
        self._add(Explained(kind, facts(p.into), sources=_sources(p.planned.sources), plan=p.plan), p.into)

    async def _insert(self, statement: InsertInto) -> None:
        if statement.name.parts[0] == VIRTUAL and len(statement.name.parts) == 3:
            what = "a virtual relation is written by the statement that creates it, and by no other"
            raise InvalidStatement(what=what, at=statement.name.at)
        p = await statement.prepare(self.ctx)
        self.written.append(facts(p.into))
        self._add(Explained("INSERT_INTO", sink=facts(p.into), sources=_sources(p.planned.sources), plan=p.plan), None)

    async def _virtual(self, create: CreateStreamAs, options: continuous.QueryOptions) -> None:
        for need in (Need("create_query"), *access.reads(create.select), access.runs(self.ctx.session)):
            await access.require(self.ctx, need)
        name = QName((VIRTUAL, "public", create.name.name), create.name.at)
        full = self._new(name, if_not_exists=create.if_not_exists)
        if full is None:
            return
        planned, columns, key = await create.typed(self.ctx, options)
        first = planned.sources[0] if planned.sources else None
        # It lies nowhere; what reads it is planned as if it lay where its first source does.
        relation = RelationRecord(
            id=str(uuid.uuid4()), full=full, kind=create.kind, columns=columns, owner=self.ctx.session.role,
            primary_key=key, store=first.store if first else self.ctx.session.store, entity=str(full),
            properties={"value.format": "json"},
        )  # fmt: skip
        self.written.append(facts(relation))
        self._add(
            Explained(f"CREATE_{create.kind.upper()}_AS", facts(relation), sources=_sources(planned.sources)), relation
        )

    def _add(self, explained: Explained, made: RelationRecord | None) -> None:
        self.explained.append(explained)
        if made is not None:
            self.catalog.add(made)


def facts(r: RelationRecord) -> dict[str, Any]:
    """A relation in the words of DESCRIBE <statement>, and whether only the application has it."""
    virtual = r.full.database == VIRTUAL
    return {**relation_facts(r), **({"store_name": None} if virtual else {}), "is_virtual": virtual}


def _sources(found: Iterable[RelationRecord]) -> tuple[dict[str, Any], ...]:
    return tuple(facts(r) for r in found)
