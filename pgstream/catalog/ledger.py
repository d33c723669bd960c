"""The ledger: which batch of each query is in its view, how far each source was read by then, and waiting for it.

A row of ``pg_pgstream.ledger`` is written by the sink, in the transaction of the batch's rows. ``sink`` is the view's
table, quoted, several on a line each where they are an application's, empty while a query fills another one beside it
(``replacing``); ``consumed`` what Spark says of the sources:
``[{"store": name, "at": {topic: {partition: next offset}}}, …]``, the store being empty for a view's changes.
Owns: the table, and the SQL function by which a client waits until a view has what it wrote.
The table is the superuser's, who writes into it too: a trigger or rule of its owner's would run with those rights.
Must not know: who writes a row (``spark/kernel/ViewSink.scala``). Start reading at ``ensure``.
"""

from __future__ import annotations

from collections.abc import Iterable

from pgstream.catalog.databases import STATE
from pgstream.catalog.postgres import DEFINER, WORKER, Connection, run
from pgstream.catalog.records import RelationRecord
from pgstream.names import quote_always as q
from pgstream.names import quote_literal

TABLE = f"""
CREATE TABLE IF NOT EXISTS {STATE}.ledger (
    query uuid PRIMARY KEY, sink text NOT NULL DEFAULT '', batch bigint NOT NULL, attempt integer NOT NULL,
    consumed jsonb)"""

NEVER = 2**31 - 1
"""An attempt that no start has: its query writes no more."""
NOTIFY = "notify"
"""The property of a view that names the channel which is told of its changes."""
_NAME = "pgstream_wait_for"
_BODY = f"""
DECLARE
    reader pg_catalog.name := CASE pg_catalog.current_setting('role') WHEN 'none' THEN session_user
        ELSE pg_catalog.current_setting('role') END;
    ends pg_catalog.timestamptz := pg_catalog.clock_timestamp() + timeout;
    pause double precision := 0.002;
    wanted pg_catalog.text[];
    target pg_catalog.text;
    writer pg_catalog.uuid;
    line {STATE}.ledger;
    part pg_catalog.text;
    behind pg_catalog.text;
BEGIN
    IF view IS NULL OR positions IS NULL OR timeout IS NULL THEN
        RAISE EXCEPTION 'arguments of {_NAME}() must not be null' USING ERRCODE = '22004';
    END IF;
    SELECT '"' || pg_catalog.replace(n.nspname, '"', '""') || '"."' || pg_catalog.replace(c.relname, '"', '""') || '"'
        INTO target FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE c.oid = view;
    IF target IS NULL THEN
        RAISE EXCEPTION 'relation with OID % does not exist', view::pg_catalog.oid USING ERRCODE = '42P01';
    END IF;
    IF NOT pg_catalog.has_any_column_privilege(reader, view, 'SELECT') THEN
        RAISE EXCEPTION 'permission denied for %', view USING ERRCODE = '42501';
    END IF;
    FOREACH part IN ARRAY pg_catalog.string_to_array(positions || ',', ',') LOOP
        CONTINUE WHEN part = '' AND wanted IS NOT NULL;
        IF part !~ '^\\s*[^:]+:[^:]+:[0-9]+\\s*$' THEN
            RAISE EXCEPTION 'invalid position: "%"', part USING ERRCODE = '22P02',
                HINT = 'Write topic:partition:offset, several with commas between them.';
        END IF;
        wanted := wanted || pg_catalog.btrim(part, E' \\t\\n\\r\\f\\v');
    END LOOP;
    LOOP
        SELECT * INTO line FROM {STATE}.ledger
            WHERE query = writer AND target = ANY (pg_catalog.string_to_array(sink, E'\\n'));
        IF NOT FOUND THEN
            SELECT * INTO line FROM {STATE}.ledger
                WHERE target = ANY (pg_catalog.string_to_array(sink, E'\\n'));
            IF NOT FOUND THEN
                RAISE EXCEPTION '% is not a materialized view that a query keeps current', view USING ERRCODE = '42809',
                    HINT = 'LIST MATERIALIZED VIEWS shows them.';
            END IF;
            writer := line.query;
        END IF;
        behind := NULL;
        FOREACH part IN ARRAY wanted LOOP
            DECLARE
                topic pg_catalog.text := pg_catalog.split_part(part, ':', 1);
                place numeric := pg_catalog.split_part(part, ':', 3);
                stands pg_catalog.jsonb;
            BEGIN
                FOR stands IN SELECT s -> 'at' -> topic -> pg_catalog.split_part(part, ':', 2)
                    FROM pg_catalog.jsonb_array_elements(line.consumed) s
                    WHERE s ->> 'store' <> '' AND s -> 'at' ? topic
                LOOP
                    IF pg_catalog.jsonb_typeof(stands) = 'string' THEN
                        RAISE EXCEPTION 'waiting for positions of "%" is not supported', topic USING ERRCODE = '0A000',
                            HINT = 'Only those of Kafka topics and Kinesis streams can be waited for.';
                    END IF;
                    IF NOT coalesce(CASE pg_catalog.jsonb_typeof(stands) WHEN 'number' THEN stands::numeric > place
                        ELSE stands ? 'done' OR nullif(stands ->> 'last', '')::numeric >= place END, false) THEN
                        behind := part;
                    END IF;
                END LOOP;
                IF NOT FOUND THEN
                    IF line.consumed IS NOT NULL THEN
                        RAISE EXCEPTION '% does not read topic "%"', view, topic USING ERRCODE = '22023',
                            HINT = (SELECT 'It reads: ' || coalesce(pg_catalog.string_agg(t, ', '), 'no topic') || '.'
                                FROM pg_catalog.jsonb_array_elements(line.consumed) s,
                                    pg_catalog.jsonb_object_keys(s -> 'at') t
                                WHERE s ->> 'store' <> '' AND NOT pg_catalog.starts_with(t, '@'));
                    END IF;
                    behind := part;
                END IF;
            END;
        END LOOP;
        IF behind IS NULL THEN
            RETURN;
        END IF;
        IF pg_catalog.current_setting('transaction_isolation') <> 'read committed' THEN
            RAISE EXCEPTION '{_NAME}() cannot wait in a % transaction',
                pg_catalog.current_setting('transaction_isolation') USING ERRCODE = '25001',
                HINT = 'It sees the view as it was when it began: wait before it begins.';
        END IF;
        IF pg_catalog.clock_timestamp() >= ends THEN
            RAISE EXCEPTION '% has not read % within %', view, behind, timeout USING ERRCODE = '57014',
                DETAIL = (SELECT 'It has read up to: ' || coalesce(pg_catalog.string_agg(t.key || ':' || p.key || ':'
                        || coalesce(p.value ->> 'last', p.value #>> '{{}}'), ', '), 'nothing yet') || '.'
                    FROM pg_catalog.jsonb_array_elements(line.consumed) s, pg_catalog.jsonb_each(s -> 'at') t,
                        pg_catalog.jsonb_each(CASE pg_catalog.jsonb_typeof(t.value) WHEN 'object' THEN t.value
                            ELSE '{{}}' END) p
                    WHERE s ->> 'store' <> ''),
                HINT = 'LIST QUERIES shows whether its query runs.';
        END IF;
        PERFORM pg_catalog.pg_sleep(least(pause, extract(epoch FROM ends - pg_catalog.clock_timestamp())));
        pause := least(pause * 1.5, 0.05);
    END LOOP;
END"""
_ARGUMENTS = "view regclass, positions text, timeout interval"
_IS_THERE = f"""
SELECT prosrc, prosecdef, proconfig, pg_get_userbyid(proowner) = '{WORKER}'
FROM pg_proc WHERE oid = to_regprocedure('pg_catalog.{_NAME}(regclass, text, interval)')"""
_IS_OURS = f"""
SELECT pg_get_userbyid(n.nspowner) <> '{WORKER}' AND pg_get_userbyid(c.relowner) <> '{WORKER}'
FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid WHERE n.nspname = '{STATE}' AND c.relname = 'ledger'"""
OURS = (
    f"ALTER SCHEMA {STATE} OWNER TO CURRENT_USER",
    f"GRANT USAGE, CREATE ON SCHEMA {STATE} TO {WORKER}",
    f"ALTER TABLE {STATE}.ledger OWNER TO CURRENT_USER",
    f"GRANT SELECT, INSERT, UPDATE, DELETE ON {STATE}.ledger TO {WORKER}",
)
"""The worker makes tables of its own in the hidden schema; what is the superuser's there it can neither replace nor
hang anything on. In a schema of its own it could."""


async def ensure(conn: Connection) -> None:
    """Bring a ledger of an earlier version up to date and make the function; run again it changes nothing."""
    if await (await conn.execute(_IS_OURS.encode())).fetchone() != (True,):
        async with conn.transaction():
            await run(conn, *OURS)
    if await (await conn.execute(_IS_THERE.encode())).fetchone() == (_BODY, True, [DEFINER], True):
        return
    function = f"pg_catalog.{_NAME}"
    async with conn.transaction():
        await run(
            conn,
            f"ALTER TABLE {STATE}.ledger ADD COLUMN IF NOT EXISTS consumed jsonb",
            f"CREATE OR REPLACE FUNCTION {function}({_ARGUMENTS} DEFAULT '30 s') RETURNS void LANGUAGE plpgsql"
            f" SECURITY DEFINER SET {DEFINER} AS {quote_literal(_BODY)}",
            # It runs with the right that it needs, and no other.
            f"ALTER FUNCTION {function} OWNER TO {WORKER}",
        )


def table(view: RelationRecord) -> str:
    """A view's table, quoted; what ``sink`` says of the query that writes it."""
    return f"{q(view.full.schema)}.{q(view.full.name)}"


def opened(view: RelationRecord) -> str:
    """The statement that makes the row of a view's query, or adds an application's further view to it."""
    return (
        f"INSERT INTO {STATE}.ledger (query, sink, batch, attempt)"
        f" VALUES ({quote_literal(view.query or '')}, {quote_literal(table(view))}, -1, 0)"
        " ON CONFLICT (query) DO UPDATE SET sink = ledger.sink || E'\\n' || excluded.sink"
        " WHERE ledger.sink <> '' AND NOT excluded.sink = ANY (string_to_array(ledger.sink, E'\\n'))"
    )


async def heal(conn: Connection, relations: Iterable[RelationRecord]) -> None:
    """Say in rows of an earlier version which view they are about. Not in that of a query that another has followed,
    where a crash has kept the catalogue from knowing it (``replacing.done``).
    """
    views = [(r.query, table(r)) for r in relations if r.kind == "materialized_view" and r.query is not None]
    await conn.execute(
        f"UPDATE {STATE}.ledger l SET sink = v.sink FROM unnest(%s::uuid[], %s::text[]) v(query, sink)"
        f" WHERE l.query = v.query AND l.sink = '' AND l.attempt <> {NEVER}".encode(),
        [[query for query, _ in views], [sink for _, sink in views]],
    )


async def drop_others(conn: Connection, queries: Iterable[str]) -> list[str]:
    """Take away the rows of all other queries, which say of views of the same names that they keep them; whose they
    were. One that somebody writes stays for another time.
    """
    strays = f"SELECT query FROM {STATE}.ledger WHERE query <> ALL (%s::uuid[]) FOR UPDATE SKIP LOCKED"
    gone = await conn.execute(
        f"DELETE FROM {STATE}.ledger WHERE query IN ({strays}) RETURNING query::text".encode(), [list(queries)]
    )
    return sorted(query for (query,) in await gone.fetchall())


async def drop_of(conn: Connection, view: RelationRecord) -> None:
    """Take away what rows say of a view that is not there."""
    await conn.execute(
        f"DELETE FROM {STATE}.ledger WHERE %s = ANY (string_to_array(sink, E'\\n'))".encode(), [table(view)]
    )
