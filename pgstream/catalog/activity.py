"""What a session sees in ``pg_stat_activity``: everything of its own login, as in PostgreSQL.

PostgreSQL asks whether the role in force has the rights of the login that a backend belongs to. A session works in a
role, and a login's rights are no role's: not even the session's own statement would be shown. So in databases of ours
the view takes the rows of the session's own login from a function that has the right to see them.
Owns: that view and that function. Must not know: which roles there are (``sysadmin`` sees all by a right of
PostgreSQL's). Start reading at ``ensure``.
"""

from __future__ import annotations

from pgstream.catalog.postgres import DEFINER, OVERSIGHT, Connection, run

_FUNCTION = "pg_catalog.pgstream_own_activity"
_IS_SHOWN = "SELECT pg_get_viewdef('pg_stat_activity'::regclass) LIKE '%pgstream_own_activity%'"
_IS_THERE = f"""
SELECT prosrc, prosecdef, proconfig, pg_get_userbyid(proowner) FROM pg_proc WHERE oid = to_regproc('{_FUNCTION}')"""
# The columns are those of this version of PostgreSQL: its own view and function say which.
_PARTS = """
SELECT pg_get_viewdef('pg_stat_activity'::regclass), pg_get_function_arguments('pg_stat_get_activity'::regproc)"""
_ALL = "pg_stat_get_activity(NULL::integer) s("
_MINE = "(SELECT oid FROM pg_catalog.pg_roles WHERE rolname = session_user)"
_ROWS = f"""(SELECT * FROM pg_stat_get_activity(NULL::integer) a WHERE a.usesysid IS DISTINCT FROM {_MINE}
UNION ALL SELECT * FROM {_FUNCTION}(NULL)) s("""
_BODY = f"SELECT * FROM pg_catalog.pg_stat_get_activity($1) a WHERE a.usesysid = {_MINE}"


async def ensure(conn: Connection) -> None:
    """Make both in this database; run again it changes nothing. A view that is not as PostgreSQL made it stays so."""
    shown = await (await conn.execute(_IS_SHOWN.encode())).fetchone() == (True,)
    there = await (await conn.execute(_IS_THERE.encode())).fetchone() == (_BODY, True, [DEFINER], OVERSIGHT)
    if shown and there:
        return
    view, arguments = await (await conn.execute(_PARTS.encode())).fetchone() or ("", "")
    if not shown and view.count(_ALL) != 1:
        return
    async with conn.transaction():
        await run(
            conn,
            "SET LOCAL allow_system_table_mods = on",
            f"CREATE OR REPLACE FUNCTION {_FUNCTION}({arguments}) RETURNS SETOF record LANGUAGE sql STABLE"
            f" SECURITY DEFINER SET {DEFINER} AS $${_BODY}$$",
            # It runs with the right that it needs, and no other.
            f"ALTER FUNCTION {_FUNCTION} OWNER TO {OVERSIGHT}",
        )
        if not shown:
            await run(conn, f"CREATE OR REPLACE VIEW pg_catalog.pg_stat_activity AS {view.replace(_ALL, _ROWS)}")
