"""docs/tutorials/multiple-stores.md, run as it stands: its statements in order, with the answers that it shows."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

from tests.aws import KEY, SECRET, Aws
from tests.server import Kafka, Server
from tests.stream.kinesis.test_source import ended

PAGE = Path(__file__).parents[3] / "docs" / "tutorials" / "multiple-stores.md"
BLOCKS = re.compile(r"```sql\n(?P<sql>.*?)```\n(?:```\n(?P<answer>.*?)```)?", re.S)


@pytest.mark.stream
def test_every_statement_of_the_page(server: Server, aws: Aws, kafka: Kafka) -> None:
    places = {"localhost:9092": kafka.bootstrap, "http://localhost:5000": aws.url, "AKIAEXAMPLE": KEY,
              "an-example-secret": SECRET}  # fmt: skip
    with server.connect() as c:
        c.execute("CREATE DATABASE tutorial")
    with server.connect("tutorial") as c:
        before = {row[0] for row in c.execute("LIST QUERIES").fetchall()}
        for block in BLOCKS.finditer(PAGE.read_text()):
            for statement in block["sql"].strip().removesuffix(";").split(";\n"):
                for shown, real in places.items():
                    statement = statement.replace(shown, real)
                try:
                    cursor = c.execute(statement.encode())
                    rows = cursor.fetchall() if cursor.description else []
                    answer = "\n".join(sorted(" | ".join(map(str, row)) for row in rows))
                except psycopg.Error as e:
                    answer = f"ERROR: {e.diag.message_primary}"
                assert block["answer"] or not answer.startswith("ERROR"), answer
            if block["answer"]:
                assert answer == block["answer"].strip()
        summary = aws.client.describe_stream_summary(StreamName="pageviews_enriched")["StreamDescriptionSummary"]
        assert summary["OpenShardCount"] == 2
        keys = {r["PartitionKey"] for r in aws.records("pageviews_enriched")}
        assert keys == {'{"userid":"User_1"}', '{"userid":"User_2"}'}
        ended(c, *({row[0] for row in c.execute("LIST QUERIES").fetchall()} - before))
