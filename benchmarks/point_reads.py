"""Prepared point reads through pgstream, through PgBouncer, and directly: ``pgbench -S -M prepared -c 8``.

Run ``python -m benchmarks.point_reads [ROUNDS] [SECONDS]``. All take turns in every round; the ratio is the
median of the rounds'.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys

from benchmarks.peers import DATABASE, PASSWORD, USER, peers, postgres_binary

CLIENTS = 8


def pgbench(port: int, *options: str) -> str:
    command = [postgres_binary("pgbench"), "-h", "127.0.0.1", "-p", str(port), "-U", USER, *options, DATABASE]
    done = subprocess.run(command, env=os.environ | {"PGPASSWORD": PASSWORD}, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"pgbench failed: {done.stderr}")
    return done.stdout


def main(rounds: int = 5, seconds: int = 5) -> None:
    with peers() as ports:
        pgbench(ports["direct"], "-i", "-q", "-s", "10")
        found: dict[str, list[float]] = {name: [] for name in ports}
        for _ in range(rounds):
            for name, port in ports.items():
                out = pgbench(port, "-S", "-M", "prepared", "-n", "-c", str(CLIENTS), "-T", str(seconds))
                found[name].append(float(re.search(r"tps = ([\d.]+)", out)[1]))
        medians = {name: statistics.median(values) for name, values in found.items()}
    for name, value in medians.items():
        print(f"{name:10} {value:9.0f} reads/s   (all: {' '.join(f'{v:.0f}' for v in found[name])})")
    for name in ("pgbouncer", "direct"):
        if name in medians:
            # Round by round, so that a neighbour's load on the machine falls on both.
            ratios = [a / b for a, b in zip(found["pgstream"], found[name], strict=True)]
            print(f"pgstream / {name}: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
