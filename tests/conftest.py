"""Shared fixtures. ``tests.datadriven`` reads the .test files; ``tests.server`` starts what they need."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from pgstream.errors import PgStreamError

pytest_plugins = ["tests.datadriven", "tests.server", "tests.flows", "tests.postgres"]

BEGAN = time.monotonic()
# What takes long here says something about the machine only.
settings.register_profile("pgstream", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pgstream")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The suite's closing line, by its name, into the file that the environment names: suites may run side by side."""
    if file := os.environ.get("PGSTREAM_CLOSING_LINES"):
        parts, _ = terminalreporter.build_summary_stats_line()
        counts = ", ".join(text for text, _ in parts)
        with Path(file).open("a") as f:
            f.write(f"{' '.join(config.args)}: {counts} in {time.monotonic() - BEGAN:.0f} s\n")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """An error of ours says why in its detail."""
    error = call.excinfo.value if call.excinfo else None
    if isinstance(error, PgStreamError) and error.detail and error.detail not in getattr(error, "__notes__", ()):
        error.add_note(error.detail)
    return (yield)
