"""A database laid out by an earlier version is brought to this one's layout at the first start."""

from __future__ import annotations

import psycopg
import pytest

from pgstream.catalog.objects import staging_stem
from pgstream.catalog.store import Catalog
from pgstream.errors import ConfigurationError
from tests.pg.catalog.test_catalog import query, stream, view

pytestmark = pytest.mark.pg

# What the version before made for a stream and a materialized view, after what this one made is taken away.
_BEFORE = """
DROP TABLE counts; DROP VIEW pageviews; DROP FUNCTION pg_catalog.pgstream_unreadable;
REVOKE ALL ON SCHEMA public FROM pgstream_worker;
ALTER SCHEMA pg_pgstream RENAME TO pgstream_state;
CREATE FUNCTION pgstream_state.unreadable(kind text, name text) RETURNS SETOF boolean
    LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '0A000'; END $$;
CREATE VIEW pageviews AS SELECT NULL::bigint AS viewtime FROM pgstream_state.unreadable('stream', 'pageviews');
CREATE TABLE pgstream_state.{0} (userid varchar, n bigint);
CREATE UNIQUE INDEX {0}_key ON pgstream_state.{0} (userid) NULLS NOT DISTINCT;
ALTER TABLE pgstream_state.{0} OWNER TO pgstream_worker;
CREATE VIEW counts AS SELECT userid, n FROM pgstream_state.{0};
GRANT SELECT ON counts, pageviews TO sysadmin;
INSERT INTO pgstream_state.{0} VALUES ('u', 1);
"""


@pytest.fixture
async def before(catalog: Catalog, ask) -> None:
    await catalog.create_relation(stream())
    made = view()
    await catalog.create_query(query("counts"), made)
    ask(_BEFORE.format(staging_stem(made.id)), user=None)


async def test_rows_stay_and_the_worker_goes_on(before, catalog: Catalog, reopen, ask) -> None:
    again = await reopen()
    with psycopg.connect(again.worker_url("main"), autocommit=True) as worker:
        worker.execute("INSERT INTO public.counts VALUES ('u', 2) ON CONFLICT (userid) DO UPDATE SET n = excluded.n")
    assert ask("SELECT * FROM counts") == [["u", 2]]
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="cannot be read as a table"):
        ask("SELECT * FROM pageviews")
    assert ask("SELECT nspname FROM pg_namespace WHERE nspname LIKE '%stream%'") == [["pg_pgstream"]]
    assert ask("SELECT count(*) FROM pg_pgstream.ledger", user=None) == [[1]]
    await again.close()


async def test_a_users_view_over_it_is_not_dropped(before, catalog: Catalog, reopen, ask) -> None:
    ask("CREATE VIEW mine AS SELECT * FROM counts")
    with pytest.raises(ConfigurationError) as e:
        await reopen()
    assert e.value.detail == "view public.mine depends on view public.counts"
    assert ask("SELECT * FROM mine") == [["u", 1]]
