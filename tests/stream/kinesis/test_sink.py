"""Queries that write data streams, and move data between stores of different types."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from tests.aws import Aws
from tests.proxy import proxy
from tests.server import Kafka, Server, within
from tests.stream.kinesis.test_source import begin, ended, one, put
from tests.stream.test_kill import worker_of
from tests.stream.test_outage import facts, run

pytestmark = pytest.mark.stream


def ids(aws: Aws, stream: str) -> list[int]:
    return [json.loads(r["Data"])["id"] for r in aws.records(stream)]


def test_a_stream_has_the_shards_of_its_leftmost_source(db: psycopg.Connection[Any], aws: Aws) -> None:
    queries = begin(
        db,
        aws,
        "kin_shards_of",
        3,
        """
        CREATE STREAM kin_shards_out WITH ('store' = kin_shards_of, 'key.format' = 'primitive') AS
          SELECT id, k, upper(k) AS big FROM kin_shards_of_in PARTITION BY k""",
    )
    summary = aws.client.describe_stream_summary(StreamName="kin_shards_out")["StreamDescriptionSummary"]
    assert summary["OpenShardCount"] == 3
    put(aws, "kin_shards_of", range(100))
    within(60, lambda: len(aws.records("kin_shards_out")) >= 100)
    records = aws.records("kin_shards_out")
    assert sorted(json.loads(r["Data"])["id"] for r in records) == list(range(100))
    assert all(r["PartitionKey"] == json.loads(r["Data"])["k"] for r in records)
    of_key = [json.loads(r["Data"])["id"] for r in records if r["PartitionKey"] == "k3"]
    assert of_key == list(range(3, 100, 10)), "a key's records keep their order"
    with pytest.raises(psycopg.Error, match="has 3 shards, not 2"):
        db.execute("CREATE STREAM again (id BIGINT) WITH ('store' = kin_shards_of, 'topic' = 'kin_shards_out',"
                   " 'topic.shards' = 2, 'value.format' = 'json')")  # fmt: skip
    ended(db, *queries)


def test_what_was_not_taken_is_sent_again(db: psycopg.Connection[Any], aws: Aws) -> None:
    begin(db, aws, "kin_again", 1)
    put(aws, "kin_again", range(50), keys=5)
    aws.partly = 3
    queries = run(
        db, "CREATE STREAM kin_again_out WITH ('store' = kin_again) AS SELECT id, k FROM kin_again_in PARTITION BY k"
    )
    within(60, lambda: set(ids(aws, "kin_again_out")) == set(range(50)))
    assert aws.partly == 0
    records = aws.records("kin_again_out")
    for key in range(5):
        mine = [json.loads(r["Data"])["id"] for r in records if json.loads(r["Data"])["k"] == f"k{key}"]
        assert mine[-1] == 45 + key, "the last of a key is the last"
    ended(db, *queries)


def test_the_worker_is_killed_while_it_writes(db: psycopg.Connection[Any], aws: Aws, server: Server) -> None:
    """Nothing is lost. What may come twice is the batch that was under way at each death."""
    begin(db, aws, "kin_dies", 2)
    queries = run(
        db,
        """CREATE STREAM kin_dies_out WITH ('store' = kin_dies) AS SELECT id, k FROM kin_dies_in
          WITH ('source.max.records.per.trigger' = 400) PARTITION BY k""",
    )
    put(aws, "kin_dies", range(4000))
    within(60, lambda: len(aws.records("kin_dies_out")) > 500)
    worker_of(server).kill()
    within(120, lambda: int(facts(db, queries[0])["attempts"]) > 1)  # it may have written all before
    put(aws, "kin_dies", range(4000, 4100))
    within(120, lambda: set(ids(aws, "kin_dies_out")) == set(range(4100)), 0.5)
    deaths = int(facts(db, queries[0])["attempts"]) - 1
    assert len(ids(aws, "kin_dies_out")) - 4100 <= 400 * deaths
    ended(db, *queries)


def test_a_record_that_is_too_large_ends_the_query(db: psycopg.Connection[Any], aws: Aws) -> None:
    queries = begin(
        db,
        aws,
        "kin_large",
        1,
        """
        CREATE STREAM kin_large_out WITH ('store' = kin_large) AS
          SELECT id, repeat(k, 400000) || repeat(k, 200000) AS k FROM kin_large_in""",
    )
    put(aws, "kin_large", range(1))
    within(60, lambda: "for stream kin_large_out has 1200" in str(dict(
        db.execute(f"DESCRIBE QUERY {queries[0]}".encode()).fetchall())))  # fmt: skip
    ended(db, *queries)


def test_changes_that_delete_cannot_be_written(db: psycopg.Connection[Any], aws: Aws) -> None:
    begin(db, aws, "kin_deletes")
    with pytest.raises(psycopg.errors.FeatureNotSupported) as e:
        db.execute("CREATE CHANGELOG kin_deletes_out WITH ('store' = kin_deletes) AS"
                   " SELECT k, count(*) AS n FROM kin_deletes_in GROUP BY k")  # fmt: skip
    assert "data stream" in (e.value.diag.message_detail or "")


def test_between_stores(db: psycopg.Connection[Any], aws: Aws, kafka: Kafka) -> None:
    """Kinesis to Kafka, with the counts that cannot be inferred, and a join of both into Kinesis."""
    begin(db, aws, "kin_views", 2)
    kafka.topic("kin_users", 1)
    run(db, f"CREATE STORE kin_msk WITH ('type' = KAFKA, 'uris' = '{kafka.bootstrap}', 'tls.disabled' = TRUE)")
    with pytest.raises(psycopg.Error) as e:
        db.execute("CREATE STREAM kin_copy WITH ('store' = kin_msk) AS SELECT * FROM kin_views_in")
    assert e.value.diag.message_primary == 'parameter "topic.partitions" is required'
    queries = run(
        db,
        """
        CREATE STREAM kin_copy WITH ('store' = kin_msk, 'topic.partitions' = 1, 'topic.replicas' = 1) AS
          SELECT * FROM kin_views_in;
        CREATE STREAM kin_users (k VARCHAR, name VARCHAR)
          WITH ('store' = kin_msk, 'value.format' = 'json', 'starting.position' = 'earliest')""",
    )
    with pytest.raises(psycopg.Error) as e:
        db.execute("CREATE STREAM kin_back WITH ('store' = kin_views) AS SELECT * FROM kin_copy")
    assert e.value.diag.message_primary == 'parameter "topic.shards" is required'
    queries += run(
        db,
        """
        CREATE STREAM kin_enriched WITH ('store' = kin_views) AS
          SELECT v.id, v.k, u.name FROM kin_views_in v JOIN kin_users u WITHIN 5 MINUTES ON v.k = u.k""",
    )
    kafka.produce("kin_users", [(None, json.dumps({"k": f"k{i}", "name": f"n{i}"})) for i in range(10)])
    put(aws, "kin_views", range(40))
    assert sorted(json.loads(v or "")["id"] for _, v, _ in kafka.consume("kin_copy", 40)) == list(range(40))
    within(90, lambda: len(aws.records("kin_enriched")) >= 40)
    got = {(r["id"], r["name"]) for r in (json.loads(r["Data"]) for r in aws.records("kin_enriched"))}
    assert got == {(i, f"n{i % 10}") for i in range(40)}
    assert (
        aws.client.describe_stream_summary(StreamName="kin_enriched")["StreamDescriptionSummary"]["OpenShardCount"] == 2
    ), "as the leftmost source"
    assert one(db, "SELECT 1") == (1,)
    ended(db, *queries)


def test_one_store_is_away(db: psycopg.Connection[Any], aws: Aws, server: Server) -> None:
    """Not a byte comes from it, and no word: its queries wait and say so, others go on, nothing is lost."""
    with proxy(int(aws.url.rpartition(":")[2])) as way:
        begin(db, aws, "kin_near", 1)  # one task of the sink waits, and the pool has two
        aws.stream("kin_far", 1)
        far = aws.ddl.replace(aws.url, f"http://127.0.0.1:{way.port}")
        queries = run(
            db,
            f"""
            CREATE STORE kin_far WITH ('type' = KINESIS, {far});
            CREATE STREAM kin_far_out WITH ('store' = kin_far, 'topic' = 'kin_far') AS
              SELECT id, k FROM kin_near_in PARTITION BY k;
            CREATE MATERIALIZED VIEW kin_far_seen AS SELECT id FROM kin_far_out WITH ('starting.position' = 'earliest');
            CREATE MATERIALIZED VIEW kin_near_seen AS SELECT id FROM kin_near_in""",
        )
        counted = "SELECT count(DISTINCT id) FROM {}_seen"
        put(aws, "kin_near", range(50))
        within(60, lambda: one(db, counted.format("kin_far")) == (50,))
        way.hold()
        put(aws, "kin_near", range(50, 100))
        within(60, lambda: one(db, counted.format("kin_near")) == (100,))
        assert one(db, counted.format("kin_far")) == (50,)
        within(90, lambda: "could not reach store" in str(facts(db, queries[1])), 0.5)
        way.open()
        within(90, lambda: one(db, counted.format("kin_far")) == (100,), 0.5)
        assert set(ids(aws, "kin_far")) == set(range(100))
        assert facts(db, queries[2])["attempts"] == "1"
        ended(db, *queries)
