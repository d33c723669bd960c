"""What the tests' double of SubscribeToShard sends is what botocore takes for AWS's."""

from __future__ import annotations

import json

from tests.aws import ending, serving
from tests.server import within


def test_botocore_reads_the_messages_of_the_double() -> None:
    with serving() as aws:
        aws.stream("fan")
        arn = aws.consumer("fan", "app")
        aws.put("fan", [("k", json.dumps({"id": n})) for n in range(120)])
        sent = aws.client.subscribe_to_shard(
            ConsumerARN=arn, ShardId="shardId-000000000000", StartingPosition={"Type": "TRIM_HORIZON"}
        )["EventStream"]
        found: list[int] = []
        for event in sent:
            told = event["SubscribeToShardEvent"]
            found += [json.loads(r["Data"])["id"] for r in told["Records"]]
            if len(found) == 120:
                break
        sent.close()
        assert found == list(range(120)) and told["ContinuationSequenceNumber"] == told["Records"][-1]["SequenceNumber"]


def test_a_subscription_ends_with_its_shard() -> None:
    with serving() as aws, ending():
        aws.stream("fan_ends")
        arn = aws.consumer("fan_ends", "app")
        aws.put("fan_ends", [("k", json.dumps({"id": 1}))])
        aws.split("fan_ends", aws.client.list_shards(StreamName="fan_ends")["Shards"][0])
        within(10, lambda: aws.status("fan_ends") == "ACTIVE")
        sent = aws.client.subscribe_to_shard(
            ConsumerARN=arn, ShardId="shardId-000000000000", StartingPosition={"Type": "TRIM_HORIZON"}
        )["EventStream"]
        *_, last = (e["SubscribeToShardEvent"] for e in sent)
        assert "ContinuationSequenceNumber" not in last
        assert [c["ShardId"] for c in last["ChildShards"]] == ["shardId-000000000001", "shardId-000000000002"]
