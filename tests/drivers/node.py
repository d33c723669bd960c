"""node-postgres' own tests: a program each for the driver, mocha for its pool and cursors.

Owns: what its packages need of npm. Must not know: which version. Start reading at ``NodePostgres``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tests.drivers.native import DebianSource
from tests.drivers.outcomes import Outcomes, of_junit
from tests.drivers.place import Place
from tests.drivers.suite import must, run

_PACKAGES = ("pg", "pg-pool", "pg-cursor")
_NEEDED = {
    "async": "2.6.4",
    "bluebird": "3.7.2",
    "co": "4.6.0",
    "expect.js": "0.3.1",
    "lodash": "4.17.21",
    "mocha": "10.8.2",
    "pg-connection-string": "2.9.1",
    "pg-copy-streams": "0.3.0",
    "pg-protocol": "1.10.3",
    "pg-types": "2.2.0",
    "pgpass": "1.0.5",
}
"""What the tests import, and the parts of the driver that are written in TypeScript: those as npm has them."""


class NodePostgres(DebianSource):
    """The repository of the driver, with its packages in one workspace."""

    def build(self) -> None:
        packages = [f"packages/{name}" for name in _PACKAGES]
        for one in packages:
            self._edit(self.source / one / "package.json", devDependencies={}, peerDependencies={}, scripts={})
        self._edit(self.source / "package.json", workspaces=packages, devDependencies=_NEEDED, scripts={})
        install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--legacy-peer-deps"]
        must(install, self.source, self.folder / "npm.log")

    @staticmethod
    def _edit(file: Path, **changes: object) -> None:
        file.write_text(json.dumps(json.loads(file.read_text()) | changes, indent=1))

    def outcomes(self, place: Place, log: Path, only: Sequence[str]) -> Outcomes:
        home = self.source / "packages" / "pg"
        env = place.env | {"PGTESTNOSSL": "true"}
        must(["node", "script/create-test-tables.js", place.url()], home, log, env)
        files = sorted(str(f.relative_to(home)) for f in (home / "test" / "integration").rglob("*-tests.js"))
        wanted = [f for f in files if not only or any(part in f for part in only)]
        logs = log.with_suffix("")
        logs.mkdir(exist_ok=True)
        out: dict[str, str] = {}
        for mode in ("", "binary"):
            for file in wanted:
                name = f"{file} {mode}".strip()
                one = logs / (name.replace("/", "-").replace(" ", "-") + ".log")
                code = run(["node", file, place.url(), *([mode] if mode else [])], home, one, env, seconds=120)
                out[name] = "failed" if code else "passed"
        if not only:
            for package in _PACKAGES[1:]:
                out |= self._mocha(package, logs, env)
        return out

    def _mocha(self, package: str, logs: Path, env: dict[str, str]) -> Outcomes:
        junit = logs / f"{package}.xml"
        reporter = ["--reporter", "xunit", "--reporter-options", f"output={junit}"]
        command = ["../../node_modules/.bin/mocha", *reporter, "--exit", "--timeout", "20000", "test/*.js"]
        run(command, self.source / "packages" / package, logs / f"{package}.log", env)
        return of_junit([junit])
