"""``pgbench`` through pgstream, through PgBouncer (session mode), and directly.

Point reads (``-S``) in the prepared, extended and simple protocol at 1, 8 and 64 clients, the mix of TPC-B at 8, and
the latency that a hop adds to a prepared point read of one client (p50, microseconds).

Run ``python -m benchmarks.pgbench [ROUNDS] [SECONDS] [CASE…]``, a case being e.g. ``prepared-8`` or ``tpcb-8``. All
take turns in every round; a ratio is the median of the rounds', so that a neighbour's load falls on both sides. The
processor time that each hop takes for a transaction is told too: a neighbour's load changes that less.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.peers import DATABASE, PASSWORD, USER, peers, postgres_binary, used

CASES = [f"{mode}-{clients}" for mode in ("prepared", "extended", "simple") for clients in (1, 8, 64)] + ["tpcb-8"]
SCALE = "10"


def pgbench(port: int, *options: str, folder: Path | None = None) -> str:
    """What pgbench prints; it works in ``folder``."""
    command = [postgres_binary("pgbench"), "-h", "127.0.0.1", "-p", str(port), "-U", USER, *options, DATABASE]
    env = os.environ | {"PGPASSWORD": PASSWORD}
    done = subprocess.run(command, env=env, capture_output=True, text=True, cwd=folder)
    if done.returncode:
        raise SystemExit(f"pgbench failed: {done.stderr}")
    return done.stdout


def rate(port: int, case: str, seconds: int) -> tuple[float, int]:
    """Transactions per second, the logins left out, and how many there were."""
    mode, clients = case.split("-")
    options = ["-M", "simple"] if mode == "tpcb" else ["-S", "-M", mode]
    # pgbench counts the time of the logins, of which 64 take two seconds of hashing.
    seconds += int(clients) // 8
    out = pgbench(port, *options, "-n", "-c", clients, "-T", str(seconds))
    found, count = re.search(r"tps = ([\d.]+)", out), re.search(r"actually processed: (\d+)", out)
    if found is None or count is None:
        raise SystemExit(f"pgbench says no rate: {out}")
    return float(found[1]), int(count[1])


def latency(port: int, seconds: int) -> float:
    """The median time of a prepared point read of one client, microseconds."""
    with tempfile.TemporaryDirectory() as folder:
        pgbench(port, "-S", "-M", "prepared", "-n", "-c", "1", "-T", str(seconds), "-l", folder=Path(folder))
        lines = [line for path in Path(folder).iterdir() for line in path.read_text().splitlines()]
    return statistics.median(int(line.split()[2]) for line in lines)


def main(rounds: int, seconds: int, cases: list[str]) -> None:
    with peers() as ports:
        pgbench(ports["direct"], "-i", "-q", "-s", SCALE)
        for case in cases:
            found: dict[str, list[float]] = {name: [] for name in ports}
            spent: dict[str, list[float]] = {name: [] for name in ports if name != "direct"}
            for turn in range(rounds):
                # In turn first: who comes after the other's burst is not always the same one.
                for name in list(ports)[:: 1 if turn % 2 else -1]:
                    before = used(name) if name in spent else 0.0
                    tps, count = rate(ports[name], case, seconds)
                    found[name].append(tps)
                    if name in spent:
                        spent[name].append((used(name) - before) / count * 1e6)
            report(case, found, "tps")
            line = " ".join(f"{name} {statistics.median(values):.1f}" for name, values in spent.items())
            print(f"{'':12} {line} us of processor time for each", flush=True)
        added: dict[str, list[float]] = {name: [] for name in ports}
        for _ in range(rounds):
            for name, port in ports.items():
                added[name].append(latency(port, seconds))
    for name, values in added.items():
        print(f"{'latency':12} {name:10} p50 {statistics.median(values):5.0f} us", flush=True)


def report(case: str, found: dict[str, list[float]], unit: str) -> None:
    """A line per case: the medians, and pgstream's ratio to the others."""
    line = " ".join(f"{name} {statistics.median(values):.0f}" for name, values in found.items())
    ratios = {
        name: statistics.median(a / b for a, b in zip(found["pgstream"], found[name], strict=True))
        for name in ("pgbouncer", "direct")
        if name in found
    }
    print(f"{case:12} {line} {unit}; of " + ", ".join(f"{n} {r:.2f}" for n, r in ratios.items()), flush=True)


if __name__ == "__main__":
    numbers = [int(a) for a in sys.argv[1:] if a.isdigit()]
    wanted = [a for a in sys.argv[1:] if not a.isdigit()]
    main(*(numbers + [5, 3][len(numbers) :]), wanted or CASES)
