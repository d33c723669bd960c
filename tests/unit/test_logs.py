"""Logs never stand in the way of what they tell of."""

from __future__ import annotations

import json
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


def test_a_line_and_its_end_are_one_write() -> None:
    """Several processes write into one log: what came between a line and its end would be in the line."""
    middle = (
        "import io, sys; wrote = []; sys.stderr = type('', (io.StringIO,), {'write': lambda _, s: wrote.append(s)})()"
    )
    code = "\n".join([BEFORE, middle, "log.info('a line'); log.info('b')", "print([w.count('\\n') for w in wrote])"])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[1, 1]\n"


def test_json_has_an_object_a_line_and_no_values_of_local_variables() -> None:
    code = "\n".join([
        "import structlog; from pgstream import logs; logs.configure('info', 'json'); log = structlog.get_logger()",
        "def fail(password): raise ValueError('it broke\\nin two lines')",
        "log.info('a \"line\"', path=__import__('pathlib').Path('x'), n=1)",
        "try: fail('s3cret')",
        "except ValueError as e: log.error('failed', exc_info=e)",
    ])  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = (json.loads(line) for line in done.stderr.splitlines())
    assert first.pop("timestamp").endswith("Z")
    assert first == {"event": 'a "line"', "level": "info", "path": "x", "n": 1}
    assert "ValueError: it broke\nin two lines" in second["exception"] and "s3cret" not in done.stderr
