"""The options of Kafka stores, topics, relations and sources: the only description of them.

Owns: names, kinds, defaults, choices and sentences. Validation, DESCRIBE, docs and ``options.yaml`` read these rows.
Must not know: what a client library calls a setting; ``client.py`` translates. Start reading at ``OPTIONS``.
"""

from __future__ import annotations

from pgstream.stores.spec import Kind, Option, OptionTable

_PASSWORD_MECHANISMS = "PLAIN|SHA256|SHA512|SCRAM-SHA-256|SCRAM-SHA-512"  # noqa: S105
_FORMATS = ("JSON", "AVRO", "PROTOBUF", "PRIMITIVE")
_PEM = "the PEM text itself, not a file name"

OPTIONS = OptionTable(
    "a Kafka store",
    (
        Option("uris", Kind.TEXT, "Comma-separated brokers.", required=True, example="b1:9092,b2:9092"),
        Option("tls.disabled", Kind.BOOLEAN, "TRUE connects without TLS.", default="false"),
        Option(
            "tls.verify_server_hostname",
            Kind.BOOLEAN,
            "FALSE accepts a certificate of another host name.",
            default="true",
        ),
        Option("tls.ca_cert_file", Kind.FILE, f"Certificate authorities to trust: {_PEM}."),
        Option("tls.client.cert_file", Kind.FILE, f"Client certificate chain for mutual TLS: {_PEM}."),
        Option("tls.client.key_file", Kind.FILE, f"Key of the client certificate (PKCS #8): {_PEM}."),
        Option("tls.cipher_suites", Kind.TEXT, "Cipher suites.", later="The libraries' defaults are used."),
        Option("tls.protocols", Kind.TEXT, "TLS versions.", later="The libraries' defaults are used: TLS 1.2 and 1.3."),
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
            choices=("NONE", "PLAIN", "SHA256", "SHA512", "SCRAM-SHA-256", "SCRAM-SHA-512"),
            choices_later=("AWS_MSK_IAM", "OAUTHBEARER"),
            aliases=("sasl.hash_function", "sasl.mechanism", "kafka.sasl.mechanism"),
        ),
        Option(
            "kafka.sasl.username",
            Kind.TEXT,
            "User name, or Confluent Cloud's API key.",
            when=f"kafka.sasl.hash_function={_PASSWORD_MECHANISMS}",
            aliases=("sasl.username",),
        ),
        Option(
            "kafka.sasl.password",
            Kind.SECRET,
            "Password, or Confluent Cloud's API secret.",
            when=f"kafka.sasl.hash_function={_PASSWORD_MECHANISMS}",
            aliases=("sasl.password",),
        ),
        Option("kafka.msk.iam_role_arn", Kind.TEXT, "IAM role.", later="IAM authentication of MSK is planned."),
        Option("kafka.msk.aws_region", Kind.TEXT, "AWS region.", later="IAM authentication of MSK is planned."),
        Option(
            "schema_registry.name",
            Kind.TEXT,
            "Schema registry of the store.",
            aliases=("kafka.schema_registry_name",),
            names="schema_registry",
        ),
        Option("properties.file", Kind.FILE, "YAML file of parameters; those of the statement win."),
        Option(
            "access_region",
            Kind.TEXT,
            "Accepted for older scripts; this server connects from where it runs.",
            aliases=("access.region", "availability_zone"),
        ),
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
        ),
        Option("value.descriptor", Kind.TEXT, "Protobuf message of the values.", example="my_source.shop.Order"),
        Option("key.descriptor", Kind.TEXT, "Protobuf message of the keys.", example="my_source.shop.Key"),
        _TOPIC_CONFIG,
    ),
)

_POSITION = Option(
    "starting.position", Kind.WORD, "Where a query begins to read.", choices=("EARLIEST", "LATEST"), example="earliest"
)
_TIMESTAMP = Option("timestamp", Kind.TEXT, "Column that is the event time; otherwise the record's own timestamp.")
_TIMESTAMP_FORMAT = Option(
    "timestamp.format", Kind.WORD, "Text form of TIMESTAMP values in JSON.", choices=("SQL", "ISO8601")
)
_BAD_RECORDS = (
    Option(
        "source.deserialization.error.handling",
        Kind.WORD,
        "What a query does with a record that it cannot decode.",
        choices=("TERMINATE", "IGNORE", "IGNORE_AND_LOG"),
    ),
    Option(
        "source.deserialization.error.log.topic",
        Kind.TEXT,
        "Topic of the bad records.",
        when="source.deserialization.error.handling=IGNORE_AND_LOG",
        example="bad_records",
    ),
    Option("source.deserialization.error.log.store", Kind.TEXT, "Store of that topic; otherwise the source's own."),
)

_TUNING = frozenset((
    "batch.size", "buffer.memory", "client.id", "compression.gzip.level", "compression.lz4.level", "compression.type",
    "compression.zstd.level", "connections.max.idle.ms", "delivery.timeout.ms", "linger.ms", "max.block.ms",
    "max.in.flight.requests.per.connection", "max.request.size", "metadata.max.age.ms", "metadata.max.idle.ms",
    "receive.buffer.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms", "request.timeout.ms", "retries",
    "retry.backoff.max.ms", "retry.backoff.ms", "send.buffer.bytes", "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms", "transaction.timeout.ms",
))  # fmt: skip
"""Other settings of a producer name brokers, classes, files or credentials: those are the store's."""

RELATION = OptionTable(
    "a relation in a Kafka store",
    (
        Option("topic", Kind.TEXT, "Topic that holds the data; otherwise the relation's name in lower case."),
        Option("store", Kind.TEXT, "Store of the topic; otherwise the session's."),
        Option(
            "value.format",
            Kind.WORD,
            "Format of the record values.",
            choices=_FORMATS,
            example="json",
        ),
        _TIMESTAMP,
        _TIMESTAMP_FORMAT,
        _POSITION,
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
        Option(
            "key.format",
            Kind.WORD,
            "Format of the record keys.",
            choices=_FORMATS,
        ),
        Option("key.type", Kind.TEXT, "Type of the record keys.", example="STRUCT<userid VARCHAR>"),
        Option("key.columns", Kind.TEXT, "Comma-separated columns that make the record key of a sink."),
        Option("value.columns.exclude", Kind.TEXT, "Columns of a sink kept in the key only; needs key.columns."),
        Option("value.subject", Kind.TEXT, "Subject of the values' schemas in the registry; otherwise <topic>-value."),
        Option("key.subject", Kind.TEXT, "Subject of the keys' schemas in the registry; otherwise <topic>-key."),
        Option(
            "value.descriptor.name",
            Kind.TEXT,
            "Protobuf message of the values, source.message; otherwise the entity's, or the schema registry's.",
            example="my_source.shop.Order",
        ),
        Option(
            "key.descriptor.name",
            Kind.TEXT,
            "Protobuf message of the keys, source.message; otherwise the entity's, or the schema registry's.",
            example="my_source.shop.Key",
        ),
        Option("enable.upsert.mode", Kind.BOOLEAN, "The record key of a changelog carries its primary key."),
        *_BAD_RECORDS,
        _TOPIC_CONFIG,
        Option(
            "kafka.producer.",
            Kind.TEXT,
            "Producer settings of a sink that tune how it sends.",
            prefix=True,
            example="kafka.producer.linger.ms",
            only=_TUNING,
        ),
    ),
)

SOURCE = OptionTable(
    "a source in a Kafka store",
    (
        _POSITION,
        _TIMESTAMP,
        _TIMESTAMP_FORMAT,
        Option(
            "source.allow.latency.millis",
            Kind.INTEGER,
            "How far event time may be out of order; later rows are dropped and counted. 10000 when absent.",
            minimum=1,
        ),
        Option(
            "source.idle.timeout.millis",
            Kind.INTEGER,
            "A source that is silent this long no longer holds the watermark back.",
            minimum=1,
        ),
        *_BAD_RECORDS,
        Option(
            "value.format",
            Kind.WORD,
            "Format of the record values, instead of the relation's.",
            choices=_FORMATS,
        ),
    ),
)

# Results carry event time as the record's timestamp, which may be far from the broker's clock (semantics.md §28.1);
# Kafka 4 refuses timestamps more than an hour ahead unless the topic allows them.
SINK_ENTITY = {
    "kafka.topic.message.timestamp.type": "CreateTime",
    "kafka.topic.message.timestamp.before.max.ms": "9223372036854775807",
    "kafka.topic.message.timestamp.after.max.ms": "9223372036854775807",
}
