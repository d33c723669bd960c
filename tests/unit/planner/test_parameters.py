"""Bound parameters: what ``$1`` becomes, and when it is refused."""

from __future__ import annotations

import pytest
from sqlglot import exp

from pgstream.errors import PgStreamError, UndefinedParameter
from pgstream.planner.parameters import Parameter, bind, infer
from pgstream.sql.cursor import Cursor


def bound(text: str, *parameters: Parameter) -> str:
    return bind(Cursor(text).select().tree, parameters).sql()


@pytest.mark.parametrize(
    ("parameter", "sql"),
    [
        (Parameter("it's $2"), "'it''s $2'"),
        (Parameter("x", 25), "'x'"),
        (Parameter(None), "CAST(NULL AS VARCHAR)"),
        (Parameter("-5", 20), "CAST('-5' AS BIGINT)"),
        (Parameter(None, 23), "CAST(NULL AS INTEGER)"),
        (Parameter("t", 16), "CAST('t' AS BOOLEAN)"),
        (Parameter("NaN", 701), "CAST('NaN' AS DOUBLE)"),
        (Parameter("-1.50", 1700), "-1.50"),
        (Parameter(None, 17), "CAST(NULL AS BYTES)"),
        (Parameter("1' OR 'a", 1700), "CAST('1'' OR ''a' AS DECIMAL(38, 18))"),
        (Parameter("{-5,NULL}", 1016), "ARRAY(CAST('-5' AS BIGINT), CAST(NULL AS BIGINT))"),
        (Parameter('{a,"it\'s, \\"b\\"",NULL}', 1015), "ARRAY('a', 'it''s, \"b\"', CAST(NULL AS VARCHAR))"),
        (Parameter("{1.50,-20}", 1231), "ARRAY(1.50, -20)"),
        (Parameter("{}", 1016), "CAST(ARRAY() AS ARRAY<BIGINT>)"),
        (Parameter(None, 3807), "CAST(NULL AS ARRAY<VARCHAR>)"),
    ],
)
def test_a_value_is_a_literal_of_its_type(parameter: Parameter, sql: str) -> None:
    assert bound("SELECT a FROM s WHERE a = $1", parameter) == f"SELECT a FROM s WHERE a = {sql}"


@pytest.mark.parametrize(
    ("parameter", "code"),
    [
        (Parameter("\\x0", 17), "22P02"),
        (Parameter("a\\9", 17), "22P02"),
        (Parameter("{1", 1016), "22P02"),
        (Parameter("1", 1009), "22P02"),
        (Parameter("{{1}}", 1016), "22P02"),
    ],
)
def test_what_cannot_be_bound(parameter: Parameter, code: str) -> None:
    with pytest.raises(PgStreamError) as caught:
        bound("SELECT a FROM s WHERE a = $1", parameter)
    assert caught.value.sqlstate == code


@pytest.mark.parametrize(("text", "hex_"), [("\\x00fF", "00ff"), ("a\\000\\\\ü", "61005cc3bc"), ("", "")])
def test_bytes(text: str, hex_: str) -> None:
    tree = bind(Cursor("SELECT a FROM s WHERE a = $1").select().tree, [Parameter(text, 17)])
    found = tree.find(exp.HexString)
    assert found is not None and found.this == hex_


def test_everywhere_and_in_limit() -> None:
    text = "SELECT $2, f($1) FROM s WHERE a IN ($1, $2) LIMIT $3"
    assert bound(text, Parameter("a"), Parameter("b"), Parameter("7")) == (
        "SELECT 'b', F('a') FROM s WHERE a IN ('a', 'b') LIMIT 7"
    )
    assert bound("SELECT a FROM s LIMIT $1", Parameter(None)) == "SELECT a FROM s"


def test_the_statement_keeps_its_parameters() -> None:
    tree = Cursor("SELECT $1 FROM s").select().tree
    before = tree.sql()
    bind(tree, [Parameter("x")])
    assert tree.sql() == before


def test_not_a_parameter() -> None:
    text = "SELECT \"$1\", '$1' FROM s"
    assert bound(text) == text


@pytest.mark.parametrize("parameters", [(), (Parameter("x"),)])
def test_missing(parameters: tuple[Parameter, ...]) -> None:
    with pytest.raises(UndefinedParameter) as caught:
        bound("SELECT a FROM s WHERE a = $2", *parameters)
    assert (caught.value.sqlstate, caught.value.at, str(caught.value)) == ("42P02", 26, "there is no parameter $2")


@pytest.mark.parametrize(
    ("text", "oids"),
    [
        ("SELECT a FROM s WHERE n >= $1 AND $2 > s.n AND u <> $3 LIMIT $4", {1: 20, 2: 20, 4: 20}),
        ("SELECT a FROM s WHERE N IN (1, $1) AND p BETWEEN $2 AND $3", {1: 20, 2: 1700, 3: 1700}),
        ("SELECT $1::int, CAST($2 AS DOUBLE), f($3) FROM s", {1: 23, 2: 701}),
        ("SELECT a FROM s WHERE n = ANY($1) AND u <> ALL($2) AND p < SOME($3)", {1: 1016, 2: 1015, 3: 1231}),
        ("SELECT a FROM s WHERE unknown = ANY($1) AND $2 = ANY(t) AND $3 = ANY(l)", {1: 1009, 3: 20}),
        ("SELECT a FROM s WHERE $1 = $2 AND n = n", {}),
        ("WITH c AS (SELECT u AS n FROM s) SELECT n FROM c WHERE n = $1 LIMIT $2", {2: 20}),
    ],
)
def test_types_that_their_places_tell(text: str, oids: dict[int, int]) -> None:
    assert infer(Cursor(text).select().tree, {"n": 20, "u": 1043, "p": 1700, "t": 1009, "l": 1016}) == oids


def test_parameters_of_a_pattern_are_found() -> None:
    """They stand below the relation that is matched."""
    tree = bind(
        Cursor("SELECT x FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.v + $1 AS x PATTERN (A) DEFINE A AS A.k = $2)")
        .select()
        .tree,
        [Parameter("5", 23), Parameter("a")],
    )
    (match,) = tree.find_all(exp.MatchRecognize)
    assert [m.this.sql() for m in match.args["measures"]] == ["A.v + CAST('5' AS INTEGER)"]
    assert [d.sql() for d in match.args["define"]] == ["A.k = 'a'"]
