"""Queries that read data streams: what is in the stream comes out of the view, once, whatever happens to its shards."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.aws import Aws
from tests.server import Server, within
from tests.stream.test_kill import worker_of
from tests.stream.test_outage import facts, run

pytestmark = pytest.mark.stream
STORE = "CREATE STORE {name} WITH ('type' = KINESIS, {options})"
STREAM = """CREATE STREAM {name}_in (id BIGINT, k VARCHAR) WITH ('store' = {name}, 'topic' = '{name}',
  'value.format' = 'json', 'starting.position' = 'earliest')"""


def begin(db: psycopg.Connection[Any], aws: Aws, name: str, shards: int = 1, *more: str) -> list[str]:
    """A data stream, its store and relation, and what else is said; the ids of queries that began."""
    aws.stream(name, shards)
    return run(db, ";\n".join([STORE.format(name=name, options=aws.ddl), STREAM.format(name=name), *more]))


def put(aws: Aws, stream: str, ids: range, keys: int = 10) -> None:
    aws.put(stream, [(f"k{i % keys}", json.dumps({"id": i, "k": f"k{i % keys}"})) for i in ids])


def one(db: psycopg.Connection[Any], sql: str) -> tuple[Any, ...]:
    row = db.execute(sql.encode()).fetchone()
    assert row is not None
    return tuple(row)


def ended(db: psycopg.Connection[Any], *queries: str) -> None:
    for query in queries:
        db.execute(f"TERMINATE QUERY {query}".encode())


def test_event_time_is_the_arrival_time(db: psycopg.Connection[Any], aws: Aws) -> None:
    """Also in shards that came of one whose end the service does not tell: moto gives iterators of it for ever."""
    queries = begin(
        db, aws, "kin_time", 1, "CREATE MATERIALIZED VIEW kin_time_view AS SELECT id, rowtime() AS t FROM kin_time_in"
    )
    db.execute("UPDATE ENTITY kin_time IN STORE kin_time WITH ('kinesis.shards' = 2)")
    put(aws, "kin_time", range(100))
    arrived = {json.loads(r["Data"])["id"]: r["ApproximateArrivalTimestamp"] for r in aws.records("kin_time")}
    within(60, lambda: one(db, "SELECT count(*) FROM kin_time_view") == (100,))
    times = dict(db.execute("SELECT id, t FROM kin_time_view").fetchall())
    assert times == {i: int(t.timestamp() * 1000) for i, t in arrived.items()}
    within(10, lambda: facts(db, queries[0])["rows in"] == "100")
    assert facts(db, queries[0])["lag of main.public.kin_time_in"] == "0"

    def read() -> bool:
        told = db.execute(f"DESCRIBE QUERY METRICS {queries[0]}".encode()).fetchall()
        shards = {r[2]: int(r[3]) for r in told if r[0] == "read_offset"}
        assert set(shards) - {"shardId-000000000000"} == {"shardId-000000000001", "shardId-000000000002"}, shards
        return sum(shards.values()) == 100

    within(20, read)
    ended(db, *queries)


def test_what_kinesis_says_of_a_record(db: psycopg.Connection[Any], aws: Aws) -> None:
    """Its place and key in the query's columns, and in the reason why the query ended."""
    queries = begin(
        db,
        aws,
        "kin_meta",
        2,
        """
        CREATE STREAM kin_meta_keyed (id BIGINT) WITH ('store' = kin_meta, 'topic' = 'kin_meta',
          'value.format' = 'json', 'key.format' = 'primitive', 'key.type' = 'VARCHAR',
          'starting.position' = 'earliest');
        CREATE MATERIALIZED VIEW kin_meta_view AS SELECT id, rowkey() AS k, rowmetadata()->stream AS s,
          rowmetadata()->partition_key AS p, rowmetadata()->shard_id AS shard, rowmetadata()->sequence_number AS n
          FROM kin_meta_keyed""",
    )
    put(aws, "kin_meta", range(20))
    within(60, lambda: one(db, "SELECT count(*) FROM kin_meta_view") == (20,))
    there = sorted((json.loads(r["Data"])["id"], r["PartitionKey"], "kin_meta", r["PartitionKey"], r["ShardId"],
                    r["SequenceNumber"]) for r in aws.records("kin_meta"))  # fmt: skip
    assert db.execute("SELECT id, k, s, p, shard, n FROM kin_meta_view ORDER BY id").fetchall() == there
    assert one(db, "DESCRIBE ENTITY kin_meta IN STORE kin_meta")[:3] == ("kin_meta", 2, None)
    aws.put("kin_meta", [("k1", "not json")])
    bad = next(r for r in aws.records("kin_meta") if r["Data"] == b"not json")
    place = f'record at shard id {bad["ShardId"]}, sequence number {bad["SequenceNumber"]} of topic "kin_meta"'
    within(60, lambda: place in str(facts(db, queries[0])).replace(chr(92), ""))
    ended(db, *queries)


def test_a_query_begins_where_it_is_told(db: psycopg.Connection[Any], aws: Aws) -> None:
    begin(db, aws, "kin_begin", 2)
    put(aws, "kin_begin", range(5))
    put(aws, "kin_begin", range(5, 10))
    times = sorted(r["ApproximateArrivalTimestamp"].timestamp() for r in aws.records("kin_begin"))
    middle = next(b for a, b in itertools.pairwise(times) if b - a > 0.001)
    after = sum(t >= middle for t in times)
    queries = run(
        db,
        f"""
        CREATE MATERIALIZED VIEW kin_late AS SELECT id FROM kin_begin_in
          WITH ('starting.position' = 'at_timestamp:{int(middle * 1000)}');
        CREATE MATERIALIZED VIEW kin_new AS SELECT id FROM kin_begin_in WITH ('starting.position' = 'latest')""",
    )
    put(aws, "kin_begin", range(10, 15))  # perhaps before a worker has begun with it
    within(60, lambda: one(db, "SELECT count(*) FROM kin_late")[0] >= after + 5)
    within(60, lambda: one(db, "SELECT count(*) FROM kin_new")[0] >= 5)
    assert one(db, "SELECT array_agg(id ORDER BY id) FROM kin_new") == ([10, 11, 12, 13, 14],)
    ended(db, *queries)


def test_splits_and_merges_while_it_runs(db: psycopg.Connection[Any], splitting: Aws) -> None:
    """What follows one another under a key does so in a changelog, too, although its shard has ended."""
    queries = begin(
        db,
        splitting,
        "kin_split",
        2,
        """
        CREATE MATERIALIZED VIEW kin_split_all AS SELECT id FROM kin_split_in;
        CREATE CHANGELOG kin_split_last (id BIGINT, k VARCHAR, PRIMARY KEY (k))
          WITH ('topic' = 'kin_split', 'store' = kin_split, 'value.format' = 'json', 'starting.position' = 'earliest');
        CREATE MATERIALIZED VIEW kin_split_latest AS SELECT k, id FROM kin_split_last""",
    )
    put(splitting, "kin_split", range(100))
    for number, shard in enumerate(splitting.client.list_shards(StreamName="kin_split")["Shards"]):
        splitting.split("kin_split", shard)
        put(splitting, "kin_split", range(100 + number * 100, 200 + number * 100))
    shards = splitting.client.list_shards(StreamName="kin_split", ShardFilter={"Type": "AT_LATEST"})["Shards"]
    low = sorted(shards, key=lambda s: int(s["HashKeyRange"]["StartingHashKey"]))
    splitting.merge("kin_split", low[1]["ShardId"], low[2]["ShardId"])
    put(splitting, "kin_split", range(300, 400))
    within(60, lambda: one(db, "SELECT count(*) FROM kin_split_all")[0] >= 400)
    assert one(db, "SELECT count(*), count(DISTINCT id) FROM kin_split_all") == (400, 400)
    latest = {f"k{i % 10}": i for i in range(400)}
    within(60, lambda: dict(db.execute("SELECT k, id FROM kin_split_latest").fetchall()) == latest)
    ended(db, *queries)


def test_what_kinesis_has_removed_is_not_passed_over(db: psycopg.Connection[Any], aws: Aws, server: Server) -> None:
    """A query that was away for longer than its stream keeps records ends, and says so."""
    queries = begin(db, aws, "kin_away", 1, "CREATE MATERIALIZED VIEW kin_away_view AS SELECT id FROM kin_away_in")
    put(aws, "kin_away", range(3))
    within(60, lambda: one(db, "SELECT count(*) FROM kin_away_view") == (3,))
    folder = server.data_dir / "checkpoints" / queries[0] / "offsets"
    newest = max((f for f in folder.iterdir() if f.name.isdigit()), key=lambda f: int(f.name))
    within(20, lambda: (folder.parent / "commits" / newest.name).exists())
    day = int((time.time() - 25 * 3600) * 1000)
    changed = re.sub(r'"@asof":\d+', f'"@asof":{day}', newest.read_text())
    assert str(day) in changed
    for file in (newest, folder / f".{newest.name}.copy"):
        file.write_text(changed)
    worker_of(server).kill()
    within(120, lambda: "keeps its records for 24 hours, and was read 25 hours ago" in str(facts(db, queries[0])))
    assert facts(db, queries[0])["state"] == "errored"
    ended(db, *queries)


@pytest.mark.parametrize("action", ["GetRecords", "GetShardIterator"])
def test_what_passes_is_waited_for(db: psycopg.Connection[Any], aws: Aws, action: str) -> None:
    name = f"kin_{action.lower()}"
    queries = begin(db, aws, name, 1, f"CREATE MATERIALIZED VIEW {name}_view AS SELECT id FROM {name}_in")
    put(aws, name, range(10))
    within(60, lambda: one(db, f"SELECT count(*) FROM {name}_view") == (10,))
    aws.faults["GetRecords"] = [
        (400, "ProvisionedThroughputExceededException", "Rate exceeded."), (500, "InternalFailure", "Oops."),
        (400, "ExpiredIteratorException", "The iterator is too old."),
    ]  # fmt: skip
    aws.faults[action] = aws.faults.get(action, []) + [(503, "ServiceUnavailable", "Not now.")] * 2
    put(aws, name, range(10, 20))
    within(60, lambda: one(db, f"SELECT count(*), count(DISTINCT id) FROM {name}_view") == (20, 20))
    assert facts(db, queries[0])["attempts"] == "1", "it went on without a new start"
    ended(db, *queries)


def test_a_stream_that_is_gone_is_named(db: psycopg.Connection[Any], aws: Aws) -> None:
    queries = begin(db, aws, "kin_gone", 1, "CREATE MATERIALIZED VIEW kin_gone_view AS SELECT id FROM kin_gone_in")
    aws.client.delete_stream(StreamName="kin_gone")
    within(60, lambda: "the data stream does not exist" in str(facts(db, queries[0])))
    ended(db, *queries)


def test_a_role_reads_and_writes(db: psycopg.Connection[Any], aws: Aws) -> None:
    """Queries have the role's keys, not those of the store that take it."""
    aws.stream("kin_role")
    role = (f"'kinesis.iam_role_arn' = 'arn:aws:iam::123456789012:role/streams', 'kinesis.iam_external_id' = 'tests', "
            f"'kinesis.sts.uris' = '{aws.url}'")  # fmt: skip
    given = set(aws.sessions)
    queries = run(
        db,
        f"""{STORE.format(name="kin_role", options=f"{aws.ddl}, {role}")};
        {STREAM.format(name="kin_role")};
        CREATE STREAM kin_role_out WITH ('store' = kin_role) AS SELECT id FROM kin_role_in""",
    )
    put(aws, "kin_role", range(5))
    aws.signed.clear()
    within(60, lambda: len(aws.records("kin_role_out")) >= 5)
    for action in ("GetRecords", "PutRecords"):
        assert aws.signed[action] & (set(aws.sessions) - given), aws.signed
    ended(db, *queries)


def test_refused_credentials_are_named(db: psycopg.Connection[Any], aws: Aws) -> None:
    queries = begin(db, aws, "kin_keys", 1, "CREATE MATERIALIZED VIEW kin_keys_view AS SELECT id FROM kin_keys_in")
    aws.faults["GetRecords"] = [(400, "ExpiredTokenException", "The security token is expired.")]
    within(60, lambda: int(facts(db, queries[0])["attempts"]) == 2)
    put(aws, "kin_keys", range(3))
    within(60, lambda: one(db, "SELECT count(*) FROM kin_keys_view") == (3,))
    ended(db, *queries)


@pytest.fixture
def killable(server: Server) -> Iterator[Server]:
    yield server


def test_the_worker_is_killed_while_it_catches_up(db: psycopg.Connection[Any], aws: Aws, killable: Server) -> None:
    queries = begin(
        db,
        aws,
        "kin_kill",
        4,
        """
        CREATE MATERIALIZED VIEW kin_kill_all AS SELECT id FROM kin_kill_in
          WITH ('source.max.records.per.trigger' = 500);
        CREATE MATERIALIZED VIEW kin_kill_keys AS SELECT k, count(*) AS n FROM kin_kill_in
          WITH ('source.max.records.per.trigger' = 700) GROUP BY k""",
    )
    put(aws, "kin_kill", range(8000))
    within(60, lambda: one(db, "SELECT count(*) FROM kin_kill_all")[0] > 1000)
    worker_of(killable).kill()
    put(aws, "kin_kill", range(8000, 10000))
    within(120, lambda: one(db, "SELECT count(*) FROM kin_kill_all")[0] >= 10000)
    within(120, lambda: one(db, "SELECT sum(n) FROM kin_kill_keys")[0] >= 10000)
    assert one(db, "SELECT count(*), count(DISTINCT id) FROM kin_kill_all") == (10000, 10000)
    assert one(db, "SELECT min(n), max(n) FROM kin_kill_keys") == (1000, 1000)
    ended(db, *queries)
