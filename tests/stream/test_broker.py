"""What the embedded broker owes the sinks when it dies."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.server import Kafka
from tests.stream.test_outage import Broker
from tests.stream.writers import producer

TOPIC = "whole"


@pytest.fixture
def broker(workspace: Path) -> Iterator[Broker]:
    b = Broker(workspace / "whole")
    yield b
    b.kill()


def kept(bootstrap: str, name: str) -> int:
    """The number of the last transaction that is in; a transaction that has no end is an exception."""
    group = Consumer({"bootstrap.servers": bootstrap, "group.id": name, "isolation.level": "read_committed"})
    try:
        (at,) = group.committed([TopicPartition(TOPIC, 0)], 10)
    finally:
        group.close()
    return max(int(at.offset), -1)


@pytest.mark.stream
@pytest.mark.timeout(240)
def test_transactions_are_whole_after_a_kill(broker: Broker) -> None:
    """Of those under way some are decided and have no markers yet. The next start writes them (not Kafka 4.3)."""
    kafka = Kafka(broker.bootstrap)
    kafka.topic(TOPIC, 2)
    names = [f"w{n}" for n in range(12)]
    command = [sys.executable, "-m", "tests.stream.writers", broker.bootstrap, TOPIC, *names]
    answered: dict[str, int] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            name, number = line.split()
            answered[name] = int(number)
            if len(answered) == len(names) and min(answered.values()) >= 10:
                break
        broker.kill()
        process.kill()
        answered |= {name: int(number) for name, number in map(str.split, process.stdout)}
    broker.start()
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(partial(producer, broker.bootstrap), names))  # settles what was open
        last = dict(zip(names, pool.map(partial(kept, broker.bootstrap), names), strict=True))
    assert all(last[name] >= answered[name] for name in names)
    wanted = sorted(f"{name} {number}" for name in names for number in range(last[name] + 1) for _ in range(2))
    assert sorted(value or "" for _, value, _ in kafka.consume(TOPIC, len(wanted), 20)) == wanted
