"""The account of what PostgreSQL owes: every order in which requests and answers may cross."""

from __future__ import annotations

import asyncio
import socket

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from pgstream.server.backend import Backend
from pgstream.server.flight import BLOCK, IDLE, QUERY, SYNC, Flight


def test_query():
    flight = Flight()
    assert flight.caught_up
    flight.sent(QUERY)
    assert not flight.caught_up
    flight.ready(BLOCK)
    assert flight.caught_up and flight.status == BLOCK


def test_unsynced_messages():
    flight = Flight()
    flight.open += 3
    flight.answered += 2
    assert not flight.caught_up
    flight.answered += 1
    assert flight.caught_up
    flight.sent(SYNC)
    assert not flight.caught_up
    flight.ready(IDLE)
    assert flight.caught_up


def test_error_ends_a_group():
    flight = Flight()
    flight.open += 3
    flight.error()
    assert flight.caught_up and flight.failed
    flight.sent(SYNC)
    flight.ready(IDLE)
    assert not flight.failed


def test_pipelined_groups():
    flight = Flight()
    for _ in range(2):
        flight.open += 3
        flight.sent(SYNC)
    flight.ready(IDLE)
    assert not flight.caught_up
    flight.ready(IDLE)
    assert flight.caught_up


def test_copy_by_query():
    flight = Flight()
    flight.sent(QUERY)
    flight.copy_in()
    flight.sent(SYNC)  # ignored while copying
    flight.copy_ended()
    assert not flight.caught_up
    flight.ready(IDLE)
    assert flight.caught_up


def test_copy_by_execute_with_a_sync_ahead():
    # libpq sends Sync right behind Execute; PostgreSQL ignores it once it wants COPY data; a second Sync ends it.
    flight = Flight()
    flight.open += 3
    flight.sent(SYNC)
    flight.answered += 2
    flight.copy_in()
    assert not flight.caught_up
    flight.copy_ended()
    flight.sent(SYNC)
    flight.answered += 1
    flight.ready(IDLE)
    assert flight.caught_up


def test_copy_data_sent_before_it_was_asked_for():
    flight = Flight()
    flight.open += 3
    flight.sent(SYNC)
    flight.copy_ended()
    flight.sent(SYNC)
    flight.copy_in()
    assert not flight.caught_up
    flight.ready(IDLE)
    assert flight.caught_up


def test_what_comes_after_a_copy_sent_ahead_waits_for_its_answer():
    flight = Flight()
    flight.open += 3
    flight.sent(SYNC)  # ignored by the COPY
    flight.copy_ended()
    flight.answered += 2
    flight.copy_in()
    assert not flight.caught_up
    flight.answered += 1
    assert flight.caught_up and not flight.copying
    flight.open += 1
    assert not flight.caught_up
    flight.sent(SYNC)
    flight.answered += 1
    flight.ready(IDLE)
    assert flight.caught_up


async def test_who_waits_while_copy_data_is_wanted_waits_for_nothing():
    flight = Flight()
    flight.open += 3
    flight.copy_in()
    assert not flight.caught_up and flight.wait().done()


def test_copy_that_failed_before_its_end_was_sent():
    flight = Flight()
    flight.sent(QUERY)
    flight.copy_in()
    flight.error()
    flight.copy_ended()
    flight.ready(IDLE)
    assert flight.caught_up
    flight.copy_ended()
    flight.sent(QUERY)
    flight.ready(IDLE)
    assert flight.caught_up


def test_ends_of_a_copy_that_there_is_none():
    """PostgreSQL ignores them: what comes later is not ended by them."""
    flight = Flight()
    flight.sent(QUERY)
    flight.copy_ended()
    flight.sent(QUERY)
    flight.ready(IDLE)
    flight.copy_in()
    assert flight.copying
    flight.copy_ended()
    flight.ready(IDLE)
    assert flight.caught_up
    flight.open += 1
    flight.copy_ended()
    flight.answered += 1
    assert flight.caught_up
    flight.caught_up_with()
    flight.sent(QUERY)
    flight.copy_in()
    assert flight.copying and not flight.caught_up


def test_copy_by_query_after_messages_of_a_pipeline():
    flight = Flight()
    flight.sent(QUERY)
    flight.copy_ended()  # sent ahead
    flight.open += 3
    flight.copy_ended()  # of the Execute
    flight.sent(SYNC)
    flight.copy_in()
    assert not flight.copying
    flight.ready(IDLE)
    flight.answered += 2
    flight.copy_in()
    assert not flight.copying


class Client:
    def __init__(self) -> None:
        self.got, self.statuses = b"", []
        self.alert = True
        self.relayed = self.rounds = self.errors = 0

    def write(self, data: bytes) -> None:
        self.got += data

    def ready(self, status: int) -> None:
        self.statuses.append(status)

    def backend_lost(self, backend: Backend) -> None:
        self.lost = backend


def encode(kind: int, payload: bytes) -> bytes:
    return bytes((kind,)) + (len(payload) + 4).to_bytes(4, "big") + payload


STREAM = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(b"DTCN12S"), st.binary(max_size=20)),
        st.tuples(st.just(ord("Z")), st.sampled_from([b"I", b"T", b"E"])),
    ),
    max_size=20,
)


@given(STREAM, st.data())
def test_relay_frames_any_split(stream, data):
    """Relayed or taken: the bytes come through whole. The client's own ReadyForQuery are told, not those taken."""
    raw = b"".join(encode(*m) for m in stream)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    take = data.draw(st.booleans())
    client = asyncio.run(_relay(raw, cuts, take))
    assert client.got == raw
    assert client.statuses == ([] if take else [payload[0] for kind, payload in stream if kind == ord("Z")])
    if not take:
        kinds = [kind for kind, _ in stream]
        assert (client.relayed, client.rounds, client.errors) == (
            len(raw),
            kinds.count(ord("Z")),
            kinds.count(ord("E")),
        )


async def _relay(raw: bytes, cuts: list[int], take: bool) -> Client:
    backend, client = Backend(), Client()
    backend.client = client
    if take:
        backend.take(lambda kind, message: client.write(message))
    for begin, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        backend.data_received(raw[begin:end])
    return client


@pytest.mark.parametrize("value, encoding", [(b"LATIN1\0", "LATIN1"), (b"\0", ""), (b"", ""), (b"\xff\0", "\ufffd")])
async def test_encodings_are_read_whatever_they_are(value: bytes, encoding: str) -> None:
    backend, client = Backend(), Client()
    backend.client = client
    raw = encode(ord("S"), b"client_encoding\0" + value) + encode(ord("Z"), b"I")
    backend.data_received(raw)
    assert (backend.encoding, client.got, client.rounds) == (encoding, raw, 1)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_last_words_of_a_backend_are_read(loop) -> None:
    """PostgreSQL says why, and hangs up, while something is being written to it."""
    fatal = encode(ord("E"), b"SFATAL\0C57P01\0\0")

    async def lose() -> bytes:
        ours, theirs = socket.socketpair()
        backend, client = Backend(), Client()
        backend.client = client
        await asyncio.get_running_loop().create_connection(lambda: backend, sock=ours)
        theirs.send(fatal)
        theirs.close()
        backend.write(b"S\0\0\0\4")
        await backend.closed
        return client.got

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(lose()) == fatal
