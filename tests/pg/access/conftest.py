"""A real catalogue behind a real front door, in this process: no broker, no Spark; relations are put in by hand.

With ``PGSTREAM_WORKERS=2`` in the environment statements run at the other end of a link, and the door sees a copy of
the catalogue's snapshot, as a listener process does.
"""

from __future__ import annotations

import asyncio
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from pgstream import types
from pgstream.catalog.privileges import Membership
from pgstream.catalog.records import ColumnRecord, ObjectRecord, QueryRecord, RelationRecord
from pgstream.catalog.store import Catalog
from pgstream.config import Config
from pgstream.embedded.postgres import open_postgres
from pgstream.errors import EngineUnavailable
from pgstream.names import FullName
from pgstream.server.admission import Admissions
from pgstream.server.hosted import Host
from pgstream.server.language import Language
from pgstream.server.listener import Listener
from pgstream.server.reach import Address
from pgstream.server.remote import Elsewhere
from tests.links import Ends

PASSWORD = "test-password-1"


class NoEngine:
    """No query runs here; what asks for one has passed every check of privileges before."""

    worker_ready = True

    def __getattr__(self, name: str) -> Any:
        raise EngineUnavailable(why="there is none in this test")


class House:
    """The server's parts in a thread of their own."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.ends: Ends | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)
        self._thread.start()
        assert self._ready.wait(60)

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        postgres = self.postgres = await open_postgres(self.config)
        self.catalog = await Catalog.open(self.config, postgres.url, self.config.data_dir)
        self.listener = Listener(self.config)
        await self.listener.organizations.open()
        catalog: Any = self.catalog
        engine: Any = NoEngine()
        if int(os.environ.get("PGSTREAM_WORKERS", "1")) > 1:
            ends = self.ends = Ends(Host(self.config, catalog, engine, Language.ours()))
            await ends.open()
            self.listener.executor = ends.remote
            catalog, engine = ends.mirror(self.catalog), Elsewhere("engine")
        self.listener.begin(
            catalog=catalog, engine=engine, language=Language.ours(),
            address=Address(postgres.host, postgres.port), admissions=Admissions(self.catalog.control_url),
        )  # fmt: skip
        _, self.port = await self.listener.open()
        self._ready.set()
        await self._stop.wait()
        await self.listener.close()
        if self.ends is not None:
            self.ends.close()
        await self.catalog.close()
        await postgres.stop()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def connect(self, user: str = "admin", database: str = "main", **options: Any) -> psycopg.Connection[Any]:
        given = {"password": PASSWORD, "dbname": database, "autocommit": True, **options}
        return psycopg.connect(host="127.0.0.1", port=self.port, user=user, **given)

    def superuser(self, sql: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        with psycopg.connect(self.postgres.url(database), autocommit=True) as conn:
            found = conn.execute(sql.encode())
            return found.fetchall() if found.description else []

    def user(self, name: str, *roles: str) -> str:
        """A user with roles, as an invitation would make it."""
        self.superuser(f"CREATE ROLE {name} LOGIN NOINHERIT PASSWORD '{PASSWORD}'")
        self.run(self.catalog.inventory.create(ObjectRecord("user", name, created_by="admin", state="active")))
        self.run(self.catalog.authority.grant_roles([Membership(r, name, is_user=True) for r in roles]))
        return name

    def relation(
        self, name: str, kind: str = "stream", schema: str = "public", database: str = "main", **given: Any
    ) -> RelationRecord:
        """A stream, or a materialized view with its query, that belongs to sysadmin unless said otherwise."""
        owner, properties = given.pop("owner", "sysadmin"), given.pop("properties", {"value.format": "json"})
        record = RelationRecord(
            id=str(uuid.uuid4()), full=FullName(database, schema, name), kind=kind, owner=owner, entity=name,
            columns=tuple(ColumnRecord(n, types.parse(t)) for n, t in (("id", "BIGINT"), ("secret", "VARCHAR"))),
            properties=properties, **given,
        )  # fmt: skip
        if kind != "materialized_view":
            return self.run(self.catalog.create_relation(record))
        query = QueryRecord(
            id=str(uuid.uuid4()), name=None, version=1, kind="create_materialized_view_as", sql="SELECT 1", owner=owner,
            plan=b'{"root": {}, "sink": {"type": "view", "mode": "upsert", "key": ["id"], "table": "t"}}', stores=(),
            database=database, sources=(), sinks=(str(record.full),),
        )  # fmt: skip
        self.run(self.catalog.create_query(query, record))
        return record


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("house")
    house = House(Config(data_dir=folder, listen="127.0.0.1:0", admin_password=PASSWORD, shutdown_grace_s=1))
    yield house
    house.stop()


Ask = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def ask(house: House) -> Iterator[Ask]:
    """Run statements as a role of a user, each user on one connection; the last one's rows."""
    with ExitStack() as stack:
        open_: dict[tuple[str, str], psycopg.Connection[Any]] = {}

        def run(*texts: str, role: str | None = None, user: str = "admin", database: str = "main") -> list:
            conn = open_.get((user, database))
            if conn is None:
                conn = open_[user, database] = stack.enter_context(house.connect(user, database))
            if role is not None:
                conn.execute(f'USE ROLE "{role}"')
            rows: list = []
            for text in texts:
                cursor = conn.execute(text.encode())
                rows = cursor.fetchall() if cursor.description else []
            return rows

        yield run
