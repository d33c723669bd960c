"""Columns of tables: PostgreSQL's types as DeltaStream's, and the columns that a stream of a table's changes has.

Owns: the type map in both directions. Must not know: connections. Start reading at ``deltastream`` and ``changes``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pgstream import types
from pgstream.errors import InvalidOption, PgStreamError
from pgstream.names import quote
from pgstream.stores.spec import EntityColumn, EntityInfo

_SCALARS = {
    "boolean": "BOOLEAN", "smallint": "SMALLINT", "integer": "INTEGER", "bigint": "BIGINT", "real": "FLOAT",
    "double precision": "DOUBLE", "bytea": "VARBINARY", "date": "DATE",
}  # fmt: skip
_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
_TIME = re.compile(r"timestamp(?:\((\d)\))? with(out)? time zone")
_TEXT = re.compile(r"character varying\((\d+)\)")
SOURCES = ("source", "system")
"""Where a change was: the name of that column, and the one that older scripts have."""
WIDEST = "DECIMAL(38, 18)"
"""Of a numeric without a precision: what it can hold of it."""
_DIMENSIONS = 6
"""Of an array; PostgreSQL itself has no more, but what answers may be anybody's program."""
_PART = re.compile(r"\s*(?P<name>\"(?:[^\"]++|\"\")++\"|[\w$]+)\s+(?P<type>\S.*)", re.S)


def deltastream(type_: str, dimensions: int = 1) -> str:
    """A type as ``format_type`` has it, as DeltaStream's; what it has no type for is VARCHAR, its text.

    ``dimensions``: those that an array was declared with, which PostgreSQL's name of the type does not say.
    """
    if type_.endswith("[]"):
        nested = min(max(1, dimensions), _DIMENSIONS)
        return "ARRAY<" * nested + deltastream(type_[:-2]) + ">" * nested
    if type_ in _SCALARS:
        return _SCALARS[type_]
    if (m := _TEXT.fullmatch(type_)) is not None:
        return f"VARCHAR({m[1]})"
    if (m := _NUMERIC.fullmatch(type_)) is not None and 0 <= int(m[2]) <= int(m[1]) <= 38:
        return f"DECIMAL({m[1]}, {m[2]})"
    if type_.startswith("numeric"):
        return WIDEST
    if (m := _TIME.fullmatch(type_)) is not None:
        return ("TIMESTAMP" if m[2] else "TIMESTAMP_LTZ") + (f"({m[1]})" if m[1] else "")
    return "VARCHAR"


def changes(table: EntityInfo) -> tuple[EntityColumn, ...]:
    """The columns of a stream of a table's changes (``semantics.md`` §11); rows of several tables are JSON's bytes."""
    row = "VARBINARY"
    if table.columns is not None:
        row = f"STRUCT<{', '.join(f'{quote(c.name)} {c.type}' for c in table.columns if c.told)}>"
    source = 'STRUCT<"db" VARCHAR, "schema" VARCHAR, "table" VARCHAR, "lsn" BIGINT>'
    return (EntityColumn("op", "VARCHAR", False), EntityColumn("ts_ms", "BIGINT"), EntityColumn("before", row),
            EntityColumn("after", row), EntityColumn("source", source))  # fmt: skip


def given(text: str) -> list[EntityColumn]:
    """The columns of parameter 'postgresql.columns'. Errors: InvalidOption."""
    out = []
    for part in _parts(text):
        m = _PART.fullmatch(part)
        if m is None:
            raise InvalidOption(
                what=f'column "{part.strip()}" is not a name and a type', hint="As in id BIGINT NOT NULL."
            )
        name = m["name"][1:-1].replace('""', '"') if m["name"].startswith('"') else m["name"].lower()
        kind, *more = m["type"].rsplit(None, 2)
        is_nullable = [word.upper() for word in more] != ["NOT", "NULL"]
        try:
            out.append(EntityColumn(name, str(types.parse(m["type"].rstrip() if is_nullable else kind)), is_nullable))
        except PgStreamError as e:
            raise InvalidOption(what=f'column "{name}" has no type of the language', hint=e.hint) from None
    return out


def ddl(columns: Sequence[EntityColumn], primary_key: Sequence[str]) -> str:
    """What stands between the parentheses of CREATE TABLE. NULL is a value of a key that has a column for it."""
    lines = [f"{quote_pg(c.name)} {types.parse(c.type).pg}{'' if c.nullable else ' NOT NULL'}" for c in columns]
    if primary_key:
        kind = "UNIQUE NULLS NOT DISTINCT" if holds_null(columns, primary_key) else "PRIMARY KEY"
        lines.append(f"{kind} ({', '.join(map(quote_pg, primary_key))})")
    return ", ".join(lines)


def holds_null(columns: Sequence[EntityColumn], key: Sequence[str]) -> bool:
    """Whether a column of a key may be NULL."""
    return any(c.nullable for c in columns if c.name in key)


def quote_pg(name: str) -> str:
    """A name as PostgreSQL reads it back."""
    return '"' + name.replace('"', '""') + '"'


def _parts(text: str) -> list[str]:
    """The text between commas that stand in no brackets and no quotes."""
    out, depth, start, quoted = [], 0, 0, False
    for i, c in enumerate(text):
        quoted ^= c == '"'
        depth += (c in "(<") - (c in ")>")
        if c == "," and depth == 0 and not quoted:
            out.append(text[start:i])
            start = i + 1
    return [*out, text[start:]]
