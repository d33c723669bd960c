"""Suites of Java's drivers, fetched and run by Maven: pgjdbc's sources, the tests that others publish as jars.

Owns: their words for an address. Must not know: which versions. Start reading at ``Pgjdbc``.
"""

from __future__ import annotations

import shutil
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pgstream.embedded.cluster import binaries
from tests.drivers.outcomes import Outcomes, of_junit
from tests.drivers.place import Place
from tests.drivers.suite import Suite, must, run

_DEPENDENCY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"


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
        copy = [f"{_DEPENDENCY}:copy", artifact, "-DoutputDirectory=."]
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


@dataclass(frozen=True)
class MavenProject(Suite):
    """A project of ours (``{name}/pom.xml``) that names a driver and the tests that are published for it.

    ``setup``: the artifact that holds a script of SQL for the database, and the script's name in it.
    """

    properties: Callable[[Place], Mapping[str, str]] = lambda _place: {}
    setup: tuple[str, str] | None = None

    def prepare(self) -> None:
        if shutil.which("mvn") is None:
            raise SystemExit("mvn is not here: install Maven")
        self.folder.mkdir(parents=True, exist_ok=True)
        shutil.copytree(Path(__file__).with_name(self.name), self.folder, dirs_exist_ok=True)
        if self.setup is not None:
            artifact, script = self.setup
            copy = [f"{_DEPENDENCY}:copy", f"-Dartifact={artifact}", "-DoutputDirectory=setup"]
            must(["mvn", "-q", "-B", *copy], self.folder, self.folder / "fetch.log")
            with zipfile.ZipFile(next((self.folder / "setup").glob("*.jar"))) as archive:
                (self.folder / "setup.sql").write_bytes(archive.read(script))

    def outcomes(self, place: Place, log: Path, only: Sequence[str]) -> Outcomes:
        reports = self.folder / "target" / "surefire-reports"
        shutil.rmtree(reports, ignore_errors=True)
        if self.setup is not None:  # what needs a superuser in it fails
            psql = [binaries() / "psql", "-X", "-q", "-f", "setup.sql"]
            run(psql, self.folder, log.with_suffix(".setup.log"), place.env)
        given = [f"-D{name}={value}" for name, value in self.properties(place).items()]
        selected = [f"-Dtest={','.join(only)}"] if only else []
        run(["mvn", "-B", "test", "-Dmaven.test.failure.ignore", *given, *selected], self.folder, log, place.env)
        return of_junit(reports.glob("TEST-*.xml"))
