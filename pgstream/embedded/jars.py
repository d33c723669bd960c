"""Jars by exact coordinates and SHA-256: Spark's connectors, and the Kafka broker.

Owns: the lock file ``jars.lock``, the cache folder, the download by Ivy (which PySpark ships), the check before use.
Must not know: what is done with the jars. Start reading at ``fetch``.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import tempfile
import tomllib
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from pgstream.config import Config
from pgstream.embedded.java import find_java
from pgstream.errors import ConfigurationError

LOCK = Path(__file__).with_name("jars.lock")
_AT_ONCE = 4
_WAYS_OUT = (
    "Set PGSTREAM_JARS_MIRROR to a Maven repository that can be reached from here, "
    "or copy the jars into a folder and set PGSTREAM_JARS_DIR."
)


@dataclass(frozen=True, slots=True)
class Jar:
    """One line of the lock file."""

    group: str
    artifact: str
    version: str
    sha256: str

    @classmethod
    def parse(cls, coordinates: str, sha256: str) -> Jar:
        group, artifact, version = coordinates.split(":")
        return cls(group, artifact, version, sha256)

    @property
    def coordinates(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def file(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


def _silent(_line: str) -> None:
    pass


def fetch(config: Config, report: Callable[[str], None] = _silent) -> list[Path]:
    """The connectors for Spark's class path, downloaded if need be. Blocks. Errors: ConfigurationError."""
    return _fetch("connectors", config, report)


def broker_jars(config: Config, report: Callable[[str], None] = _silent) -> list[Path]:
    """The class path of the Kafka broker, downloaded if need be. Blocks. Errors: ConfigurationError."""
    return _fetch("broker", config, report)


def locked(part: str) -> list[Jar]:
    """The jars of one part of the lock file."""
    table: Mapping[str, str] = tomllib.loads(LOCK.read_text())[part]
    return [Jar.parse(coordinates, digest) for coordinates, digest in table.items()]


def missing(part: str, config: Config) -> list[Jar]:
    """The jars of a part that are not where ``fetch`` would take them from without a download."""
    return [jar for jar in locked(part) if not (_folder(config) / jar.file).exists()]


def _folder(config: Config) -> Path:
    return config.jars_dir or config.cache / "jars"


def _fetch(part: str, config: Config, report: Callable[[str], None]) -> list[Path]:
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
    with tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as name:
        chunks = [wanted[n::_AT_ONCE] for n in range(_AT_ONCE) if wanted[n::_AT_ONCE]]
        works = [Path(name) / str(n) for n in range(len(chunks))]
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            told = list(threads.map(lambda work, chunk: _run_ivy(java, work, chunk, config, report), works, chunks))
        for work, chunk, words in zip(works, chunks, told, strict=True):
            for jar in chunk:
                _move_in(jar, work / jar.file, folder, source, words)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise ConfigurationError(
            what=f'could not make the jar cache "{folder}": {e.strerror}',
            hint="Choose a writable folder with --cache-dir.",
        ) from None


def _move_in(jar: Jar, file: Path, folder: Path, source: str, words: str) -> None:
    if not file.exists():
        raise ConfigurationError(
            what=f"could not download {jar.coordinates} from {source}", detail=words or None, hint=_WAYS_OUT
        )
    if (digest := _digest(file)) != jar.sha256:
        raise ConfigurationError(
            what=f"{jar.coordinates} from {source} has the wrong checksum",
            detail=f"Its SHA-256 is {digest}, and the lock file says {jar.sha256}. It was not kept.",
            hint=_WAYS_OUT,
        )
    file.replace(folder / jar.file)


def _run_ivy(java: Path, work: Path, jars: Sequence[Jar], config: Config, report: Callable[[str], None]) -> str:
    """Download some jars into ``work``; the complaints of Ivy."""
    work.mkdir()
    root = f" root={quoteattr(config.jars_mirror.rstrip('/') + '/')}" if config.jars_mirror else ""
    (work / "settings.xml").write_text(
        f'<ivysettings><settings defaultResolver="it"/><caches defaultCacheDir={quoteattr(str(work / "ivy"))}/>'
        f'<resolvers><ibiblio name="it" m2compatible="true" usepoms="false" useMavenMetadata="false"{root}/>'
        "</resolvers></ivysettings>"
    )
    (work / "ivy.xml").write_text(
        '<ivy-module version="2.0"><info organisation="pgstream" module="jars"/>'
        '<configurations><conf name="default"/></configurations><dependencies>'
        + "".join(
            f"<dependency org={quoteattr(jar.group)} name={quoteattr(jar.artifact)} rev={quoteattr(jar.version)}"
            ' transitive="false" conf="default->*"/>'
            for jar in jars
        )
        + "</dependencies></ivy-module>"
    )
    argv = [java, "-XX:TieredStopAtLevel=1", *_proxies(), "-cp", _ivy(), "org.apache.ivy.Main"]
    argv += ["-settings", work / "settings.xml", "-ivy", work / "ivy.xml", "-confs", "default"]
    argv += ["-retrieve", f"{work}/[artifact]-[revision].[ext]"]
    complaints = []
    with subprocess.Popen(
        list(map(str, argv)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout or ():
            if "[SUCCESSFUL ]" in line:
                report("downloaded " + line.split("]", 1)[1].split("!")[0].strip().replace("#", ":").replace(";", ":"))
            elif any(word in line for word in ("Server access", "not found", "Exception", "FAILED")):
                complaints.append(line.strip())
    # "Server access error" says why; the others only that.
    return "\n".join(sorted(complaints, key=lambda line: "Server access" not in line)[:3])


def _ivy() -> Path:
    spec = importlib.util.find_spec("pyspark")
    found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec and spec.origin else []
    if not found:
        raise ConfigurationError(
            what="the package pyspark is not installed", hint='Install it with pip install "pgstream".'
        )
    return found[-1]


def _proxies() -> list[str]:
    """Java reads no ``https_proxy``: say it in its own words."""
    flags = []
    for scheme, url in urllib.request.getproxies().items():
        there = urlsplit(url if "://" in url else f"//{url}")
        if scheme in ("http", "https") and there.hostname:
            flags += [f"-D{scheme}.proxyHost={there.hostname}", f"-D{scheme}.proxyPort={there.port or 8080}"]
    return flags


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
