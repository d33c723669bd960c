"""The port of ``metrics_listen``: /metrics for Prometheus, /health and /ready for whoever starts and routes.

A small HTTP/1.1 server: GET and HEAD, one request a connection, nothing read but the request's line and ``Accept``.
Owns: that protocol, what *ready* means, asking all parts for their figures.
Must not know: a metric's name (``metrics``). Start reading at ``Observer``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

import structlog
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from pgstream.config import Config
from pgstream.engine.engine import DEFAULT
from pgstream.engine.lock import Holder
from pgstream.errors import ConfigurationError, PgStreamError
from pgstream.server import metrics
from pgstream.server.processes import Usage, usage

if TYPE_CHECKING:
    from pgstream.catalog.records import QueryRecord
    from pgstream.catalog.store import Catalog
    from pgstream.engine.engine import Engine
    from pgstream.server.listener import Listener
    from pgstream.server.workers import Workers

REQUEST_BYTES = 1 << 14
REQUEST_S = 5.0
CATALOGUE_S = 2.0
"""How long the catalogue may take to answer before it counts as not there."""
JSON, TEXT = "application/json", "text/plain; charset=utf-8"
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Answer:
    status: HTTPStatus
    kind: str
    body: bytes


class _Once(Collector):
    """Families that were made already."""

    def __init__(self, made: list[Metric]) -> None:
        self._made = made

    def collect(self) -> list[Metric]:
        return self._made


class Observer:
    """Answers from ``open`` on; says that the server is ready only after ``begin``."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._listener: Listener | None = None
        self._catalog: Catalog | None = None
        self._engine: Engine | None = None
        self._workers: Workers | None = None
        self._server: asyncio.Server | None = None
        self._stopping = False

    async def open(self) -> None:
        """Listen. Errors: ConfigurationError."""
        host, port = self._config.metrics_host_port
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=REQUEST_BYTES)
        except OSError as e:
            raise ConfigurationError(
                what=f'could not listen on "{self._config.metrics_listen}": {(e.strerror or str(e)).lower()}',
                hint="Stop what listens there, or choose another HOST:PORT with --metrics-listen.",
            ) from None
        log.info("metrics", host=host, port=self._server.sockets[0].getsockname()[1])

    def begin(self, listener: Listener, catalog: Catalog, engine: Engine, workers: Workers | None) -> None:
        """Clients are served from now on."""
        self._listener, self._catalog, self._engine, self._workers = listener, catalog, engine, workers

    def stopping(self) -> None:
        """Not ready any more: nobody should send clients here."""
        self._stopping = True

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    # HTTP

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
            line, *fields = head.decode("latin-1").split("\r\n")
            method, _, rest = line.partition(" ")
            accept = next((f.partition(":")[2].strip() for f in fields if f.lower().startswith("accept:")), "")
            answer = await self._answer(method, rest.partition(" ")[0].partition("?")[0], accept)
            writer.write(_head(answer) + (b"" if method == "HEAD" else answer.body))
            async with asyncio.timeout(REQUEST_S):
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # it says nothing, too much, or is gone
        except Exception as e:  # the request's edge
            log.error("request for figures failed", exc_info=e)
        finally:
            writer.close()

    async def _answer(self, method: str, path: str, accept: str) -> _Answer:
        if method not in ("GET", "HEAD"):
            return _Answer(HTTPStatus.METHOD_NOT_ALLOWED, TEXT, b"GET or HEAD\n")
        if path == "/health":
            return _Answer(HTTPStatus.OK, TEXT, b"ok\n")
        if path == "/ready":
            ready, why = await self._ready()
            status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
            return _Answer(status, JSON, json.dumps({"ready": ready, **why}).encode() + b"\n")
        if path == "/metrics":
            return await self._metrics(accept)
        return _Answer(HTTPStatus.NOT_FOUND, TEXT, b"/metrics, /health, /ready\n")

    async def _metrics(self, accept: str) -> _Answer:
        if self._listener is None:
            return _Answer(HTTPStatus.SERVICE_UNAVAILABLE, TEXT, b"the server is starting\n")
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Once(metrics.families(await self._look(self._listener))))
        encode, kind = choose_encoder(accept)
        return _Answer(HTTPStatus.OK, kind, encode(registry))

    # What there is to see

    async def _ready(self) -> tuple[bool, dict[str, str]]:
        """Whether clients are served, the catalogue answers, and some server has the default pool (or it is meant to
        be stopped).
        """
        if self._stopping or self._catalog is None or self._engine is None:
            return False, {"server": "stopping" if self._stopping else "starting"}
        accepts = self._workers is None or self._workers.is_listening
        catalogue = await _queries(self._catalog) is not None
        pool = next((p for p in self._engine.facts() if p.name == DEFAULT), None)
        holder = pool.holder if pool is not None else Holder.NOBODY
        stopped = not self._engine.wants(DEFAULT)
        why = {
            "server": "serving" if accepts else "no listener process",
            "catalogue": "up" if catalogue else "down",
            "default_pool": "stopped" if stopped else holder.value,
            "worker": pool.state if pool is not None else "stopped",
        }
        return accepts and catalogue and (stopped or holder is not Holder.NOBODY), why

    async def _look(self, listener: Listener) -> metrics.Seen:
        workers = self._workers
        pids = {"server": os.getpid()}
        if workers is not None:
            pids |= {f"listener {index}": pid for index, pid in workers.pids.items()}
        return metrics.Seen(
            (await self._ready())[0],
            self._config.max_connections,
            await workers.figures() if workers is not None else listener.figures(),
            workers.ends if workers is not None else 0,
            {name: used for name, pid in pids.items() if (used := usage(pid)) is not None},
            [await _organization(catalog, engine) for catalog, engine in self._parts(listener)],
        )

    def _parts(self, listener: Listener) -> list[tuple[Catalog, Engine]]:
        if self._workers is None:
            return [(each.catalog, each.engine) for each in listener.organizations]
        assert self._catalog is not None and self._engine is not None
        return [(self._catalog, self._engine)]


async def _organization(catalog: Catalog, engine: Engine) -> metrics.OfOrganization:
    pools = engine.facts()
    used: dict[str, Usage] = {}
    for pool in pools:
        if pool.pid is not None and (found := usage(pool.pid, group=True)) is not None:
            used[pool.name] = found
    return metrics.OfOrganization(catalog.snapshot.organization.name, await _queries(catalog), pools, used)


async def _queries(catalog: Catalog) -> list[QueryRecord] | None:
    """None: the catalogue does not answer."""
    with contextlib.suppress(PgStreamError, TimeoutError):
        async with asyncio.timeout(CATALOGUE_S):
            return await catalog.queries()
    return None


def _head(answer: _Answer) -> bytes:
    fields = f"Content-Type: {answer.kind}\r\nContent-Length: {len(answer.body)}\r\nConnection: close\r\n"
    return f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n{fields}\r\n".encode()
