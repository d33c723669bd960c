"""Folders to work in beside what others use, in a cache that several servers may share, also of other containers.

Owns: such a folder from its making to its end, and the end of those whose makers were killed: who makes the next one
of a kind removes them. Process ids say nothing there; a maker holds a lock on its folder, which goes when it does.
Must not know: what is made. Start reading at ``folder``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_HOUR_S, _DAY_S = 3600, 86400


@contextlib.contextmanager
def folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A new folder in ``parent``, removed in the end; before it is made, those of ``prefix`` that nobody works in."""
    _sweep(parent, prefix)
    made = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    held = os.open(made, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(held)


def _sweep(parent: Path, prefix: str) -> None:
    for left in parent.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # somebody else removes it, or it is another user's
            _remove_left(left)


def _remove_left(left: Path) -> None:
    age = time.time() - left.stat().st_mtime
    if age < _HOUR_S:  # it may have no lock yet, or be of an earlier build, whose folders have none
        return
    held = os.open(left, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(left, ignore_errors=True)
    except BlockingIOError:
        return
    except OSError:  # a file system without locks
        if age > _DAY_S:
            shutil.rmtree(left, ignore_errors=True)
    finally:
        os.close(held)
