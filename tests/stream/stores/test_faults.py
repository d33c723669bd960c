"""What goes wrong between a query and a PostgreSQL store: deaths of either side, connections that are cut or silent,
another server behind the same address. The view ends as the table, or the query says why it cannot go on.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.postgres import Postgres, postgres
from tests.proxy import Proxy, proxy
from tests.server import Server, within
from tests.stream.stores.test_tables import killed, query_of
from tests.stream.test_outage import facts

pytestmark = pytest.mark.stream
COLUMNS = "id, k, md5(big), length(big)"


@pytest.fixture(scope="module")
def source(workspace: Path) -> Iterator[Postgres]:
    with postgres(workspace / "faults") as p:
        yield p


@pytest.fixture(scope="module")
def way(source: Postgres) -> Iterator[Proxy]:
    with proxy(source.port) as p:
        yield p


@pytest.fixture(scope="module")
def dark(source: Postgres) -> Iterator[Proxy]:
    with proxy(source.port) as p:
        yield p


@pytest.fixture(scope="module")
def db(server: Server, source: Postgres, way: Proxy, dark: Proxy) -> Iterator[psycopg.Connection[Any]]:
    with server.connect() as c:
        for name, port in (("pg_faults", source.port), ("pg_faults_way", way.port), ("pg_faults_dark", dark.port)):
            through = source.store.replace(f":{source.port}/", f":{port}/")
            c.execute(f"CREATE STORE {name} WITH ({through})".encode())
        yield c


def followed(
    db: psycopg.Connection[Any], source: Postgres, table: str, store: str = "pg_faults", identity: str = "FULL"
) -> str:
    """A table, its changelog and a view of that; the query's id. Long values are long in the table's file, too."""
    source.run(
        f"CREATE TABLE {table} (id bigint PRIMARY KEY, k int, big text)",
        f"ALTER TABLE {table} ALTER big SET STORAGE EXTERNAL",
        f"ALTER TABLE {table} REPLICA IDENTITY {identity}",
        f"INSERT INTO {table} SELECT i, i % 10, repeat(md5(i::text), 300) FROM generate_series(1, 300) i",
    )
    db.execute(f"CREATE CHANGELOG {table}_log WITH ('store' = {store}, 'postgresql.table.name' = '{table}')".encode())
    query = query_of(db, f"CREATE MATERIALIZED VIEW {table}_now AS SELECT id, k, big FROM {table}_log")
    equal(db, source, table)
    return query


def equal(db: psycopg.Connection[Any], source: Postgres, table: str, seconds: float = 120) -> None:
    def same() -> bool:
        theirs = source.rows(f"SELECT {COLUMNS} FROM {table} ORDER BY id")
        ours = db.execute(f"SELECT {COLUMNS} FROM {table}_now ORDER BY id".encode()).fetchall()
        assert len(ours) == len(theirs)
        return ours == theirs

    within(seconds, same, 0.5)


class Workload(threading.Thread):
    """Random transactions of a table, until it is told to stop: long values, keys that change, TRUNCATE, rollbacks."""

    def __init__(self, source: Postgres, table: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.source, self.table, self.rng = source, table, random.Random(seed)
        self.transactions = 0
        self.done = False

    def run(self) -> None:
        while not self.done:
            try:
                with self.source.connect() as c:
                    while not self.done:
                        with c.transaction(force_rollback=self.rng.random() < 0.1):
                            for _ in range(self.rng.randint(1, 4)):
                                c.execute(self._one().encode())
                        self.transactions += 1
                        time.sleep(0.01)
            except psycopg.OperationalError:
                time.sleep(0.1)

    def _one(self) -> str:
        t, r = self.table, self.rng
        a, b = r.randrange(400), r.randrange(400, 10**6)
        if r.random() < 0.002:
            return f"TRUNCATE {t}"
        return r.choice((
            f"INSERT INTO {t} SELECT i, i % 7, repeat(md5((i * {b})::text), {b % 600})"
            f" FROM generate_series({a}, {a} + 20) i ON CONFLICT (id) DO UPDATE SET k = EXCLUDED.k",
            f"UPDATE {t} SET k = {b % 100} WHERE id % 50 = {a % 50}",
            f"UPDATE {t} SET big = repeat('{b}', {b % 5000}) WHERE id = {a}",
            f"DELETE FROM {t} WHERE id % 40 = {a % 40}",
            f"UPDATE {t} SET id = {b + 1000} WHERE id = {a} AND NOT EXISTS (SELECT FROM {t} WHERE id = {b + 1000})",
        ))  # fmt: skip

    def stop(self) -> None:
        self.done = True
        self.join(30)
        assert not self.is_alive()


def grown(load: Workload, by: int) -> None:
    seen = load.transactions
    within(60, lambda: load.transactions > seen + by)


def test_deaths_of_either_side(db: psycopg.Connection[Any], server: Server, source: Postgres) -> None:
    """Of the row before PostgreSQL tells the key alone, and of the row after no long value that was not changed."""
    query = followed(db, source, "deaths", identity="DEFAULT")
    load = Workload(source, "deaths", 11)
    load.start()
    for turn in range(2):
        grown(load, 100)
        within(60, lambda: killed(server))
        grown(load, 100)
        source.stop()
        time.sleep(turn)
        source.start()
    grown(load, 100)
    load.stop()
    equal(db, source, "deaths")
    db.execute(f"TERMINATE QUERY {query}".encode())


def test_one_store_is_cut_at_any_byte_and_one_is_silent(
    db: psycopg.Connection[Any], source: Postgres, way: Proxy, dark: Proxy
) -> None:
    """Of the one not a byte comes, and no word that the connection is over: its query says so, and others go on."""
    near, far = followed(db, source, "cuts", "pg_faults_way"), followed(db, source, "silent", "pg_faults_dark")
    other = followed(db, source, "quiet")
    dark.hold()
    source.run("UPDATE silent SET k = 77")
    load = Workload(source, "cuts", 12)
    load.start()
    way.cut_after = 200_000
    way.close_all()
    within(90, lambda: way.cuts >= 4)
    way.cut_after = 0
    load.stop()
    equal(db, source, "cuts")
    within(90, lambda: "did not answer for 60 seconds" in str(facts(db, far)))
    source.run("UPDATE quiet SET k = 77")
    equal(db, source, "quiet")
    assert facts(db, other)["attempts"] == "1"
    dark.open()
    equal(db, source, "silent")
    for query in (near, far, other):
        db.execute(f"TERMINATE QUERY {query}".encode())


def test_another_server_without_the_slot(db: psycopg.Connection[Any], source: Postgres) -> None:
    """A standby becomes the server: it is the same system, but slots do not follow it."""
    query = followed(db, source, "failover")
    source.stop()
    for slot in (source.folder / "pg_replslot").iterdir():
        shutil.rmtree(slot)
    source.start()
    source.run("UPDATE failover SET k = 5")
    within(90, lambda: "cannot go on: it does not exist any more" in str(facts(db, query)))
    assert db.execute("SELECT count(*) FROM failover_now WHERE k = 5").fetchall() != [(300,)]
    said = facts(db, query)
    assert said["state"] == "errored", said
    db.execute(f"TERMINATE QUERY {query}".encode())


def test_a_server_that_is_an_older_copy(db: psycopg.Connection[Any], source: Postgres, workspace: Path) -> None:
    """It has the slot, and would go on after what was read there, whatever it has written there since."""
    query = followed(db, source, "older")
    source.stop()
    copy = workspace / "faults-older"
    subprocess.run(["cp", "-a", source.folder, copy], check=True)
    source.start()
    source.run("UPDATE older SET k = 5", "UPDATE older SET big = repeat('x', 5000)")
    equal(db, source, "older")
    source.stop()
    shutil.rmtree(source.folder)
    copy.rename(source.folder)
    source.start()
    within(90, lambda: "cannot go on: the server stands before" in str(facts(db, query)))
    db.execute(f"TERMINATE QUERY {query}".encode())


def test_what_a_slot_keeps_is_told_and_one_that_is_lost_ends_the_query(server: Server, workspace: Path) -> None:
    bound = {"max_slot_wal_keep_size": "32MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}
    with postgres(workspace / "keeping", **bound) as source, proxy(source.port) as way, server.connect() as db:
        db.execute(f"CREATE STORE pg_keeping WITH ({source.store.replace(str(source.port), str(way.port))})".encode())
        source.run("CREATE TABLE kept (id int PRIMARY KEY, v int)", "INSERT INTO kept VALUES (1, 1)",
                   "CREATE TABLE filler (t text)")  # fmt: skip
        db.execute("""CREATE CHANGELOG kept_log WITH ('store' = pg_keeping, 'postgresql.table.name' = 'kept',
            'postgresql.slot.warning.mb' = 2)""")
        query = query_of(db, "CREATE MATERIALIZED VIEW kept_now AS SELECT id, v FROM kept_log")
        within(60, lambda: db.execute("SELECT v FROM kept_now").fetchall() == [(1,)])
        with source.connect() as holding, holding.transaction():
            # What is not over is kept, however far the slot has come.
            holding.execute("INSERT INTO filler VALUES ('open')")
            source.run("INSERT INTO filler SELECT repeat(md5(i::text), 30) FROM generate_series(1, 5000) i")
            v = 1

            def warned() -> dict[str, str]:
                nonlocal v
                v += 1
                source.run(f"UPDATE kept SET v = {v}")
                told = {r[0]: r for r in db.execute(f"DESCRIBE QUERY METRICS {query}".encode()).fetchall()}
                assert str(told.get("slot_warning", "")).count("the server keeps "), told
                return {name: str(row[3]) for name, row in told.items()}

            told = within(60, warned, 1)
            assert int(told["slot_kept_bytes"]) > 2 << 20 and int(told["slot_room_bytes"]) > 0
            assert int(told["slot_lag_bytes"]) <= int(told["slot_kept_bytes"])
            assert "warning" in str(facts(db, query))
            described = db.execute("DESCRIBE ENTITY kept IN STORE pg_keeping").fetchall()
            assert "MB kept" in str(described), described
        way.hold()
        way.close_all()
        filled = "INSERT INTO filler SELECT repeat(md5(i::text), 60) FROM generate_series(1, 9000) i"
        for _ in range(6):
            source.run(filled, "SELECT pg_switch_wal()", "CHECKPOINT")
        assert source.rows("SELECT wal_status FROM pg_replication_slots") == [("lost",)]
        way.open()
        within(90, lambda: "max_slot_wal_keep_size" in str(facts(db, query)))
        within(10, lambda: facts(db, query)["state"] == "errored")
        db.execute(f"TERMINATE QUERY {query}".encode())


def test_a_table_that_leaves_its_publication(db: psycopg.Connection[Any], source: Postgres) -> None:
    query = followed(db, source, "leaves")
    name = source.rows("SELECT pubname FROM pg_publication_tables WHERE tablename = 'leaves'")[0][0]
    source.run(f"ALTER PUBLICATION {name} DROP TABLE leaves", "UPDATE leaves SET k = 5")
    within(60, lambda: "has table public.leaves no longer" in str(facts(db, query)))
    db.execute(f"TERMINATE QUERY {query}".encode())
