"""Row-level security of materialized views: who reads which rows, whatever way; the view's query goes on."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import psycopg
import pytest

from pgstream.catalog import open as opening
from pgstream.embedded.cluster import binaries
from tests.pg.access.conftest import PASSWORD, Ask, House

pytestmark = pytest.mark.pg
TABLE = "SELECT policyname, permissive, roles::text, qual FROM pg_policies WHERE tablename = '{}' ORDER BY 1"


@pytest.fixture(scope="module")
def tenants(house: House) -> Iterator[None]:
    """Two roles that see the schema, each a user's."""
    with house.connect() as conn:
        conn.execute("USE ROLE useradmin")
        for role in ("red", "blue"):
            conn.execute(f"CREATE ROLE {role} WITH (ROLE (sysadmin))".encode())
        conn.execute("USE ROLE sysadmin")
        for role in ("red", "blue"):
            conn.execute(f"GRANT USAGE ON DATABASE main TO ROLE {role}".encode())
            conn.execute(f"GRANT USAGE ON SCHEMA main.public TO ROLE {role}".encode())
    house.user("rosa", "red")
    house.user("bert", "blue")
    yield


@pytest.fixture
def view(house: House, ask: Ask, tenants: None, request: pytest.FixtureRequest) -> str:
    """A view of four rows, which both roles may read."""
    name = request.node.name.split("[")[0].removeprefix("test_")[:50]
    house.relation(name, "materialized_view")
    house.superuser(f"INSERT INTO {name} VALUES (1, 'red'), (2, 'blue'), (3, 'red'), (4, NULL)", "main")
    ask("SELECT 1", role="sysadmin")
    for role in ("red", "blue"):
        ask(f"GRANT SELECT ON {name} TO {role}")
    return name


def refused(ask: Ask, text: str, **who: str) -> str:
    with pytest.raises(psycopg.Error) as e:
        ask(text, **who)
    return f"{e.value.diag.sqlstate} {e.value.diag.message_primary}"


def ids(ask: Ask, view: str, user: str) -> list[int]:
    return [r[0] for r in ask(f"SELECT id FROM {view} ORDER BY id", user=user)]


def test_rows_of_a_role(house: House, ask: Ask, view: str) -> None:
    assert ask(f"CREATE POLICY own ON {view} TO red, blue USING (secret = current_user)") == [
        ("policy", "own", "CREATE", 'policy "own" was successfully created', f'["main", "public", "{view}", "own"]')
    ]
    assert ids(ask, view, "rosa") == [1, 2, 3, 4]  # not switched on
    assert ask(f"ALTER MATERIALIZED VIEW {view} ENABLE ROW LEVEL SECURITY")[0][3] == (
        f"row-level security of main.public.{view} was enabled"
    )
    assert ids(ask, view, "rosa") == [1, 3] and ids(ask, view, "bert") == [2]
    assert ids(ask, view, "admin") == [1, 2, 3, 4]  # sysadmin, the view's own role
    assert ask("LIST POLICIES ON " + view) == [
        ("own", f"main.public.{view}", True, "{red,blue}", "secret = current_user", True)
    ]
    ask(f"ALTER MATERIALIZED VIEW {view} DISABLE ROW LEVEL SECURITY")
    assert ids(ask, view, "rosa") == [1, 2, 3, 4]


def test_reads_of_every_kind(house: House, ask: Ask, view: str) -> None:
    ask(f"CREATE POLICY own ON {view} USING (secret = current_user)",
        f"ALTER TABLE {view} ENABLE ROW LEVEL SECURITY")  # fmt: skip
    with house.connect("rosa") as conn:
        for copied in (f"COPY {view} TO STDOUT", f"COPY (SELECT * FROM {view}) TO STDOUT",
                       f"COPY {view} (id, secret) TO STDOUT (FORMAT csv)"):  # fmt: skip
            with conn.cursor().copy(copied.encode()) as copy:
                assert sorted(b"".join(copy).split()) in ([b"1", b"3", b"red", b"red"], [b"1,red", b"3,red"]), copied
        with conn.transaction(), conn.cursor("named", binary=True) as cursor:
            assert len(cursor.execute(f"SELECT * FROM {view}".encode()).fetchall()) == 2
        for _ in range(3):
            rows = conn.execute(f"SELECT id FROM {view} WHERE id > %s".encode(), [0], prepare=True).fetchall()
            assert sorted(rows) == [(1,), (3,)]
        for text in (f"TABLE {view}", f"SELECT * FROM (SELECT * FROM {view}) x", f"WITH a AS (TABLE {view}) TABLE a",
                     f"SELECT a.* FROM {view} a JOIN {view} b USING (id)"):  # fmt: skip
            assert len(conn.execute(text.encode()).fetchall()) == 2, text
        conn.execute("SET row_security = off")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="would be affected by row-level security"):
            conn.execute(f"SELECT * FROM {view}".encode())
        conn.execute("RESET row_security")
        # A function that looks at every row before the policy would does not get to.
        conn.execute("SET ROLE red")
        assert conn.execute(f"SELECT count(*) FROM {view} WHERE id IS NOT NULL".encode()).fetchone() == (2,)
    url = f"postgresql://rosa:{PASSWORD}@127.0.0.1:{house.port}/main"
    dump = [binaries() / "pg_dump", "--dbname", url, "--data-only", "-t", f"public.{view}"]
    done = subprocess.run(dump, capture_output=True, text=True, timeout=60, check=False)
    assert "would be affected by row-level security policy" in done.stderr
    done = subprocess.run([*dump, "--enable-row-security"], capture_output=True, text=True, timeout=60, check=False)
    assert "1\tred\n3\tred\n" in done.stdout and "blue" not in done.stdout
    # The worker keeps the view as before.
    with psycopg.connect(house.catalog.worker_url("main"), autocommit=True) as worker:
        worker.execute(f"INSERT INTO public.{view} VALUES (4, 'red') ON CONFLICT (id) DO UPDATE SET secret = 'red'")
        assert worker.execute(f"SELECT count(*) FROM public.{view}").fetchone() == (4,)
    assert ids(ask, view, "rosa") == [1, 3, 4]


def test_restrictive_and_alter(house: House, ask: Ask, view: str) -> None:
    ask(f"ALTER MATERIALIZED VIEW {view} ENABLE ROW LEVEL SECURITY")
    assert ids(ask, view, "rosa") == [] and ids(ask, view, "admin") == [1, 2, 3, 4]
    ask(f"CREATE POLICY everything ON {view} FOR SELECT TO PUBLIC USING (true)",
        f"CREATE POLICY small ON {view} AS RESTRICTIVE USING (id < 4)")  # fmt: skip
    assert ids(ask, view, "rosa") == [1, 2, 3] and ids(ask, view, "admin") == [1, 2, 3]
    ask(f"ALTER POLICY small ON {view} USING (id < 3)")
    assert ids(ask, view, "rosa") == [1, 2]
    ask(f"ALTER POLICY everything ON {view} TO blue")
    assert ids(ask, view, "rosa") == [] and ids(ask, view, "bert") == [1, 2]
    ask(f'ALTER POLICY everything ON {view} RENAME TO "All of it"')
    assert {r[0]: r[3] for r in ask("LIST POLICIES") if r[1].endswith(view)} == {"All of it": "{blue}", "small": "{}"}
    ask(f"DROP POLICY small ON {view}", f"DROP POLICY IF EXISTS small ON {view}")
    assert ids(ask, view, "bert") == [1, 2, 3, 4]
    ask(f"ALTER MATERIALIZED VIEW {view} OWNER TO red")
    assert ids(ask, view, "rosa") == [1, 2, 3, 4]  # it is red's now


def test_policies_are_made_again(house: House, ask: Ask, view: str) -> None:
    ask(f"CREATE POLICY own ON {view} TO red USING (secret = current_user)",
        f"CREATE POLICY not_four ON {view} AS RESTRICTIVE USING (id <> 4)",
        f"ALTER MATERIALIZED VIEW {view} ENABLE ROW LEVEL SECURITY")  # fmt: skip
    right = house.superuser(TABLE.format(view), "main")
    assert [r[0] for r in right] == ["not_four", "own", "pgstream_owner"]
    heal = opening.heal(house.catalog._administrator, house.catalog.snapshot, ())
    assert [said for said in house.run(heal) if view in said] == []
    for broken in (f"DROP POLICY own ON {view}", f"ALTER TABLE {view} DISABLE ROW LEVEL SECURITY",
                   f"CREATE POLICY more ON {view} USING (true)", f"ALTER POLICY own ON {view} USING (true)",
                   f"ALTER POLICY own ON {view} TO PUBLIC", f"DROP TABLE {view}"):  # fmt: skip
        house.superuser(broken, "main")
        said = house.run(opening.heal(house.catalog._administrator, house.catalog.snapshot, ()))
        assert f"policies of main.public.{view} made again" in said, broken
        assert house.superuser(TABLE.format(view), "main") == right
        enabled = f"SELECT relrowsecurity FROM pg_class WHERE relname = '{view}'"
        assert house.superuser(enabled, "main") == [(True,)]


def test_a_policy_that_cannot_be_made_again_lets_nothing_through(house: House, ask: Ask, view: str) -> None:
    ask("CREATE TABLE public.members (who text, id bigint)", "INSERT INTO members VALUES ('red', 2)",
        "GRANT SELECT ON members TO red", role="sysadmin")  # fmt: skip
    # An unqualified name could be anybody's.
    assert refused(ask, f"CREATE POLICY m ON {view} USING (id IN (SELECT m.id FROM members m))").startswith("42P01")
    ask(f"CREATE POLICY m ON {view} USING (id IN (SELECT m.id FROM public.members m WHERE m.who = current_user))",
        f"ALTER MATERIALIZED VIEW {view} ENABLE ROW LEVEL SECURITY")  # fmt: skip
    assert ids(ask, view, "rosa") == [2]
    ask("DROP TABLE members CASCADE")
    assert ids(ask, view, "rosa") == []
    said = house.run(opening.heal(house.catalog._administrator, house.catalog.snapshot, ()))
    assert [s for s in said if view in s] == [
        f'policies of main.public.{view} cannot be made again (relation "public.members" does not exist): '
        "they let nothing through"
    ]
    assert ids(ask, view, "rosa") == []
    again = house.run(opening.heal(house.catalog._administrator, house.catalog.snapshot, ()))
    assert [s for s in again if view in s] == []
    ask(f"DROP POLICY m ON {view}")


def test_only_the_owner_makes_policies(house: House, ask: Ask, view: str) -> None:
    ask(f"CREATE POLICY own ON {view} USING (true)")
    for text in (f"CREATE POLICY mine ON {view} USING (true)", f"ALTER POLICY own ON {view} USING (true)",
                 f"DROP POLICY own ON {view}", f"ALTER VIEW {view} ENABLE ROW LEVEL SECURITY"):  # fmt: skip
        assert refused(ask, text, user="rosa") == f"42501 permission denied for relation {view}", text
    house.relation("unseen", "materialized_view")
    ask("CREATE POLICY own ON unseen USING (true)")
    assert refused(ask, "CREATE POLICY own ON unseen USING (true)", user="rosa").startswith("42P01")
    assert refused(ask, "LIST POLICIES ON unseen", user="rosa").startswith("42P01")
    assert "unseen" not in str(ask("LIST POLICIES", user="rosa"))


def test_a_role_is_kept_by_its_policies(house: House, ask: Ask, view: str) -> None:
    ask("CREATE ROLE named", role="useradmin")
    ask(f"CREATE POLICY own ON {view} TO named USING (true)", role="sysadmin")
    with pytest.raises(psycopg.Error) as e:
        ask("DROP ROLE named", role="useradmin")
    assert (e.value.diag.sqlstate, e.value.diag.message_detail) == ("2BP01", "It is named by policy own.")
    ask(f"DROP POLICY own ON {view}", role="sysadmin")
    ask("DROP ROLE named", role="useradmin")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("CREATE POLICY p ON {v} USING (nope = 1)", '42703 column "nope" does not exist'),
        ("CREATE POLICY p ON {v} USING (id)", "42804 argument of POLICY must be type boolean, not type bigint"),
        ("CREATE POLICY p ON {v} USING (id = 1", "42601 syntax error at end of input"),
        ("CREATE POLICY p ON {v} TO red USING (true)) TO blue USING ((true)", "42601"),
        ("CREATE POLICY p ON {v} USING (true) WITH CHECK (true)", '42601 syntax error at or near "WITH"'),
        ("CREATE POLICY p ON {v} USING ()", "42601"),
        ("CREATE POLICY p ON {v} USING ($$x$$ = 'x')", "0A000"),
        ("CREATE POLICY p ON {v} USING (true /* ) */)", "0A000"),
        ("CREATE POLICY p ON {v}", "42601 syntax error at end of input"),
        ("CREATE POLICY p ON {v} FOR UPDATE USING (true)",
         "0A000 a policy for writing to a materialized view is not supported"),
        ("CREATE POLICY p ON {v} TO nobody_at_all USING (true)", '42704 role "nobody_at_all" does not exist'),
        ("CREATE POLICY pgstream_owner ON {v} USING (true)", '42939 policy name "pgstream_owner" is reserved'),
        ("CREATE POLICY taken ON {v} USING (true)", '42710 policy "taken" already exists'),
        ("ALTER POLICY nope ON {v} USING (true)", '42704 policy "nope" does not exist'),
        ("DROP POLICY nope ON {v}", '42704 policy "nope" does not exist'),
        ("ALTER TABLE {v} FORCE ROW LEVEL SECURITY",
         "0A000 FORCE ROW LEVEL SECURITY on a materialized view is not supported"),
        ("CREATE POLICY p ON bad_stream USING (true)", '42809 "bad_stream" is a stream, not a materialized view'),
    ],
)  # fmt: skip
def test_bad(house: House, ask: Ask, tenants: None, text: str, said: str) -> None:
    if ("main", "public", "bad") not in house.catalog.snapshot.relations:
        house.relation("bad", "materialized_view")
        house.relation("bad_stream")
        ask("CREATE POLICY taken ON bad USING (id > 0)", role="sysadmin")
    before = house.superuser(TABLE.format("bad"), "main")
    found = refused(ask, text.format(v="bad"), role="sysadmin")
    assert found.startswith(said), found
    assert house.superuser(TABLE.format("bad"), "main") == before
    assert [r[0] for r in ask("LIST POLICIES ON bad")] == ["taken"]


def test_what_is_hidden_is_not_named(house: House, ask: Ask, view: str) -> None:
    """PostgreSQL keeps what a policy names: the server could drop its own tables no more."""
    house.superuser("CREATE TABLE pg_pgstream.s_1_1 (i int); ALTER TABLE pg_pgstream.s_1_1 OWNER TO pgstream_worker",
                    "main")  # fmt: skip
    house.superuser("CREATE FUNCTION pg_pgstream.f() RETURNS int LANGUAGE sql AS 'SELECT 1'", "main")
    ask(f"CREATE POLICY own ON {view} USING (true)", role="sysadmin")
    right = house.superuser(TABLE.format(view), "main")
    number = house.superuser("SELECT 'pg_pgstream.s_1_1'::regclass::oid", "main")[0][0]
    denied = "42501 permission denied for schema pg_pgstream"
    for text in (
        "(SELECT count(*) FROM pg_pgstream.s_1_1) >= 0", "EXISTS (SELECT FROM pg_pgstream.ledger)",
        "'pg_pgstream.s_1_1'::regclass IS NOT NULL", "'pg_pgstream.s_1_1'::pg_catalog.regclass::oid > 0::oid",
        f"'{number}'::regclass IS NOT NULL", "'pg_pgstream'::regnamespace IS NOT NULL",
        "pg_pgstream.f() = 1", "'pg_pgstream.f'::regproc IS NOT NULL",
        "NULL::pg_pgstream.s_1_1 IS NULL", "NULL::pg_pgstream.s_1_1[] IS NULL",
        "(WITH x AS (SELECT FROM pg_pgstream.s_1_1) SELECT count(*) FROM x) >= 0",
    ):  # fmt: skip
        assert refused(ask, f"CREATE POLICY p ON {view} USING ({text})") == denied, text
        assert refused(ask, f"ALTER POLICY own ON {view} USING ({text})") == denied, text
    assert house.superuser(TABLE.format(view), "main") == right
    house.superuser("DROP TABLE pg_pgstream.s_1_1; DROP FUNCTION pg_pgstream.f", "main")


def test_what_its_writer_could_not_name_in_a_view(house: House, ask: Ask, tenants: None) -> None:
    ask("CREATE SCHEMA closed", "CREATE TABLE closed.t (i int)", "CREATE SCHEMA opened", role="sysadmin")
    ask("CREATE TABLE opened.t (i int, j int)", "GRANT USAGE ON SCHEMA opened TO red")
    house.relation("reds", "materialized_view", owner="red")
    wanted = "(SELECT count(*) FROM {}.t) >= 0"
    for text in ("CREATE VIEW opened_view AS SELECT * FROM closed.t",
                 f"CREATE POLICY p ON reds USING ({wanted.format('closed')})"):  # fmt: skip
        assert refused(ask, text, user="rosa") == "42501 permission denied for schema closed"
    # What may be named need not be readable: that is asked of who reads, as in a policy of PostgreSQL's own.
    ask(f"CREATE POLICY p ON reds USING ({wanted.format('opened')})", "GRANT SELECT ON reds TO blue",
        "ALTER MATERIALIZED VIEW reds ENABLE ROW LEVEL SECURITY", user="rosa")  # fmt: skip
    assert refused(ask, "SELECT * FROM reds", user="bert") == "42501 permission denied for table t"
    ask("GRANT SELECT ON opened.t TO blue")
    assert ids(ask, "reds", "bert") == []
    # Who may name more writes it for others.
    ask(f"ALTER POLICY p ON reds USING ({wanted.format('closed')})", role="sysadmin")
    ask("ALTER POLICY p ON reds TO red", "DROP POLICY p ON reds", user="rosa")


def test_a_policy_that_names_what_is_hidden_is_shut_at_a_start(house: House, ask: Ask, view: str) -> None:
    """One that an earlier version has made."""
    ask(f"CREATE POLICY own ON {view} USING (secret = current_user)",
        f"ALTER MATERIALIZED VIEW {view} ENABLE ROW LEVEL SECURITY", role="sysadmin")  # fmt: skip
    pins = dict.fromkeys(("pin_a", "pin_b"), "(SELECT count(*) FROM pg_pgstream.ledger) >= 0")
    for name, using in pins.items():
        ask(f"CREATE POLICY {name} ON {view} USING (false)")
        house.superuser(f"ALTER POLICY {name} ON {view} USING ({using})", "main")
        definition = f'{{"roles": [], "using": "{using}", "permissive": true}}'
        house.superuser(f"UPDATE policies SET definition = '{definition}' WHERE name = '{name}'", "pgstream_control")
    house.superuser(f"UPDATE relations SET updated_at = now() WHERE name = '{view}'", "pgstream_control")
    house.run(house.catalog.refresh())
    said = house.run(opening.heal(house.catalog._administrator, house.catalog.snapshot, ()))
    assert [s for s in said if view in s] == [
        f"policies of main.public.{view} name what is hidden (pin_a, pin_b): they let nothing through"
    ]
    found = {name: using for name, _, _, using in house.superuser(TABLE.format(view), "main")}
    assert found["pin_a"] == found["pin_b"] == "false" and ids(ask, view, "rosa") == [1, 3]
    again = house.run(opening.heal(house.catalog._administrator, house.catalog.snapshot, ()))
    assert [s for s in again if view in s] == []
    ask(f"DROP POLICY pin_a ON {view}")  # while the other stays
    assert {r[0]: r[3] for r in house.superuser(TABLE.format(view), "main")}["pin_b"] == "false"
    ask(f"DROP POLICY pin_b ON {view}")


CODE = (
    "CREATE TABLE public.told (who text); GRANT INSERT ON public.told TO PUBLIC",
    "CREATE FUNCTION public.tell(t text) RETURNS boolean LANGUAGE plpgsql AS"
    " $$ BEGIN INSERT INTO public.told VALUES (session_user); RETURN true; END $$",
    "CREATE DOMAIN public.d AS text CHECK (public.tell(VALUE)); CREATE TYPE public.c AS (d public.d)",
    "CREATE TABLE public.ds (d public.d, a public.d[], c public.c); GRANT SELECT ON public.ds TO PUBLIC",
    "CREATE FUNCTION public.takes(a public.d[]) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
    "CREATE FUNCTION public.takes(c public.c) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
)  # fmt: skip


@pytest.fixture(scope="module")
def code(house: House, tenants: None) -> Iterator[psycopg.Connection]:
    """What red has, whose domain runs a function of red's as whoever reads a value of it."""
    house.superuser("GRANT CREATE ON SCHEMA public TO red", "main")
    house.relation("reds_rows", "materialized_view", owner="red")
    house.superuser("INSERT INTO reds_rows VALUES (1, 'x')", "main")
    with house.connect("rosa") as rosa:
        for text in CODE:
            rosa.execute(text.encode())
        yield rosa


@pytest.mark.parametrize(
    "using",
    [
        "secret = ANY('{x}'::public.d[])", "CAST('{x}' AS public.d[]) IS NOT NULL", "'(x)'::public.c IS NOT NULL",
        "public.c '(x)' IS NOT NULL", 'public."c" \'(x)\' IS NOT NULL', "public.takes(c => '(x)')",
        "EXISTS (SELECT FROM public.ds WHERE a = '{x}')", "EXISTS (SELECT FROM public.ds WHERE c = '(x)')",
        "ROW('{x}')::public.c IS NOT NULL", "(ARRAY['(x)'])::public.c[] IS NOT NULL",
        "\"public\".takes(a => '{x}')", "(SELECT a FROM public.ds UNION SELECT '{x}' LIMIT 1) IS NULL",
    ],
)  # fmt: skip
def test_a_policy_is_read_without_a_clients_code(house: House, code: psycopg.Connection, using: str) -> None:
    """The superuser reads it: code that runs meanwhile could make itself one."""
    try:
        code.execute(f"CREATE POLICY p ON reds_rows USING ({using})".encode())
    except psycopg.Error as e:
        assert e.sqlstate[:2] == "42"
    else:
        house.run(opening.heal(house.catalog._administrator, house.catalog.snapshot, ()))
        code.execute("DROP POLICY p ON reds_rows")
    assert code.execute("TABLE public.told").fetchall() == []


def test_strings_beside_what_is_not_postgresqls_own(house: House, code: psycopg.Connection, ask: Ask) -> None:
    """They are text; what else they are to be, they become when rows are read."""
    code.execute("GRANT SELECT ON reds_rows TO blue; ALTER MATERIALIZED VIEW reds_rows ENABLE ROW LEVEL SECURITY")
    for using, rows in (
        ("reds_rows.secret = 'x' AND now() > timestamp with time zone '2020-01-01'", [1]),
        ("reds_rows.secret = 'it''s' OR id = 2", []),
        ("reds_rows.id = '1'::bigint AND secret LIKE 'x%' AND secret IN ('x', 'y')", [1]),
        ("'x'::public.d = secret", [1]),
    ):
        code.execute(f"CREATE POLICY p ON reds_rows USING ({using})".encode())
        assert ids(ask, "reds_rows", "bert") == rows
        code.execute("DROP POLICY p ON reds_rows")
    assert code.execute("SELECT DISTINCT who FROM public.told").fetchall() == [("bert",)]
    code.execute("ALTER MATERIALIZED VIEW reds_rows DISABLE ROW LEVEL SECURITY")
