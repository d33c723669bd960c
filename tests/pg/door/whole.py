"""The door with the real language and the real catalogue before a real PostgreSQL; only the engine is missing.

``Whole`` has the first user ``admin`` and a plain user ``mallory``. Her role ``guests`` may connect to ``main`` and, to
make it worth her while, make objects in ``public``.
"""

from __future__ import annotations

from pathlib import Path

import psycopg

from pgstream.catalog.databases import STATE
from pgstream.catalog.privileges import Grant, Membership
from pgstream.catalog.records import ColumnRecord, ObjectRecord, RelationRecord
from pgstream.catalog.store import Catalog
from pgstream.config import Config
from pgstream.embedded.postgres import open_postgres
from pgstream.names import FullName
from pgstream.server.admission import Admissions
from pgstream.server.language import Language
from pgstream.server.listener import Listener
from pgstream.server.reach import Address
from pgstream.server.tls import open_tls
from pgstream.types import parse
from tests.pg.door.double import Door

SECRET = "hush-hush-hush"
HIDDEN = STATE
"""The schema that clients do not see."""


def relation(name: str, kind: str) -> RelationRecord:
    view = kind == "materialized_view"
    return RelationRecord(
        id="",
        full=FullName("main", "public", name),
        kind=kind,
        columns=(ColumnRecord("userid", parse("VARCHAR")), ColumnRecord("n", parse("BIGINT"))),
        owner="sysadmin",
        primary_key=("userid",) if view else (),
        mode="upsert" if view else "append",
        store=None if view else "k",
        entity=None if view else name,
    )


class Whole(Door):
    """``admin`` and ``mallory`` both have ``PASSWORD``."""

    USER = "admin"

    async def _open(self) -> None:
        self.postgres = await open_postgres(self.config)
        self.catalog = await Catalog.open(self.config, self.postgres.url, self.config.data_dir)
        await self._make_user()
        self.listener = self._listener(self.config)
        _, self.port = await self.listener.open()

    async def _close(self) -> None:
        await self.listener.close()
        await self.catalog.close()
        await self.postgres.stop()

    def _listener(self, config: Config) -> Listener:
        listener = Listener(config, tls=open_tls(config, config.data_dir))
        listener.begin(
            catalog=self.catalog,
            engine=None,  # type: ignore[arg-type]
            address=Address(self.postgres.host, self.postgres.port),
            admissions=Admissions(self.catalog.control_url),
            language=Language.ours(),
        )
        return listener

    async def _make_user(self) -> None:
        async with await psycopg.AsyncConnection.connect(self.postgres.url("main"), autocommit=True) as conn:
            await conn.execute(f"CREATE ROLE mallory LOGIN NOINHERIT PASSWORD '{self.PASSWORD}'")
        authority = self.catalog.authority
        await authority.create_role(ObjectRecord("role", "guests", owner="useradmin"), inherits=(), members=())
        await authority.grant_roles([Membership("guests", "mallory", is_user=True)])
        await authority.grant(
            [
                Grant("guests", "usage", "database", "main"),
                *(Grant("guests", p, "schema", "main.public") for p in ("usage", "create")),
            ]
        )
        options = {"uris": "b:9092", "kafka.sasl.password": SECRET}
        await self.catalog.create_store("k", "kafka", options, frozenset({"kafka.sasl.password"}), "sysadmin")
        await self.catalog.create_relation(relation("clicks", "stream"))
        await self.catalog.create_relation(relation("counts", "materialized_view"))

    def connect(self, user: str, database: str = "main", **more: object) -> psycopg.Connection:
        return psycopg.connect(self.url, user=user, dbname=database, autocommit=True, **more)

    def superuser(self, database: str = "main") -> psycopg.Connection:
        return psycopg.connect(self.postgres.url(database), autocommit=True)


def start(data_dir: Path) -> Whole:
    return Whole(Config(data_dir=data_dir, listen="127.0.0.1:0", shutdown_grace_s=1, admin_password=Whole.PASSWORD))
