"""Client programs of other languages, run against pgstream and against the PostgreSQL behind it, with the same output.

A language is a folder here: its program, and ``expected.txt``, what it prints against PostgreSQL. Against pgstream it
prints more, after a line ``== pgstream``: ``expected.pgstream.txt``. ``pytest --bless`` rewrites both. The program
finds its server in libpq's environment variables (PGHOST, PGPORT, …), and in TARGET which of the two it is.

A toolchain or package that is missing is a skip that says what to install. Start reading at ``Language``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from pgstream import config
from pgstream.embedded.cluster import SUPERUSER
from tests.datadriven import same_file
from tests.server import PASSWORD, Server

HERE = Path(__file__).parent
CACHE = config.load({}).cache / "clients"
TARGETS = ("postgresql", "pgstream")
MORE = "== pgstream\n"
Command = Sequence[str]


def address(server: Server, target: str) -> dict[str, str]:
    """libpq's environment variables of a target; both lead to the same database as the same user."""
    port = server.port if target == "pgstream" else backend_port(server)
    return {"PGHOST": "127.0.0.1", "PGPORT": str(port), "PGUSER": "admin", "PGPASSWORD": PASSWORD, "PGDATABASE": "main"}


def backend_port(server: Server) -> int:
    """The port of the embedded PostgreSQL, from its own pid file."""
    return int((server.data_dir / "postgres" / "postmaster.pid").read_text().splitlines()[3])


def work_in_a_role(data_dir: Path) -> None:
    """Without the front door a session of the first user begins in the role that it begins in behind it."""
    pid_file = (data_dir / "postgres" / "postmaster.pid").read_text().splitlines()
    password = (data_dir / "postgres.password").read_text().strip()
    with psycopg.connect(host="127.0.0.1", port=pid_file[3], user=SUPERUSER, password=password, dbname="postgres") as c:
        c.execute("ALTER ROLE admin SET role = 'sysadmin'")


@dataclass(frozen=True)
class Language:
    """How a program is made ready and run. In commands ``{here}`` is its folder, ``{cache}`` a folder that is kept."""

    name: str
    run: Command
    tools: Mapping[str, str] = field(default_factory=dict)
    """Executables and the package that brings each."""
    probe: tuple[Command, str] | None = None
    """A command that succeeds when the libraries are there, and what to install."""
    fetch: Command | None = None
    """Gets packages from a registry: its failure is a skip."""
    build: Command | None = None
    """Its failure is a failure."""
    env: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    @property
    def here(self) -> Path:
        return HERE / self.name

    def _exec(self, command: Command, seconds: int, **env: str) -> subprocess.CompletedProcess[str]:
        cache = CACHE / self.name
        cache.mkdir(parents=True, exist_ok=True)

        def filled(text: str) -> str:
            return text.replace("{here}", str(self.here)).replace("{cache}", str(cache))

        environment = {k: v for k, v in os.environ.items() if not k.startswith("PG")} | {
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
        }
        environment |= {k: filled(v) for k, v in self.env.items()} | env
        arguments = [filled(a) for a in command]
        return subprocess.run(
            arguments, env=environment, cwd=self.here, capture_output=True, text=True, timeout=seconds, check=False
        )

    def prepare(self) -> None:
        """Skip when something to be installed is missing; build what needs building."""
        for tool, package in self.tools.items():
            if shutil.which(tool) is None:
                pytest.skip(f"{tool} is not here: install {package}")
        if self.probe is not None and self._exec(self.probe[0], 60).returncode:
            pytest.skip(f"a library is not here: install {self.probe[1]}")
        if self.fetch is not None and (done := self._exec(self.fetch, 300)).returncode:
            pytest.skip(f"packages could not be fetched: {done.stderr.strip()[-300:]}")
        if self.build is not None:
            done = self._exec(self.build, 600)
            assert done.returncode == 0, done.stderr[-3000:]

    def output(self, server: Server, target: str) -> str:
        """What the program prints against a target; it must end well."""
        done = self._exec(self.run, 120, TARGET=target, **address(server, target))
        assert done.returncode == 0, f"{done.stdout[-1000:]}\n{done.stderr[-3000:]}"
        return done.stdout


def run_language(language: Language, server: Server, target: str) -> None:
    """Run a program against a target and compare what it prints with what is expected."""
    language.prepare()
    common, mark, more = language.output(server, target).partition(MORE)
    assert bool(mark) == (target == "pgstream")
    same_file(language.here / "expected.txt", common, bless=target == "postgresql")
    if mark:
        same_file(language.here / "expected.pgstream.txt", more)
