"""Backend connections: opened at once or at the first message, and kept a moment for the next session of the same kind.

Owns: which sessions may wait with their connection (``lazy_backends``), the greetings that they are told meanwhile, and
the connections that wait for another session (``keep_backends_s``). Both only where PostgreSQL would surely let the
client in, and only between sessions alike in user, database and start-up parameters, while nothing that PostgreSQL
takes up when a connection begins has changed (``Admission.mark``).
Must not know: clients, messages relayed. Start reading at ``Backends.start``. Why both are off unless asked for:
``docs/decisions/0009-lazy-and-kept-backends.md``.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from pgstream.config import Config
from pgstream.errors import RelayedError
from pgstream.server.admission import Admission
from pgstream.server.ask import ask
from pgstream.server.backend import STATUS, Backend
from pgstream.server.connect import open_backend
from pgstream.server.reach import Address
from pgstream.wire import scram

GREETINGS = 256
"""Kinds of sessions whose greeting is remembered."""
MOST_KEPT = 32
"""Connections kept at once by all listener processes: fewer than those that the embedded PostgreSQL has beyond
max_connections.
"""
LONGEST_KEPT_S = 3
"""PostgreSQL waits five seconds for others to leave a database that is to be dropped, renamed or copied."""
RESET_S = 2
TOO_MANY = "53300"
log = structlog.get_logger(__name__)

Kind = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Pass:
    """With what a session came in. ``mark`` is empty when nothing may be assumed about other sessions."""

    parameters: Mapping[str, str]
    keys: scram.Keys | None
    mark: str

    @property
    def kind(self) -> Kind:
        return (*sorted(self.parameters.items()), ("", self.mark))


@dataclass(slots=True)
class _Kept:
    backend: Backend
    greeting: Sequence[bytes]
    timer: asyncio.TimerHandle | None = None


class Backends:
    """Of one process. ``start`` at a session's begin, ``finish`` at the first message if that gave no backend."""

    def __init__(self, config: Config, address: Address) -> None:
        self._address = address
        self._lazy = config.lazy_backends
        self._keep_s = min(config.keep_backends_s, LONGEST_KEPT_S)
        self._most_kept = MOST_KEPT // config.workers
        self._greetings: OrderedDict[Kind, Sequence[bytes]] = OrderedDict()
        self._kept: dict[Kind, list[_Kept]] = {}
        self._resetting: set[asyncio.Task[None]] = set()
        self._closed = False

    def admit(self, parameters: Mapping[str, str], keys: scram.Keys | None, admission: Admission) -> Pass:
        return Pass(parameters, keys, admission.mark if admission.sure else "")

    async def start(self, given: Pass) -> tuple[Backend | None, Sequence[bytes]]:
        """A backend and its greeting; no backend when it can wait. Errors: RelayedError as PostgreSQL worded it."""
        if given.mark and (kept := self._take(given.kind)) is not None:
            return kept.backend, kept.greeting
        if given.mark and self._lazy and (greeting := self._greetings.get(given.kind)) is not None:
            self._greetings.move_to_end(given.kind)
            return None, greeting
        return await self._open(given)

    async def finish(self, given: Pass, told: Sequence[bytes]) -> tuple[Backend, Sequence[bytes]]:
        """The backend of a session that was told a greeting, and what of that is no longer so. Errors: RelayedError."""
        kept = self._take(given.kind)
        backend, greeting = (kept.backend, kept.greeting) if kept is not None else await self._open(given)
        return backend, [message for message in greeting if message not in told]

    async def _open(self, given: Pass) -> tuple[Backend, Sequence[bytes]]:
        try:
            backend, greeting = await open_backend(self._address, given.parameters, given.keys)
        except RelayedError as e:
            if e.sqlstate != TOO_MANY or not self._kept:
                raise
            self.drop_kept()
            backend, greeting = await open_backend(self._address, given.parameters, given.keys)
        # With a notice or a warning in it a greeting is this connection's own.
        if given.mark and (self._lazy or self._keep_s) and all(message[0] == STATUS for message in greeting):
            self._greetings[given.kind] = greeting
            while len(self._greetings) > GREETINGS:
                self._greetings.popitem(last=False)
        return backend, greeting

    # Keeping

    def leave(self, backend: Backend, given: Pass | None) -> None:
        """A session ended. ``given`` None: its connection is not to be kept."""
        backend.client = None
        greeting = self._greetings.get(given.kind) if given is not None and given.mark and self._keep_s else None
        if given is None or greeting is None or self._closed or not backend.at_rest:
            backend.close()
            return
        task = asyncio.ensure_future(self._reset(backend, given.kind, greeting))
        self._resetting.add(task)
        task.add_done_callback(self._resetting.discard)

    async def _reset(self, backend: Backend, kind: Kind, greeting: Sequence[bytes]) -> None:
        try:
            async with asyncio.timeout(RESET_S):
                await ask(backend, "DISCARD ALL")
                await ask(backend, "RESET ROLE")  # to the one that it was opened with: DISCARD ALL leaves none
        except (RelayedError, TimeoutError):
            backend.close()
            return
        if self._closed or not backend.at_rest or sum(map(len, self._kept.values())) >= self._most_kept:
            backend.close()
            return
        kept = _Kept(backend, greeting)
        kept.timer = asyncio.get_running_loop().call_later(self._keep_s, self._expire, kind, kept)
        self._kept.setdefault(kind, []).append(kept)

    def _expire(self, kind: Kind, kept: _Kept) -> None:
        found = self._kept.get(kind, [])
        if kept in found:
            found.remove(kept)
            kept.backend.close()
        if not found:
            self._kept.pop(kind, None)

    def _take(self, kind: Kind) -> _Kept | None:
        """The connection kept last that is still there."""
        found = self._kept.get(kind, [])
        while found:
            kept = found.pop()
            if kept.timer is not None:
                kept.timer.cancel()
            if kept.backend.at_rest:
                return kept
            kept.backend.close()
        self._kept.pop(kind, None)
        return None

    def drop_kept(self) -> None:
        """Close what waits for another session."""
        for found in self._kept.values():
            for kept in found:
                if kept.timer is not None:
                    kept.timer.cancel()
                kept.backend.close()
        self._kept.clear()

    def close(self) -> None:
        self._closed = True
        self.drop_kept()
