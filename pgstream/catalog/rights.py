"""Whether the role that owns a query may still do what the query does. Pure.

Owns: the privileges that a query of each kind rests on while it runs. Its statement asked for the same ones, and for
those of making something, when it was made (``statements.access``).
Must not know: who starts it. Start reading at ``lost``; ``Reading`` is the same of a client's SELECT.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pgstream.catalog.records import DEFAULT_ORGANIZATION, QueryRecord, Snapshot
from pgstream.errors import InsufficientPrivilege, PgStreamError, UndefinedRelation
from pgstream.names import FullName


def lost(snapshot: Snapshot, query: QueryRecord) -> str | None:
    """What is missing, in a sentence; None when the query may run."""
    missing = next(_missing(snapshot, query), None)
    return None if missing is None else f'role "{query.owner}" {missing}'


@dataclass(frozen=True, slots=True)
class Reading:
    """What lets a client read: a role that its login may work in, and relations, by their full names, that the role may
    read.
    """

    login: str
    role: str
    sources: Sequence[str]

    @classmethod
    def of(cls, snapshot: Snapshot, login: str, role: str, names: Sequence[str]) -> Reading:
        """As far as it is so now: what somebody may read for another reason is not taken away with it."""
        login = login if role in snapshot.access.usable(login) else ""
        seen = snapshot.seen_by(role)
        there = [n for n in names if _key(n) in snapshot.relations]
        return cls(login, role, [n for n in there if not list(_relation(snapshot, seen, role, "select", n))])

    def lost(self, snapshot: Snapshot) -> PgStreamError | None:
        """What is missing; None where it may go on."""
        if self.login and self.role not in snapshot.access.usable(self.login):
            return InsufficientPrivilege(kind="role", name=self.role, detail="It was taken while rows were read.")
        seen = snapshot.seen_by(self.role)
        for name in self.sources:
            if _key(name) not in snapshot.relations:
                return UndefinedRelation(name=name, detail="It was there when rows began to be read.")
            for missing in _relation(snapshot, seen, self.role, "select", name):
                detail = f'Role "{self.role}" {missing}, which it had when rows began to be read.'
                return InsufficientPrivilege(kind="relation", name=name, detail=detail)
        return None


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


def _key(name: str) -> tuple[str, str, str]:
    return FullName.read(name).key


def _relation(snapshot: Snapshot, seen: Snapshot, role: str, privilege: str, name: str) -> Iterator[str]:
    full = FullName.read(name)
    found = snapshot.relations.get(full.key)
    if found is None:
        return  # dropping it was refused, or it goes with the query: not a matter of rights
    if (full.database, full.schema) not in seen.schemas:
        yield f"does not have USAGE on schema {full.database}.{full.schema}"
    elif not snapshot.access.has(role, privilege, "relation", name, found.owner):
        yield f"does not have {privilege.upper()} on relation {name}"
