"""Options that relations and sources of every streaming store have: event time, lateness, bad records, batch size.

Owns: their names, kinds and sentences. Must not know: any store type; a type's own ``options.py`` puts them into its
tables. Start reading at ``SOURCE``.
"""

from __future__ import annotations

import datetime as dt

from pgstream.stores.spec import Kind, Option

FORMATS = ("JSON", "AVRO", "PROTOBUF", "PRIMITIVE")

TIMESTAMP = Option("timestamp", Kind.TEXT, "Column that is the event time; otherwise the record's own timestamp.")
TIMESTAMP_FORMAT = Option(
    "timestamp.format", Kind.WORD, "Text form of TIMESTAMP values in JSON.", choices=("SQL", "ISO8601")
)
MAX_RECORDS = Option(
    "source.max.records.per.trigger",
    Kind.INTEGER,
    "Records that a batch takes at most, over all partitions; 500000 when absent.",
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
LATENESS = (
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
)
SOURCE = (TIMESTAMP, TIMESTAMP_FORMAT, *LATENESS, *BAD_RECORDS)
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
