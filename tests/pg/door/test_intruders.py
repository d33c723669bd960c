"""Break-in attempts that need more than one statement: what belongs to others, to the server, and what it left open."""

from __future__ import annotations

import asyncio
import os
import struct
import subprocess
import threading
from collections.abc import Iterator

import psycopg
import pytest

from pgstream.catalog import postgres
from pgstream.embedded.cluster import binaries
from pgstream.errors import RelayedError
from pgstream.wire import frontend
from tests.pg.door import whole
from tests.pg.door.raw import SYNC, Wire, bind, describe, execute, frame, parse, query
from tests.pg.door.whole import HIDDEN, SECRET, Whole, relation
from tests.server import within


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    house = whole.start(tmp_path_factory.mktemp("house"))
    yield house
    house.stop()


@pytest.fixture(scope="module", params=["mallory", "admin"])
def intruder(request: pytest.FixtureRequest, house: Whole) -> Iterator[psycopg.Connection]:
    with house.connect(request.param) as conn:
        yield conn


REFUSED = (
    # of other roles' rights
    "ALTER ROLE admin SET session_preload_libraries = 'evil'",
    "ALTER ROLE mallory VALID UNTIL 'infinity'",
    "ALTER ROLE mallory CONNECTION LIMIT -1",
    "ALTER ROLE sysadmin RENAME TO evil",
    "GRANT mallory TO pgstream_worker",
    "GRANT admin TO mallory",
    "SECURITY LABEL ON ROLE mallory IS 'x'",
    "COMMENT ON ROLE pgstream IS 'x'",
    "CREATE FUNCTION public.evil() RETURNS int LANGUAGE sql SET role = pgstream AS 'SELECT 1'",
    "CREATE FUNCTION public.evil() RETURNS int LANGUAGE sql SET session_authorization = pgstream AS 'SELECT 1'",
    # of the server's files
    "SELECT pg_ls_tmpdir()",
    "SELECT pg_ls_waldir()",
    "SELECT pg_ls_archive_statusdir()",
    "SELECT pg_read_file('pg_hba.conf')",
    "SELECT pg_read_binary_file('global/pg_authid', 0, 10)",
    "SELECT pg_rotate_logfile()",
    "SELECT pg_promote()",
    "SELECT current_setting('data_directory')",
    "SELECT current_setting('unix_socket_directories')",
    "SET log_destination = 'csvlog'",
    "SET log_min_error_statement = 'error'",
    "SET log_min_duration_statement = 0",
    "SET lo_compat_privileges = on",
    "SET dynamic_library_path = '/tmp'",
    "SET zero_damaged_pages = on",
    # of what the query keeps
    "CREATE TABLE public.evil (u varchar REFERENCES counts (userid))",
    "CREATE TABLE public.evil PARTITION OF counts DEFAULT",
    "ALTER TABLE counts INHERIT pg_class",
    "ALTER TABLE counts DISABLE TRIGGER ALL",
    "ALTER TABLE counts ALTER COLUMN n SET DEFAULT 1",
    "ALTER TABLE counts SET (autovacuum_enabled = off)",
    "ALTER TABLE counts REPLICA IDENTITY FULL",
    "ALTER TABLE counts SET SCHEMA pg_catalog",
    "ALTER TABLE counts FORCE ROW LEVEL SECURITY",
    "UPDATE counts SET n = 0",
    "MERGE INTO counts USING (VALUES (1)) v ON false WHEN NOT MATCHED THEN INSERT VALUES ('x', 1)",
    "COPY counts FROM STDIN",
    "SELECT * FROM counts FOR UPDATE",
    "CREATE INDEX ON counts ((public.evil(n)))",
    "CREATE INDEX ON counts (n) WHERE n > 0; DROP TABLE counts",
    'CREATE INDEX ON counts ((U&"\\0070ublic".evil(n)))',
    "CREATE INDEX ON counts ((pg_read_file('postgresql.conf') IS NULL))",
    "CREATE INDEX ON counts (n) TABLESPACE pg_global",
    "CREATE INDEX ON clicks (n)",
    f"CREATE INDEX ON {HIDDEN}.ledger (batch)",
    # of the server's own objects
    f"SELECT nextval('{HIDDEN}.x')",
    f"SELECT has_table_privilege('{HIDDEN}.ledger', 'SELECT') AND 1/0 = 1",
    f"COPY {HIDDEN}.ledger TO STDOUT",
    f"CREATE VIEW public.evil AS TABLE {HIDDEN}.ledger; TABLE public.evil",
    f"EXPLAIN ANALYZE TABLE {HIDDEN}.ledger",
    "IMPORT FOREIGN SCHEMA public FROM SERVER x INTO public",
    "CREATE SERVER x FOREIGN DATA WRAPPER postgres_fdw",
    "CREATE TEXT SEARCH TEMPLATE evil (LEXIZE = dsimple_lexize)",
    "CREATE OPERATOR CLASS public.evil DEFAULT FOR TYPE int USING btree AS STORAGE int",
    "CREATE TYPE public.evil (INPUT = int4in, OUTPUT = int4out)",
    "CREATE AGGREGATE public.evil (int) (SFUNC = int4pl, STYPE = internal)",
    "CREATE CONVERSION pg_catalog.evil FOR 'LATIN1' TO 'UTF8' FROM iso8859_1_to_utf8",
    "CREATE EXTENSION plpgsql_check",
    "CREATE EXTENSION hstore SCHEMA pg_catalog",
    "CREATE TRUSTED LANGUAGE evil HANDLER plpgsql_call_handler",
)


@pytest.mark.parametrize("sql", REFUSED, ids=[sql[:60] for sql in REFUSED])
def test_refused(intruder, sql):
    with pytest.raises(psycopg.Error) as caught:
        intruder.execute(sql)
    assert caught.value.sqlstate and caught.value.sqlstate[:2] != "XX" and SECRET not in str(caught.value)


def test_nothing_was_left_open(house):
    """Of what the server makes nothing runs with its rights, and nobody may write to it."""
    with house.superuser() as conn:

        def none(sql: str) -> None:
            assert conn.execute(sql).fetchall() == []

        # One function sees what pg_stat_activity hides, and does no more: it gives the rows of the session's own login.
        # Another tells who may read a view how far it is.
        none("SELECT oid::regprocedure FROM pg_proc WHERE prosecdef AND pronamespace = 'pg_catalog'::regnamespace"
             " AND (proname, proowner::regrole::text) NOT IN (('pgstream_own_activity', 'pg_read_all_stats'),"
             " ('pgstream_wait_for', 'pgstream_worker'))")  # fmt: skip
        none("SELECT oid::regprocedure FROM pg_proc WHERE prosecdef AND pronamespace <> 'pg_catalog'::regnamespace")
        none("SELECT rolname FROM pg_roles WHERE rolname = 'pg_read_all_stats' AND (rolcanlogin OR rolsuper)")
        none("SELECT nspname FROM pg_namespace WHERE has_schema_privilege('public', oid, 'CREATE')")
        none("SELECT oid::regclass FROM pg_class WHERE relkind IN ('r', 'p', 'v', 'm', 'f')"
             " AND oid >= 16384 AND has_table_privilege('public', oid, 'INSERT, UPDATE, DELETE, TRIGGER')")  # fmt: skip
        none("SELECT oid::regclass FROM pg_class WHERE oid >= 16384 AND relacl::text ~ '[{,]=[^/]*[awdDxt]'")
        none("SELECT datname FROM pg_database WHERE has_database_privilege('public', oid, 'CREATE')")
        none("SELECT datname FROM pg_database WHERE datname = 'pgstream_control'"
             " AND has_database_privilege('public', oid, 'CONNECT')")  # fmt: skip
        none("SELECT * FROM pg_default_acl")
        none("SELECT rolname FROM pg_roles WHERE rolsuper AND rolname <> 'pgstream'")
        none("SELECT extname FROM pg_extension WHERE extname <> 'plpgsql'")
        none("SELECT evtname FROM pg_event_trigger")
        none("SELECT rolname FROM pg_roles WHERE oid >= 16384 AND pg_has_role(oid, 10::oid, 'USAGE')")
        none("SELECT rolname FROM pg_roles WHERE rolname = 'mallory' AND pg_has_role(oid, 'sysadmin', 'USAGE')")


def test_function_calls_of_the_protocol(house):
    """The fast path obeys the same rights."""
    with house.superuser() as conn:
        oids = [
            conn.execute("SELECT %s::regprocedure::oid", (f,)).fetchone()[0]
            for f in ("lo_import(text)", "pg_read_file(text)", "pg_read_binary_file(text)")
        ]
    for user in ("mallory", "admin"):
        with Wire(house.port, user, house.PASSWORD) as wire:
            for oid in oids:
                path = b"/etc/passwd"
                body = struct.pack(">IHHI", oid, 0, 1, len(path)) + path + struct.pack(">H", 0)
                wire.send(frame("F", body))
                assert b"C42501\0" in dict(wire.until_ready())["E"]


@pytest.mark.parametrize(
    "given",
    [{"role": "pgstream"}, {"session_authorization": "pgstream"}, {"is_superuser": "on"}, {"role": "sysadmin' --"},
     {"session_preload_libraries": "evil"}, {"local_preload_libraries": "../evil"}, {"log_statement": "all"},
     {"allow_system_table_mods": "on"}],
    ids=str,
)  # fmt: skip
def test_start_up_parameters_by_name(house, given):
    for user in ("mallory", "admin"):
        with Wire(house.port) as wire:
            wire.send(frontend.encode_startup({"user": user, "database": "main", **given}))
            try:
                wire._log_in(house.PASSWORD)
            except (ConnectionError, EOFError):
                continue
            wire.send(query("SELECT current_user || current_setting('is_superuser')"))
            assert dict(wire.until_ready())["D"].endswith(f"{user}off".encode())


def test_a_role_for_the_next_session(house):
    """What is kept for a user's next sessions gives no role that the user may not take."""
    with house.superuser() as owner:
        kept = "SELECT setconfig FROM pg_db_role_setting WHERE setrole = 'mallory'::regrole AND setdatabase = 0"
        before = owner.execute(kept).fetchone()
        try:
            for role in ("pgstream_worker", "pgstream", "sysadmin"):
                owner.execute(f"ALTER ROLE mallory SET role = '{role}'")
                with house.connect("mallory") as mallory:
                    current, session = mallory.execute("SELECT current_user, session_user").fetchone()
                    assert current != role and session == "mallory"
        finally:
            owner.execute("ALTER ROLE mallory RESET role")
            for name, _, value in (setting.partition("=") for setting in (before[0] if before else ())):
                owner.execute(f"ALTER ROLE mallory SET {name} = '{value}'")


def test_rights_that_nobody_has_to_give(house, intruder):
    def given() -> object:
        with house.superuser() as conn:
            return conn.execute("SELECT relname, relacl FROM pg_class WHERE relname IN ('counts', 'clicks')"
                                " ORDER BY 1").fetchall()  # fmt: skip

    before = given()
    for sql in ("GRANT ALL ON counts TO mallory WITH GRANT OPTION",
                "GRANT SELECT ON counts, pg_catalog.pg_authid TO PUBLIC",
                "REVOKE ALL ON counts FROM pgstream_worker, sysadmin"):  # fmt: skip
        try:
            intruder.execute(sql)
        except psycopg.Error as e:
            assert e.sqlstate[:2] != "XX"
    assert given() == before


def test_large_objects_of_others(house):
    with house.connect("admin") as admin, house.connect("mallory") as mallory:
        row = admin.execute("SELECT lo_from_bytea(0, 'mine')").fetchone()
        for sql in ("SELECT lo_get({})", "SELECT lo_put({}, 0, 'x')", "SELECT lo_unlink({})",
                    "SELECT lo_open({}, 262144)", "ALTER LARGE OBJECT {} OWNER TO mallory",
                    "GRANT SELECT ON LARGE OBJECT {} TO mallory"):  # fmt: skip
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                mallory.execute(sql.format(row[0]))
        admin.execute("SELECT lo_unlink(%s)", row)


def test_a_cancel_key_is_of_one_session(house):
    """Process ids are seen by all in pg_stat_activity; they help nobody."""
    with house.connect("admin") as admin, Wire(house.port, "mallory", house.PASSWORD) as mallory:
        mallory.send(query(f"SELECT 'there' FROM pg_stat_activity WHERE pid = {admin.info.backend_pid}"))
        assert "D" in dict(mallory.until_ready())
        own = house.listener.keys._by_pid
        keys = [key for entries in own.values() for key, session in entries if session.context.user == "mallory"]
        assert keys
        admin.execute("CREATE TEMPORARY TABLE IF NOT EXISTS slow (i int)")
        for key in keys:
            with Wire(house.port) as wire:
                wire.send(frontend.encode_cancel(admin.info.backend_pid, key))
                assert wire.rest() == b""
        for port in (house.postgres.port,):  # past the server, with what PostgreSQL never told
            with Wire(port) as wire:
                wire.send(frontend.encode_cancel(admin.info.backend_pid, keys[0]))
                assert wire.rest() == b""
        assert admin.execute("SELECT count(*) FROM generate_series(1, 300000)").fetchone() == (300000,)


def test_backends_of_the_server(house, intruder):
    with psycopg.connect(house.catalog.worker_url("main"), autocommit=True) as worker:
        worker.execute("SELECT 'words of the worker'")
        pid = worker.info.backend_pid
        for function in ("pg_cancel_backend", "pg_terminate_backend", "pg_log_backend_memory_contexts"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                intruder.execute(f"SELECT {function}(%s)", (pid,))
        seen = intruder.execute("SELECT * FROM pg_stat_get_activity(%s)", (pid,)).fetchall()
        if intruder.info.user == "mallory":  # sysadmin sees what runs, as an administrator must
            assert "words" not in str(seen)
        assert worker.execute("SELECT 1").fetchone() == (1,)


def test_the_servers_channel_and_locks_are_elsewhere(house):
    """What the servers tell each other, and the locks they hold, live in a database that no client can reach."""
    with house.connect("mallory") as mallory, house.superuser("pgstream_control") as control:
        asked = "SELECT regexp_replace(query, '^LISTEN ', '') FROM pg_stat_activity WHERE query LIKE 'LISTEN %'"
        channels = {row[0] for row in control.execute(asked)}
        assert channels
        for channel in channels:
            mallory.execute(f"LISTEN {channel}")
            mallory.execute(f"NOTIFY {channel}, 'all is lost'")
        list(mallory.notifies(timeout=0.2))
        house.run(house.catalog.create_relation(relation("told", "stream")))
        assert list(mallory.notifies(timeout=0.2)) == []
        house.run(house.catalog.drop_relation(relation("told", "stream").full))
        lock = "hashtextextended('pool:default_pool', 0)"
        assert mallory.execute(f"SELECT pg_try_advisory_lock({lock})").fetchone() == (True,)
        assert control.execute(f"SELECT pg_try_advisory_lock({lock})").fetchone() == (True,)


SHADOWS = """
CREATE FUNCTION public.current_schema() RETURNS name LANGUAGE sql AS $$ SELECT 'pg_pgstream'::name $$;
CREATE FUNCTION public.current_schemas(boolean) RETURNS name[] LANGUAGE sql AS $$ SELECT '{pg_pgstream}'::name[] $$;
CREATE FUNCTION public.current_setting(text) RETURNS text LANGUAGE sql AS $$ SELECT repeat('9', 100000) $$;
CREATE FUNCTION public.current_setting(text, boolean) RETURNS text LANGUAGE sql AS $$ SELECT repeat('9', 100000) $$;
CREATE TEMPORARY TABLE pg_cursors (name text, statement text, is_holdable text);
INSERT INTO pg_cursors VALUES ('x', NULL, 'what');
CREATE TEMPORARY TABLE pg_settings (name text, setting text, unit text);
SET search_path = pg_temp, public, pg_catalog
"""


def test_shadows_deceive_only_their_own_session(house):
    with house.connect("mallory") as mallory:
        mallory.execute(SHADOWS)
        try:
            for sql in ("LIST STORES", "USE SCHEMA public", "LIST STORES", "BEGIN", "LIST STORES", "COMMIT"):
                mallory.execute(sql)
            for sql in ("DESCRIBE RELATION ledger", "SELECT * FROM ledger", "DESCRIBE STREAM ledger"):
                with pytest.raises(psycopg.Error) as caught:
                    mallory.execute(sql)
                assert caught.value.sqlstate[:2] != "XX"
        finally:
            mallory.execute("SET search_path = pg_catalog; DROP FUNCTION public.current_schema(),"
                            " public.current_schemas(boolean), public.current_setting(text),"
                            " public.current_setting(text, boolean)")  # fmt: skip
    with house.connect("admin") as admin:
        assert admin.execute("LIST STORES").rowcount == 1


def test_names_that_the_server_uses_in_a_session(house):
    """A client who takes them harms nobody, and sees nothing of the server's."""
    with house.connect("mallory") as mallory:
        mallory.execute("PREPARE pg_pgstream AS SELECT 'mine'")
        mallory.execute("BEGIN; DECLARE pg_pgstream CURSOR FOR SELECT 'mine'")
        for sql in ("SET LOCAL search_path = public", "LIST STORES", "USE SCHEMA public", "LIST STORES"):
            try:
                mallory.execute(sql)
            except psycopg.Error as e:
                assert e.sqlstate is not None and e.sqlstate[:2] in ("42", "25", "34"), e
            if mallory.closed:
                break
    with house.connect("mallory") as mallory:
        mallory.execute("DECLARE pg_pgstream CURSOR WITH HOLD FOR SELECT 'mine'")
        assert mallory.execute("LIST STORES").rowcount >= 0
        assert mallory.execute("LIST STORES").rowcount >= 0


def test_dumps_hold_no_secrets(house):
    for user in ("admin", "mallory"):
        environ = {**os.environ, "PGPASSWORD": house.PASSWORD, "PGSSLMODE": "disable"}
        for program, *flags in (
            ("pg_dump", "--schema-only", "main"),
            ("pg_dump", "main"),
            ("pg_dump", "-n", HIDDEN, "main"),
            ("pg_dumpall", "--globals-only", "-l", "main"),
            ("pg_dumpall", "--no-role-passwords", "-l", "main"),
        ):
            argv = [binaries() / program, "-h", "127.0.0.1", "-p", str(house.port), "-U", user, *flags]
            done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=60, check=False)
            said = done.stdout + done.stderr
            assert SECRET not in said and "SCRAM-SHA-256$" not in said and house.postgres.password not in said
            assert house.catalog._worker_password not in said


@pytest.mark.parametrize("kind", ["stream", "materialized_view"])
def test_a_lock_does_not_stop_everybody(house, monkeypatch, kind):
    """Changes take turns: one that waits for a client's transaction gives up, and the next ones are made."""
    monkeypatch.setattr(postgres, "LOCK_WAIT_S", 1)
    with house.connect("mallory") as mallory:
        mallory.execute("BEGIN")
        mallory.execute("CREATE TABLE public.taken (i int)")
        with pytest.raises(RelayedError) as caught:
            house.run(house.catalog.create_relation(relation("taken", kind)))
        assert caught.value.sqlstate == "55P03" and "another session" in (caught.value.hint or "")
        house.run(house.catalog.create_relation(relation("free", kind)))
        mallory.execute("ROLLBACK")
        mallory.execute("BEGIN")
        mallory.execute("DO $$ BEGIN CREATE VIEW public.leech AS TABLE public.free; END $$")
        with pytest.raises(RelayedError) as caught:
            house.run(house.catalog.drop_relation(relation("free", kind).full))
        assert caught.value.sqlstate == "55P03"
        house.run(house.catalog.create_relation(relation("taken", kind)))
        mallory.execute("ROLLBACK")
    for name in ("free", "taken"):
        house.run(house.catalog.drop_relation(relation(name, kind).full))


@pytest.mark.parametrize("held", ["what is read", "a name"])
def test_who_waits_for_a_lock_keeps_nobody_waiting(house, held):
    """A change that a client's transaction is in the way of waits for it, and others are made meanwhile."""
    for name in ("held", "beside"):
        house.run(house.catalog.create_relation(relation(name, "materialized_view")))
    with house.connect("mallory") as mallory:
        mallory.execute("BEGIN")
        if held == "a name":
            mallory.execute("CREATE TABLE public.taken (i int)")
            work = house.catalog.create_relation(relation("taken", "materialized_view"))
        else:
            mallory.execute("DO $$ BEGIN CREATE VIEW public.leech AS TABLE public.held; END $$")
            work = house.catalog.drop_relation(relation("held", "materialized_view").full)
        waiting = asyncio.run_coroutine_threadsafe(work, house.loop)
        with house.superuser() as db:
            for n in range(3):
                within(10, lambda: db.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone(), 0.02)
                house.run(house.catalog.describe_relation(relation("beside", "stream").full, f"is free {n}"))
        assert not waiting.done()
        mallory.execute("ROLLBACK")
        waiting.result(30)
    for name in ("beside", "taken" if held == "a name" else "", "held" if held == "a name" else ""):
        if name:
            house.run(house.catalog.drop_relation(relation(name, "materialized_view").full))


PLANTED = """
CREATE FUNCTION public.told(text, text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO public.tales VALUES (current_user::text);
    RETURN '["mallory"]';
END $$;
CREATE FUNCTION public.as_json(text) RETURNS json LANGUAGE sql AS $$ SELECT $1::json $$;
CREATE AGGREGATE public.json_agg(text) (SFUNC = told, STYPE = text, FINALFUNC = as_json);
CREATE FUNCTION public.json_build_array(json, json) RETURNS json LANGUAGE sql AS $$ SELECT public.told('', '')::json $$;
CREATE FUNCTION public.json_build_array(name, name) RETURNS json LANGUAGE sql AS $$ SELECT public.told('', '')::json $$
"""


@pytest.mark.parametrize(("shadow", "gone"), [
    ("CREATE FUNCTION public.max(bigint) RETURNS text LANGUAGE sql AS $$SELECT '99999999999999'::text$$",
     "DROP FUNCTION public.max(bigint)"),
    ("CREATE DOMAIN public.text AS pg_catalog.varchar(1)", "DROP DOMAIN public.text"),
    ("CREATE TEMPORARY TABLE pg_locks AS SELECT 'transactionid' AS locktype, pg_backend_pid() AS pid,"
     " 'ExclusiveLock' AS mode, '3'::xid AS transactionid", "DROP TABLE pg_temp.pg_locks"),
])  # fmt: skip
def test_a_forged_transaction_is_not_asked_for(house, shadow, gone):
    """What a client has before PostgreSQL's own in its search path says nothing of its transaction."""
    with house.connect("admin") as admin:
        admin.execute(shadow)
        admin.execute("SET search_path = public, pg_catalog")
        try:
            with admin.transaction():
                admin.execute("CREATE SCHEMA forged")
                admin.execute("SET LOCAL search_path = pg_catalog")
                ((number,),) = admin.execute("SELECT pg_current_xact_id()::text").fetchall()
                marked = "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = 'forged'"
                assert admin.execute(marked).fetchall() == [(f"pgstream: made in transaction {number}",)]
            admin.execute("RESET search_path")
            admin.execute("DROP SCHEMA forged")
        finally:
            admin.execute("SET search_path = pg_catalog")
            admin.execute(gone)


def test_verifiers_are_not_seen_in_the_activity_of_the_server(house):
    """Not even by a role that sees everybody's statements."""
    seen, over = set(), threading.Event()

    def look():
        with house.connect("admin") as admin:
            admin.execute("SET ROLE sysadmin")
            while not over.is_set():
                seen.update(q for (q,) in admin.execute("SELECT query FROM pg_stat_activity WHERE query ~ 'ROLE'"))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        with house.connect("admin") as admin:
            admin.execute("USE ROLE useradmin")
            for number in range(20):
                admin.execute(f"ALTER USER mallory PASSWORD 'of the day {number}'")
    finally:
        over.set()
        looking.join()
        with house.connect("admin") as admin:
            admin.execute(f"USE ROLE useradmin; ALTER USER mallory PASSWORD '{house.PASSWORD}'")
    assert not [q for q in seen if "SCRAM-SHA-256$" in q]


def test_what_the_server_asks_in_a_session_calls_no_functions_of_others(house):
    """Functions that fit better than PostgreSQL's own, planted in a schema of others' search paths, are not called."""
    with house.connect("mallory") as mallory:
        mallory.execute("CREATE TABLE public.tales (who text); GRANT ALL ON public.tales TO PUBLIC")
        mallory.execute(PLANTED)
        try:
            with Wire(house.port, "admin", house.PASSWORD) as admin:
                for text in ("LIST STORES", "SET search_path = public", "LIST STORES"):
                    admin.send(query(text))
                    assert "E" not in dict(admin.until_ready())
                admin.send(parse("LIST STORES", "mine") + SYNC)
                admin.until_ready()
                for text in ("DEALLOCATE ALL", "LIST STORES"):
                    admin.send(query(text))
                    assert "E" not in dict(admin.until_ready())
                admin.send(bind("", "mine") + SYNC)
                assert b"C26000\0" in dict(admin.until_ready())["E"]
            assert mallory.execute("TABLE public.tales").fetchall() == []
            mallory.execute("SELECT json_agg(x) FROM (VALUES ('a'::text)) v (x)")  # it does work, on whoever lets it
            assert mallory.execute("TABLE public.tales").fetchall() == [("guests",)]
        finally:
            mallory.execute("DROP TABLE public.tales; DROP AGGREGATE public.json_agg(text)")
            for function in ("json_build_array(json, json)", "json_build_array(name, name)", "as_json(text)",
                             "told(text, text)"):  # fmt: skip
                mallory.execute(f"DROP FUNCTION public.{function}")


# Of types that PostgreSQL's own operator takes by a cast only: this one fits better, wherever it is in the search path.
FITTING = """
CREATE SEQUENCE public.told;
GRANT USAGE ON SEQUENCE public.told TO PUBLIC;
CREATE FUNCTION public.tells(oid, regclass) RETURNS boolean LANGUAGE sql AS $$
    SELECT nextval('public.told') > 0 AND $1::text = $2::oid::text $$;
CREATE OPERATOR public.= (FUNCTION = public.tells, LEFTARG = oid, RIGHTARG = regclass)
"""


@pytest.mark.parametrize("how", ["CASCADE", "RESTRICT"])
def test_what_empties_a_schema_calls_no_operators_of_others(house, how):
    """DROP SCHEMA in a transaction looks into the schema, and drops what is in it, in the client's own session."""
    with house.connect("mallory") as mallory, house.connect("admin") as admin:
        mallory.execute(FITTING)
        try:
            admin.execute("CREATE SCHEMA emptied")
            with admin.transaction():
                admin.execute("CREATE TABLE emptied.t (i int)")
                if how == "CASCADE":
                    admin.execute("DROP SCHEMA emptied CASCADE")
                else:
                    with pytest.raises(psycopg.errors.DependentObjectsStillExist) as e, admin.transaction():
                        admin.execute("DROP SCHEMA emptied")
                    assert "table emptied.t depends on schema emptied" in (e.value.diag.message_detail or "")
            admin.execute("DROP SCHEMA IF EXISTS emptied CASCADE")
            called = mallory.execute("SELECT is_called FROM public.told").fetchall()
            assert called == [(False,)], "a sequence keeps what a transaction that is rolled back has done"
        finally:
            mallory.execute("DROP FUNCTION public.tells CASCADE; DROP SEQUENCE public.told")


FAILING = query("DROP TABLE nosuch")
"""PostgreSQL keeps the portal of a Query that fails while it runs, and frees its plan."""


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(
    "way",
    [
        [query("SELECT current_database()"), execute(), SYNC],
        [query("SELECT current_database()"), bind(), SYNC, execute(), SYNC],
        [bind("a"), SYNC, query("SELECT current_database()"), execute(), SYNC],
        [describe("P"), query("SELECT current_database()"), SYNC, describe("P"), execute(), SYNC],
    ],
)
def test_nobody_kills_postgresql_by_an_execute(house: Whole, way: list[bytes], apart: bool) -> None:
    """All sessions ended when the one that did so died of signal 11."""
    with house.connect("mallory") as witness, Wire(house.port, "mallory", house.PASSWORD) as wire:
        # What another session has made of layouts says nothing of this one.
        wire.send(parse("SELECT 1", "s") + SYNC + bind("", "s") + parse("SELEC 1", "q") + execute() + SYNC)
        wire.until_ready(2)
        answers, times = [], 0
        for one in [query("BEGIN"), FAILING, *way, query("ROLLBACK"), query("SELECT 'well'")]:
            wire.send(one)
            times += one[:1] in b"QS"
            if apart:
                answers += wire.until_ready(times)
                times = 0
        answers += wire.until_ready(times)
        assert [p for k, p in answers if k == "E" and b"C34000" in p], answers
        assert ("D", b"\0\1\0\0\0\4well") in answers
        assert witness.execute("SELECT 'here'").fetchone() == ("here",)
