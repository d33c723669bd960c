"""Freshness: from produce to visible in a windowed view, at 2,000 records/s; pgstream and plain PySpark in one run.

``python -m benchmarks.freshness [SECONDS]``. Twenty probe records a second have keys of their own; a reader polls the
view every 10 ms and notes when each probe's count has arrived. It asks for the last four windows, which the table's
key finds: one that looks through the whole table each time, as it once did here, takes half a core from what is
measured. The first 15 s warm up and are not counted.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import psycopg
from confluent_kafka import Producer

from benchmarks.stack import VIEW, Stack, create_stream, show, stack
from pgstream import config
from pgstream.embedded.jars import fetch

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 45
WARM = 15


def steady(bootstrap: str, topic: str, out: list[tuple[int, int, int, float]], stop: threading.Event) -> None:
    """2,000 records a second; probes (key, window, nth, produced at) go to ``out``."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
    counts: dict[tuple[int, int], int] = {}
    begin, tick = time.time(), 0
    while not stop.is_set():
        for j in range(20):
            now = time.time()
            ms, k = int(now * 1000), (tick * 20 + j) * 7919 % 10_000
            if j == 0 and tick % 5 == 0:
                k = -(1 + tick // 5 % 20)
                w = ms // 10_000
                nth = counts[k, w] = counts.get((k, w), 0) + 1
                out.append((k, w, nth, now))
            value = b'{"n": %d, "ts": %d, "k1": %d, "k2": %d, "v": 1}' % (tick, ms, k, k)
            producer.produce(topic, value, b"%d" % k, partition=k % 2)
        producer.poll(0)
        tick += 1
        time.sleep(max(0.0, begin + tick / 100 - time.time()))
    producer.flush()


def watch(dsn: str, text: str, s: Stack, topic: str) -> dict[str, object]:
    probes: list[tuple[int, int, int, float]] = []
    stop = threading.Event()
    writer = threading.Thread(target=steady, args=(s.kafka.bootstrap, topic, probes, stop))
    seen: dict[tuple[int, int, int], float] = {}
    with psycopg.connect(dsn, autocommit=True) as c:
        writer.start()
        begin = time.time()
        while time.time() < begin + SECONDS + 3:
            if time.time() > begin + SECONDS:
                stop.set()
            last = int(time.time()) // 10 * 10
            rows = c.execute(text.encode(), [[last - back for back in (0, 10, 20, 30)]], prepare=True).fetchall()
            now = time.time()
            for k, w, n in rows:
                for nth in range(n, 0, -1):
                    if (k, int(w), nth) in seen:
                        break
                    seen[k, int(w), nth] = now
            time.sleep(0.01)
    writer.join()
    counted = [p for p in probes if p[3] > begin + WARM]
    delays = [seen[p[:3]] - p[3] for p in counted if p[:3] in seen]
    cuts = statistics.quantiles(delays, n=100)
    q = [round(cuts[i] * 1000) for i in (49, 94, 98)]
    return {
        "probes": len(counted),
        "missing": len(counted) - len(delays),
        "p50_ms": q[0],
        "p95_ms": q[1],
        "p99_ms": q[2],
    }


def main() -> None:
    read = "SELECT {k}, {w} / 10 AS w, c FROM {t} WHERE {open} AND {k} < 0"
    of_view = "window_start = ANY(ARRAY(SELECT to_timestamp(w) AT TIME ZONE 'UTC' FROM unnest(%s::bigint[]) w))"
    with stack() as s:
        s.kafka.topic("fresh", 2)
        create_stream(s, "fresh")
        with s.server.connect() as c:
            c.execute(VIEW.format(position="latest").encode())
            ours = watch(
                s.server.url,
                read.format(k="k1", w="extract(epoch FROM window_start)::bigint", t="per_window", open=of_view),
                s,
                "fresh",
            )
            query = c.execute("LIST QUERIES").fetchall()[0][0]
            c.execute(f"TERMINATE QUERY {query}".encode())
        show(bench="freshness", engine="pgstream", **ours)
        s.kafka.topic("fresh2", 2)
        with psycopg.connect(s.direct, autocommit=True) as c:
            c.execute("CREATE TABLE plain (k bigint, w bigint, c bigint, s bigint, PRIMARY KEY (w, k))")
        argument = {"job": "J2", "kafka": s.kafka.bootstrap, "topics": ["fresh2"], "out": "plain", "dsn": s.direct,
                    "position": "latest", "jars": [str(j) for j in fetch(config.load({}))]}  # fmt: skip
        script = str(Path(__file__).with_name("plain_pyspark.py"))
        job = subprocess.Popen(
            [sys.executable, script, json.dumps(argument)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        try:
            assert job.stdout is not None
            assert job.stdout.readline() == b"START\n"
            plain = watch(s.direct, read.format(k="k", w="w", t="plain", open="w = ANY(%s)"), s, "fresh2")
        finally:
            job.kill()
            job.wait()
        show(bench="freshness", engine="plain PySpark", **plain)
        show(bench="freshness", ratio_p50=round(float(str(plain["p50_ms"])) / float(str(ours["p50_ms"])), 2))


if __name__ == "__main__":
    main()
