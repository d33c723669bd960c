"""Views upon views, and look-ups in views: the worker reads them, so what PostgreSQL would refuse is refused before."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pgstream.catalog.records import QueryRecord
from pgstream.names import view_log
from tests.pg.access.conftest import House

pytestmark = pytest.mark.pg
READS = (
    "CREATE MATERIALIZED VIEW m AS SELECT {} FROM {}", "CREATE MATERIALIZED VIEW m AS SELECT count({}) AS n FROM {}",
    "CREATE MATERIALIZED VIEW m AS SELECT 1 AS one FROM {1} WHERE {0} IS NULL",
    "INSERT INTO lows SELECT {} FROM {}", "CREATE STREAM s WITH ('store' = lowly) AS SELECT {} FROM {}",
    "CREATE MATERIALIZED VIEW m AS SELECT v.{} FROM lows s JOIN {} v ON s.id = v.id",
    "SELECT v.{} FROM lows s JOIN {} v ON s.id = v.id",
    "CREATE MATERIALIZED VIEW m AS SELECT secret FROM (SELECT secret FROM lows UNION ALL SELECT {} FROM {}) u",
    "CREATE MATERIALIZED VIEW m AS SELECT s.id FROM lows s WHERE EXISTS (SELECT {} FROM {})",
    "DESCRIBE CREATE MATERIALIZED VIEW m AS SELECT {} FROM {}", "COPY (SELECT v.{} FROM lows s, {} v) TO STDOUT",
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def places(house: House) -> None:
    with house.connect() as c:
        for text in ("USE ROLE useradmin", "CREATE ROLE low", "CREATE ROLE other", "USE ROLE sysadmin",
                     "GRANT USAGE ON DATABASE main TO ROLE low", "USE ROLE orgadmin",
                     "GRANT CREATE_QUERY ON ORGANIZATION TO ROLE low",
                     "GRANT USAGE, CREATE ON SCHEMA main.public TO ROLE low"):  # fmt: skip
            c.execute(text.encode())
        house.user("mal", "low")
        house.run(house.catalog.create_store("lowly", "kafka", {"uris": "127.0.0.1:1"}, frozenset(), "low"))
        house.relation("lows", store="lowly", owner="low")
        for name in ("in_part", "by_rows", "whole"):
            house.relation(name, "materialized_view", owner="sysadmin")
        for text in ("GRANT SELECT (id) ON RELATION in_part TO ROLE low",
                     "GRANT SELECT ON RELATION by_rows TO ROLE low",
                     "GRANT SELECT ON RELATION whole TO ROLE low",
                     "CREATE POLICY p ON by_rows TO low USING (id = 1)",
                     "ALTER MATERIALIZED VIEW by_rows ENABLE ROW LEVEL SECURITY"):  # fmt: skip
            c.execute(text.encode())


@pytest.fixture
def mal(house: House) -> Iterator[psycopg.Connection[Any]]:
    with house.connect("mal") as c:
        c.execute("USE ROLE low")
        yield c


def refused(c: psycopg.Connection[Any], text: str) -> str:
    with pytest.raises(psycopg.Error) as e:
        c.execute(text.encode())
    return e.value.sqlstate or ""


@pytest.mark.parametrize("text", READS)
def test_columns_and_rows_that_are_not_granted(mal: psycopg.Connection[Any], text: str) -> None:
    """The same statement of a view that the role may read as a whole comes as far as the engine, which is not there."""
    outcomes = {name: refused(mal, text.format("secret", name, name)) for name in ("whole", "in_part", "by_rows")}
    assert outcomes["whole"] in ("58000", "0A000"), outcomes
    if outcomes["whole"] == "58000":
        assert outcomes["in_part"] == "42501" and outcomes["by_rows"] in ("0A000", "58000"), outcomes
    else:
        assert outcomes["in_part"] in ("42501", "0A000"), outcomes


def test_what_reads_a_view_is_not_told_to_its_owner(house: House) -> None:
    """Nor by the refusals of what it would stop."""
    view = house.relation("lent", "materialized_view", owner="low")
    query = QueryRecord(
        id=str(uuid.uuid4()), name="secretive", version=1, kind="insert_into", sql="", owner="sysadmin", plan=b"{}",
        stores=(), database="main", sources=(str(view.full),), sinks=("main.public.lows",),
    )  # fmt: skip
    house.run(house.catalog.create_query(query, reads=[view.full]))
    with house.connect("mal") as c:
        c.execute("USE ROLE low")
        for text in ("DROP MATERIALIZED VIEW lent", "ALTER MATERIALIZED VIEW lent ENABLE ROW LEVEL SECURITY"):
            with pytest.raises(psycopg.Error) as e:
                c.execute(text.encode())
            d = e.value.diag
            told = f"{d.message_primary} {d.message_detail} {d.message_hint}"
            assert query.id not in told and "secretive" not in told, told
            assert "and 1 more" in told or "none that the role sees" in told, told
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            c.execute(f"SELECT * FROM pg_pgstream.{view_log(query.id, view.id)}".encode())
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            c.execute("CREATE TABLE own (id int); CREATE TRIGGER t AFTER INSERT ON own REFERENCING NEW TABLE AS changed"
                      " FOR EACH STATEMENT EXECUTE FUNCTION pg_pgstream.log_changes('c', 'x')")  # fmt: skip
    with house.connect() as c:
        for text in ("USE ROLE useradmin", "GRANT ROLE low TO ROLE orgadmin", "USE ROLE orgadmin"):
            c.execute(text.encode())
        with pytest.raises(psycopg.Error, match="query " + query.id):
            c.execute("ALTER MATERIALIZED VIEW lent ENABLE ROW LEVEL SECURITY")
