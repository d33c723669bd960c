"""Kafka stores: Apache Kafka, Confluent Cloud, MSK, Redpanda, WarpStream and whatever speaks the protocol.

Owns: what the type is called, what it can do, and where its two faces are.
Must not know: how either face works. Start reading at ``STORE``; the options are in ``options.py``, the client
settings made from them in ``client.py``, talking to a broker without Spark in ``admin.py``.
"""

from __future__ import annotations

from pgstream.stores.kafka.options import ENTITY, OPTIONS, RELATION, SINK_ENTITY, SOURCE
from pgstream.stores.spec import ENTITIES, Can, Never, StoreType, full

STORE = StoreType(
    name="kafka",
    label="Kafka",
    aliases=("confluent_kafka",),
    options=OPTIONS,
    entity_options=ENTITY,
    relation_options=RELATION,
    source_options=SOURCE,
    sink_entity=SINK_ENTITY,
    counts={"kafka.partitions": "partitions", "kafka.replicas": "replicas"},
    reading=("kafka.consumer.", "kafka.properties.", "source.max.records.per.trigger"),
    sending=("kafka.producer.", "kafka.properties."),
    keep_hint="Give 'kafka.topic.retention.ms' = '-1' to a new topic, or change that of an existing one.",
    trouble="pgstream.stores.kafka.troubles:trouble",
    marks=True,
    ends=True,
    jars=(("kafka.sasl.hash_function=AWS_MSK_IAM", "msk"),),
    metadata='STRUCT<topic VARCHAR, "partition" INTEGER, "offset" BIGINT, timestamp_type VARCHAR>',
    can={
        **full(
            *ENTITIES, Can.STREAM, Can.CHANGELOG, Can.SINK, Can.DELETES, Can.BAD_RECORDS, Can.METADATA, Can.REAL_TIME
        ),
        Can.TABLE: Never("A topic is read and written as a stream or a changelog."),
        Can.LOOKUP: Never("Keep a topic as a materialized view, and look rows up in that."),
    },
    admin="pgstream.stores.kafka.admin:KafkaAdmin",
    spark="pgstream.stores.kafka.spark:KafkaStreams",
)
