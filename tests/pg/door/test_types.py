"""Text and binary of every type of ours, as PostgreSQL converts them: its answers are what we must give and take."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import pq

from pgstream import types
from pgstream.server import results
from pgstream.statements.base import Column
from pgstream.wire import arrays, backend, values

SAMPLES: dict[str, list[str]] = {
    "boolean": ["t", "f"],
    "smallint": ["0", "-32768", "32767"],
    "integer": ["0", "-1", "2147483647", "-2147483648"],
    "bigint": ["0", "-9223372036854775808", "9223372036854775807"],
    "oid": ["0", "4294967295"],
    "real": ["0", "-0", "0.1", "1e38", "1.17549435e-38", "1e-45", "3.4028235e38", "16777217", "NaN", "Infinity",
             "-Infinity"],
    "double precision": ["0", "-0", "0.1", "1e15", "1e16", "123456789.123456789", "5e-324", "1.7976931348623157e308",
                         "NaN", "Infinity", "-Infinity"],
    "numeric": ["0", "0.00", "1", "-1", "10000", "9999", "10000.0001", "0.0001", "0.00001", "-0.00000000010", "1e20",
                "123456789012345678901234567890.123456789", "1e-20", "NaN", "Infinity", "-Infinity", "100000000",
                "0.10", "1" + "0" * 200, "-" + "9" * 37 + "." + "9" * 30],
    "text": ["", "x", "ü✓🦆", " a ", "NULL", "{}", '"', "\\"],
    "character varying": ["", "x", "ü✓🦆"],
    "bytea": ["\\x", "\\x00ff7f"],
    "date": ["2000-01-01", "1999-12-31", "2024-02-29", "1900-03-01", "0001-01-01", "0001-01-01 BC", "4713-11-24 BC",
             "5874897-12-31", "9999-12-31", "infinity", "-infinity", "1582-10-15", "2000-12-31", "0400-02-29"],
    "timestamp": ["2000-01-01 00:00:00", "2024-02-29 23:59:59.999999", "1969-12-31 23:59:59.5", "0001-01-01 00:00:00",
                  "4713-11-24 00:00:00 BC", "294276-12-31 23:59:59.999999", "infinity", "-infinity",
                  "0044-03-15 12:00:00.1 BC"],
    "timestamptz": ["2000-01-01 00:00:00+00", "2024-07-01 12:30:00.25+02", "1883-11-18 12:03:58-04:56:02",
                    "0044-03-15 12:00:00.1+00 BC", "2024-01-01 00:00+05:30", "infinity", "-infinity"],
    "uuid": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "00000000-0000-0000-0000-000000000000"],
    "jsonb": ['{"a": [1, null, "ü"]}', "null", '"x"', "1.50"],
    "json": ['{"a" : 1}'],
}  # fmt: skip


@pytest.fixture(scope="module")
def direct(door):
    with psycopg.connect(door.direct, autocommit=True) as conn:
        conn.execute("SET TimeZone = 'UTC'")
        yield conn


def _both(conn: psycopg.Connection, text: str, pg_type: str) -> tuple[int, str, bytes]:
    """The type's oid, and PostgreSQL's text and binary form of a value."""
    found = [conn.pgconn.exec_params(f"SELECT $1::text::{pg_type}".encode(), [text.encode()], result_format=f)
             for f in (0, 1)]  # fmt: skip
    assert found[0].status == pq.ExecStatus.TUPLES_OK, found[0].error_message
    return found[0].ftype(0), found[0].get_value(0, 0).decode(), found[1].get_value(0, 0)


def _same(conn: psycopg.Connection, text: str, pg_type: str) -> None:
    oid, shown, binary = _both(conn, text, pg_type)
    assert values.encoder(oid)(shown) == binary, (pg_type, shown)
    back = values.decoder(oid)(binary)
    assert _both(conn, back, pg_type)[1:] == (shown, binary), (pg_type, back)


@pytest.mark.parametrize("pg_type", SAMPLES)
def test_scalars(direct, pg_type):
    for text in SAMPLES[pg_type]:
        _same(direct, text, pg_type)


@pytest.mark.parametrize("pg_type", [t for t in SAMPLES if t not in ("oid", "json")])
def test_arrays(direct, pg_type):
    quoted = ['"' + v.replace("\\", "\\\\").replace('"', '\\"') + '"' for v in SAMPLES[pg_type]]
    for text in ("{}", "{NULL}", "{" + ",".join(quoted) + "}", "{NULL," + quoted[0] + ",NULL}"):
        _same(direct, text, f"{pg_type}[]")


def test_every_type_of_the_table_has_both_forms():
    for row in (*types.TABLE.values(), types.JSONB):
        for oid in (row.oid, row.array_oid):
            assert values.encoder(oid) and values.decoder(oid), row
        assert arrays.ELEMENTS[row.array_oid] == row.oid


DESCRIBED = ("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "DECIMAL(7)",
             "DECIMAL(38,9)", "VARCHAR", "VARCHAR(20)", "BYTES", "DATE", "TIMESTAMP", "TIMESTAMP(3)",
             "TIMESTAMP_LTZ(0)", "TIMESTAMP_LTZ(9)", "ARRAY<DECIMAL(5,2)>", "ARRAY<VARCHAR(5)>",
             "MAP<VARCHAR, BIGINT>", "STRUCT<a DECIMAL(5,2)>", "ARRAY<STRUCT<a BIGINT>>")  # fmt: skip


@pytest.mark.parametrize("name", DESCRIBED)
def test_descriptions(direct, name):
    """Type, size and modifier of a column are those of PostgreSQL's type."""
    column = Column("c", types.parse(name))
    shown = direct.pgconn.exec_(f"SELECT NULL::{column.type.pg} AS c".encode())
    theirs = backend.row_description([("c", shown.ftype(0), shown.fsize(0), shown.fmod(0))], [0])
    assert results.description([column], [0]) == theirs


@pytest.mark.parametrize(
    ("oid", "data"),
    [(16, b""), (23, b"\0"), (20, b"\0" * 9), (1700, b"\0\1"), (1082, b"\0"), (1184, b"\0" * 7), (2950, b"\0"),
     (1007, b"\0\0\0\2" + b"\0" * 30), (1007, b"\0\0\0\1\0\0\0\0\0\0\0\x17\0\0\0\2\0\0\0\1\0\0\0\4\0\0"), (3802, b""),
     (1700, b"\0\1\0\0\0\0\0\0\x7f\xff"), (25, b"\xff"), (25, b"a\0b")],
)  # fmt: skip
def test_malformed_binary_parameters(door, direct, oid, data):
    """Refused as PostgreSQL refuses them, and the session goes on."""
    with psycopg.connect(door.url, autocommit=True) as conn:
        ours = conn.pgconn.exec_params(b"ECHO $1", [data], [oid], [1])
        theirs = direct.pgconn.exec_params(b"SELECT $1", [data], [oid], [1])
        codes = [r.error_field(pq.DiagnosticField.SQLSTATE) for r in (ours, theirs)]
        assert codes[1] is not None
        assert codes[0] == (codes[1] if oid == 25 else b"22P03")
        assert conn.execute("SELECT 1").fetchone() == (1,)
