"""What a query that is over for good left in its stores, such as a replication slot, taken away by the server.

What its sources left, a worker that runs the query takes away itself (``SparkFace.forget``); ``leave`` is for the one
that no worker has: it failed when it began, or was ended while there was none, or its worker could not reach the
store. A store that is away is asked again until it is there (``Leftovers``). What its writers kept of its batches is
always the server's to take away (``unmark``). Owns: finding in its checkpoint and its plan what was left, and where.
Must not know: what that is. Start reading at ``leave``.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import structlog

from pgstream import stores
from pgstream.catalog.records import QueryRecord
from pgstream.catalog.store import Catalog
from pgstream.errors import PgStreamError
from pgstream.planner.plan import Plan, RecordSink, load, outputs, sources
from pgstream.stores.spec import Admin, Leaving, Marking

log = structlog.get_logger(__name__)
_PATIENCE_S = 60
INTENT = "intent"
"""The file in a source's folder of the checkpoint: a JSON object with ``store``, the store's name."""
LEFT = "left"
"""The folder among the checkpoints with a copy of each such file whose store could not be asked, in a folder of each
organization: those of one server may share the checkpoints, and do not know each other's stores.
"""
PAUSE_S = 10.0


async def leave(catalog: Catalog, checkpoint: Path) -> None:
    """Take away what the sources of a checkpoint left. What cannot be had now is remembered, and the log says so."""
    for file, left in await asyncio.to_thread(_left, checkpoint, f"sources/*/{INTENT}"):
        if not await _ask(catalog, left["store"], left, partial(_forget, left)):
            kept = _remembered(catalog, checkpoint.parent) / f"{checkpoint.name}-{file.parent.name}.json"
            try:
                await asyncio.to_thread(_remember, file, kept)
            except OSError as e:  # a full disk gets room by what the query's end takes away
                log.warning("what is left behind could not be remembered", what=left, why=str(e))


class Leftovers:
    """What stores that were away have kept of queries that are over, taken away when they are there again.

    ``checkpoints``: the folder of all; a URL, which only workers reach, remembers nothing.
    """

    def __init__(self, catalog: Catalog, checkpoints: Path | None) -> None:
        self._catalog, self._checkpoints = catalog, checkpoints
        self._next = 0.0

    async def look(self) -> None:
        """Ask each store once, when it is time to look again; of one that is still away the rest waits, too."""
        now = asyncio.get_running_loop().time()
        if self._checkpoints is None or now < self._next:
            return
        away = set[str]()
        for file, left in await asyncio.to_thread(_left, _remembered(self._catalog, self._checkpoints), "*.json"):
            store = left["store"]
            if store in away:
                continue
            if store not in self._catalog.snapshot.stores:
                log.warning("left behind for good, the store is dropped", store=store, what=left)
                await asyncio.to_thread(file.unlink, missing_ok=True)
                continue
            try:
                await _take(self._catalog, store, partial(_forget, left))
            except Exception as e:
                log.debug("still left behind", store=store, what=left, why=_why(e))
                away.add(store)
            else:
                log.info("taken away at last", store=store, what=left)
                await asyncio.to_thread(file.unlink, missing_ok=True)
        self._next = asyncio.get_running_loop().time() + PAUSE_S


async def leave_own(catalog: Catalog, query: str, plan: Plan) -> None:
    """The same of a query that lasts as long as its statement, whose checkpoint went with its worker."""
    for store, entity in sorted({(s.store, s.entity) for s in sources(plan.root)}):
        record = catalog.snapshot.stores.get(store)
        if record is not None and stores.find(record.type).leaves:
            await _ask(catalog, store, f"what is query {query}'s", partial(_forget_own, query, entity))


async def unmark(catalog: Catalog, record: QueryRecord) -> None:
    """Take away what the query's writers kept in the stores that it wrote into. What cannot be had is left there, and
    the log says so.
    """
    try:
        plan = load(record.plan)
    except ValueError:
        return  # of a newer version
    written = {s.store for _, s in outputs(plan) if isinstance(s, RecordSink)}
    written |= {s.bad_record_store for s in sources(plan.root) if s.bad_record_store is not None}
    for name in sorted(written):
        store = catalog.snapshot.stores.get(name)
        if store is not None and stores.find(store.type).marks:
            await _ask(catalog, name, f"groups of query {record.id}", lambda a: cast(Marking, a).unmark(record.id))


async def _forget(left: Mapping[str, Any], admin: Admin) -> None:
    await cast(Leaving, admin).forget(left)


async def _forget_own(query: str, entity: str, admin: Admin) -> None:
    await cast(Leaving, admin).forget_own(query, entity)


async def _ask(catalog: Catalog, store: str, what: object, take: Callable[[Admin], Awaitable[None]]) -> bool:
    """Have a store take something away, and whether it did. Whatever it does, the others' turn comes, and the query's
    end.
    """
    try:
        await _take(catalog, store, take)
    except Exception as e:
        log.warning("left behind", store=store, what=what, why=_why(e))
        return False
    return True


async def _take(catalog: Catalog, store: str, take: Callable[[Admin], Awaitable[None]]) -> None:
    record = catalog.snapshot.stores.get(store)
    if record is None:
        return
    admin = stores.open_admin(stores.find(record.type), store, await catalog.store_options(store))
    try:
        async with asyncio.timeout(_PATIENCE_S):  # each answer is in time, but there may be any number of them
            await take(admin)
    finally:
        await admin.close()


def _why(e: Exception) -> str:
    return e.text if isinstance(e, PgStreamError) else f"{type(e).__name__}: {e}"


def _left(folder: Path, pattern: str) -> list[tuple[Path, dict[str, Any]]]:
    out = []
    for file in sorted(folder.glob(pattern)):
        try:
            found = json.loads(file.read_text())
        except (OSError, ValueError):
            continue  # not written to its end: then nothing was made
        if isinstance(found, dict) and "store" in found:
            out.append((file, found))
    return out


def _remembered(catalog: Catalog, checkpoints: Path) -> Path:
    return checkpoints / LEFT / catalog.snapshot.organization.id


def _remember(file: Path, kept: Path) -> None:
    """In one step: what is read half would be taken for nothing."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    written = kept.with_suffix(".new")
    written.write_bytes(file.read_bytes())
    os.replace(written, kept)
