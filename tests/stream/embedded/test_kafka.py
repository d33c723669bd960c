"""The embedded broker: a real Kafka that keeps its records, and is never left behind."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pgstream.config import Config, load
from pgstream.embedded.kafka import Broker, open_broker
from pgstream.errors import ConfigurationError


@pytest.fixture
def config() -> Config:
    return load({})


def quiet(broker: str) -> dict[str, str | int]:
    return {"bootstrap.servers": broker, "log_level": 0}


def produce(bootstrap: str, topic: str, values: list[str], timestamp: int = 0) -> None:
    producer = Producer(quiet(bootstrap) | {"transactional.id": "t"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, timestamp=timestamp)
    producer.commit_transaction(60)


def consume(bootstrap: str, topic: str, wanted: int) -> list[str]:
    consumer = Consumer(quiet(bootstrap) | {"group.id": "g", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[str] = []
    deadline = time.monotonic() + 30
    while len(values) < wanted and time.monotonic() < deadline:
        values += [(m.value() or b"").decode() for m in consumer.consume(wanted, 0.5) if m.error() is None]
    consumer.close()
    return values


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def resident_mb(broker: Broker) -> int:
    status = Path(f"/proc/{broker.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) // 1024


async def test_records_are_kept(config: Config, tmp_path: Path) -> None:
    first = await open_broker(config, tmp_path)
    admin = AdminClient(quiet(first.bootstrap))
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
    # Year 2100: a replayed event time may lie anywhere.
    produce(first.bootstrap, "t", ["a", "b"], timestamp=4102444800000)
    assert consume(first.bootstrap, "t", 2) == ["a", "b"]
    assert resident_mb(first) < 400
    del admin
    await first.stop()
    await first.stop()
    second = await open_broker(config, tmp_path)
    assert consume(second.bootstrap, "t", 2) == ["a", "b"]
    await second.stop()


async def test_no_topic_makes_itself(config: Config, tmp_path: Path) -> None:
    broker = await open_broker(config, tmp_path)
    consumer = Consumer(quiet(broker.bootstrap) | {"group.id": "g"})
    consumer.list_topics("misspelled", timeout=10)
    assert "misspelled" not in consumer.list_topics(timeout=10).topics
    with pytest.raises(KafkaException):
        consumer.get_watermark_offsets(TopicPartition("misspelled", 0), timeout=10)
    consumer.close()
    await broker.stop()


async def test_port_in_use_is_said(config: Config, tmp_path: Path) -> None:
    broker = await open_broker(config, tmp_path / "a")
    port = int(broker.bootstrap.rpartition(":")[2])
    with pytest.raises(ConfigurationError, match="did not start") as e:
        await open_broker(config, tmp_path / "b", port)
    assert "Address already in use" in (e.value.detail or "")
    await broker.stop()


@pytest.fixture
def command(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """``pgstream broker``, and the process id of its JVM."""
    with subprocess.Popen(
        [sys.executable, "-m", "pgstream", "broker", "--data-dir", str(tmp_path), "--log-level", "error"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


def jvm(command: subprocess.Popen[str]) -> int:
    assert command.stdout is not None
    assert command.stdout.readline().startswith("ready kafka://127.0.0.1:")
    return int(Path(f"/proc/{command.pid}/task/{command.pid}/children").read_text().split()[0])


def test_command_ends_with_its_broker(command: subprocess.Popen[str]) -> None:
    pid = jvm(command)
    command.send_signal(signal.SIGINT)
    assert command.wait(30) == 0
    assert not lives(pid)


def test_killed_command_leaves_no_broker(command: subprocess.Popen[str]) -> None:
    pid = jvm(command)
    command.kill()
    deadline = time.monotonic() + 10
    while lives(pid):
        assert time.monotonic() < deadline, "the broker outlived its server by 10 s"
        time.sleep(0.02)
