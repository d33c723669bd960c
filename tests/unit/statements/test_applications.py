"""BEGIN APPLICATION that cannot be read: each fault has its place, in the text of the whole."""

from __future__ import annotations

import pytest

from pgstream.errors import PgStreamError
from pgstream.sql.cursor import Cursor
from pgstream.statements.applications import BeginApplication

GOOD = "CREATE STREAM s AS SELECT a FROM t;"


# ^ stands before the place of the fault.
@pytest.mark.parametrize(
    ("marked", "code"),
    [
        ("BEGIN APPLICATION^", "42601"),
        ("BEGIN APPLICATION ^a END APPLICATION", "42601"),
        ("BEGIN APPLICATION ^" + "x" * 70 + f" {GOOD} END APPLICATION", "42622"),
        (f"BEGIN APPLICATION a {GOOD} END^", "42601"),
        (f"BEGIN APPLICATION a {GOOD} END APPLICATION ^x", "42601"),
        (f"BEGIN APPLICATION a {GOOD} END APPLICATION WITH (^)", "42601"),
        (f"BEGIN APPLICATION a {GOOD} END APPLICATION WITH (^'nope' = 1)", "22023"),
        ("BEGIN APPLICATION a; ^SELECT 1; END APPLICATION", "42601"),
        (f"BEGIN APPLICATION a {GOOD} ^USE ROLE r; END APPLICATION", "42601"),
        (f"BEGIN APPLICATION a {GOOD} ^DROP STREAM s; END APPLICATION", "42601"),
        ("BEGIN APPLICATION a CREATE STREAM s AS SELECT ^FROM t; END APPLICATION", "42601"),
        (f"BEGIN APPLICATION a {GOOD[:-1]} INSERT ^INTO x SELECT 1; END APPLICATION", "42601"),
        ("BEGIN APPLICATION a CREATE STREAM s (a ^NOPE) WITH ('store' = k); END APPLICATION", "42601"),
        ("BEGIN APPLICATION a CREATE STREAM s (a INT) WITH ('topic' = a, ^'topic' = b); END APPLICATION", "42601"),
        ("BEGIN APPLICATION a CREATE TABLE x AS SELECT a FROM t ^PARTITION BY a; END APPLICATION", "42601"),
        ("BEGIN APPLICATION a CREATE VIRTUAL STREAM v AS SELECT a FROM t PARTITION BY ^a; END APPLICATION", "42601"),
        ("BEGIN APPLICATION a INSERT INTO x ^VALUES (1); END APPLICATION", "0A000"),
        ("BEGIN APPLICATION a CREATE VIRTUAL STREAM ^other.public.v AS SELECT a FROM t; END APPLICATION", "42601"),
        (
            "BEGIN APPLICATION a CREATE VIRTUAL STREAM v WITH (^'store' = k) AS SELECT a FROM t; END APPLICATION",
            "42601",
        ),
    ],
)
def test_faults_have_their_place(marked: str, code: str) -> None:
    with pytest.raises(PgStreamError) as e:
        BeginApplication.parse(Cursor(marked.replace("^", "")))
    assert (e.value.sqlstate, e.value.at) == (code, marked.index("^")), e.value.text
