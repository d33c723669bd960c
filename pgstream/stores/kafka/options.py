"""The options of Kafka stores, topics, relations and sources: the only description of them.

Owns: names, kinds, defaults, choices and sentences. Validation, DESCRIBE, docs and ``options.yaml`` read these rows.
Must not know: what a client library calls a setting; ``client.py`` translates. Start reading at ``OPTIONS``.
"""

from __future__ import annotations

from dataclasses import replace

from pgstream.stores import shared
from pgstream.stores.aws import region, role_arn
from pgstream.stores.kafka.values import (
    brokers,
    extensions,
    position,
    protocols,
    suites,
    token_endpoint,
)
from pgstream.stores.spec import Kind, Option, OptionTable

_PASSWORD = "kafka.sasl.hash_function=PLAIN|SHA256|SHA512|SCRAM-SHA-256|SCRAM-SHA-512"  # noqa: S105
_OAUTH, _MSK = "kafka.sasl.hash_function=OAUTHBEARER", "kafka.sasl.hash_function=AWS_MSK_IAM"
_PEM = "the PEM text itself, not a file name"

OPTIONS = OptionTable(
    "a Kafka store",
    (
        Option("uris", Kind.TEXT, "Comma-separated brokers.", required=True, example="b1:9092,b2:9092", shape=brokers),
        *shared.TLS,
        Option("tls.ca_cert_file", Kind.FILE, f"Certificate authorities to trust: {_PEM}."),
        Option("tls.client.cert_file", Kind.FILE, f"Client certificate chain for mutual TLS: {_PEM}."),
        Option("tls.client.key_file", Kind.FILE, f"Key of the client certificate: {_PEM}."),
        Option("tls.client.key_passphrase", Kind.SECRET, "What opens an encrypted key."),
        Option(
            "tls.cipher_suites",
            Kind.TEXT,
            "Comma-separated cipher suites, by their IANA names, that may be used.",
            shape=suites,
            example="TLS_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        ),
        Option(
            "tls.protocols",
            Kind.TEXT,
            "Comma-separated TLS versions that may be used.",
            shape=protocols,
            example="TLSv1.2,TLSv1.3",
        ),
        Option(
            "security.protocol",
            Kind.WORD,
            "The Kafka clients' own spelling; wins over tls.disabled.",
            choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        ),
        Option(
            "kafka.sasl.hash_function",
            Kind.WORD,
            "SASL mechanism; SHA256 and SHA512 are SCRAM.",
            default="NONE",
            choices=(
                "NONE",
                "PLAIN",
                "SHA256",
                "SHA512",
                "SCRAM-SHA-256",
                "SCRAM-SHA-512",
                "OAUTHBEARER",
                "AWS_MSK_IAM",
            ),
            aliases=("sasl.hash_function", "sasl.mechanism", "kafka.sasl.mechanism"),
        ),
        Option(
            "kafka.sasl.username",
            Kind.TEXT,
            "User name, or Confluent Cloud's API key.",
            when=_PASSWORD,
            aliases=("sasl.username",),
        ),
        Option(
            "kafka.sasl.password",
            Kind.SECRET,
            "Password, or Confluent Cloud's API secret.",
            when=_PASSWORD,
            aliases=("sasl.password",),
        ),
        Option(
            "kafka.sasl.oauthbearer.token.endpoint.url",
            Kind.TEXT,
            "Where an OAUTHBEARER client gets its tokens (OIDC, grant type client_credentials).",
            when=_OAUTH,
            aliases=("sasl.oauthbearer.token.endpoint.url",),
            example="https://login.example.com/oauth2/token",
            shape=token_endpoint,
        ),
        Option(
            "kafka.sasl.oauthbearer.client.id",
            Kind.TEXT,
            "The client's id at the token endpoint.",
            when=_OAUTH,
            aliases=("sasl.oauthbearer.client.id",),
        ),
        Option(
            "kafka.sasl.oauthbearer.client.secret",
            Kind.SECRET,
            "The client's secret at the token endpoint.",
            when=_OAUTH,
            aliases=("sasl.oauthbearer.client.secret",),
        ),
        Option(
            "kafka.sasl.oauthbearer.scope",
            Kind.TEXT,
            "Scope that tokens are asked for.",
            aliases=("sasl.oauthbearer.scope",),
        ),
        Option(
            "kafka.sasl.oauthbearer.extensions",
            Kind.TEXT,
            "Comma-separated name=value pairs sent with a token; Confluent Cloud wants its cluster's and pool's.",
            aliases=("sasl.oauthbearer.extensions",),
            example="logicalCluster=lkc-1,identityPoolId=pool-1",
            shape=extensions,
        ),
        Option(
            "kafka.sasl.oauthbearer.ca_cert_file",
            Kind.FILE,
            f"Certificate authorities of the token endpoint, when the system does not know them: {_PEM}.",
        ),
        Option(
            "kafka.msk.iam_role_arn",
            Kind.TEXT,
            "Role that the server's own AWS identity takes to open MSK.",
            when=_MSK,
            example="arn:aws:iam::123456789012:role/streams",
            shape=role_arn,
        ),
        Option(
            "kafka.msk.aws_region",
            Kind.TEXT,
            "AWS region of the cluster.",
            when=_MSK,
            example="us-east-1",
            shape=region,
        ),
        replace(shared.REGISTRY, aliases=("kafka.schema_registry_name",)),
        *shared.STORE,
    ),
)

_TOPIC_CONFIG = Option(
    "kafka.topic.",
    Kind.TEXT,
    "Any topic configuration of the broker, for a topic that is made.",
    prefix=True,
    example="kafka.topic.retention.ms",
)

ENTITY = OptionTable(
    "a Kafka entity",
    (
        Option(
            "kafka.partitions",
            Kind.INTEGER,
            "Partition count; the broker's default when absent.",
            minimum=1,
            aliases=("topic.partitions", "kafka.topic.partitions"),
        ),
        Option(
            "kafka.replicas",
            Kind.INTEGER,
            "Replication factor; the broker's default when absent.",
            minimum=1,
            aliases=("topic.replicas", "kafka.topic.replicas"),
            fixed="how many replicas an entity has",
        ),
        shared.VALUE_MESSAGE,
        Option("key.descriptor", Kind.TEXT, "Protobuf message of the keys.", example="my_source.shop.Key"),
        _TOPIC_CONFIG,
    ),
)

_POSITION = Option(
    "starting.position",
    Kind.TEXT,
    "Where a query begins to read: earliest, latest, timestamp:TIME (ISO 8601 or epoch milliseconds), or "
    "offset:PARTITION:OFFSET,… (other partitions from their earliest record).",
    example="earliest",
    shape=position,
)
_CLIENT = frozenset((
    "client.id", "connections.max.idle.ms", "metadata.max.age.ms", "receive.buffer.bytes", "reconnect.backoff.max.ms",
    "reconnect.backoff.ms", "request.timeout.ms", "retry.backoff.max.ms", "retry.backoff.ms", "send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms", "socket.connection.setup.timeout.ms",
))  # fmt: skip
FETCHING = _CLIENT | {
    "check.crcs", "client.rack", "default.api.timeout.ms", "fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes",
    "group.id", "max.partition.fetch.bytes", "max.poll.records",
}  # fmt: skip
SENDING = _CLIENT | {
    "batch.size", "buffer.memory", "compression.gzip.level", "compression.lz4.level", "compression.type",
    "compression.zstd.level", "delivery.timeout.ms", "linger.ms", "max.block.ms",
    "max.in.flight.requests.per.connection", "max.request.size", "metadata.max.idle.ms", "retries",
    "transaction.timeout.ms",
}  # fmt: skip
"""Other settings of a consumer or producer name brokers, classes, files or credentials: those are the store's."""

_READING = (
    _POSITION,
    shared.MAX_RECORDS,
    Option(
        "kafka.consumer.",
        Kind.TEXT,
        "Consumer settings of a source that tune how it fetches: client.rack reads from the replica that is near, "
        "group.id names a consumer group, in which nothing is committed (otherwise clients have none).",
        prefix=True,
        example="kafka.consumer.client.rack",
        only=FETCHING,
    ),
    Option(
        "kafka.properties.",
        Kind.TEXT,
        "Settings of both: a source's consumers and a sink's producers take those that they know, and "
        "kafka.consumer.… or kafka.producer.… wins.",
        prefix=True,
        example="kafka.properties.request.timeout.ms",
        only=FETCHING | SENDING,
    ),
)

RELATION = OptionTable(
    "a relation in a Kafka store",
    (
        Option("topic", Kind.TEXT, "Topic that holds the data; otherwise the relation's name in lower case."),
        Option("store", Kind.TEXT, "Store of the topic; otherwise the session's."),
        shared.VALUE_FORMAT,
        shared.TIMESTAMP,
        shared.TIMESTAMP_FORMAT,
        *shared.TIME,
        *_READING,
        Option(
            "topic.partitions",
            Kind.INTEGER,
            "Partition count of a topic that is made; must equal that of one that exists.",
            minimum=1,
            aliases=("kafka.partitions", "kafka.topic.partitions"),
            example="1",
        ),
        Option(
            "topic.replicas",
            Kind.INTEGER,
            "Replication factor of a topic that is made; must equal that of one that exists.",
            minimum=1,
            aliases=("kafka.replicas", "kafka.topic.replicas"),
            example="1",
        ),
        shared.KEY_FORMAT,
        Option("key.type", Kind.TEXT, "Type of the record keys.", example="STRUCT<userid VARCHAR>"),
        *shared.KEYS,
        *shared.VALUES,
        Option("key.subject", Kind.TEXT, "Subject of the keys' schemas in the registry; otherwise <topic>-key."),
        Option(
            "key.descriptor.name",
            Kind.TEXT,
            "Protobuf message of the keys, source.message; otherwise the entity's, or the schema registry's.",
            example="my_source.shop.Key",
        ),
        Option(
            "enable.upsert.mode",
            Kind.BOOLEAN,
            "The record key of a changelog carries its primary key; TRUE for all that is made of one with TRUE.",
        ),
        *shared.BAD_RECORDS,
        _TOPIC_CONFIG,
        Option(
            "kafka.producer.",
            Kind.TEXT,
            "Producer settings of a sink that tune how it sends.",
            prefix=True,
            example="kafka.producer.linger.ms",
            only=SENDING,
        ),
    ),
)

SOURCE = OptionTable(
    "a source in a Kafka store",
    (
        *_READING,
        *shared.SOURCE,
        shared.OTHER_FORMAT,
    ),
)

# Results carry event time as the record's timestamp, which may be far from the broker's clock (semantics.md §28.1);
# Kafka 4 refuses timestamps more than an hour ahead unless the topic allows them.
SINK_ENTITY = {
    "kafka.topic.message.timestamp.type": "CreateTime",
    "kafka.topic.message.timestamp.before.max.ms": "9223372036854775807",
    "kafka.topic.message.timestamp.after.max.ms": "9223372036854775807",
}
