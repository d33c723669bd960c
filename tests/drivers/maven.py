"""pgjdbc's suite, fetched, compiled and run by Maven.

Owns: pgjdbc's words for an address. Must not know: which version. Start reading at ``Pgjdbc``.
"""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.drivers.outcomes import Outcomes, of_junit
from tests.drivers.place import Place
from tests.drivers.suite import Suite, must, run


@dataclass(frozen=True)
class Pgjdbc(Suite):
    """pgjdbc's tests, from the sources that it publishes for distributions; compiled and run by Maven."""

    @property
    def source(self) -> Path:
        return self.folder / f"postgresql-{self.version}-jdbc-src"

    def prepare(self) -> None:
        if self.source.exists():
            return
        if shutil.which("mvn") is None:
            raise SystemExit("mvn is not here: install Maven")
        self.folder.mkdir(parents=True, exist_ok=True)
        artifact = f"-Dartifact=org.postgresql:postgresql:{self.version}:tar.gz:jdbc-src"
        copy = ["org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy", artifact, "-DoutputDirectory=."]
        must(["mvn", "-q", "-B", *copy], self.folder, self.folder / "fetch.log")
        with tarfile.open(self.folder / f"{self.source.name}.tar.gz") as archive:
            archive.extractall(self.folder, filter="data")

    def outcomes(self, place: Place, log: Path, only: Sequence[str]) -> Outcomes:
        reports = self.source / "target" / "surefire-reports"
        shutil.rmtree(reports, ignore_errors=True)
        address = {"test.url.PGHOST": place.host, "test.url.PGPORT": place.port, "test.url.PGDBNAME": place.database}
        users = {f"{who}{what}": value for who, what, value in (
            ("", "user", place.user), ("", "password", place.password),
            ("privileged", "User", place.user), ("privileged", "Password", place.password))}  # fmt: skip
        lines = [f"{name}={value}\n" for name, value in (address | users).items()]
        (self.source / "build.local.properties").write_text("".join(lines))
        selected = [f"-Dtest={','.join(only)}"] if only else []
        run(["mvn", "-B", "test", "-Dmaven.test.failure.ignore", *selected], self.source, log)
        return of_junit(reports.glob("TEST-*.xml"))
