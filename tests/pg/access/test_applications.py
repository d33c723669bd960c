"""Applications: each of their statements is asked for what it needs, where those before it would have been done.

``low`` reads ``theirs``, writes ``sink`` and may make objects in ``main.public`` over store ``usable``; everything
called hidden is sysadmin's alone. No statement here reaches a store or Spark: the analyzer is played.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pgstream import types
from pgstream.catalog.privileges import Grant
from pgstream.catalog.records import QueryRecord
from pgstream.errors import StoreUnreachable
from tests.pg.access.conftest import House, NoEngine

pytestmark = pytest.mark.pg
GRANTS = (
    ("usage", "database", "main"), ("usage", "schema", "main.public"), ("create", "schema", "main.public"),
    ("usage", "store", "usable"), ("create_query", "organization", ""), ("select", "relation", "main.public.theirs"),
    ("insert", "relation", "main.public.sink"),
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def rights(house: House) -> None:
    with house.connect() as c:
        for text in ("USE ROLE useradmin", "CREATE ROLE low", "USE ROLE sysadmin", "CREATE SCHEMA hidden",
                     "CREATE DATABASE hidden"):  # fmt: skip
            c.execute(text.encode())
    house.user("mal", "low")
    for name in ("usable", "hidden"):
        house.run(house.catalog.create_store(name, "kafka", {"uris": "127.0.0.1:1"}, frozenset(), "sysadmin"))
    house.run(house.catalog.authority.grant([Grant("low", *g) for g in GRANTS]))
    for name in ("theirs", "sink", "hidden"):
        house.relation(name, store="usable")
    house.relation("hidden_view", "materialized_view")


@pytest.fixture
def mal(house: House, monkeypatch: pytest.MonkeyPatch) -> Iterator[psycopg.Connection[Any]]:
    async def analyze(*_: Any) -> list[Any]:
        return [("id", types.BIGINT, True), ("secret", types.TEXT, True)]

    def none(*_: Any) -> None:
        raise StoreUnreachable(name="usable", why="there is none in this test")

    monkeypatch.setattr(NoEngine, "analyze", analyze, raising=False)
    monkeypatch.setattr(NoEngine, "is_ready", lambda *_: True, raising=False)
    monkeypatch.setattr("pgstream.stores.open_admin", none)
    with house.connect("mal") as c:
        c.execute("USE ROLE low")
        yield c


OWN = "CREATE STREAM own (id BIGINT, secret VARCHAR) WITH ('store' = usable, 'value.format' = 'json')"
VIRTUAL = "CREATE VIRTUAL STREAM virtual.public.v AS SELECT * FROM {}"
COPY = "INSERT INTO sink SELECT * FROM {}"
ALLOWED = (
    COPY.format("theirs"), f"{VIRTUAL.format('theirs')}; {COPY.format('virtual.public.v')}",
    f"USE SCHEMA public; {OWN}; INSERT INTO own SELECT * FROM theirs", "USE DATABASE main; USE STORE usable; "
    "CREATE STREAM own AS SELECT * FROM theirs",
)  # fmt: skip
REFUSED = {
    "INSERT INTO theirs SELECT * FROM theirs": "42501 permission denied for relation theirs",
    "INSERT INTO hidden SELECT * FROM theirs": '42P01 relation "hidden" does not exist',
    COPY.format("hidden"): '42P01 relation "hidden" does not exist',
    COPY.format("main.public.hidden"): '42P01 relation "main.public.hidden" does not exist',
    COPY.format("hidden_view"): '42P01 relation "hidden_view" does not exist',
    COPY.format("(SELECT * FROM hidden) x"): '42P01 relation "hidden" does not exist',
    COPY.format("theirs WHERE id IN (SELECT id FROM hidden)"): '42P01 relation "hidden" does not exist',
    "INSERT INTO sink WITH c AS (SELECT * FROM hidden) SELECT * FROM c": '42P01 relation "hidden" does not exist',
    COPY.format("theirs JOIN hidden USING (id)"): '42P01 relation "hidden" does not exist',
    VIRTUAL.format("hidden"): '42P01 relation "hidden" does not exist',
    f"CREATE VIRTUAL CHANGELOG virtual.public.v AS SELECT id FROM hidden GROUP BY id; {COPY.format('theirs')}":
        '42P01 relation "hidden" does not exist',
    f"{VIRTUAL.format('theirs')}; INSERT INTO virtual.public.v SELECT * FROM theirs":
        "42601 a virtual relation is written by the statement that creates it, and by no other",
    f"{VIRTUAL.format('sink')}; {COPY.format('virtual.public.v')}": "42501 permission denied for relation sink",
    "USE DATABASE hidden; CREATE STREAM s AS SELECT * FROM main.public.theirs":
        '3D000 database "hidden" does not exist',
    "USE SCHEMA hidden; CREATE STREAM s AS SELECT * FROM main.public.theirs": '3F000 schema "hidden" does not exist',
    "USE STORE hidden; CREATE STREAM s AS SELECT * FROM theirs": '42704 store "hidden" does not exist',
    f"{OWN}; CREATE STREAM hidden.s AS SELECT * FROM own": '3F000 schema "hidden" does not exist',
    OWN.replace("usable", "hidden"): '42704 store "hidden" does not exist',
    "CREATE STREAM s WITH ('store' = hidden) AS SELECT * FROM theirs": '42704 store "hidden" does not exist',
    "CREATE STREAM virtual.public.s (id BIGINT) WITH ('store' = usable, 'value.format' = 'json')":
        '3D000 database "virtual" does not exist',
    "USE DATABASE virtual; " + OWN: '3D000 database "virtual" does not exist',
    "USE ROLE sysadmin; " + OWN: "42601 USE ROLE cannot be used in an application",
}  # fmt: skip


def application(body: str) -> str:
    return f"BEGIN APPLICATION a {body}; END APPLICATION"


def said(c: psycopg.Connection[Any], text: str) -> str:
    with pytest.raises(psycopg.Error) as e:
        c.execute(text.encode())
    return f"{e.value.sqlstate} {e.value.diag.message_primary}"


@pytest.mark.parametrize("body", REFUSED)
def test_what_a_statement_may_not_do_alone_it_may_not_do_here(
    house: House, mal: psycopg.Connection[Any], body: str
) -> None:
    before = house.catalog.snapshot.relations
    assert said(mal, application(body)) == REFUSED[body]
    assert said(mal, f"DESCRIBE {application(body)}") == REFUSED[body]
    for allowed in ALLOWED[:2]:  # as the last one of several, too
        assert said(mal, application(f"{allowed.replace('.v', '.w')}; {body}")) == REFUSED[body]
    assert house.catalog.snapshot.relations == before
    assert house.run(house.catalog.queries(True)) == [q for q in house.run(house.catalog.queries(True)) if not q.name]


@pytest.mark.parametrize("body", ALLOWED)
def test_what_its_statements_may_do_it_may(house: House, mal: psycopg.Connection[Any], body: str) -> None:
    [row] = mal.execute(f"DESCRIBE {application(body)}".encode()).fetchall()
    assert row[0] == "APPLICATION"
    assert said(mal, application(body)).startswith("58000 ")  # as far as the store
    needs = [Grant("low", *g) for g in GRANTS if g[:2] == ("create_query", "organization")]
    house.run(house.catalog.authority.revoke(needs))
    try:
        assert said(mal, application(body)) == "42501 permission denied for organization default"
    finally:
        house.run(house.catalog.authority.grant(needs))


@pytest.fixture
def made(house: House) -> Iterator[QueryRecord]:
    """An application of sysadmin's that reads and writes what ``low`` does."""
    query = QueryRecord(
        id=str(uuid.uuid4()), name=f"app_{uuid.uuid4().hex}", version=1, kind="application", sql="", owner="sysadmin",
        plan=b"{}", stores=("usable",), database="main", sources=("main.public.theirs",),
        sinks=("main.public.sink", "main.public.theirs"),
    )  # fmt: skip
    yield house.run(house.catalog.create_query(query))
    house.run(house.catalog.set_query(query.id, intended="terminated", actual="terminated"))


OF_QUERY = ("DESCRIBE QUERY {}", "DESCRIBE QUERY STATE {}", "DESCRIBE QUERY METRICS {}", "DESCRIBE QUERY EVENTS {}",
            "TERMINATE QUERY {}", "RESTART QUERY {}", "RESTART QUERY {} IN COMPUTE_POOL default",
            "ALTER QUERY {} ADD TAG 'a' = 'b'", "ALTER QUERY {} OWNER TO low",
            "GRANT OWNERSHIP ON QUERY {} TO ROLE low",
            "GRANT USAGE ON QUERY {} TO ROLE low", "REVOKE USAGE ON QUERY {} FROM ROLE low",
            "INSERT INTO sink SELECT * FROM theirs QUERY WITH ('resume.from.query.id' = {})",
            "BEGIN APPLICATION a INSERT INTO sink SELECT * FROM theirs; END APPLICATION"
            " WITH ('resume.from.query.id' = {})")  # fmt: skip


def test_anothers_application_does_not_exist(house: House, mal: psycopg.Connection[Any], made: QueryRecord) -> None:
    """Nor what its relations' readers and writers may know of it; who may use it sees it, and does nothing to it."""
    absent = str(uuid.uuid4())
    for text in OF_QUERY:
        for ref, other in ((made.id, absent), (made.name or "", "app_absent")):
            if text.startswith(("GRANT", "REVOKE", "ALTER QUERY {} OWNER")) and ref == made.name:
                continue  # these take ids
            assert said(mal, text.format(ref)).replace(ref, "X") == said(mal, text.format(other)).replace(other, "X")
    assert mal.execute("LIST QUERIES WITH ('all')").fetchall() == []
    house.run(house.catalog.authority.grant([Grant("low", "usage", "query", made.id)]))
    assert [row[0] for row in mal.execute("LIST QUERIES").fetchall()] == [made.id]
    for text in OF_QUERY[4:12]:
        assert said(mal, text.format(made.id)).startswith("42501 "), text
    for text in OF_QUERY[12:14]:
        assert said(mal, text.format(made.id)) == f'55000 query "{made.id}" has not ended', text


def test_an_application_lives_by_its_owners_rights(
    house: House, mal: psycopg.Connection[Any], made: QueryRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that its role may no more write with, in one of its sinks, stops, and says which."""

    async def restart(*_: Any) -> None:
        pass

    monkeypatch.setattr(NoEngine, "restart", restart, raising=False)
    authority = house.catalog.authority
    house.run(authority.grant([Grant("low", "insert", "relation", "main.public.theirs")]))
    house.run(authority.give("query", made.id, "low"))
    assert mal.execute(f"RESTART QUERY {made.id}".encode()).fetchall()
    house.run(authority.revoke([Grant("low", "insert", "relation", "main.public.theirs")]))
    with pytest.raises(psycopg.errors.InsufficientPrivilege) as e:
        mal.execute(f"RESTART QUERY {made.id}".encode())
    assert e.value.diag.message_detail == 'Its role "low" does not have INSERT on relation main.public.theirs.'
