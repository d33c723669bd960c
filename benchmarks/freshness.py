"""Freshness: from produce to visible in a windowed table, at 2,000 records/s: pgstream and plain PySpark in one run.

``python -m benchmarks.freshness [SECONDS] [--peers]``; with ``--peers`` Flink SQL and Pathway too. Each runs job J2 of
``benchmarks.jobs``. Twenty probe records a second have keys of their own; a reader polls the table every 10 ms and
notes when each probe's count has arrived. It asks for the probes in the last four windows, which the table's key finds:
one that looks through the whole table each time, as it once did here, takes half a core from what is measured. The
first 15 s after the first probe is seen warm up and are not counted.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time

import psycopg
from confluent_kafka import Producer

from benchmarks.engines import ENGINES, PEERS, Engine, Pgstream
from benchmarks.stack import Stack, show, stack

TOPIC = "ev"
WARM = 15
GIVE_UP = 120
"""Seconds in which the first probe is to be seen."""
READ = "SELECT k, w / 10, c FROM {out} WHERE k < 0 AND w = ANY(%s)"
READ_VIEW = (
    "SELECT k, extract(epoch FROM w)::bigint / 10, c FROM {out} WHERE k < 0 AND "
    "w = ANY(ARRAY(SELECT to_timestamp(w) AT TIME ZONE 'UTC' FROM unnest(%s::bigint[]) w))"
)


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


def watch(s: Stack, kind: type[Engine], seconds: float) -> dict[str, int]:
    out = f"fresh_{kind.__name__.lower()}"
    probes: list[tuple[int, int, int, float]] = []
    stop = threading.Event()
    writer = threading.Thread(target=steady, args=(s.kafka.bootstrap, TOPIC, probes, stop))
    seen: dict[tuple[int, int, int], float] = {}
    ours = kind is Pgstream
    text = (READ_VIEW if ours else READ).format(out=out).encode()
    with kind(s, "J2", [TOPIC], out, "latest") as engine:
        engine.begin()
        with psycopg.connect(s.server.url if ours else s.direct, autocommit=True) as c:
            writer.start()
            begin, end, first = time.time(), None, None
            while end is None or time.time() < end + 3:
                engine.check()
                if end is not None and time.time() > end:
                    stop.set()
                last = int(time.time()) // 10 * 10
                rows = c.execute(text, [[last - back for back in (0, 10, 20, 30)]], prepare=True).fetchall()
                now = time.time()
                if first is None and rows:
                    first, end = now, now + WARM + seconds
                if first is None and now > begin + GIVE_UP:
                    raise SystemExit(f"{kind.name} shows nothing")
                for k, w, n in rows:
                    for nth in range(n, 0, -1):
                        if (k, int(w), nth) in seen:
                            break
                        seen[k, int(w), nth] = now
                time.sleep(0.01)
        writer.join()
    assert first is not None
    counted = [p for p in probes if p[3] > first + WARM]
    delays = [seen[p[:3]] - p[3] for p in counted if p[:3] in seen]
    cuts = statistics.quantiles(delays, n=100)
    p50, p95, p99 = (round(cuts[i] * 1000) for i in (49, 94, 98))
    return {"probes": len(counted), "missing": len(counted) - len(delays), "p50_ms": p50, "p95_ms": p95, "p99_ms": p99}


def main(seconds: float, engines: list[type[Engine]]) -> None:
    with stack() as s:
        found = {}
        s.kafka.topic(TOPIC, 2)
        for kind in engines:
            found[kind] = watch(s, kind, seconds)
            show(bench="freshness", engine=kind.name, **found[kind])
        ours = found.pop(Pgstream)
        for kind, theirs in found.items():
            ratios = {
                of: round(float(str(theirs[f"{of}_ms"])) / float(str(ours[f"{of}_ms"])), 2) for of in ("p50", "p99")
            }
            show(bench="freshness", of=kind.name, **ratios)


if __name__ == "__main__":
    numbers = [float(w) for w in sys.argv[1:] if not w.startswith("--")]
    main((numbers or [45])[0], ENGINES + (PEERS if "--peers" in sys.argv else []))
