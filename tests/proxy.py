"""A way to a server that can be cut: bytes go through it until it is told otherwise.

``Proxy`` is threads of this process. Owns: its sockets. Start reading at ``Proxy``.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Iterator


class Proxy:
    """``close_all`` ends the connections that there are; ``hold`` lets no byte through, without a word, until ``open``.

    ``cut_after``: bytes that coming connections let through, both ways together, before they end; a number of each is
    drawn below it.
    """

    def __init__(self, port: int, seed: int = 1) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.cut_after = 0
        self.cuts = 0
        self._rng = random.Random(seed)
        self._open = threading.Event()
        self._open.set()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def close_all(self) -> None:
        for pair in list(self._pairs):
            self._end(pair)

    def close(self) -> None:
        self._listener.close()
        self.open()
        self.close_all()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        self._open.wait()
        try:
            far = socket.create_connection(("127.0.0.1", self._to))
        except OSError:
            near.close()
            return
        pair = near, far
        self._pairs.add(pair)
        left = [self._rng.randrange(self.cut_after)] if self.cut_after else []
        for a, b in (pair, pair[::-1]):
            threading.Thread(target=self._carry, args=(a, b, pair, left), daemon=True).start()

    def _carry(
        self, a: socket.socket, b: socket.socket, pair: tuple[socket.socket, socket.socket], left: list[int]
    ) -> None:
        with contextlib.suppress(OSError):
            while data := a.recv(65536):
                self._open.wait()
                if left:
                    b.sendall(data[: left[0]])
                    left[0] -= min(left[0], len(data))
                    if left[0] == 0:
                        self.cuts += 1
                        break
                else:
                    b.sendall(data)
        self._end(pair)

    def _end(self, pair: tuple[socket.socket, socket.socket]) -> None:
        self._pairs.discard(pair)
        for s in pair:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
            s.close()


@contextlib.contextmanager
def proxy(port: int) -> Iterator[Proxy]:
    p = Proxy(port)
    try:
        yield p
    finally:
        p.close()
