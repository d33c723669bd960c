"""A data stream into a view, from a local double: records a second, and whether each came once after a kill -9.

``python -m benchmarks.kinesis [records] [kill]``. moto runs in this process; what it gives bounds what can be measured.
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
import time
from pathlib import Path

from moto.kinesis.models import Record, kinesis_backends

from tests.aws import serving
from tests.server import Server, within
from tests.stream.test_kill import worker_of

SETUP = (
    "CREATE STORE bench WITH ('type' = KINESIS, {options})",
    "CREATE STREAM copied (id BIGINT, k VARCHAR) WITH ('store' = bench, 'value.format' = 'json', "
    "'starting.position' = 'earliest')",
    "CREATE MATERIALIZED VIEW every AS SELECT id FROM copied",
)


def fill(stream: str, records: int) -> None:
    """Into moto's own memory: writing record by record would take it minutes."""
    (backend,) = (b for a in kinesis_backends.values() for b in a.values() if stream in b.streams)
    shards = list(backend.streams[stream].shards.values())
    for i in range(records):
        key, shard = f"k{i % 1000}", shards[i % len(shards)]
        data = base64.b64encode(json.dumps({"id": i, "k": key}).encode()).decode()
        number = len(shard.records) + 1
        shard.records[number] = Record(key, data, number, "")


def main(records: int, kill: bool) -> None:
    with serving() as aws, tempfile.TemporaryDirectory() as folder:
        aws.stream("copied", 8)
        fill("copied", records)
        server = Server(Path(folder) / "server")
        with server.connect() as c:
            for statement in SETUP:
                c.execute(statement.format(options=aws.ddl).encode())

            def count() -> int:
                row = c.execute("SELECT count(*) FROM every").fetchone()
                return int(row[0]) if row else 0

            within(120, lambda: count() > 0)
            begun, already = time.monotonic(), count()
            if kill:
                within(120, lambda: count() > records * 0.3)
                worker_of(server).kill()
            within(600, lambda: count() >= records)
            seconds = time.monotonic() - begun
            found = c.execute("SELECT count(*), count(DISTINCT id) FROM every").fetchone()
            rate = (records - already) / seconds
            print(f"{rate:.0f} records/s in {seconds:.1f} s; rows and different ones: {found}", flush=True)
        server.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000, "kill" in sys.argv)
