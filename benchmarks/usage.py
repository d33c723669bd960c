"""Processor time of a tree of processes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable

import psutil


class Usage:
    """What the processes that ``processes`` names take from now on; those that end in between are counted."""

    def __init__(self, processes: Callable[[], Iterable[psutil.Process]]) -> None:
        self._processes = processes
        self._last: dict[int, float] = {}
        self._over = threading.Event()
        self._before = self._sample()
        threading.Thread(target=self._watch, daemon=True).start()

    def _sample(self) -> float:
        for process in self._processes():
            with contextlib.suppress(psutil.Error):
                self._last[process.pid] = sum(process.cpu_times()[:2])
        return sum(self._last.values())

    def _watch(self) -> None:
        while not self._over.wait(0.5):
            self._sample()

    def seconds(self) -> float:
        self._over.set()
        return self._sample() - self._before


def tree(pid: int, without: str = "") -> list[psutil.Process]:
    """A process and its descendants, leaving out programs of that name."""
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        return [p for p in (root, *root.children(recursive=True)) if not (without and _name(p) == without)]
    return []


def _name(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return process.name()
    return ""
