"""The options of Kinesis stores, data streams, relations and sources: the only description of them.

Owns: names, kinds, defaults, choices and sentences. Validation, DESCRIBE, docs and ``options.yaml`` read these rows.
Must not know: what a client library calls a setting; ``client.py`` translates. Start reading at ``OPTIONS``.
"""

from __future__ import annotations

import re
from dataclasses import replace

from pgstream.stores import aws, shared
from pgstream.stores.spec import Kind, Option, OptionTable

_WORDS = {"trim_horizon": "earliest", "at_timestamp": "timestamp"}


def position(text: str) -> str:
    """Where reading begins: ``earliest``, ``latest`` or ``timestamp:`` epoch milliseconds."""
    word, _, rest = (part.strip() for part in text.strip().partition(":"))
    match _WORDS.get(word.lower(), word.lower()):
        case ("earliest" | "latest") as plain if not rest:
            return plain
        case "timestamp":
            return f"timestamp:{shared.moment(rest)}"
    raise ValueError("it is not earliest, latest or timestamp:<time>")


def consumer(text: str) -> str:
    """The name of a registered consumer; not its ARN."""
    if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,128}", text):
        raise ValueError("it is not a name of 1 to 128 letters, digits and _.-")
    return text


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
        shared.REGISTRY,
        *shared.STORE,
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
        shared.VALUE_MESSAGE,
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
    shared.MAX_RECORDS,
    Option(
        "kinesis.poll.interval.millis",
        Kind.INTEGER,
        "How often a shard that had nothing is asked again; 250 when absent. All readers of a shard share five calls a "
        "second.",
        minimum=200,
        example="1000",
    ),
    Option(
        "kinesis.consumer.name",
        Kind.TEXT,
        "Consumer that is registered with the data stream: its own share of each shard is read (enhanced fan-out), 2 "
        "MB a second. One that no other query reads by. Who names one in a query needs USAGE on the store.",
        example="analytics",
        shape=consumer,
    ),
)
_KEYS = ("JSON", "PRIMITIVE")
"""A record's value is its data, and its key the partition key, which is text."""

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
        shared.VALUE_FORMAT,
        shared.TIMESTAMP,
        shared.TIMESTAMP_FORMAT,
        *shared.TIME,
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
        replace(shared.KEY_FORMAT, choices=_KEYS),
        Option("key.type", Kind.TEXT, "Type of the partition keys.", example="VARCHAR"),
        *shared.KEYS,
        *shared.VALUES,
        *shared.BAD_RECORDS,
    ),
)

SOURCE = OptionTable(
    "a source in a Kinesis store",
    (
        *_READING,
        *shared.SOURCE,
        shared.OTHER_FORMAT,
    ),
)
