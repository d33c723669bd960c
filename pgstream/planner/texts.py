"""Values as text, as CAST to VARCHAR gives them: in Flink's layout where Spark has another.

Owns: ``[a, b]``, ``{key=value}``, ``(a, b)`` and NULL in them; as many fraction digits as a time's type has; TRUE and
FALSE. Must not know: expressions. Start reading at ``as_text``.
"""

from __future__ import annotations

from pgstream.names import quote_spark
from pgstream.planner import infer
from pgstream.types import Type


def as_text(sql: str, type_: Type | None, depth: int = 0) -> str:
    """The text of a value. ``depth``: how many arrays and maps it is in."""
    if type_ is None or infer.is_a(type_, "VARCHAR"):
        return sql if type_ is not None else f"cast({sql} as string)"
    if type_.name in ("TIMESTAMP", "TIMESTAMP_LTZ") and type_.params:
        # Flink prints exactly as many fraction digits as the type has; Spark drops trailing zeros.
        digits = min(type_.params[0], 6)
        pattern = "yyyy-MM-dd HH:mm:ss" + ("." + "S" * digits if digits else "")
        return f"date_format({sql}, '{pattern}')"
    if type_.name == "BOOLEAN":
        return f"upper(cast({sql} as string))"
    item = f"e{depth}"
    if type_.name == "ARRAY":
        each = _inner(item, type_.args[0], depth + 1)
        return f"concat('[', array_join(transform({sql}, {item} -> {each}), ', '), ']')"
    if type_.name == "MAP":
        key, value = (_inner(f"{item}.{w}", t, depth + 1) for w, t in zip(("key", "value"), type_.args, strict=True))
        pairs = f"transform(map_entries({sql}), {item} -> concat({key}, '=', {value}))"
        return f"concat('{{', array_join({pairs}, ', '), '}}')"
    if type_.name == "STRUCT" and "(" in sql:  # made once, not once a field
        return f"get(transform(array({sql}), {item} -> {as_text(item, type_, depth + 1)}), 0)"
    if type_.name == "STRUCT":
        fields = ", ', ', ".join(_inner(f"{sql}.{quote_spark(n)}", t, depth) for n, t in type_.fields)
        return f"if({sql} is null, null, concat('(', {fields}, ')'))"
    return f"cast({sql} as string)"


def _inner(sql: str, type_: Type, depth: int) -> str:
    return f"coalesce({as_text(sql, type_, depth)}, 'NULL')"
