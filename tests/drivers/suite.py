"""What a suite is, and how its commands are run.

Owns: the cache folder, the environment of commands. Must not know: kinds of suites (``python``, ``maven``, ``go``),
which suites there are (``suites``). Start reading at ``Suite``.
"""

from __future__ import annotations

import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pgstream import config
from tests.drivers.outcomes import Outcomes
from tests.drivers.place import Place

CACHE = config.load({}).cache / "drivers"
Env = Mapping[str, str]
Edits = Mapping[str, Sequence[tuple[str, str]]]
"""Files of a source in which an address or a login is written down: what is replaced there, and by what."""


def run(command: Sequence[str | Path], cwd: Path, log: Path, env: Env | None = None, seconds: int = 1800) -> int:
    """Run a command, its words into a file. The environment has nothing of libpq's but what ``env`` says."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PG")} | {"LC_ALL": "C.UTF-8", "TZ": "UTC"}
    with log.open("wb") as out:
        done = subprocess.run(
            [str(c) for c in command], cwd=cwd, env={**kept, **(env or {})}, stdin=subprocess.DEVNULL,
            stdout=out, stderr=subprocess.STDOUT, timeout=seconds, check=False,
        )  # fmt: skip
    return done.returncode


def must(command: Sequence[str | Path], cwd: Path, log: Path, env: Env | None = None) -> None:
    if code := run(command, cwd, log, env):
        raise SystemExit(f"{' '.join(map(str, command))}: exit {code}\n{log.read_text()[-3000:]}")


def edit(source: Path, edits: Edits) -> None:
    for file, changes in edits.items():
        text = (source / file).read_text()
        for old, new in changes:
            text = text.replace(old, new)
        (source / file).write_text(text)


@dataclass(frozen=True)
class Suite(ABC):
    """A driver's own tests. ``schemas`` are made in the database before each run."""

    name: str
    version: str
    schemas: tuple[str, ...] = field(default=(), kw_only=True)
    expected: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    """Tests that pass directly only, by a part of their name, and why that is so."""

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def folder(self) -> Path:
        return CACHE / self.name

    @abstractmethod
    def prepare(self) -> None:
        """Fetch what is not there yet."""

    @abstractmethod
    def outcomes(self, place: Place, log: Path, only: Sequence[str]) -> Outcomes:
        """Run all, or only what ``only`` selects in the runner's own words."""
