"""``make leaks``: things are made and taken away again and again; what is left behind is counted, and fails.

A cycle is one of ``KINDS``, in turn: a view, a topic's stream, an application, a SELECT that is canceled, a query that
fails … What there is after all of them is compared with what there was after the first rounds: in PostgreSQL, in Kafka,
in folders, of descriptors, threads, the JVM's objects in use and memory. Start reading at ``Kinds`` and ``Looker``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg

from tests.jvm import Jvm
from tests.postgres import Postgres, postgres
from tests.server import Kafka, Server, broker, within
from tests.stream.test_outage import facts

RECORDS = 30
PATIENCE_S = 300
WARM_ROUNDS = 2
"""Rounds of all kinds until what is kept on purpose is there: connections, code, caches."""
SETTLE_S = 150
"""What is closed after some idle time is gone then: the worker's consumers, connections, threads."""
HISTORY = ("queries", "query_events", "changes")
"""Tables of the catalogue that keep ended queries (setting ``ended_queries_days``), and what has changed in a day."""
ROOM = {"threads": 10, "descriptors": 24, "connections": 4, "processes": 8, "shared memory": 4}
"""What comes and goes: so many more, by the last words of a name, are no leak; one a cycle is."""
KB_A_CYCLE = {"server KB": 24, "worker KB": 40, "jvm heap KB": 24, "jvm KB": 250}
"""So much memory a cycle, beyond ``KB_ONCE``, is a leak."""
KB_ONCE = {"jvm KB": 128 * 1024}
"""24 MB, of the JVM more: compiled code, the heap as it grows, and what malloc keeps of the memory outside it."""
ENCODERS = (1010, ("StateRowEncoderCacheKey", "UnsafeRowDataEncoder", "KeyStateEncoderSpec", "ScanStateEncoderSpec"))
OF_ENCODERS = (2400, ("catalyst.expressions.UnsafeRow", "types.StructField", "types.StructType", "types.Metadata"))
"""How many objects of these classes, by the ends of their names, are no leak: Spark keeps a thousand encoders of rows
of state for an hour."""
OURS = ("org.apache.", "scala.collection.concurrent", "java.util.concurrent.ScheduledThread", "java.lang.Thread")


class Kinds:
    """What is made and taken away. Each takes a number of its own for the names that it makes."""

    def __init__(self, server: Server, kafka: Kafka, shop: Postgres) -> None:
        self.server, self.kafka, self.shop = server, kafka, shop
        at = int(time.time() * 1000)
        good = [(None, json.dumps({"id": n, "word": f"w{n % 5}", "at": at})) for n in range(RECORDS)]
        for topic, records in (("leaks_in", good), ("leaks_bad", [*good, (None, "{no json")])):
            kafka.topic(topic, 2)
            kafka.produce(topic, records, partition=0)
        shop.run("CREATE TABLE things (id bigint PRIMARY KEY, word text)", "ALTER TABLE things REPLICA IDENTITY FULL",
                 f"INSERT INTO things SELECT i, 'w' || i % 5 FROM generate_series(1, {RECORDS}) i")  # fmt: skip
        with server.connect() as db:
            self.run(
                db,
                f"""CREATE STORE leaks WITH ('type' = KAFKA, 'uris' = '{kafka.bootstrap}',
                'tls.disabled' = TRUE, 'kafka.sasl.hash_function' = NONE);
                CREATE STORE shop WITH ({shop.store});
                CREATE CHANGELOG things_cdc WITH ('store' = shop, 'postgresql.table.name' = 'things')""",
            )
            for name in ("events", "broken"):
                topic = "leaks_in" if name == "events" else "leaks_bad"
                self.run(
                    db,
                    f"""CREATE STREAM {name} (id BIGINT, word VARCHAR, at BIGINT) WITH (
                    'store' = leaks, 'topic' = '{topic}', 'value.format' = 'json', 'timestamp' = 'at',
                    'starting.position' = 'earliest')""",
                )

    @staticmethod
    def run(db: psycopg.Connection[Any], text: str) -> str:
        """Statements; the id of the query that the last one has started."""
        for one in text.split(";"):
            if one.strip():
                found = db.execute(one.encode())
        rows = found.fetchall() if found.description else []
        return str(rows[-1][1]) if rows else ""

    @staticmethod
    def value(db: psycopg.Connection[Any], sql: str) -> Any:
        row = db.execute(sql.encode()).fetchone()
        assert row is not None
        return row[0]

    def filled(self, db: psycopg.Connection[Any], view: str, column: str = "n") -> None:
        def there() -> bool:
            found = self.value(db, f"SELECT coalesce(sum({column}), 0)::int FROM {view}")
            queries = db.execute("LIST QUERIES").fetchall()
            if found != RECORDS and "errored" in [q[4] for q in queries]:
                raise RuntimeError(f"{view}: {queries}")
            return bool(found == RECORDS)

        within(PATIENCE_S, there)

    def over(self, db: psycopg.Connection[Any], view: str, *queries: str) -> None:
        for query in queries:
            db.execute(f'TERMINATE QUERY "{query}"'.encode())
        db.execute(f"DROP MATERIALIZED VIEW {view}".encode())

    def windows(self, db: psycopg.Connection[Any], n: int) -> None:
        """A windowed view whose rows leave, in a schema of its own."""
        query = self.run(
            db,
            f"""CREATE SCHEMA leaks_{n};
            CREATE MATERIALIZED VIEW leaks_{n}.v WITH ('retention.millis' = 3600000)
            AS SELECT window_start, window_end, word, count(*) AS n FROM TUMBLE(events, SIZE 1 MINUTE)
            GROUP BY window_start, window_end, word""",
        )
        self.filled(db, f"leaks_{n}.v")
        self.over(db, f"leaks_{n}.v", query)
        db.execute(f"DROP SCHEMA leaks_{n}".encode())

    def keyed(self, db: psycopg.Connection[Any], n: int) -> None:
        """A view by key, indexed, begun again, checked."""
        query = self.run(db, f"CREATE MATERIALIZED VIEW k_{n} AS SELECT word, count(*) AS n FROM events GROUP BY word")
        self.filled(db, f"k_{n}")
        db.execute(f"CREATE INDEX k_by_n_{n} ON k_{n} (n)".encode())
        db.execute(f'RESTART QUERY "{query}"'.encode())
        within(PATIENCE_S, lambda: facts(db, query)["state"] == "running")
        assert db.execute(f"CHECK MATERIALIZED VIEW k_{n}".encode()).fetchall() == []
        self.over(db, f"k_{n}", query)

    def replaced(self, db: psycopg.Connection[Any], n: int) -> None:
        """A view that another query comes to keep."""
        self.run(db, f"CREATE MATERIALIZED VIEW r_{n} AS SELECT word, count(*) AS n FROM events GROUP BY word")
        self.filled(db, f"r_{n}")
        query = self.run(
            db,
            f"""CREATE OR REPLACE MATERIALIZED VIEW r_{n} AS SELECT word, count(*) AS n, count(*) AS m
            FROM events GROUP BY word""",
        )
        within(
            120,
            lambda: self.value(
                db,
                f"""SELECT count(*) FROM pg_attribute
            WHERE attrelid = 'r_{n}'::regclass AND attname = 'm'""",
            ),
        )
        self.filled(db, f"r_{n}", "m")
        within(
            PATIENCE_S, lambda: len(db.execute("LIST QUERIES").fetchall()) == 1
        )  # the replaced one ends a moment later
        self.over(db, f"r_{n}", query)

    def operators(self, db: psycopg.Connection[Any], n: int) -> None:
        """Operators of our own, one after another."""
        query = self.run(
            db,
            f"""CREATE MATERIALIZED VIEW o_{n} AS SELECT word, count(DISTINCT id) AS n FROM (
            SELECT id, word, row_number() OVER (PARTITION BY id ORDER BY at) AS r FROM events) x
            WHERE r = 1 GROUP BY word""",
        )
        self.filled(db, f"o_{n}")
        self.over(db, f"o_{n}", query)

    def topics(self, db: psycopg.Connection[Any], n: int) -> None:
        """A stream into a topic of its own."""
        query = self.run(
            db,
            f"""CREATE STREAM out_{n} WITH ('store' = leaks, 'topic' = 'leaks_out_{n}',
            'topic.partitions' = 2, 'topic.replicas' = 1) AS SELECT id, upper(word) AS word FROM events""",
        )
        assert len(self.kafka.consume(f"leaks_out_{n}", RECORDS)) == RECORDS
        self.run(db, f'TERMINATE QUERY "{query}"; DROP STREAM out_{n}; DROP ENTITY leaks_out_{n} IN STORE leaks')

    def selects(self, db: psycopg.Connection[Any], n: int) -> None:
        """One to its LIMIT, one canceled, one whose client leaves, one by a cursor."""
        assert len(db.execute(f"SELECT id FROM events LIMIT {RECORDS}".encode()).fetchall()) == RECORDS
        with self.server.connect() as other:
            other.execute("SET statement_timeout = '60s'")
            threading.Timer(1.5, other.cancel_safe).start()
            with contextlib.suppress(psycopg.errors.QueryCanceled):
                other.execute("SELECT id, word FROM events WHERE id < 0")
        gone = self.server.connect()
        gone.pgconn.send_query(b"SELECT word FROM events")
        time.sleep(0.5)
        gone.close()
        with db.transaction():
            db.execute("DECLARE c CURSOR FOR SELECT id FROM events")
            assert len(db.execute("FETCH 10 FROM c").fetchall()) == 10
            db.execute("CLOSE c")

    def applications(self, db: psycopg.Connection[Any], n: int) -> None:
        """A view and a topic of one query."""
        text = f"""BEGIN APPLICATION a_{n}
            CREATE VIRTUAL STREAM virtual.public.some_{n} AS SELECT id, word FROM events WHERE id >= 0;
            CREATE MATERIALIZED VIEW a_{n} AS SELECT word, count(*) AS n FROM virtual.public.some_{n} GROUP BY word;
            CREATE STREAM as_{n} WITH ('store' = leaks, 'topic' = 'leaks_as_{n}', 'topic.partitions' = 1,
              'topic.replicas' = 1) AS SELECT id FROM virtual.public.some_{n};
            END APPLICATION"""
        query = next(str(r[1]) for r in db.execute(text.encode()).fetchall() if r[0] == "query")
        self.filled(db, f"a_{n}")
        assert len(self.kafka.consume(f"leaks_as_{n}", RECORDS)) == RECORDS
        self.over(db, f"a_{n}", query)
        self.run(db, f"DROP STREAM as_{n}; DROP ENTITY leaks_as_{n} IN STORE leaks")

    def failing(self, db: psycopg.Connection[Any], n: int) -> None:
        """A query that meets a bad record, and a statement that is refused."""
        query = self.run(db, f"CREATE MATERIALIZED VIEW f_{n} AS SELECT word, count(*) AS n FROM broken GROUP BY word")
        within(
            PATIENCE_S, lambda: f"{query} errored" in [f"{r[0]} {r[4]}" for r in db.execute("LIST QUERIES").fetchall()]
        )
        self.over(db, f"f_{n}", query)
        with contextlib.suppress(psycopg.Error):
            db.execute(f"CREATE MATERIALIZED VIEW f_{n} AS SELECT nothing FROM events".encode())

    def tables(self, db: psycopg.Connection[Any], n: int) -> None:
        """The changes of a PostgreSQL table, into a table there."""
        query = self.run(
            db,
            f"""CREATE MATERIALIZED VIEW t_{n} AS SELECT word, count(*) AS n FROM things_cdc
            GROUP BY word""",
        )
        self.filled(db, f"t_{n}")
        self.over(db, f"t_{n}", query)

    def objects(self, db: psycopg.Connection[Any], n: int) -> None:
        """What no query has to do with."""
        self.run(
            db,
            f"""CREATE DATABASE leaks_{n};
            USE ROLE useradmin; CREATE ROLE leaks_role_{n}; DROP ROLE leaks_role_{n}; USE ROLE sysadmin;
            DROP DATABASE leaks_{n};
            CREATE SECRET leaks_secret_{n} WITH ('type' = GENERIC_STRING, 'secret_string' = 'x');
            DROP SECRET leaks_secret_{n}""",
        )

    @property
    def all(self) -> list[Callable[[psycopg.Connection[Any], int], None]]:
        return [self.windows, self.keyed, self.replaced, self.operators, self.topics, self.selects,
                self.applications, self.failing, self.tables, self.objects]  # fmt: skip


class Looker:
    """Counts what there is."""

    def __init__(self, server: Server, kafka: Kafka, shop: Postgres, temporary: Path) -> None:
        self.server, self.kafka, self.shop, self.temporary = server, kafka, shop, temporary
        data = server.data_dir
        self.port = (data / "postgres/postmaster.pid").read_text().split("\n")[3]
        self.password = (data / "postgres.password").read_text().strip()

    def look(self) -> Counter[str]:
        """What there is now, by name; of Java's objects those of ``OURS``, as ``object CLASS``."""
        found: Counter[str] = Counter()
        for database in [row[0] for row in self.rows("postgres", "SELECT datname FROM pg_database WHERE datallowconn")]:
            self._postgres(database, found)
        for what in ("pg_database", "pg_roles", "pg_replication_slots", "pg_prepared_xacts"):
            found[what] = self.rows("postgres", f"SELECT count(*) FROM {what}")[0][0]
        found["postgres connections"] = self.rows("postgres", "SELECT count(*) FROM pg_stat_activity")[0][0]
        found["shop slots"] = self.shop.rows("SELECT count(*) FROM pg_replication_slots")[0][0]
        found["shop publications"] = self.shop.rows("SELECT count(*) FROM pg_publication")[0][0]
        admin = self.kafka.admin
        found["topics"] = sum(1 for t in admin.list_topics(timeout=10).topics if not t.startswith("__"))
        groups = [g.group_id for g in admin.list_consumer_groups(request_timeout=10).result().valid]
        found["consumer groups"] = sum(1 for g in groups if not g.startswith("test-"))
        found["files of data"] = sum(1 for _ in files(self.server.data_dir, "postgres"))
        found["temporary files"] = sum(1 for _ in files(self.temporary))
        found["shared memory"] = len(list(Path("/dev/shm").iterdir()))
        found["processes"] = len(psutil.Process(self.server.process.pid).children(recursive=True))
        for name, process in self.processes():
            found[f"{name} threads"] = process.num_threads()
            found[f"{name} descriptors"] = process.num_fds()
            found[f"{name} KB"] = process.memory_info().rss >> 10
            if name == "jvm":
                self._java(Jvm(process.pid), found)
        return found

    def rows(self, database: str, sql: str) -> list[tuple[Any, ...]]:
        url = f"postgresql://pgstream:{self.password}@127.0.0.1:{self.port}/{database}"
        with psycopg.connect(url, autocommit=True) as c:
            return c.execute(sql.encode()).fetchall()

    def _postgres(self, database: str, found: Counter[str]) -> None:
        for what in ("pg_class", "pg_type", "pg_proc", "pg_namespace", "pg_default_acl", "pg_trigger", "pg_rewrite",
                     "pg_policy", "pg_largeobject_metadata", "pg_event_trigger"):  # fmt: skip
            # PostgreSQL keeps the schemas for temporary tables of each place for a connection.
            but = " WHERE nspname !~ '^pg_(toast_)?temp_'" if what == "pg_namespace" else ""
            found[f"{database} {what}"] = self.rows(database, f"SELECT count(*) FROM {what}{but}")[0][0]
        tables = """SELECT n.nspname || '.' || relname, format('%I.%I', n.nspname, relname)
            FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
            WHERE relkind = 'r' AND n.nspname !~ '^(pg_catalog|information_schema|pg_toast)'"""
        for name, quoted in self.rows(database, tables):
            found[f"{database} rows of {name}"] = self.rows(database, f"SELECT count(*) FROM {quoted}")[0][0]

    def processes(self) -> Iterator[tuple[str, psutil.Process]]:
        top = psutil.Process(self.server.process.pid)
        yield "server", top
        for child in top.children(recursive=True):
            try:
                words = child.cmdline()
            except psutil.NoSuchProcess:  # a connection of PostgreSQL that ended meanwhile
                continue
            if any(w.startswith("-XX:ArchiveClassesAtExit") for w in words):
                continue  # a worker for a moment, beside the first
            if "org.apache.spark.deploy.SparkSubmit" in words:
                yield "jvm", child
            elif "pgstream.spark" in words:
                yield "worker", child

    def _java(self, jvm: Jvm, found: Counter[str]) -> None:
        live = jvm.live()
        found["jvm heap KB"] = sum(size for _, size in live.values()) >> 10
        found["jvm classes"] = live.get("java.lang.Class", (0, 0))[0]
        for name, (count, _) in live.items():
            if name.startswith(OURS):
                found[f"object {name.split('@')[0]}"] += count
        for name, count in Counter(jvm.threads()).items():
            found[f"thread {name}"] = count


def files(folder: Path, *without: str) -> Iterator[Path]:
    """Under a folder; those that go away meanwhile may be missing."""
    for at, folders, names in os.walk(folder):
        for path in (Path(at) / name for name in (*folders, *names)):
            if path.relative_to(folder).parts[0] not in without:
                yield path


def above(first: Counter[str], now: Counter[str], cycles: int, rounds: int) -> dict[str, tuple[int, int]]:
    """What there is more of than may be, with how many there were and are."""
    found = {}
    for name, count in now.items():
        grown = count - first[name]
        if name in KB_A_CYCLE:
            leaks = grown > KB_ONCE.get(name, 24 * 1024) + KB_A_CYCLE[name] * cycles
        elif name.endswith(" KB"):
            leaks = False
        elif name.startswith(("object ", "thread ")) or name == "jvm classes":
            kept = next((most for most, ends in (ENCODERS, OF_ENCODERS) if name.endswith(ends)), 0)
            leaks = count > kept and grown >= max(8, rounds * 9 // 10) * (20 if name == "jvm classes" else 1)
        else:
            leaks = grown > next((room for end, room in ROOM.items() if name.endswith(end)), 0)
        if leaks and not (" rows of " in name and name.endswith(HISTORY)):
            found[name] = first[name], count
    return found


def told(first: Counter[str], now: Counter[str]) -> None:
    """What has changed; of Java's objects what has grown most."""
    objects = sorted((n for n in now if n.startswith("object ")), key=lambda n: first[n] - now[n])[:25]
    for name in [*(n for n in now if not n.startswith("object ")), *objects]:
        if now[name] != first[name]:
            print(f"{name:70}{first[name]:>10}{now[name]:>10}{now[name] - first[name]:>+9}", flush=True)


def leaks(folder: Path, cycles: int, only: list[str]) -> dict[str, tuple[int, int]]:
    """What is left behind after ``cycles``."""
    (folder / "tmp").mkdir()
    with broker(folder / "kafka") as kafka, postgres(folder / "shop") as shop:
        server = Server(folder / "server", log_level="info", environ={"TMPDIR": str(folder / "tmp")})
        try:
            kinds = Kinds(server, kafka, shop)
            every = [k for k in kinds.all if not only or k.__name__ in only]
            looker = Looker(server, kafka, shop, folder / "tmp")
            took: Counter[str] = Counter()

            def turn(n: int) -> None:
                kind, began = every[n % len(every)], time.monotonic()
                with server.connect() as db:
                    kind(db, n)
                took[kind.__name__] += round(1000 * (time.monotonic() - began))

            warm = WARM_ROUNDS * len(every)
            for n in range(warm):
                turn(n)
            time.sleep(5)
            first = looker.look()
            print(
                f"begun: {dict(first.most_common())['jvm heap KB']} KB in use in the JVM, {dict(took)} ms", flush=True
            )
            took.clear()
            rounds = cycles // len(every)
            for n in range(warm, warm + cycles):
                turn(n)
                if (n - warm + 1) % 50 == 0:
                    print(f"after {n - warm + 1} cycles, {dict(took)} ms:", flush=True)
                    told(first, looker.look())
            end = time.monotonic() + SETTLE_S
            while left := above(first, last := looker.look(), cycles, rounds):
                if time.monotonic() > end:
                    break
                time.sleep(5)
            print(f"after {cycles} cycles and a while:", flush=True)
            told(first, last)
            return left
        except BaseException:
            print(server.log.read_text()[-6000:], file=sys.stderr)
            raise
        finally:
            server.stop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stream.leaks", description=__doc__)
    parser.add_argument("--cycles", type=int, default=500)
    parser.add_argument("--only", action="append", default=[], help="a kind of cycle; may be given again")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pgs", ignore_cleanup_errors=True) as folder:
        left = leaks(Path(folder), args.cycles, args.only)
    for name, (before, after) in left.items():
        print(f"LEFT BEHIND: {name}: {before}, then {after}")
    if not left:
        print(f"nothing is left behind after {args.cycles} cycles")
    return bool(left)


if __name__ == "__main__":
    sys.exit(main())
