"""Protobuf of a schema registry: the message that a subject's schema is, and the schema that a sink is given.

Owns: which message of a schema is meant (the first), and when a subject's schema is kept as it is or widened.
The engine compiles the texts, so that they are read by one parser wherever they are.
Must not know: other formats (``registered``), how a registry is asked. Start reading at ``of_schema``.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace

from google.protobuf.descriptor import Descriptor

from pgstream.errors import UnusableSchema
from pgstream.formats import protobuf, protobuf_text
from pgstream.formats.registry import Registered, Registry
from pgstream.planner.plan import Schema
from pgstream.statements.base import Context
from pgstream.types import Type


async def of_schema(ctx: Context, found: Registered, place: Sequence[int] = (0,)) -> Descriptor:
    """A message of a schema by its place, the first if none is given. Errors: UnusableSchema."""
    files = await _compiled(ctx, found)
    return protobuf.message(files, _name(files, place))


async def register(
    ctx: Context, registry: Registry, subject: str, name: str, columns: Sequence[tuple[str, Type]]
) -> Schema:
    """The schema that a sink's records are written by. Errors: SchemaRefused, TypeMismatch, UnusableSchema.

    The subject's newest is taken when it has a field for every column, and otherwise gets the fields that it has not;
    without one a message called ``name`` is made.
    """
    old = await registry.latest(subject)
    if old is None:
        text = protobuf_text.schema_of(columns, name)
        files = await ctx.engine.compile(text, {}, ctx.session.pool)
        id_ = await registry.register(subject, text, "PROTOBUF")
        return _schema(id_, files)
    files = await _compiled(ctx, old)
    if not (lacking := protobuf.missing(_message(files), columns).values()):
        protobuf.check_writes(_message(files), columns)
        return _schema(old.id, files)
    added = [
        protobuf_text.Addition(protobuf.place(m), *protobuf.free(m, new), tuple(new.items())) for m, new in lacking
    ]
    wider = replace(old, text=protobuf_text.widened(old.text, added))
    files = await _compiled(ctx, wider)
    protobuf.check_writes(_message(files), columns)
    return _schema(await registry.register(subject, wider.text, "PROTOBUF", old.refers), files)


def _message(files: bytes) -> Descriptor:
    return protobuf.message(files, _first(files))


def _schema(id_: int, files: bytes) -> Schema:
    return Schema(id_, base64.b64encode(files).decode(), _first(files))


async def _compiled(ctx: Context, found: Registered) -> bytes:
    if found.kind != "PROTOBUF":
        raise UnusableSchema(why=f"it is {found.kind}, not PROTOBUF")
    return await ctx.engine.compile(found.text, _texts(found), ctx.session.pool)


def _texts(found: Registered) -> dict[str, str]:
    """What a text imports, by the names of its imports, and what those do."""
    out: dict[str, str] = {}
    for one in found.refers:
        out |= _texts(one) | {one.name: one.text}
    return out


def _first(files: bytes) -> str:
    return _name(files, (0,))


def _name(files: bytes, place: Sequence[int]) -> str:
    """The full name of the message at a place: the number in the file, then in that message, and so on."""
    file = protobuf.last_file(files)
    names, inside = [file.package] * bool(file.package), file.message_type
    for index in place:
        if not 0 <= index < len(inside):
            raise UnusableSchema(why="it has no message" if not file.message_type else f"it has no message at {place}")
        names.append(inside[index].name)
        inside = inside[index].nested_type
    return ".".join(names)
