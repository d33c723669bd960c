"""LIST ENTITIES in a cluster of many topics, and DESCRIBE ENTITY and PRINT ENTITY there.

``python -m benchmarks.topics [COUNT]``: a broker of its own with 5,000 topics of one partition each; the median of
``TIMES`` statements through a real server. Wanted: LIST ENTITIES in at most 2 s.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tests.server import Kafka, Server, broker, within

COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000
TIMES, AT_ONCE = 7, 250
STATEMENTS = (
    "LIST ENTITIES",
    "LIST ENTITIES LIKE 't_00%'",
    "DESCRIBE ENTITY t_00001",
    "PRINT ENTITY t_00001 WITH ('from_beginning') LIMIT 1",
)


def furnish(kafka: Kafka) -> float:
    """Make the topics; the seconds it took."""
    admin, begin = AdminClient({"bootstrap.servers": kafka.bootstrap}), time.perf_counter()
    names = [f"t_{i:05}" for i in range(COUNT)]
    for i in range(0, COUNT, AT_ONCE):
        made = admin.create_topics([NewTopic(n, 1, 1) for n in names[i : i + AT_ONCE]], operation_timeout=60)
        for future in made.values():
            future.result()
    within(240, lambda: len(admin.list_topics(timeout=30).topics) >= COUNT)
    kafka.produce(names[1], [(None, "{}")])
    return time.perf_counter() - begin


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="pgstream-topics-") as folder, broker(Path(folder) / "kafka") as kafka:
        print(f"{COUNT} topics made in {furnish(kafka):.0f} s", flush=True)
        server = Server(Path(folder) / "server")
        try:
            with server.connect() as c:
                uris = f"'uris' = '{kafka.bootstrap}'"
                c.execute(f"CREATE STORE k WITH ('type' = KAFKA, {uris}, 'tls.disabled' = TRUE)".encode())
                c.execute("USE STORE k")
                for text in STATEMENTS:
                    took = []
                    for _ in range(TIMES):
                        begin = time.perf_counter()
                        rows = c.execute(text.encode()).fetchall()
                        took.append(time.perf_counter() - begin)
                    print(f"{text:60} {len(rows):6} rows  {statistics.median(took) * 1000:7.0f} ms", flush=True)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
