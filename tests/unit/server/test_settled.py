"""A Parse or Query that was PostgreSQL's is known again, until the catalogue is another."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgstream import statements
from pgstream.catalog.records import Snapshot
from pgstream.server import settled
from pgstream.server.inbound import Inbound
from pgstream.server.settled import Settled
from pgstream.statements import glance
from tests.unit.server.test_shapes import Client, message
from tests.unit.statements.snapshots import SNAPSHOT, session

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


def query(text: bytes) -> bytes:
    return message("Q", text + b"\0")


def test_a_query_is_known_by_what_its_numbers_leave() -> None:
    client, asked = Client(), []

    def is_postgres(raw: bytes, snapshot: Snapshot) -> bool:
        asked.append(bytes(raw))
        return True

    client.listener.language = replace(client.listener.language, is_postgres=is_postgres)
    inbound = Inbound(client)  # type: ignore[arg-type]
    texts = [b"SELECT 12", b"SELECT 98", b"SELECT 123", b"SELECT a FROM s1", b"SELECT a FROM s2", b"SELECT '1'"]
    for text in texts * 2:
        inbound.pump(query(text))
    assert bytes(client.seen) == b"".join(query(text) for text in texts * 2)
    assert list(client.flight.pending) == [ord("Q")] * len(texts) * 2
    assert asked == [b"SELECT 12", b"SELECT 123", *texts[3:], *texts[3:]]


def test_a_known_query_is_walked_where_its_length_says_otherwise() -> None:
    """A length field is no number: one that makes two messages of the same bytes is not like one that does not."""
    client = Client()
    inbound = Inbound(client)  # type: ignore[arg-type]
    whole = query(b"SELECT 1" + b" " * 43)
    assert whole[4:5] == b"8"
    inbound.pump(whole)
    client.seen.clear()
    inbound.pump(whole[:4] + b"9" + whole[5:])  # a byte more is to come
    assert not client.seen and inbound.waiting


def test_a_query_behind_messages_without_sync_is_not_taken_for_a_known_one() -> None:
    client = Client()
    inbound = Inbound(client)  # type: ignore[arg-type]
    inbound.pump(query(b"SELECT 1"))
    client.flight.open = 1
    inbound.pump(query(b"SELECT 2"))
    assert client.held


PIECES = ["SELECT", " ", " 1", "1", "22", "s", "pageviews", "s1", "FROM", ",", "-", '"', "'", "(", ".", "\n", "e", "$1"]
MANY = st.lists(st.sampled_from(PIECES), max_size=9).map(lambda parts: "SELECT " + "".join(parts))


@given(MANY, st.text("0123456789", min_size=30, max_size=30))
def test_other_digits_change_nothing_where_all_stand_in_numbers(text: str, digits: str) -> None:
    if not (glance.is_postgres(text.encode(), SNAPSHOT) and settled.has_numbers_only(text.encode())):
        return
    more = iter(digits)
    other = re.sub("[0-9]", lambda _: next(more), text)
    assert settled.query_key(other.encode()) == settled.query_key(text.encode())
    assert statements.recognize(other, SNAPSHOT, session()) is None


@pytest.mark.parametrize("text", [b"a1", b"1a", b'"1"', b"'1'", b"$1", b"`1`", b"E\\1"])
def test_digits_of_names_and_quotes_are_no_numbers(text: bytes) -> None:
    assert not settled.has_numbers_only(text)


def test_few_and_short_ones_are_kept() -> None:
    kept, snapshot = Settled(), Snapshot()
    kept.add(b"x" * (settled.LONGEST + 1), snapshot)
    assert not kept.known(snapshot)
    for i in range(settled.KEPT + 1):
        kept.add(b"%d" % i, snapshot)
    assert kept.known(snapshot) == {b"%d" % settled.KEPT}
    assert not kept.known(Snapshot())
