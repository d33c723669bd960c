"""API tokens: what logs in with one, as whom, how far it reaches, and when it ends."""

from __future__ import annotations

import datetime as dt

import psycopg
import pytest

from tests.pg.access.conftest import PASSWORD, Ask, House
from tests.server import within

pytestmark = pytest.mark.pg


@pytest.fixture(scope="module")
def robots(house: House) -> str:
    """A role that sees the database, and ``tom``, who has it."""
    with house.connect() as conn:
        for text in ("USE ROLE useradmin", "CREATE ROLE robots", "GRANT ROLE robots TO ROLE sysadmin",
                     "USE ROLE sysadmin", "GRANT USAGE ON DATABASE main TO ROLE robots",
                     "GRANT USAGE ON SCHEMA main.public TO ROLE robots"):  # fmt: skip
            conn.execute(text.encode())
    house.user("tom", "robots")
    return "robots"


def make(ask: Ask, name: str, role: str = "robots", user: str = "tom") -> str:
    return str(ask(f"CREATE API_TOKEN {name} WITH ('token.role_name' = {role})", user=user)[0][4])


def refused(house: House, user: str, password: str) -> str:
    with pytest.raises(psycopg.OperationalError) as e:
        house.connect(user, password=password)
    return str(e.value)


def test_a_token_logs_in_and_works_in_its_role(house: House, ask: Ask, robots: str) -> None:
    token = make(ask, "ci", user="admin")
    with house.connect("admin~ci", password=token) as conn:
        assert conn.execute("SELECT current_user, session_user").fetchall() == [("robots", "admin~ci")]
        assert [r[0] for r in conn.execute("LIST USER ROLES").fetchall()] == ["public", "robots"]
        for text in ("USE ROLE orgadmin", "SET ROLE sysadmin", "CREATE STORE s WITH ('type' = KAFKA, 'uris' = 'x:1')",
                     "CREATE API_TOKEN more WITH ('token.role_name' = robots)",
                     "GRANT ROLE orgadmin TO USER 'admin~ci'"):  # fmt: skip
            with pytest.raises(psycopg.Error) as e:
                conn.execute(text.encode())
            assert e.value.diag.sqlstate in ("42501", "42704"), text
        assert conn.execute("LIST API_TOKENS").fetchall() == []
    make(ask, "other", "securityadmin", user="admin")  # a role of the user's, whatever the session's is
    ask("DROP API_TOKEN other")
    [(name, used, made, ends, user, role)] = ask("LIST API_TOKENS")
    assert (name, user, role) == ("ci", "admin~ci", "robots")
    now = dt.datetime.now(dt.UTC)
    assert made <= used <= now + dt.timedelta(minutes=1) and ends - made == dt.timedelta(days=90)
    assert "password authentication failed" in refused(house, "admin~ci", PASSWORD)
    assert "password authentication failed" in refused(house, "admin", token)


def test_a_token_is_kept_as_a_verifier_only(house: House, ask: Ask, robots: str) -> None:
    token = make(ask, "kept")
    tables = house.superuser("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'",
                             "pgstream_control")  # fmt: skip
    for (table,) in tables:
        assert token not in str(house.superuser(f"SELECT * FROM {table}", "pgstream_control"))
    [(kept,)] = house.superuser("SELECT rolpassword FROM pg_authid WHERE rolname = 'tom~kept'")
    assert kept.startswith("SCRAM-SHA-256$")
    assert token not in str(ask("LIST API_TOKENS", user="tom"))


def test_a_renewed_token_locks_the_old_one_out(house: House, ask: Ask, robots: str) -> None:
    old = make(ask, "renewed")
    with house.connect("tom~renewed", password=old) as held:
        [(*answer, new)] = ask("ALTER API_TOKEN renewed RENEW TOKEN", user="tom")
        assert answer == ["api_token", "renewed", "ALTER", "api_token renewed was successfully refreshed"]
        with pytest.raises(psycopg.OperationalError):
            held.execute("SELECT 1")
    assert "password authentication failed" in refused(house, "tom~renewed", old)
    house.connect("tom~renewed", password=new).close()


def test_a_token_ends(house: House, ask: Ask, robots: str) -> None:
    token = make(ask, "brief")
    house.superuser("ALTER ROLE \"tom~brief\" VALID UNTIL '2020-01-01'")
    assert "password authentication failed" in refused(house, "tom~brief", token)
    token = make(ask, "gone")
    with house.connect("tom~gone", password=token) as held:
        assert ask("DROP API_TOKEN gone", user="tom")[0][3] == "api_token gone was successfully dropped"
        with pytest.raises(psycopg.OperationalError):
            held.execute("SELECT 1")
    assert "password authentication failed" in refused(house, "tom~gone", token)
    assert house.superuser("SELECT count(*) FROM pg_roles WHERE rolname = 'tom~gone'") == [(0,)]


def test_a_token_has_its_role_as_long_as_its_user(house: House, ask: Ask, robots: str) -> None:
    house.user("una", "robots")
    token = make(ask, "hers", user="una")
    with house.connect("una~hers", password=token) as held:
        assert held.execute("LIST DATABASES").fetchall()
        ask("REVOKE ROLE robots FROM USER 'una'", role="useradmin")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for role robots"):
            held.execute("LIST DATABASES")
    assert 'database "main" does not exist' in refused(house, "una~hers", token)
    member = "SELECT pg_has_role('una~hers', 'robots', 'member')"
    assert house.superuser(member) == [(False,)]
    ask("GRANT ROLE robots TO USER 'una'", role="useradmin")
    assert house.superuser(member) == [(True,)]
    house.connect("una~hers", password=token).close()
    # By way of another role just so.
    ask("CREATE ROLE lead WITH (IN ROLE (robots))", "REVOKE ROLE robots FROM USER 'una'",
        "GRANT ROLE lead TO USER 'una'", role="useradmin")  # fmt: skip
    assert house.superuser(member) == [(True,)]
    ask("REVOKE ROLE robots FROM ROLE lead", role="useradmin")
    assert house.superuser(member) == [(False,)]


def test_a_token_goes_with_its_role(house: House, ask: Ask, robots: str) -> None:
    ask("CREATE ROLE passing WITH (ROLE (sysadmin))", role="useradmin")
    token = make(ask, "passing", "passing", user="admin")
    ask("DROP ROLE passing", role="useradmin")
    assert "passing" not in {r[0] for r in ask("LIST API_TOKENS")}
    assert "password authentication failed" in refused(house, "admin~passing", token)


def test_a_role_that_one_only_owns_is_refused_by_its_name(house: House, ask: Ask, robots: str) -> None:
    house.user("lin", robots)
    ask("GRANT ROLE useradmin TO USER lin", role="useradmin")
    ask("CREATE ROLE solo", user="lin", role="useradmin")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for role solo") as e:
        make(ask, "x", "solo", user="lin")
    assert e.value.diag.message_hint == "A token takes a role that you have been granted."
    assert e.value.diag.statement_position == "46"


def test_tokens_of_others_do_not_exist(house: House, ask: Ask, robots: str) -> None:
    make(ask, "private")
    for text in ("DROP API_TOKEN private", "ALTER API_TOKEN private RENEW TOKEN"):
        with pytest.raises(psycopg.errors.UndefinedObject, match='api_token "private" does not exist'):
            ask(text, role="orgadmin")
    assert "private" not in {r[0] for r in ask("LIST API_TOKENS")}
    ask("DROP API_TOKEN IF EXISTS private")
    assert "private" in {r[0] for r in ask("LIST API_TOKENS", user="tom")}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("CREATE API_TOKEN x WITH ('token.role_name' = sysadmin)", '42704 role "sysadmin" does not exist'),
        ("CREATE API_TOKEN x WITH ('token.expires_in_days' = 1)", '22023 parameter "token.role_name" is required'),
        ("CREATE API_TOKEN x WITH ('token.role_name' = robots, 'token.expires_in_days' = 0)",
         "22023 invalid value '0' for parameter \"token.expires_in_days\""),
        ("CREATE API_TOKEN x WITH ('token.role_name' = robots, 'token.expires_in_days' = 99999999999)",
         "22023 invalid value '99999999999' for parameter \"token.expires_in_days\""),
        ("CREATE API_TOKEN " + "x" * 63 + " WITH ('token.role_name' = robots)",
         f'42622 identifier "tom~{"x" * 63}" is too long'),
        ("CREATE API_TOKEN twice WITH ('token.role_name' = robots)", '42710 api_token "twice" already exists'),
        ("DROP API_TOKEN nope", '42704 api_token "nope" does not exist'),
        ("ALTER API_TOKEN nope RENEW TOKEN", '42704 api_token "nope" does not exist'),
    ],
)  # fmt: skip
def test_bad_tokens(house: House, ask: Ask, robots: str, text: str, said: str) -> None:
    ask("CREATE API_TOKEN IF NOT EXISTS twice WITH ('token.role_name' = robots)", user="tom")
    with pytest.raises(psycopg.Error) as e:
        ask(text, user="tom")
    assert f"{e.value.diag.sqlstate} {e.value.diag.message_primary}" == said


def test_a_line_for_a_user_holds_for_its_tokens(house: House, ask: Ask, robots: str) -> None:
    from pgstream.server.access import SCRAM, Access, Rule

    token = make(ask, "kept_out")
    before = house.listener.access
    try:
        house.listener.access = Access([Rule(None, None, False, frozenset({"tom"}), None, "reject"),
                                        Rule(None, None, False, None, None, SCRAM)])  # fmt: skip
        assert "pg_hba.conf rejects connection" in refused(house, "tom~kept_out", token)
    finally:
        house.listener.access = before
    within(10, lambda: house.connect("tom~kept_out", password=token).close() is None)
