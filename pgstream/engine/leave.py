"""What a query that is over for good left in its stores, such as a replication slot, taken away by the server.

A worker that runs the query does it itself (``SparkFace.forget``); this is for the one that no worker has: it failed
when it began, or was ended while there was none. Owns: finding in its checkpoint what was left.
Must not know: what that is. Start reading at ``leave``.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import structlog

from pgstream import stores
from pgstream.catalog.store import Catalog
from pgstream.errors import PgStreamError
from pgstream.stores.spec import Leaving

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
        except PgStreamError as e:
            log.warning("left behind", store=record.name, what=left, why=e.text)


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
