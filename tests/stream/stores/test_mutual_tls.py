"""A PostgreSQL store that takes nobody without a client certificate: the worker reads, looks up and writes there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from tests.pg.door.certificates import Authority
from tests.pg.door.ssl_postgres import binaries
from tests.postgres import Postgres, postgres
from tests.server import Server, within
from tests.stream.stores.test_tables import query_of

pytestmark = pytest.mark.stream
USER, PASSPHRASE = "keeper", "opens it"
HBA = f"""hostssl all {USER} 127.0.0.1/32 cert
hostnossl all {USER} 127.0.0.1/32 reject
host all all 127.0.0.1/32 scram-sha-256
"""


@pytest.fixture(scope="module")
def authority(workspace: Path) -> Authority:
    made = Authority(workspace / "store_tls")
    made.issue("127.0.0.1", hosts=("127.0.0.1",), file="server")
    made.issue(USER)
    made.issue("somebody")
    Authority(workspace / "store_tls_others", "another ca").issue(USER)
    return made


@pytest.fixture(scope="module")
def locked(workspace: Path, authority: Authority) -> Iterator[Postgres]:
    """Its certificate and its rules are in place before anybody comes."""
    with postgres(workspace / "locked", programs=binaries()) as p:
        p.run(f"CREATE ROLE {USER} LOGIN SUPERUSER")
        for given, name in (("server.crt", "server.crt"), ("server.key", "server.key"), ("ca.crt", "root.crt")):
            file = p.folder / name
            file.write_bytes((authority.folder / given).read_bytes())
            file.chmod(0o600)
            p.user.own(file)
        (p.folder / "pg_hba.conf").write_text(HBA)
        p.settings |= {"ssl": "on", "ssl_ca_file": "root.crt"}
        p.stop()
        p.start()
        yield p


def store(p: Postgres, authority: Authority, who: str, **more: str) -> str:
    """The parameters of CREATE STORE, with the certificate and key of ``who``; its key is encrypted."""
    key = load_pem_private_key((authority.folder / f"{who}.key").read_bytes(), None)
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSPHRASE.encode()))
    said = {"uris": p.uris, "postgres.username": USER, "tls.ca_cert_file": authority.root.read_text(),
            "tls.client.cert_file": (authority.folder / f"{who}.crt").read_text(),
            "tls.client.key_file": secret.decode(), "tls.client.key_passphrase": PASSPHRASE, **more}  # fmt: skip
    return "'type' = POSTGRESQL, " + ", ".join(f"'{n}' = '{v}'" for n, v in said.items() if v)


def refused(db: psycopg.Connection[Any], parameters: str) -> str:
    with pytest.raises(psycopg.Error) as e:
        db.execute(f"CREATE STORE pg_locked_out WITH ({parameters})".encode())
    return (
        f"{e.value.sqlstate} {e.value.diag.message_primary} {e.value.diag.message_detail} {e.value.diag.message_hint}"
    )


def test_a_store_that_wants_certificates(server: Server, locked: Postgres, authority: Authority) -> None:
    locked.run(
        "CREATE TABLE odd (id int PRIMARY KEY, n numeric, at timestamptz)",
        "INSERT INTO odd VALUES (1, 'NaN', 'infinity'), (2, 1e30, '0044-03-15 BC')",
        "CREATE TABLE names (id int PRIMARY KEY, name text)",
        "INSERT INTO names VALUES (1, 'one'), (2, 'two'), (3, 'three')",
    )
    with server.connect() as db:
        db.execute(f"CREATE STORE pg_locked WITH ({store(locked, authority, USER)})".encode())
        shown = str(db.execute("DESCRIBE STORE pg_locked").fetchall())
        assert "PRIVATE KEY" not in shown and PASSPHRASE not in shown
        assert ("odd", True) in db.execute("LIST ENTITIES IN public IN STORE pg_locked").fetchall()
        db.execute("""CREATE CHANGELOG locked_odd (id INT, n VARCHAR, "at" VARCHAR, PRIMARY KEY (id))
            WITH ('store' = pg_locked, 'postgresql.table.name' = 'odd')""")
        db.execute("""CREATE STREAM locked_cdc (op VARCHAR, "after" STRUCT<id INT>)
            WITH ('store' = pg_locked, 'postgresql.table.name' = 'odd')""")
        db.execute("CREATE TABLE locked_names (id INT, name VARCHAR)"
                   " WITH ('store' = pg_locked, 'postgresql.table.name' = 'names')")  # fmt: skip
        queries = [
            query_of(db, 'CREATE TABLE odd_copy WITH (\'store\' = pg_locked) AS SELECT id, n, "at" FROM locked_odd'),
            query_of(db, """CREATE TABLE named WITH ('store' = pg_locked) AS SELECT c.op, t.name
                FROM locked_cdc c JOIN locked_names t ON t.id = c."after"->id"""),
        ]  # fmt: skip
        # What no number and no time can hold is text, where the relation says so.
        within(90, lambda: locked.rows("SELECT id, n, at FROM odd_copy ORDER BY id")
               == locked.rows("SELECT id, n::text, at::text FROM odd ORDER BY id"), 0.5)  # fmt: skip
        locked.run("INSERT INTO odd VALUES (3, '-Infinity', '-infinity')", "UPDATE odd SET n = 7 WHERE id = 1")
        within(90, lambda: locked.rows("SELECT id, n, at FROM odd_copy ORDER BY id")
               == locked.rows("SELECT id, n::text, at::text FROM odd ORDER BY id"), 0.5)  # fmt: skip
        named = [("c", "three"), ("r", "one"), ("r", "two"), ("u", "one")]
        within(90, lambda: locked.rows("SELECT op, name FROM named ORDER BY 1, 2") == named, 0.5)
        for query in queries:
            db.execute(f"TERMINATE QUERY {query}".encode())


def test_who_comes_without_or_with_another_certificate(server: Server, locked: Postgres, authority: Authority) -> None:
    with server.connect() as db:
        none = {"tls.client.cert_file": "", "tls.client.key_file": "", "tls.client.key_passphrase": ""}
        said = refused(db, store(locked, authority, USER, **none, **{"postgres.password": "x"}))
        assert said.startswith("58000") and "requires a valid client certificate" in said
        assert "'tls.client.cert_file'" in said
        assert 'certificate authentication failed for user "keeper"' in refused(
            db, store(locked, authority, "somebody")
        )
        others = Authority.__new__(Authority)
        others.folder, others.root = authority.folder.parent / "store_tls_others", authority.root
        assert "alert unknown ca" in refused(db, store(locked, others, USER))
        elsewhere = locked.uris.replace("127.0.0.1", "localhost")
        assert "does not match host name" in refused(db, store(locked, authority, USER, uris=elsewhere))
        wrong = refused(db, store(locked, authority, USER, **{"tls.client.key_passphrase": "no"}))
        assert "does not open the key" in wrong and wrong.startswith("22023")
        assert 'parameter "postgres.password" is required' in refused(db, store(locked, authority, USER, **none))
        assert 'needs "tls.client.key_file"' in refused(
            db, store(locked, authority, USER, **{"tls.client.key_file": ""})
        )
        assert 'which "tls.disabled" turns off' in refused(
            db, store(locked, authority, USER, **{"tls.disabled": "TRUE"})
        )
