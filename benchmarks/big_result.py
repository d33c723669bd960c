"""Much data in one statement through pgstream, through PgBouncer, and directly: 500,000 rows selected, and 1,000,000
rows copied out of a table and into one, by clients that are libpq and nothing more.

Run ``python -m benchmarks.big_result [ROUNDS] [CASE…]``, a case being ``select``, ``out`` or ``in``. All take turns in
every round; a ratio is the median of the rounds'.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psycopg

from benchmarks.peers import PASSWORD, peers, postgres_binary, url

SELECTED, COPIED = 500_000, 1_000_000
QUERY = f"SELECT id, name, amount, at FROM big LIMIT {SELECTED}"
TABLES = f"""CREATE TABLE big AS SELECT n AS id, 'customer ' || n AS name, n * 1.25 AS amount,
timestamptz '2024-01-01 00:00+00' + n * interval '1 second' AS at FROM generate_series(1, {COPIED}) n;
CREATE UNLOGGED TABLE sink (LIKE big)"""


def read(port: int, file: Path) -> float:
    """Seconds for one result."""
    with psycopg.connect(url(port), autocommit=True) as conn:
        begin = time.perf_counter()
        result = conn.pgconn.exec_(QUERY.encode())
        seconds = time.perf_counter() - begin
        if result.ntuples != SELECTED:
            raise SystemExit(f"{result.ntuples} rows: {result.error_message.decode()}")
    return seconds


def copy_out(port: int, file: Path) -> float:
    return _psql(port, "COPY big TO STDOUT", stdout=subprocess.DEVNULL)


def copy_in(port: int, file: Path) -> float:
    _psql(port, "TRUNCATE sink", stdout=subprocess.DEVNULL)
    with file.open("rb") as rows:
        return _psql(port, "COPY sink FROM STDIN", stdin=rows, stdout=subprocess.DEVNULL)


def _psql(port: int, text: str, **files: object) -> float:
    """Seconds for one statement, with psql's own start."""
    command = [postgres_binary("psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", url(port), "-c", text]
    begin = time.perf_counter()
    subprocess.run(command, env=os.environ | {"PGPASSWORD": PASSWORD}, check=True, **files)  # type: ignore[call-overload]
    return time.perf_counter() - begin


CASES: dict[str, Callable[[int, Path], float]] = {"select": read, "out": copy_out, "in": copy_in}


def main(rounds: int, cases: list[str]) -> None:
    with peers() as ports, tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows"
        with psycopg.connect(url(ports["direct"]), autocommit=True) as conn:
            conn.execute(TABLES)
            conn.execute("VACUUM ANALYZE big")
        with file.open("wb") as rows:
            _psql(ports["direct"], "COPY big TO STDOUT", stdout=rows)
        for case in cases:
            found: dict[str, list[float]] = {name: [] for name in ports}
            for turn in range(rounds + 1):
                for name in list(ports)[:: 1 if turn % 2 else -1]:
                    seconds = CASES[case](ports[name], file)
                    if turn:  # the first turn warms up
                        found[name].append(seconds)
            line = " ".join(f"{name} {statistics.median(values):.3f} s" for name, values in found.items())
            ratios = ", ".join(
                f"{name} {statistics.median(b / a for a, b in zip(found['pgstream'], found[name], strict=True)):.2f}"
                for name in ("direct", "pgbouncer")
                if name in found
            )
            print(f"{case:7} {line}; speed of {ratios}", flush=True)


if __name__ == "__main__":
    numbers = [int(a) for a in sys.argv[1:] if a.isdigit()]
    wanted = [a for a in sys.argv[1:] if not a.isdigit()]
    main(*(numbers + [9][len(numbers) :]), wanted or list(CASES))
