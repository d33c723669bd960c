"""The catalogue: what exists, kept in the control database, with PostgreSQL's objects derived from it.

Owns: ``Catalog``, its transactions and the shared snapshot. Each change is one catalogue transaction. PostgreSQL's
objects are committed before it when they are made, after it when they go, so a crash between the two leaves at most an
object too many, which the next start drops (``heal``).
Must not know: statements, sessions, what runs queries. Start reading at ``Catalog.open``.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import psycopg
import sqlalchemy.exc
import structlog
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.pool import QueuePool

from pgstream import traces
from pgstream.catalog import (
    authority,
    authors,
    comparing,
    databases,
    expiry,
    locks,
    models,
    objects,
    postgres,
    queries,
    relations,
    replacing,
    rows,
    stores,
    system_copies,
    system_tables,
    undecided,
    view_logs,
)
from pgstream.catalog import open as opening
from pgstream.catalog.authority import Authority
from pgstream.catalog.changes import Reader
from pgstream.catalog.comparing import Comparison
from pgstream.catalog.crypto import Cipher, open_cipher
from pgstream.catalog.delta import Delta, applied
from pgstream.catalog.inventory import Inventory
from pgstream.catalog.policies import Policies
from pgstream.catalog.readers import Readers
from pgstream.catalog.records import (
    FIRST_ORGANIZATION,
    DatabaseRecord,
    ObjectRecord,
    QueryEvent,
    QueryRecord,
    RelationRecord,
    SchemaRecord,
    Snapshot,
    StoreRecord,
)
from pgstream.catalog.replacing import Consumed, Enough
from pgstream.catalog.roles import reader
from pgstream.catalog.system_copies import SystemCopies
from pgstream.catalog.users import Users
from pgstream.catalog.watch import CHANNEL, watch
from pgstream.config import Config
from pgstream.errors import (
    BeingReplaced,
    DependentsExist,
    InvalidOption,
    NotSupported,
    PgStreamError,
    ReadersRemain,
    RelayedError,
    Superseded,
    UndefinedQuery,
    UndefinedRelation,
    UndefinedSchema,
)
from pgstream.names import FullName, view_log
from pgstream.tasks import whole

Url = Callable[..., str]
REPLACES = "replace_materialized_view_as"
"""The kind of a query that was made to replace another."""
_TAKE_TURN = text(postgres.TAKE_TURN)
_COPY_TURN = text(system_copies.TURN)
_CLOSES_S = 5
"""How long connections that are in use are waited for in the end."""
_LEFT_WAIT_S = 1.0
"""How long what is over waits for the batch that is being written."""
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Change:
    """A change under way. What is entered into ``before`` ends when all is done and the catalogue is to commit, what is
    entered into ``after`` when it has; or with the change's error.
    """

    session: AsyncSession
    before: AsyncExitStack
    after: AsyncExitStack
    administrator: postgres.Administrator
    hurries: bool = False
    made: dict[str, postgres.Connection] = field(default_factory=dict)
    gone: dict[str, postgres.Connection] = field(default_factory=dict)

    async def making(self, database: str) -> postgres.Connection:
        """A transaction, of all that is made in a database, that commits right before the catalogue: a crash leaves an
        object too many, never one too few.
        """
        return await self._opened(database, self.made, self.before)

    async def dropping(self, database: str) -> postgres.Connection:
        """A transaction that commits after the catalogue, for the same reason."""
        return await self._opened(database, self.gone, self.after)

    async def _opened(
        self, database: str, there: dict[str, postgres.Connection], stack: AsyncExitStack
    ) -> postgres.Connection:
        if database not in there:
            conn = await stack.enter_async_context(self.administrator.connect(database))
            if self.hurries:
                await postgres.run(conn, f"SET lock_timeout = '{locks.IN_TURN_MS}ms'")
            await stack.enter_async_context(conn.transaction())
            there[database] = conn
        return there[database]

    async def relation(self, record: RelationRecord, at: int | None) -> RelationRecord:
        made = await relations.create(self.session, record, at)
        await objects.create_relation(await self.making(made.full.database), made, at)
        return made


async def _unless_locked(schema: str, settle: Callable[[], Awaitable[bool]], wait: bool) -> bool:
    """Whether a schema is settled. One that a client's transaction locks is not: no error of whoever settles it.
    ``wait``: nobody will ask again, so for that transaction's end, for a while. Others may settle theirs meanwhile.
    """
    deadline = asyncio.get_running_loop().time() + undecided.WAIT_S
    while True:
        try:
            settled, locked = await settle(), False
        except RelayedError as e:
            if e.sqlstate != postgres.LOCKED:
                raise
            settled, locked = False, True
        if settled or not wait:
            return settled
        if asyncio.get_running_loop().time() > deadline:
            if locked:
                log.warning("schema kept that a transaction holds", schema=schema)
            return False
        await asyncio.sleep(0.2 if locked else 0.02)


def _translated(e: sqlalchemy.exc.DBAPIError) -> BaseException:
    """A failure of the control database itself: not the client's fault, and worth a retry.

    Not where the task is being cancelled: SQLAlchemy puts the failure of the ROLLBACK, on a connection that is cut
    then, in the cancellation's place, and a task that does its work for ever would go on.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        return asyncio.CancelledError()
    code = getattr(e.orig, "sqlstate", None) or "58000"
    return RelayedError(code=code, text=f"could not use the catalogue: {str(e.orig).strip()}")


class Catalog:
    """What exists. Made by ``open``; methods may run concurrently, changes take turns."""

    def __init__(self, opened: opening.Opened, url: Url, cipher: Cipher) -> None:
        self._engine = opened.engine
        self._worker_password = opened.worker_password
        self._url = url
        self._cipher = cipher
        self._id = uuid.uuid4().hex
        self._administrator = postgres.Administrator(url)
        # Views are the worker's tables: a trigger of its making has no more rights than it.
        keeper = partial(url, user=postgres.WORKER, password=opened.worker_password, tcp=True)
        self._keeper = postgres.Administrator(keeper)
        self._changing = asyncio.Lock()
        self._refreshing = asyncio.Lock()
        self._settling = asyncio.Lock()
        self._watch: asyncio.Task[None] | None = None
        self._readers = Readers(self._administrator, opened.worker_password)
        self._system = SystemCopies(self._administrator)
        self.inventory = Inventory(self._change, self._reading, cipher)
        self.authority = Authority(self._change)
        self.policies = Policies(self._change)
        self.users = Users(self._change, self._reading)
        self.generated_password: str | None = None
        self.repaired: list[str] = []
        """What opening it had to repair, in sentences."""
        self._left_logs: dict[str, set[str]] = {}
        """By discarded query, the databases in which something may wait for it still."""
        self.snapshot = Snapshot()
        self._reader = Reader()
        self.spread: Callable[[Delta], Awaitable[None]] = _to_nobody
        """Tells other processes of this server; a change ends when they know it."""

    @classmethod
    async def open(
        cls,
        config: Config,
        postgres_url: Url,
        data_dir: Path,
        organization: ObjectRecord = FIRST_ORGANIZATION,
        first_user: bool = True,
    ) -> Catalog:
        """Make what is missing, migrate, heal, and read everything. Errors: ConfigurationError.

        ``organization``: whose catalogue a new one is. ``first_user``: make that of the settings if it is missing.
        """
        cipher = open_cipher(config, data_dir)
        administrator = postgres.Administrator(postgres_url)
        await opening.ensure_control(administrator)
        async with postgres.turn(administrator, databases.CONTROL, postgres.OPEN):
            opened = await opening.open_control(administrator, postgres_url, cipher)
            catalog = cls(opened, postgres_url, cipher)
            try:
                await opening.first_objects(opened.engine, organization)
                await opening.first_database(opened.engine, administrator, config)
                async with postgres.turn(administrator, databases.CONTROL, postgres.CHANGE):
                    await catalog.refresh()
                    live = [q.id for q in await catalog.queries()]
                    catalog.repaired = await opening.heal(administrator, catalog.snapshot, live)
                catalog.repaired += await catalog.finish_replacements(catalog.snapshot.databases)
                for database, name in await opening.undecided_schemas(administrator, catalog.snapshot):
                    await catalog.settle_schema(database, name)
                # Last, so that a start that fails half-way does not swallow the password that it generated.
                if first_user:
                    catalog.generated_password = await opening.first_user(opened.engine, administrator, config)
                await catalog.refresh()
            except BaseException:
                await catalog.close()
                raise
            catalog._watch = asyncio.create_task(watch(catalog.control_url, catalog._id, catalog.refresh))
            return catalog

    async def close(self) -> None:
        if self._watch is not None:
            # Not in the middle of a refresh: a connection that is cut there is lost to the pool.
            async with self._refreshing:
                self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        # The work of a client that has gone may be ending still: a connection that comes back later is lost, too.
        for _ in range(_CLOSES_S * 100):
            if not cast(QueuePool, self._engine.pool).checkedout():
                break
            await asyncio.sleep(0.01)
        await self._engine.dispose()

    async def refresh(self) -> None:
        """Take into the snapshot what has changed; one at a time, so that an older one never replaces a newer."""
        async with self._refreshing, self._copying() as copying:
            async with self._reading() as session:
                delta = await self._reader.read(session)
                after = applied(self.snapshot, delta)
                few = system_tables.few(delta) if self._system.holds(after.system_copies) else None
                copying = copying and bool(after.system_copies)
                known = await queries.every(session) if delta and copying and few is None else []
            if delta:
                if copying:
                    wanted = system_tables.rows(after, known) if few is None else system_tables.relations(after, few)
                    await self._system.settle(sorted(after.system_copies), wanted, few)
                self.snapshot = after
                await self.spread(delta)
            self._reader.taken()

    @asynccontextmanager
    async def _copying(self) -> AsyncIterator[bool]:
        """Alone among the servers that write the system tables; False: the turn does not come."""
        async with self._reading() as session, session.begin():
            try:
                async with session.begin_nested():
                    await session.execute(_COPY_TURN)
            except sqlalchemy.exc.DBAPIError as e:
                if getattr(e.orig, "sqlstate", None) != "55P03":
                    raise
                log.warning("system tables not written", error="another server writes them for long")
                self._system.forget()
                yield False
            else:
                yield True

    async def notify(self, channel: str, words: str) -> None:
        """Tell all servers on this PostgreSQL."""
        async with self._reading() as session, session.begin():
            await session.execute(text("SELECT pg_notify(:c, :t)"), {"c": channel, "t": words})

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[AsyncSession]:
        try:
            async with AsyncSession(self._engine) as session:
                yield session
        except sqlalchemy.exc.DBAPIError as e:
            raise _translated(e) from None

    @asynccontextmanager
    async def _change(self, *over: FullName, hurries: bool | None = None) -> AsyncIterator[Change]:
        """One transaction, then its effect in the snapshot here, and a word to other servers. ``over``: of the
        relations that it makes, changes or drops; one without a name stands for a whole schema. ``hurries``: and waits
        for no lock in its turn, which is so with these, unless it waits for a query's batch.

        Who is canceled when all is done, and PostgreSQL begins to commit, is so when everybody knows the change.
        """
        with traces.span("change the catalogue"):
            for full in (f for f in over if f.database in self.snapshot.databases):
                await locks.free(self._administrator, full.database, full.schema, full.name or None)
            async with self._changing:
                end = AsyncExitStack()
                try:
                    end.push_async_callback(self.refresh)
                    after = await end.enter_async_context(AsyncExitStack())
                    session = await end.enter_async_context(self._reading())
                    await end.enter_async_context(session.begin())
                    await session.execute(_TAKE_TURN)
                    await authors.sign(session)
                    end.push_async_exit(partial(self._tell, session))
                    before = await end.enter_async_context(AsyncExitStack())
                    yield Change(
                        session, before, after, self._administrator, bool(over) if hurries is None else hurries
                    )
                except asyncio.CancelledError as e:
                    with contextlib.suppress(Exception):  # a connection that is cut may not roll back
                        await whole(end.__aexit__(type(e), e, e.__traceback__))
                    raise
                except BaseException as e:
                    await whole(end.__aexit__(type(e), e, e.__traceback__))
                    raise
                await whole(end.aclose())

    async def _tell(self, session: AsyncSession, error: type[BaseException] | None, *_: Any) -> None:
        """The end of a change that has come to it: others hear of it when it commits."""
        if error is None:
            await session.execute(text("SELECT pg_notify(:c, :id)"), {"c": CHANNEL, "id": self._id})
            await self._reader.forget(session)

    # Stores

    async def create_store(
        self,
        name: str,
        type: str,
        options: Mapping[str, str],
        secrets: frozenset[str],
        owner: str,
        *,
        at: int | None = None,
    ) -> StoreRecord:
        """``secrets`` names the options that are kept encrypted and never shown."""
        record = StoreRecord(str(uuid.uuid4()), name, type, options, owner)
        async with self._change() as change:
            return await stores.create(change.session, self._cipher, record, secrets, at)

    async def update_store(
        self, name: str, options: Mapping[str, str], secrets: frozenset[str], at: int | None = None
    ) -> StoreRecord:
        """All options anew, as for ``create_store``."""
        async with self._change() as change:
            return await stores.update(change.session, self._cipher, name, options, secrets=secrets, at=at)

    async def drop_store(self, name: str, at: int | None = None) -> None:
        async with self._change() as change:
            await stores.drop(change.session, name, at)
            await authority.forget(change.session, "store", name)

    async def store_options(self, name: str) -> dict[str, str]:
        """Every option in clear: for the store's admin face and the worker, for nobody else."""
        async with self._reading() as session:
            return await stores.options(session, self._cipher, name)

    # Databases and schemas

    async def create_database(
        self, name: str, owner: str, at: int | None = None, options: Mapping[str, str] | None = None
    ) -> DatabaseRecord:
        """``options``: those of PostgreSQL's own CREATE DATABASE."""
        async with self._change() as change:
            record = await databases.create(change.session, name, owner, at)
            await opening.make_database(self._administrator, change.after, name, owner, options or {})
            return record

    async def drop_database(self, name: str, at: int | None = None, force: bool = False) -> None:
        """``force``: sessions in it are ended."""
        async with self._change() as change:
            schemas = {s.name for s in self.snapshot.schemas.values() if s.database == name} | {"public"}
            await databases.drop(change.session, name, at)
            await authority.forget(change.session, "database", name)
            async with self._administrator.connect(name) as conn:
                objects.refuse_others(await objects.others(conn, schemas), "database", name, at)
            control = await change.after.enter_async_context(self._administrator.connect("postgres"))
            await change.after.enter_async_context(objects.dropping_database(control, name, force))

    async def copy_system_tables(self, database: str) -> None:
        """Keep the system tables in a database from now on. Errors: UndefinedDatabase."""
        async with self._change() as change:
            await databases.find(change.session, database)
            await change.session.merge(models.SystemCopyRow(database=database))

    async def create_schema(
        self, database: str, name: str, owner: str, at: int | None = None, transaction: str | None = None
    ) -> SchemaRecord:
        """``transaction``: of a client, with which the schema stands or falls (``settle_schema``)."""
        async with self._change() as change:
            record = await databases.create_schema(change.session, database, name, owner, at)
            async with self._administrator.connect(database) as conn:
                await objects.create_schema(conn, name, owner, transaction)
            return record

    async def describe_schema(self, database: str, name: str, description: str | None, at: int | None = None) -> None:
        """Say something about a schema, in PostgreSQL alone; None takes it away."""
        if undecided.is_mark(description or ""):
            raise InvalidOption(what="such a comment is pgstream's own mark on a schema", at=at)
        async with self._change() as change:
            await databases.find_schema(change.session, database, name, at)
            await undecided.describe(await change.dropping(database), name, description or "")

    async def settle_schema(self, database: str, name: str, wait: bool = False) -> bool:
        """Drop a schema whose transaction was rolled back; whether that is decided. What others have put into it keeps
        it. ``wait``: for the transaction to end.
        """

        async def settle() -> bool:
            async with self._settling:
                gone = (database, name) not in self.snapshot.schemas
                return gone or await self._settle_schema(database, name)

        return await _unless_locked(name, settle, wait)

    async def _settle_schema(self, database: str, name: str) -> bool:
        async with self._administrator.connect(database) as conn:
            transaction = (await undecided.marks(conn)).get(name)
            ended = None if transaction is None else await undecided.end(conn, transaction)
        if ended == undecided.IN_PROGRESS:
            return False
        if ended == undecided.ABORTED and await self._dropped(
            database, name, "schema of a rolled back transaction kept"
        ):
            return True
        if transaction is not None:
            async with self._administrator.connect(database) as conn, conn.transaction():
                await postgres.run(conn, undecided.HURRY)
                await undecided.unmark(conn, name)
        return True

    async def settle_dropped(self, database: str, name: str, transaction: str, wait: bool = False) -> bool:
        """Drop a schema that a client's transaction has emptied for it, if that has committed; whether that is decided.
        What others have put into it since keeps it.
        """

        async def settle() -> bool:
            async with self._settling:
                async with self._administrator.connect(database) as conn:
                    ended = await undecided.end(conn, transaction)
                if ended == undecided.COMMITTED and (database, name) in self.snapshot.schemas:
                    await self._dropped(database, name, "dropped schema kept")
                return ended != undecided.IN_PROGRESS

        return await _unless_locked(name, settle, wait)

    async def _dropped(self, database: str, name: str, kept: str) -> bool:
        """Drop a schema, if nobody else has meanwhile; False, and a word in the log, when what is in it keeps it."""
        try:
            await self.drop_schemas({(database, name): None}, hurry=True)
        except UndefinedSchema:
            return True
        except DependentsExist as e:
            log.warning(kept, schema=name, why=e.detail)
            return False
        return True

    async def drop_schema(self, database: str, name: str, at: int | None = None, cascade: bool = False) -> None:
        await self.drop_schemas({(database, name): at}, cascade=cascade)

    async def drop_schemas(
        self, named: Mapping[tuple[str, str], int | None], cascade: bool = False, *, hurry: bool = False
    ) -> list[objects.Notice]:
        """All or none, each with its place in the statement. ``cascade``: with PostgreSQL's own objects in them, of
        which it says what they were; relations of ours keep them in either case. ``hurry``: or none now, 55P03.
        """
        said: list[objects.Notice] = []
        over = () if hurry else (FullName(database, name, "") for database, name in named)
        async with self._change(*over) as change:
            for (database, name), at in named.items():
                await databases.drop_schema(change.session, database, name, at)
                await authority.forget(change.session, "schema", SchemaRecord(database, name, "").full_name)
                conn = await change.dropping(database)
                if hurry:
                    await postgres.run(conn, undecided.HURRY)
                said += await objects.drop_schema(conn, name, cascade, at)
        return said

    # Relations

    async def create_relation(self, record: RelationRecord, at: int | None = None) -> RelationRecord:
        async with self._change(record.full) as change:
            return await change.relation(record, at)

    async def create_relations(self, records: Sequence[tuple[RelationRecord, int | None]]) -> None:
        """All or none, each with its place in the statement."""
        async with self._change(*(record.full for record, _ in records)) as change:
            for record, at in records:
                await change.relation(record, at)

    async def has_recorded(self, records: Iterable[RelationRecord]) -> bool:
        """Whether one of these is in the catalogue itself, which the snapshot may not know yet."""
        async with self._reading() as session:
            return await relations.recorded(session, [r.id for r in records])

    async def drop_relation(self, full: FullName, at: int | None = None) -> None:
        async with self._change(full) as change:
            record = await relations.drop(change.session, full, at)
            await authority.forget(change.session, "relation", str(full))
            await objects.drop_relation(await change.dropping(full.database), record, at)

    async def describe_relation(self, full: FullName, description: str | None, at: int | None = None) -> None:
        """Keep a sentence about a relation; None takes it away."""
        async with self._change() as change:
            record = await relations.describe(change.session, full, description, at)
            await postgres.run(await change.dropping(full.database), objects.described(record))

    async def describe_column(
        self, full: FullName, column: str, description: str | None, at: int | None = None
    ) -> None:
        """Keep a sentence about a relation's column; None takes it away."""
        async with self._change() as change:
            record = await relations.describe_column(change.session, full, column, description, at)
            await postgres.run(await change.dropping(full.database), objects.described_column(record, column))

    async def truncate_relation(self, full: FullName, at: int | None = None) -> None:
        """Take away the rows of a materialized view."""
        async with self._change() as change:
            record = rows.relation(await relations.find(change.session, full, at))
            async with self._keeper.connect(full.database) as conn:
                await objects.truncate(conn, record)

    async def reindex(self, record: RelationRecord, *, concurrently: bool) -> None:
        """Build an index anew, or all of a materialized view. The catalogue may change meanwhile."""
        async with self._administrator.connect(record.full.database) as conn:
            await objects.reindex(conn, record, concurrently=concurrently)

    async def expire_rows(self, record: RelationRecord) -> int:
        """Take away the rows of a materialized view that its retention ends; how many."""
        async with self._keeper.connect(record.full.database) as conn:
            return await expiry.expire(conn, record)

    async def knows_when_written(self, database: str) -> bool:
        """Whether PostgreSQL can tell how old a row without a time of its own is."""
        async with self._administrator.connect(database) as conn:
            return await expiry.is_tracked(conn)

    # Queries

    async def create_query(
        self,
        record: QueryRecord,
        relation: RelationRecord | None = None,
        at: int | None = None,
        *,
        reads: Collection[FullName] = (),
        sources: Iterable[RelationRecord] = (),
        application: Sequence[tuple[RelationRecord, bool, int | None]] = (),
    ) -> QueryRecord:
        """A query, and the relation it makes, or neither. ``reads``: the views whose changes it reads. ``sources``:
        what its plan was made from, those that it writes and does not make among it. ``application``: all relations
        that it makes, whether the query writes them, and their places in the text. Errors: UndefinedRelation when a
        source is gone since, or another one by now; Superseded, NotSupported for a view that has changed since.
        """
        made_by_it = application or ([(relation, True, at)] if relation is not None else [])
        async with self._change(*(one.full for one, _, _ in made_by_it), hurries=False) as change:
            made = await queries.create(change.session, record)
            await self._log_views(change, made, reads)
            for one, is_written, place in made_by_it:
                await change.relation(queries.shaped(made, one) if is_written else one, place)
            await self._check_sources(change, sources)
            return made

    async def _check_sources(self, change: Change, sources: Iterable[RelationRecord]) -> None:
        for source in sources:
            if not source.id:
                continue
            now = rows.relation(await relations.find(change.session, source.full))
            if now.id != source.id:
                raise UndefinedRelation(name=str(source.full))
            if now.kind == "materialized_view" and not replacing.same_shape(now, source):
                raise Superseded(what=f'materialized view "{now.full}" has other columns or another key')

    async def _log_views(self, change: Change, query: QueryRecord, reads: Collection[FullName]) -> None:
        views = [rows.relation(await relations.find(change.session, view)) for view in reads]
        for view in views:
            if view.row_security:  # since the plan was made
                what = f'reading the changes of materialized view "{view.full}", which has row-level security,'
                raise NotSupported(what=what, hint="Make a view of the rows that may be read from what it is made of.")
        for view in views:
            await view_logs.hold_writer(await change.making(view.full.database), view)
        for view in views:
            await view_logs.create(await change.making(view.full.database), query.id, view)

    async def create_replacement(
        self,
        record: QueryRecord,
        view: RelationRecord,
        at: int | None = None,
        *,
        reads: Collection[FullName] = (),
        sources: Iterable[RelationRecord] = (),
    ) -> QueryRecord:
        """A query that is to replace the one that keeps a view. Errors: UndefinedRelation, BeingReplaced, Superseded
        when another one keeps it than ``view`` says, if it does: what the new one is to be may have changed with that.
        """
        async with self._change() as change:
            before = rows.relation(await relations.find(change.session, view.full, at))
            if view.query not in (None, before.query):
                raise Superseded(what=f'materialized view "{view.full}" has another query', at=at)
            for other in await queries.writing(change.session, str(view.full)):
                if other.id != before.query and other.intended == "running":
                    raise BeingReplaced(name=str(view.full), id=other.id, at=at)
            made = await queries.create(change.session, record)
            await self._check_sources(change, sources)
            await self._log_views(change, made, reads)
            await replacing.begin(await change.making(view.full.database), made.id, queries.succeeding(made, before))
            return made

    async def replacements(self) -> list[tuple[RelationRecord, QueryRecord]]:
        """The views that are being replaced, and the queries that are to keep them, of any pool."""
        async with self._reading() as session:
            found = await queries.of_kind(session, REPLACES)
        views = self.snapshot.relations
        pairs = [(views.get(FullName.read(q.sinks[0]).key), q) for q in found]
        return [(view, q) for view, q in pairs if view is not None and view.query != q.id]

    async def attempts_beside(self, record: QueryRecord) -> int:
        """The last attempt of the others that keep the view which a query replaces, or fill a table beside it: the
        worker names its staging tables by view and attempt.
        """
        if record.kind != REPLACES:
            return 0
        async with self._reading() as session:
            found = await queries.writing(session, record.sinks[0])
        return max((q.attempt for q in found if q.id != record.id), default=0)

    async def consumed(self, view: RelationRecord, queries: Collection[str]) -> dict[str, tuple[int, Consumed]]:
        """How far queries that write a view, or a table beside it, have read their sources."""
        async with self._administrator.connect(view.full.database) as conn:
            return await replacing.consumed(conn, queries)

    @asynccontextmanager
    async def comparison(self, view: RelationRecord) -> AsyncIterator[Comparison]:
        """A comparison of a view with what another query makes of the same records. Nothing is left of it; that query
        has ended by the end.
        """
        async with self._administrator.connect(view.full.database) as conn:
            compared = Comparison(conn, view, str(uuid.uuid4()))
            try:
                yield compared
            finally:
                # On its own: the statement may be canceled once more, in the middle of it.
                await asyncio.shield(asyncio.create_task(self._end_comparison(view, compared.query)))

    async def _end_comparison(self, view: RelationRecord, query: str) -> None:
        try:
            async with self._administrator.connect(view.full.database) as conn:
                await comparing.end(conn, query)
        except PgStreamError as e:  # the next start drops it
            log.warning("comparison not ended", view=str(view.full), query_id=query, error=e.text)

    async def replace_view(self, id: str, enough: Enough, within_s: float) -> bool:
        """Let a query keep its view from now on, once it is as far as the one that has kept it. False: it is not yet.

        Afterwards the other is to end. Errors: DependentsExist when queries read the view who would not follow.
        """
        async with self._change() as change:
            record = rows.query(await queries.find(change.session, id))
            before = rows.relation(await relations.find(change.session, FullName.read(record.sinks[0])))
            if before.query == id or record.intended != "running":
                return False
            after = queries.succeeding(record, before)
            indexes = [r.name for r in await relations.indexes(change.session, before.full)]
            conn = await change.making(before.full.database)
            await self._check_readers(conn, before, after)
            async with conn.transaction() as exchanged:
                done = await replacing.exchange(
                    conn, before, after, record.attempt, enough, waiting=partial(self._waiting, record),
                    indexes=indexes, within_s=within_s,
                )  # fmt: skip
                # It may have been terminated meanwhile. From here to the end who does so waits.
                if done and not await self._is_to_run(change.session, id, before.query):
                    done = False
                    raise psycopg.Rollback(exchanged)
            if done:
                await self._keep(change.session, after, before.query)
        if done and before.query is not None and (await self.query(before.query)).actual == "terminated":
            await self.end_beside(before.query)  # nobody else does, of one that had ended before
        return done

    async def _is_to_run(self, session: AsyncSession, id: str, before: str | None) -> bool:
        """Whether a query is to run, and stays so; that of ``before`` stays as it is, too, for it changes next."""
        found = await queries.locked(session, [id, *([before] if before is not None else [])])
        return id in found and found[id].intended == "running"

    async def _waiting(self, record: QueryRecord) -> dict[str, int]:
        """How far the views that a query reads have been changed, in its logs."""
        found: dict[str, int] = {}
        for database in self._logging(record):
            read = [v for v in self._views_read(record) if v.full.database == database]
            async with self._administrator.connect(database) as conn:
                found |= await view_logs.newest(conn, {view_log(record.id, v.id): str(v.full) for v in read})
        return found

    async def _check_readers(self, conn: postgres.Connection, before: RelationRecord, after: RelationRecord) -> None:
        if replacing.follows(before, after):
            return
        if read := await view_logs.readers(conn, before.full):
            raise ReadersRemain(name=str(before.full), users=[("query", id) for id in read], kind="view")

    async def check_replacement(self, before: RelationRecord, record: QueryRecord, at: int | None) -> None:
        """ReadersRemain when queries read a view whose rows they would not follow."""
        async with self._administrator.connect(before.full.database) as conn:
            try:
                await self._check_readers(conn, before, queries.succeeding(record, before))
            except ReadersRemain as e:
                e.at = at
                raise

    async def _keep(self, session: AsyncSession, view: RelationRecord, before: str | None) -> None:
        await relations.keep(session, view)
        if before is not None:
            old = await queries.find(session, before)
            if old.actual != "terminated":
                await queries.change(session, before, {"intended": "terminated", "actual": "terminate_requested"})

    async def finish_replacements(self, databases: Iterable[str] | None = None) -> list[str]:
        """Write down exchanges that PostgreSQL has and a crash kept from the catalogue; what was done, in sentences.

        One that another server is in the midst of is let end: what is found is looked at once more in a turn of ours.
        """
        done: list[str] = []
        for database in list(self.snapshot.databases if databases is None else databases):
            if not await self._unfinished(database):
                continue
            async with self._change() as change:
                await self.refresh()
                for id, view in (await self._unfinished(database)).items():
                    record = rows.query(await queries.find(change.session, id))
                    await self._keep(change.session, queries.succeeding(record, view), view.query)
                    done.append(f"{view.full} is kept by query {id}")
                    log.warning("repaired", what=done[-1])
        return done

    async def _unfinished(self, database: str) -> dict[str, RelationRecord]:
        """By the query that PostgreSQL says keeps a view, the views that another one keeps, so the snapshot."""
        kept = {r.query: r for r in self.snapshot.relations.values()
                if r.query and r.kind == "materialized_view" and r.full.database == database}  # fmt: skip
        async with self._administrator.connect(database) as conn:
            return await replacing.done(conn, kept)

    async def end_beside(self, id: str) -> None:
        """Drop what a query had that ends and does not keep a view: another does, or will."""
        for sink in (await self.query(id)).sinks:
            view = self.snapshot.relations.get(FullName.read(sink).key)
            if view is not None and view.kind == "materialized_view" and view.query != id:
                alone = not any(v.id == view.id and q.id != id for v, q in await self.replacements())
                async with self._administrator.connect(view.full.database) as conn, conn.transaction():
                    await replacing.end(conn, id, view, alone=alone)

    async def discard_query(self, id: str, also: Collection[FullName] = ()) -> None:
        """Forget a query that never ran, with the relations that were made for it: its statement failed. ``also``:
        those of an application that it only declared. The query itself may be gone already. Errors: DependentsExist
        where others use them, or it keeps another's view by now.
        """
        logging: set[str] = set()
        try:
            async with self._change() as change:
                with contextlib.suppress(UndefinedQuery):
                    row = await queries.find(change.session, id)
                    await self._refuse_keeper(change.session, row)
                    await self.end_beside(id)
                    logging = self._logging(rows.query(row))
                    await change.session.delete(row)
                    await change.session.flush()
                for made in [r for r in self.snapshot.relations.values() if r.query == id or r.full in also]:
                    record = await relations.drop(change.session, made.full)
                    await authority.forget(change.session, "relation", str(made.full))
                    await objects.drop_relation(await change.dropping(made.full.database), record)
        finally:
            if logging:
                self._left_logs[id] = logging
        await self._copy_queries([id])
        await self.drop_left_logs()

    async def _refuse_keeper(self, session: AsyncSession, row: models.QueryRow) -> None:
        """A query that has come to keep a view which was there before it stays, and the view."""
        if row.kind == REPLACES and (kept := await relations.kept_by(session, row.id)):
            raise DependentsExist(kind="query", name=row.id, users=[(r.label, str(r.full)) for r in kept])

    async def forget_ended(self, days: int) -> int:
        """Forget the queries that were terminated longer ago, and what was granted on them; how many. No one resumes
        them any more. Those that a relation was made by stay as long as that.
        """
        async with self._change() as change:
            gone = await queries.forget_ended(change.session, days)
            await authority.forget(change.session, "query", *gone)
        await self._copy_queries(gone)
        return len(gone)

    async def view_logs(self, record: QueryRecord) -> dict[str, int]:
        """What waits for a query that reads views: the name and size of each log, in bytes."""
        found: dict[str, int] = {}
        for database in self._logging(record):
            async with self._administrator.connect(database) as conn:
                found |= await view_logs.sizes(conn, record.id)
        return found

    async def drop_view_logs(self, id: str) -> None:
        """What waits for a query that is to end: nobody reads it any more."""
        await self._drop_view_logs(self._logging(await self.query(id)), id)

    async def drop_left_logs(self) -> None:
        """What waits for queries that were discarded. Where a batch keeps it for long, the next call drops it."""
        for id, logging in list(self._left_logs.items()):
            try:
                if not await self._is_known(id):
                    await self._drop_view_logs(logging & self.snapshot.databases.keys(), id, _LEFT_WAIT_S)
            except PgStreamError as e:
                log.warning("what waits for a discarded query stays for now", query_id=id, error=e.text)
            else:
                self._left_logs.pop(id, None)

    async def _is_known(self, id: str) -> bool:
        async with self._reading() as session:
            return bool(await queries.every(session, [id]))

    async def _drop_view_logs(
        self, databases: Collection[str], id: str, within_s: float = postgres.LOCK_WAIT_S
    ) -> None:
        for database in databases:
            async with self._administrator.connect(database) as conn:
                await postgres.run(conn, f"SET lock_timeout = '{within_s}s'")
                await view_logs.drop(conn, id)

    def _logging(self, record: QueryRecord) -> set[str]:
        """The databases in which there may be logs for a query: those of the views that it reads."""
        return {view.full.database for view in self._views_read(record)}

    def _views_read(self, record: QueryRecord) -> list[RelationRecord]:
        found = [self.snapshot.relations.get(FullName.read(name).key) for name in record.sources]
        return [r for r in found if r is not None and r.kind == "materialized_view"]

    async def query(self, ref: str, at: int | None = None) -> QueryRecord:
        """By id, name (the latest version), or ``name:version``."""
        async with self._reading() as session:
            return rows.query(await queries.find(session, ref, at))

    async def queries(self, include_ended: bool = False) -> list[QueryRecord]:
        """Oldest first."""
        async with self._reading() as session:
            return await queries.listed(session, include_ended)

    async def query_events(self, id: str) -> list[QueryEvent]:
        """What happened to a query lately, oldest first."""
        async with self._reading() as session:
            return await queries.events(session, id)

    async def busy_pools(self) -> set[str]:
        """The compute pools that a query should run in."""
        async with self._reading() as session:
            return await queries.busy_pools(session)

    async def strays(self) -> list[QueryRecord]:
        """The queries that are to run or to end, and for some seconds have done neither."""
        async with self._reading() as session:
            return await queries.strays(session)

    async def set_query(self, id: str, **changes: Any) -> QueryRecord:
        """Change intended=, actual=, message=, attempt=, progress= or pool=."""
        async with self._reading() as session, session.begin():
            if "intended" in changes:  # somebody's wish; the rest is the engine's
                await authors.sign(session)
            changed = await queries.change(session, id, changes)
        await self._copy_queries([id])
        return changed

    async def tag_query(self, id: str, tagged: Callable[[QueryRecord], Mapping[str, str]]) -> QueryRecord:
        """Give a query other tags. ``tagged`` makes them of the query as it is, while no one else changes it."""
        async with self._reading() as session, session.begin():
            await authors.sign(session)
            changed = await queries.tag(session, id, tagged)
        await self._copy_queries([id])
        return changed

    async def record_progress(self, progress: Mapping[str, Mapping[str, object]]) -> None:
        """Write the last progress of several queries; losing the newest in a crash is no loss, so no wait for disk."""
        async with self._reading() as session, session.begin():
            await session.execute(text("SET LOCAL synchronous_commit = off"))
            await queries.record_progress(session, progress)
        await self._copy_queries(progress)

    async def _copy_queries(self, ids: Collection[str]) -> None:
        """Show in the system tables what has changed of queries."""
        if not self.snapshot.system_copies:
            return
        try:
            async with self._refreshing, self._copying() as copying:  # an older state never replaces a newer
                if not copying:
                    return
                anew = not self._system.holds(self.snapshot.system_copies)
                async with self._reading() as session:
                    found = await queries.every(session, None if anew else ids)
                if anew:  # a write has failed since the last one
                    wanted, about = system_tables.rows(self.snapshot, found), None
                else:
                    wanted = system_tables.of_queries(self.snapshot, found)
                    about = [(table, id) for table in system_tables.OF_QUERIES for id in ids]
                await self._system.settle(sorted(self.snapshot.system_copies), wanted, about)
        except PgStreamError as e:  # what it follows is done
            log.warning("system tables not written", error=e.text)

    def staging_stem(self, relation_id: str) -> str:
        """What the staging tables of a materialized view are named after."""
        return objects.staging_stem(relation_id)

    def worker_url(self, database: str) -> str:
        """libpq URL over TCP for the worker's own PostgreSQL role; holds a password."""
        return self._url(database, user=postgres.WORKER, password=self._worker_password, tcp=True)

    @property
    def control_url(self) -> str:
        """libpq URL of the control database, for locks held by the engine; holds a password."""
        return self._url(databases.CONTROL)

    async def reader_url(self, database: str, role: str) -> str:
        """libpq URL over TCP for the login that reads for a role; holds a password."""
        await self._readers.ensure(role)
        return self._url(database, user=reader(role), password=self._readers.password(role), tcp=True)

    async def postgres_relation(self, full: FullName, query: str) -> tuple[Any, ...] | None:
        """What a query says of a relation of PostgreSQL's own, by its schema and name."""
        async with self._administrator.connect(full.database) as conn:
            found: tuple[Any, ...] | None = await (
                await conn.execute(query.encode(), [full.schema, full.name])
            ).fetchone()
        return found

    # Users

    async def end_backend(self, function: str, numbers: Sequence[int | None], user: str) -> bool | None:
        """Call one of PostgreSQL's functions for a backend of this user's login; None: there is no such backend."""
        call = f"SELECT {function}({', '.join(['%s'] * len(numbers))}) FROM pg_stat_activity WHERE pid = %s"
        async with self._administrator.connect("postgres") as conn:
            asked = await conn.execute(f"{call} AND usename = %s".encode(), [*numbers, numbers[0], user])
            found: tuple[bool] | None = await asked.fetchone()
        return found[0] if found is not None else None

    @property
    def mock_secret(self) -> bytes:
        """From which the SCRAM salts of users that do not exist are made: the same at every start and server."""
        return hmac.digest(self._worker_password.encode(), b"pgstream mock authentication", "sha256")


async def _to_nobody(delta: Delta) -> None:
    """There is no other process."""
