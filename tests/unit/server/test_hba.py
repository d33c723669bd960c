"""The access table: what its lines mean, which one fits, and what is refused when it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgstream.config import Config
from pgstream.errors import AuthorizationRefused, ConfigurationError
from pgstream.server import hba
from pgstream.server.access import Access, Visit

CA = Path("ca.crt")


def table(tmp_path: Path, text: str, names: str | None = None, *, tls: str = "auto", ca: Path | None = CA) -> Access:
    file, ident = tmp_path / "hba", tmp_path / "ident"
    file.write_text(text)
    if names is not None:
        ident.write_text(names)
    config = Config(hba_file=file, ident_file=ident if names is not None else None, tls=tls, tls_ca_file=ca)
    return hba.load(config)


def answer(access: Access, address: str, database: str = "main", user: str = "alice", *, tls: bool = True) -> str:
    try:
        rule = access.find(Visit(address, database, user, tls))
    except AuthorizationRefused as e:
        return e.text.split(" for host")[0]
    return f"{rule.method} {rule.clientcert}".strip()


NONE = "no pg_hba.conf entry"
REJECTED = "pg_hba.conf rejects connection"
TABLE = """
# TYPE  DATABASE    USER     ADDRESS       METHOD
host    "Big One",x alice,bob 10.0.0.0/8   reject  # a comment
hostnossl all       all      192.0.2.0  255.255.255.0 reject
hostssl all         all      192.0.2.0/24  password
hostssl all         bob      all           cert
hostssl all         carol    ::1/128       scram-sha-256 clientcert=verify-ca
host    sameuser    "all"    all           scram-sha-256
"""


@pytest.mark.parametrize(
    ("visit", "expected"),
    [
        ({"address": "10.1.2.3", "database": "Big One"}, REJECTED),
        ({"address": "10.1.2.3", "database": "x", "user": "bob"}, REJECTED),
        ({"address": "10.1.2.3", "database": "y", "user": "bob"}, "cert verify-full"),
        ({"address": "::ffff:10.1.2.3", "database": "x", "user": "bob"}, REJECTED),
        ({"address": "10.1.2.3", "database": "big one"}, NONE),
        ({"address": "11.1.2.3", "database": "x"}, NONE),
        ({"address": "192.0.2.9"}, "password"),
        ({"address": "192.0.2.9", "tls": False}, REJECTED),
        ({"address": "192.0.3.9", "user": "bob", "tls": False}, NONE),
        ({"address": "::1", "user": "carol"}, "scram-sha-256 verify-ca"),
        ({"address": "::1%lo", "user": "carol"}, "scram-sha-256 verify-ca"),
        ({"address": "127.0.0.1", "user": "carol"}, NONE),
        ({"address": "127.0.0.1", "user": "all", "database": "all"}, "scram-sha-256"),
        ({"address": "", "database": "x"}, NONE),
    ],
)
def test_the_first_line_that_fits(tmp_path, visit, expected):
    assert answer(table(tmp_path, TABLE), **visit) == expected


def test_without_a_table_all_may_come_with_a_password():
    assert answer(hba.load(Config()), "192.0.2.1", tls=False) == "scram-sha-256"


def test_a_refusal_says_what_postgres_says(tmp_path):
    with pytest.raises(AuthorizationRefused) as caught:
        table(tmp_path, TABLE).find(Visit("11.1.2.3", "x", "eve", tls=False))
    assert caught.value.text == 'no pg_hba.conf entry for host "11.1.2.3", user "eve", database "x", no encryption'
    assert (caught.value.sqlstate, caught.value.severity) == ("28000", "FATAL")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("local all all scram-sha-256", 'invalid connection type "local"'),
        ("hostgssenc all all all scram-sha-256", "invalid connection type"),
        ("host all all all", "end of line before the method"),
        ("host all all 10.0.0.0 255.0.0.0", "end of line before the method"),
        ("host all all 10.0.0.0 scram-sha-256", "has no mask"),
        ("host all all 10.0.0.0/33 scram-sha-256", "invalid address"),
        ("host all all localhost scram-sha-256", "has no mask"),
        ("host all all samenet scram-sha-256", "has no mask"),
        ("host all all a/8,b/8 scram-sha-256", "several values where one is expected"),
        ("host all all all trust", '"trust" is not supported'),
        ("host all all all md5", '"md5" is not supported'),
        ("host all all all ldap", '"ldap" is not supported'),
        ("host all all all password", "passwords cross in clear only inside TLS"),
        ("hostnossl all all all password", "passwords cross in clear only inside TLS"),
        ("host all all all cert", "client certificates are only there on hostssl"),
        ("host all all all scram-sha-256 clientcert=verify-full", "client certificates are only there on hostssl"),
        ("hostssl all all all cert clientcert=verify-ca", 'only accepts "verify-full"'),
        ("hostssl all all all scram-sha-256 clientcert=1", 'invalid value for clientcert: "1"'),
        ("hostssl all all all cert map=staff", 'user map "staff" does not exist'),
        ("hostssl all all all scram-sha-256 map=m", 'option "map=m" is not supported|option "map" is not supported'),
        ("hostssl all all all cert clientname=DN", 'option "clientname" is not supported'),
        ("host replication all all scram-sha-256", 'database "replication" is not supported'),
        ("host samerole all all scram-sha-256", 'database "samerole" is not supported'),
        ("host /^db all all scram-sha-256", 'database "/\\^db" is not supported'),
        ("host all +staff all scram-sha-256", 'user "\\+staff" is not supported'),
        ("host all @file all scram-sha-256", 'user "@file" is not supported'),
        ('host all "alice all scram-sha-256', "a quoted word does not end"),
        ("include other.conf", 'invalid connection type "include"'),
    ],
)
def test_a_line_that_is_refused(tmp_path, line, says):
    with pytest.raises(ConfigurationError, match=f'line 2 of ".*hba": .*({says})'):
        table(tmp_path, f"# first\n{line}\n", "m a b\n")


def test_quotes_take_a_keywords_meaning_away(tmp_path):
    access = table(tmp_path, 'host "replication","sameuser" "+staff","/x","a""b" all reject\n')
    assert [answer(access, "::1", d, u) for d, u in (("replication", "+staff"), ("sameuser", 'a"b'))] == [REJECTED] * 2
    assert answer(access, "::1", "x", "/x") == NONE


def test_what_needs_tls_or_a_root_is_refused_without(tmp_path):
    with pytest.raises(ConfigurationError, match="SSL is disabled"):
        table(tmp_path, "hostssl all all all scram-sha-256\n", tls="off")
    with pytest.raises(ConfigurationError, match="if a root certificate is known"):
        table(tmp_path, "hostssl all all all cert\n", ca=None)


def test_an_empty_table_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="holds no line"):
        table(tmp_path, "# nobody\n")
    with pytest.raises(ConfigurationError, match="could not read the access table"):
        hba.load(Config(hba_file=tmp_path / "none"))
    with pytest.raises(ConfigurationError, match='only used together with "hba_file"'):
        hba.load(Config(ident_file=tmp_path / "none"))


NAMES = r"""
staff  /^([a-z]+)@example\.com$   \1
staff  "Big Boss"                 admin
staff  /^root-                    all
other  x                          y
"""


@pytest.mark.parametrize(
    ("name", "user", "expected"),
    [
        ("alice@example.com", "alice", True),
        ("alice@example.com", "admin", False),
        ("alice@example.com", "\\1", False),
        ("alice@example.com.evil", "alice", False),
        ("alice@example.com\n", "alice", False),
        ("Big Boss", "admin", True),
        ("Big Boss", "Big Boss", False),
        ("root-7", "anybody", True),
        ("x", "y", False),
        ("alice", "alice", False),
    ],
)
def test_a_user_map(tmp_path, name, user, expected):
    access = table(tmp_path, "hostssl all all all cert map=staff\n", NAMES)
    assert access.find(Visit("::1", "main", user, tls=True)).lets(name, user) is expected


@pytest.mark.parametrize(
    ("line", "says"),
    [("m /( x", "invalid regular expression"), ("m /a \\1", "has no group"), ("m a", "three fields"),
     ("m a +x", "is not supported"), ("m a /x", "is not supported")],
)  # fmt: skip
def test_a_line_of_a_user_map_that_is_refused(tmp_path, line, says):
    with pytest.raises(ConfigurationError, match=f'line 1 of ".*ident": .*{says}'):
        table(tmp_path, "hostssl all all all cert\n", line)


def test_who_comes_in_without_a_password(tmp_path):
    access = table(tmp_path, "hostssl all bob,carol all cert\nhostssl all dave ::1/128 cert\nhost all all all reject\n")
    assert access.without_password == {"bob", "carol", "dave"}
    assert table(tmp_path, "hostssl all all all cert\n").without_password == {"all"}
    assert Access().without_password == set()


@pytest.mark.parametrize(
    ("shown", "asked", "enough"),
    [
        ("scram-sha-256", "password", True),
        ("scram-sha-256", "cert", False),
        ("cert", "scram-sha-256", False),
        ("scram-sha-256", "scram-sha-256 clientcert=verify-ca", False),
        ("scram-sha-256 clientcert=verify-full", "scram-sha-256 clientcert=verify-ca", True),
        ("scram-sha-256 clientcert=verify-ca", "scram-sha-256 clientcert=verify-full", False),
        ("cert", "cert", True),
        ("cert map=m", "cert", False),
    ],
)
def test_whether_one_rule_shows_what_another_asks_for(tmp_path, shown, asked, enough):
    first, second = table(tmp_path, f"hostssl a all all {shown}\nhostssl b all all {asked}\n", "m a b\n").rules
    assert second.is_met_by(first) is enough
