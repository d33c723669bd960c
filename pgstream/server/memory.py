"""What a process of the server does about its memory and its descriptors once it has started.

Owns: the collector's settings, the limit of open files. Must not know: who calls. Start reading at ``settle``.
"""

from __future__ import annotations

import gc
import resource

import structlog

OTHER_FILES = 100
"""Open files that are no session's: catalogue, workers, logs, those being opened."""
log = structlog.get_logger(__name__)


def settle() -> None:
    """What was made so far stays: the collector need not look at it again, nor run at every few hundred messages."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def room_for(sessions: int) -> int:
    """Raise the limit of open files as far as it goes. How many of these sessions fit: each has two connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * sessions + OTHER_FILES
    if soft != resource.RLIM_INFINITY and (soft < hard or hard == resource.RLIM_INFINITY):
        soft = max(soft, 2 * wanted) if hard == resource.RLIM_INFINITY else hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return sessions
    fit = max(1, (soft - OTHER_FILES) // 2)
    log.warning(
        "too few open files are allowed for max_connections: clients beyond these are refused with 53300",
        max_connections=sessions,
        open_files=soft,
        sessions=fit,
        hint=f"allow {wanted}: ulimit -n, or LimitNOFILE= of a systemd unit",
    )
    return fit


def has_room_for_pairs(sessions: int) -> bool:
    """Whether each of these sessions may have its connections twice, as compiled code wants them."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * sessions + OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return True
    log.info("relaying without compiled code", why=f"{wanted} open files are not allowed", open_files=soft)
    return False
