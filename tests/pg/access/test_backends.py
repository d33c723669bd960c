"""One's own backends in pg_stat_activity, and ending them: as in PostgreSQL, whatever role a session works in."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import generators, pq

from tests.pg.door.whole import Whole, start
from tests.server import within

SHOWN = "SELECT query FROM pg_stat_activity WHERE pid = %s"
HIDDEN = "<insufficient privilege>"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    house = start(tmp_path_factory.mktemp("backends"))
    yield house
    house.stop()


@pytest.fixture
def two(house: Whole) -> Iterator[tuple[psycopg.Connection, psycopg.Connection]]:
    """Two sessions of mallory's."""
    with house.connect("mallory") as one, house.connect("mallory") as other:
        yield one, other


def pid(conn: psycopg.Connection) -> int:
    return conn.info.backend_pid


def test_what_is_seen(house: Whole, two) -> None:
    one, other = two
    other.execute("SELECT 'mine'")
    with house.connect("admin") as admin:
        admin.execute("SELECT 'hers'")
        assert one.execute(SHOWN, (pid(other),)).fetchone() == ("SELECT 'mine'",)
        assert one.execute(SHOWN, (pid(one),)).fetchone() != (HIDDEN,)
        assert one.execute(SHOWN, (pid(admin),)).fetchone() == (HIDDEN,)
        assert admin.execute(SHOWN, (pid(other),)).fetchone() == ("SELECT 'mine'",)  # sysadmin sees all
        count = "SELECT count(*) = count(DISTINCT pid) FROM pg_stat_activity"
        assert one.execute(count).fetchone() == admin.execute(count).fetchone() == (True,)


def test_the_view_is_postgresqls(house: Whole, two) -> None:
    columns = (
        "SELECT attname, atttypid::regtype::text FROM pg_attribute "
        "WHERE attrelid = 'pg_stat_activity'::regclass AND attnum > 0 ORDER BY attnum"
    )
    with psycopg.connect(house.postgres.url("postgres")) as before:
        assert two[0].execute(columns).fetchall() == before.execute(columns).fetchall()
    assert two[0].execute("SELECT usename, datname FROM pg_stat_activity WHERE pid = pg_backend_pid()").fetchall() == [
        ("mallory", "main")
    ]


def test_nobody_elses_by_another_way(house: Whole, two) -> None:
    """The function behind the view goes by the session's login, whoever calls it, and whatever shadows its names."""
    one, _ = two
    with house.connect("admin") as admin:
        one.execute("CREATE TABLE public.pg_roles AS SELECT 'admin'::name AS rolname, oid FROM pg_roles")
        one.execute("SET search_path = public, pg_catalog")
        for which in ("NULL", str(pid(admin))):
            seen = one.execute(f"SELECT DISTINCT usesysid::regrole::text FROM pgstream_own_activity({which})".encode())
            assert seen.fetchall() == ([("mallory",)] if which == "NULL" else [])
        one.execute("DROP TABLE public.pg_roles")


@pytest.mark.parametrize("prepare", [False, True])
@pytest.mark.parametrize("text", [
    "SELECT pg_terminate_backend({})", "select pg_catalog.pg_terminate_backend({}, 5000) AS done;",
])  # fmt: skip
def test_terminate(house: Whole, two, text: str, prepare: bool) -> None:
    one, other = two
    cur = one.execute(text.format(pid(other)).encode(), prepare=prepare)
    assert cur.fetchall() == [(True,)] and cur.statusmessage == "SELECT 1"
    assert [d.name for d in cur.description or ()] == ["done" if "done" in text else "pg_terminate_backend"]
    assert [d.type_code for d in cur.description or ()] == [16]
    within(20, lambda: one.execute(SHOWN, (pid(other),)).fetchone() is None)
    with pytest.raises(psycopg.OperationalError, match="terminating connection due to administrator command"):
        other.execute("SELECT 1")


def test_bound(two) -> None:
    one, other = two
    assert one.execute("SELECT pg_terminate_backend(%s)", (None,)).fetchone() == (None,)
    assert one.execute("SELECT pg_terminate_backend(%s, %b)", (pid(other), 1000)).fetchone() == (True,)


def test_cancel(two) -> None:
    one, other = two
    errors: list[type[BaseException]] = []

    def sleep() -> None:
        try:
            other.execute("SELECT pg_sleep(60)")
        except psycopg.Error as e:
            errors.append(type(e))

    sleeping = threading.Thread(target=sleep)
    sleeping.start()
    within(20, lambda: one.execute(SHOWN + " AND state = 'active'", (pid(other),)).fetchone())
    assert one.execute("SELECT pg_cancel_backend(%s)", (pid(other),)).fetchone() == (True,)
    sleeping.join(20)
    assert errors == [psycopg.errors.QueryCanceled]
    assert other.execute("SELECT 1").fetchone() == (1,)


def test_a_statement_that_cancels_itself_has_no_answer(two) -> None:
    """As in PostgreSQL: the error comes in its place, not behind it."""
    one, _ = two
    one.pgconn.send_query(f"SELECT pg_cancel_backend({pid(one)})".encode())
    results = one.wait(generators.execute(one.pgconn))
    assert [r.error_field(pq.DiagnosticField.SQLSTATE) for r in results] == [b"57014"]
    assert one.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("function", ["pg_terminate_backend", "pg_cancel_backend"])
def test_not_others(house: Whole, two, function: str) -> None:
    one, _ = two
    with house.connect("admin") as admin, house.superuser() as superuser:
        for target in (pid(admin), superuser.info.backend_pid):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                one.execute(f"SELECT {function}({target})".encode())
        assert admin.execute("SELECT 1").fetchone() == (1,) == superuser.execute("SELECT 1").fetchone()
    notices: list[str | None] = []
    one.add_notice_handler(lambda n: notices.append(n.message_primary))
    assert one.execute(f"SELECT {function}(999999999)".encode()).fetchone() == (False,)
    assert notices == ["PID 999999999 is not a PostgreSQL backend process"]


@pytest.mark.parametrize("prepare", [False, True])
@pytest.mark.parametrize("its", ["{}", "pg_backend_pid()", "pg_catalog . pg_backend_pid ( ), 100"])
def test_oneself(two, its: str, prepare: bool) -> None:
    """As in PostgreSQL: its last word comes in place of an answer. Behind one, libpq would take it for a notice."""
    one, _ = two
    text = f"SELECT pg_terminate_backend({its.format(pid(one))})".encode()
    with pytest.raises(psycopg.OperationalError, match="terminating connection due to administrator command"):
        one.execute(text, prepare=prepare)


def test_in_a_failed_block(two) -> None:
    one, other = two
    one.execute("BEGIN")
    with pytest.raises(psycopg.errors.DivisionByZero):
        one.execute("SELECT 1/0")
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        one.execute(f"SELECT pg_terminate_backend({pid(other)})".encode())
    one.execute("ROLLBACK")
    assert other.execute("SELECT 1").fetchone() == (1,)
