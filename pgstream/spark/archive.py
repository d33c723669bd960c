"""The class archive: classes that the JVM would otherwise load, parse and verify one by one at every start of a worker.

Owns: where the archive of a class path lies, the flags that use it, that old ones go, starting the trial run that makes
it (Java's application class data sharing). It is an acceleration and nothing else: where it is missing or does not fit,
Java loads classes as ever.
Must not know: what the trial run does (``trial.py``). Start reading at ``Archive``.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pgstream.embedded.child import LAUNCH

KEPT = 5
"""Archives that stay in the cache: those used last. One has some 150 MB."""
_PREFIX = "pgstream-classes-"


class Archive:
    """The archive of one Java and class path, which is read in its order; an entry may end in ``/*``.

    The file is empty where this Java makes none, so that it is tried once.
    """

    def __init__(self, java: str, class_path: Sequence[str], cache: Path) -> None:
        h = hashlib.sha256(_release(java))
        for file in _files(class_path):
            there = file.stat()
            h.update(f"\0{file}\0{there.st_size}\0{there.st_mtime_ns}".encode())
        self.path = cache / f"{_PREFIX}{h.hexdigest()[:20]}.jsa"

    @property
    def made(self) -> bool:
        return self.path.exists()

    def flags(self) -> list[str]:
        """Java's flags that use it; none while there is none."""
        if not self.made or not self.path.stat().st_size:
            return []
        with contextlib.suppress(OSError):  # a cache of another user's
            os.utime(self.path)
        return [f"-XX:SharedArchiveFile={self.path}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]

    def take(self, aside: Path) -> None:
        """Move a new one into place, or remember that there will be none; remove what has not been used for long."""
        if not aside.exists():
            aside.touch()
        os.replace(aside, self.path)
        old = sorted(self.path.parent.glob(_PREFIX + "*.jsa"), key=lambda p: p.stat().st_mtime)
        for path in old[:-KEPT]:
            path.unlink(missing_ok=True)


def begin_trial() -> None:
    """Make this worker's archive beside its work, with the time that nobody else wants. It ends with this thread."""
    head = [sys.executable, "-I", "-S", str(LAUNCH), str(os.getpid()), "9", "-1", "-1", "-1", "--"]
    program = [sys.executable, "-m", "pgstream.spark.trial"]
    subprocess.Popen([*head, *program], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def _files(class_path: Sequence[str]) -> list[Path]:
    out: list[Path] = []
    for entry in class_path:
        out += sorted(Path(entry[:-1]).glob("*.jar")) if entry.endswith("/*") else [Path(entry)]
    return out


def _release(java: str) -> bytes:
    """What says which Java it is."""
    home = Path(java).resolve().parent.parent
    try:
        return str(home).encode() + (home / "release").read_bytes()
    except OSError:
        return str(home).encode()
