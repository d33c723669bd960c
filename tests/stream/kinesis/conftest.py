"""A Kinesis for the run, and one whose shards end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.aws import Aws, resharding, serving


@pytest.fixture(scope="session")
def aws() -> Iterator[Aws]:
    with serving() as served:
        yield served
        assert not any(served.faults.values()), "every fault was met"


@pytest.fixture(scope="session")
def splitting(workspace: Path) -> Iterator[Aws]:
    with resharding(workspace) as served:
        yield served
