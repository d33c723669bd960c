"""A server with several listener processes: what they share, and how they end."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from tests.server import PASSWORD, Kafka, Server, within

pytestmark = pytest.mark.stream
STREAM = """
CREATE STORE shared WITH ('type' = KAFKA, 'uris' = '{bootstrap}', 'tls.disabled' = TRUE,
  'kafka.sasl.hash_function' = NONE);
CREATE STREAM shared_in (id BIGINT)
  WITH ('store' = shared, 'topic' = 'shared', 'value.format' = 'json', 'starting.position' = 'earliest')
"""


def listeners(server: Server) -> list[psutil.Process]:
    found = []
    for child in psutil.Process(server.process.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if "pgstream.server.worker" in child.cmdline():
                found.append(child)
    return found


def holder(connection: psycopg.Connection[Any]) -> int:
    """The listener process that a connection came to."""
    own = next(c for c in psutil.Process().net_connections("tcp") if c.fd == connection.fileno())
    return next(c.pid for c in psutil.net_connections("tcp") if c.pid and c.raddr == own.laddr and c.laddr == own.raddr)


class Both:
    """A server with two listener processes, and a connection to each."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.server = Server(folder, workers="2", **settings)
        self.connections: dict[int, psycopg.Connection[Any]] = {}
        self.reach()

    def reach(self) -> None:
        """Connect until every process has a session; the system deals connections out as it likes."""
        wanted = {p.pid for p in listeners(self.server)}
        for _ in range(200):
            connection = self.server.connect()
            if self.connections.setdefault(holder(connection), connection) is not connection:
                connection.close()
            if wanted <= set(self.connections):
                return
        raise AssertionError("one process got no connection out of 200")

    def __iter__(self) -> Iterator[psycopg.Connection[Any]]:
        return iter(self.connections.values())

    def close(self) -> None:
        for connection in self:
            connection.close()


@pytest.fixture(scope="module")
def both(workspace: Path) -> Iterator[Both]:
    both = Both(workspace / "both")
    yield both
    both.close()
    assert both.server.stop() == 0


def test_secrets_stay_in_the_server(both: Both) -> None:
    """Listener processes get them over the link, not in their environment, which /proc shows."""
    for process in listeners(both.server):
        assert "PGSTREAM_ADMIN_PASSWORD" not in process.environ()
    assert "PGSTREAM_ADMIN_PASSWORD" in psutil.Process(both.server.process.pid).environ()


def test_a_change_is_known_everywhere_when_its_statement_ends(both: Both) -> None:
    one, other = both
    for n in range(20):
        one.execute(f"CREATE SCHEMA s{n}".encode())
        other.execute(f"USE SCHEMA s{n}".encode())
        assert other.execute("SELECT current_schema()").fetchone() == (f"s{n}",)
        one.execute(f"DROP SCHEMA s{n}".encode())
    other.execute("USE SCHEMA public")


def test_sessions_move(both: Both) -> None:
    one, other = both
    one.execute("CREATE DATABASE elsewhere")
    other.execute("USE DATABASE elsewhere")
    assert other.execute("SELECT current_database()").fetchone() == ("elsewhere",)
    with pytest.raises(psycopg.errors.InvalidCatalogName) as caught:
        other.execute("USE DATABASE nowhere")
    assert (caught.value.diag.statement_position, caught.value.diag.source_function) == ("14", "undefined_database")
    other.execute("USE DATABASE main")
    one.execute("DROP DATABASE elsewhere")


def test_notices_of_ours(both: Both) -> None:
    heard: list[str] = []
    one, _ = both
    one.add_notice_handler(lambda d: heard.append(f"{d.severity}: {d.message_primary}"))
    with one.transaction(force_rollback=True):
        one.execute("CREATE SECRET noticed WITH ('type' = generic_string, 'secret_string' = 'x')")
    assert heard == ["WARNING: CREATE SECRET takes effect at once and will not be rolled back"]
    one.execute("DROP SECRET noticed")


def test_a_stream_read_through_each(both: Both, kafka: Kafka) -> None:
    kafka.topic("shared")
    kafka.produce("shared", [(None, json.dumps({"id": n})) for n in range(3000)])
    one, other = both
    for statement in STREAM.format(bootstrap=kafka.bootstrap).split(";\n"):
        one.execute(statement.encode())
    for connection in both:
        got = [row[0] for row in connection.cursor().stream("SELECT id FROM shared_in LIMIT 2500")]
        assert got == list(range(2500))
    one.execute("CREATE MATERIALIZED VIEW shared_view AS SELECT id FROM shared_in WHERE id < 10")
    within(60, lambda: other.execute("SELECT count(*) FROM shared_view").fetchone() == (10,))
    rows = other.cursor().stream("SELECT id FROM shared_in")
    assert next(rows) == (0,)
    other.cancel_safe()
    with pytest.raises(psycopg.errors.QueryCanceled):
        for _ in rows:
            pass
    assert other.execute("SELECT 1").fetchone() == (1,)
    for stranger in (one, other):  # of this one's process, and of the other's
        rows = other.cursor().stream("SELECT id FROM shared_in")
        assert next(rows) == (0,)
        with both.server.connect() if stranger is other else contextlib.nullcontext(one) as ends:
            assert ends.execute(f"SELECT pg_cancel_backend({other.info.backend_pid})".encode()).fetchone() == (True,)
        with pytest.raises(psycopg.errors.QueryCanceled):
            for _ in rows:
                pass


def test_cancel_requests_find_their_session(both: Both) -> None:
    """The request is a connection of its own: it comes to either process."""
    for connection in both:
        for _ in range(8):
            timer = threading.Timer(0.05, connection.cancel_safe)
            timer.start()
            with pytest.raises(psycopg.errors.QueryCanceled):
                connection.execute("SELECT pg_sleep(60)")
            timer.join()


def test_a_process_that_stands_still(both: Both) -> None:
    """A change waits for it once; when it goes on it knows of all."""
    still, other = listeners(both.server)
    one, stopped = both.connections[other.pid], both.connections[still.pid]
    before = both.server.log.read_text().count("listener process does not answer")
    still.suspend()
    try:
        for n in range(3):
            one.execute(f"CREATE SCHEMA still{n}".encode())
    finally:
        still.resume()
    for n in range(3):
        stopped.execute(f"USE SCHEMA still{n}".encode())
    stopped.execute("USE SCHEMA public")
    for n in range(3):
        stopped.execute(f"DROP SCHEMA still{n}".encode())
    assert both.server.log.read_text().count("listener process does not answer") == before + 1


def test_a_killed_process_comes_back(both: Both) -> None:
    one, other = listeners(both.server)
    one.kill()
    within(20, lambda: len({p.pid for p in listeners(both.server)} - {one.pid}) == 2)
    assert both.connections[other.pid].execute("LIST SCHEMAS").fetchall()
    with pytest.raises(psycopg.OperationalError):
        both.connections.pop(one.pid).execute("SELECT 1")
    within(20, lambda: both.reach() is None)
    for connection in both:
        assert connection.execute("LIST SCHEMAS").fetchall()


def test_all_read_the_access_table_anew(workspace: Path) -> None:
    table = workspace / "access"
    table.write_text("host all all all scram-sha-256\n")
    server = Server(workspace / "anew", workers="2", hba_file=str(table))
    try:
        server.connect().close()
        table.write_text("host all all all reject\n")
        server.process.send_signal(signal.SIGHUP)
        within(20, lambda: all(is_refused(server) for _ in range(20)))
        assert len(listeners(server)) == 2
        table.write_text("host all all all scram-sha-256\n")
        server.process.send_signal(signal.SIGHUP)
        within(20, lambda: not any(is_refused(server) for _ in range(20)))
        for text in ("host all all all nonsense\n", "host all all all reject\n"):
            table.write_text(text)  # what nobody was told to read does not hold, for processes that start again neither
            for process in listeners(server):
                process.kill()
            within(20, lambda: server.connect().close() is None)
    finally:
        assert server.stop() == 0


def is_refused(server: Server) -> bool:
    try:
        server.connect().close()
    except psycopg.OperationalError as e:
        return "rejects connection" in str(e)
    return False


def test_the_limit_holds_for_all_together(workspace: Path) -> None:
    server = Server(workspace / "few", workers="2", max_connections="5")
    with contextlib.ExitStack() as stack:
        stack.callback(server.stop)
        held = [stack.enter_context(server.connect()) for _ in range(5)]
        for _ in range(5):
            with pytest.raises(psycopg.OperationalError, match="too many clients"):
                server.connect()
        held.pop().close()
        within(10, lambda: server.connect().close() is None)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_all_end_with_the_server(workspace: Path, number: signal.Signals) -> None:
    both = Both(workspace / f"end{int(number)}", shutdown_grace_s="2")
    processes = listeners(both.server)
    assert len(processes) == 2
    both.server.process.send_signal(number)
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert not alive
    for connection in both:
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    both.close()
    if number == signal.SIGKILL:
        both.server.kill()
    else:
        with both.server.process:
            assert both.server.process.wait(40) == 0


def hears_of_the_end(idle: psycopg.Connection[Any], notices: list[str | None] | None = None) -> None:
    """``notices``: SQLSTATEs that came outside a statement: libpq hands on as a notice what it read with an answer."""
    assert select.select([idle.fileno()], [], [], 10)[0], "an idle session was told nothing"
    with pytest.raises(psycopg.OperationalError) as end:
        idle.execute("SELECT 1")
    assert "57P01" in (end.value.sqlstate, *(notices or ()))


def test_statements_that_run_get_their_grace(workspace: Path) -> None:
    both = Both(workspace / "grace", shutdown_grace_s="20")
    one, other = both
    told: list[str | None] = []
    one.add_notice_handler(lambda d: told.append(d.sqlstate))
    with both.server.process, contextlib.ExitStack() as undo:
        undo.callback(both.server.process.kill)  # else a failure here is waited for
        with ThreadPoolExecutor() as pool:
            text = "SELECT 7 FROM pg_sleep(2)"
            busy = pool.submit(lambda: one.execute(text).fetchone())
            within(10, lambda: other.execute("SELECT 1 FROM pg_stat_activity WHERE query = %s", [text]).fetchone())
            both.server.process.send_signal(signal.SIGTERM)
            hears_of_the_end(other)
            assert busy.result() == (7,)
        hears_of_the_end(one, told)
        assert both.server.process.wait(40) == 0
    both.close()


def test_nothing_that_lies_in_the_folder_it_is_started_in_is_run(workspace: Path) -> None:
    folder = workspace / "started_in"
    folder.mkdir()
    (folder / "secrets.py").write_text("raise SystemExit('planted')\n")  # named like one of Python's own
    env = os.environ | {"PGSTREAM_WORKERS": "2", "PGSTREAM_ADMIN_PASSWORD": PASSWORD}
    # Without this folder, as the command that pip installs.
    command = [sys.executable, "-P", "-m", "pgstream", "serve", "--data-dir", str(folder), "--listen", "127.0.0.1:0"]
    with (
        (workspace / "started_in.log").open("wb") as log,
        subprocess.Popen(command, env=env, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            assert process.stdout is not None and process.stdout.readline().startswith("ready ")
        finally:
            process.terminate()
    assert "planted" not in (workspace / "started_in.log").read_text()


def test_a_port_that_others_share_is_refused(both: Both, workspace: Path) -> None:
    env = os.environ | {"PGSTREAM_WORKERS": "2"}
    command = [sys.executable, "-m", "pgstream", "serve", "--data-dir", str(workspace / "second"), "--listen"]
    done = subprocess.run(
        [*command, f"127.0.0.1:{both.server.port}"], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert f'could not listen on "127.0.0.1:{both.server.port}"' in done.stderr
