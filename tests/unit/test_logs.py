"""Logs never stand in the way of what they tell of."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

BEFORE = "import structlog; from pgstream import logs; logs.configure('info'); log = structlog.get_logger()"
AFTER = "[log.info('a line', n=n) for n in range(3000)]; print('went on')"


def run(middle: str, stderr: int) -> str:
    code = "\n".join([BEFORE, middle, AFTER])
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=stderr, text=True, check=False)
    return done.stdout


def test_nobody_reads_the_log() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert run("", writer) == "went on\n"
    finally:
        os.close(writer)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a disk that is always full is Linux's")
def test_the_disk_is_full() -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        assert run("", full.fileno()) == "went on\n"


def test_standard_error_is_closed() -> None:
    assert run("import sys; sys.stderr.close()", subprocess.PIPE) == "went on\n"


def test_standard_error_is_another_one_later() -> None:
    middle = "import io, sys; sys.stderr = other = io.StringIO()"
    code = "\n".join([BEFORE, middle, "log.info('a line')", "print(other.getvalue())"])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "a line" in done.stdout and not done.stderr
