"""Options that several store types have, written once: of stores, relations and sources.

Owns: their names, kinds and sentences. Must not know: any store type; a type's own ``options.py`` puts them into its
tables, with ``dataclasses.replace`` where it takes fewer values. Start reading at ``STORE``, ``VALUES``, ``SOURCE``.
"""

from __future__ import annotations

import datetime as dt
import re

from pgstream.stores.spec import Kind, Option

FORMATS = ("JSON", "AVRO", "PROTOBUF", "PRIMITIVE")

STORE = (
    Option("properties.file", Kind.FILE, "YAML file of parameters; those of the statement win."),
    Option(
        "access_region",
        Kind.TEXT,
        "Accepted for older scripts; this server connects from where it runs.",
        aliases=("access.region", "availability_zone"),
    ),
)
"""What CREATE STORE may say of every type."""
TLS = (
    Option("tls.disabled", Kind.BOOLEAN, "TRUE connects without TLS.", default="false"),
    Option(
        "tls.verify_server_hostname", Kind.BOOLEAN, "FALSE accepts a certificate of another host name.", default="true"
    ),
)
REGISTRY = Option("schema_registry.name", Kind.TEXT, "Schema registry of the store.", names="schema_registry")

VALUE_FORMAT = Option("value.format", Kind.WORD, "Format of the record values.", choices=FORMATS, example="json")
OTHER_FORMAT = Option(
    "value.format", Kind.WORD, "Format of the record values, instead of the relation's.", choices=FORMATS
)
VALUE_MESSAGE = Option("value.descriptor", Kind.TEXT, "Protobuf message of the values.", example="my_source.shop.Order")
KEY_FORMAT = Option("key.format", Kind.WORD, "Format of the record keys.", choices=FORMATS)
KEYS = (
    Option("key.columns", Kind.TEXT, "Comma-separated columns that make the record key of a sink."),
    Option("value.columns.exclude", Kind.TEXT, "Columns of a sink kept in the key only; needs key.columns."),
)
VALUES = (
    Option("value.subject", Kind.TEXT, "Subject of the values' schemas in the registry; otherwise <topic>-value."),
    Option(
        "value.descriptor.name",
        Kind.TEXT,
        "Protobuf message of the values, source.message; otherwise the entity's, or the schema registry's.",
        example="my_source.shop.Order",
    ),
)
"""Where the schema of a relation's values is."""

TIMESTAMP = Option("timestamp", Kind.TEXT, "Column that is the event time; otherwise the record's own timestamp.")
TIMESTAMP_FORMAT = Option(
    "timestamp.format", Kind.WORD, "Text form of TIMESTAMP values in JSON.", choices=("SQL", "ISO8601")
)
MAX_RECORDS = Option(
    "source.max.records.per.trigger",
    Kind.INTEGER,
    "Records that a batch takes at most, over all partitions; 500000 when absent, in a SELECT to a client 50000.",
    minimum=1,
    example="10000",
)
BAD_RECORDS = (
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
LATENESS_MS = 10_000
"""How late a row may be where nothing says it (semantics §28.3)."""
LATENESS = Option(
    "source.allow.latency.millis",
    Kind.INTEGER,
    f"How far event time may be out of order; later rows are dropped and counted. {LATENESS_MS} when absent.",
    minimum=1,
)
IDLE = Option(
    "source.idle.timeout.millis",
    Kind.INTEGER,
    "A source that is silent this long no longer holds the watermark back; nor does a partition, given 2000 at most.",
    minimum=1,
)
_UNITS = {"d": 86_400_000, "h": 3_600_000, "min": 60_000, "m": 60_000, "s": 1000, "ms": 1}
_LONG_UNITS = {"day": "d", "hour": "h", "minute": "min", "second": "s", "sec": "s", "millisecond": "ms", "milli": "ms"}


def duration(text: str) -> str:
    """Milliseconds of a duration as Flink writes it: a whole number and a unit, without one of milliseconds."""
    found = re.fullmatch(r"\s*([0-9]{1,15})\s*([a-z]*)\s*", text.lower())
    unit = found[2] if found is not None else ""
    unit = _LONG_UNITS.get(unit.removesuffix("s") if len(unit) > 2 else unit, unit) or "ms"
    if found is None or unit not in _UNITS or int(found[1]) == 0:
        raise ValueError("it is not a duration such as '24h', '30 min' or '500 ms'")
    return str(int(found[1]) * _UNITS[unit])


STATE_TTL = Option(
    "flink.sql.state.ttl",
    Kind.TEXT,
    "How long state that nothing touches is kept. Every source of the query must say it, and the longest holds; "
    "QUERY WITH ('state.ttl.millis' = n) goes before it.",
    shape=duration,
    example="24h",
)
TIME = (LATENESS, IDLE)
"""How event time goes: of a relation for all that read it, or of a source."""
SOURCE = (TIMESTAMP, TIMESTAMP_FORMAT, *TIME, STATE_TTL, *BAD_RECORDS)
"""What a source's WITH may say in every store that streams."""


def moment(text: str) -> int:
    """Epoch milliseconds; a time in ISO 8601 is UTC unless it says otherwise."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        when = dt.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("its time is neither epoch milliseconds nor ISO 8601") from None
    when = when if when.tzinfo is not None else when.replace(tzinfo=dt.UTC)
    return int(when.timestamp() * 1000)
