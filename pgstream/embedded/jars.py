"""Jars by exact coordinates and SHA-256: Spark's connectors, and the Kafka broker.

Owns: the lock file ``jars.lock``, the cache folder, the check before use.
Must not know: how a jar is downloaded (``maven``), what is done with it. Start reading at ``fetch``.
"""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pgstream.config import Config
from pgstream.embedded import aside
from pgstream.embedded.java import find_java
from pgstream.embedded.maven import Jar, Outcome, download
from pgstream.errors import ConfigurationError

LOCK = Path(__file__).with_name("jars.lock")
_WAYS_OUT = (
    "Set PGSTREAM_JARS_MIRROR to a Maven repository that can be reached from here, "
    "or copy the jars into a folder and set PGSTREAM_JARS_DIR."
)


def _silent(_line: str) -> None:
    pass


def fetch(config: Config, report: Callable[[str], None] = _silent) -> list[Path]:
    """The connectors for Spark's class path, downloaded if need be. Blocks. Errors: ConfigurationError."""
    return fetch_part("connectors", config, report)


def broker_jars(config: Config, report: Callable[[str], None] = _silent) -> list[Path]:
    """The class path of the Kafka broker, downloaded if need be. Blocks. Errors: ConfigurationError."""
    return fetch_part("broker", config, report)


def path(part: str, config: Config) -> Path:
    """Where the only jar of a part is, or will be once it is fetched."""
    (jar,) = locked(part)
    return _folder(config).absolute() / jar.file


def locked(part: str) -> list[Jar]:
    """The jars of one part of the lock file."""
    table: Mapping[str, str] = tomllib.loads(LOCK.read_text())[part]
    return [Jar.parse(coordinates, digest) for coordinates, digest in table.items()]


def missing(part: str, config: Config) -> list[Jar]:
    """The jars of a part that are not where ``fetch`` would take them from without a download."""
    return [jar for jar in locked(part) if not (_folder(config) / jar.file).exists()]


def _folder(config: Config) -> Path:
    return config.jars_dir or config.cache / "jars"


def fetch_part(part: str, config: Config, report: Callable[[str], None] = _silent) -> list[Path]:
    """The files of one part of the lock file, downloaded if need be. Blocks. Errors: ConfigurationError."""
    folder, jars = _folder(config), locked(part)
    seen = _Seen(config.cache / "jars" / "checked.json")
    wanted = [jar for jar in jars if not seen.holds(folder / jar.file, jar.sha256)]
    if wanted and config.jars_dir is not None:
        _refuse(wanted[0], folder)
    if wanted:
        _download(wanted, folder, config, report)
        for jar in wanted:
            seen.note(folder / jar.file, jar.sha256)
    seen.save()
    return [folder / jar.file for jar in jars]


def _refuse(jar: Jar, folder: Path) -> None:
    file = folder / jar.file
    raise ConfigurationError(
        what=f'"{file}" has the wrong checksum' if file.exists() else f'"{jar.file}" is missing in "{folder}"',
        detail=f"The jar {jar.coordinates} has SHA-256 {jar.sha256}.",
        hint="Copy it there again, or unset PGSTREAM_JARS_DIR to have it downloaded.",
    )


def _download(wanted: Sequence[Jar], folder: Path, config: Config, report: Callable[[str], None]) -> None:
    """Download into a folder beside the cache, check, and only then move into place."""
    source = config.jars_mirror or "Maven Central"
    java = find_java(config)
    _make_folder(folder)
    report(f"downloading {len(wanted)} jars from {source}")
    with aside.folder(folder, ".download-") as work:
        for outcome in download(java, wanted, work, config.jars_mirror, report):
            _move_in(outcome, folder, source)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise ConfigurationError(
            what=f'could not make the jar cache "{folder}": {e.strerror}',
            hint="Choose a writable folder with --cache-dir.",
        ) from None


def _move_in(outcome: Outcome, folder: Path, source: str) -> None:
    jar = outcome.jar
    if not outcome.file.exists():
        raise ConfigurationError(
            what=f"could not download {jar.coordinates} from {source}", detail=outcome.complaint or None, hint=_WAYS_OUT
        )
    if (digest := _digest(outcome.file)) != jar.sha256:
        raise ConfigurationError(
            what=f"{jar.coordinates} from {source} has the wrong checksum",
            detail=f"Its SHA-256 is {digest}, and the lock file says {jar.sha256}. It was not kept.",
            hint=_WAYS_OUT,
        )
    outcome.file.replace(folder / jar.file)


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


class _Seen:
    """Which files were already checked, by size and time: a warm start does not hash 100 MB again."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: dict[str, list[object]] = {}
        self._changed = False
        try:
            self._known = json.loads(file.read_text())
        except (OSError, ValueError):
            # Only a short cut: without it every file is hashed.
            pass

    def holds(self, file: Path, digest: str) -> bool:
        """Whether the file is there with this digest."""
        if not file.exists():
            return False
        return self._known.get(str(file.absolute())) == self._mark(file, digest) or (
            _digest(file) == digest and self.note(file, digest)
        )

    def note(self, file: Path, digest: str) -> bool:
        self._known[str(file.absolute())] = self._mark(file, digest)
        self._changed = True
        return True

    def save(self) -> None:
        if not self._changed:
            return
        _make_folder(self._file.parent)
        temporary = self._file.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(self._known))
        temporary.replace(self._file)

    @staticmethod
    def _mark(file: Path, digest: str) -> list[object]:
        there = file.stat()
        return [there.st_size, there.st_mtime_ns, digest]
