"""What changes of a relation that is there: its words in ``\\d+``, its indexes, its rows; and what is refused."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.pg.catalogues.conftest import Both

pytestmark = pytest.mark.pg
Connection = psycopg.Connection[Any]


@pytest.fixture
def db(both: Both) -> Any:
    with psycopg.connect(both.ours, autocommit=True) as c:
        yield c


def rows(c: Connection, text: str) -> list[tuple[Any, ...]]:
    return c.execute(text.encode()).fetchall()


def fault(c: Connection, text: str) -> tuple[str | None, int | None, str | None]:
    with pytest.raises(psycopg.Error) as e:
        c.execute(text.encode())
    at = e.value.diag.statement_position
    return e.value.sqlstate, int(at) if at else None, e.value.diag.message_primary


def comment(c: Connection, relation: str) -> Any:
    return rows(c, f"SELECT obj_description('{relation}'::regclass, 'pg_class')")[0][0]


def test_a_description_is_a_comment(db: Connection) -> None:
    told = rows(db, "ALTER RELATION views_per_user SET description = 'it''s \"views\" — of users'")
    assert told == [
        ("materialized_view", "main.public.views_per_user", "ALTER", "relation main.public.views_per_user was updated",
         '["main", "public", "views_per_user"]')
    ]  # fmt: skip
    assert comment(db, "views_per_user") == 'it\'s "views" — of users'
    for words in ("MATERIALIZED VIEW views_per_user", "STREAM main.public.pageviews", "changelog users"):
        db.execute(f"ALTER {words} SET description = 'x'".encode())
    assert comment(db, "pageviews") == "x"
    db.execute("ALTER STREAM pageviews SET description = NULL")
    assert comment(db, "pageviews") == "stream"
    assert fault(db, "ALTER STREAM users SET description = 'x'") == (
        "42809",
        14,
        '"users" is a changelog, not a stream',
    )
    assert fault(db, "ALTER RELATION nope SET description = 'x'")[:2] == ("42P01", 16)
    assert fault(db, "ALTER RELATION users SET description = x")[:2] == ("42601", 40)
    # A relation of PostgreSQL's own is PostgreSQL's, whose grammar this is not.
    assert fault(db, "ALTER TABLE customers SET description = 'x'")[0] == "42601"


def test_a_view_has_any_index(db: Connection) -> None:
    told = rows(db, "CREATE INDEX ON views_per_user (n DESC NULLS LAST, userid)")
    assert told[0][:3] == ("index", "main.public.views_per_user_n_idx", "CREATE")
    db.execute("CREATE INDEX by_word ON public.views_per_user USING gin (to_tsvector('english', userid))")
    db.execute("""CREATE INDEX IF NOT EXISTS "Odd" ON views_per_user (lower(userid) text_pattern_ops) WHERE n > 1.5""")
    db.execute("CREATE INDEX b ON views_per_user USING brin (last) WITH (pages_per_range = 4)")
    db.execute("CREATE INDEX c ON views_per_user (n) INCLUDE (userid, last)")
    again = rows(db, 'CREATE INDEX IF NOT EXISTS "Odd" ON views_per_user (n)')
    assert again[0][3] == 'index "main.public."Odd"" already exists'
    found = {r[0] for r in rows(db, "SELECT indexname FROM pg_indexes WHERE tablename = 'views_per_user'")}
    assert {"views_per_user_n_idx", "by_word", "Odd", "b", "c"} < found
    assert [r[0] for r in rows(db, "LIST INDEXES")] == ["Odd", "b", "by_word", "c", "views_per_user_n_idx"]
    db.execute("SET enable_seqscan = off")
    plan = rows(db, "EXPLAIN SELECT * FROM views_per_user WHERE lower(userid) = 'u1' AND n > 1.5")
    assert '"Odd"' in str(plan), plan
    for text in ("REINDEX INDEX by_word", "REINDEX TABLE CONCURRENTLY views_per_user", "REINDEX SCHEMA main.public",
                 "REINDEX TABLE customers", "REINDEX (VERBOSE) TABLE customers"):  # fmt: skip
        assert db.execute(text.encode()).statusmessage == "REINDEX"
    assert fault(db, "REINDEX TABLE pageviews")[:2] == ("42809", 15)
    assert fault(db, "REINDEX INDEX views_per_user")[:2] == ("42809", 15)
    assert fault(db, "REINDEX (VERBOSE) TABLE views_per_user")[:2] == ("0A000", 9)
    assert fault(db, "REINDEX SCHEMA nope")[0] == "3F000"
    assert rows(db, "DROP INDEX by_word")[0][:3] == ("index", "main.public.by_word", "DROP")
    assert rows(db, "DROP RELATION b")[0][0] == "index"
    assert not {"by_word", "b"} & {r[0] for r in rows(db, "SELECT indexname FROM pg_indexes")}
    # PostgreSQL's own tables have PostgreSQL's own indexes.
    db.execute("CREATE UNIQUE INDEX own ON customers (name)")
    db.execute("DROP INDEX own")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CREATE INDEX ON pageviews (userid)", ("42809", 17)),
        ("CREATE INDEX i ON views_per_user (nope)", ("42703", 14)),
        ("CREATE INDEX customers ON views_per_user (n)", ("42P07", 14)),
        ("CREATE INDEX views_per_user ON views_per_user (n)", ("42P07", 14)),
        ("CREATE UNIQUE INDEX ON views_per_user (n)", ("0A000", 8)),
        ("CREATE INDEX CONCURRENTLY ON views_per_user (n)", ("0A000", 14)),
        ("CREATE INDEX ON views_per_user", ("42601", 31)),
        ("CREATE INDEX i ON views_per_user USING nope (n)", ("42704", 14)),
        ("CREATE INDEX i ON views_per_user ((random()))", ("42P17", 14)),
        ("DROP INDEX nope", ("42704", None)),
    ],
)  # fmt: skip
def test_what_cannot_be_indexed(db: Connection, text: str, expected: tuple[str, int | None]) -> None:
    assert fault(db, text)[:2] == expected


@pytest.mark.parametrize(
    "expression",
    ["public.evil(n)", '"public".evil(n)', "(n)::public.t", "pg_catalog.lower(userid), public . evil(n)",
     "(n operator(public.+) 1)", "E'\\' || public.evil() || '", "U&\"\\0070ublic\".evil(n)", "n) WHERE (public.evil(n)",
     "$$x$$", "n /* . */", "lower(userid || 'a.b') || \"it's\".x"],
)  # fmt: skip
def test_no_function_of_a_client_runs_in_an_index(db: Connection, expression: str) -> None:
    assert fault(db, f"CREATE INDEX evil ON views_per_user ({expression})")[0] in ("0A000", "42601")


def test_a_function_of_a_client_is_not_found(db: Connection) -> None:
    db.execute(
        "CREATE FUNCTION evil(n bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN"
        " RAISE EXCEPTION 'evil ran as %', current_user; END $$"
    )
    assert fault(db, "CREATE INDEX evil ON views_per_user (evil(n))")[0] == "42883"
    db.execute("DROP FUNCTION evil(bigint)")


def test_truncate_takes_the_rows(db: Connection) -> None:
    assert rows(db, "SELECT count(*) FROM views_per_user") == [(2,)]
    assert rows(db, "TRUNCATE RELATION views_per_user")[0][2:4] == (
        "TRUNCATE", "relation main.public.views_per_user was truncated")  # fmt: skip
    assert rows(db, "SELECT count(*) FROM views_per_user") == [(0,)]
    assert fault(db, "TRUNCATE RELATION pageviews") == ("0A000", 19, "TRUNCATE of a stream is not supported")
    assert fault(db, "TRUNCATE RELATION nope")[:2] == ("42P01", 19)
    # A table of PostgreSQL's own that is called so.
    db.execute("CREATE TABLE relation (a int)")
    db.execute("TRUNCATE relation")
    db.execute("TRUNCATE relation RESTART IDENTITY CASCADE")
    db.execute("DROP TABLE relation")


def test_indexes_go_with_their_view(db: Connection) -> None:
    db.execute("DROP VIEW busy")
    db.execute("DROP MATERIALIZED VIEW views_per_user")
    assert rows(db, "LIST INDEXES") == []
