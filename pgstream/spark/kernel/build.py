"""Compile the Scala operators into one jar, kept in the cache folder under the hash of all that went into it.

Owns: when to compile, and that two processes compiling at once do not break each other (each works aside; the last move
into place is atomic and both results are alike).
Must not know: Spark sessions. The Scala compiler is the one inside PySpark's own jars; a JDK is not needed.
Start reading at ``kernel_jar``.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from pgstream.embedded import aside
from pgstream.errors import EngineUnavailable

log = structlog.get_logger(__name__)

SOURCES = Path(__file__).parent
KEPT, KEPT_S = 4, 24 * 3600
"""Jars that stay in the cache in any case, and seconds after their last use for which others do."""


def sources() -> list[Path]:
    """The Scala files, in a fixed order."""
    return sorted(SOURCES.rglob("*.scala"))


def fingerprint(files: Sequence[Path], libraries: Sequence[Path], version: str) -> str:
    """Hash of the sources' content, the libraries' names and the version of Spark."""
    h = hashlib.sha256(version.encode())
    for name in sorted(p.name for p in libraries):
        h.update(b"\0" + name.encode())
    for file in files:
        h.update(b"\0" + file.name.encode() + b"\0" + file.read_bytes())
    return h.hexdigest()[:20]


def kernel_jar(
    java: str, spark_jars: Path, libraries: Sequence[Path], cache: Path, version: str, *, report: Callable[[str], None]
) -> Path:
    """The jar of the operators, compiled when the cache does not hold it: half a minute, or two where others are at
    work, too. ``report`` is told so.
    """
    files = sources()
    target = cache / f"pgstream-kernel-{fingerprint(files, libraries, version)}.jar"
    if target.exists():
        with contextlib.suppress(OSError):  # a cache of another user's
            _used(target).touch()
        return target
    cache.mkdir(parents=True, exist_ok=True)
    log.info("compiling operators", jar=target.name)
    report("its operators are being compiled, once for this version")
    with aside.folder(cache, ".kernel-") as work:
        classes = work / "classes"
        classes.mkdir()
        _compile(java, [str(spark_jars / "*"), *map(str, libraries)], files, classes)
        jar = work / "kernel.jar"
        _pack(classes, jar)
        os.replace(jar, target)
    with contextlib.suppress(OSError):  # another process removes the same, or a jar is another user's
        _sweep(cache)
    return target


def _used(jar: Path) -> Path:
    """A file as old as the jar's last use. The jar's own time stays: archives of its classes are bound to it."""
    return jar.with_suffix(".used")


def _sweep(cache: Path) -> None:
    """Remove jars of other versions that have not been used for long."""
    began = time.time()
    found = sorted((_last_use(p), p) for p in cache.glob("pgstream-kernel-*.jar"))
    for at, path in found[:-KEPT]:
        if began - at > KEPT_S:
            path.unlink(missing_ok=True)
            _used(path).unlink(missing_ok=True)


def _last_use(jar: Path) -> float:
    return max(p.stat().st_mtime for p in (jar, _used(jar)) if p.exists())


def _compile(java: str, class_path: Sequence[str], files: Sequence[Path], out: Path) -> None:
    command = [java, "-Xss8m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", os.pathsep.join(class_path),
               "scala.tools.nsc.Main", "-usejavacp", "-d", str(out), *map(str, files)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        log.error("operators do not compile", output=done.stdout[-4000:] + done.stderr[-4000:])
        raise EngineUnavailable(why="its operators could not be compiled")


def _pack(classes: Path, jar: Path) -> None:
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as z:
        for file in sorted(p for p in classes.rglob("*") if p.is_file()):
            # A fixed time: the same classes make the same bytes.
            z.writestr(zipfile.ZipInfo(str(file.relative_to(classes)), (1980, 1, 1, 0, 0, 0)), file.read_bytes())
