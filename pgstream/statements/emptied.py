"""DROP SCHEMA in a client's transaction: the schema is emptied in that transaction, and goes when it has committed.

Another connection would wait for what the client's own transaction has locked, and PostgreSQL cannot see that deadlock.
Until its end the empty schema stands in ``pg_namespace``; the session takes it for gone.
Owns: emptying it. Must not know: how the transaction ends (``settle``). Start reading at ``empty``.
"""

from __future__ import annotations

import json

from pgstream.catalog.databases import says
from pgstream.catalog.records import Snapshot
from pgstream.errors import DependentsExist
from pgstream.names import quote_anywhere
from pgstream.statements.base import Context

# Asked in the client's session, as ``undecided``: operators say where they are, too. One of another client's that fits
# better than PostgreSQL's would run with the rights of whoever drops the schema.
_INSIDE = """
    FROM pg_catalog.pg_depend d
    WHERE d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_namespace'::pg_catalog.regclass
        AND d.deptype OPERATOR(pg_catalog.=) 'n' AND d.refobjid OPERATOR(pg_catalog.=) (
            SELECT n.oid FROM pg_catalog.pg_namespace n WHERE n.nspname OPERATOR(pg_catalog.=) {name})"""
_LISTED = f"""
SELECT pg_catalog.string_agg(pg_catalog.concat(pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid),
    ' depends on schema ', {{name}}), E'\\n' ORDER BY d.classid, d.objid){_INSIDE}"""
_CASCADES = f"""
SELECT pg_catalog.json_agg(pg_catalog.concat('drop cascades to ',
    pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid)) ORDER BY d.classid, d.objid){_INSIDE}"""
# What depends on something else in the schema may be gone with it, and so has no identity any more.
_EMPTIED = f"""
DECLARE
    inside pg_catalog.record;
    object pg_catalog.record;
BEGIN
    FOR inside IN SELECT d.classid, d.objid{_INSIDE} ORDER BY d.classid, d.objid LOOP
        SELECT * INTO object FROM pg_catalog.pg_identify_object(inside.classid, inside.objid, 0);
        IF object.identity IS NOT NULL THEN
            EXECUTE pg_catalog.format('DROP %s %s CASCADE', CASE
                WHEN object.type OPERATOR(pg_catalog.=) 'composite type' THEN 'type'
                WHEN object.type OPERATOR(pg_catalog.=) 'statistics object' THEN 'statistics'
                ELSE object.type END, object.identity);
        END IF;
    END LOOP;
END"""


async def empty(ctx: Context, name: str, *, cascade: bool, at: int | None) -> None:
    """Have the session's role drop what PostgreSQL has in a schema. Errors: DependentsExist, PostgreSQL's."""
    if holds := _relations(ctx.catalog.snapshot, ctx.session.database, name):
        raise DependentsExist(kind="schema", name=name, users=holds, says=says(holds), bare=True, at=at)
    given = {"name": quote_anywhere(name)}
    if cascade:
        going = json.loads(await ctx.postgres(_CASCADES.format(**given)) or "[]")
        await ctx.postgres(f"DO {quote_anywhere(_EMPTIED.format(**given))}")
        _tell(ctx, going)
    elif inside := await ctx.postgres(_LISTED.format(**given)):
        raise DependentsExist(kind="schema", name=name, detail=inside, at=at)


def _tell(ctx: Context, going: list[str]) -> None:
    """As PostgreSQL words it."""
    if len(going) == 1:
        ctx.notice(going[0])
    elif going:
        ctx.notice(f"drop cascades to {len(going)} other objects", detail="\n".join(going))


def _relations(snapshot: Snapshot, database: str, schema: str) -> list[tuple[str, str]]:
    full = (r.full for r in snapshot.relations.values())
    found = sorted(str(name) for name in full if (name.database, name.schema) == (database, schema))
    return [("relation", name) for name in found]
