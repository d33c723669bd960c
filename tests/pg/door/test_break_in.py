"""Break-in attempts, by a plain user and by the first user. Each must be refused by PostgreSQL or by us.

``REFUSED`` are one-line attempts; what needs more is a test of its own. What stands at the end is that nobody became
more than they were (``still_nobody``).
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.pg.door import whole
from tests.pg.door.whole import HIDDEN, SECRET, Whole, relation

REFUSED = {
    "42501": (
        # other roles
        "SET ROLE pgstream",
        "SET ROLE pgstream_worker",
        "SET SESSION AUTHORIZATION pgstream",
        "SET SESSION AUTHORIZATION pgstream_worker",
        "SET LOCAL SESSION AUTHORIZATION pgstream",
        "DO $$ BEGIN SET ROLE pgstream; END $$",
        "DO $$ BEGIN EXECUTE 'SET ROLE pgstream_worker'; END $$",
        "SELECT set_config('session_authorization', 'pgstream', false)",
        "SELECT set_config('role', 'pgstream', false)",
        "ALTER ROLE mallory SUPERUSER",
        "ALTER ROLE mallory CREATEROLE REPLICATION BYPASSRLS",
        "ALTER ROLE pgstream PASSWORD 'x'",
        "ALTER ROLE pgstream_worker PASSWORD 'x'",
        "ALTER ROLE pgstream_worker SET search_path = public",
        "ALTER ROLE sysadmin SUPERUSER",
        "ALTER ROLE ALL SET search_path = public",
        "ALTER USER pgstream RENAME TO gone",
        "CREATE USER eve SUPERUSER",
        "CREATE GROUP eve",
        "GRANT pgstream TO mallory",
        "GRANT pgstream_worker TO mallory",
        "GRANT orgadmin TO mallory",
        "GRANT pg_read_all_data TO mallory",
        "GRANT pg_execute_server_program TO mallory",
        "GRANT pg_read_all_stats TO mallory",
        "REASSIGN OWNED BY pgstream_worker TO mallory",
        "DROP OWNED BY pgstream_worker",
        "DROP USER pgstream_worker",
        "DROP USER pgstream",
        "ALTER DEFAULT PRIVILEGES FOR ROLE pgstream_worker GRANT SELECT ON TABLES TO PUBLIC",
        "ALTER DEFAULT PRIVILEGES FOR ROLE pgstream GRANT SELECT ON TABLES TO PUBLIC",
        # the server's files and programs
        "COPY (SELECT 1) TO PROGRAM 'id'",
        "COPY (SELECT 1) TO '/tmp/pgstream-was-here'",
        "SELECT lo_import('/etc/passwd')",
        "SELECT lo_export(1, '/tmp/pgstream-was-here')",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT pg_read_file('postgresql.conf')",
        "SELECT pg_read_binary_file('/etc/passwd')",
        "SELECT pg_ls_dir('/')",
        "SELECT pg_ls_logdir()",
        "SELECT pg_stat_file('/etc/passwd')",
        "SELECT pg_current_logfile()",
        "LOAD '/tmp/evil.so'",
        "CREATE FUNCTION public.evil() RETURNS int LANGUAGE c AS '/tmp/evil.so', 'evil'",
        "CREATE FUNCTION public.evil() RETURNS int LANGUAGE internal AS 'int4in'",
        # the server's settings
        "ALTER SYSTEM SET log_statement = 'all'",
        "ALTER DATABASE main SET search_path = public",
        "ALTER DATABASE main OWNER TO guests",
        "SET session_preload_libraries = 'evil'",
        "SET log_statement = 'none'",
        "SET allow_system_table_mods = on",
        "SET session_replication_role = replica",
        "SET lc_messages = 'C'",
        "SHOW data_directory",
        "SHOW hba_file",
        "SELECT pg_reload_conf()",
        "SELECT pg_switch_wal()",
        "SELECT pg_create_restore_point('x')",
        "SELECT pg_create_physical_replication_slot('x')",
        "SELECT pg_create_logical_replication_slot('x', 'test_decoding')",
        "SELECT pg_stat_reset()",
        "SELECT pg_log_backend_memory_contexts(pg_backend_pid())",
        # PostgreSQL's catalogue
        "SELECT rolpassword FROM pg_authid",
        "SELECT passwd FROM pg_shadow",
        "SELECT * FROM pg_user_mapping",
        "SELECT subconninfo FROM pg_subscription",
        "SELECT * FROM pg_hba_file_rules",
        "SELECT * FROM pg_ident_file_mappings",
        "SELECT * FROM pg_file_settings",
        "SELECT * FROM pg_statistic",
        "SELECT * FROM pg_largeobject",
        "SELECT * FROM pg_config",
        "UPDATE pg_authid SET rolsuper = true",
        "UPDATE pg_catalog.pg_class SET relowner = 10",
        "DELETE FROM pg_proc",
        "INSERT INTO pg_auth_members DEFAULT VALUES",
        "UPDATE pg_database SET datallowconn = true",
        "CREATE TABLE pg_catalog.evil (i int)",
        "CREATE FUNCTION pg_catalog.evil() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE OR REPLACE FUNCTION pg_catalog.pgstream_unreadable(text, text) RETURNS tsvector LANGUAGE sql AS ''",
        "CREATE OPERATOR pg_catalog.!!! (LEFTARG = text, RIGHTARG = text, FUNCTION = texteq)",
        "ALTER OPERATOR = (text, text) OWNER TO mallory",
        "ALTER FUNCTION pg_catalog.now() OWNER TO mallory",
        "GRANT EXECUTE ON FUNCTION pg_read_file(text) TO mallory",
        # what belongs to a database
        "CREATE EVENT TRIGGER evil ON ddl_command_start EXECUTE FUNCTION pg_event_trigger_dropped_objects()",
        "CREATE CAST (integer AS text) WITH INOUT AS IMPLICIT",
        "CREATE CAST (name AS text) WITH INOUT AS IMPLICIT",
        "CREATE PUBLICATION evil FOR ALL TABLES",
        "CREATE SUBSCRIPTION evil CONNECTION 'host=127.0.0.1' PUBLICATION evil",
        "CREATE FOREIGN DATA WRAPPER evil",
        "CREATE TABLESPACE evil LOCATION '/tmp'",
        "CREATE ACCESS METHOD evil TYPE TABLE HANDLER heap_tableam_handler",
        "ALTER SCHEMA public OWNER TO guests",
        "ALTER SCHEMA public RENAME TO evil",
        # the hidden schema
        f"SELECT * FROM {HIDDEN}.ledger",
        f"UPDATE {HIDDEN}.ledger SET batch = 0",
        f"CREATE TABLE {HIDDEN}.evil (i int)",
        f"CREATE FUNCTION {HIDDEN}.evil() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        f"CREATE TRIGGER evil AFTER INSERT ON {HIDDEN}.ledger EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        f"ALTER SCHEMA {HIDDEN} RENAME TO evil",
        # objects of the catalogue
        "CREATE TABLE evil () INHERITS (counts)",
        "CREATE STATISTICS evil ON userid, n FROM counts",
        "CREATE RULE evil AS ON INSERT TO counts DO ALSO SELECT 1",
        "CREATE TRIGGER evil BEFORE INSERT ON counts FOR EACH ROW"
        " EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "DO $$ BEGIN LOCK TABLE counts IN ACCESS EXCLUSIVE MODE; END $$",
        "CREATE OR REPLACE VIEW clicks AS SELECT 'x'::varchar AS userid, 1::bigint AS n",
    ),
    # What is not there at all.
    "any": (
        "ALTER TABLE counts OWNER TO guests",  # 42501 for who sees it
        "ALTER VIEW clicks OWNER TO guests",
        "ALTER DATABASE main OWNER TO mallory",  # a user is no role
        "CREATE EXTENSION dblink",
        "CREATE EXTENSION postgres_fdw",
        "CREATE EXTENSION file_fdw",
        "CREATE EXTENSION adminpack",
        "CREATE EXTENSION pg_stat_statements",
        "CREATE EXTENSION plpython3u",
        "CREATE LANGUAGE plpython3u",
        "SELECT dblink_connect('dbname=pgstream_control')",
        "SELECT * FROM pg_stat_statements",
        "SELECT * FROM pgstream_control.public.meta",
        "DROP DATABASE pgstream_control",
        "DROP DATABASE postgres",
        "CREATE DATABASE pgstream_control",
        "USE DATABASE pgstream_control",
        "USE DATABASE postgres",
        "USE DATABASE template1",
        f"USE SCHEMA {HIDDEN}",
        f"DROP SCHEMA {HIDDEN} CASCADE",
        f"CREATE TABLE x (LIKE {HIDDEN}.ledger)",
        "DROP VIEW clicks",
        "CREATE INDEX ON counts ((public.evil(n)))",
        "CREATE INDEX ON counts ((n OPERATOR(public.+) 1))",
        "CREATE UNIQUE INDEX ON counts (n)",
        "DROP TABLE counts",
        "SELECT pg_catalog.pgstream_unreadable('stream', 'x')",
        "SELECT * FROM (SELECT * FROM clicks) c, pg_class",
        "SELECT database_to_xml(true, true, '')",
    ),
}
ROLES = {"mallory": "guests", "admin": "sysadmin"}
"""What each works in: the user itself inherits nothing."""
ATTEMPTS = [(code, sql) for code, attempts in REFUSED.items() for sql in attempts]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    house = whole.start(tmp_path_factory.mktemp("house"))
    yield house
    house.stop()


@pytest.fixture(scope="module", params=["mallory", "admin"])
def intruder(request: pytest.FixtureRequest, house: Whole) -> Iterator[psycopg.Connection]:
    before = _powers(house)
    with house.connect(request.param) as conn:
        yield conn
        assert conn.execute("SELECT current_user, session_user").fetchone() == (
            ROLES[request.param], request.param,
        )  # fmt: skip
    assert _powers(house) == before


def _powers(house: Whole) -> object:
    with house.superuser() as conn:
        return (
            conn.execute("SELECT rolname, rolsuper, rolcreaterole, rolreplication, rolbypassrls, rolpassword"
                         " FROM pg_authid ORDER BY 1").fetchall(),
            conn.execute("SELECT * FROM pg_db_role_setting ORDER BY 1, 2").fetchall(),
            conn.execute("SELECT roleid, member FROM pg_auth_members ORDER BY 1, 2").fetchall(),
            conn.execute("SELECT relname, relowner, relacl, relhastriggers, relhasrules FROM pg_class"
                         " WHERE relname IN ('counts', 'clicks', 'ledger') ORDER BY 1").fetchall(),
            conn.execute("SELECT datname, datdba, datacl FROM pg_database ORDER BY 1").fetchall(),
        )  # fmt: skip


@pytest.mark.parametrize(("code", "sql"), ATTEMPTS, ids=[sql[:60] for _, sql in ATTEMPTS])
def test_refused(intruder, code, sql):
    with pytest.raises(psycopg.Error) as caught:
        intruder.execute(sql)
    assert caught.value.sqlstate == code or (code == "any" and caught.value.sqlstate), caught.value
    assert SECRET not in str(caught.value) and caught.value.sqlstate[:2] != "XX"


@pytest.mark.parametrize(
    ("sql", "unseen", "owned"),
    [
        ("COMMENT ON DATABASE main IS 'pgstream: being dropped'", "0A000", "0A000"),
        ("ALTER TABLE counts ADD COLUMN evil int", "42P01", "0A000"),
        ("ALTER TABLE counts RENAME TO evil", "42P01", "0A000"),
        ("ALTER VIEW clicks RENAME TO evil", "42P01", "0A000"),
        ("TRUNCATE counts", "42501", "42809"),
        ("INSERT INTO counts VALUES ('x', 1)", "42501", "42809"),
        ("DELETE FROM counts", "42501", "42809"),
    ],
)
def test_changes_of_what_the_catalogue_has(intruder, sql, unseen, owned):
    with pytest.raises(psycopg.Error) as caught:
        intruder.execute(sql)
    assert caught.value.sqlstate == (unseen if intruder.info.user == "mallory" else owned), caught.value


@pytest.mark.parametrize("intruder", ["mallory"], indirect=True)
@pytest.mark.parametrize("what", ["TABLE counts", "COLUMN counts.n", "VIEW clicks", "SCHEMA public"])
def test_words_about_what_is_not_ones_own(intruder, what):
    with pytest.raises(psycopg.Error) as caught:
        intruder.execute(f"COMMENT ON {what} IS 'evil'")
    assert caught.value.sqlstate in ("42P01", "42501"), caught.value


@pytest.mark.parametrize("intruder", ["mallory"], indirect=True)
@pytest.mark.parametrize("sql", ["CREATE INDEX ON counts (n)", "SELECT * FROM pg_backend_memory_contexts"])
def test_what_only_an_administrator_may(intruder, sql):
    with pytest.raises(psycopg.Error) as caught:
        intruder.execute(sql)
    assert caught.value.sqlstate in ("42501", "42P01", "3D020"), caught.value


@pytest.mark.parametrize(
    "sql", ["RESET ROLE", "SET ROLE NONE", "RESET SESSION AUTHORIZATION", "DISCARD ALL", "RESET ALL"]
)
def test_reset_leads_nowhere(intruder, sql):
    intruder.execute(sql)
    user = intruder.info.user
    assert intruder.execute("SELECT current_user, session_user").fetchone() == (ROLES[user], user)
    assert intruder.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user").fetchone() == (False,)


def test_rights_are_not_passed_on(house, intruder):
    """PostgreSQL warns only, and does nothing; of what is in the catalogue the grant is ours, and refused."""
    before = _powers(house)
    said: list[str] = []
    intruder.add_notice_handler(lambda d: said.append(d.message_primary))
    intruder.execute("GRANT SELECT ON pg_class TO PUBLIC")
    assert said == ['no privileges were granted for "pg_class"']
    with pytest.raises(psycopg.Error) as caught:
        intruder.execute("GRANT CREATE ON DATABASE main TO mallory")
    # The administrator owns the database, but a user is no role.
    assert caught.value.sqlstate == ("42501" if intruder.info.user == "mallory" else "42704")
    assert _powers(house) == before


def test_copy_from_files_and_programs(intruder):
    intruder.execute("CREATE TEMPORARY TABLE loot (line text)")
    for source in ("'/etc/passwd'", "PROGRAM 'id'", "'postgresql.conf'"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            intruder.execute(f"COPY loot FROM {source}")
    assert intruder.execute("SELECT * FROM loot").fetchall() == []


def test_a_plain_user_reads_nothing_of_others(house):
    with house.connect("mallory") as mallory:
        for sql in ("TABLE counts", "COPY counts TO STDOUT", "SELECT count(*) FROM counts",
                    "CREATE VIEW mine AS TABLE counts; TABLE mine",
                    "SELECT query_to_xml('TABLE counts', true, true, '')",
                    "DECLARE c CURSOR WITH HOLD FOR TABLE counts", "EXPLAIN ANALYZE TABLE counts",
                    "CREATE TEMPORARY TABLE t AS TABLE counts"):  # fmt: skip
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="counts"):
                mallory.execute(sql)
        assert mallory.execute("SELECT count(*) FROM pg_stats WHERE tablename = 'counts'").fetchone() == (0,)


def test_others_statements_and_backends(house, intruder):
    with house.superuser() as owner:
        owner.execute("SELECT 'words of the superuser'")
        pid = owner.info.backend_pid
        shown = intruder.execute("SELECT query FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone()
        if intruder.info.user == "mallory":  # sysadmin sees what runs, as an administrator must
            assert shown is None or "words" not in shown[0]
        for function in ("pg_cancel_backend", "pg_terminate_backend"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                intruder.execute(f"SELECT {function}(%s)", (pid,))
        assert owner.execute("SELECT 1").fetchone() == (1,)


def test_other_databases(house):
    for user in ("mallory", "admin"):
        for database in ("pgstream_control", "template0", "template1"):
            with pytest.raises(psycopg.OperationalError, match="does not exist"):
                house.connect(user, database)
        # Tools connect to this one first; nobody but its owner makes anything in it.
        with house.connect(user, "postgres") as conn:
            for what in ("TABLE public.evil (i int)", "SCHEMA evil", "EXTENSION hstore",
                         "FUNCTION public.evil() RETURNS int LANGUAGE sql AS 'SELECT 1'"):  # fmt: skip
                with pytest.raises(psycopg.Error):
                    conn.execute(f"CREATE {what}")
    for user in ("pgstream", "pgstream_worker", "sysadmin", "orgadmin", "pg_read_all_data", "public", "nobody"):
        for password in (house.PASSWORD, "", house.postgres.password):
            with pytest.raises(psycopg.OperationalError, match=r"password authentication failed|no password supplied"):
                house.connect(user, password=password)


def test_start_up_parameters(house):
    for options in ("-c session_authorization=pgstream", "-c role=pgstream", "-c session_preload_libraries=evil",
                    "-c allow_system_table_mods=on", "-c log_statement=none", "-c session_replication_role=replica",
                    "-c is_superuser=on"):  # fmt: skip
        with pytest.raises(psycopg.OperationalError, match=r"permission denied|cannot be|invalid value|must be"):
            house.connect("admin", options=options)


TRAP = """
CREATE FUNCTION public.{name} RETURNS {returns} LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO public.trapped VALUES (current_user::text, '{name}');
    RETURN {value};
END $$"""
TRAPS = (
    ("starts_with(name, text)", "boolean", "false"),
    ("starts_with(name, unknown)", "boolean", "false"),
    ("to_regclass(unknown)", "regclass", "NULL"),
    ("to_regclass(varchar)", "regclass", "NULL"),
    ("bool_or(boolean)", "boolean", "true"),
    ("like_name(name, text)", "boolean", "false"),
    ("concat_names(name, text)", "text", "''"),
    ("equal_names(name, text)", "boolean", "false"),
    ("equal_oids(oid, int)", "boolean", "false"),
    ("current_database()", "name", "''"),
    ("aclexplode(varchar)", "boolean", "true"),
    ("pg_terminate_backend(int)", "boolean", "true"),
    ("shobj_description(oid, name)", "text", "''"),
)
OPERATORS = (
    ("!~", "name", "text", "like_name"),
    ("~", "name", "text", "like_name"),
    ("||", "name", "text", "concat_names"),
    ("=", "name", "text", "equal_names"),
    ("<>", "name", "text", "equal_names"),
    ("=", "oid", "int", "equal_oids"),
)


def test_trojan_functions_and_operators(house):
    """What the server itself runs in a database finds only PostgreSQL's own functions, operators and types."""
    with house.connect("mallory") as mallory:
        mallory.execute("CREATE TABLE public.trapped (who text, what text); GRANT ALL ON public.trapped TO PUBLIC")
        for name, returns, value in TRAPS:
            if "unknown" not in name:
                mallory.execute(TRAP.format(name=name, returns=returns, value=value))
        for operator, left, right, function in OPERATORS:
            mallory.execute(
                f"CREATE OPERATOR public.{operator} (LEFTARG = {left}, RIGHTARG = {right}, FUNCTION = {function})"
            )
        mallory.execute("CREATE TYPE public.bool AS ENUM ('evil'); CREATE DOMAIN public.uuid AS int")
        # They do work, on whoever lets them.
        mallory.execute("SELECT starts_with('x'::name, 'y'::text), 'x'::name || 'y'::text, 'x'::name !~ 'y'::text")
        assert mallory.execute("SELECT count(*) FROM trapped").fetchone() == (2,)
        mallory.execute("DELETE FROM trapped")
    for name, kind in (("t1", "materialized_view"), ("t2", "stream")):
        house.run(house.catalog.create_relation(relation(name, kind)))
    for name in ("t1", "t2"):
        house.run(house.catalog.drop_relation(relation(name, "stream").full))
    house.run(house.catalog.create_schema("main", "trapdoor", "sysadmin"))
    house.run(house.catalog.drop_schema("main", "trapdoor"))
    with pytest.raises(Exception, match="other objects depend"):
        house.run(house.catalog.drop_database("main"))
    house.run(_open_again(house))
    with house.superuser() as conn:
        assert conn.execute("SELECT * FROM public.trapped").fetchall() == []
        conn.execute("DROP OWNED BY guests CASCADE; GRANT USAGE, CREATE ON SCHEMA public TO guests")


async def _open_again(house: Whole) -> None:
    from pgstream.catalog.store import Catalog

    again = await Catalog.open(house.config, house.postgres.url, house.config.data_dir)
    await again.close()


def test_the_worker_finds_only_postgres_own(house):
    with psycopg.connect(house.catalog.worker_url("main")) as worker:
        assert worker.execute("SHOW search_path").fetchone() == ("pg_catalog",)
        assert worker.execute("SELECT rolsuper, rolcreaterole, rolcreatedb FROM pg_roles WHERE rolname = current_user"
                              ).fetchone() == (False, False, False)  # fmt: skip
    with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
        psycopg.connect(house.catalog.worker_url("pgstream_control"))


def test_names_are_only_names(house):
    """What is quoted stays quoted in what the server runs as superuser."""
    evil = 'x"; ALTER ROLE mallory SUPERUSER; --'
    house.run(house.catalog.create_schema("main", evil, "sysadmin"))
    house.run(house.catalog.drop_schema("main", evil))
    with house.connect("admin") as conn:
        for sql in (f'USE SCHEMA "{evil.replace(chr(34), chr(34) * 2)}"', 'USE DATABASE "x\'; SELECT 1; --"'):
            with pytest.raises(psycopg.Error):
                conn.execute(sql)
    with house.superuser() as conn:
        assert conn.execute("SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'").fetchone() == (False,)


def test_secrets_are_told_to_nobody(house, capfd):
    with house.connect("admin") as conn:
        for sql in ("DESCRIBE STORE k", "LIST STORES", "SHOW ALL", "TABLE pg_settings", "TABLE pg_stat_activity",
                    "SELECT * FROM pg_description", "TABLE pg_seclabels"):  # fmt: skip
            assert SECRET not in str(conn.execute(sql).fetchall())
        for sql in (
            f"CREATE STORE s WITH ('type' = KAFKA, 'uris' = '127.0.0.1:1', 'kafka.sasl.password' = '{SECRET}')",
            f"CREATE STORE s WITH ('type' = KAFKA, 'kafka.sasl.password' = '{SECRET}' oops)",
            f"CREATE STORE s WITH ('type' = KAFKA, 'kafka.sasl.passwort' = '{SECRET}')",
            f"CREATE STOER s WITH ('kafka.sasl.password' = '{SECRET}')",
        ):
            with pytest.raises(psycopg.Error) as caught:
                conn.execute(sql)
            said = caught.value.diag
            assert SECRET not in f"{said.message_primary} {said.message_detail} {said.message_hint}"
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute(f"ALTER ROLE pgstream PASSWORD '{SECRET}'")
    logged = (house.config.data_dir / "postgres.log").read_text()
    said = capfd.readouterr()
    assert SECRET not in logged + said.out + said.err and house.PASSWORD not in logged + said.out + said.err
    with house.superuser("pgstream_control") as conn:
        tables = conn.execute("SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'").fetchall()
        kept = "".join(str(conn.execute(f"SELECT * FROM {table}").fetchall()) for (table,) in tables)
    assert "kafka" in kept and SECRET not in kept and house.catalog._worker_password not in kept
