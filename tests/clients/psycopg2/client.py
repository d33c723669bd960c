"""psycopg2: adapters, named cursors, execute_values, COPY, isolation levels, notifications, callbacks, asynchronous."""

from __future__ import annotations

import datetime as dt
import io
import os
import select
import sys
import threading
import uuid
from collections.abc import Callable
from decimal import Decimal

import psycopg2
from psycopg2 import errorcodes, extensions, extras

extras.register_uuid()
Connection = extensions.connection
VALUES = (
    7, 2**63 - 1, 1.5, Decimal("12.340"), "zö\U0001f40d '\"\\", True, dt.date(2024, 2, 29),
    dt.datetime(2024, 1, 2, 3, 4, 5, 678000, dt.UTC), dt.timedelta(days=1, seconds=2), b"\0\xff\\",
    uuid.UUID("6f9619ff-8b86-d011-b42d-00c04fc964ff"), extras.Json({"a": [1, None]}), [1, None, 3], None,
)  # fmt: skip
CASTS = "int2 int8 float8 numeric text bool date timestamptz interval bytea uuid jsonb int[] text"


def say(name: str, *values: object) -> None:
    sys.stdout.write(f"{name}: {' | '.join(str(v) for v in values)}\n")


def failing(do: Callable[[], object]) -> tuple[object, ...]:
    try:
        do()
    except psycopg2.Error as e:
        return type(e).__name__, e.pgcode and errorcodes.lookup(e.pgcode), e.diag.message_primary
    raise AssertionError("no error")


def types(c: Connection) -> None:
    cursor = c.cursor()
    cursor.execute("SELECT " + ", ".join(f"%s::{cast}" for cast in CASTS.split()), VALUES)
    row = cursor.fetchone()
    say("types", *[bytes(v) if isinstance(v, memoryview) else v for v in row])
    say("described", *[f"{d.name}:{d.type_code}:{d.internal_size}" for d in cursor.description])
    cursor.execute("SELECT '[1,5)'::int4range, ROW(1, 'x')::text, '{\"b\": 2}'::json")
    say("more types", *cursor.fetchone())
    with c.cursor(cursor_factory=extras.RealDictCursor) as named:
        named.execute("SELECT 1 AS a, 2 AS b")
        say("named", dict(named.fetchone()))


def transactions(c: Connection) -> None:
    cursor = c.cursor()
    cursor.execute("CREATE TEMPORARY TABLE t (id int CONSTRAINT only_one PRIMARY KEY, name text)")
    c.commit()
    c.set_session(isolation_level="SERIALIZABLE", readonly=True)
    cursor.execute("SHOW transaction_isolation")
    say("session", cursor.fetchone(), c.status, c.get_transaction_status())
    c.rollback()
    c.set_session(isolation_level="READ COMMITTED", readonly=False)
    with c, c.cursor() as inner:
        inner.execute("INSERT INTO t VALUES (1, 'one')")
    say("error", *failing(lambda: cursor.execute("SELECT 1 / %s", [0])))
    say("failed block", *failing(lambda: cursor.execute("SELECT 1")), c.get_transaction_status())
    c.rollback()
    say("violation", *failing(lambda: cursor.execute("INSERT INTO t VALUES (1)")))
    c.rollback()
    extras.execute_values(cursor, "INSERT INTO t VALUES %s RETURNING id", [(n, "x") for n in range(2, 300)])
    say("values", cursor.rowcount, cursor.fetchone())
    extras.execute_batch(cursor, "UPDATE t SET name = %s WHERE id = %s", [("y", n) for n in range(2, 50)])
    cursor.execute("SELECT count(*) FROM t WHERE name = 'y'")
    say("batch", cursor.fetchone())
    say("two-phase", *failing(lambda: _prepare(c)))


def _prepare(c: Connection) -> None:
    c.rollback()
    c.tpc_begin(c.xid(1, "g", "b"))
    c.cursor().execute("SELECT 1")
    try:
        c.tpc_prepare()
    finally:
        c.tpc_rollback()


def copies(c: Connection) -> None:
    cursor = c.cursor()
    cursor.execute("TRUNCATE t")
    cursor.copy_from(io.StringIO("1\tone\n2\t\\N\n"), "t")
    out = io.StringIO()
    cursor.copy_expert("COPY t TO STDOUT WITH CSV HEADER", out)
    say("copied", cursor.rowcount, repr(out.getvalue()))
    say("bad copy", *failing(lambda: cursor.copy_from(io.StringIO("x\ty\n"), "t")))
    c.rollback()


def cursors(c: Connection) -> None:
    with c.cursor("s", scrollable=True) as cursor:
        cursor.itersize = 100
        cursor.execute("SELECT n FROM generate_series(1, %s) n", [1000])
        say("server cursor", sum(n for (n,) in cursor))
        cursor.scroll(10, mode="absolute")
        say("scrolled", cursor.fetchone())
    c.commit()
    with c.cursor("held", withhold=True) as cursor:
        cursor.execute("SELECT 1 UNION ALL SELECT 2")
        c.commit()
        say("held", cursor.fetchall())
    c.commit()


def messages(c: Connection) -> None:
    c.autocommit = True
    cursor = c.cursor()
    cursor.execute("DO $$ BEGIN RAISE NOTICE 'hear this'; END $$; LISTEN news")
    say("notice", *[n.strip() for n in c.notices[-1:]])
    other = psycopg2.connect("")
    other.autocommit = True
    other.cursor().execute("SELECT pg_notify('news', 'hello')")
    while not c.notifies:
        select.select([c], [], [], 10)
        c.poll()
    say("notification", c.notifies[0].channel, c.notifies[0].payload, c.notifies[0].pid == other.info.backend_pid)
    cursor.execute("SET TimeZone = 'Asia/Tokyo'")
    say("parameters", c.get_parameter_status("TimeZone"), c.encoding, c.info.server_version // 10000)
    cursor.execute("RESET ALL")


def cancel(c: Connection) -> None:
    def stop() -> None:
        other = psycopg2.connect("")
        other.autocommit = True
        cursor = other.cursor()
        asleep = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND wait_event = 'PgSleep'"
        cursor.execute(asleep)
        while cursor.fetchone() == (0,):
            cursor.execute(asleep)
        c.cancel()

    thread = threading.Thread(target=stop)
    thread.start()
    say("cancelled", *failing(lambda: c.cursor().execute("SELECT pg_sleep(60)")))
    thread.join()


def wait(c: Connection) -> None:
    while (state := c.poll()) != extensions.POLL_OK:
        select.select([c] * (state == extensions.POLL_READ), [c] * (state == extensions.POLL_WRITE), [], 10)


def asynchronous() -> None:
    c = psycopg2.connect("", async_=True)
    wait(c)
    cursor = c.cursor()
    cursor.execute("SELECT %s || 'b'", ["a"])
    wait(c)
    say("async", cursor.fetchone())
    c.close()


def ours(c: Connection) -> None:
    cursor = c.cursor(cursor_factory=extras.NamedTupleCursor)
    cursor.execute("LIST STORES")
    say("stores", [(r.Name, r.Type) for r in cursor if r.Name == "of_languages"])
    cursor.execute(
        "CREATE STREAM of_psycopg2 (n BIGINT, userid VARCHAR) "
        "WITH ('store' = of_languages, 'topic' = 'of_languages', 'value.format' = 'json')"
    )
    say("created", cursor.statusmessage, cursor.rowcount)
    text = "SELECT n, userid FROM of_psycopg2 WITH ('starting.position' = 'earliest') WHERE userid <> %s LIMIT 2"
    cursor.execute(text, ["it's"])
    say("rows", [tuple(r) for r in cursor])
    cursor.execute("DROP STREAM of_psycopg2; SELECT * FROM of_languages_counts ORDER BY userid")
    say("view", [tuple(r) for r in cursor])
    say("missing", *failing(lambda: cursor.execute("DROP STORE nope")))


def main() -> None:
    c = psycopg2.connect("")
    with c.cursor() as cursor:
        cursor.execute("SELECT current_user, current_database()")
        say("session", *cursor.fetchone())
    for part in (types, transactions, copies, cursors, messages, cancel):
        part(c)
    asynchronous()
    try:
        psycopg2.connect(password="wrong")
    except psycopg2.OperationalError as e:
        say("wrong password", str(e).rpartition("FATAL:")[2].strip())
    if os.environ["TARGET"] == "pgstream":
        sys.stdout.write("== pgstream\n")
        ours(c)


if __name__ == "__main__":
    main()
