"""What the client programs find in pgstream: a stream with three records, and a materialized view over it."""

from __future__ import annotations

import pytest

from tests.clients.both import work_in_a_role
from tests.server import Kafka, Server, within

RECORDS = [('{"n": 1, "userid": "a"}'), ('{"n": 2, "userid": "a"}'), ('{"n": 3, "userid": "b"}')]


@pytest.fixture(scope="session")
def of_languages(server: Server, kafka: Kafka) -> None:
    work_in_a_role(server.data_dir)
    kafka.topic("of_languages")
    kafka.produce("of_languages", [(None, record) for record in RECORDS])
    with server.connect() as c:
        c.execute(
            f"CREATE STORE of_languages WITH ('type' = KAFKA, 'uris' = '{kafka.bootstrap}', 'tls.disabled' = TRUE, "
            "'kafka.sasl.hash_function' = NONE)"
        )
        c.execute(
            "CREATE STREAM of_languages_clicks (n BIGINT, userid VARCHAR) "
            "WITH ('store' = of_languages, 'topic' = 'of_languages', 'value.format' = 'json')"
        )
        c.execute(
            "CREATE MATERIALIZED VIEW of_languages_counts AS SELECT userid, count(*) AS n "
            "FROM of_languages_clicks WITH ('starting.position' = 'earliest') GROUP BY userid"
        )
        read = "SELECT userid, n FROM of_languages_counts ORDER BY userid"
        within(120, lambda: c.execute(read).fetchall() == [("a", 2), ("b", 1)])
