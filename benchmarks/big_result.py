"""A result of 500,000 rows through pgstream, through PgBouncer, and directly, read by libpq.

Run ``python -m benchmarks.big_result [ROUNDS]``. All take turns in every round; the medians are compared.
"""

from __future__ import annotations

import statistics
import sys
import time

import psycopg

from benchmarks.peers import peers, url

ROWS = 500_000
QUERY = f"SELECT id, name, amount, at FROM big LIMIT {ROWS}"
TABLE = f"""CREATE TABLE big AS SELECT n AS id, 'customer ' || n AS name, n * 1.25 AS amount,
timestamptz '2024-01-01 00:00+00' + n * interval '1 second' AS at FROM generate_series(1, {ROWS}) n"""


def read(port: int) -> float:
    """Seconds for one result."""
    with psycopg.connect(url(port), autocommit=True) as conn:
        begin = time.perf_counter()
        result = conn.pgconn.exec_(QUERY.encode())
        seconds = time.perf_counter() - begin
        if result.ntuples != ROWS:
            raise SystemExit(f"{result.ntuples} rows: {result.error_message.decode()}")
    return seconds


def main(rounds: int = 9) -> None:
    with peers() as ports:
        with psycopg.connect(url(ports["direct"]), autocommit=True) as conn:
            conn.execute(TABLE)
            conn.execute("VACUUM ANALYZE big")
        found: dict[str, list[float]] = {name: [] for name in ports}
        for turn in range(rounds + 1):
            for name, port in ports.items():
                seconds = read(port)
                if turn:  # the first turn warms up
                    found[name].append(seconds)
        medians = {name: statistics.median(values) for name, values in found.items()}
    for name, value in medians.items():
        print(f"{name:10} {value:6.3f} s   (all: {' '.join(f'{v:.3f}' for v in found[name])})")
    for name in ("direct", "pgbouncer"):
        if name in medians:
            print(f"pgstream / {name}, speed: {medians[name] / medians['pgstream']:.2f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
