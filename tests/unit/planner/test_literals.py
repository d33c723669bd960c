"""What a client writes in quotes stays in quotes: a plan's texts are Spark SQL, and nothing of it becomes part of that.

Each statement is planned with a plain word in a place, and with texts that are anything but plain: without their
strings and names the plans are the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from pgstream.errors import PgStreamError
from pgstream.planner.functions import FUNCTIONS
from pgstream.planner.plan import Plan, ResultSink
from tests.unit.planner.test_planner import _plan

WORD = "plainword"
ODD = [
    "' || reflect('java.lang.System', 'exit') || '", "'", "''", "\\", "\\'", "a\\' || (select 1) || \\'", "{0}",
    "{1}{2}", "{*}{every}{any_null}{name}", "struct(`__partition`, `__offset`)", "`__partition`, `__offset`",
    "`__time`", "transform(array_sort(x), e -> e.v)", "`s`", "`", "--", "/*", "a\n\tb", "${env:PATH}", "\\u0027",
    "\\047", "😀", "__window", "count(1)",
]  # fmt: skip
QUOTED = "'{}'"
OTHERS = ("s", "i", "d", "ts", "arr", "m", "DAY", "'1'")
FEW = [" ".join(ODD), "'", "\\", "{0}"]  # all of them at once, and what would end a text or fill one in
MOST = 4  # arguments
WINDOW = "FROM TUMBLE(t, SIZE 1 MINUTE) {} GROUP BY window_start, window_end"
ITEMS = "CROSS JOIN UNNEST(arr) AS u(one)"
AGGREGATED = [f"SELECT {{}} AS x {WINDOW.format(more)}" for more in ("", ITEMS)]
AGGREGATED += ["SELECT k, {} AS x FROM (SELECT userid AS k, city AS s, n AS i FROM users_log) c GROUP BY k"]
ORDERED = "SELECT {} OVER (PARTITION BY s ORDER BY ts) AS x FROM t WITH ('timestamp' = 'ts')"
PLACES = [
    "SELECT s FROM t WHERE s = '{}'",
    "SELECT s FROM t WHERE s LIKE '{}' OR s ILIKE '{}' OR s SIMILAR TO '{}'",
    "SELECT s FROM t WHERE s NOT IN ('a', '{}') AND s BETWEEN '{}' AND 'b' AND s IS DISTINCT FROM '{}'",
    "SELECT CASE s WHEN '{}' THEN '{}' ELSE '{}' END AS x FROM t",
    "SELECT m['{}'] AS x, MAP['{}', 1] AS y, ARRAY['{}'] AS z, ROW('{}', 1) AS w FROM t",
    "SELECT CAST('{}' AS BYTES) AS x, s || '{}' AS y FROM t",
    "SELECT JSON_VALUE(s, '$.a' DEFAULT '{}' ON EMPTY) AS x FROM t",
    "SELECT t.s FROM t JOIN pageviews p WITHIN 1 MINUTE ON t.s = p.userid AND p.pageid <> '{}'",
    "SELECT s FROM t LEFT JOIN users_log u ON s = u.userid WHERE u.city = '{}'",
    "SELECT s, n FROM (SELECT s, ROW_NUMBER() OVER (PARTITION BY s || '{}' ORDER BY i) AS n FROM t) x WHERE n <= 2",
    *(a.format(f"LISTAGG({d} s, '{{}}') FILTER (WHERE s <> '{{}}')") for a in AGGREGATED for d in ("", "DISTINCT")),
    *(a.format(f"ARRAY_AGG({d} s || '{{}}') FILTER (WHERE s <> '{{}}')") for a in AGGREGATED for d in ("", "DISTINCT")),
    *(a.format("FIRST_VALUE(s || '{}') FILTER (WHERE s <> '{}')") for a in AGGREGATED),
    *(a.format("COUNT(DISTINCT s || '{}')") + " HAVING COUNT(*) > 1 AND MAX(s) < '{}'" for a in AGGREGATED),
    "SELECT x, y FROM pageviews MATCH_RECOGNIZE (PARTITION BY userid ORDER BY viewtime MEASURES A.pageid || '{}' AS x, "
    "LISTAGG(B.pageid || '{}') AS y PATTERN (A B+) DEFINE A AS A.pageid = '{}', B AS LAST(A.pageid) <> '{}') m",
    # Names
    'SELECT s AS "{}" FROM t',
    'SELECT "{}" FROM (SELECT s AS "{}", i FROM t) x',
    'SELECT "{}".s FROM t AS "{}"',
    'SELECT "{}", COUNT(*) AS n FROM (SELECT s AS "{}" FROM t) x GROUP BY "{}"',
    'WITH "{}" AS (SELECT s AS "{}" FROM t) SELECT "{}" FROM "{}"',
    'SELECT "{}" FROM t CROSS JOIN UNNEST(arr) AS u("{}")',
    "SELECT ROW(s) AS x FROM t WHERE CAST(ROW('a') AS STRUCT<\"{}\" VARCHAR>) IS NOT NULL",
]


def _texts(text: str) -> list[str]:
    """Every text of the plan."""
    planned = _plan(text, "view" if " GROUP BY " in text and "userid AS k" in text else "result")
    found: list[str] = []

    def walk(of: Any) -> None:
        if isinstance(of, str):
            found.append(of)
        elif isinstance(of, dict):
            for k, v in of.items():
                walk(k)
                walk(v)
        elif isinstance(of, list):
            for v in of:
                walk(v)

    walk(msgspec.json.decode(Plan(planned.root, ResultSink()).json()))
    return found


def _planned(text: str) -> list[str] | None:
    try:
        return _texts(text)
    except PgStreamError:
        return None  # not with this text here: it is refused, with words of ours


def _filled(statement: str, word: str) -> str:
    quote = '"' if '"{}"' in statement else "'"
    return statement.replace("{}", word.replace(quote, quote * 2))


def _code(text: str) -> str:
    """Spark SQL without its strings and names."""
    return re.sub(r"'(?:[^'\\]|\\.)*'|`(?:[^`]|``)*`", "", text, flags=re.S)


def _differences(statement: str, odd: str) -> list[tuple[str, str]]:
    """Texts of the two plans that differ in more than a string or a name."""
    plain, found = _planned(_filled(statement, WORD)), _planned(_filled(statement, odd))
    pairs = zip(plain or (), found, strict=True) if found is not None else ()
    return [(a, b) for a, b in pairs if _code(a) != _code(b) and a.replace(WORD, odd) != b]


@pytest.mark.parametrize("statement", PLACES)
def test_quoted_texts_stay_quoted(statement: str) -> None:
    assert _planned(_filled(statement, WORD)) is not None, _plan(_filled(statement, WORD), "result")
    for odd in ODD:
        assert not _differences(statement, odd), odd


def _calls(name: str) -> Iterator[list[str]]:
    """Calls of a function that differ in the other arguments, for each place of one."""
    function = FUNCTIONS[name]
    for count in {c for c in function.templates if isinstance(c, int) and c > 0} | {max(1, function.least)}:
        for at in range(min(count, MOST)):
            yield [f"{name}({', '.join([other] * at + [QUOTED] + [other] * (count - at - 1))})" for other in OTHERS]


@pytest.mark.parametrize("where", ["SELECT {} AS x FROM t", ORDERED, *AGGREGATED])
def test_arguments_of_every_function_stay_quoted(where: str) -> None:
    aggregate, tried = where != "SELECT {} AS x FROM t", set()
    for name in sorted(n for n, f in FUNCTIONS.items() if f.aggregate == aggregate and n.isidentifier()):
        for calls in _calls(name):
            for statement in (where.replace("{}", call) for call in calls):
                if _planned(_filled(statement, WORD)) is not None:
                    tried.add(name)
                    for odd in FEW:
                        assert not _differences(statement, odd), (statement, odd)
                    break
    assert len(tried) > (4 if aggregate else 100), tried
