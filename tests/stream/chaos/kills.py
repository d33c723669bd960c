"""What a rig suffers: one death at a time, decided by its number.

Owns: the kinds of death and how often each is drawn. Must not know: what runs. Start reading at ``KINDS``.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.server import within
from tests.stream.chaos.rig import Rig

# Places in the JVM (KillPoints.scala), and how often each may be passed before.
POINTS = {
    "view before copy": 6,
    "view after copy": 6,
    "view before commit": 6,
    "view after commit": 6,
    "topic after flush": 4,
    "topic before commit": 4,
    "topic after commit": 4,
    "checkpoint before file": 40,
    "checkpoint after file": 40,
}


def order(rig: Rig, words: str) -> None:
    """What the worker's JVM does at a point of its code."""
    aside = rig.order.with_suffix(".new")
    aside.write_text(words)
    os.replace(aside, rig.order)


def at_a_point(rig: Rig, r: random.Random) -> str:
    """The JVM halts at a point of the code."""
    point = r.choice(list(POINTS))
    times = r.randint(0, POINTS[point])
    order(rig, f"{point}={times}")
    reached = rig.replace_worker()
    return f"{point} ({times}){'' if reached else ', not reached: killed'}"


def at_a_moment(rig: Rig, r: random.Random) -> str:
    """The worker dies at any moment, its JVM with it."""
    pause = r.random() * 1.5
    time.sleep(pause)
    rig.worker.process.kill()
    rig.replace_worker()
    return f"worker after {pause:.2f} s"


def hung_up(rig: Rig, r: random.Random) -> str:
    """The server dies, which the worker learns from its channel; the next server's worker does not wait for its end."""
    time.sleep(r.random())
    old = rig.worker
    old.hang_up()
    rig.next_worker()
    old.process.wait(20)
    return "server"


def torn(rig: Rig, r: random.Random) -> str:
    """A power cut: the newest file of a checkpoint is empty, or full of zeros."""
    family = psutil.Process(rig.worker.process.pid).children(recursive=True)
    rig.worker.process.kill()
    psutil.wait_procs(family, timeout=20)
    file = r.choice(newest(rig))
    size = file.stat().st_size
    file.write_bytes(b"" if r.random() < 0.5 else b"\0" * size)
    rig.replace_worker()
    return f"zeroed {file.relative_to(rig.folder / 'checkpoints')}"


def newest(rig: Rig) -> list[Path]:
    """The newest file of each log of each checkpoint (offsets, commits, changes of the state), and of it all."""
    found = []
    for query in sorted((rig.folder / "checkpoints").iterdir()):
        files = [f for f in query.rglob("*") if f.is_file() and not f.name.startswith(".")]
        logs: dict[Path, list[Path]] = {}
        for file in files:
            if file.parent.name in ("offsets", "commits") or file.suffix == ".changelog":
                logs.setdefault(file.parent, []).append(file)
        found += [max(log, key=lambda f: int(f.stem)) for log in logs.values()]
        if files:
            found.append(max(files, key=lambda f: f.stat().st_mtime_ns))
    return found


def broker(rig: Rig, r: random.Random) -> str:
    """The broker dies, and is back after a while."""
    time.sleep(r.random() * 0.5)
    rig.broker.kill()
    pause = r.random() * 3
    time.sleep(pause)
    rig.broker.start()
    return f"broker for {pause:.1f} s"


def broker_at_a_point(rig: Rig, r: random.Random) -> str:
    """The broker dies while a transaction of a topic ends."""
    point, times = r.choice([p for p in POINTS if p.startswith("topic")]), r.randint(0, 4)
    order(rig, f"{point}={times}={rig.broker.jvm}")
    rig.broker.gone(60)
    pause = r.random() * 3
    time.sleep(pause)
    rig.broker.start()
    return f"broker at {point} ({times}) for {pause:.1f} s"


def postgres(rig: Rig, r: random.Random) -> str:
    """PostgreSQL dies, and is started again as a server does it."""
    rig.postgres_away.set()
    pid, connections = rig.database.postgres.postmaster, rig.reader.connections
    assert pid
    os.kill(pid, signal.SIGKILL)
    within(60, lambda: rig.database.postgres.postmaster != pid and rig.rows() >= 0)
    within(60, lambda: rig.reader.connections > connections)  # it has been told of the death, however late
    rig.postgres_away.clear()
    return "PostgreSQL"


KINDS: list[tuple[int, Callable[[Rig, random.Random], str]]] = [
    (48, at_a_point), (10, at_a_moment), (6, hung_up), (12, torn), (6, broker), (6, broker_at_a_point), (12, postgres),
]  # fmt: skip


def suffer(rig: Rig, number: int) -> str:
    """One death; returns what it was, once rows flow again."""
    r = random.Random(number)
    kind = r.choices([k for _, k in KINDS], [w for w, _ in KINDS])[0]
    told = kind(rig, r)
    rig.goes_on(rig.rows())
    return told
