"""What is done while the server is stopped: repair, and organizations listed or taken away with all that they hold.

Owns: who stands in the way of a removal, and the order that a crash may interrupt: without its name a folder is no
organization, and the next start removes what is left of it.
Must not know: sessions, a running server. Start reading at ``repair`` and ``drop``.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from pgstream.catalog import kinds
from pgstream.catalog.databases import says
from pgstream.catalog.records import Snapshot
from pgstream.catalog.store import Catalog
from pgstream.config import Config
from pgstream.embedded.datadir import DataDir
from pgstream.embedded.postgres import open_postgres
from pgstream.errors import DependentsExist
from pgstream.server.organizations import folders, inside


def names(config: Config) -> dict[str, Path]:
    """The organizations after the first, and where they lie."""
    return {(folder / "name").read_text().rstrip("\n"): folder for folder in folders(config)}


def repair(config: Config) -> list[str]:
    """What a start does to the catalogues before clients come in, without clients; in sentences."""
    repaired = asyncio.run(_catalog(config, first_user=True)).repaired
    for name, folder in names(config).items():
        found = asyncio.run(_catalog(inside(config, folder), first_user=False)).repaired
        repaired += [f"organization {name}: {words}" for words in found]
    return repaired


def drop(config: Config, name: str, *, cascade: bool) -> None:
    """Errors: ConfigurationError while the server runs, UndefinedObject, DependentsExist for one that holds relations
    or stores; ``cascade`` takes them too. Their topics stay.
    """
    with DataDir.claim(config.data_dir):
        folder = names(config).get(name)
        if folder is None:
            raise kinds.missing("organization", name)
        if not cascade:
            _check_empty(asyncio.run(_catalog(inside(config, folder), first_user=False)).snapshot, name)
        (folder / "name").unlink()
        shutil.rmtree(folder)


async def _catalog(config: Config, *, first_user: bool) -> Catalog:
    """The catalogue as the next start finds it, healed; closed again, and so is PostgreSQL."""
    postgres = await open_postgres(config)
    try:
        catalog = await Catalog.open(config, postgres.url, config.data_dir, first_user=first_user)
        await catalog.close()
        return catalog
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
