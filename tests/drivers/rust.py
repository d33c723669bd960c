"""Suites in Rust: the tests of a crate, as crates.io delivers it.

Owns: a writable copy of the crate. Must not know: which crates. Start reading at ``Crate``.
"""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.drivers.outcomes import Outcomes, of_cargo
from tests.drivers.place import Place
from tests.drivers.suite import CACHE, Edits, Suite, edit, must, run


@dataclass(frozen=True)
class Crate(Suite):
    """``cargo test`` in a crate's own folder. ``edits``: where an address is written down, what stands there instead.

    The address comes from the environment, so that both runs use one build: ``PGADDR``, and ``PGTEST`` for the rest.
    """

    flags: Sequence[str] = ()
    edits: Edits = field(default_factory=dict)

    @property
    def source(self) -> Path:
        return self.folder / f"{self.name}-{self.version}"

    def prepare(self) -> None:
        if self.source.exists():
            return
        if shutil.which("cargo") is None:
            raise SystemExit("cargo is not here: install Rust 1.85 or newer")
        shutil.rmtree(self.folder, ignore_errors=True)
        asks = self.folder / "asks"
        must(["mkdir", "-p", self.folder], CACHE, CACHE / "cargo.log")
        must(["cargo", "new", "-q", "--vcs", "none", "--name", "asks", asks], self.folder, self.folder / "new.log")
        must(["cargo", "add", "-q", f"{self.name}@={self.version}"], asks, self.folder / "add.log")
        must(["cargo", "fetch", "-q"], asks, self.folder / "fetch.log", {"CARGO_HOME": str(CACHE / "cargo")})
        found = next((CACHE / "cargo" / "registry" / "cache").glob(f"*/{self.name}-{self.version}.crate"))
        with tarfile.open(found) as archive:
            archive.extractall(self.folder, filter="data")
        edit(self.source, self.edits)

    def outcomes(self, place: Place, log: Path, only: Sequence[str]) -> Outcomes:
        login = f"user={place.user} password={place.password} dbname={place.database}"
        env = place.env | {"PGADDR": f"{place.host}:{place.port}", "PGTEST": login,
                           "CARGO_TARGET_DIR": str(CACHE / "cargo-target")}  # fmt: skip
        # One after another: they share a database.
        run(["cargo", "test", *self.flags, "--", "--test-threads=1", *only], self.source, log, env)
        return of_cargo(log.read_text(errors="replace"))
