"""One door a test run, with a real PostgreSQL behind."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.pg.door import double
from tests.pg.door.raw import Wire


@pytest.fixture(scope="session")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[double.Door]:
    door = double.start(tmp_path_factory.mktemp("door"))
    yield door
    door.stop()


@pytest.fixture
def conn(door: double.Door) -> Iterator[psycopg.Connection]:
    with psycopg.connect(door.url, autocommit=True) as conn:
        yield conn


@pytest.fixture
def wire(door: double.Door) -> Iterator[Wire]:
    with Wire(door.port, door.USER, door.PASSWORD) as wire:
        yield wire
