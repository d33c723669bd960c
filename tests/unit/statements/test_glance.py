"""A text that is PostgreSQL's at a glance is PostgreSQL's by the long way too, and changes no setting."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgstream import statements
from pgstream.catalog.mentions import Mentions
from pgstream.server.search_path import SearchPath
from pgstream.statements import glance, heading
from tests.unit.statements.snapshots import SNAPSHOT, session

OURS = [s.words for s in statements.STATEMENTS]
OLDER = [tuple(heading.OLDER.get(word, word) for word in words) for words in OURS]
WORDS = sorted(
    {word for words in OURS + OLDER for word in words}
    | {"SELECT", "WITH", "INSERT", "INTO", "UPDATE", "DELETE", "VALUES", "BEGIN", "COMMIT", "END", "ROLLBACK", "TO",
       "set_config", "search_path", "pg_settings", "deltastream.sys", "pageviews", "pg_catalog.",
       "pg_terminate_backend(1)", "pg_cancel_backend($1)", "Users", "t", "1", "'pageviews'"}
)  # fmt: skip
SPACE = st.sampled_from([" ", " ", " ", "\n\t", "/**/", "--x\n", ", ", "(", '"', ";", "; ", "."])
STATEMENTS = st.lists(st.tuples(st.sampled_from(WORDS), SPACE), min_size=1, max_size=7).map(
    lambda pairs: "".join(word + space for word, space in pairs)
)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT abalance FROM pgbench_accounts WHERE aid = 12345;",
        "select 1",
        " \n WITH x AS (SELECT 1) SELECT * FROM x ;\n",
        "UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = $1",
        "INSERT INTO pgbench_history (tid, mtime) VALUES (1, CURRENT_TIMESTAMP);",
        "DELETE FROM t",
        "VALUES (1)",
        "BEGIN",
        "COMMIT;",
        "end ;",
        "ROLLBACK",
    ],
)
def test_seen(text: str) -> None:
    assert glance.is_postgres(text.encode(), SNAPSHOT)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM pageviews",
        "INSERT INTO PageViews SELECT 1",
        "SELECT 1; LIST STREAMS",
        "SELECT 'a;b'",
        "SELECT 'é'",
        "SELECT set_config('search_path', 'x', false)",
        "UPDATE pg_settings SET setting = 'x' WHERE name = 'Search_Path'",
        "SELECT * FROM deltastream.sys.queries",
        "SELECT pg_terminate_backend(1)",
        " select\tpg_catalog . pg_cancel_backend($1);",
        "SELECTED",
        "BEGIN APPLICATION a",
        "BEGIN; SELECT 1",
        "ROLLBACK TO s",
        "INSERT INTO ENTITY x VALUES (1)",
        "UPDATE STORE s WITH ('a' = 1)",
        "/* a */ SELECT 1",
        "SET search_path = x",
        "",
        "SELECT " + "1" * glance.LONGEST,
    ],
)
def test_the_long_way(text: str) -> None:
    assert not glance.is_postgres(text.encode(), SNAPSHOT)


def test_no_statement_of_ours_is_taken_for_postgresqls() -> None:
    for words in OURS + OLDER:
        for text in (" ".join(words), " ".join(words) + " x WITH ('a' = 1)", "\n".join(words).lower() + " x;"):
            of_both = statements.recognize(text, SNAPSHOT, session()) is None
            assert of_both or not glance.is_postgres(text.encode(), SNAPSHOT), text


@given(STATEMENTS)
def test_a_yes_is_right(text: str) -> None:
    if not glance.is_postgres(text.encode(), SNAPSHOT):
        return
    assert statements.recognize(text, SNAPSHOT, session()) is None
    path = SearchPath({})
    path.saw(text)
    assert not path.touched


NAMES = ["clicks", "a b", "Orders", "größe", "x-1", "$1", "a$b", *(f"s{n}" for n in range(60))]


PARTS = [*NAMES, "s", "Clicks", "ORDERS", "GRÖßE", "clicksx", " ", " ", " ", '"', ".", "(", "$"]


@pytest.mark.parametrize("count", [0, 1, 7, len(NAMES)])
@given(text=st.lists(st.sampled_from(PARTS)).map("".join))
def test_names_are_found_among_few_and_many(count: int, text: str) -> None:
    found = any(re.search(rf"(?<![\w$]){re.escape(name)}(?![\w$])", text, re.I) for name in NAMES[:count])
    assert Mentions(NAMES[:count]).within(text) == found
