"""From produce to visible in a topic: a query in real time beside the same one in micro-batches, in one run.

``python -m benchmarks.realtime [SECONDS]``. Both read one topic, to which 100 probes a second are written, and write a
topic each, which one consumer reads. The second round has a windowed view of 2,000 records a second beside them. The
first ten seconds of a round warm up and are not counted.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from typing import Any

import psycopg
from confluent_kafka import Consumer, Producer

from benchmarks.freshness import steady
from benchmarks.stack import VIEW, Stack, create_stream, show, stack

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 45
WARM = 10
STREAM = """CREATE STREAM probes (n BIGINT, at DOUBLE)
WITH ('store' = bench, 'topic' = 'probes', 'value.format' = 'json', 'starting.position' = 'latest')"""
QUERY = """CREATE STREAM {name} WITH ('store' = bench, 'topic' = '{name}') AS SELECT n, at FROM probes WHERE n >= 0
QUERY WITH ('execution.mode' = '{mode}')"""
MODES = {"realtime": "out_realtime", "microbatch": "out_microbatch"}


def produce(bootstrap: str, seconds: float) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    begin = time.time()
    for n in range(int(seconds * 100)):
        producer.produce("probes", json.dumps({"n": n, "at": time.time()}))
        producer.poll(0)
        time.sleep(max(0.0, begin + (n + 1) / 100 - time.time()))
    producer.flush()


def watch(bootstrap: str, after: float, until: float) -> dict[str, list[float]]:
    """The delays of the probes that were written after a moment, by topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"bench-{after}", "auto.offset.reset": "latest",
                         "fetch.wait.max.ms": 5, "isolation.level": "read_committed"})  # fmt: skip
    consumer.subscribe(list(MODES.values()))
    delays: dict[str, list[float]] = {topic: [] for topic in MODES.values()}
    while time.time() < until:
        message = consumer.poll(0.05)
        now = time.time()
        if message is None or message.error() is not None:
            continue
        at = json.loads(message.value() or b"")["at"]
        if at > after:
            delays[str(message.topic())].append(now - at)
    consumer.close()
    return delays


def measure(s: Stack, beside: str) -> None:
    begin = time.time()
    writer = threading.Thread(target=produce, args=(s.kafka.bootstrap, SECONDS + WARM))
    writer.start()
    delays = watch(s.kafka.bootstrap, begin + WARM, begin + WARM + SECONDS + 3)
    writer.join()
    p50: dict[str, float] = {}
    for mode, topic in MODES.items():
        cuts = statistics.quantiles(delays[topic], n=100)
        p50[mode] = cuts[49]
        show(bench="realtime", mode=mode, beside=beside, probes=len(delays[topic]), p50_ms=round(cuts[49] * 1000, 1),
             p99_ms=round(cuts[98] * 1000, 1), longest_ms=round(max(delays[topic]) * 1000))  # fmt: skip
    show(bench="realtime", beside=beside, ratio_p50=round(p50["microbatch"] / p50["realtime"], 2))


def loaded(s: Stack, c: psycopg.Connection[Any]) -> None:
    """The same beside a windowed view that is fed."""
    s.kafka.topic("busy", 2)
    create_stream(s, "busy")
    c.execute(VIEW.format(position="latest").encode())
    stop = threading.Event()
    load = threading.Thread(target=steady, args=(s.kafka.bootstrap, "busy", [], stop))
    load.start()
    try:
        measure(s, "a windowed view")
    finally:
        stop.set()
        load.join()


def main() -> None:
    # A task for the query in real time, and as many as there are cores for the others.
    with stack(spark_master="local[4]") as s:
        s.kafka.topic("probes")
        for topic in MODES.values():
            s.kafka.topic(topic)
        with s.server.connect() as c:
            c.execute(
                f"CREATE STORE bench WITH ('type' = KAFKA, 'uris' = '{s.kafka.bootstrap}', 'tls.disabled' = TRUE, "
                "'kafka.sasl.hash_function' = NONE)".encode()
            )
            c.execute(STREAM.encode())
            for mode, name in MODES.items():
                c.execute(QUERY.format(name=name, mode=mode).encode())
            measure(s, "nothing")
            loaded(s, c)


if __name__ == "__main__":
    main()
