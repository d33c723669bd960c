"""Bad input for every statement, through a server: what is missing, wrong or said twice; and nothing half-made.

``tests/unit/statements/test_bad_input.py`` has the grammar's half.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.examples import EXAMPLES
from tests.pg.catalogues.conftest import Both

pytestmark = pytest.mark.pg
# They need nothing that could be missing; START SANDBOX and CREATE ORGANIZATION would make one.
_FINE = {"CanI", "CreateOrganization", "ListDescriptors", "ListRegions", "StartSandbox"}
_OPTION = re.compile(r"WITH \(('[\w.]+')")
_CODES = {"0A000", "22023", "3D000", "3F000", "42601", "42704", "42P01", "42703", "42809", "42883", "42939", "34000",
          "55000", "58000"}  # fmt: skip


@pytest.fixture(scope="module")
def server(both: Both) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(both.ours, autocommit=True) as c:
        c.execute("USE ROLE orgadmin")  # no privilege is missing
        yield c


def fault(c: psycopg.Connection[Any], text: str) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as e:
        c.execute(text.encode())
    at = int(e.value.diag.statement_position or 1)
    assert 1 <= at <= len(text) + 1, (text, at)
    return e.value


def everything(c: psycopg.Connection[Any]) -> list[Any]:
    """What there is, by the catalogue and by PostgreSQL."""
    listed = [c.execute(text.encode()).fetchall() for name, text in sorted(EXAMPLES.items()) if name in _LISTS]
    relations = c.execute("SELECT oid, relname, relkind FROM pg_class ORDER BY 1").fetchall()
    return [*listed, relations, c.execute("SELECT datname FROM pg_database ORDER BY 1").fetchall(),
            c.execute("SELECT nspname FROM pg_namespace ORDER BY 1").fetchall()]  # fmt: skip


_LISTS = {n for n, text in EXAMPLES.items() if n.startswith("List") and len(text.split()) <= 3}
_WRONG = sorted(set(EXAMPLES) - _LISTS - _FINE)


def test_what_is_not_there_is_said_and_nothing_is_made(server: psycopg.Connection[Any]) -> None:
    before = everything(server)
    for name in _WRONG:
        e = fault(server, EXAMPLES[name])
        assert e.sqlstate in _CODES, (EXAMPLES[name], e.sqlstate, str(e))
    assert everything(server) == before


@pytest.mark.parametrize("name", sorted(n for n in _WRONG if _OPTION.search(EXAMPLES[n])))
def test_options(server: psycopg.Connection[Any], name: str) -> None:
    text = EXAMPLES[name]
    option = _OPTION.search(text)
    assert option is not None
    at, key = option.start(1), option[1]
    # Said twice: at the second.
    again = fault(server, text[:at] + f"{key} = 'x', " + text[at:])
    where = at + len(f"{key} = 'x', ") + 1
    assert (again.sqlstate, again.diag.statement_position) == ("42601", str(where)), str(again)
    # Not a string: the hint shows how.
    bare = fault(server, text[:at] + "bare = 1, " + text[at:])
    assert bare.sqlstate == "42601" and "'bare'" in (bare.diag.message_hint or ""), str(bare)
    # One that nobody knows. Before the object is looked for, where options do not depend on it.
    odd = fault(server, text[:at] + "'no.such.option' = 1, " + text[at:])
    if odd.sqlstate == "22023" and "unknown parameter" in str(odd):
        assert odd.diag.statement_position == str(at + 1), str(odd)
        assert odd.diag.message_hint, str(odd)
    else:
        # What it names comes first; a secret may have any other words.
        assert odd.sqlstate in ("42704", "42P01", "42809") or name.endswith("Secret"), str(odd)


def test_sizes(server: psycopg.Connection[Any]) -> None:
    """A megabyte of statement, and names of 10,000 characters, through the wire; the session goes on."""
    large = "x" * (1 << 20)
    assert fault(server, f"CREATE SECRET nope WITH ('type' = '{large}')").sqlstate == "22023"
    assert fault(server, f"DROP SECRET nope /* {large} */").sqlstate == "42704"
    assert fault(server, "DROP SECRET " + "n" * 10_000).sqlstate == "42622"
    assert fault(server, "CREATE STREAM nope (a " + "ARRAY<" * 10_000 + "BIGINT").sqlstate in ("42601", "54001")
    assert fault(server, "SELECT " + "(" * 20_000 + " FROM pageviews").sqlstate in ("42601", "54001", "0A000")
    assert fault(server, 'DROP SECRET "a\x01\x1bb"').sqlstate == "42704"
    server.execute("LIST SECRETS")


_JAR = "'file' = 'base64:AAAA'"
_COLUMNS = "CREATE STREAM nope (a BIGINT) WITH ('store' = k, 'topic' = 't'"


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("CREATE STORE nope WITH ('uris' = 'x:1')", "type"),
        ("CREATE STORE nope WITH ('type' = KAFKA)", "uris"),
        ("CREATE SCHEMA_REGISTRY nope WITH ('uris' = 'http://x')", "type"),
        ("CREATE SCHEMA_REGISTRY nope WITH ('type' = CONFLUENT)", "uris"),
        ("CREATE SECRET nope WITH ('description' = 'x')", "type"),
        ("CREATE FUNCTION_SOURCE nope WITH ('description' = 'x')", "file"),
        ("CREATE DESCRIPTOR_SOURCE nope WITH ('description' = 'x')", "file"),
        ("CREATE FUNCTION nope () RETURNS BIGINT LANGUAGE JAVA WITH ('class.name' = 'C')", "source.name"),
        ("CREATE SECURITY INTEGRATION nope WITH ('scim.client' = OKTA)", "type"),
        ("CREATE METRICS INTEGRATION nope WITH ('prometheus.uri' = 'x')", "type"),
        ("CREATE API_TOKEN nope", "token.role_name"),
        ("INVITE USER 'nope@example.com' WITH ('roles' = 'sysadmin')", "default_role"),
    ],
)
def test_what_must_be_given(server: psycopg.Connection[Any], text: str, option: str) -> None:
    e = fault(server, text)
    assert (e.sqlstate, e.diag.message_primary) == ("22023", f'parameter "{option}" is required')
    assert e.diag.message_hint


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("CREATE STORE nope WITH ('type' = KAFKA, 'uris' = 'x:1', 'tls.disabled' = perhaps)", "perhaps"),
        ("CREATE STORE nope WITH ('type' = KAFKA, 'uris' = 'x:1', 'kafka.sasl.hash_function' = 'ROT13')", "'ROT13'"),
        ("CREATE STORE nope WITH ('type' = 7, 'uris' = 'x:1')", "7"),
        ("CREATE COMPUTE_POOL nope WITH ('compute_pool.size' = 3)", "3"),
        ("CREATE COMPUTE_POOL nope WITH ('compute_pool.timeout_min' = 'soon')", "'soon'"),
        ("CREATE COMPUTE_POOL nope WITH ('compute_pool.timeout_min' = 0)", "0"),
        ("CREATE COMPUTE_POOL nope WITH ('compute_pool.cores' = 1.5)", "1.5"),
        ("CREATE API_TOKEN nope WITH ('token.role_name' = sysadmin, 'token.expires_in_days' = 'never')", "'never'"),
        ("CREATE API_TOKEN nope WITH ('token.role_name' = sysadmin, 'token.expires_in_days' = TRUE)", "TRUE"),
        ("CREATE SECRET nope WITH ('type' = TRUE)", "TRUE"),
        ("CREATE SECURITY INTEGRATION nope WITH ('type' = SAML)", "SAML"),
        ("CREATE METRICS INTEGRATION nope WITH ('type' = 'graphite')", "'graphite'"),
    ],
)
def test_values_of_the_wrong_kind(server: psycopg.Connection[Any], text: str, value: str) -> None:
    e = fault(server, text)
    assert (e.sqlstate, e.diag.statement_position) == ("22023", str(text.rindex(value) + 1)), str(e)
    assert e.diag.message_hint, str(e)


_TWICE = {
    "DATABASE twice": ("", "42P04"), "SCHEMA twice": ("", "42P06"), "ROLE twice": ("", "42710"),
    "SCHEMA_REGISTRY twice": ("WITH ('type' = CONFLUENT, 'uris' = 'http://x')", "42710"),
    "SECRET twice": ("WITH ('type' = GENERIC_SECRET)", "42710"), "COMPUTE_POOL twice": ("", "42710"),
    "SECURITY INTEGRATION twice": ("WITH ('type' = SCIM)", "42710"),
    "METRICS INTEGRATION twice": ("WITH ('type' = PROMETHEUS)", "42710"),
    "API_TOKEN twice": ("WITH ('token.role_name' = orgadmin)", "42710"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(_TWICE))
def test_what_is_there_already(server: psycopg.Connection[Any], name: str) -> None:
    rest, code = _TWICE[name]
    text = f"CREATE {name} {rest}"
    server.execute(text.encode())
    try:
        e = fault(server, text)
        assert (e.sqlstate, e.diag.statement_position) == (code, str(text.index("twice") + 1)), str(e)
        if not name.startswith("API"):
            server.execute(f"CREATE {name.replace('twice', 'IF NOT EXISTS twice')} {rest}".encode())
    finally:
        server.execute(f"DROP {name}".encode())
    assert fault(server, f"DROP {name}").sqlstate[:2] in ("3D", "3F", "42")


def test_relations_that_are_there_already(server: psycopg.Connection[Any]) -> None:
    """And names of tables of PostgreSQL's own; each refused at the name."""
    for name in ("pageviews", "users", "views_per_user", "customers", "busy"):
        text = f"CREATE STREAM {name} (a BIGINT) WITH ('store' = k, 'topic' = 't', 'value.format' = 'json')"
        e = fault(server, text)
        assert (e.sqlstate, e.diag.statement_position) in (("42P07", "15"), ("58000", None)), str(e)


@pytest.mark.parametrize("name", sorted(set(EXAMPLES) - _LISTS - _FINE))
def test_control_characters(server: psycopg.Connection[Any], name: str) -> None:
    """A NUL ends a text of the protocol: nothing behind it is run. Others are a syntax error, or part of a name."""
    text = EXAMPLES[name]
    for sign in ("\x01", "\x1b", "\x7f", "\u200b", "\ufeff"):
        e = fault(server, text + f" {sign}x")
        assert e.sqlstate in _CODES | {"42501", "42602"}, (text, sign, e.sqlstate)


@pytest.mark.parametrize(
    "text",
    [
        "LIST API_TOKENS nonsense", "LIST CHANGELOGS nonsense", "LIST COMPUTE_POOLS nonsense",
        "LIST DESCRIPTORS nonsense", "LIST DESCRIPTOR_SOURCES nonsense", "LIST FUNCTIONS nonsense",
        "LIST FUNCTION_SOURCES nonsense", "LIST INDEXES nonsense", "LIST MATERIALIZED VIEWS nonsense",
        "LIST METRICS INTEGRATIONS nonsense", "LIST MY INVITATIONS nonsense", "LIST ORGANIZATIONS nonsense",
        "LIST PENDING INVITATIONS nonsense", "LIST REGIONS nonsense", "LIST RELATIONS nonsense", "LIST ROLES nonsense",
        "LIST SCHEMA_REGISTRIES nonsense", "LIST SECRETS nonsense", "LIST SECURITY INTEGRATIONS nonsense",
        "LIST STORES nonsense", "LIST STREAMS nonsense", "LIST TABLES nonsense", "LIST USER ROLES nonsense",
        "LIST USERS nonsense",
    ],
)  # fmt: skip
def test_lists_of_nonsense(server: psycopg.Connection[Any], text: str) -> None:
    e = fault(server, text)
    said = ("42601", 'syntax error at or near "nonsense"', str(text.index("nonsense") + 1))
    assert (e.sqlstate, e.diag.message_primary, e.diag.statement_position) == said


@pytest.mark.parametrize("text", ["LIST STREAMS IN SCHEMA nope", "LIST CHANGELOGS IN SCHEMA main.nope",
                                  "LIST TABLES IN SCHEMA nope", "LIST MATERIALIZED VIEWS IN SCHEMA nope",
                                  "LIST INDEXES IN SCHEMA nope", "LIST RELATIONS IN SCHEMA main.nope"])  # fmt: skip
def test_lists_of_a_schema_that_is_not_there(server: psycopg.Connection[Any], text: str) -> None:
    e = fault(server, text)
    assert (e.sqlstate, e.diag.message_primary) == ("3F000", 'schema "nope" does not exist'), str(e)
    assert e.diag.statement_position == str(text.index("SCHEMA ") + 8)
