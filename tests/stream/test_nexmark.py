"""Nexmark's queries as materialized views over Kafka: each ends with what PostgreSQL answers over the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.nexmark import suite
from tests.nexmark.events import events
from tests.server import Kafka, Server, within

EVENTS = 4000


@pytest.fixture(scope="module")
def auctions(server: Server, kafka: Kafka) -> Iterator[psycopg.Connection[Any]]:
    """A session in a database of its own, with the streams, and the same rows in schema ``batch``."""
    made = list(events(EVENTS))
    suite.to_kafka(kafka, made)
    with server.connect() as c:
        c.execute("CREATE DATABASE nexmark")
    with server.connect("nexmark") as c:
        suite.streams(c, kafka.bootstrap)
        suite.to_postgresql(c, made, "batch")
        yield c


@pytest.mark.stream
@pytest.mark.parametrize("name", list(suite.queries()))
def test_a_view_is_the_batch_answer(name: str, auctions: psycopg.Connection[Any]) -> None:
    query = suite.queries()[name]
    wanted = suite.answer(auctions, query, "batch")
    assert wanted
    number = suite.start(auctions, query)
    try:
        within(60, lambda: suite.view(auctions, query) == wanted)
    except AssertionError:
        got = suite.view(auctions, query)
        raise AssertionError(f"missing {list(wanted - got)[:3]}, too many {list(got - wanted)[:3]}") from None
    finally:
        auctions.execute(f'TERMINATE QUERY "{number}"'.encode())
