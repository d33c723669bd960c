"""The records that benchmarks read: JSON of five integers, the same for the same seed."""

from __future__ import annotations

import random

from confluent_kafka import Producer

BASE_MS = 1_700_000_000_000


class Events:
    """``count`` records n, ts, k1 (10,000 keys), k2 (100,000 keys), v; event time is 1 ms every ``per_ms`` records."""

    def __init__(self, count: int, seed: int, per_ms: int) -> None:
        draw = random.Random(seed)
        self.per_ms = per_ms
        self.k1 = draw.choices(range(10_000), k=count)
        self.k2 = draw.choices(range(100_000), k=count)
        self.v = draw.choices(range(1_000), k=count)

    def at(self, n: int) -> int:
        return BASE_MS + n // self.per_ms


def load(bootstrap: str, topic: str, events: Events) -> None:
    """Produce them to the topic's two partitions, in order."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for n, (k1, k2, v) in enumerate(zip(events.k1, events.k2, events.v, strict=True)):
        value = b'{"n": %d, "ts": %d, "k1": %d, "k2": %d, "v": %d}' % (n, events.at(n), k1, k2, v)
        while True:
            try:
                producer.produce(topic, value, b"%d" % k1, partition=n % 2)
                break
            except BufferError:
                producer.poll(0.1)
        if n % 10_000 == 0:
            producer.poll(0)
    producer.flush()
