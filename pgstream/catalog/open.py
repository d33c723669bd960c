"""Opening the catalogue: everything between a bare PostgreSQL and a catalogue that can be used.

Owns: the order of first start and of every later one. Each step looks first and does nothing when it is done already,
so a start that was cut short is finished by the next. Must not know: statements. Start reading at ``open_control``.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

import structlog
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from pgstream.catalog import (
    activity,
    authority,
    databases,
    inventory,
    ledger,
    models,
    objects,
    postgres,
    undecided,
    upgrade,
)
from pgstream.catalog.crypto import Cipher
from pgstream.catalog.heal import heal_database
from pgstream.catalog.migrations import migrate
from pgstream.catalog.records import ObjectRecord, Snapshot
from pgstream.config import Config
from pgstream.errors import ConfigurationError, DuplicateDatabase
from pgstream.names import quote_always

OWNER = "sysadmin"
_CHECK = "pgstream"
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Opened:
    """What opening the control database gives."""

    engine: AsyncEngine
    worker_password: str


def _engine(url: str) -> AsyncEngine:
    """A small pool: the catalogue is asked seldom. The URL is libpq's, so psycopg opens the connections itself."""
    import psycopg

    async def connect() -> object:
        return await psycopg.AsyncConnection.connect(
            url, connect_timeout=10, options=f"-c lock_timeout={postgres.LOCK_WAIT_S}s"
        )

    return create_async_engine(
        "postgresql+psycopg://",
        async_creator=connect,
        pool_size=2,
        max_overflow=3,
        pool_pre_ping=True,
        hide_parameters=True,
    )


async def _worker_password(engine: AsyncEngine, cipher: Cipher) -> str:
    """The worker's password, made if it is missing. Refuses a key that is not the catalogue's, and a first start where
    roles of our names are somebody else's.
    """
    async with AsyncSession(engine) as session, session.begin():
        check = await session.get(models.MetaRow, "key_check")
        if check is not None and cipher.decrypt(check.value.encode()) == _CHECK:
            kept = await session.get_one(models.MetaRow, "worker_password")
            return cipher.decrypt(kept.value.encode())
        await postgres.check_free(session)
        password = secrets.token_urlsafe(24)
        session.add(models.MetaRow(key="key_check", value=cipher.encrypt(_CHECK).decode()))
        session.add(models.MetaRow(key="worker_password", value=cipher.encrypt(password).decode()))
        return password


async def ensure_control(administrator: postgres.Administrator) -> None:
    """The control database, made if it is missing. Clients can hold this lock, but there are none before."""
    async with administrator.connect("postgres") as conn:
        if await objects.has_control(conn):
            return
        async with postgres.turn(administrator, "postgres", postgres.OPEN):
            if await objects.ensure_control(conn):
                log.info("control database created", database=databases.CONTROL)


async def open_control(administrator: postgres.Administrator, url: Callable[..., str], cipher: Cipher) -> Opened:
    """The control database migrated, and the roles that the rest needs."""
    async with administrator.connect("postgres") as conn:
        engine = _engine(url(databases.CONTROL))
        try:
            async with engine.connect() as migrating:
                await migrating.run_sync(migrate)
            password = await _worker_password(engine, cipher)
            await postgres.ensure_worker(conn, password)
        except BaseException:
            await engine.dispose()
            raise
    return Opened(engine, password)


async def first_objects(engine: AsyncEngine, organization: ObjectRecord) -> None:
    """What no catalogue is without, and PostgreSQL's roles as the catalogue has them."""
    async with AsyncSession(engine) as session, session.begin():
        await session.execute(text(postgres.TAKE_TURN))
        await inventory.first(session, organization)
        await authority.first(session)
        await postgres.sync_roles(session, await _roles(session), await authority.read(session))


async def first_database(engine: AsyncEngine, administrator: postgres.Administrator, config: Config) -> None:
    """The first database, at the first start only: it may be dropped later."""
    async with AsyncExitStack() as after, AsyncSession(engine) as session, session.begin():
        if await session.get(models.MetaRow, "first_database"):
            return
        await databases.create(session, config.database, OWNER)
        await make_database(administrator, after, config.database, OWNER, {})
        session.add(models.MetaRow(key="first_database", value=config.database))


async def _roles(session: AsyncSession) -> list[str]:
    return list(await session.scalars(select(models.ObjectRow.name).where(models.ObjectRow.kind == "role")))


async def first_user(engine: AsyncEngine, administrator: postgres.Administrator, config: Config) -> str | None:
    """The first user, if it is missing. Returns a password that had to be generated."""
    async with administrator.connect("postgres") as conn:
        password = await postgres.ensure_first_user(conn, config.admin_user, config.admin_password)
    async with AsyncSession(engine) as session, session.begin():
        await session.execute(text(postgres.TAKE_TURN))
        if before := await session.get(models.MetaRow, "inheriting_users"):
            await authority.users_before(session, await upgrade.users(administrator))
            await session.delete(before)
        await authority.first_user(session, config.admin_user)
        await postgres.sync_roles(session, await _roles(session), await authority.read(session))
    return password


async def make_database(
    administrator: postgres.Administrator, after: AsyncExitStack, name: str, owner: str, options: Mapping[str, str]
) -> None:
    """The PostgreSQL database of a DeltaStream database, with its schema ``public``. It is to stay once ``after`` has
    been left, when the catalogue has it.
    """
    conn = await after.enter_async_context(administrator.connect("postgres"))
    await after.enter_async_context(objects.making_database(conn, name, options))
    async with administrator.connect(name) as inside:
        await objects.furnish_database(inside, name)
        await activity.ensure(inside)
        await ledger.ensure(inside)
        await objects.ensure_schema(inside, "public", owner)
    await objects.guard_database(conn, name)


async def undecided_schemas(administrator: postgres.Administrator, snapshot: Snapshot) -> list[tuple[str, str]]:
    """The schemas that clients have made in transactions, of which a crash has left the end unknown."""
    found: list[tuple[str, str]] = []
    for name in snapshot.databases:
        async with administrator.connect(name) as conn:
            found += [(name, schema) for schema in await undecided.marks(conn)]
    return found


async def heal(administrator: postgres.Administrator, snapshot: Snapshot, live: Collection[str]) -> list[str]:
    """Bring every database to what the catalogue says; says what it did. ``live``: queries that have not ended.

    A database that is gone is an error, not an empty new one.
    """
    done: list[str] = []
    async with administrator.connect("postgres") as conn:
        found = {name for (name,) in await (await conn.execute("SELECT datname FROM pg_database")).fetchall()}
        for name in await objects.marked_databases(conn):
            if name in snapshot.databases:
                await objects.reopen_database(conn, name)
                continue
            done.append(f"left-over database {name} dropped")
            log.warning("repaired", what=done[-1])
            await postgres.run(conn, f"DROP DATABASE {quote_always(name)}")
    for name in snapshot.databases:
        if name not in found:
            raise ConfigurationError(
                what=f'database "{name}" of the catalogue is missing in PostgreSQL',
                hint="Restore it from a backup, or create an empty one of that name to go on without its data.",
            )
        async with administrator.connect(name) as conn:
            await objects.guard_database(conn, name)
            try:
                done += await heal_database(
                    conn,
                    name,
                    [s for s in snapshot.schemas.values() if s.database == name],
                    [r for r in snapshot.relations.values() if r.full.database == name],
                    snapshot.access,
                    live=live,
                )
            except DuplicateDatabase as e:
                raise ConfigurationError(what=e.text, detail=e.detail) from None
    return done
