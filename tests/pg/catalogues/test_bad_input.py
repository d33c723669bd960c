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
# They need nothing that could be missing; START SANDBOX would start one.
_FINE = {"CanI", "ListDescriptors", "ListRegions", "StartSandbox"}
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
