"""PostgreSQL's privileges on schemas and on the views of relations, as the catalogue's grants say.

Owns: which PostgreSQL privileges stand for which of ours, and the comparison with what PostgreSQL has: only differences
are written, so ``heal`` may run it over everything. Databases have none here: the front door decides who enters one.
Must not know: who may grant. Start reading at ``settle``; ``wanted_of`` is the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import select

from pgstream.catalog import models, rows
from pgstream.catalog.postgres import WORKER, Connection, run
from pgstream.catalog.privileges import Access, Grant
from pgstream.catalog.records import RelationRecord, SchemaRecord
from pgstream.catalog.roles import pg_role
from pgstream.names import FullName
from pgstream.names import quote_always as q

if TYPE_CHECKING:
    from pgstream.catalog.store import Change

Entry = tuple[str, str, str]
"""PostgreSQL role, privilege, column (empty: the whole)."""
_IN_POSTGRES = {"schema": {"usage": "USAGE", "create": "CREATE"}, "relation": {"select": "SELECT"}}


def wanted_of(kind: str, owner: str, grants: Iterable[Grant]) -> set[Entry]:
    """What PostgreSQL should have for an object; its owner role has all, but cannot pass it on behind our back."""
    table = _IN_POSTGRES[kind]
    out = {(pg_role(owner), privilege, "") for privilege in table.values()}
    return out | {(pg_role(g.role), table[g.privilege], g.column) for g in grants if g.privilege in table}


async def apply(conn: Connection, kind: str, path: Sequence[str], wanted: set[Entry]) -> None:
    """Bring one object's privileges to what is wanted, inside the caller's transaction."""
    found = (await actual(conn, kind, path)).get(tuple(path))
    if found is not None:
        await run(conn, *_differences(kind, path, found, wanted))


def _differences(kind: str, path: Sequence[str], found: set[Entry], wanted: set[Entry]) -> list[str]:
    on = f"{'SCHEMA' if kind == 'schema' else 'TABLE'} {'.'.join(map(q, path))}"
    gone = found - wanted
    # Taking a privilege on the whole takes those on columns too, so what is wanted of these is given again.
    whole = {(role, privilege) for role, privilege, column in gone if not column}
    missing = {e for e in wanted if e not in found or e[:2] in whole}
    return [
        *(f"REVOKE {_what(privilege, column)} ON {on} FROM {q(role)}" for role, privilege, column in sorted(gone)),
        *(f"GRANT {_what(privilege, column)} ON {on} TO {q(role)}" for role, privilege, column in sorted(missing)),
    ]


def _what(privilege: str, column: str) -> str:
    return f"{privilege} ({q(column)})" if column else privilege


async def actual(conn: Connection, kind: str, path: Sequence[str] = ()) -> dict[tuple[str, ...], set[Entry]]:
    """What PostgreSQL has, by schema, or by schema and view; of one object, or of all that are ours."""
    only = "".join(f" AND {column} = %s" for column in ("n.nspname", "c.relname")[: len(path)])
    given = list(path) * _ASKED[kind].count("{only}")
    out: dict[tuple[str, ...], set[Entry]] = {}
    for *at, role, privilege, column in await (
        await conn.execute(_ASKED[kind].replace("{only}", only).encode(), given)
    ).fetchall():
        entries = out.setdefault(tuple(at), set())
        if role is not None:
            entries.add((role, privilege, column))
    return out


_ASKED = {
    "schema": f"""
SELECT n.nspname, CASE a.grantee WHEN 0 THEN 'public' ELSE pg_get_userbyid(a.grantee) END, a.privilege_type, ''
FROM pg_namespace n LEFT JOIN aclexplode(n.nspacl) a ON a.grantee NOT IN (n.nspowner, '{WORKER}'::regrole)
WHERE n.nspname !~ '^pg_|^information_schema$'{{only}}""",
    "relation": f"""
SELECT n.nspname, c.relname, pg_get_userbyid(a.grantee), a.privilege_type, ''
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN aclexplode(c.relacl) a ON a.grantee <> c.relowner
WHERE c.relkind IN ('r', 'v') AND n.nspname !~ '^pg_' AND c.relowner = '{WORKER}'::regrole{{only}}
UNION ALL
SELECT n.nspname, c.relname, pg_get_userbyid(a.grantee), a.privilege_type, t.attname
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute t ON t.attrelid = c.oid CROSS JOIN aclexplode(t.attacl) a
WHERE c.relkind IN ('r', 'v') AND n.nspname !~ '^pg_' AND c.relowner = '{WORKER}'::regrole{{only}}""",
}


async def heal(
    conn: Connection, schemas: Iterable[SchemaRecord], relations: Iterable[RelationRecord], access: Access
) -> list[str]:
    """Bring everything in a database to the grants: two reads, and a word for each difference. Says what it did."""
    views, spaces = await actual(conn, "relation"), await actual(conn, "schema")
    wrong: list[str] = []
    for s in schemas:
        wanted = wanted_of("schema", s.owner, access.on("schema", s.full_name))
        wrong += _differences("schema", [s.name], spaces.get((s.name,), wanted), wanted)
    for r in relations:
        wanted = wanted_of("relation", r.owner, access.on("relation", str(r.full)))
        path = (r.full.schema, r.full.name)
        wrong += _differences("relation", path, views.get(path, wanted), wanted)
    if wrong:
        async with conn.transaction():
            await run(conn, *wrong)
    return [f"privileges set again: {statement}" for statement in wrong]


async def settle(change: Change, objects: Iterable[tuple[str, str]]) -> None:
    """Bring PostgreSQL's privileges on these objects to the grants as they are now; committed after the catalogue."""
    for kind, name in sorted(objects):
        if kind not in _IN_POSTGRES:
            continue
        path = FullName.parse(name)
        owner = await _owner(change, kind, path)
        if owner is None:
            continue
        held = await change.session.scalars(
            select(models.GrantRow).where(models.GrantRow.kind == kind, models.GrantRow.name == name)
        )
        conn = await change.dropping(path[0])
        await apply(conn, kind, path[1:], wanted_of(kind, owner, [rows.grant(r) for r in held]))


async def _owner(change: Change, kind: str, path: tuple[str, ...]) -> str | None:
    if kind == "schema":
        row = await change.session.get(models.SchemaRow, path)
        return row.owner if row is not None else None
    r = models.RelationRow
    found: str | None = await change.session.scalar(
        select(r.owner).where(r.database == path[0], r.schema == path[1], r.name == path[2])
    )
    return found
