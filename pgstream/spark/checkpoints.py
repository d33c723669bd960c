"""Checkpoints on disk: what a power cut may leave is put right before a query starts.

Owns: finding an empty, zeroed or cut newest file in the logs and in the state's changes, and putting its copy in its
place; sweeping what a killed worker left half-written. Must not know: what the files mean to Spark. Files that our file
manager wrote are never so; those on a disk that lied about a sync may be. Where there is no copy (CheckpointFiles.scala
says of what) the file goes: Spark repeats that batch, and the sinks know which batches they have.
Start reading at ``repair``.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import structlog

log = structlog.get_logger(__name__)

_NUMBERED = re.compile(r"(\d+)(?:_[\w-]+)?(\.(?:changelog|zip|delta|snapshot))?\Z")
_COPY = re.compile(r"\.(.+)\.copy\Z")
_ASIDE = re.compile(r"\..+\.tmp(?:\.copy)?\Z")


def local(checkpoint: str) -> Path | None:
    """The folder of a checkpoint on this machine's file system, None for any other."""
    parts = urlsplit(checkpoint)
    if parts.scheme in ("", "file"):
        return Path(unquote(parts.path) if parts.scheme else checkpoint)
    return None


def repair(checkpoint: str) -> list[Path]:
    """Restore newest files that have lost what they held, or else remove them; those that were touched."""
    root = local(checkpoint)
    if root is None or not root.exists():
        return []
    touched: list[Path] = []
    for name, _, names in os.walk(root):
        folder = Path(name)
        files = [folder / n for n in names]
        touched += _restored(files) + _removed(files)
        _sweep(folder)
    for file in touched:
        log.warning("damaged checkpoint file repaired", file=str(file.relative_to(root)), restored=file.exists())
    return touched


def _restored(files: list[Path]) -> list[Path]:
    """Files that are the beginning of their copy, and then nothing or zeros."""
    out = []
    for copy in files:
        match = None if _ASIDE.match(copy.name) else _COPY.match(copy.name)
        if match is None or not (file := copy.with_name(match[1])).exists():
            continue
        whole, found = copy.read_bytes(), file.read_bytes().rstrip(b"\0")
        if len(found) < len(whole.rstrip(b"\0")) and whole.startswith(found):
            aside = file.with_name(f".{file.name}.restored.tmp")
            with aside.open("wb") as out_file:
                out_file.write(whole)
                out_file.flush()
                os.fsync(out_file.fileno())
            aside.replace(file)
            out.append(file)
    return out


def _removed(files: list[Path]) -> list[Path]:
    """The newest of each kind, if it holds nothing."""
    newest: dict[str | None, tuple[int, Path]] = {}
    for file in files:
        if match := _NUMBERED.match(file.name):
            newest[match[2]] = max(newest.get(match[2], (-1, file)), (int(match[1]), file))
    blank = [file for _, file in newest.values() if file.exists() and _is_blank(file)]
    for file in blank:
        file.unlink()
    return blank


def _sweep(folder: Path) -> None:
    """Half-written files of dead workers, and copies that newer ones have followed."""
    for file in folder.iterdir():
        match = _COPY.match(file.name)
        stale = match is not None and not file.with_name(match[1]).exists()
        if _ASIDE.match(file.name) or stale:
            file.unlink(missing_ok=True)


def _is_blank(file: Path) -> bool:
    with file.open("rb") as f:
        return not f.read(64).strip(b"\0")
