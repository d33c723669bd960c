"""INSERT INTO … VALUES of values that are meant to keep the server busy, or to become part of the text."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pgstream import types
from pgstream.catalog.records import ColumnRecord, RelationRecord
from pgstream.names import FullName
from tests.pg.access.conftest import House

pytestmark = pytest.mark.pg
COLUMNS = (
    ("n", "BIGINT"),
    ("s", "VARCHAR"),
    ("o", "STRUCT<i INTEGER, d DECIMAL(38, 2), f DOUBLE, t TIMESTAMP_LTZ(3)>"),
)
UNREACHED = "58000"
"""All of the rows has been computed then."""


@pytest.fixture(scope="module")
def db(house: House) -> Iterator[psycopg.Connection[Any]]:
    house.run(house.catalog.create_store("nowhere", "kafka", {"uris": "127.0.0.1:1"}, frozenset(), "sysadmin"))
    columns = tuple(ColumnRecord(name, types.parse(type_)) for name, type_ in COLUMNS)
    stream = RelationRecord(
        id="6f1c4a40-0000-4000-8000-000000000001", full=FullName("main", "public", "written"), kind="stream",
        columns=columns, owner="sysadmin", properties={"value.format": "json"}, store="nowhere", entity="written",
    )  # fmt: skip
    house.run(house.catalog.create_relation(stream))
    with house.connect() as conn:
        yield conn


def _refused(db: psycopg.Connection[Any], text: str, *given: str) -> psycopg.Error:
    """The error, which comes soon."""
    began = time.monotonic()
    result = db.pgconn.exec_params(text.encode(), [g.encode() for g in given])
    assert time.monotonic() - began < 10
    return psycopg.errors.error_from_result(result)


@pytest.mark.parametrize(
    ("given", "state"),
    [
        ('{"i": 1e999999999}', "22P02"), ('{"d": 1e999999999}', "22P02"), ('{"f": 1e999999999}', "22P02"),
        ('{"i": ' + "9" * 5000 + "}", "22P02"), ('{"i": 1e-999999999}', "22P02"), ('{"d": 1e-3}', "22P02"),
        ('{"i": ' + "[" * 3000 + "]" * 3000 + "}", "54001"), ('{"t": "0001-01-01T00:00:00+14:00"}', "22P02"),
        ('{"d": 123456789012345678901234567890123456.10}', UNREACHED), ('{"i": 1e3}', UNREACHED),
    ],
)  # fmt: skip
def test_a_number_of_few_characters(db: psycopg.Connection[Any], given: str, state: str) -> None:
    assert _refused(db, f"INSERT INTO written (o) VALUES ('{given}')").sqlstate == state


@pytest.mark.parametrize("number", ["70000", "100000000", "9" * 30, "9" * 5000])
def test_a_parameter_that_no_bind_can_give(db: psycopg.Connection[Any], number: str) -> None:
    """Every statement of pgstream that is prepared."""
    for text in (f"INSERT INTO written (n) VALUES (${number})", f"SELECT * FROM written WHERE n = ${number}"):
        assert psycopg.errors.error_from_result(db.pgconn.prepare(b"", text.encode())).sqlstate == "42P02"


@pytest.mark.parametrize("written", ["$$ $1 $$", "$a$ $1 $a$", "$\u00e9$ $1 $\u00e9$", "E'\\' || $1 || \\''"])
def test_a_value_is_no_part_of_the_text(db: psycopg.Connection[Any], written: str) -> None:
    e = _refused(db, f"INSERT INTO written (n) VALUES (({written})::int)", "$$ || 1/0 || $$")
    assert (e.sqlstate, "$1" in str(e)) == ("22P02", True)


def test_a_value_that_is_written_often(db: psycopg.Connection[Any]) -> None:
    """Is sent to PostgreSQL once."""
    given = "x" * (1 << 20)
    places = ", ".join(["(octet_length($1))"] * 400)
    assert _refused(db, f"INSERT INTO written (n) VALUES {places}", given).sqlstate == UNREACHED
    for text in (
        "INSERT INTO written (s) VALUES " + ", ".join(["($1)"] * 70),
        "INSERT INTO written (s) VALUES (repeat($1, 70))",
    ):
        assert _refused(db, text, given).sqlstate == "54000"


def test_more_rows_than_are_read_at_once(db: psycopg.Connection[Any]) -> None:
    rows = ",".join(["(1)"] * 20_000)
    assert _refused(db, f"INSERT INTO written (n) VALUES {rows}").sqlstate == "54001"
    assert _refused(db, "INSERT INTO written (n, s) VALUES ($1, NULL), (DEFAULT, $2)", "1", "x").sqlstate == UNREACHED


def test_types_that_take_the_place_of_postgresqls(house: House, db: psycopg.Connection[Any]) -> None:
    """What computes a row runs no code of another client's, whatever the search path is."""
    kinds = (*types.TABLE, "ARRAY<DATE>", "ARRAY<BYTES>", "ARRAY<VARCHAR>", "MAP<VARCHAR, DATE>")
    relation = RelationRecord(
        id="6f1c4a40-0000-4000-8000-000000000002", full=FullName("main", "public", "typed"), kind="stream",
        columns=tuple(ColumnRecord(f"c{i}", types.parse(t)) for i, t in enumerate(kinds)),
        owner="sysadmin", properties={"value.format": "json"}, store="nowhere", entity="typed",
    )  # fmt: skip
    house.run(house.catalog.create_relation(relation))
    with house.connect() as conn:
        conn.execute("CREATE SCHEMA others")
        conn.execute("CREATE FUNCTION others.f() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'mine'; END $$")
        for name in (
            "bytea",
            "date",
            "int8",
            "json",
            "jsonb",
            "numeric",
            "text",
            "timestamp",
            "timestamptz",
            "varchar",
        ):
            conn.execute(f'CREATE DOMAIN others."{name}" AS pg_catalog."{name}" CHECK (others.f())'.encode())
        conn.execute("SET search_path = others, public, pg_catalog")
        for column in relation.columns:
            value = {"BOOLEAN": "true", "ARRAY": "{}", "MAP": "{}"}.get(column.type.name, "0")
            value = "2026-01-01 00:00" if column.type.name in ("DATE", *types.CLOCKS) else value
            e = _refused(conn, f"INSERT INTO public.typed ({column.name}) VALUES ('{value}')")
            assert (e.sqlstate, "mine" in str(e)) == (UNREACHED, False), (column, e)


def test_an_array_of_very_many(db: psycopg.Connection[Any]) -> None:
    """Of a SELECT's parameters: each element is an expression, which every session waits for."""
    for given, state in (("{" + ",".join(["1"] * 300_000) + "}", "54001"), ("{" + " " * 100_000 + '"', "22P02")):
        assert _refused(db, "SELECT * FROM written WHERE n = ANY($1)", given).sqlstate == state
    assert _refused(db, "SELECT * FROM written LIMIT $1", "9" * 5000).sqlstate == "0A000"
    assert _refused(db, f"SELECT * FROM written LIMIT {'9' * 5000}").sqlstate == "22003"


def test_a_string_of_digits_is_looked_at_once(db: psycopg.Connection[Any]) -> None:
    digits = "1" * 50_000
    assert _refused(db, f"SELECT CAST('{digits}x' AS DECIMAL(10, 2)) FROM written").sqlstate != "XX000"
