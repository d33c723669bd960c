"""The row over which functions are tried, and shown in the documentation."""

import datetime as dt
from decimal import Decimal

COLUMNS = {
    "k": "VARCHAR", "n": "INTEGER", "b": "BIGINT", "d": "DOUBLE", "x": "DECIMAL(10,2)", "s": "VARCHAR", "u": "VARCHAR",
    "f": "BOOLEAN", "ts": "TIMESTAMP(3)", "lt": "TIMESTAMP_LTZ(3)", "day": "DATE", "arr": "ARRAY<VARCHAR>",
    "nums": "ARRAY<INTEGER>", "m": "MAP<VARCHAR, INTEGER>", "st": "STRUCT<a BIGINT, b STRUCT<c VARCHAR>>",
    "j": "VARCHAR", "url": "VARCHAR", "raw": "VARBINARY",
}  # fmt: skip
NOW = dt.datetime(2024, 2, 29, 13, 5, 7, 120000)
_JSON = '{"a": {"b": [1, 2]}, "s": "it\'s", "n": 5, "q": "[x"}'
FIRST = (
    "a", 7, 70, 2.5, Decimal("12.50"), "Hello World", None, True, NOW, NOW.replace(tzinfo=dt.UTC),
    dt.date(2024, 2, 29), ["x", "y", "x"], [3, 1, 2], {"k": 1}, {"a": 9, "b": {"c": "deep"}}, _JSON,
    "https://u:p@h.io:1/p/x?q=1&r=2#f", b"abc",
)  # fmt: skip
