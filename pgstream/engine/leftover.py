"""The worker that a killed server left behind.

Owns: the pid file of a pool's worker, and ending that process at the next start. A worker ends by itself when its
channel closes; this is for the one that hangs. A pid in the file is believed only if that process is a worker of ours
and was started when the file says. Must not know: channels, queries. Start reading at ``end_leftover``.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import structlog

MARK = "pgstream.spark"
log = structlog.get_logger(__name__)


def _started(pid: int) -> str | None:
    """When a process started, in the kernel's ticks; None when it is gone, or where there is no /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] == "Z" else fields[19]


def write(path: Path, pid: int) -> None:
    path.write_text(f"{pid} {_started(pid) or ''}\n")


def find(path: Path, mark: str = MARK) -> int | None:
    """The pid in the file, if that process still is the worker it was."""
    try:
        pid_text, _, started = path.read_text().strip().partition(" ")
        pid = int(pid_text)
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except (OSError, ValueError):
        return None
    return pid if mark in command and started == _started(pid) else None


def signal_group(pid: int, number: signal.Signals) -> None:
    """Signal a worker and its children: it leads a process group of its own."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


async def _gone(pid: int, started: str | None, within_s: float) -> bool:
    """Not our child, so there is nothing to wait on but /proc."""
    for _ in range(int(within_s / 0.02)):
        if _started(pid) != started:
            return True
        await asyncio.sleep(0.02)
    return False


def remove(path: Path) -> None:
    path.unlink(missing_ok=True)


async def end_leftover(path: Path, mark: str = MARK, grace_s: float = 5) -> None:
    """End the worker that the file names, if it still runs; then the file goes."""
    pid = find(path, mark)
    if pid is not None:
        log.warning("left-over worker found", pid=pid)
        started = _started(pid)
        for number in (signal.SIGTERM, signal.SIGKILL):
            signal_group(pid, number)
            if await _gone(pid, started, grace_s):
                break
        log.info("left-over worker ended", pid=pid)
    remove(path)
