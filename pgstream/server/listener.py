"""The listening socket and what its sessions share.

Owns: the sessions there are, their cancel keys, the connection limit, the end of them all.
Must not know: messages. Start reading at ``Listener``.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from typing import TYPE_CHECKING

import structlog

from pgstream.config import Config
from pgstream.errors import ConfigurationError, ShuttingDown
from pgstream.server.connect import Address
from pgstream.server.executor import Executor, Here
from pgstream.server.language import Language
from pgstream.server.session import ClientSession

if TYPE_CHECKING:
    from pgstream.catalog.records import Snapshot
    from pgstream.catalog.store import Catalog
    from pgstream.engine.engine import Engine

log = structlog.get_logger(__name__)


class Listener:
    """Accepts clients. ``address`` is PostgreSQL's; ``tls`` the context and its channel binding."""

    def __init__(
        self,
        *,
        config: Config,
        catalog: Catalog,
        engine: Engine,
        address: Address,
        language: Language,
        tls: tuple[ssl.SSLContext, bytes] | None = None,
    ) -> None:
        self.config, self.catalog, self.engine = config, catalog, engine
        self.address, self.language = address, language
        self.executor: Executor = Here()
        self.tls = tls[0] if tls else None
        self.binding = tls[1] if tls else None
        self.secret = secrets.token_bytes(32)
        self.sessions: set[ClientSession] = set()
        self.keys: dict[tuple[int, bytes], ClientSession] = {}
        self.ending = False
        self._server: asyncio.Server | None = None

    @property
    def snapshot(self) -> Snapshot:
        return self.catalog.snapshot

    @property
    def full(self) -> bool:
        return len(self.keys) >= self.config.max_connections

    async def verifier(self, user: str) -> str | None:
        return await self.catalog.verifier(user)

    async def open(self) -> tuple[str, int]:
        """Begin to accept; gives host and port. Errors: ConfigurationError."""
        host, port = self.config.host_port
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: ClientSession(self), host, port, backlog=512)
        except OSError as e:
            raise ConfigurationError(what=f'could not listen on "{self.config.listen}": {e.strerror}') from None
        return host, self._server.sockets[0].getsockname()[1]

    async def cancel(self, pid: int, key: bytes) -> None:
        session = self.keys.get((pid, key))
        if session is not None:
            await session.cancel()

    async def close(self) -> None:
        """Refuse new clients; end idle sessions now and busy ones after the grace."""
        self.ending = True
        if self._server is not None:
            self._server.close()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.config.shutdown_grace_s
        while self.sessions:
            late = loop.time() >= deadline
            for session in list(self.sessions):
                if late or not session.is_busy:
                    session.end(ShuttingDown())
            if late and loop.time() >= deadline + 2:
                break  # a client that takes no bytes; the process ends it
            await asyncio.sleep(0.02)
        log.info("sessions ended")
