"""An application's statements checked one after the other, each where those before it would have been done.

Owns: the session and the catalogue as they would be then, and what DESCRIBE shows of the whole. Nothing is made.
Must not know: an application's grammar, how one runs. Start reading at ``Trial.run``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pgstream.catalog.records import VIRTUAL, DatabaseRecord, RelationRecord, SchemaRecord, Snapshot
from pgstream.errors import DuplicateRelation, InvalidOption, InvalidStatement, NotYet, UndefinedDatabase
from pgstream.names import FullName, QName
from pgstream.planner.relations import Virtual
from pgstream.properties import Options
from pgstream.statements import access, continuous, places
from pgstream.statements.access import Need
from pgstream.statements.answers import ddl
from pgstream.statements.base import Context, Statement, TextRow
from pgstream.statements.continuous import Prepared
from pgstream.statements.create_as import CreateAs, CreateStreamAs
from pgstream.statements.declared import Declared
from pgstream.statements.explained import Explained, physical_text, plan_text, relation_facts
from pgstream.statements.insert import InsertInto
from pgstream.statements.streams import CreateStream, already
from pgstream.statements.use import UseDatabase, UseSchema, UseStore
from pgstream.statements.virtual import CreateVirtual

_VIRTUAL = "CREATE VIRTUAL STREAM and CREATE VIRTUAL CHANGELOG alone make what is in it."


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

    @property
    def operators(self) -> str:
        return "\n\n".join(physical_text(s.plan) for s in self.statements if s.plan is not None)


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


class Declaring(NamedTuple):
    """A relation that a statement declares, where, and its name's place in the text."""

    sink: Declared
    relation: RelationRecord
    at: int | None


class Starting(NamedTuple):
    """A query that a statement starts, and the place of the name that it writes."""

    prepared: Prepared
    at: int | None


@dataclass(slots=True)
class Trial:
    """One run over an application's statements. ``steps``: what they are to do, in their order; ``rows``: what is
    answered.
    """

    ctx: Context
    catalog: _Catalog
    virtuals: dict[FullName, Virtual] = field(default_factory=dict)
    steps: list[Declaring | Starting] = field(default_factory=list)
    rows: list[TextRow] = field(default_factory=list)
    explained: list[Explained] = field(default_factory=list)
    written: list[dict[str, Any]] = field(default_factory=list)

    @property
    def starts(self) -> bool:
        """Whether any statement is a query."""
        return any(isinstance(s, Starting) for s in self.steps)

    @classmethod
    def of(cls, ctx: Context) -> Trial:
        catalog: Any = _Catalog(ctx.catalog, ctx.session.role)
        virtuals: dict[FullName, Virtual] = {}
        within = replace(ctx, session=replace(ctx.session), catalog=catalog, virtuals=virtuals)
        return cls(within, catalog, virtuals)

    async def run(self, statements: Sequence[Statement], query_with: Options) -> Whole:
        """``query_with``: the parameters of the whole. Errors: those of each statement, at its place in the text."""
        for statement in statements:
            for need in statement.needs(self.ctx):
                await access.require(self.ctx, need)
            match statement:
                case UseDatabase() | UseSchema() | UseStore():
                    self._use(statement)
                case CreateStream():
                    await self._create(statement)
                case CreateAs():
                    _check_options({**statement.query_with, **_named(statement.given)})
                    await self._create_as(replace(statement, query_with=query_with))
                case InsertInto():
                    _check_options(statement.query_with)
                    await self._insert(replace(statement, query_with=query_with))
                case CreateVirtual():
                    _check_options(statement.create.query_with)
                    await self._virtual(statement.create, continuous.query_options(query_with))
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
        if session.database == VIRTUAL:
            raise UndefinedDatabase(name=VIRTUAL, at=statement.name.at, hint=_VIRTUAL)

    def _new(self, name: QName, *, if_not_exists: bool, virtual: bool = False) -> FullName | None:
        """None: it is there already, and may be."""
        full = places.new_relation(self.ctx, name)
        if full.database == VIRTUAL and not virtual:
            raise UndefinedDatabase(name=VIRTUAL, at=name.at, hint=_VIRTUAL)
        if (full.database, full.schema, full.name) not in self.ctx.snapshot.relations:
            return full
        if not if_not_exists:
            raise DuplicateRelation(name=str(full), at=name.at)
        return None

    async def _create(self, statement: CreateStream) -> None:
        full = self._new(statement.name, if_not_exists=statement.if_not_exists)
        if full is None:
            self._there(statement)
            return
        d, relation = await statement.relation(self.ctx, full)
        self.steps.append(Declaring(d, relation, statement.name.at))
        self.rows.append(ddl(statement.kind, str(full), "CREATE", full.path))
        self._add(Explained(f"CREATE_{statement.kind.upper()}", ddl=facts(relation)), relation)

    def _there(self, statement: CreateStream | CreateAs) -> None:
        """IF NOT EXISTS of what exists."""
        full = places.new_relation(self.ctx, statement.name)
        self.rows += already(self.ctx, statement, full).rows  # type: ignore[arg-type]

    async def _create_as(self, statement: CreateAs) -> None:
        full = self._new(statement.name, if_not_exists=statement.if_not_exists)
        if full is None:
            self._there(statement)
            return
        p = await self._prepared(statement)
        self.rows.append(ddl(statement.kind, str(full), "CREATE", full.path))
        kind = f"CREATE_{statement.kind.upper()}_AS"
        self._add(Explained(kind, facts(p.into), sources=_sources(p.planned.met), plan=p.plan), p.into)

    async def _prepared(self, statement: CreateAs | InsertInto) -> Prepared:
        p = await statement.prepare(self.ctx)
        own = {s.prepared.into.full for s in self.steps if isinstance(s, Starting)}
        for view in sorted(continuous.views_read(p.plan) & own, key=str):
            raise NotYet(
                what=f'reading materialized view "{view}" in the application that makes it', at=statement.select.at,
                hint="Make a VIRTUAL CHANGELOG of its query, and read that in both.",
            )  # fmt: skip
        self.steps.append(Starting(p, statement.name.at))
        self.written.append(facts(p.into))
        return p

    async def _insert(self, statement: InsertInto) -> None:
        if statement.name.parts[0] == VIRTUAL and len(statement.name.parts) == 3:
            what = "a virtual relation is written by the statement that creates it, and by no other"
            raise InvalidStatement(what=what, at=statement.name.at)
        p = await self._prepared(statement)
        self._add(Explained("INSERT_INTO", sink=facts(p.into), sources=_sources(p.planned.met), plan=p.plan), None)

    async def _virtual(self, create: CreateStreamAs, options: continuous.QueryOptions) -> None:
        for need in (Need("create_query"), *access.reads(create.select), access.runs(self.ctx.session)):
            await access.require(self.ctx, need)
        name = QName((VIRTUAL, "public", create.name.name), create.name.at)
        full = self._new(name, if_not_exists=create.if_not_exists, virtual=True)
        if full is None:
            return
        planned, columns, key = await create.typed(self.ctx, options)
        session = self.ctx.session
        relation = RelationRecord(
            id=str(uuid.uuid4()), full=full, kind=create.kind, columns=columns, owner=session.role, primary_key=key
        )
        self.virtuals[full] = Virtual(relation, create.select, session.database, session.schema)
        self.written.append(facts(relation))
        self._add(
            Explained(f"CREATE_{create.kind.upper()}_AS", facts(relation), sources=_sources(planned.met)), relation
        )

    def _add(self, explained: Explained, made: RelationRecord | None) -> None:
        self.explained.append(explained)
        if made is not None:
            self.catalog.add(made)


def facts(r: RelationRecord) -> dict[str, Any]:
    """A relation in the words of DESCRIBE <statement>, and whether only the application has it."""
    virtual = r.full.database == VIRTUAL
    return {**relation_facts(r), "is_virtual": virtual}


def _check_options(given: Options) -> None:
    """A statement's own, which can only be the whole's."""
    if given:
        option = next(iter(given.values()))
        raise InvalidOption(
            what=f'parameter "{option.name}" cannot be given to a statement of an application', at=option.at,
            hint="Its statements run as one query: END APPLICATION WITH ('query.name' = …) has its parameters.",
        )  # fmt: skip


def _named(given: Options) -> Options:
    return {k: v for k, v in given.items() if k == "query.name"}


def _sources(found: Iterable[RelationRecord]) -> tuple[dict[str, Any], ...]:
    return tuple(facts(r) for r in found)
