"""Suites in Python: the tests of a source distribution, run with pytest or Django's own runner.

Owns: one environment for all of them, made from ``requirements.txt``; fetching sources by pip.
Must not know: which suites there are. Start reading at ``Sdist``.
"""

from __future__ import annotations

import os
import shutil
import sys
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pgstream.embedded.cluster import binaries
from tests.drivers.outcomes import Outcomes, of_junit
from tests.drivers.place import Place
from tests.drivers.suite import CACHE, Env, Suite, must, run

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
PYTHON = CACHE / "python" / "bin" / "python"


@dataclass(frozen=True)
class Sdist(Suite):
    """pytest over the tests of a source distribution; the driver itself is installed from ``requirements.txt``."""

    tests: Sequence[str] = ("tests",)
    """Files and folders of the source that are needed."""
    selection: Sequence[str] = ("tests",)
    arguments: Callable[[Place], Sequence[str]] = lambda _place: ()
    env: Callable[[Place], Env] = lambda place: place.env
    package: str = ""
    """The sdist's name where it is not the suite's."""
    edits: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Files in which an address is written down, what is replaced there and by what."""

    @property
    def source(self) -> Path:
        return self.folder / "source"

    def prepare(self) -> None:
        python()
        if not self.source.exists():
            unpack_sdist(f"{self.package or self.name}=={self.version}", self.folder, self.source)

    def work(self) -> Path:
        """A copy of the tests away from the sources: what is imported is what is installed."""
        work = self.folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        for test in self.tests:
            one = self.source / test
            (shutil.copytree if one.is_dir() else shutil.copyfile)(one, work / test)
        for pattern, (old, new) in self.edits.items():
            for file in work.glob(pattern):
                file.write_text(file.read_text().replace(old, new))
        return work

    def outcomes(self, place: Place, log: Path, only: Sequence[str]) -> Outcomes:
        return pytest(self.work(), [*self.arguments(place), *(only or self.selection)], self.env(place), log)


def pytest(work: Path, arguments: Sequence[str], env: Env, log: Path) -> Outcomes:
    junit = work / "junit.xml"
    common = [
        "-q",
        "--timeout=600",
        "-p",
        "no:cacheprovider",
        "--tb=native",
        "--show-capture=no",
        f"--junitxml={junit}",
    ]
    run([PYTHON, "-m", "pytest", *common, *arguments], work, log, env)
    if not junit.exists():
        raise SystemExit(f"pytest wrote no result: {log.read_text()[-3000:]}")
    return of_junit([junit])


def python() -> None:
    """The environment of the Python suites, renewed when its list changes."""
    mark = PYTHON.parent.parent / "requirements.txt"
    if mark.exists() and mark.read_text() == REQUIREMENTS.read_text():
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    log = CACHE / "python.log"
    must([sys.executable, "-m", "venv", "--clear", PYTHON.parent.parent], CACHE, log)
    must([PYTHON, "-m", "pip", "install", "-q", "-r", REQUIREMENTS], CACHE, log)
    mark.write_text(REQUIREMENTS.read_text())


def unpack_sdist(requirement: str, folder: Path, source: Path) -> None:
    """Through pip, and so from whatever index pip is configured for. Some need pg_config to say their name."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path = {"PATH": f"{binaries()}{os.pathsep}{os.environ['PATH']}"}
    download = ["download", "-q", "--no-deps", "--no-binary", requirement.partition("==")[0], requirement]
    must([PYTHON, "-m", "pip", *download], folder, folder / "fetch.log", path)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    next(p for p in folder.iterdir() if p.is_dir()).rename(source)


@dataclass(frozen=True)
class Django(Sdist):
    """Django's own runner over some of its test apps, in two databases that exist already."""

    def outcomes(self, place: Place, log: Path, only: Sequence[str]) -> Outcomes:
        work = self.work() / "tests"
        (work / "of_pgstream.py").write_text(self._settings(place, work))
        flags = ["--settings=of_pgstream", "--keepdb", "--parallel=1", "--noinput"]
        run(
            [PYTHON, "runtests.py", *flags, *(only or self.selection)],
            work,
            log,
            self.env(place) | {"PYTHONPATH": str(work.parent)},
        )
        return of_junit((work / "junit").glob("*.xml"))

    @staticmethod
    def _settings(place: Place, work: Path) -> str:
        def one(name: str) -> dict[str, object]:
            return {"ENGINE": "django.db.backends.postgresql", "HOST": place.host, "PORT": place.port,
                    "USER": place.user, "PASSWORD": place.password, "NAME": name, "TEST": {"NAME": name}}  # fmt: skip

        settings = {
            "DATABASES": {"default": one(place.database), "other": one(place.other)},
            "SECRET_KEY": "none",
            "PASSWORD_HASHERS": ["django.contrib.auth.hashers.MD5PasswordHasher"],
            "DEFAULT_AUTO_FIELD": "django.db.models.AutoField",
            "USE_TZ": False,
            "TEST_RUNNER": "xmlrunner.extra.djangotestrunner.XMLTestRunner",
            "TEST_OUTPUT_DIR": str(work / "junit"),
        }
        return "".join(f"{name} = {value!r}\n" for name, value in settings.items())
