"""Backend connections that are opened late or kept for the next session, and who is let in at all."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from pgstream.server import session
from pgstream.server.admission import Admissions
from pgstream.server.listener import Listener
from tests.pg.door.double import Door
from tests.pg.door.raw import TERMINATE, Wire, query


def until(probe: Callable[[], object], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not probe():
        assert time.monotonic() < end, "condition did not come"
        time.sleep(0.01)


class Guest:
    """A user of one test, and a listener with other settings that it comes through."""

    def __init__(self, door: Door, admin: psycopg.Connection) -> None:
        self.door, self.admin = door, admin
        self.name = f"guest_{secrets.token_hex(4)}"
        admin.execute(f"CREATE ROLE {self.name} LOGIN PASSWORD 'x'")
        self._open: list[Listener] = []
        self.port = 0

    def listen(self, **settings: object) -> None:
        listener, self.port = self.door.second(**settings)
        self._open.append(listener)

    @property
    def listener(self) -> Listener:
        return self._open[-1]

    def connect(self, **more: object) -> psycopg.Connection:
        return psycopg.connect(self.door.url, **({"user": self.name, "password": "x", "port": self.port} | more))

    def direct(self, **more: object) -> psycopg.Connection:
        return psycopg.connect(self.door.direct, **({"user": self.name, "password": "x"} | more))

    def until_kept(self, pid: int) -> None:
        """One that is kept for another kind of session is no answer."""
        until(lambda: any(k.backend.pid == pid for found in self.listener.backends._kept.values() for k in found))

    @property
    def backends(self) -> list[int]:
        rows = self.admin.execute("SELECT pid FROM pg_stat_activity WHERE usename = %s", [self.name]).fetchall()
        return [row[0] for row in rows]

    def close(self) -> None:
        for listener in self._open:
            self.door.run(listener.close())
        self.admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = %s", [self.name]
        )
        for database in ("main", "other"):
            self.admin.execute(f"REVOKE ALL ON DATABASE {database} FROM {self.name}")
        self.admin.execute(f"DROP ROLE {self.name}")


@pytest.fixture
def guest(door: Door) -> Iterator[Guest]:
    with psycopg.connect(door.postgres.url("postgres"), autocommit=True) as admin:
        guest = Guest(door, admin)
        yield guest
        guest.close()


async def test_only_users_are_admitted(door: Door) -> None:
    admissions = Admissions(door.postgres.url("postgres"))
    found = await admissions.ask("alice", "main")
    assert found.verifier is not None and found.verifier.startswith("SCRAM-SHA-256$4096:")
    assert found.sure and found.mark
    assert not (await admissions.ask("alice", "none")).sure
    for nobody in ("pgstream", "pg_monitor", "nobody", "al\0ice"):
        assert (await admissions.ask(nobody, "main")).verifier is None
    await admissions.close()


async def test_nobody_who_may_become_a_superuser_is_admitted(door: Door, guest: Guest) -> None:
    admissions = Admissions(door.postgres.url("postgres"))
    guest.admin.execute("CREATE ROLE door_dba SUPERUSER; CREATE ROLE door_on_call")
    try:
        guest.admin.execute(f"GRANT door_on_call TO {guest.name}")
        assert (await admissions.ask(guest.name, "main")).may
        guest.admin.execute("GRANT door_dba TO door_on_call")
        found = await admissions.ask(guest.name, "main")
        assert not found.may and found.verifier is None
    finally:
        guest.admin.execute("DROP ROLE door_dba, door_on_call")
        await admissions.close()


async def test_a_question_survives_a_cut_connection(door: Door) -> None:
    admissions = Admissions(door.postgres.url("postgres"))
    assert (await admissions.ask("alice", "main")).sure
    with psycopg.connect(door.postgres.url("postgres"), autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE query LIKE '%pg_conf_load_time%'"
            " AND pid <> pg_backend_pid() AND state = 'idle'"
        )
    assert (await admissions.ask("alice", "main")).sure
    await admissions.close()


def test_each_session_has_its_own_backend_at_once(guest: Guest) -> None:
    guest.listen()
    for _ in range(2):
        with guest.connect() as conn:
            assert guest.backends == [conn.info.backend_pid]
        until(lambda: not guest.backends)


def test_a_lazy_session_waits_with_its_backend(guest: Guest) -> None:
    guest.listen(lazy_backends=True)
    told = []
    with guest.connect() as first:
        told += [first.info.parameter_status(name) for name in ("TimeZone", "server_version", "is_superuser")]
        assert len(guest.backends) == 1  # its greeting had to be learned
    until(lambda: not guest.backends)
    with guest.connect(autocommit=True) as second:
        assert not guest.backends
        assert told == [second.info.parameter_status(name) for name in ("TimeZone", "server_version", "is_superuser")]
        assert second.execute("SELECT current_user, %s::int", [7]).fetchone() == (guest.name, 7)
        assert len(guest.backends) == 1
        second.execute("SET search_path TO pg_catalog")
        assert second.execute("SHOW search_path").fetchone() == ("pg_catalog",)
    until(lambda: not guest.backends)
    guest.connect().close()
    until(lambda: not guest.listener.sessions)
    assert not guest.backends


def test_a_lazy_session_begins_with_any_message(guest: Guest) -> None:
    guest.listen(lazy_backends=True)
    guest.connect().close()
    with guest.connect(autocommit=True) as conn, conn.pipeline():
        cursors = [conn.execute("SELECT %s::int", [n]) for n in range(5)]
        assert [c.fetchone() for c in cursors] == [(n,) for n in range(5)]
    with guest.connect(autocommit=True) as conn:
        assert conn.execute("LIST DOORS").rowcount == 2
    with guest.connect(autocommit=True) as conn:
        long = "x" * 3_000_000
        assert conn.execute(f"SELECT length('{long}')").fetchone() == (len(long),)


@pytest.mark.parametrize("asked", ["SELECT 1", "LIST DOORS", "SELECT 1; LIST DOORS"])
def test_a_lazy_session_that_half_closes_behind_its_goodbye_gets_its_answers(guest: Guest, asked: str) -> None:
    guest.listen(lazy_backends=True)
    guest.connect().close()
    with Wire(guest.port, guest.name, "x") as wire:
        wire.send(query(asked) + TERMINATE)
        wire.socket.shutdown(socket.SHUT_WR)
        assert wire.rest().count(b"Z\0\0\0\5") == 1
    until(lambda: not guest.listener.sessions)


SLOW = "SELECT pg_sleep(0.7); LIST DOORS"


@pytest.mark.parametrize(
    ("asked", "ends"),
    [
        (query("COUNT FOREVER") + TERMINATE, b""),
        (query(SLOW) + query("LIST DOORS") + TERMINATE, b"Z\0\0\0\5I"),
        (query(SLOW) + query("SELECT 1 -- \0" + "x" * 50)[:12] + TERMINATE, b"Z\0\0\0\5I"),
    ],
    ids=["endless", "slow before it", "a part of a message"],
)
def test_who_half_closes_is_not_kept_for_longer_than_there_is_to_do(
    guest: Guest, monkeypatch: pytest.MonkeyPatch, asked: bytes, ends: bytes
) -> None:
    monkeypatch.setattr(session, "GOODBYE_S", 0.2)
    guest.listen()
    with Wire(guest.port, guest.name, "x") as wire:
        wire.send(asked)
        wire.socket.shutdown(socket.SHUT_WR)
        rest = wire.rest()
        assert rest
        assert rest.endswith(ends)
    until(lambda: not guest.listener.sessions)


def test_a_lazy_session_is_cancelled(guest: Guest) -> None:
    guest.listen(lazy_backends=True)
    guest.connect().close()
    with guest.connect(autocommit=True) as conn:
        conn.cancel_safe()
        for row in conn.cursor().stream("COUNT TO 3"):
            assert row
        with pytest.raises(psycopg.errors.QueryCanceled):
            for _ in conn.cursor().stream("COUNT FOREVER"):
                conn.cancel_safe()


def test_settings_of_a_role_are_told_at_once(guest: Guest) -> None:
    guest.listen(lazy_backends=True, keep_backends_s=3)
    guest.connect().close()
    guest.admin.execute(f"ALTER ROLE {guest.name} SET TimeZone TO 'Asia/Tokyo'")
    with guest.connect() as conn:
        assert conn.info.parameter_status("TimeZone") == "Asia/Tokyo"
        assert conn.execute("SHOW TimeZone").fetchone() == ("Asia/Tokyo",)


REFUSALS = {
    "role limit": ("ALTER ROLE {0} CONNECTION LIMIT 0", "ALTER ROLE {0} CONNECTION LIMIT -1"),
    "database limit": ("ALTER DATABASE other CONNECTION LIMIT 0", "ALTER DATABASE other CONNECTION LIMIT -1"),
    "closed": ("ALTER DATABASE other ALLOW_CONNECTIONS false", "ALTER DATABASE other ALLOW_CONNECTIONS true"),
    "right": ("REVOKE CONNECT ON DATABASE other FROM PUBLIC", "GRANT CONNECT ON DATABASE other TO PUBLIC"),
}


@pytest.mark.parametrize("why", REFUSALS)
def test_what_postgres_refuses_is_refused_at_the_same_moment(guest: Guest, why: str) -> None:
    guest.listen(lazy_backends=True, keep_backends_s=3)
    guest.connect(dbname="other").close()
    before, after = REFUSALS[why]
    guest.admin.execute(before.format(guest.name))
    try:
        words = []
        for connect in (guest.connect, guest.direct):
            with pytest.raises(psycopg.OperationalError) as caught:
                connect(dbname="other")
            words.append(str(caught.value).split("FATAL:")[1])
        assert words[0] == words[1]
    finally:
        guest.admin.execute(after.format(guest.name))
    guest.connect(dbname="other").close()


def test_a_wrong_start_up_parameter_is_refused_at_once(guest: Guest) -> None:
    guest.listen(lazy_backends=True)
    guest.connect().close()
    with pytest.raises(psycopg.OperationalError, match="no_such_setting"):
        guest.connect(options="-c no_such_setting=1")


DIRT = """
SET statement_timeout TO '7s'; SET search_path TO pg_catalog; CREATE TEMP TABLE mine (a int); LISTEN news;
SELECT pg_advisory_lock(42); PREPARE p AS SELECT 1; DECLARE c CURSOR WITH HOLD FOR SELECT 1;
SET client_encoding TO LATIN1
"""


def test_a_kept_backend_is_clean(guest: Guest) -> None:
    guest.listen(keep_backends_s=3)
    with guest.connect(autocommit=True) as conn:
        pid = conn.info.backend_pid
        conn.execute(DIRT)
    until(lambda: guest.listener.backends._kept)
    with guest.connect(autocommit=True) as conn:
        assert conn.info.backend_pid == pid == conn.execute("SELECT pg_backend_pid()").fetchone()[0]
        assert conn.info.encoding == "utf-8"
        assert conn.execute("SHOW statement_timeout").fetchone() == ("0",)
        assert conn.execute("SHOW search_path").fetchone() == ('"$user", public',)
        for text in (
            "SELECT to_regclass('mine') IS NULL",
            "SELECT NOT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory')",
            "SELECT NOT EXISTS (SELECT 1 FROM pg_prepared_statements)",
            "SELECT NOT EXISTS (SELECT 1 FROM pg_cursors WHERE name = 'c')",
            "SELECT NOT EXISTS (SELECT 1 FROM pg_listening_channels())",
        ):
            assert conn.execute(text, prepare=False).fetchone() == (True,), text


@pytest.mark.parametrize(
    "work", ["BEGIN", "BEGIN; SELECT 1/0", "COPY (SELECT generate_series(1, 1000000)) TO STDOUT"], ids=str
)
def test_a_backend_in_the_middle_is_not_kept(guest: Guest, work: str) -> None:
    guest.listen(keep_backends_s=3)
    conn = guest.connect(autocommit=True)
    if work.startswith("BEGIN"):
        with contextlib.suppress(psycopg.errors.DivisionByZero):
            conn.execute(work)
    else:
        conn.pgconn.send_query(work.encode())
    conn.pgconn.finish()
    until(lambda: not guest.backends)


def test_a_cancelled_backend_is_not_kept(guest: Guest) -> None:
    guest.listen(keep_backends_s=3)
    with guest.connect(autocommit=True) as conn:
        conn.execute("SET statement_timeout TO '100ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            conn.execute("SELECT pg_sleep(30)")
        pid = conn.info.backend_pid
    until(lambda: guest.listener.backends._kept)
    with guest.connect(autocommit=True) as conn:
        assert conn.info.backend_pid == pid
        conn.execute("SET statement_timeout TO 0")
        canceling = threading.Thread(target=_cancel_when_asleep, args=(guest, conn, pid))
        canceling.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            conn.execute("SELECT pg_sleep(30)")
        canceling.join()
    until(lambda: not guest.backends)


def _cancel_when_asleep(guest: Guest, conn: psycopg.Connection, pid: int) -> None:
    asleep = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event = 'PgSleep'"
    until(lambda: guest.admin.execute(asleep, [pid]).fetchone())
    conn.cancel_safe()


@pytest.mark.parametrize("change", ["PASSWORD 'x'", "SET work_mem TO '5MB'"])
def test_a_change_of_the_role_ends_reuse(guest: Guest, change: str) -> None:
    guest.listen(keep_backends_s=3)
    with guest.connect() as conn:
        pid = conn.info.backend_pid
    until(lambda: guest.listener.backends._kept)
    guest.admin.execute(f"ALTER ROLE {guest.name} {change}")
    with guest.connect() as conn:
        assert conn.info.backend_pid != pid


def test_a_role_that_is_revoked_ends_reuse(guest: Guest) -> None:
    """Of the user, or of a role that it may take: the next session is not given what it may no longer have."""
    guest.listen(keep_backends_s=30)
    guest.admin.execute("CREATE ROLE door_low; CREATE ROLE door_high; GRANT door_high TO door_low")
    guest.admin.execute(f"GRANT door_low TO {guest.name}")
    try:
        for revoked in ("door_high FROM door_low", f"door_low FROM {guest.name}"):
            with guest.connect(options="-c role=door_low") as conn:
                pid = conn.info.backend_pid
            guest.until_kept(pid)
            with guest.connect(options="-c role=door_low") as conn:
                assert conn.info.backend_pid == pid
            guest.until_kept(pid)
            guest.admin.execute(f"REVOKE {revoked}")
            if "high" in revoked:
                with guest.connect(options="-c role=door_low") as conn:
                    assert conn.info.backend_pid != pid
        with pytest.raises(psycopg.OperationalError, match="role"):
            guest.connect(options="-c role=door_low")
    finally:
        guest.admin.execute("DROP ROLE door_low, door_high")


def test_other_sessions_get_other_backends(guest: Guest) -> None:
    guest.listen(keep_backends_s=3)
    with guest.connect() as conn:
        pid = conn.info.backend_pid
    until(lambda: guest.listener.backends._kept)
    with guest.connect(application_name="other") as named, guest.connect(dbname="other") as placed:
        assert pid not in (named.info.backend_pid, placed.info.backend_pid)
        with psycopg.connect(guest.door.url, port=guest.port) as alice:
            assert alice.info.backend_pid != pid


def test_a_kept_backend_holds_no_database_up(guest: Guest) -> None:
    guest.listen(keep_backends_s=3)
    guest.connect(dbname="other").close()
    until(lambda: guest.listener.backends._kept)
    guest.admin.execute("CREATE DATABASE copy_of_other TEMPLATE other")
    guest.admin.execute("DROP DATABASE copy_of_other")
    assert not guest.backends


def test_a_kept_backend_that_is_terminated(guest: Guest) -> None:
    guest.listen(keep_backends_s=3)
    guest.connect().close()
    until(lambda: guest.listener.backends._kept)
    guest.admin.execute("SELECT pg_terminate_backend(%s, 5000)", guest.backends)
    with guest.connect() as conn:
        assert conn.execute("SELECT 1").fetchone() == (1,)


def test_listener_processes_share_what_may_be_kept(guest: Guest) -> None:
    """Each keeps its part: the embedded PostgreSQL has room for no more."""
    guest.listen(keep_backends_s=3, workers=16)
    with contextlib.ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(guest.connect())
    backends = guest.listener.backends
    until(lambda: not guest.listener.sessions and not backends._resetting)
    assert sum(map(len, backends._kept.values())) <= 2
