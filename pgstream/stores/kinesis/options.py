"""The options of Kinesis stores, data streams, relations and sources: the only description of them.

Owns: names, kinds, defaults, choices and sentences. Validation, DESCRIBE, docs and ``options.yaml`` read these rows.
Must not know: what a client library calls a setting; ``client.py`` translates. Start reading at ``OPTIONS``.
"""

from __future__ import annotations

from pgstream.stores import aws, reading
from pgstream.stores.spec import Kind, Option, OptionTable

_WORDS = {"trim_horizon": "earliest", "at_timestamp": "timestamp"}


def position(text: str) -> str:
    """Where reading begins: ``earliest``, ``latest`` or ``timestamp:`` epoch milliseconds."""
    word, _, rest = (part.strip() for part in text.strip().partition(":"))
    match _WORDS.get(word.lower(), word.lower()):
        case ("earliest" | "latest") as plain if not rest:
            return plain
        case "timestamp":
            return f"timestamp:{reading.moment(rest)}"
    raise ValueError("it is not earliest, latest or timestamp:<time>")


OPTIONS = OptionTable(
    "a Kinesis store",
    (
        Option(
            "uris",
            Kind.TEXT,
            "Endpoint of the service; otherwise AWS's own of the region.",
            example="https://kinesis.us-east-1.amazonaws.com",
            shape=aws.endpoint,
        ),
        Option(
            "kinesis.region",
            Kind.TEXT,
            "AWS region; otherwise the one that AWS's own endpoint names.",
            example="us-east-1",
            aliases=("aws.region", "kinesis.aws_region"),
            shape=aws.region,
        ),
        Option(
            "kinesis.access_key_id", Kind.TEXT, "Id of an access key.", aliases=("aws.access_key_id",), example="AKIA…"
        ),
        Option(
            "kinesis.secret_access_key",
            Kind.SECRET,
            "Secret of the access key.",
            aliases=("aws.secret_access_key",),
        ),
        Option(
            "kinesis.session_token",
            Kind.SECRET,
            "Session token of a temporary access key.",
            aliases=("aws.session_token",),
        ),
        Option(
            "kinesis.profile",
            Kind.TEXT,
            "Profile of the server's AWS configuration instead of an access key; its name begins with pgstream-.",
            example="pgstream-analytics",
            shape=aws.profile,
        ),
        Option(
            "kinesis.iam_role_arn",
            Kind.TEXT,
            "IAM role to take, by the access key or profile; with neither, by the server's own identity.",
            example="arn:aws:iam::123456789012:role/streams",
            aliases=("aws.iam_role_arn",),
            shape=aws.role_arn,
        ),
        Option(
            "kinesis.iam_external_id",
            Kind.SECRET,
            "External id that the role asks for.",
            aliases=("aws.iam_external_id",),
        ),
        Option(
            "kinesis.sts.uris",
            Kind.TEXT,
            "Endpoint of the service that gives roles; otherwise AWS's own of the region.",
            example="https://sts.us-east-1.amazonaws.com",
            shape=aws.endpoint,
        ),
        Option(
            "kinesis.account.id",
            Kind.TEXT,
            "AWS account that the data streams must be of.",
            example="123456789012",
            shape=aws.account,
        ),
        Option("schema_registry.name", Kind.TEXT, "Schema registry of the store.", names="schema_registry"),
        Option("properties.file", Kind.FILE, "YAML file of parameters; those of the statement win."),
        Option(
            "access_region",
            Kind.TEXT,
            "Accepted for older scripts; this server connects from where it runs.",
            aliases=("access.region", "availability_zone"),
        ),
    ),
)

_RETENTION = Option(
    "kinesis.retention.hours",
    Kind.INTEGER,
    "Hours that records are kept: 24 (AWS's default) to 8760.",
    minimum=24,
    example="48",
)

ENTITY = OptionTable(
    "a Kinesis entity",
    (
        Option(
            "kinesis.shards",
            Kind.INTEGER,
            "Shard count; 1 when absent.",
            minimum=1,
            aliases=("topic.shards",),
        ),
        _RETENTION,
        Option("value.descriptor", Kind.TEXT, "Protobuf message of the data.", example="my_source.shop.Order"),
    ),
)

_READING = (
    Option(
        "starting.position",
        Kind.TEXT,
        "Where a query begins to read: earliest (trim_horizon), latest, or timestamp:TIME (at_timestamp:TIME; ISO 8601 "
        "or epoch milliseconds).",
        example="earliest",
        shape=position,
    ),
    reading.MAX_RECORDS,
    Option(
        "kinesis.poll.interval.millis",
        Kind.INTEGER,
        "How often a shard that had nothing is asked again; 250 when absent. All readers of a shard share five calls a "
        "second.",
        minimum=200,
        example="1000",
    ),
)
_KEYS = ("JSON", "PRIMITIVE")
"""A partition key is text."""

RELATION = OptionTable(
    "a relation in a Kinesis store",
    (
        Option(
            "topic",
            Kind.TEXT,
            "Data stream that holds the data; otherwise the relation's name in lower case.",
            aliases=("kinesis.stream",),
        ),
        Option("store", Kind.TEXT, "Store of the data stream; otherwise the session's."),
        Option("value.format", Kind.WORD, "Format of the data.", choices=reading.FORMATS, example="json"),
        reading.TIMESTAMP,
        reading.TIMESTAMP_FORMAT,
        *_READING,
        Option(
            "topic.shards",
            Kind.INTEGER,
            "Shard count of a data stream that is made; must equal that of one that exists.",
            minimum=1,
            aliases=("kinesis.shards",),
            example="1",
        ),
        _RETENTION,
        Option("key.format", Kind.WORD, "Format of the partition keys.", choices=_KEYS),
        Option("key.type", Kind.TEXT, "Type of the partition keys.", example="VARCHAR"),
        Option("key.columns", Kind.TEXT, "Comma-separated columns that make the partition key of a sink."),
        Option("value.columns.exclude", Kind.TEXT, "Columns of a sink kept in the key only; needs key.columns."),
        Option("value.subject", Kind.TEXT, "Subject of the data's schemas in the registry; otherwise <stream>-value."),
        Option(
            "value.descriptor.name",
            Kind.TEXT,
            "Protobuf message of the data, source.message; otherwise the entity's, or the schema registry's.",
            example="my_source.shop.Order",
        ),
        *reading.BAD_RECORDS,
    ),
)

SOURCE = OptionTable(
    "a source in a Kinesis store",
    (
        *_READING,
        *reading.SOURCE,
        Option("value.format", Kind.WORD, "Format of the data, instead of the relation's.", choices=reading.FORMATS),
    ),
)
