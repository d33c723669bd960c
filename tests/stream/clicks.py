"""A stream of clicks with one record, in a database of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from tests.server import Kafka, Server
from tests.stream.test_outage import run


@contextmanager
def clicks(server: Server, kafka: Kafka, database: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to the database, made now, in which ``clicks (userid)`` is topic ``<database>_clicks``."""
    topic = f"{database}_clicks"
    kafka.topic(topic)
    kafka.produce(topic, [(None, json.dumps({"userid": "a"}))])
    with server.connect() as c:
        c.execute(f"CREATE DATABASE {database}".encode())
    with server.connect(database) as c:
        run(
            c,
            f"""CREATE STORE clicks_{database} WITH ('type' = KAFKA, 'tls.disabled' = TRUE,
                'kafka.sasl.hash_function' = NONE, 'uris' = '{kafka.bootstrap}');
            CREATE STREAM clicks (userid VARCHAR) WITH ('store' = clicks_{database}, 'topic' = '{topic}',
                'value.format' = 'json', 'starting.position' = 'earliest')""",
        )
        yield c
