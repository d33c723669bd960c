"""docs/tutorials/multiple-stores.md, run as it stands: its statements in order, with the answers that it shows."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.aws import KEY, SECRET, Aws
from tests.server import Kafka, Server, within
from tests.stream.kinesis.test_source import ended
from tests.stream.test_kill import worker_of

PAGE = Path(__file__).parents[3] / "docs" / "tutorials" / "multiple-stores.md"
BLOCKS = re.compile(r"```sql\n(?P<sql>.*?)```\n(?:```\n(?P<answer>.*?)```)?", re.S)


def real_places(kafka: Kafka, aws: Aws) -> dict[str, str]:
    return {"localhost:9092": kafka.bootstrap, "http://localhost:5000": aws.url, "AKIAEXAMPLE": KEY,
            "an-example-secret": SECRET}  # fmt: skip


def page(places: Mapping[str, str]) -> Iterator[tuple[list[str], str]]:
    """The statements of each block, and the answer that it shows. ``places``: what to put for what stands there."""
    for block in BLOCKS.finditer(PAGE.read_text()):
        text = block["sql"].strip().removesuffix(";")
        for shown, real in places.items():
            text = text.replace(shown, real)
        yield text.split(";\n"), (block["answer"] or "").strip()


@pytest.mark.stream
def test_every_statement_of_the_page(server: Server, aws: Aws, kafka: Kafka) -> None:
    places = real_places(kafka, aws)
    with server.connect() as c:
        c.execute("CREATE DATABASE tutorial")
    with server.connect("tutorial") as c:
        before = {row[0] for row in c.execute("LIST QUERIES").fetchall()}
        for statements, wanted in page(places):
            for statement in statements:
                try:
                    cursor = c.execute(statement.encode())
                    rows = cursor.fetchall() if cursor.description else []
                    answer = "\n".join(sorted(" | ".join(map(str, row)) for row in rows))
                except psycopg.Error as e:
                    answer = f"ERROR: {e.diag.message_primary}"
                assert wanted or not answer.startswith("ERROR"), answer
            if wanted:
                assert answer == wanted
        summary = aws.client.describe_stream_summary(StreamName="pageviews_enriched")["StreamDescriptionSummary"]
        assert summary["OpenShardCount"] == 2
        keys = {r["PartitionKey"] for r in aws.records("pageviews_enriched")}
        assert keys == {'{"userid":"User_1"}', '{"userid":"User_2"}'}
        ended(c, *({row[0] for row in c.execute("LIST QUERIES").fetchall()} - before))


@pytest.mark.stream
def test_the_page_on_other_data(server: Server, aws: Aws, kafka: Kafka) -> None:
    """Its stores, streams and queries with random records that come while they run; the worker dies once."""
    any_ = random.Random(20261123)
    renamed = {"pageviews": "other_views", "users": "other_users", "msk": "other_msk", "kinesis_store": "other_kinesis"}
    people = [f"User_{n}" for n in range(40)] + ["Zoë", "", "a b"]
    users = [
        {"userid": any_.choice(people), "gender": any_.choice(["FEMALE", "MALE", None]), "city": f"Örtchen {n}"}
        for n in range(60)
    ]
    views = [
        {"viewtime": any_.randint(-(2**63), 2**63 - 1), "userid": any_.choice([*people, "User_of_nobody"]),
         "pageid": f"Page {n}"}
        for n in range(3000)
    ]  # fmt: skip
    for without in any_.sample(views, 50):
        without["userid"] = None
    with server.connect() as c:
        c.execute("CREATE DATABASE tutorial_other")
    with server.connect("tutorial_other") as c:
        before = {row[0] for row in c.execute("LIST QUERIES").fetchall()}
        for statements, wanted in page(real_places(kafka, aws) | renamed):
            for statement in statements:
                if statement.startswith("CREATE") and not wanted:
                    c.execute(statement.encode())
        queries = {row[0] for row in c.execute("LIST QUERIES").fetchall()} - before
        assert len(queries) == 2
        kafka.produce("other_users", [(None, json.dumps(u)) for u in users[:30]])
        for first in range(0, len(views), 500):
            aws.put("other_views", [(v["userid"] or "nobody", json.dumps(v)) for v in views[first : first + 500]])
            if first == 1500:
                kafka.produce("other_users", [(None, json.dumps(u)) for u in users[30:]])
                within(90, lambda: any(aws.records("other_views_enriched")))
                worker_of(server).kill()
        copied = [json.loads(value or "") for _, value, _ in kafka.consume("other_views_kafka", len(views))]
        assert _counted(copied) == _counted(views), "each exactly once"
        wanted = _counted(
            v | {"gender": u["gender"], "city": u["city"]}
            for v in views for u in users if v["userid"] is not None and v["userid"] == u["userid"]
        )  # fmt: skip
        within(120, lambda: len(_counted(_joined(aws))) >= len(wanted), 1)
        found = _counted(_joined(aws))
        assert set(found) == set(wanted)
        assert all(found[row] >= times for row, times in wanted.items()), "at least once"
        ended(c, *queries)


def _joined(aws: Aws) -> list[Any]:
    return [json.loads(r["Data"]) for r in aws.records("other_views_enriched")]


def _counted(rows: Any) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True) for row in rows)
