"""Whether the role that owns a query may still do what the query does. Pure.

Owns: the privileges that a query of each kind rests on while it runs. Its statement asked for the same ones, and for
those of making something, when it was made (``statements.access``).
Must not know: who starts it. Start reading at ``lost``.
"""

from __future__ import annotations

from collections.abc import Iterator

from pgstream.catalog.records import DEFAULT_ORGANIZATION, QueryRecord, Snapshot
from pgstream.names import FullName


def lost(snapshot: Snapshot, query: QueryRecord) -> str | None:
    """What is missing, in a sentence; None when the query may run."""
    missing = next(_missing(snapshot, query), None)
    return None if missing is None else f'role "{query.owner}" {missing}'


def _missing(snapshot: Snapshot, query: QueryRecord) -> Iterator[str]:
    role, access, seen = query.owner, snapshot.access, snapshot.seen_by(query.owner)
    if not access.manages(role, "create_query"):
        yield "does not have CREATE_QUERY on the organization"
    for name in query.sources:
        yield from _relation(snapshot, seen, role, "select", name)
    for name in query.sinks:
        yield from _relation(snapshot, seen, role, "insert", name)
    pool = snapshot.objects.get((DEFAULT_ORGANIZATION, "compute_pool", query.pool))
    if pool is not None and not access.has(role, "usage", "compute_pool", pool.name, pool.owner):
        yield f"does not have USAGE on compute pool {pool.name}"


def _relation(snapshot: Snapshot, seen: Snapshot, role: str, privilege: str, name: str) -> Iterator[str]:
    full = FullName.read(name)
    key = full.database, full.schema, full.name
    found = snapshot.relations.get(key)
    if found is None:
        return  # dropping it was refused, or it goes with the query: not a matter of rights
    if (full.database, full.schema) not in seen.schemas:
        yield f"does not have USAGE on schema {full.database}.{full.schema}"
    elif not snapshot.access.has(role, privilege, "relation", name, found.owner):
        yield f"does not have {privilege.upper()} on relation {name}"
