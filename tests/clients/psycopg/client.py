"""psycopg 3: text and binary, prepared by itself, pipelines, COPY, server cursors, notifications, cancel, async."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import sys
import threading
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import class_row, dict_row
from psycopg.types.json import Jsonb

Connection = psycopg.Connection[Any]
VALUES = (
    7, 2**63 - 1, 1.5, Decimal("12.340"), "zö\U0001f40d '\"\\", True, dt.date(2024, 2, 29), dt.time(1, 2, 3),
    dt.datetime(2024, 1, 2, 3, 4, 5, 678000, dt.UTC), dt.timedelta(days=1, seconds=2), b"\0\xff\\",
    uuid.UUID("6f9619ff-8b86-d011-b42d-00c04fc964ff"), Jsonb({"a": [1, None]}), [1, None, 3], None,
)  # fmt: skip
CASTS = "int2 int8 float8 numeric text bool date time timestamptz interval bytea uuid jsonb int[] text"


def say(name: str, *values: object) -> None:
    sys.stdout.write(f"{name}: {' | '.join(str(v) for v in values)}\n")


def failing(do: Callable[[], object]) -> tuple[object, ...]:
    try:
        do()
    except psycopg.Error as e:
        return type(e).__name__, e.sqlstate, e.diag.message_primary, e.diag.statement_position
    raise AssertionError("no error")


def types(c: Connection) -> None:
    text = "SELECT " + ", ".join(f"%s::{cast}" for cast in CASTS.split())
    for binary in (False, True):
        for _ in range(7):  # the sixth time it is prepared
            row = c.execute(text, VALUES, binary=binary).fetchone()
        say("types", *row)
    cursor = c.execute("SELECT 1::int2 a, 'x'::varchar(3) b, 1.5::numeric(4,2) c")
    say("described", *[f"{d.name}:{d.type_code}:{d.precision}:{d.internal_size}" for d in cursor.description])
    say("server side", c.execute("SELECT %b + %b", (20, 22)).fetchone(), psycopg.ClientCursor(c).mogrify("%s", ["a'b"]))


def transactions(c: Connection) -> None:
    c.execute("CREATE TEMPORARY TABLE t (id int CONSTRAINT only_one PRIMARY KEY, name text)")
    with c.transaction():
        c.execute("INSERT INTO t VALUES (1, 'one')")
        try:
            with c.transaction():
                c.execute("SELECT 1 / 0")
        except psycopg.errors.DivisionByZero as e:
            say("error", e.diag.severity, e.sqlstate, c.info.transaction_status.name)
    say("violation", *failing(lambda: c.execute("INSERT INTO t VALUES (1)")))
    say("syntax", *failing(lambda: c.execute("SELECT * FORM t")))
    with c.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO t VALUES (%s, %s) RETURNING id", [(n, "x") for n in range(2, 5)], returning=True
        )
        say("many", [s.fetchall() for s in cursor.results()])
    c.execute("SELECT 1; SELECT 2")
    say("two-phase", *failing(lambda: c.execute("BEGIN; SELECT 1; PREPARE TRANSACTION 'x'")))


def pipeline(c: Connection) -> None:
    with c.pipeline():
        both = c.execute("SELECT 1"), c.execute("SELECT %s::text", ["two"])
        say("pipeline", *[one.fetchone() for one in both])
    say("aborted", *failing(lambda: _aborted(c)))
    say("after it", c.execute("SELECT count(*) FROM t").fetchone())


def _aborted(c: Connection) -> None:
    """One implicit transaction: the row goes too."""
    with c.pipeline():
        c.execute("INSERT INTO t VALUES (5, 'five')")
        c.execute("SELECT 1 / %s", [0])
        c.execute("SELECT 3")


def copies(c: Connection) -> None:
    with c.cursor() as cursor:
        for form in ("TEXT", "BINARY"):
            cursor.execute("TRUNCATE t")
            with cursor.copy(f"COPY t FROM STDIN (FORMAT {form})") as copy:
                copy.set_types(["int4", "text"])
                for n in range(1000):
                    copy.write_row((n, "zö" if n % 2 else None))
            with cursor.copy(f"COPY (SELECT * FROM t ORDER BY id) TO STDOUT (FORMAT {form})") as copy:
                copy.set_types(["int4", "text"])
                rows = list(copy.rows())
            say("copied", cursor.statusmessage, len(rows), rows[:2])
    say("bad copy", *failing(lambda: _bad_copy(c)))


def _bad_copy(c: Connection) -> None:
    with c.cursor().copy("COPY t FROM STDIN") as copy:
        copy.write("x\ty\n")


def cursors(c: Connection) -> None:
    with c.transaction(), c.cursor("s", scrollable=True) as cursor:
        cursor.execute("SELECT n FROM generate_series(1, %s) n", [1000])
        cursor.itersize = 100
        say("server cursor", sum(n for (n,) in cursor))
        cursor.scroll(10, mode="absolute")
        say("scrolled", cursor.fetchone(), cursor.fetchmany(2))
    with c.cursor("held", withhold=True) as cursor:
        say("held", cursor.execute("SELECT 1 UNION ALL SELECT 2").fetchall())
    say("stream", sum(n for (n,) in c.cursor().stream("SELECT n FROM generate_series(1, 100) n", size=10)))
    say("row", c.cursor(row_factory=dict_row).execute("SELECT 1 a, 2 b").fetchone())
    say("class", c.cursor(row_factory=class_row(dict)).execute("SELECT 1 a").fetchone())
    name = sql.Identifier('odd "name')
    say("composed", c.execute(sql.SQL("SELECT 1 AS {}").format(name)).description[0].name)


def messages(c: Connection) -> None:
    heard: list[str] = []
    c.add_notice_handler(lambda d: heard.append(f"{d.severity} {d.message_primary} {d.message_hint}"))
    c.execute("DO $$ BEGIN RAISE NOTICE 'hear this' USING HINT = 'listen'; END $$")
    say("notice", *heard)
    c.execute("LISTEN news")
    with psycopg.connect("", autocommit=True) as other:
        other.execute("SELECT pg_notify('news', 'hello')")
    say("notification", *[(n.channel, n.payload) for n in c.notifies(stop_after=1)])
    c.execute("SET application_name = 'me'; SET TimeZone = 'Asia/Tokyo'; SET DateStyle = 'SQL, DMY'")
    say("parameters", *[c.info.parameter_status(p) for p in ("application_name", "TimeZone", "DateStyle")])
    c.execute("RESET ALL")


def cancel(c: Connection) -> None:
    def stop() -> None:
        asleep = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND state = 'active'"
        with psycopg.connect("", autocommit=True) as other:
            while other.execute(asleep).fetchone() == (0,):
                pass
        c.cancel_safe()

    thread = threading.Thread(target=stop)
    thread.start()
    say("cancelled", *failing(lambda: c.execute("SELECT pg_sleep(60)")))
    thread.join()
    say("after it", c.execute("SELECT 1").fetchone())


async def asynchronous() -> None:
    async with await psycopg.AsyncConnection.connect("", autocommit=True) as c:
        rows = [r async for r in await c.execute("SELECT n FROM generate_series(1, 3) n")]
        say("async", rows, await (await c.execute("SELECT %s::text", ["x"])).fetchone())


def ours(c: Connection) -> None:
    for binary in (False, True):
        rows = c.cursor(row_factory=dict_row, binary=binary).execute("LIST STORES", prepare=True).fetchall()
        say("stores", [(r["Name"], r["Type"]) for r in rows if r["Name"] == "of_languages"])
    stream = (
        "CREATE STREAM of_psycopg (n BIGINT, userid VARCHAR) WITH ('store' = of_languages, 'topic' = 'of_languages', "
    )
    say("created", c.execute(stream + "'value.format' = 'json')").statusmessage)
    text = "SELECT n, userid FROM of_psycopg WITH ('starting.position' = 'earliest') WHERE n > %s LIMIT 2"
    for binary in (False, True):
        say("rows", c.execute(text, [0], binary=binary).fetchall())
    say("stream", list(c.cursor().stream(text, [1])))
    with c.transaction(), c.cursor("of_ours") as cursor:
        say("view by a server cursor", cursor.execute("SELECT * FROM of_languages_counts ORDER BY userid").fetchall())
    with c.pipeline():
        first, second = c.execute("SELECT 1"), c.execute("DROP STREAM of_psycopg")
        say("in a pipeline", first.fetchone(), second.statusmessage)
    say("missing", *failing(lambda: c.execute("DROP STORE nope")))


def main() -> None:
    with psycopg.connect("", autocommit=True) as c:
        say("session", *c.execute("SELECT current_user, current_database()").fetchone())
        for part in (types, transactions, pipeline, copies, cursors, messages, cancel):
            part(c)
        asyncio.run(asynchronous())
        try:
            psycopg.connect(password="wrong")
        except psycopg.OperationalError as e:
            say("wrong password", str(e).rpartition("FATAL:")[2].strip())
        if os.environ["TARGET"] == "pgstream":
            sys.stdout.write("== pgstream\n")
            ours(c)


if __name__ == "__main__":
    main()
