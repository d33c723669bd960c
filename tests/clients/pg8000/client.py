"""pg8000, a driver without libpq: its native interface, DB-API, COPY, prepared statements, SCRAM, notifications."""

from __future__ import annotations

import datetime as dt
import io
import os
import sys
import uuid
from collections.abc import Callable
from decimal import Decimal

import pg8000.dbapi
import pg8000.native
from pg8000.native import Connection

VALUES = (
    7, 2**63 - 1, 1.5, Decimal("12.340"), "zö\U0001f40d '\"\\", True, dt.date(2024, 2, 29),
    dt.datetime(2024, 1, 2, 3, 4, 5, 678000, dt.UTC), dt.timedelta(days=1, seconds=2), b"\0\xff\\",
    uuid.UUID("6f9619ff-8b86-d011-b42d-00c04fc964ff"), '{"a": [1, null]}', [1, None, 3], None,
)  # fmt: skip
CASTS = "int2 int8 float8 numeric text bool date timestamptz interval bytea uuid jsonb int[] text"
e = os.environ
ADDRESS = {"host": e["PGHOST"], "port": int(e["PGPORT"]), "database": e["PGDATABASE"], "user": e["PGUSER"]}


def connect(password: str = e["PGPASSWORD"]) -> Connection:
    return Connection(password=password, **ADDRESS)


def say(name: str, *values: object) -> None:
    sys.stdout.write(f"{name}: {' | '.join(str(v) for v in values)}\n")


def failing(do: Callable[[], object]) -> tuple[object, ...]:
    try:
        do()
    except (pg8000.native.DatabaseError, pg8000.dbapi.DatabaseError) as error:
        fields = error.args[0]
        return type(error).__name__, *[fields.get(k) for k in ("S", "C", "M", "P", "n")]
    raise AssertionError("no error")


def types(c: Connection) -> None:
    names = [f"p{n}" for n in range(len(VALUES))]
    casts = zip(names, CASTS.split(), strict=True)
    text = "SELECT " + ", ".join(f"CAST(:{name} AS {cast})" for name, cast in casts)
    for _ in range(2):
        say("types", *c.run(text, **dict(zip(names, VALUES, strict=True)))[0])
    prepared = c.prepare("SELECT CAST(:n AS int) + 1 AS n")
    say("prepared", prepared.run(n=41), prepared.run(n=1), [(d["name"], d["type_oid"]) for d in prepared.columns])
    prepared.close()


def transactions(c: Connection) -> None:
    c.run("CREATE TEMPORARY TABLE t (id int CONSTRAINT only_one PRIMARY KEY, name text)")
    c.run("START TRANSACTION")
    c.run("INSERT INTO t VALUES (:id, :name)", id=1, name="one")
    say("error", *failing(lambda: c.run("SELECT 1 / CAST(:n AS int)", n=0)))
    say("failed block", *failing(lambda: c.run("SELECT 1")))
    c.run("ROLLBACK")
    c.run("INSERT INTO t VALUES (1)")
    say("violation", *failing(lambda: c.run("INSERT INTO t VALUES (1)")))
    say("syntax", *failing(lambda: c.run("SELECT * FORM t")))
    say("several", c.run("SELECT 1; SELECT 2"), c.row_count)


def copies(c: Connection) -> None:
    c.run("COPY t FROM STDIN", stream=io.BytesIO("2\tzwö\n3\t\\N\n".encode()))
    out = io.BytesIO()
    c.run("COPY (SELECT * FROM t ORDER BY id) TO STDOUT WITH CSV", stream=out)
    say("copied", c.row_count, out.getvalue().decode().splitlines())
    say("bad copy", *failing(lambda: c.run("COPY t FROM STDIN", stream=io.BytesIO(b"x\ty\n"))))


def messages(c: Connection) -> None:
    c.run("DO $$ BEGIN RAISE NOTICE 'hear this'; END $$")
    say("notice", c.notices[-1][b"M"].decode())
    c.run("LISTEN news")
    other = connect()
    other.run("SELECT pg_notify('news', 'hello')")
    while not c.notifications:
        c.run("SELECT 1")
    say("notification", *c.notifications[0][1:])
    c.run("SET application_name = 'me'")
    say("parameters", c.parameter_statuses["application_name"], c.parameter_statuses["server_encoding"])
    other.close()


def dbapi() -> None:
    c = pg8000.dbapi.connect(password=e["PGPASSWORD"], **ADDRESS)
    cursor = c.cursor()
    cursor.execute("CREATE TEMPORARY TABLE t (id int)")
    cursor.executemany("INSERT INTO t VALUES (%s)", [(n,) for n in range(100)])
    c.commit()
    cursor.execute("SELECT id FROM t WHERE id < %s ORDER BY id", (3,))
    say("dbapi", cursor.description[0][:2], cursor.fetchall(), cursor.rowcount)
    say("dbapi error", *failing(lambda: cursor.execute("SELECT nope")))
    c.rollback()
    say("two-phase", *failing(lambda: _prepare(c)))
    c.close()


def _prepare(c: pg8000.dbapi.Connection) -> None:
    c.tpc_begin(c.xid(1, "g", "b"))
    c.cursor().execute("SELECT 1")
    c.tpc_prepare()


def ours(c: Connection) -> None:
    for _ in range(2):
        rows = c.run("LIST STORES")
        at = [d["name"] for d in c.columns].index("Type")
        say("stores", [(r[0], r[at]) for r in rows if r[0] == "of_languages"])
    c.run(
        "CREATE STREAM of_pg8000 (n BIGINT, userid VARCHAR) "
        "WITH ('store' = of_languages, 'topic' = 'of_languages', 'value.format' = 'json')"
    )
    text = "SELECT n, userid FROM of_pg8000 WITH ('starting.position' = 'earliest') WHERE n > {} LIMIT 2"
    say("simple", c.run(text.format(0)))
    say("bound", c.run(text.format("CAST(:n AS bigint)"), n=1))
    c.run("DROP STREAM of_pg8000")
    say("view", c.run("SELECT * FROM of_languages_counts ORDER BY userid"))
    say("missing", *failing(lambda: c.run("DROP STORE nope")))


def main() -> None:
    c = connect()
    say("session", *c.run("SELECT current_user, current_database()")[0])
    for part in (types, transactions, copies, messages):
        part(c)
    dbapi()
    say("wrong password", *failing(lambda: connect("wrong")))
    if e["TARGET"] == "pgstream":
        sys.stdout.write("== pgstream\n")
        ours(c)


if __name__ == "__main__":
    main()
