"""Embedded programs as child processes: never root where that is refused, gone when the server is gone.

Owns: starting a program through ``launch``, choosing the user it runs as, waiting for it to end.
Must not know: which program. Start reading at ``spawn``.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pgstream.errors import ConfigurationError

LAUNCH = Path(__file__).with_name("launch.py")
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2


@dataclass(frozen=True, slots=True)
class User:
    """Whom a child runs as. ``uid`` -1: as this process. ``capability``: the one it keeps to reach its folders."""

    uid: int = -1
    gid: int = -1
    capability: int = -1

    def own(self, path: Path) -> None:
        """Give a file or an empty folder to this user."""
        if self.uid >= 0:
            os.chown(path, self.uid, self.gid)


def spawn(
    argv: Sequence[str | Path],
    *,
    user: User | None = None,
    death_signal: signal.Signals = signal.SIGKILL,
    environ: Mapping[str, str] | None = None,
    output: IO[bytes] | int,
    errors: IO[bytes] | int = subprocess.STDOUT,
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own (Ctrl-C is the server's); ``output`` takes stdout and stderr.

    Linux sends ``death_signal`` when the *thread* that calls this ends: call it from the main thread, where the event
    loop runs, not from an executor.
    """
    user = user or User()
    head = [sys.executable, "-I", "-S", LAUNCH, os.getpid(), int(death_signal), user.uid, user.gid, user.capability]
    return subprocess.Popen(
        [*map(str, head), "--", *map(str, argv)],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
        cwd="/",
        env=dict(os.environ if environ is None else environ),
        start_new_session=True,
    )


async def ended(process: subprocess.Popen[bytes], within_s: float, every_s: float = 0.01) -> bool:
    """Wait for a child to end, without blocking the loop."""
    deadline = time.monotonic() + within_s
    while process.poll() is None:
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(every_s)
    return True


def unprivileged(owned: Path, programs: Path) -> User:
    """The user for a program that refuses root: the owner of ``owned`` if it exists, else ``postgres`` or ``nobody``.

    Where that user cannot pass through a folder on the way (``mktemp -d`` makes 0700), it keeps one capability to do
    so; nothing is chmodded. Errors: ConfigurationError when the capability is not ours to give (containers).
    """
    if os.geteuid() != 0:
        return User()
    uid, gid = _owner(owned)
    capability = -1
    if not all(_passes(folder, uid, gid) for folder in (*owned.parents, *programs.parents)):
        capability = CAP_DAC_READ_SEARCH
    if not _passes(programs, uid, gid):
        capability = CAP_DAC_OVERRIDE
    held = _capabilities()
    if capability >= 0 and not held >> capability & 1:
        capability = CAP_DAC_OVERRIDE
    if capability >= 0 and not held >> capability & 1:
        raise ConfigurationError(
            what=f'user id {uid}, which PostgreSQL runs as, cannot reach "{owned}" or "{programs}"',
            hint="Run pgstream as an ordinary user, or choose folders that every user can pass through.",
        )
    return User(uid, gid, capability)


def _owner(path: Path) -> tuple[int, int]:
    if path.exists() and (there := path.stat()).st_uid != 0:
        return there.st_uid, there.st_gid
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    return 65534, 65534


def _passes(path: Path, uid: int, gid: int) -> bool:
    """Whether the user may search a folder, or read and run a file."""
    there = path.stat()
    need = 1 if stat.S_ISDIR(there.st_mode) else 5
    shift = 6 if there.st_uid == uid else 3 if there.st_gid == gid else 0
    return (there.st_mode >> shift) & need == need


def _capabilities() -> int:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), 0)


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on, and that the system gives to nobody else for a minute.

    A connection that has just ended here holds it (TIME_WAIT): neither an outgoing connection nor who asks for any port
    gets it. A server may listen there that allows itself the reuse of its address (SO_REUSEADDR), as all of ours do.
    """
    with socket.create_server((host, 0)) as listener, socket.socket() as client:
        client.connect(listener.getsockname())
        held, peer = listener.accept()
        while peer != client.getsockname():  # somebody who looks for a server that was here before
            held.close()
            held, peer = listener.accept()
        with held:
            held.shutdown(socket.SHUT_WR)
            client.recv(1)
            client.shutdown(socket.SHUT_WR)
            held.recv(1)
        return int(listener.getsockname()[1])
