"""Plans as requests to the worker: with the stores and databases that they name, in clear.

Owns: which stores and databases a plan needs, and where its checkpoint lies. Secrets are put in here, at the last
moment, and nowhere else. Must not know: when a query runs. Start reading at ``start``.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgstream.catalog import kinds
from pgstream.catalog.ledger import NOTIFY
from pgstream.catalog.records import QueryRecord
from pgstream.catalog.roles import pg_role
from pgstream.catalog.store import Catalog
from pgstream.engine.channel import Descriptor, Reader, Start, StoreAccess
from pgstream.errors import EngineUnavailable, NotReady, UndefinedStore
from pgstream.formats import protobuf, registry
from pgstream.names import FullName, beside, view_log
from pgstream.planner.plan import (
    Plan,
    RecordSink,
    Source,
    TableSink,
    ViewSink,
    load,
    lookups,
    outputs,
    sources,
    view_sources,
)


@dataclass(frozen=True, slots=True)
class Limits:
    """A moment of a query: by topic and partition the first ``offsets`` that do not count, and the watermark in ms that
    event time does not pass (``channel.Start``).
    """

    offsets: dict[str, dict[int, int]]
    ceiling_ms: int


def stores_of(plan: Plan) -> set[str]:
    """Every store that a plan reads or writes."""
    found = {s.store for s in sources(plan.root)} | {s.bad_record_store for s in sources(plan.root)}
    found |= {s.store for _, s in outputs(plan) if isinstance(s, (RecordSink, TableSink))}
    found |= {n.store for n in lookups(plan.root) if n.store}
    return {name for name in found if name is not None}


async def _access(catalog: Catalog, plan: Plan) -> dict[str, StoreAccess]:
    found = {}
    for name in stores_of(plan):
        record = catalog.snapshot.stores.get(name)
        if record is None:
            raise UndefinedStore(name=name)
        options = await catalog.store_options(name)
        messages = {d: await descriptor(catalog, d) for d in _descriptors(plan, name)}
        found[name] = StoreAccess(name, record.type, options, await _registry(catalog, options), messages)
    return found


def _descriptors(plan: Plan, store: str) -> set[str]:
    """The Protobuf messages of a store's entities that a plan names."""
    sides: list[Source | RecordSink] = [s for s in sources(plan.root) if s.store == store]
    sides += [s for _, s in outputs(plan) if isinstance(s, RecordSink) and s.store == store]
    return {d for s in sides for d in (s.value_descriptor, s.key_descriptor) if d is not None}


async def descriptor(catalog: Catalog, name: str) -> Descriptor:
    """The message ``source.message`` with the files that describe it. Errors: UndefinedObject, UnusableSchema."""
    source, _, message = name.partition(".")
    for (_, kind, of), record in catalog.snapshot.objects.items():
        if kind == "descriptor_source" and of == source:
            files = base64.b64decode((await catalog.inventory.secrets(record))["file"])
            return Descriptor(base64.b64encode(protobuf.pruned(files, message)).decode(), message)
    raise kinds.missing("descriptor_source", source)


async def _registry(catalog: Catalog, options: Mapping[str, str]) -> str:
    """The connection of a store's schema registry, in clear; empty when it has none."""
    name = options.get("schema_registry.name")
    for (_, kind, of), record in catalog.snapshot.objects.items():
        if kind == "schema_registry" and of == name:
            return registry.java(record.name, {**record.options, **await catalog.inventory.secrets(record)})
    return ""


def checkpoint(root: str, query: str) -> str:
    """The folder, or URL, in which a query keeps its place and state. ``root``: that of all."""
    return f"{root}/{query}"


def on_disk(root: str, query: str) -> Path | None:
    """The same as a folder; None: it is a URL, which only the worker reaches."""
    return None if "://" in root else Path(root) / query


def _databases(catalog: Catalog, plan: Plan) -> dict[str, str]:
    """Those of the views that a query keeps, and of the views whose changes it reads."""
    names = {s.database for s in view_sources(plan.root)}
    names |= {s.database for _, s in outputs(plan) if isinstance(s, ViewSink)}
    return {name: catalog.worker_url(name) for name in names}


async def _readers(catalog: Catalog, plan: Plan, role: str) -> dict[str, Reader]:
    """Those in which a query looks something up, with the rights of its role."""
    names = sorted({n.database for n in lookups(plan.root) if not n.store})
    return {name: Reader(await catalog.reader_url(name, role), pg_role(role)) for name in names}


async def start(catalog: Catalog, record: QueryRecord, attempt: int, root: str) -> Start:
    """Errors: ValueError for a plan of a newer version, NotReady, UndefinedStore, and those of the catalogue;
    EngineUnavailable where another server kept the query's place.
    """
    plan = load(record.plan)
    folder = on_disk(root, record.id)
    if folder is not None and "batch" in record.progress and not await asyncio.to_thread(folder.exists):
        # From the first record on again, sinks would take for written already what was never written.
        raise EngineUnavailable(
            why=f"the query's checkpoint is not in {root}",
            hint="Setting checkpoint_dir is to be a folder that every server on this PostgreSQL reaches.",
        )
    await check_logs(catalog, record, plan)
    return Start(
        query=record.id,
        attempt=attempt,
        plan=record.plan,
        stores=await _access(catalog, plan),
        databases=_databases(catalog, plan),
        checkpoint=checkpoint(root, record.id),
        settings=dict(record.settings),
        name=record.name,
        readers=await _readers(catalog, plan, record.owner),
        **_view(catalog, record, plan),
    )


def _view(catalog: Catalog, record: QueryRecord, plan: Plan) -> dict[str, Any]:
    """Where the query of a view writes, and whom it tells, by view: nobody, while it fills a table beside the view."""
    notify, table = {}, ""
    for _, sink in outputs(plan):
        if not isinstance(sink, ViewSink):
            continue
        full = FullName.read(sink.relation)
        view = catalog.snapshot.relations.get((full.database, full.schema, full.name))
        if view is None:
            continue
        if view.query != record.id:
            table = beside(record.id)
        elif NOTIFY in view.properties:
            notify[sink.relation] = view.properties[NOTIFY]
    return {"notify": notify, "beside": table}


async def check_logs(catalog: Catalog, record: QueryRecord, plan: Plan, at: int | None = None) -> None:
    """NotReady where changes of a view that the query had still to read are gone: it could not go on where it was."""
    wanted = {view_log(record.id, s.view): s.relation for s in view_sources(plan.root)}
    if wanted and (lost := sorted(wanted[log] for log in wanted.keys() - (await catalog.view_logs(record)).keys())):
        raise NotReady(
            what=f"changes of {', '.join(lost)} that the query had still to read were given up",
            at=at,
            hint="TERMINATE QUERY ends it; DROP what it made and create it again to begin with the view's rows.",
        )


async def start_result(catalog: Catalog, query: str, plan: Plan, role: str) -> Start:
    """A role's interactive SELECT: no checkpoint that outlives it."""
    readers = await _readers(catalog, plan, role)
    return Start(query=query, attempt=1, plan=plan.json(), stores=await _access(catalog, plan), readers=readers)


async def start_beside(catalog: Catalog, query: str, plan: Plan, table: str, limits: Limits) -> Start:
    """A view's query once more, for a statement: into a table beside the view, of nothing beyond ``limits``."""
    return Start(
        query=query, attempt=1, plan=plan.json(), stores=await _access(catalog, plan),
        databases=_databases(catalog, plan), beside=table, limits=limits.offsets,
        ceiling_ms=limits.ceiling_ms,
    )  # fmt: skip
