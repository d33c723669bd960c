"""The URLs that the rest of the server connects with, and an external PostgreSQL's URL taken apart."""

from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from pgstream.embedded.postgres import Postgres, external
from pgstream.errors import ConfigurationError


def parts(url: str) -> dict[str, Any]:
    return {k: v for k, v in conninfo_to_dict(url).items() if v is not None}


def test_embedded() -> None:
    postgres = Postgres("/tmp/p s", 5555, "127.0.0.1", "pgstream", "p@:/%", True)
    everything = {"user": "pgstream", "password": "p@:/%", "port": "5555", "dbname": "a b/c"}
    assert parts(postgres.url("a b/c")) == {**everything, "host": "/tmp/p s"}
    assert parts(postgres.url("a b/c", tcp=True)) == {**everything, "host": "127.0.0.1"}
    assert postgres.url("d", "u", "x", tcp=True) == "postgresql://u:x@127.0.0.1:5555/d"
    # Another user never inherits the superuser's password.
    assert "password" not in parts(postgres.url("d", "u"))
    assert "p@" not in repr(postgres)


def test_external() -> None:
    postgres = external("postgresql://boss:secret@db.example:6432/main?sslmode=require")
    assert not postgres.embedded
    assert parts(postgres.url("other")) == {
        "user": "boss", "password": "secret", "host": "db.example", "port": "6432", "dbname": "other",
        "sslmode": "require",
    }  # fmt: skip
    assert external("postgresql://u@[::1]/x").url("d") == "postgresql://u@[::1]:5432/d"
    assert external("host=/run/pg user=u").url("d", tcp=True) == "postgresql://u@127.0.0.1:5432/d"


@pytest.mark.parametrize("url", ["http://u:secret@x/", "postgresql://u:secret@h1,h2/x", "postgresql://db/x"])
def test_external_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="postgres_url") as e:
        external(url)
    assert "secret" not in e.value.text + (e.value.detail or "") + (e.value.hint or "")
