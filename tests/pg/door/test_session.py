"""The life of a session: start-up, passwords, TLS, cancel, disconnect, shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psycopg
import pytest

from pgstream.errors import ConfigurationError
from pgstream.server.tls import open_tls
from pgstream.wire import frontend
from tests.pg.door import double


def until(probe, seconds=10):
    end = time.monotonic() + seconds
    while not probe():
        assert time.monotonic() < end, "condition did not come"
        time.sleep(0.01)


@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_wrong_password(door, user):
    with pytest.raises(psycopg.OperationalError) as caught:
        psycopg.connect(door.url, user=user, password="wrong")
    assert f'password authentication failed for user "{user}"' in str(caught.value)


@pytest.mark.parametrize("name", ["nowhere", "pgstream_control"])
def test_missing_database(door, name):
    with pytest.raises(psycopg.OperationalError, match=f'database "{name}" does not exist'):
        psycopg.connect(door.url, dbname=name)


def test_parameters_are_postgres_own(door):
    with psycopg.connect(door.url, application_name="me", options="-c search_path=pg_catalog") as a:
        assert a.execute("SHOW application_name").fetchone() == ("me",)
        assert a.execute("SHOW search_path").fetchone() == ("pg_catalog",)
        assert a.info.parameter_status("server_version").startswith("16")
        assert a.info.backend_pid == a.execute("SELECT pg_backend_pid()").fetchone()[0]


def test_cancel_of_postgres(conn):
    threading.Timer(0.2, conn.cancel_safe).start()
    with pytest.raises(psycopg.errors.QueryCanceled):
        conn.execute("SELECT pg_sleep(30)")
    assert conn.execute("SELECT 1").fetchone() == (1,)


def test_cancel_of_ours(conn):
    cur = conn.cursor()
    got = []
    with pytest.raises(psycopg.errors.QueryCanceled):
        for row in cur.stream("COUNT FOREVER"):
            got.append(row)
            if len(got) == 10:
                conn.cancel_safe()
    assert len(got) >= 10
    until(lambda: not double.LIVE)
    assert conn.execute("SELECT 1").fetchone() == (1,)


def test_disconnect_in_the_middle(door):
    before = len(door.listener.sessions)
    conn = psycopg.connect(door.url, autocommit=True)
    rows = conn.cursor().stream("COUNT FOREVER")
    next(rows)
    assert double.LIVE
    with socket.socket(fileno=socket.dup(conn.fileno())) as sock:
        sock.shutdown(socket.SHUT_RDWR)
    until(lambda: not double.LIVE and len(door.listener.sessions) <= before)
    with contextlib.suppress(psycopg.OperationalError):
        rows.close()
    conn.close()


def test_slow_client_is_waited_for(door):
    conn = psycopg.connect(door.url, autocommit=True)
    rows = conn.cursor().stream("COUNT TO 400000")
    next(rows)
    with psycopg.connect(door.url) as other:
        assert other.execute("SELECT 1").fetchone() == (1,)
        assert double.LIVE, "rows that nobody reads were all sent"
    assert sum(1 for _ in rows) == 399999
    conn.close()


def test_backend_that_is_terminated(door, conn):
    with psycopg.connect(door.direct, autocommit=True) as direct:
        direct.execute("SELECT pg_terminate_backend(%s)", (conn.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        conn.execute("SELECT 1")
    with psycopg.connect(door.url) as again:
        assert again.execute("SELECT 1").fetchone() == (1,)


def test_tls(door):
    listener, port = door.second(tls="auto")
    try:
        for mode in ("require", "disable"):
            with psycopg.connect(door.url, port=port, sslmode=mode) as conn:
                assert conn.pgconn.ssl_in_use == (mode == "require")
                assert len(conn.execute("SELECT repeat('x', 1000) FROM generate_series(1, 10000)").fetchall()) == 10000
                assert conn.execute("LIST DOORS").rowcount == 2
        with psycopg.connect(door.url, port=port, sslmode="require", channel_binding="require") as conn:
            assert conn.execute("SELECT 1").fetchone() == (1,)
        assert (door.config.data_dir / "server.key").stat().st_mode & 0o777 == 0o600
    finally:
        door.run(listener.close())


def test_connection_limit(door):
    listener, port = door.second(max_connections=1)
    try:
        with psycopg.connect(door.url, port=port), pytest.raises(psycopg.OperationalError, match="too many clients"):
            psycopg.connect(door.url, port=port)
    finally:
        door.run(listener.close())


def test_shutdown(door):
    listener, port = door.second(shutdown_grace_s=1)
    idle = psycopg.connect(door.url, port=port, autocommit=True)
    busy = psycopg.connect(door.url, port=port, autocommit=True)
    rows = busy.cursor().stream("COUNT FOREVER")
    next(rows)
    door.run(listener.close())
    with pytest.raises(psycopg.errors.AdminShutdown):
        idle.execute("SELECT 1")
    until(lambda: not double.LIVE)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(door.url, port=port)
    idle.close()
    busy.close()


def test_a_running_statement_gets_its_grace(door):
    listener, port = door.second(shutdown_grace_s=60)
    with (
        psycopg.connect(door.url, port=port, autocommit=True) as idle,
        psycopg.connect(door.url, port=port, autocommit=True) as busy,
        psycopg.connect(door.direct, autocommit=True) as direct,
        ThreadPoolExecutor() as pool,
    ):
        direct.execute("SELECT pg_advisory_lock(4711)")
        text = "SELECT 7 FROM pg_advisory_lock(4711)"
        running = pool.submit(lambda: busy.execute(text).fetchone())
        waits = "SELECT 1 FROM pg_stat_activity WHERE query = %s AND wait_event_type = 'Lock'"
        until(lambda: direct.execute(waits, (text,)).fetchone())
        closing = asyncio.run_coroutine_threadsafe(listener.close(), door.loop)
        assert select.select([idle.fileno()], [], [], 20)[0]
        with pytest.raises(psycopg.errors.AdminShutdown):
            idle.execute("SELECT 1")
        with pytest.raises(psycopg.OperationalError, match="refused"):
            psycopg.connect(door.url, port=port)
        assert not running.done() and not closing.done()
        direct.execute("SELECT pg_advisory_unlock(4711)")
        assert running.result(20) == (7,)
        closing.result(20)
        with pytest.raises(psycopg.errors.AdminShutdown):
            busy.execute("SELECT 1")


class Raw:
    """A client that speaks bytes."""

    def __init__(self, door, port=None):
        self.socket = socket.create_connection(("127.0.0.1", port or door.port), 10)

    def closes(self) -> bytes:
        out = b""
        while data := self.socket.recv(65536):
            out += data
        self.socket.close()
        return out


@pytest.mark.parametrize(("asked", "agreed"), [(0, 0), (1, 1), (2, 2), (3, 2), (9999, 2)])
def test_protocol_versions_are_negotiated(door, asked, agreed):
    raw = Raw(door)
    raw.socket.sendall(frontend.encode_startup({"user": "alice", "_pq_.new": "1"}, protocol=0x00030000 + asked))
    answer = raw.socket.recv(1000)
    assert answer[:1] == b"v" and struct.unpack(">I", answer[5:9])[0] == 0x00030000 + agreed
    assert b"_pq_.new\0" in answer
    raw.socket.close()


@pytest.mark.parametrize("bytes_", [b"\0\0\0\1", b"\x7f\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n"])
def test_what_is_no_start_up_packet_gets_no_answer(door, bytes_):
    raw = Raw(door)
    raw.socket.sendall(bytes_)
    assert raw.closes() == b""


def test_an_old_protocol_is_refused(door):
    raw = Raw(door)
    raw.socket.sendall(struct.pack(">II", 8, 0x00020000))
    answer = raw.closes()
    assert answer[:1] == b"E" and (b"C08P01" in answer or b"C0A000" in answer)


def test_bad_message_ends_the_session_only(door, conn):
    with psycopg.connect(door.url, autocommit=True) as bad:
        with socket.socket(fileno=socket.dup(bad.fileno())) as sock:
            sock.sendall(b"Q\0\0\0\1")
        with pytest.raises(psycopg.OperationalError):
            bad.execute("SELECT 1")
    assert conn.execute("SELECT 1").fetchone() == (1,)


def test_disconnect_during_startup(door):
    before = len(door.listener.sessions)
    for junk in (b"", b"\0\0", frontend.SSL_REQUEST, frontend.encode_startup({"user": "alice"})):
        raw = Raw(door)
        raw.socket.sendall(junk)
        raw.socket.close()
    until(lambda: len(door.listener.sessions) <= before)


@pytest.mark.parametrize("name", ["template1", "template0", "pgstream_control", "nothing"])
def test_only_databases_of_the_catalogue(door, name):
    with pytest.raises(psycopg.OperationalError, match=f'database "{name}" does not exist'):
        psycopg.connect(door.url, dbname=name)


def test_the_database_that_tools_connect_to_first(door):
    with psycopg.connect(door.url, dbname="postgres") as conn:
        assert conn.execute("SELECT current_database()").fetchone() == ("postgres",)


def test_slow_start_is_ended(door):
    listener, port = door.second(authentication_timeout_s=0.3)
    raw = Raw(door, port)
    packet = frontend.encode_startup({"user": "alice", "database": "main"})
    began = time.monotonic()
    with contextlib.suppress(OSError):
        for n in range(len(packet)):
            raw.socket.sendall(packet[n : n + 1])
            time.sleep(0.03)  # the slowness is what is tested
    assert raw.closes() == b"" and time.monotonic() - began < 10
    door.run(listener.close())


def test_tls_request_twice(door):
    listener, port = door.second(tls="auto")
    try:
        for data in (frontend.SSL_REQUEST * 2, frontend.SSL_REQUEST + b"\0" * 8):
            with socket.create_connection(("127.0.0.1", port), 10) as sock:
                sock.sendall(data)
                answer = b""
                with contextlib.suppress(ConnectionError):
                    while more := sock.recv(1000):
                        answer += more
                assert b"received unencrypted data after SSL request" in answer
    finally:
        door.run(listener.close())


def test_tls_certificate_is_verified(door, tmp_path):
    made = door.second(tls="auto")
    certificate, key = door.config.data_dir / "server.crt", door.config.data_dir / "server.key"
    given = door.second(tls="on", tls_cert_file=certificate, tls_key_file=key)
    for listener, port in (made, given):
        try:
            with psycopg.connect(door.url, port=port, sslmode="verify-ca", sslrootcert=str(certificate)) as conn:
                assert conn.pgconn.ssl_in_use
            named = door.url.replace("host=127.0.0.1", "host=localhost hostaddr=127.0.0.1")
            with psycopg.connect(named, port=port, sslmode="verify-full", sslrootcert=str(certificate)) as conn:
                assert conn.execute("LIST DOORS").rowcount == 2
        finally:
            door.run(listener.close())


@pytest.mark.parametrize("content", [None, "", "no certificate"])
def test_bad_certificate(door, tmp_path, content):
    path = tmp_path / "bad.crt"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigurationError, match=r"bad\.crt"):
        open_tls(replace(door.config, tls="on", tls_cert_file=path, tls_key_file=path), tmp_path)


def test_plain_is_refused_a_tls_answer(door):
    with pytest.raises(psycopg.OperationalError, match="does not support SSL"):
        psycopg.connect(door.url, sslmode="require")
