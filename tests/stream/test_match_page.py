"""docs/match_recognize.md, run as it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server import Kafka, Server
from tests.stream.stores.test_tutorial import BLOCK, run

PAGE = Path(__file__).parents[2] / "docs" / "match_recognize.md"


@pytest.mark.stream
def test_the_page_is_true(server: Server, kafka: Kafka) -> None:
    with server.connect() as admin:
        admin.execute("CREATE DATABASE match_page")
    with server.connect("match_page") as c:
        for _, block, expected in BLOCK.findall(PAGE.read_text()):
            run(c, block.replace("localhost:9092", kafka.bootstrap), expected.strip())
        for query, *_ in c.execute("LIST QUERIES").fetchall():
            c.execute(f"TERMINATE QUERY {query}".encode())
