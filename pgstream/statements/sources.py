"""Everything about FUNCTION_SOURCE, DESCRIPTOR_SOURCE and DESCRIPTOR: CREATE, COPY, DROP, LIST, DESCRIBE.

Owns: their options and columns. Must not know: what is in a file (``source_files``), how functions run, how records are
decoded. Manual: "CREATE FUNCTION_SOURCE", "CREATE DESCRIPTOR_SOURCE", "LIST DESCRIPTORS".
COPY is a name only in the manual; here it copies a source under a new name.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from pgstream import types
from pgstream.catalog import kinds
from pgstream.catalog.records import ObjectRecord
from pgstream.errors import InvalidOption
from pgstream.names import Name
from pgstream.sql.cursor import Cursor
from pgstream.statements import access, descriptors, places
from pgstream.statements.access import Need
from pgstream.statements.answers import ddl, done, listing
from pgstream.statements.base import DDL_ROW, Column, Context, Result
from pgstream.statements.heading import expect
from pgstream.statements.shapes import Create, Describe, Drop, List, OfKind
from pgstream.statements.source_files import Unusable, has_classes, messages
from pgstream.stores.spec import Kind, Option, OptionTable

_DESCRIPTION = Option("description", Kind.TEXT, "A sentence for people.")
_FILE = "'@name' in the folder for attachments, or 'base64:…'."
FUNCTION_SOURCE = OptionTable(
    "a function source",
    (Option("file", Kind.BINARY, f"The JAR: {_FILE}", required=True, example="@udf.jar"), _DESCRIPTION),
)
DESCRIPTOR_SOURCE = OptionTable(
    "a descriptor source",
    (
        Option("file", Kind.BINARY, f"The output of protoc --descriptor_set_out: {_FILE}", required=True,
               example="@messages.desc"),
        _DESCRIPTION,
    ),
)  # fmt: skip


class _CreateSource(Create):
    """CREATE of a source: its file is checked, and kept whole."""

    @staticmethod
    def looked_through(data: bytes) -> Mapping[str, str]:
        """What the catalogue keeps of what is in the file. Errors: Unusable."""
        raise NotImplementedError

    async def record(self, ctx: Context) -> tuple[ObjectRecord, dict[str, str]]:
        record, secrets = await Create.record(self, ctx)
        try:
            # In a thread: others are served while a long file is looked through.
            found = await asyncio.to_thread(lambda: self.looked_through(base64.b64decode(secrets["file"])))
        except Unusable as e:
            file = self.given.get("file")  # or it came with properties.file
            words = kinds.KINDS[self.kind].called
            raise InvalidOption(
                what=f'the file of {words} "{self.label}" cannot be used',
                detail=str(e),
                hint=e.hint,
                at=file.value_at if file else None,
            ) from None
        return replace(record, options={**record.options, **found}), secrets


class CreateFunctionSource(_CreateSource):
    """CREATE FUNCTION_SOURCE [IF NOT EXISTS] source_name WITH ( 'file' = '@name.jar' [, 'description' = 'text'] );

    Keep a JAR with classes for CREATE FUNCTION. The file is ``'@name'`` in the folder that the administrator allows
    (setting attachments_dir), or ``'base64:…'``. It has 64 MB at most, and 65,535 entries.
    """

    kind: ClassVar[str] = "function_source"
    options: ClassVar[OptionTable] = FUNCTION_SOURCE

    @staticmethod
    def looked_through(data: bytes) -> Mapping[str, str]:
        if not has_classes(data):
            raise Unusable("It holds no classes.")
        return {}


class CreateDescriptorSource(_CreateSource):
    """CREATE DESCRIPTOR_SOURCE [IF NOT EXISTS] source_name WITH ( 'file' = '@name.desc' [, 'description' = 'text'] );

    Keep a compiled Protobuf descriptor set (``protoc --include_imports --descriptor_set_out``). Its messages are
    descriptors named ``source_name.message``. It has 4 MB at most, and 10,000 messages.
    """

    kind: ClassVar[str] = "descriptor_source"
    options: ClassVar[OptionTable] = DESCRIPTOR_SOURCE

    @staticmethod
    def looked_through(data: bytes) -> Mapping[str, str]:
        return {"messages": ",".join(messages(data))}


@dataclass(frozen=True, slots=True)
class _CopySource(OfKind):
    """COPY kind name TO new_name"""

    verb: ClassVar[str] = "COPY"
    columns: ClassVar[tuple[Column, ...]] = DDL_ROW

    name: Name
    to: Name

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        name = c.name()
        c.expect("TO")
        to = c.name()
        c.end()
        return cls(name, to)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return Need(access.SEES, self.kind, self.name), access.creates(self.kind)

    async def execute(self, ctx: Context) -> Result:
        record, name = descriptors.without_attachments(places.object(ctx, self.kind, self.name)), self.to.text
        copy = replace(record, id="", name=name, owner=ctx.session.role, created_by=ctx.session.user)
        await ctx.catalog.inventory.create(copy, await ctx.catalog.inventory.secrets(record), at=self.to.at)
        return done(self.tag, ddl(self.kind, name, "CREATE", [name]))


class CopyFunctionSource(_CopySource):
    """COPY FUNCTION_SOURCE source_name TO new_name;

    Make another function source with the same file.
    """

    kind: ClassVar[str] = "function_source"


class CopyDescriptorSource(_CopySource):
    """COPY DESCRIPTOR_SOURCE source_name TO new_name;

    Make another descriptor source with the same file.
    """

    kind: ClassVar[str] = "descriptor_source"


class DropFunctionSource(Drop):
    """DROP FUNCTION_SOURCE [IF EXISTS] source_name;

    Forget a function source. Refused while a function comes from it.
    """

    kind: ClassVar[str] = "function_source"


class DropDescriptorSource(Drop):
    """DROP DESCRIPTOR_SOURCE [IF EXISTS] source_name;

    Forget a descriptor source and its descriptors. Refused while an entity or a relation has one of them.
    """

    kind: ClassVar[str] = "descriptor_source"

    async def drop(self, ctx: Context) -> None:
        descriptors.check_unused(ctx, places.object(ctx, self.kind, self.name), self.name.at)
        await Drop.drop(self, ctx)


class ListFunctionSources(List):
    """LIST FUNCTION_SOURCES;

    The function sources, one a row.
    """

    kind: ClassVar[str] = "function_source"
    columns: ClassVar[tuple[Column, ...]] = (
        Column("Name"), Column("State"), Column("Language"), Column("Description"), Column("Url"), Column("Owner"),
        Column("CreatedAt", types.TIMESTAMP_LTZ), Column("UpdatedAt", types.TIMESTAMP_LTZ),
    )  # fmt: skip

    @classmethod
    def line(cls, ctx: Context, record: ObjectRecord) -> Sequence[Any]:
        r = record
        return r.name, r.state, "java", r.options.get("description"), None, r.owner, r.created_at, r.updated_at


class ListDescriptorSources(List):
    """LIST DESCRIPTOR_SOURCES;

    The descriptor sources, one a row.
    """

    kind: ClassVar[str] = "descriptor_source"
    columns: ClassVar[tuple[Column, ...]] = (
        Column("Name"), Column("Type"), Column("Url"), Column("Tags"), Column("Owner"),
        Column("CreatedAt", types.TIMESTAMP_LTZ), Column("UpdatedAt", types.TIMESTAMP_LTZ),
    )  # fmt: skip

    @classmethod
    def line(cls, ctx: Context, record: ObjectRecord) -> Sequence[Any]:
        return record.name, "protobuf", None, None, record.owner, record.created_at, record.updated_at


class ListDescriptors(List):
    """LIST DESCRIPTORS;

    The messages of all descriptor sources, one a row; entities name them ``source.message``.
    """

    kind: ClassVar[str] = "descriptor_source"
    words: ClassVar[tuple[str, ...]] = ("LIST", "DESCRIPTORS")
    columns: ClassVar[tuple[Column, ...]] = (Column("Name"), Column("Source"), Column("Type"), Column("Owner"))

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        expect(c, "LIST", "DESCRIPTORS")
        c.end()
        return cls()

    async def execute(self, ctx: Context) -> Result:
        return listing(
            self.columns,
            [
                (f"{s.name}.{message}", s.name, "protobuf", s.owner)
                for s in places.objects(ctx, "descriptor_source")
                for message in s.options.get("messages", "").split(",")
            ],
        )


class DescribeFunctionSource(Describe):
    """DESCRIBE FUNCTION_SOURCE source_name;

    The row of LIST FUNCTION_SOURCES and its parameters as JSON.
    """

    kind: ClassVar[str] = "function_source"
    of: ClassVar[type[List]] = ListFunctionSources


class DescribeDescriptorSource(Describe):
    """DESCRIBE DESCRIPTOR_SOURCE source_name;

    The row of LIST DESCRIPTOR_SOURCES and its parameters as JSON.
    """

    kind: ClassVar[str] = "descriptor_source"
    of: ClassVar[type[List]] = ListDescriptorSources
