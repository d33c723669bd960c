"""The server process: everything opened in order, the ready line, everything closed in order.

Owns: the order of start and stop, signals. On standard output exactly one line is written:
``ready postgresql://USER@HOST:PORT/DATABASE``.
Must not know: what each part does. Start reading at ``serve``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

import structlog

from pgstream import traces
from pgstream.config import Config
from pgstream.errors import ConfigurationError
from pgstream.server import encryption
from pgstream.server.admission import Admissions
from pgstream.server.hosted import Host
from pgstream.server.language import Language
from pgstream.server.link import Begin
from pgstream.server.listener import Listener
from pgstream.server.memory import settle
from pgstream.server.reach import Address
from pgstream.server.tls import open_tls
from pgstream.server.workers import Workers

if TYPE_CHECKING:
    from pgstream.embedded.postgres import Postgres
    from pgstream.server.observe import Observer

log = structlog.get_logger(__name__)


def ready_line(config: Config, host: str, port: int) -> str:
    """The line that scripts wait for."""
    shown = f"[{host}]" if ":" in host else host
    return f"ready postgresql://{quote(config.admin_user, safe='')}@{shown}:{port}/{quote(config.database, safe='')}"


async def serve(config: Config) -> None:
    """Run until SIGTERM or SIGINT. Errors: ConfigurationError when something keeps it from starting."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with contextlib.AsyncExitStack() as stack:
        opening = asyncio.ensure_future(_open(config, stack))
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait({opening, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not opening.done():
            log.info("stopped while starting")
            opening.cancel()
            await asyncio.wait({opening})
            return
        listener, reload = opening.result()
        loop.add_signal_handler(signal.SIGHUP, reload)
        await stopping
        log.info("stopping")
        await listener.close()
    log.info("stopped")


def _reload(listener: Listener, postgres: Postgres, workers: Workers | None) -> None:
    """Take certificates and the access table as they are now; a fault in them is logged, and nothing changes."""
    try:
        listener.reload()
        postgres.let_in(listener.access.without_password)
        listener.organizations.let_in()
        if workers is not None:
            workers.reload(listener.access)
    except ConfigurationError as e:
        log.error("not reloaded", why=e.text, hint=e.hint)
    else:
        log.info("certificates and access table reloaded")


async def _open(config: Config, stack: contextlib.AsyncExitStack) -> tuple[Listener, Callable[[], None]]:
    """Open every part; ``stack`` closes what was opened, last first. Gives what SIGHUP does, too."""
    from pgstream.catalog.store import Catalog
    from pgstream.embedded.postgres import open_postgres
    from pgstream.engine.engine import Engine

    if config.workers < 1 or (config.workers > 1 and not hasattr(os, "memfd_create")):
        raise ConfigurationError(what='setting "workers" must be 1, or more on Linux')
    traces.configure("server")
    stack.callback(traces.close)
    # Before anything is made: the first user's password is told only once. Clients that come early are told so.
    observer: Observer | None = None
    if config.metrics_listen:
        from pgstream.server.observe import Observer

        observer = Observer(config)
        await observer.open()
        stack.push_async_callback(observer.close)
    listener = Listener(config, tls=open_tls(config, config.data_dir, make=False))
    host, port = await listener.open()
    stack.push_async_callback(listener.close)
    postgres = await open_postgres(config, without_password=listener.access.without_password)
    stack.push_async_callback(postgres.stop)
    listener.tls = open_tls(config, config.data_dir)
    catalog = await Catalog.open(config, postgres.url, config.data_dir)
    stack.push_async_callback(catalog.close)
    if catalog.generated_password is not None:
        print(f'password of user "{config.admin_user}": {catalog.generated_password}', file=sys.stderr, flush=True)  # noqa: T201
    engine = Engine(config, catalog)
    stack.push_async_callback(engine.stop)
    await engine.start()
    await listener.organizations.open()
    address, language = Address(postgres.host, postgres.port, encryption.read(postgres.options)), Language.ours()
    workers: Workers | None = None
    if config.workers == 1:
        admissions = Admissions(catalog.control_url)
        listener.begin(catalog=catalog, engine=engine, address=address, admissions=admissions, language=language)
    else:
        told = replace(config, listen=f"{config.listen.rpartition(':')[0]}:{port}")
        workers = Workers(
            Host(config, catalog, engine, language),
            Begin(told, address, catalog.control_url, catalog.mock_secret, listener.access, catalog.snapshot),
        )
        catalog.spread = workers.changed
        stack.push_async_callback(workers.close)
        await workers.open()
        listener.hand_over()
    if observer is not None:
        observer.begin(listener, catalog, engine, workers)
        listener.on_close = observer.stopping
    settle()
    print(ready_line(config, host, port), flush=True)  # noqa: T201
    log.info("ready", host=host, port=port)
    return listener, partial(_reload, listener, postgres, workers)
