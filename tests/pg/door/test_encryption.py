"""The way from pgstream to an external PostgreSQL over TLS: each sslmode means what it means to libpq."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pgstream.errors import ConfigurationError, PgStreamError
from pgstream.server import encryption
from pgstream.server.ask import ask
from pgstream.server.connect import open_backend
from pgstream.server.reach import Address
from pgstream.wire import scram
from tests.pg.door.certificates import Authority
from tests.pg.door.double import Door
from tests.pg.door.ssl_postgres import PASSWORD, SslPostgres
from tests.server import Server, within

USED = "SELECT ssl::text || ' ' || coalesce(version, '') FROM pg_stat_ssl WHERE pid = pg_backend_pid()"


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SslPostgres]:
    started = SslPostgres(tmp_path_factory.mktemp("ssl") / "postgres")
    yield started
    started.stop()


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = Authority(tmp_path_factory.mktemp("stranger"), "somebody else").root
    return root.rename(root.with_name("root.crt"))


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """libpq's files in the home folder are the test's."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


async def used(postgres: SslPostgres, user: str, host: str = "localhost", **options: str) -> str | None:
    """What a relayed connection of this user uses."""
    address = Address(host, postgres.port, encryption.read(options))
    verifier = scram.Verifier.parse(postgres.verifiers[user])
    assert verifier is not None
    keys = verifier.keys_of(PASSWORD)
    backend, _ = await open_backend(address, {"user": user, "database": "postgres"}, keys)
    try:
        return await ask(backend, USED)
    finally:
        backend.close()
        await backend.closed


async def refused(postgres: SslPostgres, user: str, host: str = "localhost", **options: str) -> str:
    with pytest.raises(PgStreamError) as caught:
        await used(postgres, user, host, **options)
    return caught.value.text


@pytest.mark.parametrize("mode", ["prefer", "require", "verify-ca", "verify-full"])
async def test_encrypted(postgres: SslPostgres, mode: str) -> None:
    for user in ("any", "only"):
        assert await used(postgres, user, sslmode=mode, sslrootcert=str(postgres.ca.root)) == "true TLSv1.3"


async def test_disabled(postgres: SslPostgres) -> None:
    assert await used(postgres, "any", sslmode="disable") == "false "
    assert "no pg_hba.conf entry" in await refused(postgres, "only", sslmode="disable")


async def test_what_is_left_out(postgres: SslPostgres, own_home: Path, stranger: Path, monkeypatch) -> None:
    assert await used(postgres, "only") == "true TLSv1.3"
    monkeypatch.setenv("PGSSLMODE", "disable")
    assert await used(postgres, "any") == "false "
    assert await used(postgres, "any", sslmode="require") == "true TLSv1.3"
    (own_home / ".postgresql").symlink_to(stranger.parent)
    assert "CERTIFICATE_VERIFY_FAILED" in await refused(postgres, "any", sslmode="require")


async def test_verified(postgres: SslPostgres, stranger: Path) -> None:
    ours = str(postgres.ca.root)
    for mode in ("require", "verify-ca", "verify-full"):
        words = await refused(postgres, "any", sslmode=mode, sslrootcert=str(stranger))
        assert "CERTIFICATE_VERIFY_FAILED" in words, mode
    assert await used(postgres, "any", "127.0.0.1", sslmode="verify-ca", sslrootcert=ours) == "true TLSv1.3"
    words = await refused(postgres, "any", "127.0.0.1", sslmode="verify-full", sslrootcert=ours)
    assert "IP address mismatch" in words
    # libpq goes on without TLS where it was only preferred.
    assert await used(postgres, "any", sslmode="prefer", sslrootcert=str(stranger)) == "false "


async def test_versions_and_revocation(postgres: SslPostgres) -> None:
    assert await used(postgres, "any", sslmode="require", ssl_max_protocol_version="TLSv1.2") == "true TLSv1.2"
    ours, crl = str(postgres.ca.root), str(postgres.ca.revoke("localhost"))
    words = await refused(postgres, "any", sslmode="verify-ca", sslrootcert=ours, sslcrl=crl)
    assert "certificate revoked" in words


@pytest.mark.parametrize("binding", ["disable", "prefer", "require"])
async def test_channel_binding(postgres: SslPostgres, binding: str) -> None:
    assert await used(postgres, "only", sslmode="require", channel_binding=binding) == "true TLSv1.3"
    if binding == "require":
        words = await refused(postgres, "any", sslmode="disable", channel_binding=binding)
        assert "channel binding is required" in words


async def test_a_postgresql_without_tls(door: Door) -> None:
    for mode in ("prefer", "require"):
        address = Address("127.0.0.1", door.postgres.port, encryption.read({"sslmode": mode}))
        opening = open_backend(address, {"user": "nobody", "database": "main"}, None)
        with pytest.raises(PgStreamError) as caught:
            await opening
        assert ("asks for a password" if mode == "prefer" else "does not support TLS") in caught.value.text


async def test_bytes_behind_the_answer(own_home: Path) -> None:
    """What somebody in between sends before the handshake is not taken for what came through it."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        writer.write(b"SR\0\0\0\x08\0\0\0\0")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        for mode in ("prefer", "require"):
            address = Address("127.0.0.1", port, encryption.read({"sslmode": mode}))
            with pytest.raises(PgStreamError, match="received unencrypted data"):
                await open_backend(address, {"user": "any", "database": "postgres"}, None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sslmode": "allow"}, 'sslmode "allow" is not supported'),
        ({"sslmode": "verify-ca"}, "sslmode=verify-ca needs the certificate"),
        ({"sslmode": "verify-full", "sslrootcert": "/nowhere"}, "TLS to PostgreSQL cannot be set up"),
        ({"sslmode": "require", "sslrootcert": "system"}, "sslrootcert=system needs"),
        ({"sslmode": "require", "sslcert": "/nowhere"}, "TLS to PostgreSQL cannot be set up"),
        ({"sslnegotiation": "direct"}, "sslnegotiation=direct is not supported"),
        ({"ssl_min_protocol_version": "SSLv3"}, "TLS to PostgreSQL cannot be set up"),
    ],
)
def test_what_cannot_be(options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        encryption.read(options)


def test_the_whole_server(postgres: SslPostgres, tmp_path: Path) -> None:
    url = postgres.url(sslmode="verify-full", sslrootcert=str(postgres.ca.root))
    server = Server(tmp_path / "server", postgres_url=url)
    try:
        with server.connect() as conn, psycopg.connect(url, autocommit=True) as direct:
            assert conn.execute(USED).fetchone() == ("true TLSv1.3",)
            assert conn.execute("CREATE SCHEMA over_tls").fetchone()
            assert conn.execute("LIST SCHEMAS").fetchall()
            big = conn.execute("SELECT n, repeat('x', 200) FROM generate_series(1, 50000) n").fetchall()
            assert len(big) == 50000 and big[-1][0] == 50000
            plain = "pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE NOT ssl AND client_addr IS NOT NULL"
            assert direct.execute(f"SELECT count(*) FROM {plain}").fetchone() == (0,)
            asleep = "SELECT 1 FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(60)' AND state = 'active'"
            errors: list[BaseException] = []

            def sleep() -> None:
                try:
                    conn.execute("SELECT pg_sleep(60)")
                except psycopg.Error as e:
                    errors.append(e)

            sleeping = threading.Thread(target=sleep)
            sleeping.start()
            within(20, lambda: direct.execute(asleep).fetchone())
            conn.cancel_safe()
            sleeping.join(20)
            assert [type(e) for e in errors] == [psycopg.errors.QueryCanceled]
    finally:
        assert server.stop() == 0
