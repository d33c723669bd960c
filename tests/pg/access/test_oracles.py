"""Statements that name a second thing: whether that is hidden or absent is told by none of them.

``low`` sees a schema, may make anything, and owns a stream, a view, a store and a query of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pgstream.catalog.records import ObjectRecord, QueryRecord
from tests.pg.access.conftest import House

pytestmark = pytest.mark.pg
QUERY = "11111111-2222-4333-8444-555555555555"
ABSENT = "11111111-2222-4333-8444-666666666666"
RIGHTS = ("CREATE_QUERY", "CREATE_STORE", "CREATE_SCHEMA_REGISTRY", "CREATE_FUNCTION", "CREATE_FUNCTION_SOURCE",
          "CREATE_DESCRIPTOR_SOURCE", "CREATE_COMPUTE_POOL", "CREATE_DATABASE")  # fmt: skip
STREAM = "'topic' = 't', 'value.format' = 'json'"
KAFKA = "'type' = KAFKA, 'uris' = '127.0.0.1:1', 'kafka.sasl.hash_function' = NONE, 'tls.disabled' = TRUE"
ORACLES = (
    # Roles. Whoever owns something may give it to any: their names are in PostgreSQL's pg_roles.
    "GRANT ROLE low TO ROLE {}",
    "GRANT ROLE {} TO ROLE low",
    "GRANT ROLE {} TO USER 'mal'",
    "CREATE API_TOKEN t WITH ('token.role_name' = {})",
    "USE ROLE {}",
    "CAN I USE ROLE {}",
    "CAN I DROP ROLE {}",
    "LIST USER ROLES FOR USER '{}'",
    "DESCRIBE USER '{}'",
    # Stores, registries, pools, sources
    "CREATE STREAM s (i INT) WITH ('store' = {}, " + STREAM + ")",
    "CREATE STREAM s WITH ('store' = {}) AS SELECT id FROM lows",
    "CREATE TABLE s (i INT, PRIMARY KEY (i)) WITH ('store' = {})",
    "INSERT INTO ENTITY t IN STORE {} VALUE('1')",
    "CREATE STORE s WITH (" + KAFKA + ", 'schema_registry.name' = {})",
    "UPDATE STORE lowly WITH ('schema_registry.name' = {})",
    "CREATE STREAM s WITH ('store' = lowly, 'bad_records.store' = {}) AS SELECT id FROM lows",
    "CREATE FUNCTION f () RETURNS BIGINT LANGUAGE JAVA WITH ('source.name' = {}, 'class.name' = 'C')",
    "COPY FUNCTION_SOURCE {} TO c",
    "COPY DESCRIPTOR_SOURCE {} TO c",
    "RESTART QUERY low_query IN COMPUTE_POOL {}",
    "CREATE STREAM s (i INT) WITH ('store' = lowly, 'topic' = 't', 'value.descriptor.name' = '{}.M')",
    "UPDATE ENTITY t IN STORE lowly WITH ('value.descriptor' = '{}.M')",
    "GENERATE STREAM DDL s WITH ('store' = {}, 'topic' = 't', 'value.format' = 'json')",
    "GENERATE COLUMNS WITH ('store' = {}, 'topic' = 't')",
    "CAN I USE STORE {}",
    "CAN I DROP STORE {}",
    "CAN I USE DESCRIPTOR_SOURCE {}",
    "CAN I DROP FUNCTION_SOURCE {}",
    "CAN I CREATE IN SCHEMA {}",
    "CAN I USE DATABASE {}",
    "CAN I INSERT INTO RELATION {}",
    "CAN I DROP RELATION {}",
    # Relations, beside one that is there
    "CREATE STREAM s WITH ('store' = lowly) AS SELECT lows.id FROM lows, {} WITHIN 1 MINUTE ON lows.id = {}.id",
    "CREATE MATERIALIZED VIEW v AS SELECT lows.id FROM lows JOIN {} ON lows.id = {}.id",
    "CREATE MATERIALIZED VIEW v AS SELECT low_view.id FROM low_view JOIN {} ON low_view.id = {}.id",
    "CREATE MATERIALIZED VIEW v AS SELECT id FROM lows UNION ALL SELECT id FROM {}",
    "CREATE MATERIALIZED VIEW v AS SELECT id FROM low_view WHERE id IN (SELECT id FROM {})",
    "INSERT INTO lows SELECT * FROM {}",
    "INSERT INTO {} VALUES (1)",
    "INSERT INTO {} SELECT * FROM lows",
    "DESCRIBE INSERT INTO {} SELECT * FROM lows",
    "DESCRIBE CREATE MATERIALIZED VIEW v AS SELECT id FROM {}",
    "SELECT l.id FROM lows l JOIN {} h ON l.id = h.id",
    "DECLARE c CURSOR FOR SELECT * FROM {}",
    "COPY (SELECT id FROM lows UNION ALL SELECT id FROM {}) TO STDOUT",
    "DROP INDEX IF EXISTS {}",
    "DROP STREAM IF EXISTS {}",
    "LIST POLICIES ON {}",
    "DROP POLICY IF EXISTS p ON {}",
    # Applications
    "BEGIN APPLICATION a USE STORE {}; CREATE STREAM s AS SELECT id FROM lows; END APPLICATION",
    "BEGIN APPLICATION a USE SCHEMA {}; CREATE STREAM s AS SELECT id FROM lows; END APPLICATION",
    "BEGIN APPLICATION a USE DATABASE {}; CREATE STREAM s AS SELECT id FROM lows; END APPLICATION",
    "BEGIN APPLICATION a CREATE VIRTUAL STREAM virtual.public.v AS SELECT id FROM {};"
    " INSERT INTO lows SELECT id FROM virtual.public.v; END APPLICATION",
    "DESCRIBE BEGIN APPLICATION a INSERT INTO {} SELECT * FROM lows; END APPLICATION",
    # Databases and schemas
    "CREATE STREAM {}.public.s (i INT) WITH ('store' = lowly, " + STREAM + ")",
    "USE DATABASE {}",
    "DESCRIBE DATABASE {}",
    "LIST SCHEMAS IN DATABASE {}",
    "LIST RELATIONS IN SCHEMA {}.public",
    "CREATE SCHEMA s IN DATABASE {}",
    "GRANT USAGE ON DATABASE {} TO ROLE low",
    "SELECT * FROM {}.public.t",
    "USE ORGANIZATION {}",
)
BY_ID = (
    "DESCRIBE QUERY {}",
    "DESCRIBE QUERY STATE {}",
    "DESCRIBE QUERY EVENTS {}",
    "DESCRIBE QUERY METRICS {}",
    "TERMINATE QUERY {}",
    "RESTART QUERY {}",
    "ALTER QUERY {} ADD TAG 'a' = 'b'",
    "CAN I USE QUERY {}",
    "CAN I DROP QUERY {}",
    "GRANT OWNERSHIP ON QUERY {} TO ROLE low",
    "CREATE STREAM s WITH ('store' = lowly) AS SELECT id FROM lows QUERY WITH ('resume.from.query.id' = '{}')",
)
LISTS = (
    "DROP TABLE mine, {}",
    "DROP TABLE {}, mine",
    "DROP TABLE absent, {}",
    "DROP TABLE IF EXISTS absent, mine, {}, other",
    "DROP VIEW mine, {}",
    "DROP VIEW IF EXISTS {}, {}",
    "DROP TABLE low_view, {}",
    "DROP TABLE {}, low_view",
    "DROP MATERIALIZED VIEW public.{}, mine",
    "DROP INDEX {}, mine",
    "DROP TABLE mine, main.public.{} CASCADE",
    'DROP TABLE /* {} */ mine, "{}"',
    "DROP TABLE mine, nowhere.{}",
)


@pytest.fixture(scope="module", autouse=True)
def places(house: House) -> None:
    with house.connect() as c:
        for text in ("USE ROLE useradmin", "CREATE ROLE low", "CREATE ROLE hidden", "USE ROLE sysadmin",
                     "GRANT USAGE ON DATABASE main TO ROLE low",
                     "GRANT USAGE, CREATE ON SCHEMA main.public TO ROLE low",
                     "CREATE SCHEMA hidden", "CREATE DATABASE hidden", "CREATE COMPUTE_POOL hidden",
                     "CREATE SCHEMA_REGISTRY hidden WITH ('type' = CONFLUENT, 'uris' = 'http://x')"):  # fmt: skip
            c.execute(text.encode())
        c.execute("USE ROLE orgadmin")
        for right in RIGHTS:
            c.execute(f"GRANT {right} ON ORGANIZATION TO ROLE low".encode())
    house.user("mal", "low")
    for name, owner in (("hidden", "sysadmin"), ("lowly", "low")):
        house.run(house.catalog.create_store(name, "kafka", {"uris": "127.0.0.1:1"}, frozenset(), owner))
    for kind in ("descriptor_source", "function_source"):
        record = ObjectRecord(kind, "hidden", "", options={"messages": "M"}, owner="sysadmin", created_by="admin")
        house.run(house.catalog.inventory.create(record, {"file": "QUJD"}))
    house.relation("hidden")
    house.relation("hidden_view", "materialized_view")
    house.relation("lows", store="lowly", owner="low")
    house.relation("low_view", "materialized_view", owner="low")
    for id, name, owner in ((QUERY, "hidden", "sysadmin"), (str(uuid.uuid4()), "low_query", "low")):
        record = QueryRecord(
            id=id, name=name, version=1, kind="insert_into", sql="", owner=owner, plan=b"{}", stores=(),
            database="main", sources=(), sinks=("main.public.lows",),
        )  # fmt: skip
        house.run(house.catalog.create_query(record))


@pytest.fixture
def mal(house: House) -> Iterator[psycopg.Connection[Any]]:
    with house.connect("mal", autocommit=False) as c:
        c.execute("USE ROLE low")
        c.commit()
        c.execute("CREATE TABLE mine (id int)")
        yield c
        c.rollback()


def said(c: psycopg.Connection[Any], text: str, name: str) -> str:
    """All that a client hears, without the name; a change of PostgreSQL's is rolled back."""
    notices: list[str] = []

    def hear(d: psycopg.errors.Diagnostic) -> None:
        notices.append(d.message_primary or "")

    c.add_notice_handler(hear)
    try:
        with c.transaction(force_rollback=True):
            answer = str(c.execute(text.replace("{}", name).encode()).fetchall())
    except psycopg.ProgrammingError as e:
        d = e.diag
        answer = f"{d.sqlstate} {d.message_primary} {d.message_detail} {d.message_hint} {d.statement_position}"
    except psycopg.Error as e:
        answer = f"{e.sqlstate} {e.diag.message_primary} {e.diag.message_detail} {e.diag.statement_position}"
    finally:
        c.remove_notice_handler(hear)
    return f"{answer} {notices}".replace(name, "NAME")


@pytest.mark.parametrize("text", ORACLES)
def test_a_second_name(mal: psycopg.Connection[Any], text: str) -> None:
    assert said(mal, text, "hidden") == said(mal, text, "absent")


@pytest.mark.parametrize("text", BY_ID)
def test_an_id(mal: psycopg.Connection[Any], text: str) -> None:
    assert said(mal, text, QUERY) == said(mal, text, ABSENT)
    assert said(mal, text, "hidden") == said(mal, text, "absent")


@pytest.mark.parametrize("text", LISTS)
def test_in_a_list(mal: psycopg.Connection[Any], text: str) -> None:
    for name in ("hidden", "hidden_view"):
        assert said(mal, text, name) == said(mal, text, "x" * len(name))
