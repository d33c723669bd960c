"""The catalogue against a real PostgreSQL: records, derived objects, refusals, and what a crash leaves behind."""

from __future__ import annotations

import asyncio
import json
import stat
import time
import uuid
from collections.abc import Callable
from dataclasses import replace

import psycopg
import pytest

from pgstream import types
from pgstream.catalog import crypto, migrations, models, undecided
from pgstream.catalog.databases import CONTROL, STATE
from pgstream.catalog.records import ColumnRecord, QueryRecord, RelationRecord
from pgstream.catalog.store import Catalog
from pgstream.embedded.postgres import Postgres
from pgstream.engine import progress
from pgstream.errors import (
    ConfigurationError,
    DependentsExist,
    DuplicateColumn,
    DuplicateDatabase,
    DuplicateObject,
    DuplicateRelation,
    DuplicateSchema,
    NotSupported,
    ObjectInUse,
    RelayedError,
    ReservedName,
    UnacceptableSchemaName,
    UndefinedDatabase,
    UndefinedQuery,
    UndefinedRelation,
    UndefinedSchema,
    UndefinedStore,
)
from pgstream.names import FullName
from tests.pg.catalog.conftest import eventually

pytestmark = pytest.mark.pg


def columns(**named: str) -> tuple[ColumnRecord, ...]:
    return tuple(ColumnRecord(name, types.parse(type)) for name, type in named.items())


def stream(name: str = "pageviews", **given: object) -> RelationRecord:
    return replace(
        RelationRecord(
            id=str(uuid.uuid4()),
            full=FullName("main", "public", name),
            kind="stream",
            columns=columns(viewtime="BIGINT", userid="VARCHAR", tags="ARRAY<VARCHAR>", who='STRUCT<"Id" BIGINT>'),
            owner="sysadmin",
            entity=name,
            properties={"value.format": "json"},
        ),
        **given,
    )


def view(name: str = "counts") -> RelationRecord:
    return replace(
        stream(name),
        kind="materialized_view",
        columns=columns(userid="VARCHAR", n="BIGINT"),
        entity=None,
        properties={},
    )


def query(sink: str, mode: str = "upsert", key: tuple[str, ...] = ("userid",), **given: object) -> QueryRecord:
    plan = {"root": {}, "sink": {"type": "view", "mode": mode, "key": list(key), "table": "t"}}
    record = QueryRecord(
        id=str(uuid.uuid4()),
        name=None,
        version=0,
        kind="create_materialized_view",
        sql="CREATE …",
        plan=json.dumps(plan).encode(),
        owner="sysadmin",
        database="main",
        sources=("main.public.pageviews",),
        sinks=(f"main.public.{sink}",),
        stores=("k",),
    )
    return replace(record, **given)


async def test_first_start_makes_user_database_and_roles(catalog: Catalog, ask) -> None:
    assert set(catalog.snapshot.databases) == {"main"}
    assert set(catalog.snapshot.schemas) == {("main", "public")}
    assert catalog.generated_password is None
    assert ask("SELECT session_user, current_user, pg_has_role('admin', 'useradmin', 'member')") == [
        ["admin", "sysadmin", True]
    ]
    assert ask("SELECT pg_has_role('admin', 'orgadmin', 'usage'), pg_has_role('admin', 'orgadmin', 'member')") == [
        [False, True]
    ]
    # Ordinary tables and temporary ones are the client's own business.
    ask("CREATE TABLE mine (i int)")
    ask("CREATE TEMPORARY TABLE t (i int)")
    assert ask("SELECT rolsuper OR rolcreaterole OR rolcreatedb FROM pg_roles WHERE rolname = 'admin'") == [[False]]


async def test_users_cannot_reach_the_control_database_or_the_hidden_schema(catalog: Catalog, ask) -> None:
    with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
        ask("SELECT 1", database="pgstream_control")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        ask("SELECT * FROM pg_pgstream.ledger")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        ask("DROP SCHEMA public")


async def test_generated_password_opens_the_door_once(postgres, config, catalog: Catalog, ask) -> None:
    ask("DROP ROLE admin", user=None)
    await catalog.close()
    first = await Catalog.open(replace(config, admin_password=""), postgres.url, config.data_dir)
    assert first.generated_password
    assert ask("SELECT 1", password=first.generated_password) == [[1]]
    await first.close()
    second = await Catalog.open(replace(config, admin_password="other"), postgres.url, config.data_dir)
    assert second.generated_password is None
    assert ask("SELECT 1", password=first.generated_password) == [[1]]
    await second.close()


async def test_first_user_may_not_have_a_name_of_ours(postgres, config, catalog: Catalog) -> None:
    for name in ("pgstream", "pgstream_worker", "orgadmin", "pg_monitor"):
        with pytest.raises(ConfigurationError, match="admin_user"):
            await Catalog.open(replace(config, admin_user=name), postgres.url, config.data_dir)


async def test_stores_keep_secrets_apart(catalog: Catalog, ask, config) -> None:
    options = {"uris": "b:9092", "kafka.sasl.password": "hush"}
    made = await catalog.create_store("k", "kafka", options, frozenset({"kafka.sasl.password"}), "sysadmin")
    assert made.options == {"uris": "b:9092"} and made.created_at is not None
    assert catalog.snapshot.stores["k"] == made
    assert await catalog.store_options("k") == options
    kept = ask("SELECT value FROM store_secrets", user=None, database="pgstream_control")
    assert b"hush" not in kept[0][0]
    assert stat.S_IMODE((config.data_dir / "secret.key").stat().st_mode) == 0o600
    with pytest.raises(DuplicateObject) as e:
        await catalog.create_store("k", "kafka", {}, frozenset(), "sysadmin", at=13)
    assert e.value.at == 13
    # Updated: what was secret and is given no more is gone.
    await catalog.update_store("k", {"uris": "c:3", "tls.key": "hush"}, frozenset({"tls.key"}))
    assert await catalog.store_options("k") == {"uris": "c:3", "tls.key": "hush"}
    assert "tls.key" not in catalog.snapshot.stores["k"].options
    assert len(ask("SELECT value FROM store_secrets", user=None, database="pgstream_control")) == 1
    with pytest.raises(UndefinedStore):
        await catalog.update_store("nope", {}, frozenset())
    await catalog.drop_store("k")
    assert not catalog.snapshot.stores
    assert ask("SELECT count(*) FROM store_secrets", user=None, database="pgstream_control") == [[0]]
    with pytest.raises(UndefinedStore):
        await catalog.drop_store("k")


async def test_drop_store_is_refused_while_used(catalog: Catalog) -> None:
    await catalog.create_store("k", "kafka", {}, frozenset(), "sysadmin")
    await catalog.create_relation(stream(store="k"))
    with pytest.raises(DependentsExist) as e:
        await catalog.drop_store("k")
    assert e.value.detail == "Used by: relation main.public.pageviews."


async def test_stream_lists_columns_and_refuses_reads(catalog: Catalog, ask) -> None:
    made = await catalog.create_relation(stream())
    assert catalog.snapshot.relations["main", "public", "pageviews"] == made
    listed = ask(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = 'pageviews'::regclass AND attnum > 0 ORDER BY attnum"
    )
    assert listed == [
        ["viewtime", "bigint"],
        ["userid", "character varying"],
        ["tags", "character varying[]"],
        ["who", "jsonb"],
    ]
    for read in ("SELECT * FROM pageviews", "SELECT count(*) FROM pageviews", "TABLE pageviews"):
        with pytest.raises(psycopg.errors.FeatureNotSupported) as e:
            ask(read)
        assert str(e.value.diag.message_primary) == 'stream "main.public.pageviews" cannot be read as a table'
        assert e.value.diag.message_hint
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        ask("DROP VIEW pageviews")
    assert ask("SELECT obj_description('pageviews'::regclass)") == [["stream"]]


async def test_relation_refusals(catalog: Catalog, ask) -> None:
    await catalog.create_relation(stream())
    with pytest.raises(DuplicateRelation):
        await catalog.create_relation(stream(), at=14)
    ask("CREATE TABLE plain (i int)")
    with pytest.raises(DuplicateRelation) as e:
        await catalog.create_relation(stream("plain"), at=14)
    assert e.value.at == 14 and ("main", "public", "plain") not in catalog.snapshot.relations
    with pytest.raises(UndefinedDatabase):
        await catalog.create_relation(stream(full=FullName("no", "public", "x")))
    with pytest.raises(UndefinedSchema):
        await catalog.create_relation(stream(full=FullName("main", "no", "x")))
    with pytest.raises(UndefinedStore):
        await catalog.create_relation(stream("x", store="no"))
    with pytest.raises(DuplicateColumn):
        await catalog.create_relation(stream("x", columns=columns(a="BIGINT") * 2))
    with pytest.raises(ReservedName, match='column name "__time" is reserved'):
        await catalog.create_relation(stream("x", columns=columns(__time="BIGINT")))
    with pytest.raises(UndefinedRelation):
        await catalog.drop_relation(FullName("main", "public", "x"))
    with pytest.raises(RelayedError) as e:
        await catalog.create_relation(stream("x", columns=columns(**{f"c{i}": "BIGINT" for i in range(1700)})))
    assert e.value.sqlstate == "54011"
    ask("CREATE VIEW over AS SELECT userid FROM pageviews")
    with pytest.raises(DependentsExist) as f:
        await catalog.drop_relation(stream().full)
    assert f.value.detail == "view public.over depends on view public.pageviews"
    ask("DROP VIEW over")
    await catalog.drop_relation(stream().full)
    assert ask("SELECT to_regclass('pageviews')") == [[None]]


async def test_odd_names_and_types(catalog: Catalog, ask) -> None:
    odd = columns(**{'a "b" %s': "DECIMAL(20,4)", "Ünï": "TIMESTAMP_LTZ(3)", "m": "MAP<VARCHAR,BIGINT>", "b": "BYTES"})
    await catalog.create_relation(stream("Odd 'name'", columns=odd))
    assert ask("""SELECT count(*) FROM pg_attribute WHERE attrelid = '"Odd ''name''"'::regclass AND attnum > 0""") == [
        [4]
    ]
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="Odd 'name'"):
        ask("""SELECT * FROM "Odd 'name'" """)


async def test_upsert_view_has_one_row_a_key(catalog: Catalog, postgres, ask) -> None:
    made = view()
    recorded = await catalog.create_query(query("counts"), made)
    relation = catalog.snapshot.relations["main", "public", "counts"]
    assert (relation.mode, relation.primary_key, relation.query) == ("upsert", ("userid",), recorded.id)
    assert ask("SELECT * FROM counts") == []
    with psycopg.connect(catalog.worker_url("main"), autocommit=True) as worker:
        worker.execute("INSERT INTO public.counts VALUES (NULL, 1), ('u', 2)")
        with pytest.raises(psycopg.errors.UniqueViolation):
            worker.execute("INSERT INTO public.counts VALUES (NULL, 1)")
        worker.execute("CREATE UNLOGGED TABLE pg_pgstream.staging (i int)")
        worker.execute("DROP TABLE pg_pgstream.staging")
        assert worker.execute("SELECT query::text, batch, attempt FROM pg_pgstream.ledger").fetchall() == [
            (recorded.id, -1, 0)
        ]
    assert ask("SELECT * FROM counts ORDER BY n") == [[None, 1], ["u", 2]]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        ask("DELETE FROM counts")


async def test_keyless_view_has_one_row_and_append_view_many(catalog: Catalog) -> None:
    one, many = view("one"), view("many")
    await catalog.create_query(query("one", key=()), one)
    await catalog.create_query(query("many", mode="append", key=()), many)
    with psycopg.connect(catalog.worker_url("main"), autocommit=True) as worker:
        worker.execute("INSERT INTO public.many VALUES ('u', 1), ('u', 1)")
        with pytest.raises(psycopg.errors.UniqueViolation):
            worker.execute("INSERT INTO public.one VALUES ('u', 1), ('v', 1)")


async def test_query_and_relation_are_made_together_or_not_at_all(catalog: Catalog, ask) -> None:
    ask("CREATE TABLE counts (i int)")
    with pytest.raises(DuplicateRelation):
        await catalog.create_query(query("counts"), view())
    assert await catalog.queries(include_ended=True) == []
    made = await catalog.create_query(query("other"), view("other"))
    await catalog.discard_query(made.id)
    assert await catalog.queries(include_ended=True) == []
    assert not catalog.snapshot.relations
    assert ask("SELECT to_regclass('other')") == [[None]]


async def test_relations_of_live_queries_stay(catalog: Catalog) -> None:
    await catalog.create_relation(stream())
    made = await catalog.create_query(query("counts"), view())
    for name in ("pageviews", "counts"):
        with pytest.raises(DependentsExist) as e:
            await catalog.drop_relation(FullName("main", "public", name), at=5)
        assert e.value.detail == f"Used by: query {made.id}." and e.value.at == 5
    await catalog.set_query(made.id, intended="terminated", actual="terminated")
    await catalog.drop_relation(FullName("main", "public", "counts"))
    await catalog.drop_relation(FullName("main", "public", "pageviews"))


async def test_queries_that_ended_long_ago_are_forgotten(catalog: Catalog) -> None:
    """Not one that a view was made by, nor a newer version while an older one is there; what was granted on it goes."""
    kept = await catalog.create_query(query("a"), view("a"))
    old, runs, newer = [await catalog.create_query(query(n, name=None if n == "b" else "n")) for n in "bcd"]
    recent = await catalog.create_query(query("e"))
    for one in (kept, old, newer, recent):
        await catalog.set_query(one.id, intended="terminated", actual="terminated")
    with psycopg.connect(catalog.control_url, autocommit=True) as control:
        control.execute("UPDATE queries SET updated_at = now() - interval '31 days' WHERE id <> %s", [recent.id])
        control.execute("""INSERT INTO grants (role, kind, name, privilege, "column", grant_option, grantor)
            VALUES ('public', 'query', %s, 'usage', '', false, 'sysadmin')""", [old.id])  # fmt: skip
        assert await catalog.forget_ended(32) == 0 and await catalog.forget_ended(30) == 1
        assert control.execute("SELECT FROM grants WHERE name = %s", [old.id]).fetchone() is None
    left = {q.id for q in await catalog.queries(include_ended=True)}
    assert left == {kept.id, runs.id, newer.id, recent.id}
    with pytest.raises(UndefinedQuery):
        await catalog.query(old.id)


async def test_queries_by_id_name_and_version(catalog: Catalog) -> None:
    first = await catalog.create_query(query("a", name="n"))
    second = await catalog.create_query(query("b", name="n"))
    third = await catalog.create_query(query("c"))
    assert (first.version, second.version, third.version) == (1, 2, 1)
    assert (await catalog.query("n")).id == second.id
    assert (await catalog.query("n:1")).id == first.id
    assert (await catalog.query(first.id.upper())).id == first.id
    for missing in ("n:3", "m", str(uuid.uuid4())):
        with pytest.raises(UndefinedQuery):
            await catalog.query(missing)
    changed = await catalog.set_query(first.id, actual="errored", message="why", attempt=3, progress={"rows": 1})
    assert (changed.actual, changed.message, changed.attempt, changed.progress) == ("errored", "why", 3, {"rows": 1})
    assert changed.updated_at > first.updated_at
    await catalog.set_query(second.id, actual="terminated")
    assert [q.id for q in await catalog.queries()] == [first.id, third.id]
    assert len(await catalog.queries(include_ended=True)) == 3
    await catalog.record_progress({first.id: {"rows": 2}, third.id: {"rows": 3}})
    after = await catalog.query(first.id)
    assert after.progress == {"rows": 2} and after.updated_at == changed.updated_at


async def test_databases_and_schemas(catalog: Catalog, ask) -> None:
    await catalog.create_database("Second", "sysadmin")
    assert ask("SELECT current_database()", database="Second") == [["Second"]]
    await catalog.create_schema("Second", "s1", "sysadmin")
    ask("CREATE TABLE s1.t (i int)", database="Second")
    with pytest.raises(DuplicateDatabase):
        await catalog.create_database("Second", "sysadmin")
    with pytest.raises(DuplicateSchema):
        await catalog.create_schema("Second", "s1", "sysadmin")
    for name in ("pgstream_control", "postgres", "pg_x"):
        with pytest.raises(ReservedName):
            await catalog.create_database(name, "sysadmin")
    for name in ("pgstream_state", "information_schema"):
        with pytest.raises(ReservedName):
            await catalog.create_schema("Second", name, "sysadmin")
    with pytest.raises(UnacceptableSchemaName):
        await catalog.create_schema("Second", "pg_pgstream", "sysadmin")
    with pytest.raises(UndefinedDatabase):
        await catalog.create_schema("no", "s", "sysadmin")
    with pytest.raises(UndefinedSchema):
        await catalog.drop_schema("Second", "no")
    with pytest.raises(DependentsExist, match="schema"):
        await catalog.drop_schema("Second", "s1")
    with pytest.raises(DependentsExist, match="database"):
        await catalog.drop_database("Second")
    await catalog.drop_schema("Second", "s1", cascade=True)
    await catalog.create_schema("Second", "s1", "sysadmin")
    assert ask("SELECT to_regclass('s1.t')", database="Second") == [[None]]
    await catalog.create_relation(stream(full=FullName("Second", "s1", "p")))
    with pytest.raises(DependentsExist) as e:
        await catalog.drop_database("Second")
    assert e.value.detail == 'It holds 1 relation: "Second".s1.p.'
    with pytest.raises(DependentsExist):
        await catalog.drop_schema("Second", "s1", cascade=True)
    await catalog.drop_relation(FullName("Second", "s1", "p"))
    await catalog.drop_schema("Second", "s1")
    assert ("Second", "s1") not in catalog.snapshot.schemas
    await catalog.drop_database("Second")
    assert set(catalog.snapshot.databases) == {"main"}
    with pytest.raises(psycopg.OperationalError):
        ask("SELECT 1", database="Second")
    await catalog.create_database("Second", "sysadmin")


async def test_drop_database_in_use_is_refused(catalog: Catalog, postgres, ask) -> None:
    with psycopg.connect(postgres.url("main", "admin", "first's password")), pytest.raises(ObjectInUse):
        await catalog.drop_database("main")
    assert ask("SELECT 1") == [[1]]
    await catalog.drop_database("main")
    assert not catalog.snapshot.databases


async def test_dropped_first_database_stays_dropped(catalog: Catalog, reopen) -> None:
    await catalog.drop_database("main")
    again = await reopen()
    assert not again.snapshot.databases
    await again.close()


async def test_foreign_database_is_not_taken(catalog: Catalog, ask) -> None:
    """Nor opened, nor said to be somebody else's, whatever it holds."""
    ask("CREATE DATABASE theirs", user=None, database="postgres")
    ask("COMMENT ON DATABASE theirs IS 'belongs to finance'", user=None, database="postgres")
    ask("REVOKE ALL ON DATABASE theirs FROM PUBLIC", user=None, database="postgres")
    ask("ALTER DATABASE theirs ALLOW_CONNECTIONS false", user=None, database="postgres")
    look = "SELECT datallowconn, datacl::text, shobj_description(oid, 'pg_database') FROM pg_database"
    before = ask(f"{look} WHERE datname = 'theirs'", user=None)
    with pytest.raises(DuplicateDatabase) as e:
        await catalog.create_database("theirs", "sysadmin")
    assert e.value.detail == "PostgreSQL has a database of this name that is not pgstream's."
    assert ask(f"{look} WHERE datname = 'theirs'", user=None) == before
    assert "theirs" not in catalog.snapshot.databases


async def test_a_database_that_a_crash_left_is_taken_up_again(catalog: Catalog, ask) -> None:
    for name, made in (
        ("said", "COMMENT ON DATABASE said IS 'pgstream: being dropped'"),
        ("early", "ALTER DATABASE early ALLOW_CONNECTIONS false CONNECTION LIMIT 1886876532"),
        ("restored", "GRANT CONNECT ON DATABASE restored TO pgstream_worker"),
    ):
        ask(f"CREATE DATABASE {name}", user=None, database="postgres")
        ask(made, user=None, database="postgres")
        await catalog.create_database(name, "sysadmin")
        assert ask("SELECT count(*) FROM pg_pgstream.ledger", user=None, database=name) == [[0]]


@pytest.mark.parametrize(("made", "says"), [
    ("CREATE TABLE public.t (i int)", "public.t"),
    ("CREATE FUNCTION public.f(i int) RETURNS int LANGUAGE sql AS 'SELECT 1'", "function public.f(integer)"),
    ("CREATE TYPE public.mood AS ENUM ('well')", "type public.mood"),
    ("CREATE TYPE public.pair AS (a int, b int)", "type public.pair"),
    ("SELECT lo_from_bytea(47, 'valuable')", "large object 47"),
    ("CREATE SCHEMA books", "schema books"),
])  # fmt: skip
async def test_what_would_go_with_a_database(catalog: Catalog, reopen, ask, made: str, says: str) -> None:
    """Keeps it from being dropped, and, once PostgreSQL's is another one, from being taken at the next start."""
    await catalog.create_database("other", "sysadmin")
    await catalog.create_schema("other", "ours", "sysadmin")
    ask(made, user=None, database="other")
    with pytest.raises(DependentsExist) as e:
        await catalog.drop_database("other")
    assert e.value.detail == f"It holds {says}."
    ask("DROP DATABASE other", user=None, database="postgres")
    ask("CREATE DATABASE other", user=None, database="postgres")
    ask(made, user=None, database="other")
    with pytest.raises(ConfigurationError, match="already exists"):
        await reopen()


async def test_second_start_knows_everything_and_is_quick(catalog: Catalog, reopen, ask) -> None:
    await catalog.create_store("k", "kafka", {"a": "b", "s": "hush"}, frozenset({"s"}), "sysadmin")
    await catalog.create_relation(stream(store="k"))
    await catalog.create_query(query("counts"), view())
    before = catalog.snapshot
    started = time.monotonic()
    again = await reopen()
    assert time.monotonic() - started < 3
    assert again.snapshot == before
    assert await again.store_options("k") == {"a": "b", "s": "hush"}
    with psycopg.connect(again.worker_url("main")) as worker:
        assert worker.execute("SELECT current_user").fetchone() == ("pgstream_worker",)
    await again.close()


async def test_crash_between_the_two_heals(catalog: Catalog, reopen, ask) -> None:
    """Left over in PostgreSQL: dropped. Missing in PostgreSQL: made again; state that is still there is kept."""
    await catalog.create_relation(stream())
    made = view()
    await catalog.create_query(query("counts"), made)
    await catalog.create_relation(stream("gone"))
    await catalog.create_query(query("left", sources=()), view("left"))
    ask("INSERT INTO counts VALUES ('u', 1)", user=None)
    ask("CREATE TABLE pg_pgstream.s_1_1 (i int); DROP VIEW pageviews", user=None)
    ask("DELETE FROM relations WHERE name IN ('gone', 'left')", user=None, database="pgstream_control")
    ask("CREATE TABLE mine (i int); CREATE VIEW my_view AS SELECT * FROM mine")
    again = await reopen()
    assert ask("SELECT * FROM counts") == [["u", 1]]
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        ask("SELECT * FROM pageviews")
    assert ask("SELECT to_regclass('gone'), to_regclass('left'), to_regclass('my_view')::text") == [
        [None, None, "my_view"]
    ]
    tables = ask("SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'pg_pgstream'::regnamespace")
    assert sorted(tables) == [["ledger"]]
    await again.close()


async def test_indexes_and_comments_heal(catalog: Catalog, reopen, ask) -> None:
    """One too many is dropped, one too few is made again, and a view's own unique index is nobody's business."""
    made = view()
    await catalog.create_query(query("counts"), made)
    for name in ("kept", "lost"):
        properties = {"on": str(made.full), "definition": "(n)"}
        full = FullName("main", "public", name)
        await catalog.create_relation(
            replace(made, id="", full=full, kind="index", columns=(), properties=properties, mode="", query=None)
        )
    await catalog.describe_relation(made.full, "words")
    gone = await catalog.create_relation(replace(made, id="", full=FullName("main", "public", "gone"), kind="stream"))
    await catalog.describe_column(gone.full, gone.columns[0].name, "whispers")
    ask("DROP VIEW gone", user=None)
    ask("DROP INDEX lost; CREATE INDEX left_over ON counts (n); COMMENT ON TABLE counts IS 'old'", user=None)
    again = await reopen()
    indexes = ask("SELECT indexname FROM pg_indexes WHERE tablename = 'counts' ORDER BY 1")
    assert indexes == [["counts_userid_idx"], ["kept"], ["lost"]]
    assert ask("SELECT obj_description('counts'::regclass)") == [["words"]]
    assert ask("SELECT col_description('gone'::regclass, 1)") == [["whispers"]]
    await again.close()


async def test_an_index_that_cannot_be_made_again_keeps_nobody_from_starting(catalog: Catalog, reopen, ask) -> None:
    """One that an earlier pgstream took, over a text search configuration that its owner has dropped; and one whose
    name a client's table has by now.
    """
    made = view()
    await catalog.create_query(query("counts"), made)

    def index(name: str, definition: str) -> RelationRecord:
        properties = {"on": str(made.full), "definition": definition}
        full = FullName("main", "public", name)
        return replace(made, id="", full=full, kind="index", columns=(), properties=properties, mode="", query=None)

    ask("CREATE TEXT SEARCH CONFIGURATION public.cfg (COPY = pg_catalog.simple)", user=None)
    over = index("over", "USING gin (to_tsvector('public.cfg', userid))")
    with pytest.raises(NotSupported, match="text search configuration") as refused:
        await catalog.create_relation(over)
    assert refused.value.hint and ask("SELECT FROM pg_class WHERE relname = 'over'") == []
    await catalog.create_relation(index("over", "(userid)"))
    await catalog.create_relation(index("taken", "USING hash (n)"))
    ask("UPDATE relations SET properties = replace(properties::text, '(userid)', $$USING gin (to_tsvector('public.cfg',"
        " userid))$$)::json WHERE name = 'over'", user=None, database="pgstream_control")  # fmt: skip
    ask("DROP INDEX over, taken; CREATE TABLE taken (i int); DROP TEXT SEARCH CONFIGURATION public.cfg", user=None)
    again = await reopen()
    assert ask("SELECT indexname FROM pg_indexes WHERE tablename = 'counts'") == [["counts_userid_idx"]]
    await again.drop_relation(FullName("main", "public", "over"))
    await again.close()


async def test_a_transaction_that_never_was(catalog: Catalog, reopen, ask) -> None:
    """As a mark may say that comes with a dump of another server's: the schema stays, and so does nobody waiting."""
    for name, transaction in (("s1", "99999999999999"), ("s2", "none")):
        await catalog.create_schema("main", name, "sysadmin", transaction=transaction)
    assert await catalog.settle_schema("main", "s1")
    again = await reopen()
    assert {("main", "s1"), ("main", "s2")} <= again.snapshot.schemas.keys()
    marked = "SELECT nspname FROM pg_namespace WHERE obj_description(oid, 'pg_namespace') LIKE 'pgstream: made%'"
    assert ask(marked) == []
    await again.close()


async def test_nobody_waits_for_the_end_of_anothers_transaction(catalog: Catalog, postgres: Postgres) -> None:
    with psycopg.connect(postgres.url("main")) as holder:
        number = str((holder.execute("SELECT pg_current_xact_id()::text").fetchone() or ("",))[0])
        await catalog.create_schema("main", "held", "sysadmin", transaction=number)
        await catalog.create_schema("main", "free", "sysadmin", transaction="3")
        waiting = asyncio.create_task(catalog.settle_schema("main", "held", wait=True))
        await asyncio.sleep(0.1)
        assert await asyncio.wait_for(catalog.settle_schema("main", "free"), 5)
        assert not waiting.done()
        holder.rollback()
    assert await waiting and ("main", "held") not in catalog.snapshot.schemas


async def test_crash_in_drop_database_heals(catalog: Catalog, reopen, ask) -> None:
    ask("CREATE DATABASE half", user=None, database="postgres")
    ask("COMMENT ON DATABASE half IS 'pgstream: being dropped'", user=None, database="postgres")
    ask("ALTER DATABASE main ALLOW_CONNECTIONS false", user=None, database="postgres")
    ask("COMMENT ON DATABASE main IS 'pgstream: being dropped'", user=None, database="postgres")
    again = await reopen()
    assert ask("SELECT datname FROM pg_database WHERE datname = 'half'", user=None) == []
    assert ask("SELECT 1") == [[1]]
    await again.close()


async def test_wrong_key_is_refused(catalog: Catalog, reopen) -> None:
    with pytest.raises(ConfigurationError, match="key"):
        await reopen(secret_key="another")


async def test_newer_catalogue_is_refused(catalog: Catalog, reopen, ask) -> None:
    ask("UPDATE alembic_version SET version_num = '9999'", user=None, database="pgstream_control")
    with pytest.raises(ConfigurationError, match="newer"):
        await reopen()


async def test_another_server_sees_the_change(catalog: Catalog, postgres, config) -> None:

    other = await Catalog.open(config, postgres.url, config.data_dir)
    async with asyncio.timeout(10):
        while not other.snapshot.stores:
            if "k" not in catalog.snapshot.stores:
                await catalog.create_store("k", "kafka", {}, frozenset(), "sysadmin")
            await asyncio.sleep(0.01)
    await other.close()


async def test_two_who_tag_a_query_at_once(catalog: Catalog) -> None:
    """Neither's words are lost: what is there is read again where nobody else changes it."""
    made = await catalog.create_query(query("counts"), view())

    def tagged(name: str) -> Callable[[QueryRecord], dict[str, str]]:
        return lambda q: {**q.tags, name: q.id[:1]}

    names = [f"t{i}" for i in range(12)]
    await asyncio.gather(*(catalog.tag_query(made.id, tagged(name)) for name in names))
    assert (await catalog.query(made.id)).tags == dict.fromkeys(names, made.id[:1])
    with pytest.raises(UndefinedQuery):
        await catalog.tag_query(str(uuid.uuid4()), tagged("x"))


async def test_who_is_cancelled_ends_though_its_connection_is_cut(
    catalog: Catalog, postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when PostgreSQL dies: the pool's lock is lost, and its log of progress is to end, in the midst of writing."""
    monkeypatch.setattr(progress, "WRITE_EVERY_S", 0)
    await catalog.copy_system_tables("main")
    made = await catalog.create_query(query("v"))
    said = progress.ProgressLog(catalog.record_progress)
    said.latest[made.id], said._unwritten = {"batch": 1}, {made.id}
    waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = 'main'"
    cut = f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{CONTROL}'"
    with psycopg.connect(postgres.url("main")) as held, psycopg.connect(postgres.url("main"), autocommit=True) as su:
        held.execute(f"LOCK TABLE {STATE}.system")
        written = asyncio.create_task(said.run())
        await eventually(lambda: su.execute(waits).fetchall())
        su.execute(cut)
        written.cancel()
        await asyncio.wait({written}, timeout=10)
        ended = written.cancelled()
        written.cancel()
    assert ended


async def test_models_and_migrations_agree(catalog: Catalog) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.runtime.migration import MigrationContext

    def compare(connection):
        return compare_metadata(MigrationContext.configure(connection), models.Base.metadata)

    async with catalog._engine.connect() as connection:
        assert await connection.run_sync(compare) == []
    assert migrations.scripts().get_current_head() == migrations.HEAD


def test_secret_key_setting(tmp_path, config) -> None:
    cipher = crypto.open_cipher(replace(config, secret_key="a passphrase"), tmp_path)
    same = crypto.open_cipher(replace(config, secret_key="a passphrase"), tmp_path)
    assert same.decrypt(cipher.encrypt("x")) == "x"
    assert not (tmp_path / "secret.key").exists()
    (tmp_path / "secret.key").write_text("not a key")
    with pytest.raises(ConfigurationError, match="key file"):
        crypto.open_cipher(config, tmp_path)


@pytest.mark.parametrize("ended", [undecided.ABORTED, undecided.COMMITTED])
async def test_a_schema_that_another_session_drops_while_it_is_settled(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, ended: str
) -> None:
    async def end(*_: object) -> str:
        await catalog.drop_schema("main", "s")
        return ended

    monkeypatch.setattr(undecided, "end", end)
    await catalog.create_schema("main", "s", "sysadmin", transaction="3")
    assert await catalog.settle_schema("main", "s")
    assert ("main", "s") not in catalog.snapshot.schemas


async def test_a_source_that_is_gone_by_now(catalog: Catalog) -> None:
    """Somebody drops it, or makes another one of its name, while the query's plan is made."""
    source = await catalog.create_relation(stream())
    await catalog.drop_relation(source.full)
    with pytest.raises(UndefinedRelation):
        await catalog.create_query(query("counts"), view(), sources=[source])
    another = await catalog.create_relation(stream())
    with pytest.raises(UndefinedRelation):
        await catalog.create_query(query("counts"), view(), sources=[source])
    assert (list(catalog.snapshot.relations), await catalog.queries()) == ([source.full.key], [])
    await catalog.create_query(query("counts"), view(), sources=[another])
