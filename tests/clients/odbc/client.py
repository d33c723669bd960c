"""psqlODBC by pyodbc: typed parameters, batches, several results, transactions, SQLTables and SQLColumns, cancel."""

from __future__ import annotations

import datetime as dt
import decimal
import os
import sys
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pyodbc

PLACES = [Path("/usr/lib"), *Path("/usr/lib").glob("*-linux-gnu"), Path("/usr/lib64"), Path("/opt/homebrew/lib")]


def driver() -> str:
    """The driver's library, wherever the system's package put it."""
    found = [str(f) for p in PLACES for f in (p / "odbc" / "psqlodbcw.so", p / "psqlodbcw.so") if f.exists()]
    return found[0]


def connect(password: str | None = None, **options: object) -> pyodbc.Connection:
    e = os.environ
    settings = {
        "Driver": driver(),
        "Server": e["PGHOST"],
        "Port": e["PGPORT"],
        "Database": e["PGDATABASE"],
        "Uid": e["PGUSER"],
    }
    settings |= {"Pwd": password or e["PGPASSWORD"], "BoolsAsChar": "0"} | options
    return pyodbc.connect(";".join(f"{k}={v}" for k, v in settings.items()), autocommit=True)


def say(name: str, *values: object) -> None:
    sys.stdout.write(f"{name}: {' | '.join(str(v) for v in values)}\n")


def failing(do: Callable[[], object]) -> str:
    try:
        do()
    except pyodbc.Error as e:
        return str(e.args[0])
    raise AssertionError("no error")


def types(c: pyodbc.Connection) -> None:
    given = (
        7,
        9223372036854775807,
        1.5,
        decimal.Decimal("12.340"),
        "zö\U0001f40d '\"\\",
        True,
        dt.date(2024, 2, 29),
        dt.datetime(2024, 1, 2, 3, 4, 5, 678000),
        b"\0\xff\\",
        uuid.UUID("6f9619ff-8b86-d011-b42d-00c04fc964ff"),
        None,
    )
    casts = "int2 int8 float8 numeric(10,3) text bool date timestamp(3) bytea uuid text"
    text = "SELECT " + ", ".join(f"?::{c}" for c in casts.split())
    cursor = c.cursor()
    for _ in range(2):
        say("types", *cursor.execute(text, given).fetchone())
    described = cursor.execute("SELECT 1::int2 a, 'x'::text b, now() c, 1.5 d").description
    say("described", *[f"{d[0]}:{d[1].__name__}" for d in described])


def transactions(c: pyodbc.Connection) -> None:
    cursor = c.cursor()
    cursor.execute("CREATE TEMPORARY TABLE t (id int CONSTRAINT only_one PRIMARY KEY, name text)")
    c.autocommit = False
    cursor.execute("INSERT INTO t VALUES (?, ?)", 1, "one")
    c.rollback()
    say("rolled back", cursor.execute("SELECT count(*) FROM t").fetchval())
    say("error", failing(lambda: cursor.execute("SELECT 1 / ?", 0)))
    c.rollback()
    c.autocommit = True
    cursor.executemany("INSERT INTO t VALUES (?, ?)", [(n, f"n{n}") for n in range(10, 60)])
    say("batch", cursor.execute("SELECT sum(id) FROM t").fetchval())
    say("violation", failing(lambda: cursor.execute("INSERT INTO t VALUES (10)")))
    say("syntax", failing(lambda: cursor.execute("SELECT * FORM t")))
    cursor.execute("SELECT 1; SELECT 2, 3")
    say("several", cursor.fetchall(), cursor.nextset(), cursor.fetchall(), cursor.nextset())


def metadata(c: pyodbc.Connection, table: str) -> None:
    cursor = c.cursor()
    for row in cursor.columns(table=table, schema="public"):
        say("column", row.column_name, row.type_name, row.data_type, row.nullable, row.ordinal_position)
    for row in cursor.tables(table=table):
        say("table", row.table_schem, row.table_name, row.table_type, row.remarks)
    say("primary keys", [r.column_name for r in cursor.primaryKeys(table)])
    say("indexes", [r.index_name for r in cursor.statistics(table, schema="public") if r.index_name])


def cursors() -> None:
    c = connect(UseDeclareFetch=1, Fetch=100)
    c.autocommit = False
    cursor = c.cursor().execute("SELECT n FROM generate_series(1, 10000) n")
    say("declare and fetch", sum(n for (n,) in cursor))
    c.close()


def cancel(c: pyodbc.Connection) -> None:
    other = connect()
    cursor = c.cursor()

    def stop() -> None:
        asleep = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND state = 'active'"
        while not other.execute(asleep).fetchval():
            pass
        cursor.cancel()

    thread = threading.Thread(target=stop)
    thread.start()
    say("cancelled", failing(lambda: cursor.execute("SELECT pg_sleep(60)")))
    thread.join()
    say("after it", c.execute("SELECT 1").fetchval())


def ours(c: pyodbc.Connection) -> None:
    for _ in range(2):
        say("stores", [(r.Name, r.Type) for r in c.execute("LIST STORES") if r.Name == "of_languages"])
    say("missing", failing(lambda: c.execute("DROP STORE nope")))
    metadata(c, "of_languages_clicks")


def main() -> None:
    c = connect()
    say("session", *c.execute("SELECT current_user, current_database()").fetchone())
    types(c)
    transactions(c)
    c.execute("CREATE TABLE of_odbc (id int PRIMARY KEY, name varchar(20) NOT NULL, at timestamptz)")
    try:
        metadata(c, "of_odbc")
    finally:
        c.execute("DROP TABLE of_odbc")
    cursors()
    cancel(c)
    say("wrong password", failing(lambda: connect("wrong")))
    if os.environ["TARGET"] == "pgstream":
        sys.stdout.write("== pgstream\n")
        ours(c)


if __name__ == "__main__":
    main()
