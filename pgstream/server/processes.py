"""What processes of this server use, as the kernel tells it in ``/proc``; elsewhere nothing is known.

Owns: reading it. Must not know: which processes there are. Start reading at ``usage``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Usage:
    """``memory``: resident bytes; ``cpu_s``: seconds of user and system time."""

    memory: int = 0
    cpu_s: float = 0.0


def usage(pid: int, *, group: bool = False) -> Usage | None:
    """Of a process, or of it and all below it (a worker and its JVM). None: it is gone, or there is no /proc."""
    found = [one for one in map(_one, _family(pid) if group else (pid,)) if one is not None]
    return Usage(sum(u.memory for u in found), sum(u.cpu_s for u in found)) if found else None


def _one(pid: int) -> Usage | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # Behind the program's name, which may hold anything: proc(5) counts them from 3.
    fields = text[text.rindex(")") + 2 :].split()
    return Usage(
        int(fields[24 - 3]) * os.sysconf("SC_PAGE_SIZE"), (int(fields[14 - 3]) + int(fields[15 - 3])) / _ticks()
    )


def _ticks() -> int:
    return os.sysconf("SC_CLK_TCK")


def _family(pid: int) -> Iterator[int]:
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            below = children.read_text().split()
        except OSError:
            continue
        for child in below:
            yield from _family(int(child))
