"""What a query that is over for good left in its stores, such as a replication slot, taken away by the server.

What its sources left, a worker that runs the query takes away itself (``SparkFace.forget``); ``leave`` is for the one
that no worker has: it failed when it began, or was ended while there was none. What its writers kept of its batches is
always the server's to take away (``unmark``). Owns: finding in its checkpoint and its plan what was left, and where.
Must not know: what that is. Start reading at ``leave``.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import structlog

from pgstream import stores
from pgstream.catalog.records import QueryRecord
from pgstream.catalog.store import Catalog
from pgstream.errors import PgStreamError
from pgstream.planner.plan import RecordSink, load, outputs, sources
from pgstream.stores.spec import Leaving, Marking

log = structlog.get_logger(__name__)
INTENT = "intent"
"""The file in a source's folder of the checkpoint: a JSON object with ``store``, the store's name."""


async def leave(catalog: Catalog, checkpoint: Path) -> None:
    """Take away what the sources of a checkpoint left. What cannot be had is left there, and the log says so."""
    for left in await asyncio.to_thread(_left, checkpoint):
        record = catalog.snapshot.stores.get(left["store"])
        if record is None:
            continue
        try:
            admin = stores.open_admin(stores.find(record.type), record.name, await catalog.store_options(record.name))
            try:
                await cast(Leaving, admin).forget(left)
            finally:
                await admin.close()
        except Exception as e:  # whatever one store does, the others' turn comes, and the query's end
            log.warning("left behind", store=record.name, what=left, why=_why(e))


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
        if store is None or not stores.find(store.type).marks:
            continue
        try:
            admin = stores.open_admin(stores.find(store.type), name, await catalog.store_options(name))
            try:
                await cast(Marking, admin).unmark(record.id)
            finally:
                await admin.close()
        except Exception as e:
            log.warning("left behind", store=name, what=f"groups of query {record.id}", why=_why(e))


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
