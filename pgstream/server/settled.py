"""Messages that have been found to be PostgreSQL's: drivers send the like of them again and again.

A Parse is known when it is the same, a Query when it differs in the digits of its numbers only: clients of the simple
protocol write their values into the text.

Owns: the messages, for the catalogue's snapshot of the moment; shared by all sessions of a process. Only what depends
on nothing but the text and the snapshot is kept here. Must not know: how a text is judged (``Inbound``).
Start reading at ``Settled.known``.
"""

from __future__ import annotations

import string
import weakref

from pgstream.catalog.records import Snapshot
from pgstream.server.native import Native

LONGEST = 1024
"""Bytes of a message that is kept."""
KEPT = 4000
"""Messages; with more of them all are forgotten, which costs each its next look."""

QUOTE = ord("'")
# A zero for each digit: numbers of as many digits are alike, and each stands where it stood.
_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_LETTERS = (string.ascii_letters + "_").encode()
_KINDS = bytes.maketrans(_LETTERS + b'0123456789"`$\\', b"a" * len(_LETTERS) + b"0" * 10 + b"'" * 4)


def query_key(message: bytes) -> bytes | None:
    """What a Query has in common with those that differ in digits; None: it has values in quotes, and none is like it.

    Its length field is to be looked at, too.
    """
    return None if QUOTE in message else message.translate(_ZEROS)


def has_numbers_only(text: bytes | bytearray) -> bool:
    """Whether all digits of a text stand in numbers, outside of names and of quotes of all kinds, for other digits
    may make another name of them.
    """
    kinds = text.translate(_KINDS).decode("latin-1")  # a str is searched in a fifth of the time
    return not ("'" in kinds or "a0" in kinds or "0a" in kinds)


class Settled:
    """Whole messages: of a Parse as it is, with the statement's name and its parameters' types, of a Query the key.

    ``handle``: the same ones where compiled code finds them, if there is any.
    """

    def __init__(self, native: Native | None = None) -> None:
        self.snapshot: Snapshot | None = None
        self._messages: set[bytes] = set()
        self._native = native
        self.handle: int | None = None
        if native is not None:
            self.handle = native.new_settled()
            weakref.finalize(self, native.free_settled, self.handle)

    def known(self, snapshot: Snapshot) -> set[bytes]:
        """Those that are settled as long as the catalogue is this one."""
        if self.snapshot is not snapshot:
            self.snapshot = snapshot
            self._forget()
        return self._messages

    def _forget(self) -> None:
        self._messages = set()
        if self._native is not None:
            self._native.forget(self.handle)

    def add(self, message: bytes, snapshot: Snapshot) -> None:
        if len(self.known(snapshot)) >= KEPT:
            self._forget()
        if len(message) <= LONGEST:
            self._messages.add(message)
            if self._native is not None:
                self._native.settle(self.handle, message, len(message))
