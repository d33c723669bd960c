"""Both ends of the link between a listener process and the server process, without the processes."""

from __future__ import annotations

import asyncio
import pickle
import socket
from dataclasses import replace
from typing import Any

from pgstream.catalog.delta import Delta, applied
from pgstream.catalog.store import Catalog
from pgstream.engine.channel import More, Stop
from pgstream.server.hosted import Host, Hosted
from pgstream.server.link import Ask, Link, Returned
from pgstream.server.remote import Mirror, Remote


class Ends:
    """A ``Remote`` and what answers it, in one process. ``open`` connects them."""

    def __init__(self, host: Host) -> None:
        self.far = Link(self._said, self._lost)
        self.remote: Remote
        self.near = Link(lambda message: self.remote.said(message), lambda: self.remote.lost())
        self.remote = Remote(self.near)
        self.host = host
        self.statements: dict[int, tuple[Hosted, asyncio.Task[Any]]] = {}

    async def open(self) -> None:
        a, b = socket.socketpair()
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: self.near, sock=a)
        await loop.create_unix_connection(lambda: self.far, sock=b)

    def mirror(self, catalog: Catalog) -> Mirror:
        """What the near end knows of the catalogue: a copy, which each change reaches over the link's bytes."""
        mirror = Mirror(pickle.loads(pickle.dumps(replace(catalog.snapshot))), catalog.mock_secret)

        async def spread(delta: Delta) -> None:
            mirror.snapshot = applied(mirror.snapshot, pickle.loads(pickle.dumps(delta)))

        catalog.spread = spread
        return mirror

    def close(self) -> None:
        self.near.close()
        self.far.close()

    def _said(self, message: Any) -> None:
        match message:
            case Ask():
                if len(self.statements) > 1000:  # of hours of fuzzing
                    self.statements = {i: (s, t) for i, (s, t) in self.statements.items() if not t.done()}
                statement = Hosted(self.host, self.far, message)
                self.statements[message.id] = statement, statement.begin()
            case Returned() if message.id in self.statements:
                self.statements[message.id][0].returned(message)
            case More() if int(message.query) in self.statements:
                self.statements[int(message.query)][0].more(message.credit)
            case Stop() if int(message.query) in self.statements:
                self.statements[int(message.query)][1].cancel()

    def _lost(self) -> None:
        pass
