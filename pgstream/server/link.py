"""The link between the server process and one of its listener processes: messages and frames.

Owns: every message that crosses, and the frames (4-byte big-endian length, then a pickle). Both ends are this program,
of one version, and the link is a socket pair that only the two hold; it carries the program's own values as they are.
Must not know: what is done about a message. ``workers`` and ``hosted`` are the server's end, ``worker`` and ``remote``
the listener's. Start reading at the messages.
"""

from __future__ import annotations

import asyncio
import pickle
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from pgstream.catalog.delta import Delta
from pgstream.catalog.records import Snapshot
from pgstream.config import Config
from pgstream.engine.channel import More, Stop
from pgstream.errors import PgStreamError
from pgstream.server.access import Access
from pgstream.server.counts import Figures
from pgstream.server.reach import Address
from pgstream.statements.base import Column, Result, Session, Statement, TextRow

# Server → listener


@dataclass(frozen=True, slots=True)
class Begin:
    """The first message: what the process needs to listen. ``admissions`` is a connection URL, ``access`` the table as
    it was last read: one that was edited since does not hold yet.
    """

    config: Config
    address: Address
    admissions: str = field(repr=False)
    mock_secret: bytes = field(repr=False)
    access: Access
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Changed:
    """The catalogue has changed; answered by Seen once statements are recognized by it."""

    number: int
    delta: Delta


@dataclass(frozen=True, slots=True)
class Call:
    """A running statement calls a function of its context. Without a ``number`` it waits for no answer."""

    id: int
    number: int | None
    name: str
    args: tuple[Any, ...]
    more: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """A statement's columns, or its result, whose rows follow as Rows when it ``streams``."""

    id: int
    session: Session
    columns: tuple[Column, ...] = ()
    result: Result | None = None
    streams: bool = False


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a streaming result, and what they cost of the credit (``engine.results``)."""

    id: int
    rows: Sequence[TextRow]
    cost: int


@dataclass(frozen=True, slots=True)
class Denied:
    """A statement's client may not read its rows any more, nor those that have crossed already."""

    id: int
    error: PgStreamError


@dataclass(frozen=True, slots=True)
class Over:
    """A statement failed, or its rows have ended: with ``error`` or well."""

    id: int
    session: Session
    error: PgStreamError | None


@dataclass(frozen=True, slots=True)
class Reload:
    """Read certificates anew; ``access`` is the table."""

    access: Access


@dataclass(frozen=True, slots=True)
class Count:
    """What have you counted? Answered by Counted."""

    number: int


@dataclass(frozen=True, slots=True)
class End:
    """Close the listener after its grace and end."""


# Listener → server


@dataclass(frozen=True, slots=True)
class Listening:
    """Clients are accepted."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Answer to Changed."""

    number: int


@dataclass(frozen=True, slots=True)
class Ask:
    """Describe or run a statement of ours. ``trace``: the span that it is part of (``traces.carried``)."""

    id: int
    describe: bool
    text: str
    kind: type[Statement]
    session: Session
    parameters: Sequence[str | None]
    oids: Sequence[int]
    trace: str = ""


@dataclass(frozen=True, slots=True)
class Returned:
    """Answer to Call."""

    id: int
    number: int
    session: Session
    value: Any
    error: PgStreamError | None


@dataclass(frozen=True, slots=True)
class Counted:
    """Answer to Count."""

    number: int
    figures: Figures


# Both ways


@dataclass(frozen=True, slots=True)
class Cancel:
    """Does a session of yours have this key? If so end what it runs. Answered by Canceled.

    With a ``user`` in place of the key: has a session of that user's this process id, and runs a statement of ours?
    """

    number: int
    pid: int
    key: bytes = field(default=b"", repr=False)
    user: str = ""


@dataclass(frozen=True, slots=True)
class Canceled:
    """Answer to Cancel: whether there was such a session."""

    number: int
    found: bool


ToListener = Begin | Changed | Call | Answer | Rows | Denied | Over | Reload | Count | End | Cancel | Canceled
ToServer = Listening | Seen | Counted | Ask | Returned | More | Stop | Cancel | Canceled


def encode(message: ToListener | ToServer) -> bytes:
    """A message as one frame."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return struct.pack(">I", len(body)) + body


class Link(asyncio.Protocol):
    """One end. ``said`` hears each message, ``lost`` the end of the link."""

    def __init__(self, said: Callable[[Any], None], lost: Callable[[], None]) -> None:
        self._said, self._lost = said, lost
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._lost()

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        while len(buffer) >= 4 and len(buffer) >= 4 + (size := int.from_bytes(buffer[:4], "big")):
            body = bytes(buffer[4 : 4 + size])
            del buffer[: 4 + size]
            self._said(pickle.loads(body))  # noqa: S301  # from our own other half

    def send(self, message: ToListener | ToServer) -> None:
        """To an end that is gone it is lost, as its loss tells."""
        self.write(encode(message))

    def write(self, frame: bytes) -> None:
        if self._transport is not None:
            self._transport.write(frame)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def carried(session: Session) -> Session:
    """A session as it crosses: its cursors stay with its client, and no statement that is run elsewhere uses them."""
    return replace(session, cursors={})


def adopt(mine: Session, theirs: Session) -> None:
    """Take over what the other end has done to a session."""
    for name in Session.__dataclass_fields__:
        if name != "cursors":
            setattr(mine, name, getattr(theirs, name))
