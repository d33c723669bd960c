"""Before a session is one: the server starting, protocol versions, half-open connections, load balancers."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import ssl
import struct
from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest

from pgstream.server import proxy
from pgstream.server.listener import Listener
from pgstream.server.tls import open_tls
from pgstream.wire import frontend, scram
from tests.pg.door.double import Door
from tests.pg.door.raw import Wire, query
from tests.pg.door.test_session import until


@contextlib.contextmanager
def second(door: Door, **settings: object) -> Iterator[tuple[Listener, int]]:
    listener, port = door.second(**settings)
    try:
        yield listener, port
    finally:
        door.run(listener.close())


@pytest.mark.parametrize("tls", ["off", "auto"])
def test_a_server_that_starts_says_so(door, tls):
    async def early() -> tuple[Listener, int]:
        listener = Listener(door.config, tls=open_tls(replace(door.config, tls=tls), door.config.data_dir))
        return listener, (await listener.open())[1]

    listener, port = door.run(early())
    try:
        for mode in ["disable"] if tls == "off" else ["disable", "require"]:
            with pytest.raises(psycopg.OperationalError, match="the database system is starting up"):
                psycopg.connect(door.url, port=port, sslmode=mode)
        with Wire(port) as wire:
            wire.send(frontend.encode_startup({"user": "alice"}))
            assert b"C57P03\0" in wire.read()[1]
        door.run(_begin(listener, door))
        with psycopg.connect(door.url, port=port) as conn:
            assert conn.execute("SELECT 1").fetchone() == (1,)
    finally:
        door.run(listener.close())


async def _begin(listener: Listener, door: Door) -> None:
    mine = door.listener
    listener.begin(
        catalog=mine.catalog,
        engine=mine.engine,
        address=mine.address,
        admissions=mine.admissions,
        language=mine.language,
    )


@pytest.mark.parametrize(("asked", "length"), [("3.0", 4), ("3.2", 32)])
def test_libpq_with_long_and_short_cancel_keys(door, asked, length):
    with psycopg.connect(door.url, min_protocol_version=asked, max_protocol_version=asked, autocommit=True) as conn:
        assert (
            conn.pgconn.full_protocol_version == {"3.0": 30000, "3.2": 30002}[asked]
            if hasattr(conn.pgconn, "full_protocol_version")
            else True
        )
        issued = door.listener.keys._by_pid[conn.info.backend_pid]
        assert [len(key) for key, _ in issued] == [length]
        cur = conn.cursor()
        rows = cur.stream("COUNT FOREVER")
        next(rows)
        conn.cancel_safe()
        with pytest.raises(psycopg.errors.QueryCanceled):
            list(rows)


def test_libpq_asks_for_the_newest_version(door):
    with psycopg.connect(door.url, max_protocol_version="latest") as conn:
        assert conn.execute("SELECT 1").fetchone() == (1,)


def test_a_guessed_cancel_key_does_nothing(door):
    with psycopg.connect(door.url, autocommit=True) as conn:
        pid = conn.info.backend_pid
        rows = conn.cursor().stream("COUNT TO 200000")
        next(rows)
        for key in (b"\0\0\0\0", b"", b"x" * 32, b"x" * 256):
            with Wire(door.port) as wire:
                wire.send(frontend.encode_cancel(pid, key))
                assert wire.rest() == b""
        assert sum(1 for _ in rows) == 199999


@pytest.mark.parametrize(
    ("value", "code"), [("true", "0A000"), ("database", "0A000"), ("1", "0A000"), ("what", "22023"), ("off", None)]
)
def test_replication_is_refused(door, value, code):
    with Wire(door.port) as wire:
        wire.send(frontend.encode_startup({"user": "alice", "database": "main", "replication": value}))
        kind, payload = wire.read()
        assert (kind == "R") if code is None else (kind == "E" and f"C{code}\0".encode() in payload)


def test_half_open_connections_are_bounded(door):
    with second(door, max_starting=50) as (listener, port):
        held = [socket.create_connection(("127.0.0.1", port), 20) for _ in range(300)]
        until(lambda: len(listener.starting) <= 50 and len(listener.sessions) <= 50)
        with psycopg.connect(door.url, port=port) as conn:
            assert conn.execute("SELECT 1").fetchone() == (1,)
        assert held[0].recv(1) == b""
        for s in held:
            s.close()
        until(lambda: not listener.starting)
        assert not listener.sessions


def test_thousands_of_half_open_connections(door):
    """They come and go while a client works; the bound holds, and nothing is left of them."""
    with second(door, max_starting=100) as (listener, port), psycopg.connect(door.url, port=port) as conn:
        before = len(os.listdir("/proc/self/fd"))
        held: list[socket.socket] = []
        for n in range(3000):
            held.append(socket.create_connection(("127.0.0.1", port), 20))
            held[-1].sendall((b"", b"\0", frontend.encode_startup({"user": "alice"}), b"\0\0\x27\x10")[n % 4])
            if len(held) > 400:
                held.pop(0).close()
            if n % 500 == 0:
                assert conn.execute("SELECT 1").fetchone() == (1,)
                assert len(listener.starting) <= 100
        for s in held:
            s.close()
        until(lambda: not listener.starting and len(listener.sessions) == 1)
        until(lambda: len(os.listdir("/proc/self/fd")) <= before)
        assert conn.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("length", [0, 1, 3, 4, 7, 10_005, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_lengths_of_the_start_up_packet(door, length):
    for port in (door.port, door.postgres.port):  # PostgreSQL says nothing: node-postgres may begin with a goodbye
        with Wire(port) as wire:
            wire.send(struct.pack(">I", length) + b"\0\3\0\0")
            assert wire.rest() == b""


def test_a_start_byte_by_byte(door):
    class Slow(Wire):
        def send(self, data: bytes) -> None:
            for at in range(len(data)):
                super().send(data[at : at + 1])

    with Slow(door.port, door.USER, door.PASSWORD) as wire:
        wire.send(query("LIST DOORS"))
        assert "".join(kind for kind, _ in wire.until_ready()) == "TDDCZ"


@pytest.mark.parametrize("user", ["alice", "nobody", "pgstream", "nologin", "passwordless", "md5", "slow"])
def test_nobody_learns_which_users_there_are(door, user):
    """A wrong proof is answered alike for all, with a salt that is the same every time."""
    with psycopg.connect(door.postgres.url("postgres"), autocommit=True) as conn:
        conn.execute("DROP ROLE IF EXISTS nologin, passwordless, md5, slow")
        conn.execute("CREATE ROLE nologin NOLOGIN PASSWORD 'x'; CREATE ROLE passwordless LOGIN")
        conn.execute(f"CREATE ROLE md5 LOGIN PASSWORD 'md5{'0' * 32}'")
        slow = scram.Verifier(scram.MOST_ITERATIONS + 1, bytes(16), bytes(32), bytes(32))
        conn.execute(f"CREATE ROLE slow LOGIN PASSWORD '{slow}'")
    heard = []
    for _ in range(2):
        with Wire(door.port) as wire:
            wire.send(frontend.encode_startup({"user": user, "database": "main"}))
            offered = wire.read()
            wire.send(frontend.encode_sasl_initial(scram.MECHANISM, b"n,,n=,r=abc"))
            _, first = wire.read()
            nonce, salt, rounds = first[4:].split(b",")
            proof = b"c=biws," + nonce + b",p=" + base64.b64encode(bytes(32))
            wire.send(frontend.encode_sasl(proof))
            heard.append((offered, len(nonce), salt, rounds, wire.rest().replace(user.encode(), b"USER")))
    assert heard[0] == heard[1]
    offered, length, salt, rounds, last = heard[0]
    assert offered == ("R", b"\0\0\0\nSCRAM-SHA-256\0\0")
    assert (length, len(base64.b64decode(salt[2:])), rounds) == (29, 16, b"i=4096")
    assert b'C28P01\0Mpassword authentication failed for user "USER"\0' in last


def test_half_open_tls_leaves_nothing(door):
    """A client that goes away in the middle of the handshake, or never begins it."""
    with second(door, tls="auto", authentication_timeout_s=0.5) as (listener, port):
        before = len(os.listdir("/proc/self/fd"))
        for data in (frontend.SSL_REQUEST, b"\x16", b"\x16\3\1\0\5hello", frontend.SSL_REQUEST):
            for close in (True, False):
                with socket.create_connection(("127.0.0.1", port), 20) as s:
                    s.sendall(data)
                    if data == frontend.SSL_REQUEST:
                        assert s.recv(1) == b"S"
                        s.sendall(b"\x16\3\1")
                    if not close:
                        with contextlib.suppress(ConnectionError):
                            while s.recv(1000):
                                pass
        until(lambda: not listener.sessions and len(os.listdir("/proc/self/fd")) <= before)
        assert not listener.starting and not listener.admitted


def test_direct_tls(door):
    with second(door, tls="auto") as (_, port):
        options = {"port": port, "sslmode": "require", "sslnegotiation": "direct"}
        with psycopg.connect(door.url, **options, channel_binding="require") as conn:
            assert conn.pgconn.ssl_in_use
            assert len(conn.execute("SELECT repeat('x', 1000) FROM generate_series(1, 3000)").fetchall()) == 3000
            conn.cancel_safe()


def test_direct_tls_byte_by_byte(door):
    """The hello may come in any pieces: what was read before the TLS layer stands comes first."""
    with second(door, tls="auto") as (_, port):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["postgresql"])
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        layer = context.wrap_bio(incoming, outgoing)
        with socket.create_connection(("127.0.0.1", port), 20) as s:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with contextlib.suppress(ssl.SSLWantReadError):
                layer.do_handshake()
            for byte in outgoing.read():
                s.sendall(bytes((byte,)))
            while True:
                try:
                    layer.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    incoming.write(s.recv(65536))
            layer.write(frontend.encode_startup({"user": "alice"}))
            s.sendall(outgoing.read())
            while True:
                try:
                    assert layer.read(1) == b"R"
                    break
                except ssl.SSLWantReadError:
                    incoming.write(s.recv(65536))


@pytest.mark.parametrize("protocols", [[], ["h2"]])
def test_direct_tls_needs_its_protocol_named(door, protocols):
    with second(door, tls="auto") as (_, port):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if protocols:
            context.set_alpn_protocols(protocols)
        with (
            socket.create_connection(("127.0.0.1", port), 20) as plain,
            contextlib.suppress(ssl.SSLError),
            context.wrap_socket(plain) as s,
        ):
            s.sendall(frontend.encode_startup({"user": "alice"}))
            assert b"ALPN" in s.recv(1000)


def test_direct_tls_where_there_is_none(door):
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(door.url, sslmode="require", sslnegotiation="direct")


def header(source: str, command: int = proxy.PROXY, family: int = 0x11) -> bytes:
    body = socket.inet_aton(source) + socket.inet_aton("127.0.0.1") + struct.pack(">HH", 40000, 5433)
    return proxy.SIGNATURE + bytes((command, family)) + struct.pack(">H", len(body)) + body


def test_proxy_header(door):
    start = frontend.encode_startup({"user": "alice", "database": "main"})
    with second(door, proxy_protocol_from="127.0.0.0/8, ::1", tls="auto") as (listener, port):
        for sent, address in (
            (header("192.0.2.7"), "192.0.2.7"),
            (header("192.0.2.7", proxy.LOCAL), "127.0.0.1"),
        ):
            with Wire(port) as wire:
                for n in range(len(sent + start)):
                    wire.send((sent + start)[n : n + 1])
                assert wire.read()[0] == "R"
                assert {s.address for s in listener.sessions} == {address}
        for bad in (start + b"x" * 20, header("192.0.2.7", 0x55), header("192.0.2.7", family=0x12) + start):
            with Wire(port) as wire:
                wire.send(bad)
                assert b"C08P01\0" in wire.rest()
    with Wire(door.port) as wire:  # nobody is believed unless configured
        wire.send(header("192.0.2.7") + start)
        assert wire.rest() == b""


def test_before_authentication_nobody_may_send_much(door):
    """A Query of a gigabyte announced instead of a password is refused at its header."""
    with Wire(door.port) as wire:
        wire.send(frontend.encode_startup({"user": "alice", "database": "main"}))
        assert wire.read()[0] == "R"
        wire.send(b"Q\x3f\xff\xff\xff" + b"x" * 100)
        assert b"expected SASL response, got message type 81" in wire.rest()
    with Wire(door.port) as wire:
        wire.send(frontend.encode_startup({"user": "alice", "database": "main"}))
        assert wire.read()[0] == "R"
        wire.send(b"p\0\0\xff\xff")
        assert b"invalid message length" in wire.rest()


def test_keepalive_is_inherited(door):
    async def look() -> list[int]:
        client = next(iter(listener.sessions))._transport.get_extra_info("socket")
        asked = [(socket.IPPROTO_TCP, o) for o in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)]
        return [client.getsockopt(*option) for option in ((socket.SOL_SOCKET, socket.SO_KEEPALIVE), *asked)]

    settings = {"tcp_keepalives_idle_s": 31, "tcp_keepalives_interval_s": 7, "tcp_keepalives_count": 3}
    with second(door, **settings) as (listener, port), psycopg.connect(door.url, port=port):
        assert door.run(look()) == [1, 31, 7, 3]
