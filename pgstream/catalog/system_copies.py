"""Copies of the system tables in the databases where they are read: a table of rows, and a view for each system table.

PostgreSQL reads its own database only, so each that is asked for ``deltastream.sys`` once gets a copy, and keeps it
current from then on (docs/decisions/0020). A view shows the rows that one of the reader's roles sees.
Owns: schema ``pg_deltastream``, the table behind it, and writing what has changed. A copy that cannot be written does
not fail the change that it follows: it is written whole the next time.
Must not know: what a row says (``system_tables``). Start reading at ``SystemCopies.settle``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable

import structlog

from pgstream.catalog.databases import STATE
from pgstream.catalog.postgres import WORKER, Administrator, Connection, run
from pgstream.catalog.system_tables import TABLES, Key, Rows
from pgstream.errors import PgStreamError
from pgstream.names import quote_literal

SCHEMA = "pg_deltastream"
"""A name of PostgreSQL's own kind, as ``STATE`` has one: it stays out of listings, trees and dumps."""
_TABLE = f"{STATE}.system"
_HELD = "(SELECT array_agg(rolname::text) FROM pg_roles WHERE pg_has_role(current_user, oid, 'USAGE'))"
_PUT = f"""
INSERT INTO {_TABLE} SELECT * FROM jsonb_to_recordset(%s::jsonb) AS r(of text, key text, roles text[], facts jsonb)
ON CONFLICT (of, key) DO UPDATE SET roles = EXCLUDED.roles, facts = EXCLUDED.facts
WHERE (system.roles, system.facts) IS DISTINCT FROM (EXCLUDED.roles, EXCLUDED.facts)"""
_DROP = f"DELETE FROM {_TABLE} USING jsonb_to_recordset(%s::jsonb) AS r(o text, k text) WHERE of = r.o AND key = r.k"
TURN = "SELECT pg_advisory_xact_lock(hashtextextended('pgstream:system', 0))"
"""In the control database."""
log = structlog.get_logger(__name__)


def _view(name: str) -> list[str]:
    table = TABLES[name]
    within = f" AND {table.within}" if table.within else ""
    rows = "jsonb_to_recordset" if table.many else "jsonb_to_record"
    # security_barrier: a function of the reader's own is not shown rows that the reader may not see.
    return [
        f"CREATE OR REPLACE VIEW {SCHEMA}.{name} WITH (security_barrier) AS SELECT r.* FROM {_TABLE} s"
        f" CROSS JOIN LATERAL {rows}(s.facts) AS r({table.columns})"
        f" WHERE s.of = {quote_literal(name)} AND s.roles && {_HELD}{within}",
        f"ALTER VIEW {SCHEMA}.{name} OWNER TO {WORKER}",
        f"GRANT SELECT ON {SCHEMA}.{name} TO PUBLIC",
        f"COMMENT ON VIEW {SCHEMA}.{name} IS {quote_literal(table.say)}",
    ]


def _statements() -> list[str]:
    return [
        "SET LOCAL allow_system_table_mods = on",
        f"CREATE SCHEMA IF NOT EXISTS {SCHEMA} AUTHORIZATION {WORKER}",
        "SET LOCAL allow_system_table_mods = off",
        f"GRANT USAGE ON SCHEMA {SCHEMA} TO PUBLIC",
        f"CREATE TABLE IF NOT EXISTS {_TABLE} (of text, key text, roles text[] NOT NULL, facts jsonb NOT NULL,"
        " PRIMARY KEY (of, key))",
        # The superuser writes into it: a trigger of its owner's would run with those rights.
        f"ALTER TABLE {_TABLE} OWNER TO CURRENT_USER",
        f"GRANT SELECT ON {_TABLE} TO {WORKER}",
        *(statement for name in TABLES for statement in _view(name)),
    ]


_VERSION = hashlib.sha256("".join(_statements()).encode()).hexdigest()
_FOUND = f"SELECT obj_description(to_regnamespace('{SCHEMA}'), 'pg_namespace')"


async def _furnish(conn: Connection) -> None:
    """Make the views, unless those of this version are there: a view that a client reads cannot be made anew."""
    if await (await conn.execute(_FOUND.encode())).fetchone() != (_VERSION,):
        await run(conn, *_statements(), f"COMMENT ON SCHEMA {SCHEMA} IS {quote_literal(_VERSION)}")


async def _write(conn: Connection, rows: Rows, gone: Iterable[Key]) -> None:
    if rows:
        put = [{"of": of, "key": key, "roles": roles, "facts": json.loads(facts)}
               for (of, key), (roles, facts) in rows.items()]  # fmt: skip
        await conn.execute(_PUT.encode(), [json.dumps(put)])
    if gone:
        await conn.execute(_DROP.encode(), [json.dumps([{"o": of, "k": key} for of, key in gone])])


class SystemCopies:
    """What each copy holds, as far as this server wrote it. Its caller lets one work after another, also of other
    servers' (``TURN``), and reads what is wanted after its turn has come.
    """

    def __init__(self, administrator: Administrator) -> None:
        self._administrator = administrator
        self._known: dict[str, Rows] = {}

    def holds(self, databases: Iterable[str]) -> bool:
        """Whether all of these were written whole by this server."""
        return self._known.keys() >= set(databases)

    def forget(self) -> None:
        """What they hold is not known: the next time all is written."""
        self._known.clear()

    async def settle(self, databases: Iterable[str], wanted: Rows, about: Collection[Key] | None = None) -> None:
        """Bring the copies in these databases to ``wanted``; ``about``: nothing else has changed."""
        for gone in self._known.keys() - set(databases) if about is None else ():
            del self._known[gone]
        for database in databases:
            try:
                await self._settle(database, wanted, about)
            except PgStreamError as e:
                self._known.pop(database, None)
                log.warning("system tables not written", database=database, error=e.text)

    async def _settle(self, database: str, wanted: Rows, about: Collection[Key] | None) -> None:
        known = self._known.get(database)
        if known is None:
            if about is None:
                await self._begin(database, wanted)
            return
        if about is None:
            changed = {key: row for key, row in wanted.items() if known.get(key) != row}
            gone = [key for key in known if key not in wanted]
        else:  # whatever another server has made of these since
            changed, gone = wanted, [key for key in about if key not in wanted]
        if changed or gone:
            async with self._administrator.connect(database) as conn, conn.transaction():
                await _write(conn, changed, gone)
            known |= changed
            for key in gone:
                known.pop(key, None)

    async def _begin(self, database: str, wanted: Rows) -> None:
        async with self._administrator.connect(database) as conn, conn.transaction():
            await _furnish(conn)
            await run(conn, f"DELETE FROM {_TABLE}")
            await _write(conn, wanted, ())
        self._known[database] = dict(wanted)
