"""A store is entered as its options say: not with what the server's own system user has for the PostgreSQL behind it.

libpq looks for a password in its variables and in ``~/.pgpass``, and shows the certificate in ``~/.postgresql``: docs
tell an administrator to put the superuser's there. Whoever may make a store chooses its address and its user.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from pgstream.errors import StoreUnreachable
from pgstream.stores.postgresql import client
from pgstream.stores.postgresql.admin import PostgresAdmin
from pgstream.stores.spec import Admin
from tests.pg.door.certificates import Authority

pytestmark = pytest.mark.pg
SSL_REQUEST, CLEARTEXT = 80877103, b"R\0\0\0\x08\0\0\0\x03"


@dataclass(slots=True)
class Listening:
    """A server that asks for TLS, a certificate and a password in clear, and keeps what it is told."""

    context: ssl.SSLContext
    ca: Authority
    port: int = 0
    told: list[tuple[str, bool]] = field(default_factory=list)
    """Passwords, and whether there was a certificate."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            size, code = struct.unpack("!ii", await reader.readexactly(8))
            if code == SSL_REQUEST:
                writer.write(b"S")
                await writer.start_tls(self.context)
                size = struct.unpack("!i", await reader.readexactly(4))[0]
                await reader.readexactly(size - 4)
            else:
                await reader.readexactly(size - 8)
            shown = bool(writer.get_extra_info("peercert"))
            writer.write(CLEARTEXT)
            kind = await reader.read(1)
            password = ""
            if kind == b"p":
                size = struct.unpack("!i", await reader.readexactly(4))[0]
                password = (await reader.readexactly(size - 4)).rstrip(b"\0").decode()
            self.told.append((password, shown))
        finally:
            writer.close()


@pytest.fixture
async def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Listening]:
    """The server; ``~`` is a system user's with all that libpq looks for, and so are its variables."""
    home = tmp_path / "home"
    (home / ".postgresql").mkdir(parents=True)
    ca = Authority(tmp_path / "ca")
    for file, name in zip(ca.issue("superuser"), ("postgresql.crt", "postgresql.key"), strict=True):
        (home / ".postgresql" / name).write_bytes(file.read_bytes())
        (home / ".postgresql" / name).chmod(0o600)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*ca.issue("127.0.0.1", hosts=("127.0.0.1",)))
    context.load_verify_locations(ca.root)
    context.verify_mode = ssl.CERT_OPTIONAL
    found = Listening(context, ca)
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    passes = home / ".pgpass"
    passes.write_text(f"127.0.0.1:{found.port}:*:*:from-a-file\n")
    passes.chmod(0o600)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PGPASSWORD", "from-a-variable")
    yield found
    server.close()


def _options(there: Listening, **more: str) -> dict[str, str]:
    place = {"uris": f"postgresql://127.0.0.1:{there.port}/shop", "postgres.username": "postgres"}
    return place | {"tls.verify_server_hostname": "false"} | {n.replace("__", "."): v for n, v in more.items()}


async def _asked(options: Mapping[str, str]) -> None:
    admin: Admin = PostgresAdmin("s", options)
    with pytest.raises(StoreUnreachable):
        await admin.check()
    await admin.close()


async def test_what_libpq_would_find_is_kept(there: Listening) -> None:
    with pytest.raises(psycopg.OperationalError):  # as a connection without anything of a store's shows
        await psycopg.AsyncConnection.connect(f"host=127.0.0.1 port={there.port} user=u sslmode=require")
    assert there.told.pop() == ("from-a-variable", True)


async def test_a_store_with_a_password(there: Listening) -> None:
    await _asked(_options(there, postgres__password="its own"))
    assert there.told == [("its own", False)]


async def test_a_store_with_a_certificate(there: Listening) -> None:
    """Of anybody's making: the password that is asked for is not sent."""
    certificate, key = there.ca.issue("anybody")
    given = {"tls__client__cert_file": certificate.read_text(), "tls__client__key_file": key.read_text()}
    await _asked(_options(there, **given))
    await _asked(_options(there, **given, postgres__password=""))
    assert {password for password, _ in there.told} == {""}


def test_the_driver_of_the_worker_looks_nowhere() -> None:
    """It reads ``~/.pgpass`` where no password is given, and takes the system user's ticket where a server asks."""
    options = {"uris": "postgresql://h:5432/d", "postgres.username": "u", "postgres.password": ""}
    told = client.jdbc(options | {"tls.disabled": "true"})
    assert (told["password"], told["jaasLogin"], told["gssEncMode"]) == ("", "false", "disable")
