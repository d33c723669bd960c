"""The ledger: which batch of each query is in its view, how far each source was read by then, and waiting for it.

A row of ``pg_pgstream.ledger`` is written by the sink, in the transaction of the batch's rows. ``sink`` is the view's
table, quoted, several on a line each where they are an application's, empty while a query fills another one beside it
(``replacing``); ``consumed`` what Spark says of the sources:
``[{"store": name, "at": {topic: {partition: next offset}}}, …]``, the store being empty for a view's changes.
Owns: the table, and the SQL function by which a client waits until a view has what it wrote.
Must not know: who writes a row (``spark/kernel/ViewSink.scala``). Start reading at ``ensure``.
"""

from __future__ import annotations

from collections.abc import Iterable

from pgstream.catalog.databases import STATE
from pgstream.catalog.postgres import WORKER, Connection, run
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
    reader name := CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role') END;
    ends timestamptz := clock_timestamp() + timeout;
    pause double precision := 0.002;
    wanted text[];
    target text;
    writer uuid;
    line {STATE}.ledger;
    part text;
    behind text;
BEGIN
    IF view IS NULL OR positions IS NULL OR timeout IS NULL THEN
        RAISE EXCEPTION 'arguments of {_NAME}() must not be null' USING ERRCODE = '22004';
    END IF;
    SELECT '"' || replace(n.nspname, '"', '""') || '"."' || replace(c.relname, '"', '""') || '"' INTO target
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = view;
    IF target IS NULL THEN
        RAISE EXCEPTION 'relation with OID % does not exist', view::oid USING ERRCODE = '42P01';
    END IF;
    IF NOT has_any_column_privilege(reader, view, 'SELECT') THEN
        RAISE EXCEPTION 'permission denied for %', view USING ERRCODE = '42501';
    END IF;
    FOREACH part IN ARRAY string_to_array(positions || ',', ',') LOOP
        CONTINUE WHEN part = '' AND wanted IS NOT NULL;
        IF part !~ '^\\s*[^:]+:[^:]+:[0-9]+\\s*$' THEN
            RAISE EXCEPTION 'invalid position: "%"', part USING ERRCODE = '22P02',
                HINT = 'Write topic:partition:offset, several with commas between them.';
        END IF;
        wanted := wanted || trim(part);
    END LOOP;
    LOOP
        SELECT * INTO line FROM {STATE}.ledger WHERE query = writer AND target = ANY (string_to_array(sink, E'\\n'));
        IF NOT FOUND THEN
            SELECT * INTO line FROM {STATE}.ledger WHERE target = ANY (string_to_array(sink, E'\\n'));
            IF NOT FOUND THEN
                RAISE EXCEPTION '% is not a materialized view that a query keeps current', view USING ERRCODE = '42809',
                    HINT = 'LIST MATERIALIZED VIEWS shows them.';
            END IF;
            writer := line.query;
        END IF;
        behind := NULL;
        FOREACH part IN ARRAY wanted LOOP
            DECLARE
                topic text := split_part(part, ':', 1);
                place numeric := split_part(part, ':', 3);
                stands jsonb;
            BEGIN
                FOR stands IN SELECT s -> 'at' -> topic -> split_part(part, ':', 2)
                    FROM jsonb_array_elements(line.consumed) s WHERE s ->> 'store' <> '' AND s -> 'at' ? topic
                LOOP
                    IF jsonb_typeof(stands) = 'string' THEN
                        RAISE EXCEPTION 'waiting for positions of "%" is not supported', topic USING ERRCODE = '0A000',
                            HINT = 'Only those of Kafka topics and Kinesis streams can be waited for.';
                    END IF;
                    IF NOT coalesce(CASE jsonb_typeof(stands) WHEN 'number' THEN stands::numeric > place
                        ELSE stands ? 'done' OR nullif(stands ->> 'last', '')::numeric >= place END, false) THEN
                        behind := part;
                    END IF;
                END LOOP;
                IF NOT FOUND THEN
                    IF line.consumed IS NOT NULL THEN
                        RAISE EXCEPTION '% does not read topic "%"', view, topic USING ERRCODE = '22023',
                            HINT = (SELECT 'It reads: ' || coalesce(string_agg(t, ', '), 'no topic') || '.'
                                FROM jsonb_array_elements(line.consumed) s, jsonb_object_keys(s -> 'at') t
                                WHERE s ->> 'store' <> '' AND NOT starts_with(t, '@'));
                    END IF;
                    behind := part;
                END IF;
            END;
        END LOOP;
        IF behind IS NULL THEN
            RETURN;
        END IF;
        IF current_setting('transaction_isolation') <> 'read committed' THEN
            RAISE EXCEPTION '{_NAME}() cannot wait in a % transaction', current_setting('transaction_isolation')
                USING ERRCODE = '25001', HINT = 'It sees the view as it was when it began: wait before it begins.';
        END IF;
        IF clock_timestamp() >= ends THEN
            RAISE EXCEPTION '% has not read % within %', view, behind, timeout USING ERRCODE = '57014',
                DETAIL = (SELECT 'It has read up to: ' || coalesce(string_agg(t.key || ':' || p.key || ':'
                        || coalesce(p.value ->> 'last', p.value #>> '{{}}'), ', '), 'nothing yet') || '.'
                    FROM jsonb_array_elements(line.consumed) s, jsonb_each(s -> 'at') t,
                        jsonb_each(CASE jsonb_typeof(t.value) WHEN 'object' THEN t.value ELSE '{{}}' END) p
                    WHERE s ->> 'store' <> ''),
                HINT = 'LIST QUERIES shows whether its query runs.';
        END IF;
        PERFORM pg_sleep(least(pause, extract(epoch FROM ends - clock_timestamp())));
        pause := least(pause * 1.5, 0.05);
    END LOOP;
END"""
_ARGUMENTS = "view regclass, positions text, timeout interval"
_IS_THERE = """
SELECT prosrc FROM pg_proc WHERE oid = to_regprocedure('pg_catalog.pgstream_wait_for(regclass, text, interval)')"""


async def ensure(conn: Connection) -> None:
    """Bring a ledger of an earlier version up to date and make the function; run again it changes nothing."""
    if await (await conn.execute(_IS_THERE.encode())).fetchone() == (_BODY,):
        return
    function = f"pg_catalog.{_NAME}"
    async with conn.transaction():
        await run(
            conn,
            f"ALTER TABLE {STATE}.ledger ADD COLUMN IF NOT EXISTS consumed jsonb",
            f"CREATE OR REPLACE FUNCTION {function}({_ARGUMENTS} DEFAULT '30 s') RETURNS void LANGUAGE plpgsql"
            f" SECURITY DEFINER SET search_path = pg_catalog AS {quote_literal(_BODY)}",
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
