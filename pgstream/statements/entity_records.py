"""Single records of entities: PRINT ENTITY and INSERT INTO ENTITY (older name TOPIC).

Owns: the grammar and the answers. Must not know: what bytes mean (``entity_bytes``), how a store reads and writes them.
Manual: "PRINT ENTITY", "INSERT INTO ENTITY". Start reading at ``PrintEntity``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pgstream import types
from pgstream.catalog.records import StoreRecord
from pgstream.engine.readers import Place
from pgstream.errors import InvalidOption, InvalidText, NoRegistry
from pgstream.properties import Options
from pgstream.sql.cursor import Cursor
from pgstream.statements import descriptors, places
from pgstream.statements.answers import ROWS, json_text
from pgstream.statements.base import Column, Context, Result, TextRow
from pgstream.statements.entity import SCHEMAS, OfEntity
from pgstream.statements.entity_bytes import Shown, Text, document, encoded, plain, showing
from pgstream.stores.spec import Can, Kind, NewRecord, Option, OptionTable, Record

_SCALARS = "of a PRIMITIVE one; VARCHAR when absent."
OPTIONS = OptionTable(
    "INSERT INTO ENTITY",
    (
        Option("key", Kind.TEXT, "The record's key.", example="user_7"),
        Option("headers", Kind.TEXT, "The record's headers, as a JSON object of strings.", example='{"trace": "a1"}'),
        Option("partition", Kind.INTEGER, "Partition to write to; otherwise by the key.", minimum=0),
        Option("timestamp", Kind.INTEGER, "The record's time, in milliseconds of the epoch.", minimum=0),
        Option("value.format", Kind.WORD, "Format of the value; otherwise its subject's, or JSON.",
               choices=("JSON", "AVRO", "PROTOBUF", "PRIMITIVE")),
        Option("key.format", Kind.WORD, "Format of the key; otherwise its subject's, or the text as it is.",
               choices=("JSON", "AVRO", "PROTOBUF", "PRIMITIVE")),
        Option("value.type", Kind.TEXT, f"Type of the value, {_SCALARS}", example="BIGINT"),
        Option("key.type", Kind.TEXT, f"Type of the key, {_SCALARS}", example="BIGINT"),
        *SCHEMAS,
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PrintEntity(OfEntity):
    """PRINT ENTITY entity_path [IN STORE store_name] [WITH ('from_beginning')] [LIMIT count];

    Show raw records as they arrive, until LIMIT, cancel, or the client goes away. It begins with records written after
    the statement, or with the first one. Records that carry the id of a schema in the store's registry, and those of
    an entity with a descriptor, are shown as JSON, text as it is, other bytes as ``\\x…``. Headers are a JSON object.
    LIMIT is an addition of ours.
    """

    words: ClassVar = ("PRINT", "ENTITY")
    columns: ClassVar = (Column("Key"), Column("Value"), Column("Timestamp", types.TIMESTAMP_LTZ), Column("Position"),
                         Column("Headers"))  # fmt: skip

    from_beginning: bool
    limit: int | None

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        path, store = cls.head(c)
        given = c.properties() if c.accept("WITH") else {}
        limit = c.integer() if c.accept("LIMIT") else None
        c.end()
        for g in given.values():
            if g.name.lower() != "from_beginning":
                raise InvalidOption(
                    what=f'unknown parameter "{g.name}" for PRINT ENTITY', at=g.at, hint="Known: 'from_beginning'."
                )
        from_beginning = "from_beginning" in given and given["from_beginning"].value == "true"
        return cls(path, store, from_beginning, limit)

    async def execute(self, ctx: Context) -> Result:
        store = places.store(ctx, self.store)
        places.store_type(store).require(Can.PRINT, self.path.at)
        # Asked here, so that a missing topic is an error of the statement and not of its first row.
        async with places.open_store(ctx, store, self.path.at) as admin:
            await admin.describe(places.entity(self.path))
        return Result(ROWS, self.columns, self._records(ctx, store))

    async def _records(self, ctx: Context, store: StoreRecord) -> AsyncIterator[TextRow]:
        left = self.limit
        if left == 0:
            return
        place = ctx.engine.place(ctx.catalog.snapshot.access.user_of(ctx.session.user))
        async with (
            _taken(place),
            places.open_store(ctx, store, self.path.at) as admin,
            showing(ctx, store, places.entity(self.path)) as shown,
            aclosing(admin.read(places.entity(self.path), self.from_beginning)) as records,  # type: ignore[type-var]
        ):
            async for record in records:
                yield await _line(shown, record)
                left = left - 1 if left is not None else None
                if left == 0:
                    return


@asynccontextmanager
async def _taken(place: Place) -> AsyncIterator[None]:
    place.take(by_worker=False)
    try:
        yield
    finally:
        place.leave()


async def _line(shown: Shown, r: Record) -> TextRow:
    at = None
    if r.timestamp_ms is not None:
        at = types.render(dt.datetime.fromtimestamp(r.timestamp_ms / 1000, dt.UTC))
    return [await shown.text(r.key, "key"), await shown.text(r.value, "value"), at, r.position, _headers(r.headers)]


def _headers(headers: Sequence[tuple[str, bytes | None]]) -> str | None:
    """A JSON object; a name that comes twice has an array of its values."""
    out: dict[str, list[str | None]] = {}
    for name, value in headers:
        out.setdefault(name, []).append(None if value is None else plain(value))
    return json_text({k: v[0] if len(v) == 1 else v for k, v in out.items()}) if out else None


@dataclass(frozen=True, slots=True)
class InsertIntoEntity(OfEntity):
    """INSERT INTO ENTITY entity_name [IN STORE store_name] VALUE( { 'document' | NULL } )
    [WITH ( 'parameter' = value [, ...] )];

    Write one record. The document is JSON and is written as it is, unless the entity has a Protobuf descriptor, or the
    topic's subject in the store's registry has a schema: then it is written by that one, or by the newest. NULL is a
    record without a value. For trying things out.
    """

    words: ClassVar = ("INSERT", "INTO", "ENTITY")
    tag: ClassVar = "INSERT 0 1"

    document: str | None
    document_at: int
    given: Options

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        path, store = cls.head(c)
        c.expect("VALUE", "(")
        at = c.at
        document = None if c.accept("NULL") else c.string()
        c.expect(")")
        given = c.properties() if c.accept("WITH") else {}
        c.end()
        return cls(path, store, document, at, given)

    async def execute(self, ctx: Context) -> Result:
        checked = OPTIONS.check(self.given)
        store = places.store(ctx, self.store)
        places.store_type(store).require(Can.INSERT, self.path.at)
        for side in ("value", "key"):
            self._check_registry(ctx, store, checked, side)
        if checked.get("value.format") != "PRIMITIVE" and self.document is not None:
            document(self.document, self.document_at)
        value, key = (self._side(ctx, store, checked, side) for side in ("value", "key"))
        record = NewRecord(
            value=None if value is None else await encoded(ctx, store, value),
            key=None if key is None else await encoded(ctx, store, key),
            headers=_given_headers(checked.get("headers"), self._at("headers")),
            partition=int(checked["partition"]) if "partition" in checked else None,
            timestamp_ms=int(checked["timestamp"]) if "timestamp" in checked else None,
        )
        async with places.open_store(ctx, store, self.path.at) as admin:
            await admin.insert(places.entity(self.path), [record])
        return Result(self.tag)

    def _at(self, name: str) -> int | None:
        return self.given[name].value_at if name in self.given else None

    def _descriptor(self, ctx: Context, store: StoreRecord, checked: Mapping[str, str], side: str) -> str | None:
        given = checked.get(f"{side}.descriptor.name")
        return given or descriptors.attached(ctx, store.name, places.entity(self.path), side)

    def _side(self, ctx: Context, store: StoreRecord, checked: Mapping[str, str], side: str) -> Text | None:
        text, at = (self.document, self.document_at) if side == "value" else (checked.get("key"), self._at("key"))
        if text is None:
            return None
        subject = checked.get(f"{side}.subject", f"{places.entity(self.path)}-{side}")
        return Text(
            text, at, checked.get(f"{side}.format"), checked.get(f"{side}.type", "VARCHAR"), subject,
            self._descriptor(ctx, store, checked, side), self._at(f"{side}.descriptor.name"),
        )  # fmt: skip

    def _check_registry(self, ctx: Context, store: StoreRecord, checked: Mapping[str, str], side: str) -> None:
        """A format that has schemas needs a registry, or a descriptor."""
        format_ = checked.get(f"{side}.format")
        described = format_ == "PROTOBUF" and self._descriptor(ctx, store, checked, side) is not None
        if format_ in ("AVRO", "PROTOBUF") and not described and "schema_registry.name" not in store.options:
            raise NoRegistry(store=store.name, format=format_, at=self._at(f"{side}.format"))


def _given_headers(text: str | None, at: int | None) -> Sequence[tuple[str, bytes | None]]:
    """Headers of a JSON object; the values of an array come one by one under its name."""
    if text is None:
        return ()
    found: Any = document(text, at)
    if not isinstance(found, dict):
        raise InvalidText(type="json", at=at, detail='Headers are an object, such as {"trace": "a1"}.')
    out: list[tuple[str, bytes | None]] = []
    for name, value in found.items():
        for v in value if isinstance(value, list) else [value]:
            if v is not None and not isinstance(v, str):
                raise InvalidText(type="json", at=at, detail=f'Header "{name}" is not a string.')
            out.append((name, None if v is None else v.encode()))
    return out
