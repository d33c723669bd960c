"""Few queries have a batch under way at once: the others wait in order, and none for one that takes long."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.server import within

pytestmark = [pytest.mark.stream, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]


class Runs:
    """Runs of queries whose batches begin, each on a thread of its own."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.runs = {name: kernel.Run(name, 1, None, None, None) for name in "abcdefg"}
        self.under: list[str] = []
        self.threads: list[threading.Thread] = []
        self.begun = 0

    def begin(self, name: str) -> None:
        def enter() -> None:
            self.kernel.Admission.enter(self.runs[name])
            self.under.append(name)

        self.begun += 1
        self.threads.append(threading.Thread(target=enter))
        self.threads[-1].start()
        within(30, lambda: len(self.under) + self.kernel.Admission.waiting() == self.begun)

    def end(self, name: str) -> None:
        self.kernel.Admission.leave(self.runs[name])

    def end_all(self) -> None:
        while any(t.is_alive() for t in self.threads):
            for name in self.runs:
                self.end(name)


@pytest.fixture
def runs(spark: SparkSession) -> Iterator[Runs]:
    kernel: Any = spark._jvm.org.apache.spark.sql.pgstream  # type: ignore[union-attr]
    runs = Runs(kernel)
    kernel.Admission.take(spark._jsc.sc())  # type: ignore[union-attr]
    yield runs
    runs.end_all()
    kernel.Admission.take(spark._jsc.sc())  # type: ignore[union-attr]


def test_in_order_and_no_more_than_there_are_places_for(runs: Runs) -> None:
    for name in "abcde":
        runs.begin(name)
    assert runs.under == list("abc")
    runs.end("b")
    runs.end("b")
    within(5, lambda: runs.under == list("abcd"))
    runs.begin("f")
    time.sleep(0.3)
    assert runs.under == list("abcd"), "what ends twice makes one place"
    runs.end("a")
    within(5, lambda: runs.under == list("abcde"))


def test_a_long_batch_keeps_none_out(runs: Runs) -> None:
    for name in "abcd":
        runs.begin(name)
    assert runs.under == list("abc")
    time.sleep(1.1)
    runs.kernel.Admission.look()
    within(5, lambda: runs.under == list("abcd"))
    runs.end("a")  # it was not counted any more
    for name in "efg":
        runs.begin(name)
    assert runs.under == list("abcdef")
