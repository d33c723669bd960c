"""Sixteen sessions change the catalogue at random at the same time: none hangs, none sees an internal error or a
deadlock, and at the end the catalogue and PostgreSQL agree."""

from __future__ import annotations

import asyncio
import base64
import os
import random
import threading
from pathlib import Path

import psycopg
import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from psycopg.pq import TransactionStatus

from pgstream.catalog.store import Catalog
from pgstream.config import Config
from pgstream.embedded.postgres import open_postgres
from tests.pg.catalogues.conftest import _furnish
from tests.server import PASSWORD, Server

pytestmark = pytest.mark.pg
IDLE = TransactionStatus.IDLE
FILES = FileDescriptorSet(file=[FileDescriptorProto(name="m.proto", message_type=[DescriptorProto(name="M")])])
DESCRIPTORS = base64.b64encode(FILES.SerializeToString()).decode()
SEED = int(os.environ.get("PGSTREAM_TEST_SEED", "16"))
SESSIONS, EACH = 16, int(os.environ.get("PGSTREAM_TEST_STATEMENTS", "25"))
STATEMENTS = (
    "CREATE SCHEMA {n}", "CREATE SCHEMA IF NOT EXISTS {n}", "DROP SCHEMA {n}", "DROP SCHEMA IF EXISTS {n}",
    "CREATE SECRET {n} WITH ('type' = GENERIC_SECRET, 'secret_string' = 'x')", "DROP SECRET {n}",
    "UPDATE SECRET {n} WITH ('description' = 'd')", "CREATE COMPUTE_POOL {n}", "DROP COMPUTE_POOL {n}",
    "CREATE INDEX {n} ON views_per_user (n)", "DROP INDEX {n}", "ALTER RELATION pageviews SET description = '{n}'",
    "ALTER RELATION views_per_user SET description = '{n}'", "TRUNCATE RELATION views_per_user",
    "SET DEFAULT COMPUTE_POOL {n}", "LIST RELATIONS", "LIST SECRETS", "LIST SCHEMAS", "DESCRIBE SECRET {n}",
    "CREATE DATABASE {n}", "DROP DATABASE {n}", "SELECT count(*) FROM views_per_user", "USE SCHEMA {n}",
    "CREATE ROLE {n}r", "DROP ROLE {n}r", "GRANT ROLE {n}r TO USER 'admin'", "REVOKE ROLE {n}r FROM USER 'admin'",
    "GRANT SELECT ON RELATION views_per_user TO ROLE {n}r", "REVOKE SELECT ON RELATION views_per_user FROM ROLE {n}r",
    "GRANT USAGE ON SCHEMA {n} TO ROLE {n}r", "GRANT OWNERSHIP ON SCHEMA {n} TO {n}r", "GRANT ROLE {n}r TO ROLE r",
    "INVITE USER '{n}u' WITH ('default_role' = {n}r)", "DROP USER '{n}u'", "ALTER USER '{n}u' PASSWORD 'p'",
    "CREATE API_TOKEN {n} WITH ('token.role_name' = sysadmin)", "ALTER API_TOKEN {n} RENEW TOKEN",
    "DROP API_TOKEN {n}", "CREATE POLICY {n} ON views_per_user USING (n > 0)", "DROP POLICY {n} ON views_per_user",
    "ALTER MATERIALIZED VIEW views_per_user ENABLE ROW LEVEL SECURITY",
    "ALTER MATERIALIZED VIEW views_per_user DISABLE ROW LEVEL SECURITY", "BEGIN; CREATE SCHEMA {n}; ROLLBACK",
    "BEGIN; CREATE SCHEMA {n}; COMMIT", "BEGIN; DROP SCHEMA {n} CASCADE; ROLLBACK", "CREATE TABLE {n}.t (i int)",
    "DROP SCHEMA {n} CASCADE", 'SELECT count(*) FROM deltastream.sys."relations"',
    'SELECT count(*) FROM deltastream.sys."schemas"', "LIST ROLES", "LIST USERS", "DESCRIBE ROLE {n}r",
    "REINDEX TABLE views_per_user", "REINDEX SCHEMA public", "REINDEX INDEX {n}",
    "CREATE SCHEMA_REGISTRY {n} WITH ('type' = CONFLUENT, 'uris' = 'http://127.0.0.1:1')",
    "UPDATE SCHEMA_REGISTRY {n} WITH ('uris' = 'http://127.0.0.1:2')", "DROP SCHEMA_REGISTRY {n}",
    "CREATE DESCRIPTOR_SOURCE {n} WITH ('file' = 'base64:" + DESCRIPTORS + "')", "DROP DESCRIPTOR_SOURCE {n}",
    "COPY DESCRIPTOR_SOURCE {n} TO {n}c", "DROP DESCRIPTOR_SOURCE {n}c", "LIST DESCRIPTORS", "LIST POLICIES",
    "GRANT OWNERSHIP ON DESCRIPTOR_SOURCE {n} TO {n}r", "GENERATE TEMPLATE FOR STREAM",
    "DROP TABLE IF EXISTS {n}s, {n}t", "CREATE TABLE {n}t (i int)",
)  # fmt: skip
# Somebody else was quicker: it is there already, it is gone, it is in use, it is another role's now.
MAY_FAIL = {"42710", "42P04", "42P06", "42P07", "42704", "3D000", "3F000", "42P01", "2BP01", "55006", "42501", "42939",
            "0LP01"}  # fmt: skip


async def _repaired(data_dir: Path) -> list[str]:
    config = Config(data_dir=data_dir, admin_password=PASSWORD)
    postgres = await open_postgres(config)
    try:
        catalog = await Catalog.open(config, postgres.url, config.data_dir)
        await catalog.close()
        return catalog.repaired
    finally:
        await postgres.stop()


def test_sessions_change_the_catalogue_at_random(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    asyncio.run(_furnish(Config(data_dir=data_dir, admin_password=PASSWORD)))
    server = Server(data_dir)
    wrong: list[str] = []
    done: list[str] = []

    def session(number: int) -> None:
        choice = random.Random(f"{SEED} {number}")
        with psycopg.connect(server.url, autocommit=True) as c:
            c.execute("USE ROLE orgadmin")
            for _ in range(EACH):
                text = choice.choice(STATEMENTS).format(n=f"n{choice.randrange(5)}")
                try:
                    c.execute(text.encode())
                except psycopg.Error as e:
                    if e.sqlstate not in MAY_FAIL:
                        wrong.append(f"{text}: {e.sqlstate} {e}")
                    if c.info.transaction_status != IDLE:
                        c.execute("ROLLBACK")
                else:
                    done.append(text)

    threads = [threading.Thread(target=session, args=(n,), daemon=True) for n in range(SESSIONS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(300)
    hang = [t for t in threads if t.is_alive()]
    ended = server.stop()
    assert not hang, "a session hangs"
    assert wrong == [], f"seed {SEED}"
    assert len(done) > SESSIONS * EACH / 4
    assert ended == 0
    assert asyncio.run(_repaired(data_dir)) == []
