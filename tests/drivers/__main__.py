"""``python -m tests.drivers [suite …] [--only test …]``: each suite directly and through pgstream; a row for each.

Ends with 1 when a test passes directly and not through pgstream, unless the suite says why that is so. The rows are
those of the table in docs/clients.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.clients.both import TARGETS, work_in_a_role
from tests.drivers.outcomes import Comparison, Outcomes
from tests.drivers.place import Place, new_databases
from tests.drivers.suite import Suite
from tests.drivers.suites import SUITES
from tests.server import Server

LOST, SHOWN = 100, 10


def compare(suite: Suite, server: Server, only: list[str]) -> Comparison:
    suite.prepare()
    runs: list[Outcomes] = []
    for target in TARGETS:
        place = Place.of(server, target, f"{suite.name}_{target}".replace("-", "_").lower())
        new_databases(server, place, suite.schemas)
        runs.append(suite.outcomes(place, suite.folder / f"{target}.log", only))
    return Comparison(str(suite), *runs)


def report(suite: Suite, found: Comparison) -> bool:
    """Print what differs; whether a difference has no explanation."""
    print(found.row)
    explained = {n: why for n in found.lost for part, why in suite.expected.items() if part in n}
    for name in found.lost[:LOST]:
        print(f"  passes directly only: {name}", *[f"({explained[name]})" for _ in explained.keys() & {name}])
    if len(found.lost) > LOST:
        print(f"  … and {len(found.lost) - LOST} more")
    for name in found.won[:SHOWN]:
        print(f"  passes through pgstream only: {name}")
    if len(found.won) > SHOWN:
        print(f"  … and {len(found.won) - SHOWN} more")
    sys.stdout.flush()
    return any(n not in explained for n in found.lost)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.drivers", description=__doc__)
    parser.add_argument("suites", nargs="*", help="names: " + " ".join(s.name for s in SUITES))
    parser.add_argument("--only", action="append", default=[], help="what of it, in the words of its runner")
    options = parser.parse_args()
    wanted = [s for s in SUITES if not options.suites or s.name in options.suites]
    with tempfile.TemporaryDirectory(prefix="pgs") as folder:
        server = Server(Path(folder) / "server", log_level="info")
        work_in_a_role(server.data_dir)
        try:
            lost = [report(suite, compare(suite, server, options.only)) for suite in wanted]
            return int(any(lost))
        finally:
            server.stop()


if __name__ == "__main__":
    sys.exit(main())
