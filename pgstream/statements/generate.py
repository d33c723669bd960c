"""GENERATE STREAM DDL and GENERATE COLUMNS: a topic that nobody has described yet.

Owns: the grammar, the columns that a schema or a topic's first records give, and the CREATE STREAM made of them.
Must not know: how types are guessed (``inference``), how records are read (stores), registries (``registered``).
Manual: "GENERATE STREAM DDL". Start reading at ``Draft``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar, Self

from pgstream import types
from pgstream.errors import InvalidText, MissingOption, NotReady, TooDeep, UnusableSchema
from pgstream.formats.columns import not_deep
from pgstream.names import Name, quote, quote_literal
from pgstream.properties import Given, Options
from pgstream.sql.cursor import Cursor
from pgstream.statements import access, declared, descriptors, places, registered
from pgstream.statements.access import Need
from pgstream.statements.answers import listing
from pgstream.statements.base import Column, Context, Result, Statement
from pgstream.statements.declared import Declared
from pgstream.statements.entity import SCHEMAS
from pgstream.statements.inference import Seen
from pgstream.stores.spec import Can, Kind, Option, OptionTable, Record

RECORDS = 100
"""How many records of a topic are looked at, unless the statement says it."""
MOST_RECORDS = 10_000
_SAMPLE = 16 << 20
"""Bytes of keys and values that are looked at; the record that goes beyond them is the last one."""
WAIT_S, PAUSE_S = 5.0, 0.5
"""For the first record, and for each later one."""
OPTIONS = OptionTable(
    "GENERATE",
    (
        Option("topic", Kind.TEXT, "Topic to look at; the lower-cased name when absent."),
        Option("store", Kind.TEXT, "Store that it lies in; the session's when absent."),
        Option("value.format", Kind.WORD, "Format of the values.", default="JSON",
               choices=("JSON", "AVRO", "PROTOBUF")),
        *SCHEMAS,
        Option("sample.records", Kind.INTEGER, f"How many records of JSON to look at, at most {MOST_RECORDS}.",
               default=str(RECORDS), minimum=1),
    ),
)  # fmt: skip

_NAMES = tuple(o.name for o in SCHEMAS)


@dataclass(frozen=True, slots=True)
class Guess:
    """A column, and what speaks for it: of how many records, in how many, how often NULL, which kinds of values."""

    name: str
    type: types.Type
    nullable: bool = True
    records: int | None = None
    seen: int | None = None
    nulls: int | None = None
    confidence: float | None = None
    found: str | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """A stream that is not there yet: its columns, and the parameters that follow from its records."""

    columns: Sequence[Guess]
    properties: dict[str, str]

    def ddl(self, name: str, d: Declared) -> str:
        lines = ",\n".join(f"  {quote(c.name)} {c.type}{'' if c.nullable else ' NOT NULL'}" for c in self.columns)
        given = {"value.format": d.get("value.format") or "", **self.properties}
        options = "".join(f", '{k}' = {quote_literal(v)}" for k, v in given.items())
        place = f"'store' = {quote(d.store.name)}, 'topic' = {quote_literal(d.entity)}"
        return f"CREATE STREAM {quote(name)} (\n{lines}\n) WITH ({place}{options});"


async def draft(ctx: Context, given: Options, entity: str) -> tuple[Draft, Declared]:
    """Look at a topic. Errors: NotReady without a record that tells, UndefinedEntity, those of its registry."""
    checked = OPTIONS.check(given)
    sampled = int(checked.pop("sample.records"))
    # The rest means what it means in CREATE STREAM; a format that was left out is JSON.
    asked = {g.name.lower(): g for g in given.values() if g.name.lower() != "sample.records"}
    asked.setdefault("value.format", Given("value.format", checked["value.format"]))
    d = descriptors.settle(ctx, declared.declare(ctx, asked, entity))
    if d.get("value.format") != "json":
        return await _of_schema(ctx, d), d
    d.kind.require(Can.PRINT)
    return await _of_records(ctx, d, min(sampled, MOST_RECORDS)), d


async def _of_schema(ctx: Context, d: Declared) -> Draft:
    columns = [Guess(c.name, c.type, c.nullable) for c in await registered.columns(ctx, d)]
    # Keys are looked for in the values' format, where it says what they are.
    keyed = descriptors.settle(ctx, d.also(key_format=d.get("value.format")))
    if descriptors.of(keyed, "key") is None and "schema_registry.name" not in d.store.options:
        keyed = d
    keyed = await registered.key_type(ctx, keyed)
    named = {k: v for k in _NAMES if (v := keyed.get(k)) is not None}
    key = {k: v for k in ("key.format", "key.type") if (v := keyed.get(k)) is not None}
    return Draft(columns, {**(key if "key.type" in key else {}), **named})


async def _of_records(ctx: Context, d: Declared, most: int) -> Draft:
    async with places.open_store(ctx, d.store) as admin, aclosing(admin.read(d.entity, True)) as records:  # type: ignore[type-var]
        sample = await _first(records, most)
    # In a thread: a record may have a million values, and other sessions go on.
    return await asyncio.to_thread(_guessed, d, sample)


def _guessed(d: Declared, sample: Sequence[Record]) -> Draft:
    try:
        found = _by_sample(d, sample)
        for c in found.columns:
            not_deep(c.type)
    except (RecursionError, UnusableSchema):
        hint = "Declare the columns that are wanted; VARCHAR takes any value as its text."
        raise TooDeep(what=f'a record of topic "{d.entity}"', hint=hint) from None
    return found


def _by_sample(d: Declared, sample: Sequence[Record]) -> Draft:
    whole = Seen()
    for r in sample:
        if r.value is not None:
            whole.add(_json(d, r))
    if not whole.fields:
        raise NotReady(
            what=f'topic "{d.entity}" has no record that is a JSON object', hint="INSERT INTO ENTITY writes one."
        )
    layout, total = whole.layout(), whole.values
    columns = [
        Guess(n, s.type(layout), True, total, s.values, s.nulls, s.confidence(layout), s.found)
        for n, s in whole.fields.items()
    ]
    return Draft(columns, {**({"timestamp.format": layout} if layout != "sql" else {}), **_key(sample)})


def _json(d: Declared, r: Record) -> object:
    try:
        return json.loads(r.value or b"", parse_float=Decimal)
    except ValueError:
        raise InvalidText(type="json", detail=f'Record {r.position} of topic "{d.entity}".') from None


def _key(sample: Sequence[Record]) -> dict[str, str]:
    """The key's parameters when every record has a key that is a JSON object, or text."""
    keys = [r.key for r in sample]
    seen = Seen()
    try:
        for key in keys:
            text = (key or b"\xff").decode()
            seen.add(json.loads(text) if text.startswith("{") else text)
    except ValueError:
        return {}
    if set(seen.kinds) == {"object"} and seen.fields:
        return {"key.format": "json", "key.type": str(seen.type("sql"))}
    printable = all(k is not None and k.decode().isprintable() for k in keys)
    return {"key.format": "primitive", "key.type": "VARCHAR"} if "object" not in seen.kinds and printable else {}


async def _first(records: AsyncIterator[Record], most: int) -> list[Record]:
    """The first records, as many as there are now and may be kept."""
    out: list[Record] = []
    left = _SAMPLE
    try:
        async with asyncio.timeout(WAIT_S) as limit:
            async for record in records:
                limit.reschedule(asyncio.get_running_loop().time() + PAUSE_S)
                out.append(record)
                left -= len(record.value or b"") + len(record.key or b"")
                if len(out) == most or left < 0:
                    break
    except TimeoutError:
        pass
    return out


@dataclass(frozen=True, slots=True)
class GenerateStreamDdl(Statement):
    """GENERATE STREAM DDL stream_name [WITH ( 'topic' = topic_name, 'store' = store_name,
    'value.format' = { JSON | AVRO | PROTOBUF } [, 'parameter' = value ...] )];

    Write the CREATE STREAM for a topic. AVRO and PROTOBUF: its columns are those of the newest schema of the topic's
    subject in the store's registry, or of its descriptor. JSON: columns and types are guessed from the topic's first
    hundred records, or as many as 'sample.records' says; GENERATE COLUMNS shows how sure the guess is.
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
        made, d = await draft(ctx, self.given, self.name.text.lower())
        return listing(self.columns, [(made.ddl(self.name.text, d),)])


@dataclass(frozen=True, slots=True)
class GenerateColumns(Statement):
    """GENERATE COLUMNS [topic_name] [WITH ( 'topic' = topic_name, 'store' = store_name,
    'value.format' = { JSON | AVRO | PROTOBUF } [, 'parameter' = value ...] )];

    The columns that GENERATE STREAM DDL writes, a row each. Guessed from JSON: how many records were looked at, in how
    many the field was, how often it was NULL, which kinds of values it had, and how likely the next record's value is
    of the type, which for n values so far is (n + 1) / (n + 2).
    """

    words: ClassVar = ("GENERATE", "COLUMNS")
    columns: ClassVar = (
        Column("Name"), Column("Type"), Column("Nullable", types.BOOLEAN), Column("Records", types.BIGINT),
        Column("Seen"), Column("Nulls", types.BIGINT), Column("Confidence"), Column("Found"),
    )  # fmt: skip

    name: Name | None
    given: Options

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        name = None if c.peek("WITH") else c.name()
        given = c.properties() if c.accept("WITH") else {}
        c.end()
        return cls(name, given)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (access.in_store(self.given),)

    async def execute(self, ctx: Context) -> Result:
        if self.name is None and "topic" not in self.given:
            raise MissingOption(name="topic", hint="GENERATE COLUMNS needs a topic: by name, or in 'topic'.")
        made, _ = await draft(ctx, self.given, self.name.text.lower() if self.name is not None else "")
        return listing(self.columns, [_shown(g) for g in made.columns])


def _shown(g: Guess) -> tuple[object, ...]:
    seen = None if g.seen is None or not g.records else f"{100 * g.seen / g.records:.0f} %"
    sure = None if g.confidence is None else f"{100 * g.confidence:.0f} %"
    return g.name, g.type, g.nullable, g.records, seen, g.nulls, sure, g.found
