"""Suites in C, C++, Perl and PHP, from Debian's sources: built with the machine's own compiler and interpreters.

Owns: how each is built and what its runner prints. Must not know: which versions. Start reading at ``DebianSource``.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pgstream.embedded.cluster import binaries
from tests.drivers.debian import unpack_debian
from tests.drivers.outcomes import Outcomes, of_junit, of_pqxx, of_tap
from tests.drivers.place import Place
from tests.drivers.suite import Suite, must, run


@dataclass(frozen=True)
class DebianSource(Suite):
    """A suite whose sources Debian has. ``package`` is their name there, ``revision`` the rest of the version."""

    package: str = ""
    revision: str = "-1"
    tools: Sequence[str] = ()

    @property
    def source(self) -> Path:
        return self.folder / "source"

    def prepare(self) -> None:
        if missing := [tool for tool in self.tools if shutil.which(tool) is None]:
            raise SystemExit(f"{self.name}: {', '.join(missing)} is not here")
        built = self.folder / "built"
        if not built.exists():
            unpack_debian(self.package, f"{self.version}{self.revision}", self.source)
            self.build()
            built.touch()

    def build(self) -> None:
        """Whatever comes between the sources and a first run."""


class DbdPg(DebianSource):
    """DBD::Pg's tests: TAP, one file after another, since all share a schema."""

    def build(self) -> None:
        # libpq is that of the machine, as its headers are.
        must(["perl", "Makefile.PL"], self.source, self.folder / "configure.log")
        must(["make"], self.source, self.folder / "make.log")

    def outcomes(self, place: Place, log: Path, only: Sequence[str]) -> Outcomes:
        (self.source / "README.testdatabase").unlink(missing_ok=True)
        dsn = f"dbi:Pg:host={place.host};port={place.port};dbname={place.database}"
        env = place.env | {"DBI_DSN": dsn, "DBI_USER": place.user, "DBI_PASS": place.password}
        files = sorted(f"t/{f.name}" for f in (self.source / "t").glob("*.t"))
        run(["prove", "--blib", "--verbose", "--merge", *(only or files)], self.source, log, env)
        return of_tap(log.read_text(errors="replace"))


class PhpTests(DebianSource):
    """The tests of PHP's two drivers, by PHP's own runner."""

    def outcomes(self, place: Place, log: Path, only: Sequence[str]) -> Outcomes:
        junit = self.folder / "junit.xml"
        junit.unlink(missing_ok=True)
        address = f"host={place.host} port={place.port} dbname={place.database}"
        login = f"user={place.user} password={place.password}"
        env = {"PGSQL_TEST_CONNSTR": f"{address} {login}", "PDO_PGSQL_TEST_DSN": f"pgsql:{address} {login}",
               "TEST_PHP_JUNIT": str(junit), "NO_INTERACTION": "1"}  # fmt: skip
        php = shutil.which("php") or "php"
        folders = only or ["ext/pgsql/tests", "ext/pdo_pgsql/tests"]
        run([php, "run-tests.php", "-q", "-p", php, "--no-color", *folders], self.source, log, env)
        return of_junit([junit])


class LibpqPipeline(DebianSource):
    """PostgreSQL's tests of libpq's pipeline mode, over the newest libpq that comes with the embedded PostgreSQL."""

    @property
    def program(self) -> Path:
        return self.folder / "libpq_pipeline"

    def build(self) -> None:
        installed = binaries().parent.with_name("pginstall18")
        module = self.folder / "libpq_pipeline.c"
        # A user may not set the language of messages, which the program does for their sake.
        text = (self.source / "src/test/modules/libpq_pipeline/libpq_pipeline.c").read_text()
        module.write_text(text.replace("SET lc_messages TO", "SET application_name TO"))
        parts = ("", "postgresql/internal", "postgresql/server")
        include = [f"-I{installed / 'include' / part}" for part in parts]
        library = installed / "lib"
        libraries = [f"-L{library}", f"-Wl,-rpath,{library}", "-lpq", "-lpgcommon", "-lpgport"]
        # A word of PostgreSQL 17 that the headers of 18 do not know.
        compile_ = ["cc", "-O1", "-no-pie", "-Dpg_attribute_noreturn()=", *include, module, "-o", self.program]
        must([*compile_, *libraries, "-lm"], self.folder, self.folder / "make.log")

    def outcomes(self, place: Place, log: Path, only: Sequence[str]) -> Outcomes:
        listed = self.folder / "tests.txt"
        must([self.program, "tests"], self.folder, listed)
        address = " ".join(f"{k}={v}" for k, v in (("host", place.host), ("port", place.port), ("user", place.user),
                           ("password", place.password), ("dbname", place.database)))  # fmt: skip
        failed = {
            test: run([self.program, "-r", "700", test, address], self.folder, log.with_suffix(f".{test}.log"))
            for test in only or listed.read_text().split()
        }
        return {test: "failed" if code else "passed" for test, code in failed.items()}


class Libpqxx(DebianSource):
    """libpqxx's tests: one program, over the machine's libpq."""

    @property
    def built(self) -> Path:
        return self.folder / "build"

    def build(self) -> None:
        must(
            ["cmake", "-S", self.source, "-B", self.built, "-DCMAKE_CXX_FLAGS=-O0"],
            self.folder,
            self.folder / "cmake.log",
        )
        must(["cmake", "--build", self.built, "--parallel", "2"], self.folder, self.folder / "make.log")

    def outcomes(self, place: Place, log: Path, only: Sequence[str]) -> Outcomes:
        run([self.built / "test" / "runner", *only], self.built, log, place.env)
        return of_pqxx(log.read_text(errors="replace"))
