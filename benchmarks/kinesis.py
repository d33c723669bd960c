"""A data stream into a view, from a local double: records a second, and whether each came once through deaths.

``python -m benchmarks.kinesis [records] [kill]``: moto runs in this process; what it gives bounds what can be measured.
``python -m benchmarks.kinesis [records] reshard``: into a view and into another data stream, while shards are split and
merged, and end as AWS's do, and the worker is killed three times.
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
from moto.kinesis.models import Record, kinesis_backends

from benchmarks.stack import USUAL
from tests.aws import Aws, ending, serving
from tests.server import Server, within
from tests.stream.test_kill import killed, worker_of

SETUP = (
    "CREATE STORE bench WITH ('type' = KINESIS, {options})",
    "CREATE STREAM copied (id BIGINT, k VARCHAR) WITH ('store' = bench, 'value.format' = 'json', "
    "'starting.position' = 'earliest')",
    "CREATE MATERIALIZED VIEW every AS SELECT id FROM copied",
)
WRITE_S = 0.15
"""Between two calls of 500 records, so that shards change while they come."""
SINK = "CREATE STREAM copy WITH ('store' = bench) AS SELECT id, k FROM copied PARTITION BY k"


def fill(stream: str, records: int) -> None:
    """Into moto's own memory: writing record by record would take it minutes."""
    (backend,) = (b for a in kinesis_backends.values() for b in a.values() if stream in b.streams)
    shards = list(backend.streams[stream].shards.values())
    for i in range(records):
        key, shard = f"k{i % 1000}", shards[i % len(shards)]
        data = base64.b64encode(json.dumps({"id": i, "k": key}).encode()).decode()
        number = len(shard.records) + 1
        shard.records[number] = Record(key, data, number, "")


def counted(c: psycopg.Connection[Any]) -> int:
    row = c.execute("SELECT count(*) FROM every").fetchone()
    return int(row[0]) if row else 0


def measured(records: int, kill: bool) -> None:
    with serving() as aws, tempfile.TemporaryDirectory() as folder:
        aws.stream("copied", 8)
        fill("copied", records)
        server = Server(Path(folder) / "server", trigger_ms=USUAL["trigger_ms"])
        with server.connect() as c:
            for statement in SETUP:
                c.execute(statement.format(options=aws.ddl).encode())
            within(120, lambda: counted(c) > 0)
            begun, already = time.monotonic(), counted(c)
            if kill:
                within(120, lambda: counted(c) > records * 0.3)
                worker_of(server).kill()
            within(600, lambda: counted(c) >= records)
            seconds = time.monotonic() - begun
            found = c.execute("SELECT count(*), count(DISTINCT id) FROM every").fetchone()
            rate = (records - already) / seconds
            print(f"{rate:.0f} records/s in {seconds:.1f} s; rows and different ones: {found}", flush=True)
        server.stop()


def resharded(records: int) -> None:
    """Exits with 1 when a record is missing, or is in the view twice."""
    with tempfile.TemporaryDirectory() as name, ending(), serving() as aws:
        folder = Path(name)
        folder.chmod(0o755)
        aws.stream("copied", 4)
        server = Server(folder / "server", trigger_ms=USUAL["trigger_ms"])
        with server.connect() as c:
            for statement in (*SETUP, SINK):
                c.execute(statement.format(options=aws.ddl).encode())
            begun = time.monotonic()
            writing = threading.Thread(target=write, args=(aws, records), daemon=True)
            writing.start()
            for turn, change in enumerate((split, merge, split)):
                within(1800, lambda turn=turn: counted(c) > records * (turn + 1) // 5, 1)
                change(aws)
                within(120, lambda: killed(server), 1)
            writing.join()
            within(1800, lambda: counted(c) >= records, 1)
            print(f"{records} records in {time.monotonic() - begun:.0f} s, with 3 deaths of the worker", flush=True)
            rows = c.execute("SELECT count(*), count(DISTINCT id) FROM every").fetchone()
            copies: Counter[int] = Counter()

            read: dict[str, str] = {}

            def written() -> bool:
                copies.update(json.loads(r["Data"])["id"] for r in aws.following("copy", read))
                return len(copies) >= records

            within(1800, written, 5)
            shards = len(aws.client.list_shards(StreamName="copied")["Shards"])
            print(f"shards: {shards}; view: rows and different ones {rows}", flush=True)
            print(
                f"data stream: different ones {len(copies)}, more than once {copies.total() - len(copies)}", flush=True
            )
        server.stop()
        if rows != (records, records) or len(copies) != records:
            sys.exit(1)


def write(aws: Aws, records: int) -> None:
    for first in range(0, records, 500):
        ids = range(first, min(records, first + 500))
        aws.put("copied", [(f"k{i % 1000}", json.dumps({"id": i, "k": f"k{i % 1000}"})) for i in ids])
        time.sleep(WRITE_S)


def _open(aws: Aws) -> list[dict[str, Any]]:
    shards = aws.client.list_shards(StreamName="copied")["Shards"]
    still = [s for s in shards if "EndingSequenceNumber" not in s["SequenceNumberRange"]]
    return sorted(still, key=lambda s: int(s["HashKeyRange"]["StartingHashKey"]))


def split(aws: Aws) -> None:
    for shard in _open(aws)[:3]:
        aws.split("copied", shard)


def merge(aws: Aws) -> None:
    shards = _open(aws)
    for one, other in ((0, 1), (2, 3)):
        aws.merge("copied", shards[one]["ShardId"], shards[other]["ShardId"])


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    if "reshard" in sys.argv:
        resharded(wanted)
    else:
        measured(wanted, "kill" in sys.argv)
