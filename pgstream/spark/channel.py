"""The worker's end of the control channel: a blocking socket.

Owns: reading frames on a thread of its own, writing them under a lock, noticing that the server is gone.
Must not know: what the messages mean.
"""

from __future__ import annotations

import queue
import socket
import struct
import threading
from collections.abc import Callable

from pgstream.engine.channel import Event, Request, decode_request, encode


class Channel:
    """``requests`` holds what the server asked; ``gone`` is called, on the reading thread, at end of file."""

    def __init__(self, connection: socket.socket, gone: Callable[[], None]) -> None:
        self.connection = connection
        self.requests: queue.Queue[Request] = queue.Queue()
        self._gone = gone
        self._writing = threading.Lock()

    def start(self) -> None:
        threading.Thread(target=self._read, name="channel", daemon=True).start()

    def _read(self) -> None:
        try:
            while True:
                (length,) = struct.unpack(">I", self._exactly(4))
                self.requests.put(decode_request(self._exactly(length)))
        except (OSError, EOFError):
            self._gone()

    def _exactly(self, count: int) -> bytes:
        parts: list[bytes] = []
        while count:
            part = self.connection.recv(count)
            if not part:
                raise EOFError
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def send(self, event: Event) -> None:
        """Send one event; a server that is gone is noticed by the reader."""
        try:
            with self._writing:
                self.connection.sendall(encode(event))
        except OSError:
            return
