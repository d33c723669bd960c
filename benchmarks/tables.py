"""Changes of a PostgreSQL table into a view: what 100,000 of them cost the worker, in seconds of CPU.

``python -m benchmarks.tables [changes]``: a quarter inserts, the rest updates, in transactions of 1,000.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil

from benchmarks.stack import USUAL
from tests.postgres import postgres
from tests.server import Server, within
from tests.stream.test_kill import worker_of

SETUP = (
    "CREATE STORE bench WITH ({store})",
    "CREATE CHANGELOG t_log WITH ('store' = bench, 'postgresql.table.name' = 't')",
    "CREATE MATERIALIZED VIEW t_now AS SELECT id, name, n FROM t_log",
)


def cpu(worker: psutil.Process) -> float:
    return sum(t.user + t.system for t in (p.cpu_times() for p in [worker, *worker.children(recursive=True)]))


def main(changes: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        with postgres(folder / "source") as source:
            server = Server(folder / "server", trigger_ms=USUAL["trigger_ms"])
            source.run("CREATE TABLE t (id bigint PRIMARY KEY, name text, n numeric(12,2))")
            with server.connect() as c:
                for statement in SETUP:
                    c.execute(statement.format(store=source.store).encode())

                def sums(text: str) -> Any:
                    return c.execute(text.encode()).fetchone()

                def change(count: int) -> None:
                    for first in range(0, count, 1000):
                        last = first + 249
                        update = f"UPDATE t SET n = n + 1 WHERE id BETWEEN {first} AND {last}"
                        insert = f"INSERT INTO t SELECT i, 'name' || i, i FROM generate_series({first}, {last}) i"
                        source.run(f"{insert} ON CONFLICT (id) DO UPDATE SET n = t.n + 1", *[update] * 3)
                    wanted = source.rows("SELECT count(*), sum(n) FROM t")[0]
                    within(600, lambda: sums("SELECT count(*), sum(n) FROM t_now") == wanted, 0.5)

                change(20_000)  # the JVM is warm
                worker = worker_of(server)
                begun = cpu(worker)
                change(changes)
                print(f"{(cpu(worker) - begun) * 100_000 / changes:.1f} s of CPU for 100,000 changes", flush=True)
            server.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
