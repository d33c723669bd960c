"""Users: invited, accepted, rejected, revoked, dropped; their passwords; who sees whom."""

from __future__ import annotations

import subprocess

import psycopg
import pytest

from tests.pg.access.conftest import PASSWORD, Ask, House

pytestmark = pytest.mark.pg
ORGANIZATION = "00000000-0000-4000-8000-000000000001"


@pytest.fixture(scope="module")
def readers(house: House) -> str:
    with house.connect() as conn:
        for text in ("USE ROLE useradmin", "CREATE ROLE readers WITH (ROLE (sysadmin))", "CREATE ROLE writers",
                     "USE ROLE sysadmin", "GRANT USAGE ON DATABASE main TO ROLE readers",
                     "GRANT USAGE ON SCHEMA main.public TO ROLE readers"):  # fmt: skip
            conn.execute(text.encode())
    return "readers"


def refused(ask: Ask, text: str, **who: str) -> str:
    with pytest.raises(psycopg.Error) as e:
        ask(text, **who)
    return f"{e.value.diag.sqlstate} {e.value.diag.message_primary}"


def invite(ask: Ask, user: str, more: str = "") -> str:
    """The first password."""
    [row] = ask(f"INVITE USER '{user}' WITH ('default_role' = readers{more})", role="useradmin")
    assert (row[0], row[2]) == ("invitation", "CREATE")
    assert row[3] == f'invitation to organization "{ORGANIZATION}" for "{user}" was created'
    return str(row[4])


def lone(house: House, user: str, password: str, database: str = "postgres") -> psycopg.Connection:
    return house.connect(user, database, password=password)


def test_an_invited_user_accepts(house: House, ask: Ask, readers: str) -> None:
    password = invite(ask, "ada@example.com", ", 'roles' = 'writers, \"writers\"'")
    with pytest.raises(psycopg.OperationalError, match='database "main" does not exist'):
        lone(house, "ada@example.com", password, "main")
    with lone(house, "ada@example.com", password) as ada:
        assert ada.execute("SELECT current_user").fetchone() == ("pgstream_public",)
        assert ada.execute("LIST DATABASES").fetchall() == []
        assert "ada@example.com" not in {r[3] for r in ask("LIST USERS", role="useradmin")}
        [(id, organization, inviter)] = ada.execute("LIST MY INVITATIONS").fetchall()
        assert (organization, inviter) == ("default", "admin")
        [pending] = [r for r in ask("LIST PENDING INVITATIONS", role="useradmin") if r[0] == id]
        assert pending[1:6] == ("default", "ada@example.com", "admin", '["writers", "writers"]', "readers")
        answer = ada.execute(f"ACCEPT INVITATION {id}").fetchone()
        assert answer[:4] == (
            "invitation", id, "UPDATE", f'invitation to join organization "{ORGANIZATION}" was accepted'
        )  # fmt: skip
        assert ada.execute("SELECT current_user").fetchone() == ("readers",)
        assert [r[0] for r in ada.execute("LIST USER ROLES").fetchall()] == ["public", "readers", "writers"]
        assert ada.execute("LIST MY INVITATIONS").fetchall() == []
        assert ada.execute("LIST USERS").fetchall() == [(None, None, True, "ada@example.com", None)]
    assert ("ada@example.com", False) in {(r[3], r[2]) for r in ask("LIST USERS", role="useradmin")}
    assert {r[0]: (r[1], r[2]) for r in ask("DESCRIBE USER 'ada@example.com'", role="useradmin")} == {
        "public": ("orgadmin", True), "readers": ("useradmin", False), "writers": ("useradmin", False)
    }  # fmt: skip
    with lone(house, "ada@example.com", password, "main") as ada:
        assert ada.execute("SELECT current_user").fetchone() == ("readers",)
    ask("DROP USER 'ada@example.com'", role="useradmin")


def test_an_invitation_is_rejected_or_revoked(house: House, ask: Ask, readers: str) -> None:
    password = invite(ask, "bea")
    with lone(house, "bea", password) as bea:
        [(id, *_)] = bea.execute("LIST MY INVITATIONS").fetchall()
        said = bea.execute(f"REJECT INVITATION {id}").fetchone()
        assert said[:3] == ("invitation", id, "UPDATE") and said[3].endswith("was rejected")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        lone(house, "bea", password)
    password = invite(ask, "bea", ", 'password' = 'tell-nobody'")
    assert password == "None"
    lone(house, "bea", "tell-nobody").close()
    [id] = [r[0] for r in ask("LIST PENDING INVITATIONS", role="useradmin") if r[2] == "bea"]
    assert refused(ask, f"ACCEPT INVITATION {id}", role="orgadmin") == f'42704 invitation "{id}" does not exist'
    assert refused(ask, f"REJECT INVITATION {id}", role="orgadmin") == f'42704 invitation "{id}" does not exist'
    assert refused(ask, f"REVOKE INVITATION {id}", role="sysadmin").startswith("42501")
    [said] = ask(f"REVOKE INVITATION '{id}'", role="useradmin")
    assert said[:4] == (
        "invitation", id, "DROP", f'invitation to organization "{ORGANIZATION}" for "bea" was revoked'
    )  # fmt: skip
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        lone(house, "bea", "tell-nobody")
    assert house.superuser("SELECT count(*) FROM pg_roles WHERE rolname = 'bea'") == [(0,)]


def test_odd_names(house: House, ask: Ask, readers: str) -> None:
    for name in ("per%cent%s", 'quo"te', "it''s", "back\\slash", "ann~x", "ü@example.com", ":name", "%(x)s"):
        user = name.replace("''", "'")
        password = invite(ask, name) if "'" not in name else ask(
            f"INVITE USER '{name}' WITH ('default_role' = readers)", role="useradmin")[0][4]  # fmt: skip
        with lone(house, user, password) as conn:
            [(id, *_)] = conn.execute("LIST MY INVITATIONS").fetchall()
            conn.execute(f"ACCEPT INVITATION {id}".encode())
            token = conn.execute("CREATE API_TOKEN \"o%d'd\" WITH ('token.role_name' = readers)").fetchone()[4]
            with lone(house, f"{user}~o%d'd", token, "main") as robot:
                assert robot.execute("SELECT session_user").fetchone() == (f"{user}~o%d'd",)
        ask(f"DROP USER '{name}'", role="useradmin")


def test_a_dropped_user_is_gone_at_once(house: House, ask: Ask, readers: str) -> None:
    house.user("cem", readers)
    token = ask("CREATE API_TOKEN t WITH ('token.role_name' = readers)", user="cem")[0][4]
    with house.connect("cem", password=PASSWORD) as held, house.connect("cem~t", password=token) as robot:
        ask("SET DEFAULT ROLE readers", user="cem")
        assert refused(ask, "DROP USER 'cem'", role="sysadmin").startswith("42501")
        assert ask("DROP USER 'cem'", role="useradmin")[0][:4] == (
            "user", "cem", "DROP", "user cem was dropped from the organization"
        )  # fmt: skip
        for conn in (held, robot):
            with pytest.raises(psycopg.OperationalError):
                conn.execute("SELECT 1")
    for user, password in (("cem", PASSWORD), ("cem~t", token)):
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            house.connect(user, password=password)
    assert refused(ask, "DROP USER 'cem'", role="useradmin") == '42704 user "cem" does not exist'
    assert ask("DROP USER IF EXISTS 'cem'", role="useradmin")[0][3] == 'user "cem" does not exist'
    assert house.superuser("SELECT count(*) FROM memberships WHERE member LIKE 'cem%'", "pgstream_control") == [(0,)]
    assert house.superuser("SELECT count(*) FROM defaults WHERE \"user\" = 'cem'", "pgstream_control") == [(0,)]


def test_somebody_is_left(house: House, ask: Ask, readers: str) -> None:
    assert refused(ask, "DROP USER 'admin'", role="useradmin").startswith("55006")
    house.user("dan", "useradmin")
    with pytest.raises(psycopg.Error) as e:
        ask("DROP USER 'admin'", user="dan", database="postgres")
    assert (e.value.diag.sqlstate, e.value.diag.message_detail) == ("2BP01", "No other user has role orgadmin.")
    ask("SELECT 1", role="sysadmin")
    house.user("eli", "orgadmin")
    ask("DROP USER 'eli'", user="dan", database="postgres")
    ask("DROP USER 'dan'", role="useradmin")


def test_passwords(house: House, ask: Ask, readers: str) -> None:
    house.user("fay", readers)
    house.user("gus", readers)
    ask("ALTER USER CURRENT_USER PASSWORD 'second'", user="fay")
    with house.connect("fay", password="second") as fay:
        fay.execute("ALTER ROLE fay WITH ENCRYPTED PASSWORD 'third'")
        for text in ("ALTER USER gus PASSWORD 'x'", "ALTER USER \"gus\" WITH PASSWORD 'x'",
                     "ALTER ROLE readers PASSWORD 'x'"):  # fmt: skip
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                fay.execute(text.encode())
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        house.connect("fay", password="second")
    ask("ALTER USER fay PASSWORD 'fourth'", role="useradmin")
    with house.connect("fay", password="fourth") as fay:
        verifier = fay.pgconn.encrypt_password(b"fifth", b"fay", b"scram-sha-256").decode()
        fay.execute(f"ALTER USER fay PASSWORD '{verifier}'".encode())
    house.connect("fay", password="fifth").close()
    assert refused(ask, "ALTER USER readers PASSWORD 'x'", role="useradmin") == '42704 user "readers" does not exist'
    assert refused(ask, f"ALTER USER fay PASSWORD 'md5{'0' * 32}'", role="useradmin").startswith("42601")
    slow = verifier.replace("$4096:", "$999999999:")
    assert refused(ask, f"ALTER USER fay PASSWORD '{slow}'", role="useradmin").startswith("42601")
    token = ask("CREATE API_TOKEN t WITH ('token.role_name' = readers)", user="fay")[0][4]
    with house.connect("fay~t", password=token) as robot, pytest.raises(psycopg.Error) as e:
        robot.execute("ALTER USER CURRENT_USER PASSWORD 'x'")
    assert e.value.diag.sqlstate == "42704"


def test_psql_changes_a_password(house: House, ask: Ask, readers: str) -> None:
    house.user("hal", readers)
    url = f"postgresql://hal:{PASSWORD}@127.0.0.1:{house.port}/main"
    command = ["psql", "-Xq", url, "-c", "ALTER USER hal PASSWORD 'by-psql'", "-c", "SELECT current_user"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    house.connect("hal", password="by-psql").close()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("INVITE USER 'x'", '22023 parameter "default_role" is required'),
        ("INVITE USER 'x' WITH ('default_role' = nope)", '42704 role "nope" does not exist'),
        ("INVITE USER 'x' WITH ('default_role' = readers, 'roles' = 'readers, nope')",
         '42704 role "nope" does not exist'),
        ("INVITE USER 'x' WITH ('default_role' = readers, 'roles' = 'readers, ;')", "22023 invalid list of roles"),
        ("INVITE USER 'admin' WITH ('default_role' = readers)", '42710 user "admin" already exists'),
        ("INVITE USER 'readers' WITH ('default_role' = readers)", '42939 user name "readers" is reserved'),
        ("INVITE USER 'pg_x' WITH ('default_role' = readers)", '42939 user name "pg_x" is reserved'),
        ("INVITE USER '" + "x" * 64 + "' WITH ('default_role' = readers)",
         f'42622 identifier "{"x" * 64}" is too long'),
        ("INVITE USER 'x' WITH ('default_role' = readers, 'role' = readers)",
         '22023 unknown parameter "role" for an invitation'),
        ("ACCEPT INVITATION 11111111-1111-4111-8111-111111111111",
         '42704 invitation "11111111-1111-4111-8111-111111111111" does not exist'),
        ("REJECT INVITATION nope", '42601 syntax error at or near "nope"'),
        ("REVOKE INVITATION 11111111-1111-4111-8111-111111111111",
         '42704 invitation "11111111-1111-4111-8111-111111111111" does not exist'),
    ],
)  # fmt: skip
def test_bad_invitations(house: House, ask: Ask, readers: str, text: str, said: str) -> None:
    assert refused(ask, text, role="useradmin") == said
    assert not [r for r in ask("LIST PENDING INVITATIONS", role="useradmin") if r[2] == "x"]


def test_members_are_managed_with_the_privilege_only(house: House, ask: Ask, readers: str) -> None:
    for text in ("INVITE USER 'x' WITH ('default_role' = readers)", "LIST PENDING INVITATIONS", "DROP USER 'nobody'",
                 "REVOKE INVITATION 11111111-1111-4111-8111-111111111111", "DESCRIBE USER 'nobody'"):  # fmt: skip
        assert refused(ask, text, role="sysadmin") == "42501 permission denied for organization default", text
    house.user("ira", readers)
    assert [r[3] for r in ask("LIST USERS", user="ira")] == ["ira"]
    assert [r[0] for r in ask("DESCRIBE USER 'ira'", user="ira")] == ["public", "readers"]


def test_owner_to_another_role(house: House, ask: Ask, readers: str) -> None:
    ask("CREATE DATABASE given", role="sysadmin")
    assert ask("ALTER DATABASE given OWNER TO readers")[0][:4] == (
        "database", "given", "ALTER", 'Ownership of "given" granted to role "readers"'
    )  # fmt: skip
    assert ("given", "readers") in {(r[0], r[2]) for r in ask("LIST DATABASES", role="sysadmin")}
    assert refused(ask, "ALTER DATABASE given OWNER TO nope").startswith("42704")
    assert refused(ask, "ALTER DATABASE given OWNER TO writers", role="sysadmin").startswith("42501")
    house.relation("passed_on", "materialized_view")
    ask("ALTER MATERIALIZED VIEW passed_on OWNER TO readers", role="sysadmin")
    assert refused(ask, "SELECT * FROM public.passed_on", role="useradmin").startswith("42501")
    assert ask("SELECT * FROM passed_on", role="readers") == []


def test_roles_are_listed(house: House, ask: Ask, readers: str) -> None:
    ask("CREATE ROLE listed", role="useradmin")
    lines = {r[0]: (r[1], r[3]) for r in ask("LIST ROLES", role="useradmin")}
    assert lines["useradmin"] == (True, "orgadmin") and lines["listed"] == (False, "useradmin")
    house.user("joy", readers)
    assert [r[0] for r in ask("LIST ROLES", user="joy")] == ["public", "readers"]


def test_current_role_is_the_sessions(house: House, ask: Ask, readers: str) -> None:
    ask("CREATE SCHEMA mine IN DATABASE main", role="sysadmin")
    said = ask("GRANT USAGE ON SCHEMA main.mine TO CURRENT_ROLE, readers", role="sysadmin")
    assert said[0][2].endswith('granted to role(s) "sysadmin", "readers"')
    ask("REVOKE USAGE ON SCHEMA main.mine FROM CURRENT_USER", role="sysadmin")
    ask("ALTER SCHEMA main.mine OWNER TO CURRENT_ROLE", role="sysadmin")
    for text in ("GRANT USAGE ON SCHEMA main.mine TO SESSION_USER", "ALTER SCHEMA main.mine OWNER TO SESSION_USER"):
        assert refused(ask, text, role="sysadmin").startswith("0A000 SESSION_USER, a user, in the place of a role")


def test_drivers_get_the_tag_alone(house: House, ask: Ask, readers: str) -> None:
    """JDBC's executeUpdate, for one, wants no rows of what PostgreSQL answers without."""
    ask("CREATE SCHEMA tagged IN DATABASE main", role="sysadmin")
    with house.connect("admin") as conn:
        conn.execute("USE ROLE sysadmin")
        for text, tag in (
            ("GRANT USAGE ON SCHEMA main.tagged TO readers", "GRANT"),
            ("REVOKE USAGE ON SCHEMA main.tagged FROM readers", "REVOKE"),
            ("ALTER SCHEMA main.tagged OWNER TO sysadmin", "ALTER SCHEMA"),
        ):
            answer = conn.execute(text, prepare=True)
            assert (answer.statusmessage, answer.description) == (tag, None)
