"""GENERATE STREAM DDL: the CREATE STREAM of a topic that nobody has described yet.

Owns: the grammar, and guessing columns from the topic's first records. Must not know: how records are read (stores).
Manual: "GENERATE STREAM DDL". Descriptors and registries come with the AVRO and PROTOBUF formats.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pgstream import types
from pgstream.errors import InvalidText, NotReady
from pgstream.names import Name, quote
from pgstream.properties import Options
from pgstream.sql.cursor import Cursor
from pgstream.statements import access, places
from pgstream.statements.access import Need
from pgstream.statements.answers import listing
from pgstream.statements.base import Column, Context, Result, Statement
from pgstream.stores.spec import Can, Kind, Option, OptionTable

RECORDS = 100
"""How many records of a topic are looked at."""
WAIT_S, PAUSE_S = 5.0, 0.5
"""For the first record, and for each later one."""
OPTIONS = OptionTable(
    "GENERATE STREAM DDL",
    (
        Option("topic", Kind.TEXT, "Topic to look at; the lower-cased name when absent."),
        Option("store", Kind.TEXT, "Store that it lies in; the session's when absent."),
        Option("value.format", Kind.WORD, "Format of the values.", default="JSON", choices=("JSON",),
               choices_later=("AVRO", "PROTOBUF")),
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class GenerateStreamDdl(Statement):
    """GENERATE STREAM DDL stream_name [WITH ( 'topic' = topic_name, 'store' = store_name, 'value.format' = JSON )];

    Write the CREATE STREAM for a topic: its columns and types are guessed from the topic's first hundred records.
    """

    words: ClassVar = ("GENERATE", "STREAM", "DDL")
    columns: ClassVar = (Column("DDL"),)

    name: Name
    given: Options

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        name = c.name()
        given = c.properties() if c.accept("WITH") else {}
        c.end()
        return cls(name, given)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (access.in_store(self.given),)

    async def execute(self, ctx: Context) -> Result:
        checked = OPTIONS.check(self.given)
        named = self.given.get("store")
        store = places.store(ctx, Name(checked["store"], named.value_at) if named is not None else None)
        places.store_type(store).require(Can.PRINT)
        topic = checked.get("topic", self.name.text.lower())
        merged: types.Type | None = None
        async with places.open_store(ctx, store) as admin:
            for document in await _documents(admin, topic):
                merged = widened(merged, guessed(document))
        if merged is None or merged.name != "STRUCT":
            raise NotReady(
                what=f'topic "{topic}" has no record that is a JSON object', hint="INSERT INTO ENTITY writes one."
            )
        lines = ",\n".join(f"  {quote(name)} {type_}" for name, type_ in merged.fields)
        options = f"'store' = {quote(store.name)}, 'topic' = {_literal(topic)}, 'value.format' = 'json'"
        return listing(self.columns, [(f"CREATE STREAM {quote(self.name.text)} (\n{lines}\n) WITH ({options});",)])


async def _documents(admin: Any, topic: str) -> list[Any]:
    """The first records of a topic, as many as there are now."""
    out: list[Any] = []
    try:
        async with asyncio.timeout(WAIT_S) as limit, aclosing(admin.read(topic, True)) as records:
            async for record in records:
                limit.reschedule(asyncio.get_running_loop().time() + PAUSE_S)
                if record.value is None:
                    continue
                try:
                    out.append(json.loads(record.value))
                except ValueError:
                    raise InvalidText(type="json", detail=f'Record {record.position} of topic "{topic}".') from None
                if len(out) == RECORDS:
                    break
    except TimeoutError:
        pass
    return out


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def guessed(value: Any) -> types.Type:
    """The type that holds a value of JSON; nothing at all is text."""
    match value:
        case bool():
            return types.BOOLEAN
        case int():
            return types.BIGINT if -(2**63) <= value < 2**63 else types.Type("DECIMAL", (38, 0))
        case float():
            return types.Type("DOUBLE")
        case list():
            inner: types.Type | None = None
            for item in value:
                inner = widened(inner, guessed(item))
            return types.Type("ARRAY", args=(inner or types.TEXT,))
        case dict() if value:
            return types.Type("STRUCT", fields=tuple((k, guessed(v)) for k, v in value.items()))
    return types.TEXT


def widened(one: types.Type | None, other: types.Type) -> types.Type:
    """A type that holds values of both; text when nothing else does."""
    if one is None or one == other:
        return other
    names = {one.name, other.name}
    if names == {"BIGINT", "DOUBLE"}:
        return types.Type("DOUBLE")
    if one.name == other.name == "ARRAY":
        return types.Type("ARRAY", args=(widened(one.args[0], other.args[0]),))
    if one.name == other.name == "STRUCT":
        fields = dict(one.fields)
        for name, type_ in other.fields:
            fields[name] = widened(fields.get(name), type_)
        return types.Type("STRUCT", fields=tuple(fields.items()))
    return types.TEXT
