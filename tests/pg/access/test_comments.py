"""COMMENT ON relations, columns and schemas of the catalogue, and the refusal of changes of a view's rows."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.pg.access.conftest import Ask, House

pytestmark = pytest.mark.pg


def of_relation(ask: Ask, name: str) -> Any:
    return ask(f"SELECT obj_description('{name}'::regclass), col_description('{name}'::regclass, 1)")[0]


def test_words_of_any_client(house: House, ask: Ask) -> None:
    house.relation("said")
    house.relation("said_view", "materialized_view")
    ask("COMMENT ON VIEW said IS 'the events'", "COMMENT ON COLUMN main.public.said.id IS 'it''s a number'")
    assert of_relation(ask, "said") == ("the events", "it's a number")
    ask("COMMENT ON MATERIALIZED VIEW public.said_view IS 'counts'", "comment on column said_view.id is 'which';")
    assert of_relation(ask, "said_view") == ("counts", "which")
    assert ask("DESCRIBE RELATION COLUMNS said_view") == [
        ("id", "BIGINT", True, '{"description": "which"}'), ("secret", "VARCHAR", True, "{}"),
    ]  # fmt: skip
    ask(
        "COMMENT ON VIEW said IS $dbt_comment$it's $1 'or' \\ $$2$$$dbt_comment$", "COMMENT ON COLUMN said.id IS $$\n$$"
    )
    assert of_relation(ask, "said") == ("it's $1 'or' \\ $$2$$", "\n")
    ask("COMMENT ON TABLE said IS NULL", "COMMENT ON COLUMN said.id IS NULL")
    assert of_relation(ask, "said") == ("stream", None)


@pytest.mark.parametrize(
    ("text", "code", "at"),
    [
        ("COMMENT ON COLUMN wrong.nope IS 'x'", "42703", "19"),
        ("COMMENT ON COLUMN wrong IS 'x'", "42601", None),
        ("COMMENT ON CHANGELOG wrong IS 'x'", "42809", "22"),
        ("COMMENT ON VIEW wrong IS x", "42601", "26"),
        ("COMMENT ON SCHEMA nope IS 'x'", "3F000", "19"),
        ("COMMENT ON SCHEMA public IS 'pgstream: made in transaction 7'", "22023", "19"),
        ("COMMENT ON DATABASE main IS 'x'", "0A000", "12"),
        ("DELETE FROM wrong_view", "42809", "13"),
        ("/* c */ UPDATE public.wrong_view SET id = 1", "42809", "16"),
        ("INSERT INTO wrong_view VALUES (1)", "42809", "13"),
        ("TRUNCATE ONLY wrong_view", "42809", "15"),
        ("TRUNCATE wrong", "0A000", "1"),
    ],
)
def test_refused(house: House, ask: Ask, text: str, code: str, at: str | None) -> None:
    if ("main", "public", "wrong") not in house.catalog.snapshot.relations:
        house.relation("wrong")
        house.relation("wrong_view", "materialized_view")
    with pytest.raises(psycopg.Error) as e:
        ask(text)
    place = e.value.diag.statement_position
    assert (e.value.diag.sqlstate, place) == (code, at)


def test_only_its_owner(house: House, ask: Ask) -> None:
    house.relation("owned")
    house.user("carl", "public")
    ask("GRANT USAGE ON DATABASE main TO ROLE public", "GRANT USAGE ON SCHEMA main.public TO ROLE public",
        "GRANT SELECT ON RELATION owned TO ROLE public", role="sysadmin")  # fmt: skip
    for text in (
        "COMMENT ON VIEW owned IS 'x'",
        "COMMENT ON COLUMN owned.id IS 'x'",
        "COMMENT ON SCHEMA public IS 'x'",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            ask(text, user="carl")


def test_what_is_postgresqls_is_its_own(ask: Ask) -> None:
    ask("CREATE TABLE plain (a int)", "COMMENT ON TABLE plain IS $$its own$$", "COMMENT ON COLUMN plain.a IS E'a\\tb'")
    assert of_relation(ask, "plain") == ("its own", "a\tb")


SEEN = "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = 'said_of'"


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_schema_in_the_transaction_that_makes_it(ask: Ask, end: str) -> None:
    ask("BEGIN", "CREATE SCHEMA said_of", "CREATE TABLE said_of.t (a int)", "COMMENT ON SCHEMA said_of IS 'a\nb'", end)
    assert ask("LIST SCHEMAS") and ask(SEEN) == ([("a\nb",)] if end == "COMMIT" else [])
    if end == "COMMIT":
        ask("COMMENT ON SCHEMA main.said_of IS NULL")
        assert ask(SEEN) == [(None,)]
        ask("DROP SCHEMA said_of CASCADE")


def test_a_temporary_table_hides_a_view(house: House) -> None:
    house.relation("veiled_view", "materialized_view")
    with house.connect() as conn:
        conn.execute("CREATE TEMP TABLE veiled_view (id int)")
        conn.execute("INSERT INTO veiled_view VALUES (1), (2)")
        conn.execute("ALTER TABLE veiled_view ADD COLUMN more int")
        conn.execute("UPDATE veiled_view SET more = 1")
        conn.execute("DELETE FROM veiled_view WHERE id = 1")
        conn.execute("COMMENT ON TABLE veiled_view IS 'my own'")
        assert conn.execute("SELECT * FROM veiled_view").fetchall() == [(2, 1)]
        conn.execute("TRUNCATE veiled_view")
        found = conn.execute("SELECT obj_description('public.veiled_view'::regclass)").fetchone()
        assert found == ("materialized view",)
        for text in ("INSERT INTO public.veiled_view VALUES (1)", "TRUNCATE public.veiled_view"):
            with pytest.raises(psycopg.errors.WrongObjectType):
                conn.execute(text.encode())
