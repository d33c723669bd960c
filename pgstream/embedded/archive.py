"""Class archives: classes that a JVM would otherwise load, parse and verify one by one at every start.

Owns: where the archive of a class path lies, the flags that use it and that make it (Java's application class data
sharing), that old ones go. It is an acceleration and nothing else: where it is missing or does not fit, Java loads
classes as ever.
Must not know: which programs have one. Start reading at ``Archive``.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

KEPT = 6
"""Archives that stay in the cache: those used last. A worker's has some 150 MB, a broker's 50."""
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
_PREFIX, _ASIDE = "pgstream-classes-", ".aside"
_DAY_S = 86400


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
        return [f"-XX:SharedArchiveFile={self.path}", *_QUIET]

    @property
    def lock(self) -> Path:
        """A file to lock while one is being made, whichever it is."""
        return self.path.with_name(f"{_PREFIX}making.lock")

    def record(self) -> tuple[Path, list[str]]:
        """Where a program leaves a new one when it ends in peace, and Java's flags for that."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        aside = self.path.with_name(f"{self.path.stem}-{uuid.uuid4().hex}{_ASIDE}")
        return aside, [f"-XX:ArchiveClassesAtExit={aside}", *_QUIET]

    def take(self, aside: Path) -> None:
        """Move a new one into place, or remember that there will be none; remove what has not been used for long."""
        if not aside.exists():
            aside.touch()
        os.replace(aside, self.path)
        with contextlib.suppress(OSError):  # another process removes the same, or one is another user's
            self._sweep()

    def _sweep(self) -> None:
        old = sorted(self.path.parent.glob(f"{_PREFIX}*.jsa"), key=lambda p: p.stat().st_mtime)
        left = [p for p in self.path.parent.glob(f"{_PREFIX}*{_ASIDE}") if time.time() - p.stat().st_mtime > _DAY_S]
        for path in old[:-KEPT] + left:
            path.unlink(missing_ok=True)


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
