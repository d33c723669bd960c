"""A Parse that was PostgreSQL's is known again, until the catalogue is another."""

from __future__ import annotations

from dataclasses import replace

from pgstream.catalog.records import Snapshot
from pgstream.server import settled
from pgstream.server.inbound import Inbound
from pgstream.server.settled import Settled
from tests.unit.server.test_shapes import Client, message

PARSE = message("P", b"\0SELECT * FROM s\0\0\0")


def test_a_text_is_looked_at_once_for_each_catalogue() -> None:
    client, asked = Client(), []

    def is_postgres(raw: bytes, snapshot: Snapshot) -> bool:
        asked.append((bytes(raw), snapshot))
        return True

    client.listener.language = replace(client.listener.language, is_postgres=is_postgres)
    inbound = Inbound(client)  # type: ignore[arg-type]
    first = client.listener.catalog.snapshot
    for _ in range(3):
        inbound.pump(PARSE)
    second = client.listener.catalog.snapshot = Snapshot()
    for _ in range(3):
        inbound.pump(PARSE)
    assert bytes(client.seen) == PARSE * 6
    assert [(text, s is first, s is second) for text, s in asked] == [
        (b"SELECT * FROM s", True, False),
        (b"SELECT * FROM s", False, True),
    ]


def test_few_and_short_ones_are_kept() -> None:
    kept, snapshot = Settled(), Snapshot()
    kept.add(b"x" * (settled.LONGEST + 1), snapshot)
    assert not kept.has(b"x" * (settled.LONGEST + 1), snapshot)
    for i in range(settled.KEPT + 1):
        kept.add(b"%d" % i, snapshot)
    assert not kept.has(b"0", snapshot) and kept.has(b"%d" % settled.KEPT, snapshot)
