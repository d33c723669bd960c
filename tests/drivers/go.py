"""Suites in Go: the tests of a module, as the module proxy delivers it.

Owns: a writable copy of the module. Must not know: which modules. Start reading at ``GoModule``.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.drivers.outcomes import Outcomes, of_go
from tests.drivers.place import Place
from tests.drivers.suite import Edits, Env, Suite, edit, must, run


@dataclass(frozen=True)
class GoModule(Suite):
    """``go test`` in a module's own folder, as the module proxy delivers it."""

    module: str = ""
    env: Callable[[Place], Env] = lambda place: place.env
    packages: Sequence[str] = ("./...",)
    arguments: Callable[[Place], Sequence[str]] = lambda _place: ()
    """What the test programs themselves are told."""
    edits: Edits = field(default_factory=dict)

    @property
    def source(self) -> Path:
        return self.folder / self.version

    def prepare(self) -> None:
        if self.source.exists():
            return
        if shutil.which("go") is None:
            raise SystemExit("go is not here: install Go 1.24 or newer")
        self.folder.mkdir(parents=True, exist_ok=True)
        log = self.folder / "fetch.log"
        must(["go", "mod", "download", "-json", f"{self.module}@{self.version}"], self.folder, log)
        # The module cache is read-only, and go test wants to note down what it fetches.
        shutil.copytree(json.loads(log.read_text())["Dir"], self.source, copy_function=shutil.copyfile)
        run(["chmod", "-R", "u+w", self.source], self.folder, self.folder / "chmod.log")
        edit(self.source, self.edits)

    def outcomes(self, place: Place, log: Path, only: Sequence[str]) -> Outcomes:
        # One after another: they share a database, and some wait half a second only.
        flags = ["-mod=mod", "-count=1", "-p=1", "-parallel=1", "-json", "-timeout=20m"]
        run(
            ["go", "test", *flags, *only, *self.packages, *self.arguments(place)],
            self.source,
            log,
            self.env(place) | {"GOFLAGS": "", "GOTOOLCHAIN": "local"},
        )
        return of_go(log.read_text(errors="replace"))
