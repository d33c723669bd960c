"""JSON_STRING, JSON_OBJECT, JSON_ARRAY and SIMILAR TO: calls whose Spark SQL is put together of pieces.

Owns: JSON text of values, with Flink's rules for NULL and for JSON inside JSON; SQL's patterns as Java's.
Must not know: scopes. Start reading at ``BUILDERS``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from pgstream import types
from pgstream.errors import InvalidStatement, NotSupported
from pgstream.names import quote_text
from pgstream.planner import checked
from pgstream.planner.bind import at
from pgstream.planner.expressions import Typed
from pgstream.types import Type

if TYPE_CHECKING:
    from pgstream.planner.calls import Call

_MADE = ("JSON_OBJECT", "JSON_ARRAY", "JSON_OBJECTAGG", "JSON_ARRAYAGG")
_JAVA_ONLY = ".^$\\"
_STEP = re.compile(
    r"""\.\s*\*|\[\s*\*\s*\]|\.(?P<name>[^.\[]+)|\[(?P<place>\d{1,9})\]|\[(?P<quoted>'[^']*'|"[^"]*")\]"""
)


def wildcards(path: str, position: int | None) -> str | None:
    """The steps of a path that has wildcards, as ``JsonAll`` wants them; None of any other path. Errors:
    InvalidStatement, NotSupported.
    """
    if not path.startswith("$"):
        raise InvalidStatement(what="a JSON path begins with $", at=position)
    steps: list[str | int | None] = []
    end = 1
    while (step := _STEP.match(path, end)) is not None:
        name, place, quoted = step.group("name", "place", "quoted")
        steps.append(int(place) if place else name or (quoted[1:-1] if quoted else None))
        end = step.end()
    if end < len(path):
        raise NotSupported(
            what=f"a JSON path with {path[end : end + 60]}", at=position,
            hint="Its steps are .name, ['name'], [0], and for all of them .* and [*].",
        )  # fmt: skip
    return json.dumps(steps, ensure_ascii=False) if None in steps else None


def _text(value: Typed) -> str:
    """A value as JSON text, ``null`` for NULL."""
    sql, type_ = value.sql, value.type
    if type_ is not None and (to := _without_clocks(type_)) != type_:  # of which Spark knows no JSON
        sql = checked.cast(sql, type_, to, None, True)
    listed = f"to_json(array({sql}), map('ignoreNullFields', 'false'))"
    return f"substring({listed}, 2, char_length({listed}) - 2)"


def _without_clocks(type_: Type) -> Type:
    """A type with text in place of times of day."""
    if type_.name == "TIME":
        return types.TEXT
    fields = tuple((n, _without_clocks(t)) for n, t in type_.fields)
    return replace(type_, args=tuple(map(_without_clocks, type_.args)), fields=fields)


def _piece(call: Call, i: int) -> str:
    """An argument as JSON text: one that is JSON by its making goes in as it is."""
    node = call.node.expressions[i].unnest()
    made = isinstance(node, exp.Anonymous) and str(node.this).upper() in _MADE
    return call.args[i].sql if made else _text(call.args[i])


def _string(call: Call) -> Typed:
    value = call.args[0]
    return Typed(f"if({value.sql} is null, null, {_text(value)})", types.TEXT)


def _array(call: Call) -> Typed:
    keeps = call.node.expressions[0].this == "NULL"
    parts = [
        _piece(call, i) if keeps else f"if({call.args[i].sql} is null, null, {_piece(call, i)})"
        for i in range(1, len(call.args))
    ]
    return Typed(f"concat('[', {_joined(parts)}, ']')", types.TEXT)


def _object(call: Call) -> Typed:
    keeps = call.node.expressions[0].this == "NULL"
    parts = []
    for i in range(1, len(call.args), 2):
        key = Typed(f"cast({call.args[i].sql} as string)", types.TEXT)
        pair = f"concat({_text(key)}, ':', {_piece(call, i + 1)})"
        parts.append(pair if keeps else f"if({call.args[i + 1].sql} is null, null, {pair})")
    return Typed(f"concat('{{', {_joined(parts)}, '}}')", types.TEXT)


def _array_of(call: Call) -> Typed:
    """JSON_ARRAYAGG of an array of JSON texts, in their order."""
    keeps = ", 'null'" * (call.node.expressions[0].this == "NULL")
    return Typed(f"concat('[', coalesce(array_join({call.args[1].sql}, ','{keeps}), ''), ']')", types.TEXT)


def _object_of(call: Call) -> Typed:
    """JSON_OBJECTAGG of an array of names and values, all JSON texts. The last of a name counts, in the place of the
    first, as in Flink; without a name there is no member.
    """
    keeps = call.node.expressions[0].this == "NULL"
    given = f"filter({call.args[1].sql}, e -> e.f0 is not null{'' if keeps else ' and e.f1 is not null'})"
    members = f"transform(map_entries(map_from_entries({given})), e -> concat(e.key, ':', coalesce(e.value, 'null')))"
    return Typed(f"concat('{{', coalesce(array_join({members}, ','), ''), '}}')", types.TEXT)


def _joined(parts: list[str]) -> str:
    return f"concat_ws(',', {', '.join(parts)})" if parts else "''"


def _similar(call: Call) -> Typed:
    pattern = call.node.expressions[1]
    if not pattern.is_string:
        raise NotSupported(what="a pattern of SIMILAR TO that is not a literal", at=at(pattern))
    text = str(pattern.this)
    java = "".join({"%": ".*", "_": "."}.get(c, "\\" + c if c in _JAVA_ONLY else c) for c in text)
    if text.count("(") != text.count(")") or text.count("[") != text.count("]"):
        raise InvalidStatement(what="invalid pattern of SIMILAR TO", at=at(pattern))
    return Typed(f"({call.args[0].sql} rlike {quote_text(f'^(?s:{java})$')})", types.BOOLEAN)


BUILDERS: dict[str, Callable[[Call], Typed]] = {
    "json_string": _string,
    "json_array": _array,
    "json_object": _object,
    "json_arrayagg": _array_of,
    "json_objectagg": _object_of,
    "similar": _similar,
}
