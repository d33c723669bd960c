"""Kinesis stores: AWS Kinesis Data Streams, and whatever speaks its API.

Owns: what the type is called, what it can do, and where its two faces are.
Must not know: how either face works. Start reading at ``STORE``; the options are in ``options.py``, who one is to AWS
in ``client.py``, talking to the service without Spark in ``admin.py``.
"""

from __future__ import annotations

from pgstream.stores.kinesis.options import ENTITY, OPTIONS, RELATION, SOURCE
from pgstream.stores.spec import ENTITIES, Alone, Can, Later, Never, StoreType, full

STORE = StoreType(
    name="kinesis",
    label="Kinesis",
    options=OPTIONS,
    entity_options=ENTITY,
    relation_options=RELATION,
    source_options=SOURCE,
    counts={"kinesis.shards": "partitions"},
    reading=("kinesis.poll.interval.millis", "kinesis.consumer.name", "source.max.records.per.trigger"),
    alone={"kinesis.consumer.name": Alone("consumer", of_entity=True)},
    takes=("kinesis.consumer.name",),
    trouble="pgstream.stores.kinesis.troubles:trouble",
    described=("Name", "Shards", "Value Descriptor", "Configs", "Offsets", "Records", "Value Schema"),
    dated=True,
    metadata="STRUCT<stream VARCHAR, partition_key VARCHAR, shard_id VARCHAR, sequence_number VARCHAR>",
    placed=("shard_id", "sequence_number"),
    can={
        **full(*ENTITIES, Can.STREAM, Can.CHANGELOG, Can.SINK, Can.METADATA),
        Can.TABLE: Never("A data stream is read and written as a stream or a changelog."),
        Can.LOOKUP: Never("Keep a data stream as a materialized view, and look rows up in that."),
        Can.DELETES: Never("A record of a data stream always has data, so none says that a key is gone."),
        Can.REAL_TIME: Later("In real time records go from one topic of Kafka to another."),
        Can.BAD_RECORDS: Later("Name a Kafka store in 'source.deserialization.error.log.store'."),
    },
    admin="pgstream.stores.kinesis.admin:KinesisAdmin",
    spark="pgstream.stores.kinesis.spark:KinesisStreams",
)
