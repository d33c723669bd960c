"""A real Apache Kafka broker for the demo and the tests: KRaft, one JVM, one node.

Owns: its properties, its one-time format, its process.
Must not know: topics, stores, queries: clients make those. Start reading at ``open_broker``.
"""

from __future__ import annotations

import asyncio
import base64
import math
import os
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import structlog

from pgstream.config import Config
from pgstream.embedded.archive import Archive
from pgstream.embedded.child import ended, free_port, spawn
from pgstream.embedded.jars import broker_jars
from pgstream.embedded.java import find_java
from pgstream.errors import ConfigurationError

log = structlog.get_logger(__name__)

_JVM = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
_READY = "Kafka Server started"
_FORMAT_S, _START_S, _STOP_S, _ARCHIVE_S, _KILL_S = 60.0, 120.0, 10.0, 60.0, 5.0
_TRIES = 3
# What the JVM's exit code is after SIGTERM, in peace.
_TERMINATED = 128 + signal.SIGTERM
_LISTENERS = ("listeners", "advertised.listeners", "listener.security.protocol.map")
# A timestamp may lie far from now: the demo and the tests replay old and future event times.
_ANY_TIME_MS = 9223372036854775807


@dataclass(slots=True)
class Broker:
    """A running broker. ``bootstrap`` is HOST:PORT."""

    bootstrap: str
    pid: int
    log_file: Path
    _process: subprocess.Popen[bytes] = field(repr=False)
    _archived: Callable[[], None] | None = field(default=None, repr=False)

    async def ended(self) -> None:
        """Return when it has ended, by whatever cause."""
        await ended(self._process, math.inf, every_s=0.2)

    async def stop(self) -> None:
        """Stop it, by force after ten seconds, or a minute where it leaves its classes. May be called twice."""
        patience = _STOP_S if self._archived is None else _ARCHIVE_S
        for order, within_s in ((signal.SIGTERM, patience), (signal.SIGKILL, _KILL_S)):
            if self._process.poll() is None:
                self._process.send_signal(order)
                if not await ended(self._process, within_s):
                    log.warning("kafka is slow to stop", pid=self.pid, signal=order.name)
        if self._archived is not None and self._process.returncode == _TERMINATED:
            self._archived()
        self._archived = None
        log.debug("kafka stopped", pid=self.pid)


async def open_broker(
    config: Config,
    data_dir: Path,
    port: int = 0,
    *,
    report: Callable[[str], None] = lambda line: None,
    properties: Mapping[str, str] | None = None,
    class_path: Sequence[Path] = (),
) -> Broker:
    """Start a broker on the data in ``data_dir``, formatted at first; return when it accepts clients.

    ``port`` 0 picks a free one. ``properties`` replace the broker's own, listeners are added to them. ``class_path``:
    where the classes lie that they name. The first broker of a class path leaves its classes to those after it
    (``archive``). Errors: ConfigurationError with the log's end.
    """
    java = await asyncio.to_thread(find_java, config)
    jars = await asyncio.to_thread(broker_jars, config, report)
    data_dir = _made(data_dir)
    archive = await _classes(config)
    archived, record = None, list[str]()
    if not (archive.made or class_path):
        aside, record = archive.record()
        archived = partial(archive.take, aside)
    program: list[str | Path] = [java, *_JVM, *archive.flags(), "-cp", ":".join(map(str, [*jars, *class_path]))]
    words = ""
    for _ in range(_TRIES):
        listen = port or free_port()
        _write_properties(data_dir, listen, properties or {})
        if not (data_dir / "data" / "meta.properties").exists():
            await _format(program, data_dir)
        process, words = await _start(program, data_dir, record)
        if process is not None:
            log.info("kafka ready", bootstrap=f"127.0.0.1:{listen}", pid=process.pid)
            return Broker(f"127.0.0.1:{listen}", process.pid, data_dir / "kafka.log", process, archived)
        if "Address already in use" not in words or port:
            break
    hint = f'Its log is "{data_dir / "kafka.log"}".'
    if "UnsupportedVersionException" in words:
        hint = f'A later version of Kafka wrote "{data_dir / "data"}": move it away to begin with no topics.'
    raise ConfigurationError(what="the embedded Kafka broker did not start", detail=words, hint=hint)


async def _classes(config: Config) -> Archive:
    java = await asyncio.to_thread(find_java, config)
    return Archive(str(java), [str(j) for j in await asyncio.to_thread(broker_jars, config)], config.cache)


def _made(data_dir: Path) -> Path:
    data_dir = data_dir.expanduser().absolute()
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    return data_dir


def _write_properties(data_dir: Path, port: int, more: Mapping[str, str]) -> None:
    controller = free_port()
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(data_dir / "data"),
        "auto.create.topics.enable": "false",
        # One node: nothing to replicate to, and few partitions to load.
        "default.replication.factor": "1",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        "log.message.timestamp.before.max.ms": str(_ANY_TIME_MS),
        "log.message.timestamp.after.max.ms": str(_ANY_TIME_MS),
        # Records with old event times would otherwise be deleted minutes after they are written.
        "log.retention.ms": "-1",
        "log.cleaner.dedupe.buffer.size": "4194304",
        "num.network.threads": "2",
        "num.io.threads": "4",
        # A broker that was killed is taken for alive until its session ends, and its successor waits that long.
        "broker.session.timeout.ms": "5000",
        "broker.heartbeat.interval.ms": "500",
    }
    settings |= {k: f"{settings[k]},{v}" if k in _LISTENERS else v for k, v in more.items()}
    (data_dir / "kafka.properties").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))


async def _format(program: list[str | Path], data_dir: Path) -> None:
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")
    argv = [*program, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", data_dir / "kafka.properties"]
    process = spawn(argv, output=subprocess.PIPE)
    try:
        output, _ = await asyncio.wait_for(asyncio.to_thread(process.communicate), _FORMAT_S)
    finally:
        if process.poll() is None:
            process.kill()
    if process.returncode != 0:
        raise ConfigurationError(
            what=f'could not format the Kafka data in "{data_dir}"', detail=_faults(output.decode(errors="replace"))
        )


async def _start(
    program: list[str | Path], data_dir: Path, more: Sequence[str]
) -> tuple[subprocess.Popen[bytes] | None, str]:
    """Start the broker; the process once its log says it is ready, else the log's end."""
    logger = [
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
        "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.storage.internals.log=warn",
    ]
    argv = [program[0], *logger, *more, *program[1:], "kafka.Kafka", data_dir / "kafka.properties"]
    file = data_dir / "kafka.log"
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as output:
        process = spawn(argv, death_signal=signal.SIGKILL, output=output)
    deadline = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < deadline:
        if _READY in file.read_text(errors="replace"):
            return process, ""
        await asyncio.sleep(0.05)
    if process.poll() is None:
        process.kill()
        await ended(process, _KILL_S)
    return None, _faults(file.read_text(errors="replace"))


def _faults(words: str) -> str:
    """What of a log says why it ended: the causes, else its last lines."""
    lines = [line.strip() for line in words.splitlines() if line.strip() and not line.startswith("\tat ")]
    causes = [line for line in lines if " ERROR " in line or line.startswith(("Caused by", "Exception in"))]
    return "\n".join(list(dict.fromkeys(causes))[:4] or lines[-4:])


async def rehearse(config: Config) -> None:
    """Make the archive of a broker's classes now if there is none, by starting one and stopping it again."""
    if (await _classes(config)).made:
        return
    with tempfile.TemporaryDirectory() as folder:
        broker = await open_broker(config, Path(folder))
        await broker.stop()


async def serve_broker(config: Config, port: int, report: Callable[[str], None], say: Callable[[str], None]) -> None:
    """``pgstream broker``: run a broker in ``<data_dir>/kafka`` until SIGTERM or SIGINT, or until it ends itself."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    broker = await open_broker(config, config.data_dir / "kafka", port, report=report)
    say(f"ready kafka://{broker.bootstrap}")
    lives = asyncio.create_task(broker.ended())
    wanted = asyncio.create_task(asked.wait())
    await asyncio.wait({lives, wanted}, return_when=asyncio.FIRST_COMPLETED)
    failed = lives.done()
    lives.cancel()
    wanted.cancel()
    await broker.stop()
    if failed:
        raise ConfigurationError(
            what="the embedded Kafka broker ended by itself", hint=f'Its log is "{broker.log_file}".'
        )
