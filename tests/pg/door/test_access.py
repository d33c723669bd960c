"""Who may connect and how: libpq against a server with a certificate, an access table and certificates of clients."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pgstream.errors import ConfigurationError
from tests.pg.door import double
from tests.pg.door.certificates import DAY, NOW, Authority
from tests.pg.door.double import Door
from tests.pg.door.test_session import until
from tests.pg.door.test_start import second
from tests.server import PASSWORD, Server, within

TABLE = """
hostssl  main   bob,mapped,nobody,pgstream  all  cert  map=staff
hostssl  main   carol  all  scram-sha-256 clientcert=verify-full
hostssl  main   dave   all  password
hostssl  other  bob    all  cert map=staff
host     nowhere alice all  reject
host     all    noooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooo  all  reject
hostssl  other  alice  all  cert
hostssl  all    alice  all  scram-sha-256
hostnossl all   erin   all  scram-sha-256
"""
NAMES = """
staff  bob              bob
staff  nobody           nobody
staff  pgstream         pgstream
staff  /^([a-z]+)@here$ \\1
"""


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    ca = Authority(tmp_path_factory.mktemp("ca"))
    ca.issue("server", hosts=("localhost", "127.0.0.1"))
    for name in ("bob", "carol", "nobody", "pgstream", "alice", "gone"):
        ca.issue(name)
    ca.issue("bob", file="expired", until=NOW - DAY)
    ca.issue("bob", file="revoked")
    ca.issue("mapped@here", file="mapped")
    ca.issue("bob", "alice", file="two")
    ca.revoke("revoked")
    return ca


@pytest.fixture(scope="module")
def strict(ca: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    folder = tmp_path_factory.mktemp("strict")
    (folder / "hba").write_text(TABLE)
    (folder / "ident").write_text(NAMES)
    door = double.start(
        folder / "data",
        tls="on",
        tls_cert_file=ca.folder / "server.crt",
        tls_key_file=ca.folder / "server.key",
        tls_ca_file=ca.root,
        tls_crl_file=ca.folder / "ca.crl",
        hba_file=folder / "hba",
        ident_file=folder / "ident",
    )
    with psycopg.connect(door.postgres.url("postgres"), autocommit=True) as conn:
        for user in ("carol", "dave", "erin", "mapped"):
            conn.execute(f"CREATE ROLE {user} LOGIN PASSWORD '{door.PASSWORD}'")
        conn.execute("CREATE ROLE bob LOGIN")  # has no password at all
    yield door
    door.stop()


class Client:
    """libpq connections to a door, verifying it, with a certificate if one is named."""

    def __init__(self, door: Door, ca: Authority) -> None:
        self.door, self.ca = door, ca

    def connect(self, user: str, certificate: str = "", database: str = "main", **more: object) -> psycopg.Connection:
        given: dict[str, object] = {
            "host": "localhost", "port": self.door.port, "user": user, "dbname": database, "autocommit": True,
            "password": self.door.PASSWORD, "sslmode": "verify-full", "sslrootcert": str(self.ca.root),
            "sslcert": str(self.ca.folder / f"{certificate or 'none'}.crt"),
            "sslkey": str(self.ca.folder / f"{certificate or 'none'}.key"),
        }  # fmt: skip
        return psycopg.connect(**(given | more))  # type: ignore[arg-type]

    def refused(self, why: str, *args: str, **more: object) -> str:
        with pytest.raises(psycopg.OperationalError, match=why) as caught:
            self.connect(*args, **more)
        return str(caught.value)


@pytest.fixture(scope="module")
def client(strict: Door, ca: Authority) -> Client:
    return Client(strict, ca)


def one(conn: psycopg.Connection, sql: str = "SELECT current_user || ' ' || session_user") -> object:
    row = conn.execute(sql).fetchone()
    return row and row[0]


# The server's own certificate


@pytest.mark.parametrize("mode", ["allow", "prefer", "require", "verify-ca", "verify-full"])
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_every_sslmode(client, mode, host):
    with client.connect("alice", host=host, sslmode=mode, channel_binding="require") as conn:
        assert one(conn) == "alice alice" and conn.pgconn.ssl_in_use


def test_verification_refuses_strangers(client, ca, tmp_path):
    other = Authority(tmp_path / "other", "another ca")
    for mode in ("verify-ca", "verify-full"):
        client.refused("certificate verify failed", "alice", sslmode=mode, sslrootcert=str(other.root))
    for mode, host in (("verify-full", "elsewhere"), ("verify-full", "127.0.0.2")):
        client.refused("does not match host name", "alice", sslmode=mode, host=host, hostaddr="127.0.0.1")
    with client.connect("alice", sslmode="verify-ca", host="elsewhere", hostaddr="127.0.0.1") as conn:
        assert one(conn) == "alice alice"


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_tls_versions(client, version):
    for binding in ("require", "disable"):
        with client.connect(
            "alice", ssl_min_protocol_version=version, ssl_max_protocol_version=version, channel_binding=binding
        ) as conn:
            assert conn.pgconn.ssl_in_use and one(conn) == "alice alice"


def test_old_tls_is_refused(strict, client):
    client.refused(
        "SSL error|no protocols available", "alice", ssl_min_protocol_version="", ssl_max_protocol_version="TLSv1.1"
    )
    settings = {"tls_min_version": "1.3"}
    with second(strict, **settings) as (_, port):
        client.refused("SSL error", "alice", port=port, ssl_max_protocol_version="TLSv1.2")
        with client.connect("alice", port=port) as conn:
            assert one(conn) == "alice alice"


# The table


def test_with_and_without_tls(client):
    client.refused('no pg_hba.conf entry for host "127.0.0.1", user "alice", database "main", no encryption',
                   "alice", sslmode="disable")  # fmt: skip
    client.refused('user "erin", database "main", SSL encryption', "erin")
    for mode in ("disable", "prefer"):  # libpq comes again without, as with PostgreSQL
        with client.connect("erin", sslmode=mode) as conn:
            assert one(conn) == "erin erin" and not conn.pgconn.ssl_in_use


def test_rejected(client):
    client.refused('pg_hba.conf rejects connection for host "127.0.0.1", user "alice", database "nowhere"',
                   "alice", "alice", "nowhere")  # fmt: skip


@pytest.mark.parametrize("more", ["", "o", "ooooo"])
def test_a_long_name_is_the_one_that_postgresql_makes_of_it(client, more):
    client.refused('pg_hba.conf rejects connection .*user "no{62}"', "n" + "o" * 62 + more)


def test_a_password_inside_tls(client):
    with client.connect("dave", require_auth="password") as conn:
        assert one(conn) == "dave dave"
    for wrong in ("", "x", "x" * 500):
        client.refused("password authentication failed|no password supplied", "dave", password=wrong)


def test_moving_to_a_database_needs_its_proof(client):
    with client.connect("alice") as conn:
        for database, why in (("other", "asks for another proof"), ("nowhere", "rejects connection")):
            with pytest.raises(psycopg.errors.InvalidAuthorizationSpecification, match=why):
                conn.execute(f"USE DATABASE {database}")
        assert one(conn, "SELECT current_database()") == "main"
    with client.connect("bob", "bob") as conn:
        conn.execute("USE DATABASE other")
        assert one(conn, "SELECT current_user || ' ' || current_database()") == "bob other"


# Certificates of clients


@pytest.mark.parametrize(("user", "certificate"), [("bob", "bob"), ("mapped", "mapped")])
@pytest.mark.parametrize("lazy", [False, True])
def test_a_certificate_in_place_of_a_password(strict, client, user, certificate, lazy):
    with second(strict, lazy_backends=lazy) as (_, port):
        for _ in range(2):
            with client.connect(user, certificate, port=port, password="", require_auth="none") as conn:
                assert one(conn) == f"{user} {user}"
                rows = conn.cursor().stream("COUNT FOREVER")
                next(rows)
                conn.cancel_safe()
                with pytest.raises(psycopg.errors.QueryCanceled):
                    list(rows)


@pytest.mark.parametrize(
    ("user", "certificate", "why"),
    [
        ("bob", "", "connection requires a valid client certificate"),
        ("bob", "alice", 'certificate authentication failed for user "bob"'),
        ("mapped", "bob", "certificate authentication failed"),
        ("bob", "mapped", "certificate authentication failed"),
        ("bob", "two", "certificate authentication failed"),
        ("nobody", "nobody", 'certificate authentication failed for user "nobody"'),
        ("pgstream", "pgstream", 'certificate authentication failed for user "pgstream"'),
    ],
)
def test_a_certificate_that_does_not_do(client, user, certificate, why):
    client.refused(why, user, certificate)


@pytest.mark.parametrize(
    ("certificate", "why"),
    [("expired", "certificate has expired"), ("revoked", "certificate revoked"), ("another", "unable to get")],
)
def test_a_certificate_that_is_not_valid(strict, client, tmp_path, certificate, why):
    """TLS itself fails; the reason is told to the log, once."""
    files = {}
    if certificate == "another":
        paths = Authority(tmp_path / "other", "another ca").issue("bob")
        files = {"sslcert": str(paths[0]), "sslkey": str(paths[1])}
    with second(strict) as (listener, port):
        told: list[str] = []
        listener.refusals.say = lambda why, *_: told.append(why)
        client.refused("SSL error|closed the connection", "bob", certificate, port=port, **files)
        until(lambda: told)
        assert len(told) == 1 and why in told[0]


def test_a_certificate_and_a_password(client):
    with client.connect("carol", "carol", channel_binding="require") as conn:
        assert one(conn) == "carol carol"
    client.refused("password authentication failed", "carol", "carol", password="wrong")
    client.refused("certificate authentication failed", "carol", "bob")
    client.refused("requires a valid client certificate", "carol")


def test_nobody_becomes_the_superuser_without_a_password(strict):
    """What lets this process in by the users' certificates does not let it in as PostgreSQL's own superuser."""
    with pytest.raises(psycopg.OperationalError, match="no password supplied"):
        psycopg.connect(host=strict.postgres.host, port=strict.postgres.port, user="pgstream", dbname="postgres")


# Files that change


def test_reload(strict, client, ca, tmp_path):
    certificate, key, table = (tmp_path / name for name in ("server.crt", "server.key", "hba"))
    certificate.write_bytes((ca.folder / "server.crt").read_bytes())
    key.write_bytes((ca.folder / "server.key").read_bytes())
    key.chmod(0o600)
    table.write_text("host all all all scram-sha-256\n")
    with second(strict, hba_file=table, ident_file=None, tls_cert_file=certificate, tls_key_file=key) as (
        listener,
        port,
    ):

        async def reload() -> None:
            listener.reload()

        with client.connect("alice", port=port) as before:
            new = Authority(tmp_path / "new", "new ca")
            new.issue("server", hosts=("localhost",))
            for path in (certificate, key):
                path.write_bytes((new.folder / path.name).read_bytes())
            strict.run(reload())
            client.refused("certificate verify failed", "alice", port=port)
            with client.connect("alice", port=port, sslrootcert=str(new.root), channel_binding="require") as conn:
                assert one(conn) == "alice alice"
            for broken, path in (("host all all all trust\n", table), ("no certificate", certificate)):
                kept = path.read_text()
                path.write_text(broken)
                with pytest.raises(ConfigurationError):
                    strict.run(reload())
                with client.connect("alice", port=port, sslrootcert=str(new.root)) as conn:
                    assert one(conn) == "alice alice"
                path.write_text(kept)
            table.write_text("host all alice all reject\n")
            strict.run(reload())
            client.refused("rejects connection", "alice", port=port, sslrootcert=str(new.root))
            assert one(before) == "alice alice"


def test_a_key_that_others_can_read_is_refused(strict, ca, tmp_path):
    key = tmp_path / "server.key"
    key.write_bytes((ca.folder / "server.key").read_bytes())
    for mode in (0o644, 0o660):
        key.chmod(mode)
        with pytest.raises(ConfigurationError, match="others can read the key"):
            strict.second(tls_key_file=key)


def test_a_signal_makes_the_server_read_them_anew(ca, tmp_path: Path):
    """From a password to a certificate for the first user, in a running server process."""
    certificate, key = ca.issue("admin")
    table = tmp_path / "hba"
    table.write_text("hostssl all all all scram-sha-256\n")
    server = Server(tmp_path / "data", tls="on", tls_cert_file=str(ca.folder / "server.crt"), hba_file=str(table),
                    tls_key_file=str(ca.folder / "server.key"), tls_ca_file=str(ca.root))  # fmt: skip
    try:
        own = {"sslcert": str(certificate), "sslkey": str(key)}
        with server.connect(**own) as conn:
            assert conn.pgconn.used_password
        table.write_text("hostssl all all 127.0.0.1/32 cert\n")
        server.process.send_signal(signal.SIGHUP)
        within(20, lambda: "certificates and access table reloaded" in server.log.read_text())
        with within(20, lambda: server.connect(**own, require_auth="none")) as conn:
            assert one(conn) == "sysadmin admin"
            conn.execute("LIST STORES")
        with pytest.raises(psycopg.OperationalError, match="requires a valid client certificate"):
            server.connect()
        assert PASSWORD not in server.log.read_text()
        table.write_text("host all all all trust\n")
        server.process.send_signal(signal.SIGHUP)
        within(20, lambda: "not reloaded" in server.log.read_text())
        server.connect(**own).close()
    finally:
        assert server.stop() == 0
