"""Escapes that a role without a privilege tries, one table a kind: what it may not see it neither drops nor learns of.

``low`` sees a schema and may make objects in it; ``keeper`` owns a store. ``test_break_in.py`` and
``test_intruders.py`` have PostgreSQL's own statements.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pgstream import types
from pgstream.catalog import open as opening
from pgstream.catalog.privileges import Grant
from pgstream.catalog.records import QueryRecord
from pgstream.catalog.roles import reader
from pgstream.errors import EngineUnavailable
from pgstream.names import FullName, quote, quote_literal
from tests.pg.access.conftest import PASSWORD, House, NoEngine
from tests.server import within

pytestmark = pytest.mark.pg
LONG = "r" * 61
HIDING = (
    "USE ROLE useradmin", "CREATE ROLE low", "CREATE ROLE keeper", "CREATE ROLE hidden", f"CREATE ROLE {LONG}a",
    f"CREATE ROLE {LONG}b", "USE ROLE sysadmin", "GRANT USAGE ON DATABASE main TO ROLE low",
    "GRANT USAGE, CREATE ON SCHEMA main.public TO ROLE low", "GRANT USAGE ON DATABASE main TO ROLE keeper",
    "CREATE SCHEMA hidden", "CREATE DATABASE hidden", "CREATE SECRET hidden WITH ('type' = GENERIC_SECRET)",
    "CREATE COMPUTE_POOL hidden", "CREATE SCHEMA_REGISTRY hidden WITH ('type' = CONFLUENT, 'uris' = 'http://x')",
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def hidden(house: House) -> None:
    with house.connect() as c:
        for text in HIDING:
            c.execute(text.encode())
    house.user("mal", "low", "keeper")
    for name, owner in (("hidden", "sysadmin"), ("kept", "keeper")):
        house.run(house.catalog.create_store(name, "kafka", {"uris": "127.0.0.1:1"}, frozenset(), owner))
    house.relation("hidden", store="kept")
    house.relation("hidden_view", "materialized_view")
    house.relation("lows", store="hidden", owner="low")
    house.relation("low_view", "materialized_view", owner="low")


@pytest.fixture
def mal(house: House) -> Iterator[psycopg.Connection[Any]]:
    with house.connect("mal") as c:
        c.execute("USE ROLE low")
        yield c


DROPS = (
    "ROLE IF EXISTS hidden", "STORE IF EXISTS hidden", "STREAM IF EXISTS hidden", "RELATION IF EXISTS hidden",
    "MATERIALIZED VIEW IF EXISTS hidden_view", "TABLE IF EXISTS hidden_view", "TABLE IF EXISTS public.hidden_view",
    "VIEW IF EXISTS hidden", "TABLE public.hidden_view", "MATERIALIZED VIEW main.public.hidden_view", "TABLE hidden",
    "RELATION IF EXISTS main.public.hidden",
    "SCHEMA IF EXISTS hidden", "SCHEMA IF EXISTS hidden CASCADE", "DATABASE IF EXISTS hidden",
    "DATABASE IF EXISTS hidden WITH (FORCE)", "SECRET IF EXISTS hidden", "COMPUTE_POOL IF EXISTS hidden",
    "SCHEMA_REGISTRY IF EXISTS hidden",
)  # fmt: skip


def test_if_exists_drops_nothing_that_is_hidden(house: House, mal: psycopg.Connection[Any]) -> None:
    before = house.catalog.snapshot
    for drop in DROPS:
        there, missing = (_said(mal, f"DROP {text}", name) for text, name in
                          ((drop, "hidden"), (drop.replace("hidden", "absent"), "absent")))  # fmt: skip
        assert there == missing, drop
    now = house.catalog.snapshot
    assert (now.objects, now.relations, now.stores, now.schemas, now.databases) == (
        before.objects, before.relations, before.stores, before.schemas, before.databases,
    )  # fmt: skip


def test_a_backslash_beside_what_is_hidden(house: House, mal: psycopg.Connection[Any]) -> None:
    mal.execute("SET standard_conforming_strings = off")
    assert "does not exist, skipping" in _said(mal, 'DROP TABLE IF EXISTS hidden_view, "a\\\'"', "hidden_view")


SHOUTS = "\\' || public.shout())--"
"""The name of a stream of which a session without standard_conforming_strings reads the quote as the string's end."""


def test_a_backslash_in_a_streams_name(house: House, mal: psycopg.Connection[Any]) -> None:
    """Who reads a stream as a table runs PostgreSQL's refusal in its own session, and nothing that its name says."""
    mal.execute(
        "CREATE FUNCTION public.shout() RETURNS text LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'shouted by %', current_user USING ERRCODE = 'MINE0'; END $$"
    )
    house.relation(SHOUTS, store="hidden", owner="low")
    mal.execute(f"GRANT SELECT ON STREAM {quote(SHOUTS)} TO ROLE sysadmin".encode())

    def said() -> str | None:
        with house.connect() as admin, pytest.raises(psycopg.Error) as e:
            admin.execute("SET standard_conforming_strings = off")
            admin.execute(f"DO $do$ BEGIN PERFORM * FROM public.{quote(SHOUTS)}; END $do$".encode())
        return e.value.sqlstate

    assert said() == "0A000"
    # As an earlier version made it.
    call = f"SELECT pgstream_unreadable('stream', {quote_literal(str(FullName('main', 'public', SHOUTS)))})"
    house.superuser(
        f"CREATE OR REPLACE VIEW public.{quote(SHOUTS)} AS SELECT NULL::bigint AS id, NULL::varchar AS secret"
        f" FROM ts_stat({quote_literal(call)})", "main",
    )  # fmt: skip
    assert said() == "MINE0"
    heal = opening.heal
    assert [s for s in house.run(heal(house.catalog._administrator, house.catalog.snapshot, ())) if "anew" in s]
    assert said() == "0A000"
    assert house.run(heal(house.catalog._administrator, house.catalog.snapshot, ())) == []
    mal.execute(f"DROP STREAM {quote(SHOUTS)}".encode())
    mal.execute("DROP FUNCTION public.shout()")


def _said(c: psycopg.Connection[Any], text: str, name: str) -> str:
    notices: list[str] = []
    c.add_notice_handler(lambda d: notices.append(d.message_primary or ""))
    try:
        answer = str(c.execute(text.encode()).fetchall())
    except psycopg.Error as e:
        answer = f"{e.sqlstate} {e.diag.message_primary} {e.diag.message_detail} {e.diag.statement_position}"
    return f"{answer} {notices}".replace(name, "NAME")


def test_dependents_that_are_hidden_are_counted_only(house: House, mal: psycopg.Connection[Any]) -> None:
    """The owner of a store, a stream or a role learns that something stands in the way, not what."""
    query = QueryRecord(
        id=str(uuid.uuid4()), name="hidden_query", version=1, kind="insert_into", sql="", owner="sysadmin", plan=b"{}",
        stores=("kept",), database="main", sources=("main.public.lows",), sinks=("main.public.hidden",),
    )  # fmt: skip
    house.run(house.catalog.create_query(query))
    said = {}
    for role, drop in (("keeper", "STORE kept"), ("low", "STREAM lows")):
        mal.execute(f'USE ROLE "{role}"'.encode())
        with pytest.raises(psycopg.errors.DependentObjectsStillExist) as e:
            mal.execute(f"DROP {drop}".encode())
        said[drop] = e.value.diag.message_detail
    assert said == dict.fromkeys(said, "Used by: none that the role sees.")
    with house.connect() as admin, pytest.raises(psycopg.errors.DependentObjectsStillExist) as e:
        admin.execute("USE ROLE orgadmin")
        admin.execute("DROP STORE kept")
    assert "main.public.hidden" in (e.value.diag.message_detail or "")


def test_each_role_has_a_reader_of_its_own(house: House) -> None:
    """Names of 63 bytes leave no room for a login's, and PostgreSQL cuts them off."""
    roles = (f"{LONG}a", f"{LONG}b", "low")
    for role in roles:
        house.run(house.catalog.reader_url("main", role))
    given = house.superuser(
        "SELECT m.rolname, r.rolname FROM pg_auth_members a JOIN pg_roles r ON r.oid = a.roleid"
        " JOIN pg_roles m ON m.oid = a.member WHERE m.rolname LIKE 'pgstream!_worker~%' ESCAPE '!'"
    )
    assert sorted(given) == sorted((reader(role), role) for role in roles)
    for role in roles:
        with psycopg.connect(house.run(house.catalog.reader_url("main", role)), autocommit=True) as c:
            c.execute(f'SET ROLE "{role}"'.encode())
            for other in {*roles, "sysadmin", "pgstream_worker"} - {role}:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    c.execute(f'SET ROLE "{other}"'.encode())


def test_tokens_count_with_their_user(
    house: House, mal: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who makes tokens runs no more streaming SELECTs with them."""
    counted: list[str] = []

    async def analyze(*_: Any) -> list[Any]:
        return [("id", types.BIGINT, True)]

    def open_result(*_: Any, user: str, **__: Any) -> None:
        counted.append(user)
        raise EngineUnavailable(why="there is none in this test")

    monkeypatch.setattr(NoEngine, "is_ready", lambda *_: True, raising=False)
    monkeypatch.setattr(NoEngine, "analyze", analyze, raising=False)
    monkeypatch.setattr(NoEngine, "open_result", open_result, raising=False)
    token = mal.execute("CREATE API_TOKEN counted WITH ('token.role_name' = low)").fetchall()[0][4]
    for user, password in (("mal", PASSWORD), ("mal~counted", token)):
        with house.connect(user, password=password) as c, pytest.raises(psycopg.Error, match="engine"):
            c.execute("USE ROLE low")
            c.execute("SELECT id FROM lows")
    assert counted == ["mal", "mal"]


def test_a_name_that_has_become_anothers_query(
    house: House, mal: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queries of one name count versions, whoever owns them: who owns what is asked of the one that is then ended."""
    mine, other = (
        QueryRecord(
            id=str(uuid.uuid4()), name="twice", version=version, kind="insert_into", sql="", owner=owner, plan=b"{}",
            stores=(), database="main", sources=(), sinks=("main.public.lows",),
        )
        for version, owner in ((1, "low"), (2, "sysadmin"))
    )  # fmt: skip
    house.run(house.catalog.create_query(mine))
    house.run(house.catalog.create_query(other))
    asked = house.catalog.query
    for text in ("TERMINATE QUERY twice", "RESTART QUERY twice", "DESCRIBE QUERY EVENTS twice"):
        first = [mine]

        async def query(ref: str, *, at: int | None = None, first: list[QueryRecord] = first) -> QueryRecord:
            return first.pop() if first else await asked(ref, at=at)

        monkeypatch.setattr(house.catalog, "query", query)
        with pytest.raises(psycopg.errors.UndefinedObject, match='query "twice" does not exist'):
            mal.execute(text.encode())


LOG = "'source.deserialization.error.handling' = IGNORE_AND_LOG, 'source.deserialization.error.log.topic' = 'victim'"


def test_bad_records_go_where_who_names_the_topic_may_write(house: House, mal: psycopg.Connection[Any]) -> None:
    """SELECT on a stream is no right to write into its store, nor its owner's to write into one that it may not use."""
    of_store = "'source.deserialization.error.log.store' = {}"
    said = {
        store: _said(mal, f"SELECT id FROM lows WITH ({LOG}, {of_store.format(store)})", store)
        for store in ("hidden", "absent")
    }
    assert said["hidden"] == said["absent"]
    assert said["hidden"].startswith('42704 store "NAME" does not exist')
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match='denied for the store of stream "lows"'):
        mal.execute(f"SELECT id FROM lows WITH ({LOG})".encode())
    house.run(house.catalog.authority.grant([Grant("low", "usage", "store", "kept")]))
    declared = (
        "CREATE STREAM logs (i INTEGER) WITH ('store' = kept, 'topic' = 'hidden', 'value.format' = 'json', {}, {})"
    )
    with pytest.raises(psycopg.errors.UndefinedObject, match='store "hidden" does not exist'):
        mal.execute(declared.format(LOG, of_store.format("hidden")).encode())
    options = {"value.format": "json", "source.deserialization.error.handling": "ignore_and_log",
               "source.deserialization.error.log.topic": "victim"}  # fmt: skip
    stores = {"logs_kept": ("kept", {}), "logs_hidden": ("kept", {"source.deserialization.error.log.store": "hidden"})}
    for name, (store, more) in stores.items():
        house.relation(name, store=store, owner="low", properties=options | more)
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="denied for stream logs_hidden"):
        mal.execute("SELECT id FROM logs_hidden")  # what an earlier version has let be
    with pytest.raises(psycopg.OperationalError, match="engine"):
        mal.execute("SELECT id FROM logs_kept")
    house.run(house.catalog.authority.revoke([Grant("low", "usage", "store", "kept")]))
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="denied for stream logs_kept"):
        mal.execute("SELECT id FROM logs_kept")


@pytest.mark.parametrize(
    ("kind", "options", "named"),
    [("postgresql", {"uris": "postgresql://127.0.0.1:1/x", "postgres.username": "u"}, "postgresql.slot.name"),
     ("postgresql", {"uris": "postgresql://127.0.0.1:1/x", "postgres.username": "u"}, "postgresql.publication.name"),
     ("kinesis", {"kinesis.region": "us-east-1"}, "kinesis.consumer.name")],
)  # fmt: skip
def test_what_a_store_has_one_of_is_no_readers(
    house: House, mal: psycopg.Connection[Any], kind: str, options: dict[str, str], named: str
) -> None:
    """Who reads by another's replication slot takes its changes from it; SELECT on a stream is no right to that."""
    store = named.replace(".", "_")
    house.run(house.catalog.create_store(store, kind, options, frozenset(), "keeper"))
    house.relation(f"s_{store}", store=store, owner="keeper")
    house.run(house.catalog.authority.grant([Grant("low", "select", "relation", f"main.public.s_{store}")]))
    text = f"SELECT id FROM s_{store} WITH ('{named}' = 'anothers')"
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match=f'denied for the store of stream "s_{store}"') as e:
        mal.execute(text.encode())
    assert e.value.diag.statement_position == str(text.index("'anothers'") + 1)
    house.run(house.catalog.authority.grant([Grant("low", "usage", "store", store)]))
    with pytest.raises(psycopg.OperationalError, match="engine"):
        mal.execute(text.encode())


def test_a_short_text_that_stands_for_much(house: House, mal: psycopg.Connection[Any]) -> None:
    """It would keep the server and the pool from everybody, or end them."""
    call = "'x'"
    for _ in range(6):
        call = f"JSON_QUERY({call}, '$.a')"
    with pytest.raises(psycopg.OperationalError, match="engine"):
        mal.execute(f"SELECT {call} FROM lows".encode())
    many = ", ".join(f"{call} AS c{n}" for n in range(20))
    with pytest.raises(psycopg.OperationalError, match="the query is too complex") as e:
        mal.execute(f"SELECT {many} FROM lows".encode())
    assert e.value.sqlstate == "54001"


def test_who_is_only_postgresqls_does_not_come_in(house: House) -> None:
    """A login of an external PostgreSQL's own, whatever it asks for, is answered as one that does not exist."""
    house.superuser(f"CREATE ROLE stranger LOGIN PASSWORD '{PASSWORD}'")
    try:
        house.connect("admin", "postgres").close()
        for options in ("", "-c role=none", "-c role=stranger"):
            with pytest.raises(psycopg.OperationalError) as e:
                house.connect("stranger", "postgres", options=options)
            assert 'password authentication failed for user "stranger"' in str(e.value)
    finally:
        house.superuser("DROP ROLE stranger")


@pytest.mark.parametrize("setting", ["on", "off"])
@pytest.mark.parametrize("name", [r"x\' OR public.planted()) --", "x$pgstream$; SELECT public.planted()", "\\"])
def test_a_name_is_no_code_in_a_session_of_other_strings(house: House, name: str, setting: str) -> None:
    quoted = '"' + name + '"'
    with house.connect("admin") as admin:
        admin.execute("CREATE FUNCTION public.planted() RETURNS boolean LANGUAGE plpgsql AS"
                      " 'BEGIN RAISE EXCEPTION ''it ran''; END'")  # fmt: skip
        try:
            admin.execute(f"CREATE SCHEMA {quoted}".encode())
            admin.execute(f"CREATE TABLE {quoted}.t (i int)".encode())
            admin.execute(f"SET standard_conforming_strings = {setting}".encode())
            with pytest.raises(psycopg.errors.DependentObjectsStillExist) as e:
                admin.execute(f"BEGIN; DROP SCHEMA {quoted}".encode())
            assert e.value.diag.message_detail == f"table {quoted}.t depends on schema {name}"
            admin.execute("ROLLBACK")
            for text in ("BEGIN", f"DROP SCHEMA {quoted} CASCADE", "COMMIT"):
                admin.execute(text.encode())
            there = f"SELECT 1 FROM pg_namespace WHERE nspname = $x${name}$x$"
            within(10, lambda: house.superuser(there, "main") == [])
        finally:
            admin.execute("ROLLBACK")
            admin.execute("SET standard_conforming_strings = on")
            admin.execute("DROP FUNCTION public.planted()")
