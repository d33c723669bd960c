"""Protobuf descriptors, ``source.message``: what they name, and which entities they are attached to.

Owns: looking them up, and the attachments, which the descriptor source's record keeps (so that whoever does not see the
source does not see them). Must not know: what a message gives (``formats.protobuf``), registries.
Manual: "CREATE ENTITY", "UPDATE ENTITY", "LIST DESCRIPTORS". Start reading at ``settle``.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace

from google.protobuf.descriptor import Descriptor

from pgstream.catalog import kinds
from pgstream.catalog.records import ObjectRecord
from pgstream.errors import DependentsExist, InvalidOption, UndefinedObject
from pgstream.formats import protobuf
from pgstream.names import quote
from pgstream.properties import Options
from pgstream.statements import places
from pgstream.statements.base import Context
from pgstream.statements.declared import Declared

SIDES = ("value", "key")


def settle(ctx: Context, d: Declared) -> Declared:
    """With the descriptors that the relation names, or that are attached to its entity (semantics.md "PROTOBUF")."""
    for side in SIDES:
        format_, name = d.get(f"{side}.format"), d.get(f"{side}.descriptor.name")
        if name is not None and format_ not in (None, "protobuf"):
            raise InvalidOption(
                what=f'"{side}.descriptor.name" says nothing about format {str(format_).upper()}',
                at=d.at(f"{side}.descriptor.name"),
                hint=f"Give '{side}.format' = 'protobuf', or leave it out.",
            )
        if name is not None:
            d = d.also(**{f"{side}_descriptor_name": _known(ctx, name, d.at(f"{side}.descriptor.name"))})
        elif format_ == "protobuf" or (format_ is None and side == "value"):
            d = d.also(**{f"{side}_descriptor_name": attached(ctx, d.store.name, d.entity, side)})
    return d


def of(d: Declared, side: str) -> str | None:
    """The descriptor by which a side is read and written; None where it has another format, or a registry."""
    return d.get(f"{side}.descriptor.name") if d.get(f"{side}.format") == "protobuf" else None


async def message(ctx: Context, name: str, at: int | None = None) -> Descriptor:
    """The message that a descriptor names. Errors: UndefinedObject, UnusableSchema."""
    record, message_ = _source(ctx, name, at)
    files = base64.b64decode((await ctx.catalog.inventory.secrets(record))["file"])
    return protobuf.message(files, message_)


def attached(ctx: Context, store: str, entity: str, side: str) -> str | None:
    """The descriptor of an entity's values or keys."""
    for record in places.objects(ctx, "descriptor_source"):
        if (message_ := record.options.get(_attachment(store, entity, side))) is not None:
            return f"{record.name}.{message_}"
    return None


def said(ctx: Context, given: Options, options: Mapping[str, str]) -> tuple[dict[str, str | None], dict[str, str]]:
    """What an entity's WITH attaches by side (None: nothing any more), and the options that are left."""
    left = dict(options)
    out: dict[str, str | None] = {}
    for side in SIDES:
        if (g := given.get(f"{side}.descriptor")) is not None:
            name = left.pop(f"{side}.descriptor", None)
            out[side] = _known(ctx, name, g.value_at) if name is not None else None
    return out, left


async def attach(ctx: Context, store: str, entity: str, to: Mapping[str, str | None]) -> None:
    """Keep for an entity's sides which descriptor they have."""
    for side, name in to.items():
        key = _attachment(store, entity, side)
        for record in places.objects(ctx, "descriptor_source"):
            source, _, message_ = (name or "").partition(".")
            wanted = message_ if record.name == source else None
            if record.options.get(key) == wanted:
                continue
            options = {k: v for k, v in record.options.items() if k != key}
            await ctx.catalog.inventory.update(
                replace(record, options=options | ({key: wanted} if wanted is not None else {}))
            )


async def forget(ctx: Context, store: str) -> None:
    """Detach all from the entities of a store that is no more: another of its name may come."""
    for record in ctx.catalog.snapshot.of_kind(ctx.session.organization, "descriptor_source"):
        of_store = {k for k in record.options if k.startswith(_ATTACHED) and k.endswith(_in(store))}
        if of_store:
            left = {k: v for k, v in record.options.items() if k not in of_store}
            await ctx.catalog.inventory.update(replace(record, options=left))


def without_attachments(record: ObjectRecord) -> ObjectRecord:
    """The record as a copy begins."""
    return replace(record, options={k: v for k, v in record.options.items() if not k.startswith(_ATTACHED)})


def check_unused(ctx: Context, record: ObjectRecord, at: int | None) -> None:
    """DependentsExist while an entity or a relation has a descriptor of this source."""
    attachments = [k.removeprefix(_ATTACHED) for k in record.options if k.startswith(_ATTACHED)]
    called, name = kinds.KINDS[record.kind].called, record.name
    if attachments:
        raise DependentsExist(
            kind=called, name=name, at=at, detail=f"Attached to {', '.join(attachments)}.",
            hint="UPDATE ENTITY … WITH ('value.descriptor' = NULL) takes a descriptor away.",
        )  # fmt: skip
    users = [
        ("relation", str(r.full))
        for r in ctx.catalog.snapshot.relations.values()
        if any(r.properties.get(f"{side}.descriptor.name", "").partition(".")[0] == name for side in SIDES)
    ]
    if users:
        raise DependentsExist(kind=called, name=name, at=at, users=users, hint="Drop the relations first.")


_ATTACHED = "attached to "


def _attachment(store: str, entity: str, side: str) -> str:
    return f"{_ATTACHED}{side} of {entity}{_in(store)}"


def _in(store: str) -> str:
    """The end of what is attached in a store, and in no other: quoted, unless it is a plain word."""
    return f" in {quote(store)}"


def _known(ctx: Context, name: str, at: int | None) -> str:
    record, message_ = _source(ctx, name, at)
    return f"{record.name}.{message_}"


def _source(ctx: Context, name: str, at: int | None) -> tuple[ObjectRecord, str]:
    source, _, message_ = name.partition(".")
    record = places.find(ctx, "descriptor_source", source) or places.find(ctx, "descriptor_source", source.lower())
    if record is None:
        raise kinds.missing("descriptor_source", source, at)
    if message_ not in record.options.get("messages", "").split(","):
        raise UndefinedObject(
            kind="descriptor", name=name, at=at, hint="LIST DESCRIPTORS shows them: source.message.", ds_code="3D010"
        )
    return record, message_
