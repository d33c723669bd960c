"""Files in WITH: ``'@name'`` in the folder that the administrator allows, ``'base64:…'``, or the text itself.

Owns: what a file option's value means, and ``'properties.file'``, whose YAML stands for options of the statement. The
PostgreSQL protocol has no attachments, so the bytes are on the server already or come in the statement.
Must not know: which options are files (``OptionTable`` does). Start reading at ``resolve``.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import datetime as dt
from pathlib import Path

import yaml

from pgstream.errors import InvalidOption
from pgstream.properties import Given, Options
from pgstream.statements.base import Context
from pgstream.stores.spec import Kind, OptionTable

LIMIT = 64 << 20
PROPERTIES = "properties.file"
PROPERTIES_LIMIT = 1 << 20
_INLINE = "base64:"
_BLANKS = b" \t\n\r\f\v"
_FILES = (Kind.FILE, Kind.BINARY)


async def resolve(ctx: Context, given: Options, table: OptionTable) -> dict[str, Given]:
    """The options with the contents of files in place of their names, and those of ``'properties.file'`` added.

    An option of the statement wins over one of the file. Errors: InvalidOption at the value.
    """
    out = dict(given)
    named = out.pop(PROPERTIES, None)
    if named is not None and named.value is not None:
        data = await _content(ctx, named)
        for name, value in (await asyncio.to_thread(_properties, data, named)).items():
            out.setdefault(name.lower(), Given(name, value, named.value_at, named.value_at))
    for key, g in out.items():
        option = table.find(g.name)
        if option is None or option.kind not in _FILES or g.value is None:
            continue
        data = await _content(ctx, g)
        if option.kind is Kind.BINARY:
            text = await asyncio.to_thread(lambda data: base64.b64encode(data).decode(), data)
            out[key] = Given(g.name, text, g.at, g.value_at)
        else:
            out[key] = Given(g.name, _text(data, g), g.at, g.value_at)
    return out


async def _content(ctx: Context, g: Given) -> bytes:
    value = g.value or ""
    if value.startswith("@"):
        return await asyncio.to_thread(_read, ctx.config.attachments_dir, value[1:], g)
    return await asyncio.to_thread(_inline, value, g)


def _inline(value: str, g: Given) -> bytes:
    """The content that a value is itself, as text or as base64, which may have blanks and ends of lines in it."""
    encoded = value.startswith(_INLINE)
    if len(value) > 2 * LIMIT:
        raise _too_large(f'value of "{g.name}"', g)
    data = value.removeprefix(_INLINE).encode()
    if encoded:
        try:
            data = base64.b64decode(data.translate(None, _BLANKS), validate=True)
        except binascii.Error:
            raise InvalidOption(what=f'value of "{g.name}" is not base64', at=g.value_at) from None
    if len(data) > LIMIT:
        raise _too_large(f'value of "{g.name}"', g)
    return data


def _too_large(what: str, g: Given) -> InvalidOption:
    return InvalidOption(what=f"{what} is larger than {LIMIT >> 20} MB", at=g.value_at)


def _read(folder: Path | None, name: str, g: Given) -> bytes:
    if folder is None:
        raise InvalidOption(
            what=f'file "@{name}" cannot be read: this server has no folder for attachments',
            at=g.value_at,
            hint="Give the content itself, as text or as 'base64:…', or set attachments_dir on the server.",
        )
    root = folder.resolve()
    path = (root / name.lstrip("/")).resolve()
    # A link or .. that leads out of the folder is as good as missing: what else is on the server is nobody's business.
    if not path.is_relative_to(root) or not path.is_file():
        raise InvalidOption(
            what=f'file "@{name}" is not in the folder for attachments',
            at=g.value_at,
            hint="Put it into the folder that the server's setting attachments_dir names.",
        )
    if path.stat().st_size > LIMIT:
        raise _too_large(f'file "@{name}"', g)
    return path.read_bytes()


def _text(data: bytes, g: Given) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise InvalidOption(what=f'file of "{g.name}" is not UTF-8 text', at=g.value_at) from None
    if "\x00" in text:
        raise InvalidOption(what=f'file of "{g.name}" holds a NUL character', at=g.value_at)
    return text


class _Plain(yaml.SafeLoader):
    """Without aliases: a few lines of them, one made of the others, stand for more than there is memory for."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases cannot be used here", problem_mark=mark)
        return super().compose_node(parent, index)


def _properties(data: bytes, g: Given) -> dict[str, str | None]:
    if len(data) > PROPERTIES_LIMIT:
        raise InvalidOption(what=f'"{PROPERTIES}" is larger than {PROPERTIES_LIMIT >> 20} MB', at=g.value_at)
    try:
        found = yaml.load(_text(data, g), _Plain)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as e:
        raise InvalidOption(what=f'"{PROPERTIES}" is not YAML', at=g.value_at, detail=_why(e)) from None
    if not isinstance(found, dict) or not all(isinstance(k, str) for k in found):
        raise InvalidOption(what=f'"{PROPERTIES}" must be a mapping of parameters to values', at=g.value_at)
    return {name: _value(name, value, g) for name, value in found.items()}


def _why(e: Exception) -> str:
    """What is wrong with a file, without its words: some are secrets."""
    if isinstance(e, yaml.MarkedYAMLError) and e.problem_mark is not None:
        told = "a value cannot be read" if isinstance(e, yaml.constructor.ConstructorError) else e.problem
        return f"Line {e.problem_mark.line + 1}: {told}."
    return (
        "It is nested too deeply." if isinstance(e, RecursionError) else f"A value cannot be read: {type(e).__name__}."
    )


def _value(name: str, value: object, g: Given) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str | int | float | dt.date):
        raise InvalidOption(what=f'parameter "{name}" of "{PROPERTIES}" must be one value', at=g.value_at)
    try:
        text = str(value).lower() if isinstance(value, bool) else str(value)
    except ValueError:  # more digits than Python writes
        raise InvalidOption(
            what=f'the number of parameter "{name}" of "{PROPERTIES}" is too long', at=g.value_at
        ) from None
    if "\x00" in name + text:
        raise InvalidOption(what=f'"{PROPERTIES}" holds a NUL character', at=g.value_at)
    return text
