"""A client has made something of a table that is the server's own: its queries go on, and end."""

from __future__ import annotations

import json

import pytest

from tests.server import Kafka, Server, within
from tests.stream.clicks import clicks
from tests.stream.stores.test_tables import query_of
from tests.stream.test_outage import facts

pytestmark = pytest.mark.stream


def test_a_query_begins_and_ends_though_a_client_names_its_staging_table(server: Server, kafka: Kafka) -> None:
    with clicks(server, kafka, "pinned") as c:
        query = query_of(
            c, "CREATE MATERIALIZED VIEW counts AS SELECT userid, count(*) AS n FROM clicks GROUP BY userid"
        )
        staging = "SELECT oid FROM pg_class WHERE relnamespace = 'pg_pgstream'::regnamespace AND relname ~ '^s_'"
        for n in (1, 2):
            within(90, lambda n=n: c.execute("SELECT n FROM counts").fetchall() == [(n,)])
            (found,) = (oid for (oid,) in c.execute(staging.encode()))
            c.execute(f"CREATE VIEW public.pin_{n} AS SELECT '{found}'::regclass AS x".encode())
            c.execute(f"RESTART QUERY {query}".encode())
            kafka.produce("pinned_clicks", [(None, json.dumps({"userid": "a"}))])
        within(90, lambda: c.execute("SELECT n FROM counts").fetchall() == [(3,)])
        assert facts(c, query)["state"] == "running"
        (found,) = (oid for (oid,) in c.execute(staging.encode()))
        c.execute(f"CREATE VIEW public.pin_3 AS SELECT '{found}'::regclass AS x".encode())
        c.execute(f"TERMINATE QUERY {query}".encode())
        c.execute("DROP MATERIALIZED VIEW counts")
        within(20, lambda: c.execute(staging.encode()).fetchall() == [])
