"""Checkpoints on disk: what a power cut may leave is put right before a query starts.

Owns: finding an empty or zeroed newest file in the offset and commit logs and in the state's changelogs.
Must not know: what the files mean to Spark. Files that our file manager wrote are never so; those of a checkpoint that
was copied, or kept on a disk that lied about a sync, may be. Without the newest file Spark repeats that batch, and the
sinks know which batches they have.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import structlog

log = structlog.get_logger(__name__)

_NUMBERED = re.compile(r"(\d+)(?:_[\w-]+)?(?:\.(?:changelog|zip|delta|snapshot))?\Z")


def local(checkpoint: str) -> Path | None:
    """The folder of a checkpoint on this machine's file system, None for any other."""
    parts = urlsplit(checkpoint)
    if parts.scheme in ("", "file"):
        return Path(unquote(parts.path) if parts.scheme else checkpoint)
    return None


def repair(checkpoint: str) -> list[Path]:
    """Remove newest log files that hold nothing; what was removed."""
    root = local(checkpoint)
    if root is None or not root.exists():
        return []
    removed = []
    for folder in [root / "offsets", root / "commits", *root.glob("state/*/*"), *root.glob("state/*/*/*")]:
        newest = _newest(folder) if folder.is_dir() else None
        if newest is not None and _is_blank(newest):
            newest.unlink()
            log.warning("empty checkpoint file removed", file=str(newest.relative_to(root)))
            removed.append(newest)
    return removed


def _newest(folder: Path) -> Path | None:
    numbered = [(int(m[1]), f) for f in folder.iterdir() if f.is_file() and (m := _NUMBERED.match(f.name))]
    return max(numbered)[1] if numbered else None


def _is_blank(file: Path) -> bool:
    with file.open("rb") as f:
        return not f.read(64).strip(b"\0")
