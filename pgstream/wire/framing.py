"""Framing: bytes from a peer to whole messages.

Owns: the length prefix, the start-up exception to it (no type byte), the size limits.
Must not know: sockets, SQL, sessions, what a message means. Feed it bytes, take messages.
Start reading at ``Framer.next``.
"""

from __future__ import annotations

import struct

from pgstream.errors import NoStartUp, ProtocolViolation

STARTUP_LIMIT = 10_004
"""PostgreSQL's MAX_STARTUP_PACKET_LENGTH, and the length itself."""
MESSAGE_LIMIT = 0x3FFFFFFF
"""PostgreSQL's limit of a large message: one gigabyte less one."""
SMALL_LIMIT = 10_000
"""PostgreSQL's limit of the messages that are never large (PQ_SMALL_MESSAGE_LIMIT)."""

SASL_LIMIT = 1024
"""PostgreSQL's PG_MAX_SASL_MESSAGE_LENGTH: nobody is known yet, so nobody may send much."""
SASL = ord("p")

LARGE = frozenset(b"QPBFd")
"""Types of client messages that may be large."""
KNOWN = frozenset(b"QPBDECSHXFdcfp")
"""Types of client messages."""

header = struct.Struct(">BI").unpack_from
"""Type and length (which counts itself, not the type byte) at an offset."""


def check_client_header(kind: int, length: int) -> None:
    """Raise ProtocolViolation unless a client message may begin so; ``length`` counts itself."""
    if kind not in KNOWN:
        raise ProtocolViolation(what=f"invalid frontend message type {kind}")
    if length < 4 or length > (MESSAGE_LIMIT if kind in LARGE else SMALL_LIMIT):
        raise ProtocolViolation(what="invalid message length")


def check_sasl_header(kind: int, length: int) -> None:
    """The same before a client is authenticated: only answers to our SASL messages, and short ones."""
    if kind != SASL:
        raise ProtocolViolation(what=f"expected SASL response, got message type {kind}")
    if length < 4 or length > SASL_LIMIT:
        raise ProtocolViolation(what="invalid message length")


class Framer:
    """Cuts a client's byte stream into ``(type, payload)``; a start-up packet has type 0."""

    def __init__(self, *, startup: bool = False) -> None:
        self._buffer = bytearray()
        self._startup = startup
        self._check = check_client_header

    def __len__(self) -> int:
        """Bytes that wait."""
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def peek(self, n: int) -> bytes:
        """The first ``n`` bytes that wait, or as many as there are."""
        return bytes(self._buffer[:n])

    def take(self, n: int) -> bytes:
        """Take ``n`` bytes that are no message: what comes before the protocol begins."""
        taken = bytes(self._buffer[:n])
        del self._buffer[:n]
        return taken

    def typed(self) -> None:
        """From now on messages have a type byte and are SASL: the start-up packet has been read."""
        self._startup = False
        self._check = check_sasl_header

    def next(self) -> tuple[int, bytes] | None:
        """The next whole message, or None until more bytes come.

        Errors: ProtocolViolation, NoStartUp at a bad header.
        """
        buffer = self._buffer
        if self._startup:
            if len(buffer) < 4:
                return None
            length, skip, kind = int.from_bytes(buffer[:4], "big"), 0, 0
            if length < 8 or length > STARTUP_LIMIT:
                raise NoStartUp()
        else:
            if len(buffer) < 5:
                return None
            kind, length = header(buffer)
            skip = 1
            self._check(kind, length)
        end = length + skip
        if len(buffer) < end:
            return None
        payload = bytes(buffer[4 + skip : end])
        del buffer[:end]
        return kind, payload

    @property
    def held(self) -> bytes:
        """What was fed and not yet returned as messages."""
        return bytes(self._buffer)

    def rest(self) -> bytes:
        """Take what was fed and not yet returned as messages."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest
