"""A server whose database holds one relation of every kind, without Kafka or Spark: they were made beforehand."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from pgstream.catalog.records import RelationRecord
from pgstream.catalog.store import Catalog
from pgstream.config import Config
from pgstream.embedded.postgres import open_postgres
from pgstream.names import FullName
from tests.clients.both import backend_port, work_in_a_role
from tests.pg.catalog.test_catalog import columns, query
from tests.server import PASSWORD, Server

PAGEVIEWS = columns(
    viewtime="BIGINT", userid="VARCHAR", price="DECIMAL(10,2)", at="TIMESTAMP_LTZ(3)", day="DATE", ok="BOOLEAN",
    tags="ARRAY<VARCHAR>", who='STRUCT<"Id" BIGINT>', raw="BYTES",
)  # fmt: skip
# A client's own things, as PostgreSQL has them.
_OWN = """
CREATE TABLE customers (id serial PRIMARY KEY, name text NOT NULL DEFAULT 'x', joined date);
COMMENT ON COLUMN customers.name IS 'as they gave it';
CREATE TABLE orders (id int PRIMARY KEY, customer int REFERENCES customers, views bigint CHECK (views > 0));
CREATE VIEW busy AS SELECT userid FROM views_per_user WHERE n > 1;
CREATE TYPE colour AS ENUM ('red', 'green');
CREATE FUNCTION twice(n int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT n * 2';
"""


def _relation(name: str, kind: str, schema: str = "public", **more: object) -> RelationRecord:
    given = {"columns": PAGEVIEWS, "owner": "sysadmin", "entity": name, "properties": {"value.format": "json"}} | more
    return RelationRecord(id=str(uuid.uuid4()), full=FullName("main", schema, name), kind=kind, **given)  # type: ignore[arg-type]


async def _furnish(config: Config) -> None:
    postgres = await open_postgres(config)
    catalog = await Catalog.open(config, postgres.url, config.data_dir)
    try:
        await catalog.create_schema("main", "Reports", "sysadmin")
        await catalog.create_store(
            "k", "kafka", {"uris": "127.0.0.1:1", "tls.disabled": "true"}, frozenset(), "sysadmin"
        )
        await catalog.create_relation(_relation("pageviews", "stream"))
        await catalog.create_relation(_relation("Odd 'stream'", "stream", "Reports", description='it\'s "odd"'))
        await catalog.create_relation(_relation("users", "changelog", primary_key=("userid",)))
        per_user = columns(userid="VARCHAR", n="BIGINT", last="TIMESTAMP_LTZ(3)")
        view = _relation("views_per_user", "materialized_view", columns=per_user, entity=None, properties={})
        made = await catalog.create_query(query("views_per_user"), view)
        # Nothing runs it here: no Spark is started.
        await catalog.set_query(made.id, intended="terminated", actual="terminated")
        with psycopg.connect(catalog.worker_url("main"), autocommit=True) as worker:
            rows = "('u1', 1, '2024-01-02 03:04:05+00'), ('u2', 2, NULL)"
            worker.execute(f"INSERT INTO public.views_per_user VALUES {rows}".encode())
            worker.execute("CREATE UNLOGGED TABLE pg_pgstream.s_0_1 (LIKE public.views_per_user)")
        work_in_a_role(config.data_dir)
    finally:
        await catalog.close()
        await postgres.stop()


@dataclass(frozen=True)
class Both:
    """The same user in the same database: ``ours`` through pgstream, ``direct`` from PostgreSQL."""

    server: Server

    @property
    def ours(self) -> str:
        return self.server.url

    @property
    def direct(self) -> str:
        return f"postgresql://admin:{PASSWORD}@127.0.0.1:{backend_port(self.server)}/main"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    data_dir: Path = tmp_path_factory.mktemp("catalogues") / "data"
    asyncio.run(_furnish(Config(data_dir=data_dir, admin_password=PASSWORD)))
    server = Server(data_dir)
    with server.connect() as c:
        c.execute(_OWN)
    yield Both(server)
    assert server.stop() == 0
