"""Protobuf of a schema registry: the message that a subject's schema is, and the schema that a sink is given.

Owns: which message of a schema is meant (the first), and when a subject's schema is kept as it is. The engine compiles
the texts, so that they are read by one parser wherever they are.
Must not know: other formats (``registered``), how a registry is asked. Start reading at ``of_schema``.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

from google.protobuf.descriptor import Descriptor

from pgstream.errors import NotYet, UnusableSchema
from pgstream.formats import protobuf, protobuf_text
from pgstream.formats.registry import Registered, Registry
from pgstream.planner.plan import Schema
from pgstream.statements.base import Context
from pgstream.types import Type


async def of_schema(ctx: Context, found: Registered) -> Descriptor:
    """The first message of a schema. Errors: UnusableSchema."""
    files = await _compiled(ctx, found)
    return protobuf.message(files, _first(files))


async def register(
    ctx: Context, registry: Registry, subject: str, name: str, columns: Sequence[tuple[str, Type]]
) -> Schema:
    """The schema that a sink's records are written by. Errors: SchemaRefused, TypeMismatch, NotYet.

    The subject's newest is taken when it has a field for every column; without one a message called ``name`` is made.
    """
    old = await registry.latest(subject)
    if old is not None:
        files = await _compiled(ctx, old)
        m = protobuf.message(files, _first(files))
        if missing := [c for c, _ in columns if c not in m.fields_by_name]:
            raise NotYet(
                what=f'adding fields to message {m.full_name} of subject "{subject}"',
                detail=f"It has none for {', '.join(missing)}.",
                hint="Register a schema that has them, or name another subject in 'value.subject'.",
            )
        protobuf.check_writes(m, columns)
        id_ = old.id
    else:
        text = protobuf_text.schema_of(columns, name)
        files = await ctx.engine.compile(text, {}, ctx.session.pool)
        id_ = await registry.register(subject, text, "PROTOBUF")
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
    file = protobuf.last_file(files)
    if not file.message_type:
        raise UnusableSchema(why="it has no message")
    return f"{file.package}.{file.message_type[0].name}" if file.package else file.message_type[0].name
