"""What a query that is over for good left in its stores, such as a replication slot, taken away by the server.

What its sources left, a worker that runs the query takes away itself (``SparkFace.forget``); ``leave`` is for the one
that no worker has: it failed when it began, or was ended while there was none. What its writers kept of its batches is
always the server's to take away (``unmark``). Owns: finding in its checkpoint and its plan what was left, and where.
Must not know: what that is. Start reading at ``leave``.
"""

from __future__ import annotations

import asyncio
import json
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


async def leave(catalog: Catalog, checkpoint: Path) -> None:
    """Take away what the sources of a checkpoint left. What cannot be had is left there, and the log says so."""
    for left in await asyncio.to_thread(_left, checkpoint):
        await _ask(catalog, left["store"], left, partial(_forget, left))


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


async def _ask(catalog: Catalog, store: str, what: object, take: Callable[[Admin], Awaitable[None]]) -> None:
    """Have a store take something away. Whatever it does, the others' turn comes, and the query's end."""
    record = catalog.snapshot.stores.get(store)
    if record is None:
        return
    try:
        admin = stores.open_admin(stores.find(record.type), store, await catalog.store_options(store))
        try:
            async with asyncio.timeout(_PATIENCE_S):  # each answer is in time, but there may be any number of them
                await take(admin)
        finally:
            await admin.close()
    except Exception as e:
        log.warning("left behind", store=store, what=what, why=_why(e))


def _why(e: Exception) -> str:
    return e.text if isinstance(e, PgStreamError) else f"{type(e).__name__}: {e}"


def _left(checkpoint: Path) -> list[dict[str, Any]]:
    out = []
    for file in sorted(checkpoint.glob(f"sources/*/{INTENT}")):
        try:
            found = json.loads(file.read_text())
        except (OSError, ValueError):
            continue  # not written to its end: then nothing was made
        if isinstance(found, dict) and "store" in found:
            out.append(found)
    return out
