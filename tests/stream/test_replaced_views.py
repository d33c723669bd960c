"""CREATE OR REPLACE, REPAIR and CHECK MATERIALIZED VIEW: readers see the old view or the new one, whole, whatever dies
meanwhile."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from tests.server import Kafka, Server, within
from tests.stream.test_kill import worker_of
from tests.stream.test_outage import facts, run, superuser

pytestmark = [pytest.mark.stream, pytest.mark.timeout(600)]
# Money that moves: a record has both sides, so what all accounts have together is nothing at any moment.
SIDES = "(SELECT a AS k, -v AS v FROM rp_in UNION ALL SELECT b AS k, v FROM rp_in) s"


def balances(rule: str, more: str = "") -> str:
    return f"rp_sums AS SELECT k, sum(v) AS total, max('{rule}') AS rule{more} FROM {SIDES} GROUP BY k"


SETUP = f"""
CREATE STORE rp WITH ('type' = KAFKA, 'uris' = '{{bootstrap}}', 'tls.disabled' = TRUE,
  'kafka.sasl.hash_function' = NONE);
CREATE STREAM rp_in (a BIGINT, b BIGINT, v BIGINT)
  WITH ('store' = rp, 'topic' = '{{topic}}', 'value.format' = 'json', 'starting.position' = 'earliest');
CREATE MATERIALIZED VIEW {balances("one")};
"""


@pytest.fixture(scope="module")
def made(server: Server, kafka: Kafka) -> None:
    kafka.topic("rp", 2)
    move(kafka, 0, 500)
    with server.connect() as db:
        run(db, SETUP.format(bootstrap=kafka.bootstrap, topic="rp"))
        run(db, "CREATE MATERIALIZED VIEW rp_total AS"
                " SELECT sum(total) AS total, count(*) AS n, max(rule) AS rule FROM rp_sums")  # fmt: skip
        within(180, lambda: whole(db, "one"))


def move(kafka: Kafka, first: int, last: int, topic: str = "rp") -> None:
    kafka.produce(topic, [(None, json.dumps({"a": i % 20, "b": (i + 1) % 20, "v": i})) for i in range(first, last)])


READ = "SELECT count(*), sum(total), array_agg(DISTINCT rule) FROM rp_sums"


def whole(db: psycopg.Connection[Any], rule: str) -> bool:
    return bool(db.execute(READ).fetchone() == (20, 0, [rule]))


class Readers:
    """Clients that read the view in a loop; what is not whole, and what fails, is kept."""

    def __init__(self, server: Server) -> None:
        self.server, self.over = server, threading.Event()
        self.wrong: list[object] = []
        self.reads, self.seen = 0, set[str]()
        self.threads = [threading.Thread(target=self._read, args=(n,), daemon=True) for n in range(3)]

    def _read(self, n: int) -> None:
        try:
            with self.server.connect() as db:
                while not self.over.is_set():
                    row = db.execute(READ, prepare=n == 1, binary=n == 2).fetchone()
                    assert row is not None
                    self.reads += 1
                    self.seen.update(row[2])
                    if row[0] != 20 or row[1] != 0 or len(row[2]) != 1:
                        self.wrong.append(row)
        except Exception as e:
            self.wrong.append(e)

    def __enter__(self) -> Readers:
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for t in self.threads:
            t.join(30)


def keeper(db: psycopg.Connection[Any]) -> Any:
    row = db.execute("""SELECT id FROM deltastream.sys."queries" WHERE sink = 'main.public.rp_sums'
        AND intended_state = 'running' ORDER BY created_at""").fetchall()  # fmt: skip
    return [id for (id,) in row]


def left_over(server: Server) -> Any:
    with superuser(server) as su:
        return su.execute("SELECT relname FROM pg_class WHERE relnamespace = 'pg_pgstream'::regnamespace"
                          " AND relname ~ '^(r_|s_.*_r_)' AND relkind = 'r'").fetchall()  # fmt: skip


def test_readers_see_one_or_the_other(made: None, server: Server, kafka: Kafka, db: psycopg.Connection[Any]) -> None:
    # What hangs on the view, and must stay: its owner's grants, an index, PostgreSQL's view, another query.
    run(db, """
        GRANT SELECT ON rp_sums TO ROLE public;
        CREATE INDEX rp_by_total ON rp_sums (total);
        CREATE VIEW rp_rich AS SELECT k FROM rp_sums WHERE total > 0;
        """)  # fmt: skip
    (before,) = keeper(db)
    about = """SELECT oid, relacl::text, obj_description(oid), (SELECT array_agg(indexrelid::regclass::text ORDER BY 1)
        FROM pg_index WHERE indrelid = c.oid) FROM pg_class c WHERE relname = 'rp_sums'"""
    was = db.execute(about).fetchone()
    columns = db.execute("DESCRIBE MATERIALIZED VIEW COLUMNS rp_sums").fetchall()
    with server.connect() as old, Readers(server) as readers:
        old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        assert whole(old, "one")
        old.execute("DECLARE c CURSOR FOR SELECT rule FROM rp_sums")
        old.execute("FETCH 5 FROM c")
        (query,) = run(db, f"CREATE OR REPLACE MATERIALIZED VIEW {balances('two')}")
        with pytest.raises(psycopg.Error) as e:
            db.execute(f"CREATE OR REPLACE MATERIALIZED VIEW {balances('three')}")
        assert (e.value.sqlstate, e.value.diag.statement_position) == ("55006", "37")
        for turn in range(100):
            move(kafka, 500 + turn * 20, 520 + turn * 20)
            if whole(db, "two"):
                break
            time.sleep(0.2)
        assert whole(db, "two")
        # Who began before it goes on with what it saw, as in any transaction.
        assert whole(old, "one") and set(old.execute("FETCH ALL FROM c").fetchall()) == {("one",)}
        old.execute("ROLLBACK")
        move(kafka, 5000, 5100)
        sides = [(5000 + i, i % 20) for i in range(100)]
        top = sum(v for v, _ in sides)
        within(180, lambda: whole(db, "two") and facts(db, query)["state"] == "running")
        within(180, lambda: db.execute("SELECT * FROM rp_total").fetchall() == [(0, 20, "two")])
        assert top > 0
    assert readers.wrong == [] and readers.seen == {"one", "two"} and readers.reads > 20
    assert db.execute(about).fetchone() == was
    assert db.execute("DESCRIBE MATERIALIZED VIEW COLUMNS rp_sums").fetchall() == columns
    within(90, lambda: keeper(db) == [query])
    within(90, lambda: facts(db, before)["state"] == "terminated")
    within(90, lambda: left_over(server) == [])
    assert db.execute("SELECT count(*) > 0 FROM rp_rich").fetchone() == (True,)


def test_a_staging_table_that_the_worker_could_not_drop_goes_all_the_same(
    made: None, server: Server, kafka: Kafka, db: psycopg.Connection[Any]
) -> None:
    within(90, lambda: len(keeper(db)) == 1)
    (was,) = keeper(db)
    waiting = "SELECT pid FROM pg_locks WHERE relation = %s::regclass AND NOT granted"
    with superuser(server) as su, superuser(server) as other:
        with su.transaction():
            # The old query's place is held, so nothing is exchanged until the table is locked.
            su.execute("SELECT FROM pg_pgstream.ledger WHERE query = %s FOR UPDATE", [was])
            (query,) = run(db, f"CREATE OR REPLACE MATERIALIZED VIEW {balances('six')}")
            (table,) = within(180, lambda: [f"pg_pgstream.{name}" for (name,) in left_over(server) if name[0] == "s"])
            other.execute("BEGIN")
            other.execute(f"LOCK TABLE {table} IN ACCESS SHARE MODE".encode())
        (pid,) = within(180, lambda: su.execute(waiting, [table]).fetchall())[0]
        within(60, lambda: (pid,) not in su.execute(waiting, [table]).fetchall())
        other.execute("ROLLBACK")
    within(180, lambda: keeper(db) == [query] and whole(db, "six"))
    within(90, lambda: left_over(server) == [])
    within(90, lambda: facts(db, query)["state"] == "running")


def test_a_column_more(made: None, server: Server, db: psycopg.Connection[Any]) -> None:
    """Queries that read the view keep its columns; without them more may follow, and policies stay."""
    more = balances("four", ", count(*) AS n")
    for what, code in (
        (more, "2BP01"),
        (f"rp_sums AS SELECT k, sum(v) AS total FROM {SIDES} GROUP BY k", "42P16"),
        (f"rp_sums AS SELECT k, sum(v) AS x, max('a') AS rule FROM {SIDES} GROUP BY k", "42P16"),
        (f"rp_sums AS SELECT k, max('a') AS total, max('a') AS rule FROM {SIDES} GROUP BY k", "42P16"),
        ("rp_sums AS SELECT k, total, rule FROM rp_sums", "42601"),
        ("rp_sums AS SELECT n AS k, total, rule FROM rp_total", "42601"),
        ("rp_in AS SELECT a FROM rp_in", "42809"),
        ("IF NOT EXISTS rp_sums AS SELECT a FROM rp_in", "42601"),
    ):
        with pytest.raises(psycopg.Error) as e:
            db.execute(f"CREATE OR REPLACE MATERIALIZED VIEW {what}".encode())
        assert e.value.sqlstate == code, (what, e.value)
    readers = "SELECT id FROM deltastream.sys.\"queries\" WHERE sink = 'main.public.rp_total'"
    ((reader,),) = db.execute(readers).fetchall()
    db.execute(f"TERMINATE QUERY {reader}".encode())
    run(db, """
        CREATE POLICY rp_few ON rp_sums FOR SELECT TO public USING (k < 3);
        ALTER MATERIALIZED VIEW rp_sums ENABLE ROW LEVEL SECURITY
        """)  # fmt: skip
    about = """SELECT relrowsecurity, policyname, roles, cmd, qual FROM pg_policies p JOIN pg_class c
        ON p.tablename = c.relname WHERE relname = 'rp_sums' ORDER BY policyname"""
    was = db.execute(about).fetchall()
    assert [(enabled, name) for enabled, name, *_ in was] == [(True, "pgstream_owner"), (True, "rp_few")]
    (query,) = run(db, f"CREATE OR REPLACE MATERIALIZED VIEW {more}")
    within(180, lambda: whole(db, "four"))
    assert db.execute("SELECT count(n), min(n) > 0 FROM rp_sums").fetchone() == (20, True)
    within(90, lambda: keeper(db) == [query])
    assert db.execute("DESCRIBE RELATION COLUMNS rp_sums").fetchall()[-1][0] == "n"
    assert db.execute(about).fetchall() == was
    run(db, "ALTER MATERIALIZED VIEW rp_sums DISABLE ROW LEVEL SECURITY")


def test_given_up(made: None, server: Server, kafka: Kafka, db: psycopg.Connection[Any]) -> None:
    """TERMINATE QUERY of the new one while it fills its table; a statement that fails leaves nothing."""
    within(90, lambda: len(keeper(db)) == 1)
    (was,), rule = keeper(db), db.execute(READ).fetchone()
    with pytest.raises(psycopg.Error):
        run(db, "CREATE OR REPLACE MATERIALIZED VIEW rp_sums AS SELECT a AS k, sum(x) AS total FROM rp_in GROUP BY a")
    with superuser(server) as su, su.transaction():
        # The old query's place is held, so nothing is exchanged.
        su.execute("SELECT FROM pg_pgstream.ledger WHERE query = %s FOR UPDATE", [was])
        (query,) = run(db, f"CREATE OR REPLACE MATERIALIZED VIEW {balances('five', ', count(*) AS n')}")
        assert left_over(server) != []
        said = {row[0]: row[9] for row in db.execute("LIST QUERIES").fetchall()}[query]
        assert said.startswith("replaces the query that keeps main.public.rp_sums: "), said
        db.execute(f"TERMINATE QUERY {query}".encode())
        within(180, lambda: facts(db, query)["state"] == "terminated")
    within(90, lambda: left_over(server) == [])
    assert keeper(db) == [was] and db.execute(READ).fetchone() == rule


def test_checked(made: None, server: Server, kafka: Kafka, db: psycopg.Connection[Any]) -> None:
    """A view that is right has no rows that differ, while records come and readers read; what somebody's hand has done
    to its rows is told row by row. Nothing is left of a check, of one that was canceled neither.
    """
    within(90, lambda: len(keeper(db)) == 1 and facts(db, keeper(db)[0])["state"] == "running")
    notices: list[str] = []
    db.add_notice_handler(lambda d: notices.append(d.message_primary or ""))
    over = threading.Event()

    def write() -> None:
        for turn in range(2000):
            if over.wait(0.1):
                return
            move(kafka, 6000 + turn * 20, 6020 + turn * 20)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        with Readers(server) as readers:
            found = db.execute("CHECK MATERIALIZED VIEW rp_sums")
            assert found.fetchall() == [] and found.statusmessage == "CHECK 0"
        assert readers.wrong == [] and readers.reads > 0
        assert [d.name for d in found.description or ()] == ["Difference", "Key", "View", "Computed"]
        assert 'materialized view "main.public.rp_sums" is right: its 20 rows are what ' in notices[-1]
        with server.connect() as other, superuser(server) as su:
            gone: list[str | None] = []

            def check() -> None:
                try:
                    other.execute("CHECK MATERIALIZED VIEW main.public.rp_sums LIMIT 5")
                except psycopg.Error as e:
                    gone.append(e.sqlstate)

            checking = threading.Thread(target=check, daemon=True)
            checking.start()
            within(60, lambda: left_over(server) != [])
            other.cancel_safe()
            checking.join(60)
            assert gone == ["57014"]
            within(30, lambda: left_over(server) == [])
            queries = su.execute("SELECT query::text FROM pg_pgstream.ledger WHERE sink = ''").fetchall()
            assert queries == [], queries
    finally:
        over.set()
        writer.join(30)
    parts = {TopicPartition("rp", p): OffsetSpec.latest() for p in (0, 1)}
    ends = {p.partition: found.result(30).offset for p, found in kafka.admin.list_offsets(parts).items()}
    positions = ",".join(f"rp:{p}:{end - 1}" for p, end in ends.items())
    db.execute("SELECT pgstream_wait_for('rp_sums', %s, '90 s')", [positions])
    with superuser(server) as su:
        right = su.execute("SELECT * FROM public.rp_sums WHERE k IN (1, 5) ORDER BY k").fetchall()
        su.execute("DELETE FROM public.rp_sums WHERE k = 1")
        su.execute("UPDATE public.rp_sums SET total = 77 WHERE k = 5")
        su.execute("INSERT INTO public.rp_sums (k, total) VALUES (999, 1)")
        rows = db.execute("CHECK MATERIALIZED VIEW rp_sums").fetchall()
        told = [(kind, *(json.loads(text) if text else None for text in rest)) for kind, *rest in rows]
        names = [c.name for c in su.execute("SELECT * FROM public.rp_sums LIMIT 0").description or ()]
        (one, five), nothing = (dict(zip(names, row, strict=True)) for row in right), dict.fromkeys(names)
        assert told == [
            ("different", {"k": 5}, five | {"total": 77}, five),
            ("missing", {"k": 1}, None, one),
            ("unexpected", {"k": 999}, nothing | {"k": 999, "total": 1}, None),
        ]
        assert "differs in 3 rows: 1 missing, 1 unexpected, 1 different" in notices[-1]
        few = db.execute("CHECK MATERIALIZED VIEW rp_sums LIMIT 1")
        assert [kind for kind, *_ in few.fetchall()] == ["different"] and "differs in 3 rows" in notices[-1]
        # Right again, by hand: what is not touched by a REPAIR is the next test's.
        su.execute("DELETE FROM public.rp_sums WHERE k IN (5, 999)")
        for row in right:
            su.execute(f"INSERT INTO public.rp_sums VALUES ({', '.join(['%s'] * len(row))})".encode(), row)
    assert db.execute("CHECK MATERIALIZED VIEW rp_sums").fetchall() == []
    assert notices[-1].endswith(f"is right: its 20 rows are what {sum(ends.values())} records give")
    assert left_over(server) == []


def test_repaired(made: None, server: Server, kafka: Kafka, db: psycopg.Connection[Any]) -> None:
    """What somebody's hand has done to the rows is put right; what is right is not touched."""
    within(90, lambda: len(keeper(db)) == 1)
    rows = "SELECT * FROM rp_sums ORDER BY k"
    right = db.execute(rows).fetchall()
    with superuser(server) as su:
        su.execute("DELETE FROM public.rp_sums WHERE k < 3")
        su.execute("UPDATE public.rp_sums SET total = 77 WHERE k = 5")
        su.execute("INSERT INTO public.rp_sums (k, total) VALUES (999, 1)")
        kept = su.execute("SELECT ctid, xmin FROM public.rp_sums WHERE k = 6").fetchone()
        assert db.execute(rows).fetchall() != right
        (query,) = run(db, "REPAIR MATERIALIZED VIEW rp_sums")
        within(180, lambda: db.execute(rows).fetchall() == right)
        assert su.execute("SELECT ctid, xmin FROM public.rp_sums WHERE k = 6").fetchone() == kept
    within(90, lambda: keeper(db) == [query])
    run(db, "CREATE STREAM rp_new (a BIGINT) WITH ('store' = rp, 'topic' = 'rp', 'value.format' = 'json');\n"
            "CREATE MATERIALIZED VIEW rp_late AS SELECT a FROM rp_new")  # fmt: skip
    for what, code in (("rp_late", "55000"), ("rp_in", "42809"), ("nowhere", "42P01")):
        for word, at in (("REPAIR", "26"), ("CHECK", "25")):
            with pytest.raises(psycopg.Error) as e:
                db.execute(f"{word} MATERIALIZED VIEW {what}".encode())
            assert (e.value.sqlstate, e.value.diag.statement_position) == (code, at), e.value
    # The first records are gone: what was made of them cannot be made again.
    for deleted in kafka.admin.delete_records([TopicPartition("rp", 0, 10)]).values():
        deleted.result(30)
    for what in ("REPAIR", "CHECK"):
        with pytest.raises(psycopg.Error) as e:
            db.execute(f"{what} MATERIALIZED VIEW rp_sums".encode())
        assert e.value.sqlstate == "55000" and "begins with record 10 now" in str(e.value)


def test_a_topic_that_was_made_anew(made: None, server: Server, kafka: Kafka, db: psycopg.Connection[Any]) -> None:
    """What the view was made of is gone: it cannot be repaired. A query that reads what is there now takes it over,
    though it never comes to where the old one was.
    """
    for n in (30, 10):
        kafka.topic("rp_anew", 1)
        kafka.produce("rp_anew", [(None, json.dumps({"a": i})) for i in range(n)])
        if n == 30:
            run(db, "CREATE STREAM rp_anew (a BIGINT) WITH ('store' = rp, 'topic' = 'rp_anew', 'value.format' = 'json',"
                    " 'starting.position' = 'earliest');\n"
                    "CREATE MATERIALIZED VIEW rp_count AS SELECT count(*) AS n FROM rp_anew")  # fmt: skip
            within(90, lambda: db.execute("SELECT n FROM rp_count").fetchall() == [(30,)])
            for deleted in kafka.admin.delete_topics(["rp_anew"]).values():
                deleted.result(30)
            within(30, lambda: "rp_anew" not in kafka.admin.list_topics(timeout=10).topics)
    with pytest.raises(psycopg.Error) as e:
        db.execute("REPAIR MATERIALIZED VIEW rp_count")
    assert e.value.sqlstate == "55000" and "ends before record 10 now, its query had read those before 30" in str(
        e.value
    )
    run(db, "CREATE OR REPLACE MATERIALIZED VIEW rp_count AS SELECT count(*) AS n FROM rp_anew")
    within(120, lambda: db.execute("SELECT n FROM rp_count").fetchall() == [(10,)])


def test_records_that_go_before_a_repair_has_read_them(
    made: None, server: Server, kafka: Kafka, db: psycopg.Connection[Any]
) -> None:
    """They were there when it was asked for; the view is not made of the rest."""
    kafka.topic("rp_going", 1)
    kafka.produce("rp_going", [(None, json.dumps({"a": i})) for i in range(30)])
    run(db, "CREATE STREAM rp_going (a BIGINT) WITH ('store' = rp, 'topic' = 'rp_going', 'value.format' = 'json',"
            " 'starting.position' = 'earliest');\n"
            "CREATE MATERIALIZED VIEW rp_left AS SELECT count(*) AS n FROM rp_going")  # fmt: skip
    within(90, lambda: db.execute("SELECT n FROM rp_left").fetchall() == [(30,)])
    repair = "REPAIR MATERIALIZED VIEW rp_left"
    (first,) = run(db, repair)
    within(90, lambda: left_over(server) == [] and facts(db, first)["state"] == "running")
    second = list[str]()
    with server.connect() as other:
        asking = threading.Thread(target=lambda: second.extend(run(other, repair)), daemon=True)
        worker = worker_of(server)
        worker.suspend()
        try:
            asking.start()
            within(30, lambda: left_over(server) != [])
            for deleted in kafka.admin.delete_records([TopicPartition("rp_going", 0, 10)]).values():
                deleted.result(30)
        finally:
            worker.resume()
        asking.join(60)
    within(90, lambda: facts(db, second[0])["state"] == "errored")
    said = {row[0]: row[9] for row in db.execute("LIST QUERIES").fetchall()}[second[0]]
    assert said.startswith("the topic no longer holds records that the query has not read yet"), said
    assert db.execute("SELECT n FROM rp_left").fetchall() == [(30,)]
    run(db, f"TERMINATE QUERY {second[0]}")
    within(90, lambda: left_over(server) == [])


@pytest.mark.timeout(600)
def test_killed_in_the_middle(kafka: Kafka, workspace: Path) -> None:
    """kill -9 of the worker, then of the server, while the new query is on its way: the view is old or new, whole, and
    new in the end."""
    name, folder = "rp_killed", workspace / "rp_killed"
    kafka.topic(name, 2)
    move(kafka, 0, 500, name)
    server = Server(folder)
    try:
        with server.connect() as db:
            run(db, SETUP.format(bootstrap=kafka.bootstrap, topic=name))
            within(120, lambda: whole(db, "one"))
            run(db, f"CREATE OR REPLACE MATERIALIZED VIEW {balances('two')}")
            worker_of(server).kill()
            row = db.execute(READ).fetchone()
            assert row in ((20, 0, ["one"]), (20, 0, ["two"])), row
            within(180, lambda: whole(db, "two"))
            within(180, lambda: len(keeper(db)) == 1)
            (query,) = run(db, f"CREATE OR REPLACE MATERIALIZED VIEW {balances('three')}")
        server.kill()
        server = Server(folder)
        with server.connect() as db:
            row = db.execute(READ).fetchone()
            assert row in ((20, 0, ["two"]), (20, 0, ["three"])), row
            within(180, lambda: whole(db, "three"))
            within(180, lambda: keeper(db) == [query])
            total = "SELECT sum(abs(total)) FROM rp_sums"
            before = db.execute(total).fetchone()
            move(kafka, 500, 600, name)
            within(180, lambda: db.execute(total).fetchone() != before and whole(db, "three"))
            within(90, lambda: left_over(server) == [])
    finally:
        assert server.stop() == 0
