"""What a role has no privilege on is told apart from nothing by no statement of ours, in either protocol."""

from __future__ import annotations

import psycopg
import pytest

from tests.pg.access.conftest import PASSWORD, House
from tests.pg.door.raw import SYNC, Wire, describe, parse

pytestmark = pytest.mark.pg
TEXTS = (
    "SELECT * FROM {}", "SELECT x.id FROM main.public.{} x", "WITH c AS (SELECT * FROM {}) SELECT * FROM c",
    "SELECT * FROM (SELECT * FROM {}) c, pg_class", "SELECT count(*) FROM pg_class, {}",
    "SELECT * FROM {} JOIN {} USING (id)", "SELECT id FROM TUMBLE({}, SIZE 1 MINUTE)", "TABLE {}",
    "SELECT (SELECT max(id) FROM {})", "EXPLAIN SELECT * FROM {}", "DESCRIBE SELECT * FROM {}", "COPY {} TO STDOUT",
    "COPY (SELECT * FROM {}) TO STDOUT", "COPY {} FROM STDIN", "DECLARE c CURSOR WITH HOLD FOR SELECT * FROM {}",
    "DESCRIBE RELATION {}", "DESCRIBE STREAM {}", "DESCRIBE TABLE {}", "DESCRIBE MATERIALIZED VIEW {}",
    "DESCRIBE RELATION COLUMNS {}", "DESCRIBE STREAM COLUMNS {}", "DROP STREAM {}", "DROP RELATION {}",
    "DROP MATERIALIZED VIEW {}", "DROP RELATION IF EXISTS {}", "INSERT INTO {} SELECT 1",
    "INSERT INTO {} VALUES (1)", "INSERT INTO {} SELECT * FROM {}", "CREATE STREAM mine AS SELECT * FROM {}",
    "CREATE CHANGELOG mine AS SELECT * FROM {}", "CREATE MATERIALIZED VIEW mine AS SELECT id FROM {} GROUP BY id",
    "CREATE OR REPLACE MATERIALIZED VIEW mine AS SELECT * FROM {}",
    "CREATE MATERIALIZED VIEW {} AS SELECT * FROM veiled",
    "CREATE MATERIALIZED VIEW IF NOT EXISTS public.{} AS SELECT * FROM veiled",
    "CREATE OR REPLACE MATERIALIZED VIEW {} AS SELECT * FROM veiled", "CHECK MATERIALIZED VIEW {} LIMIT 1",
    "REPAIR MATERIALIZED VIEW {}", "CREATE STREAM IF NOT EXISTS {} (i INTEGER) WITH ('topic' = 't')",
    "CREATE TABLE IF NOT EXISTS {} WITH ('store' = s) AS SELECT * FROM veiled", "CREATE INDEX {} ON veiled (id)",
    "CREATE VIEW mine AS SELECT * FROM {}", "CREATE TABLE mine AS SELECT * FROM {}", "CREATE INDEX ON {} (id)",
    "GENERATE STREAM DDL FOR {}", "PRINT ENTITY {}", "PRINT TOPIC {}", "GRANT SELECT ON STREAM {} TO ROLE analyst",
    "GRANT SELECT ON nothing, {} TO ROLE public", "REVOKE SELECT ON pg_class, public.{} FROM ROLE public",
    "GRANT SELECT ON {}, nothing TO ROLE public",
    "REVOKE SELECT ON RELATION {} FROM ROLE analyst", "ALTER STREAM {} OWNER TO analyst",
    "ALTER RELATION {} SET description = 'x'", "TRUNCATE RELATION {}", "CAN I SELECT ON RELATION {}",
    "GRANT OWNERSHIP ON RELATION {} TO ROLE analyst", "CREATE POLICY p ON {} USING (true)", "DROP POLICY p ON {}",
    "ALTER MATERIALIZED VIEW {} ENABLE ROW LEVEL SECURITY", "DESCRIBE ENTITY {}", "LIST ENTITIES IN STORE {}",
    "DESCRIBE STORE {}", "DROP STORE {}", "USE STORE {}", "DESCRIBE QUERY {}", "TERMINATE QUERY {}",
    "RESTART QUERY {}", "ALTER QUERY {} DROP TAG 'x'",
    "DESCRIBE SCHEMA {}", "USE SCHEMA {}", "LIST RELATIONS IN SCHEMA {}", "DROP SCHEMA {}",
    "CREATE STREAM {}.s (i INTEGER) WITH ('topic' = 't')", "DESCRIBE ROLE {}", "USE ROLE {}",
    "SET DEFAULT STORE {}", "SET DEFAULT SCHEMA {}", "SET DEFAULT ROLE {}", "USE COMPUTE_POOL {}",
    "DESCRIBE COMPUTE_POOL {}", "STOP COMPUTE_POOL {}", "DESCRIBE SECRET {}", "DROP SECRET {}",
    "DESCRIBE SCHEMA_REGISTRY {}", "DROP TABLE {}", "DROP TABLE IF EXISTS public.{}", "DROP VIEW IF EXISTS {}",
    "DROP MATERIALIZED VIEW IF EXISTS {}", "DROP INDEX {}", "DROP ROLE IF EXISTS {}", "DROP STORE IF EXISTS {}",
    "DROP SCHEMA IF EXISTS {} CASCADE", "DROP SECRET IF EXISTS {}", "DROP COMPUTE_POOL IF EXISTS {}",
    "REINDEX TABLE {}", "REINDEX INDEX CONCURRENTLY {}",
    "COMMENT ON RELATION {} IS 'x'", "COMMENT ON STREAM {} IS 'x'", "COMMENT ON TABLE {} IS 'x'",
    "COMMENT ON VIEW {} IS 'x'", "COMMENT ON MATERIALIZED VIEW {} IS NULL", "COMMENT ON COLUMN {}.id IS 'x'",
    "COMMENT ON COLUMN main.public.{}.id IS 'x'", "COMMENT ON COLUMN public.{}.id IS 'x'",
    "COMMENT ON SCHEMA {} IS 'x'", "ALTER TABLE {} ADD COLUMN x int", "REFRESH MATERIALIZED VIEW {}",
    "ALTER VIEW IF EXISTS {} RENAME TO other", "ALTER TABLE IF EXISTS {} ADD COLUMN x int",
    "ALTER MATERIALIZED VIEW IF EXISTS public.{} RENAME TO other",
    "DELETE FROM {}", "UPDATE {} SET id = 1", "TRUNCATE {}", "TRUNCATE TABLE public.{}",
    "MERGE INTO {} h USING pg_class c ON true WHEN MATCHED THEN DELETE",
)  # fmt: skip
HIDDEN = ("hidden", "hidden_view")
"""A stream and a materialized view, a store, a schema and a role of these names."""


@pytest.fixture(scope="module")
def nobody(house: House) -> str:
    """A user whose role sees the database and its schema, and nothing in them."""
    with house.connect() as conn:
        conn.execute("USE ROLE useradmin")
        conn.execute("CREATE ROLE bystander")
        conn.execute("CREATE ROLE hidden")
        conn.execute("USE ROLE sysadmin")
        conn.execute("GRANT USAGE ON DATABASE main TO ROLE bystander")
        conn.execute("GRANT USAGE ON SCHEMA main.public TO ROLE bystander")
        conn.execute("CREATE SCHEMA hidden")
    house.relation("hidden")
    house.relation("veiled")
    house.relation("hidden_view", "materialized_view")
    house.user("norah", "bystander")
    return "norah"


def said(conn: psycopg.Connection, text: str, name: str) -> str:
    """What the server says, without the name."""
    notices: list[str] = []
    conn.add_notice_handler(lambda d: notices.append(d.message_primary or ""))
    try:
        cur = conn.execute(text.format(name, name))
        answer = f"{cur.statusmessage} {cur.fetchall() if cur.description else ''} {notices}"
    except psycopg.Error as e:
        d = e.diag
        answer = (
            f"{d.sqlstate} {d.statement_position} {d.message_primary} {d.message_detail} {d.message_hint} {notices}"
        )
    return answer.replace(name, "NAME")


def test_hidden_is_missing(house: House, nobody: str) -> None:
    """PostgreSQL's own reads of a view are PostgreSQL's: permission denied, as everywhere in it."""
    with house.connect(nobody) as conn:
        for text in TEXTS:
            for name in HIDDEN:
                found, missing = said(conn, text, name), said(conn, text, "x" * len(name))
                denied = name == "hidden_view" and found[:5] in ("42501", "42712") and missing[:5] == "42P01"
                assert found == missing or denied, (text, name)


def test_own_tables_of_a_hidden_name(house: House, nobody: str) -> None:
    """Columns and names in other places are nobody's relations."""
    with house.connect(nobody) as conn:
        conn.execute("CREATE TEMPORARY TABLE mine (id int, hidden int)")
        conn.execute("INSERT INTO mine VALUES (1, 2)")
        conn.execute("PREPARE p AS SELECT id, hidden FROM mine")
        assert conn.execute("EXECUTE p").fetchall() == [(1, 2)]
        assert conn.execute("SELECT id, hidden FROM mine").fetchall() == [(1, 2)]
        conn.execute("DELETE FROM mine WHERE hidden = 2")


def test_hidden_is_missing_before_it_runs(house: House, nobody: str) -> None:
    with Wire(house.port, nobody, PASSWORD) as wire:
        for text in TEXTS:
            answers = []
            for name in ("hidden", "absent"):
                wire.send(parse(text.format(name, name)) + describe("S") + SYNC)
                answers.append([(k, p.replace(name.encode(), b"NAME")) for k, p in wire.until_ready()])
            assert _seen(answers[0]) == _seen(answers[1]), text


def _seen(answers: list[tuple[str, bytes]]) -> list[tuple[str, object]]:
    """The messages, errors by what a client shows of them."""
    return [(k, [f for f in p.split(b"\0") if f[:1] in b"CMDHP" and f] if k == "E" else p) for k, p in answers]
