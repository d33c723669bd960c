"""Organizations of a stopped server: which there are, and taking one away with all that it holds.

Owns: who stands in the way, and the order that a crash may interrupt: without its name a folder is no organization, and
the next start removes what is left of it. Must not know: sessions, a running server. Start reading at ``drop``.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from pgstream.catalog import kinds
from pgstream.catalog.databases import says
from pgstream.catalog.records import Snapshot
from pgstream.config import Config
from pgstream.embedded.datadir import DataDir
from pgstream.errors import DependentsExist
from pgstream.server.organizations import folders, inside


def names(config: Config) -> dict[str, Path]:
    """The organizations after the first, and where they lie."""
    return {(folder / "name").read_text().rstrip("\n"): folder for folder in folders(config)}


def drop(config: Config, name: str, *, cascade: bool) -> None:
    """Errors: ConfigurationError while the server runs, UndefinedObject, DependentsExist for one that holds relations
    or stores; ``cascade`` takes them too. Their topics stay.
    """
    with DataDir.claim(config.data_dir):
        folder = names(config).get(name)
        if folder is None:
            raise kinds.missing("organization", name)
        if not cascade:
            _check_empty(asyncio.run(_snapshot(inside(config, folder))), name)
        (folder / "name").unlink()
        shutil.rmtree(folder)


async def _snapshot(config: Config) -> Snapshot:
    from pgstream.catalog.store import Catalog
    from pgstream.embedded.postgres import open_postgres

    postgres = await open_postgres(config)
    try:
        catalog = await Catalog.open(config, postgres.url, config.data_dir, first_user=False)
        await catalog.close()
        return catalog.snapshot
    finally:
        await postgres.stop()


def _check_empty(snapshot: Snapshot, name: str) -> None:
    relations = [("relation", str(r.full)) for r in snapshot.relations.values()]
    stores = [("store", s) for s in snapshot.stores]
    hint = "Add --cascade to drop them too; the topics in the stores stay."
    if relations:
        raise DependentsExist(
            kind="organization", name=name, users=relations, says=says(relations), bare=True, hint=hint
        )
    if stores:
        raise DependentsExist(kind="organization", name=name, users=stores, says="It holds", hint=hint)
