"""The type table: DeltaStream SQL types and what each is in Spark and in PostgreSQL.

Owns: parsing and printing of type text (``STRUCT<a BIGINT, b ARRAY<VARCHAR>>``), the mapping to Spark's DDL text and
PostgreSQL's type names and oids, and the text form in which values travel to clients (PostgreSQL's text format).
Must not know: sqlglot, Spark, the wire. Sources: the manual's "Data types"; ``semantics.md`` §2 and §28.
Start reading at ``Type`` and ``TABLE``.
"""

from __future__ import annotations

import datetime as dt
import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pgstream.errors import InvalidStatement, TooDeep, TypeTooLong
from pgstream.names import quote, quote_spark


@dataclass(frozen=True, slots=True)
class Row:
    """One scalar type: its Spark name, PostgreSQL name, PostgreSQL oid and the oid of its array."""

    spark: str
    pg: str
    oid: int
    array_oid: int


TABLE: dict[str, Row] = {
    "BOOLEAN": Row("boolean", "boolean", 16, 1000),
    "TINYINT": Row("tinyint", "smallint", 21, 1005),
    "SMALLINT": Row("smallint", "smallint", 21, 1005),
    "INTEGER": Row("int", "integer", 23, 1007),
    "BIGINT": Row("bigint", "bigint", 20, 1016),
    "FLOAT": Row("float", "real", 700, 1021),
    "DOUBLE": Row("double", "double precision", 701, 1022),
    "DECIMAL": Row("decimal", "numeric", 1700, 1231),
    "VARCHAR": Row("string", "character varying", 1043, 1015),
    "VARBINARY": Row("binary", "bytea", 17, 1001),
    "BYTES": Row("binary", "bytea", 17, 1001),
    "DATE": Row("date", "date", 1082, 1182),
    "TIME": Row("time(6)", "time without time zone", 1083, 1183),
    "TIMESTAMP": Row("timestamp_ntz", "timestamp without time zone", 1114, 1115),
    "TIMESTAMP_LTZ": Row("timestamp", "timestamp with time zone", 1184, 1185),
}
ZONES = (("WITH", "LOCAL", "TIME", "ZONE"), ("WITH", "TIME", "ZONE"), ("WITHOUT", "TIME", "ZONE"))
"""What may stand behind TIMESTAMP: with either of the first two it is TIMESTAMP_LTZ. Flink has the first, PostgreSQL
the others."""
CLOCKS = ("TIME", "TIMESTAMP", "TIMESTAMP_LTZ")
"""Types with fractions of a second: kept to the microsecond whatever their parameter says."""
JSONB = Row("", "jsonb", 3802, 3807)
ALIASES = {"INT": "INTEGER", "STRING": "VARCHAR", "NUMERIC": "DECIMAL", "DEC": "DECIMAL", "BOOL": "BOOLEAN",
            "REAL": "FLOAT", "TEXT": "VARCHAR"}  # fmt: skip
_FROM_SPARK = {"boolean": "BOOLEAN", "tinyint": "TINYINT", "smallint": "SMALLINT", "int": "INTEGER",
               "bigint": "BIGINT", "float": "FLOAT", "double": "DOUBLE", "string": "VARCHAR", "binary": "VARBINARY",
               "date": "DATE", "time": "TIME", "timestamp_ntz": "TIMESTAMP", "timestamp": "TIMESTAMP_LTZ",
               "void": "VARCHAR", "decimal": "DECIMAL", "varchar": "VARCHAR", "char": "VARCHAR"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Type:
    """A type: ``name`` is a key of ``TABLE``, or ARRAY (``args`` one), MAP (two), STRUCT (``fields``).

    ``params`` are the numbers in parentheses: length, precision and scale.
    """

    name: str
    params: tuple[int, ...] = ()
    args: tuple[Type, ...] = ()
    fields: tuple[tuple[str, Type], ...] = ()

    def __str__(self) -> str:
        """DeltaStream's text of the type."""
        if self.name in ("ARRAY", "MAP"):
            return f"{self.name}<{', '.join(map(str, self.args))}>"
        if self.name == "STRUCT":
            return f"STRUCT<{', '.join(f'{quote(n)} {t}' for n, t in self.fields)}>"
        return self.name + (f"({', '.join(map(str, self.params))})" if self.params else "")

    @property
    def spark(self) -> str:
        """The type in Spark's DDL text."""
        if self.name == "ARRAY":
            return f"array<{self.args[0].spark}>"
        if self.name == "MAP":
            return f"map<{self.args[0].spark},{self.args[1].spark}>"
        if self.name == "STRUCT":
            return f"struct<{','.join(f'{quote_spark(n)}:{t.spark}' for n, t in self.fields)}>"
        if self.name == "DECIMAL":
            precision, scale = (*self.params, 0, 0)[:2] if self.params else (10, 0)
            return f"decimal({precision},{scale})"
        return "void" if self.name == "NULL" else TABLE[self.name].spark

    @property
    def is_scalar(self) -> bool:
        """DeltaStream's *primitive*: not ARRAY, MAP or STRUCT."""
        return self.name in TABLE

    @property
    def _pg(self) -> Row:
        if self.name == "ARRAY" and self.args[0].is_scalar:
            row = self.args[0]._pg
            return Row("", self.args[0].pg + "[]", row.array_oid, row.array_oid)
        return TABLE.get(self.name, JSONB)

    @property
    def pg(self) -> str:
        """PostgreSQL's name of the type; STRUCT, MAP and arrays of them are jsonb."""
        row = self._pg
        if self.name == "DECIMAL":
            precision, scale = (*self.params, 0)[:2] if self.params else (10, 0)
            return f"numeric({precision},{scale})"
        if self.name == "VARCHAR" and self.params:
            return f"character varying({self.params[0]})"
        if self.name in CLOCKS and self.params and self.params[0] <= 6:
            return row.pg.replace(" ", f"({self.params[0]}) ", 1)
        return row.pg

    @property
    def modifier(self) -> int:
        """``pg_attribute.atttypmod`` of ``pg``: precision and scale, length, or -1."""
        if self.name == "ARRAY":
            return self.args[0].modifier if self.args[0].is_scalar else -1
        if self.name == "DECIMAL":
            precision, scale = (*self.params, 0)[:2] if self.params else (10, 0)
            return (precision << 16 | scale) + 4
        if self.name == "VARCHAR" and self.params:
            return self.params[0] + 4
        if self.name in CLOCKS and self.params and self.params[0] <= 6:
            return self.params[0]
        return -1

    @property
    def oid(self) -> int:
        """The oid of ``pg``."""
        return self._pg.oid


LONGEST = 1 << 20
"""Characters of a type."""
_SHOWN = 200
_DIGITS = 9
DEEPEST = 100
"""Levels of a type: more than anybody writes, and less than Python can descend."""
_TOKEN = re.compile(
    r"\s*(?:(?P<word>[A-Za-z_][\w$]*)|\"(?P<dq>(?:[^\"]++|\"\")++)\"|`(?P<bq>(?:[^`]++|``)++)`|(?P<num>\d+)|(?P<sym>[<>(),:]))"
)


_QUOTED = ("dq", "bq")


class _Reader:
    """Recursive descent over type text; Spark's ``name:type`` and DeltaStream's ``name type`` fields both read."""

    def __init__(self, text: str, spark: bool) -> None:
        if len(text) > LONGEST:
            raise TypeTooLong(most=LONGEST)
        self.text, self.spark, self.tokens, pos = text.rstrip(), spark, [], 0
        text = self.text
        while pos < len(text):
            m = _TOKEN.match(text, pos)
            if m is None:
                raise InvalidStatement(what=f'type "{self.shown}" is not a type of the language')
            word = m["word"] or (m["dq"] or "").replace('""', '"') or (m["bq"] or "").replace("``", "`")
            self.tokens.append((word or m["num"] or m["sym"], m.lastgroup or ""))
            pos = m.end()
        self.i = self.depth = 0

    @property
    def shown(self) -> str:
        """The text, as much of it as an error may have."""
        return self.text if len(self.text) <= _SHOWN else self.text[:_SHOWN] + "…"

    def fail(self, word: str = "") -> InvalidStatement:
        """``word``: one that is taken for a type's name."""
        close = difflib.get_close_matches(word.upper(), [*TABLE, *ALIASES, "ARRAY", "MAP", "STRUCT"], 1, 0.75)
        pages = "See docs/types.md for the types; for example VARCHAR, BIGINT, ARRAY<VARCHAR>."
        return InvalidStatement(
            what=f'type "{self.shown}" is not a type of the language',
            hint=f"Perhaps you meant {close[0]}." if close else pages,
        )

    def next(self, *expected: str) -> tuple[str, str]:
        if self.i >= len(self.tokens):
            raise self.fail()
        token = self.tokens[self.i]
        if expected and (token[1] in _QUOTED or token[0].upper() not in expected):
            raise self.fail()
        self.i += 1
        return token

    def peek(self) -> str:
        """The next word or sign; a quoted name is neither."""
        text, group = self.tokens[self.i] if self.i < len(self.tokens) else ("", "")
        return "" if group in _QUOTED else text.upper()

    def type(self) -> Type:
        word, group = self.next()
        name = word.lower() if self.spark else ALIASES.get(word.upper(), word.upper())
        if group != "word":
            raise self.fail()
        if name.upper() in ("ARRAY", "MAP", "STRUCT"):
            self.depth += 1
            if self.depth > DEEPEST:
                raise TooDeep(what="the type")
            nested = self.nested(name.upper())
            self.depth -= 1
            return nested
        params = tuple(self.numbers())
        if self.spark:
            name = _FROM_SPARK.get(name, name)
            params = () if name in ("VARCHAR", "TIME") else params
        elif name == "DOUBLE" and self.peek() == "PRECISION":
            self.next()
        elif name == "TIMESTAMP" and self.peek() in ("WITH", "WITHOUT"):
            zoned = self.next()[0].upper() == "WITH"
            local = self.peek() == "LOCAL"
            for expected in ("LOCAL", "TIME", "ZONE")[not (zoned and local) :]:
                self.next(expected)
            name = "TIMESTAMP_LTZ" if zoned else name
        if name not in TABLE:
            raise self.fail(word)
        return Type(name, params)

    def numbers(self) -> Iterator[int]:
        if self.peek() != "(":
            return
        self.next("(")
        while True:
            number, group = self.next()
            if group != "num" or len(number) > _DIGITS:
                raise self.fail()
            yield int(number)
            if self.next(",", ")")[0] == ")":
                return

    def nested(self, name: str) -> Type:
        self.next("<")
        if name == "STRUCT":
            fields = []
            while self.peek() != ">":
                field, group = self.next()
                if self.spark:
                    self.next(":")
                elif group == "word":
                    field = field.lower()
                fields.append((field, self.type()))
                if self.peek() == ",":
                    self.next()
            self.next(">")
            return Type("STRUCT", fields=tuple(fields))
        args = [self.type()]
        if name == "MAP":
            self.next(",")
            args.append(self.type())
        self.next(">")
        return Type(name, args=tuple(args))

    def whole(self) -> Type:
        result = self.type()
        if self.i != len(self.tokens):
            raise self.fail()
        return result


def parse(text: str) -> Type:
    """Read DeltaStream type text; errors: 42601 for what is not a type."""
    return _Reader(text, spark=False).whole()


def from_spark(text: str) -> Type:
    """Read Spark's ``catalogString`` of a type."""
    return _Reader(text, spark=True).whole()


TEXT = Type("VARCHAR")
BOOLEAN = Type("BOOLEAN")
BIGINT = Type("BIGINT")
NULL = Type("NULL")  # of a NULL in a row that nothing says the type of yet; no type of the language
INTEGER = Type("INTEGER")
TIMESTAMP_LTZ = Type("TIMESTAMP_LTZ")


def render(value: Any) -> str | None:
    """A Python value in PostgreSQL's text format: the form in which every result row of ours travels."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, dt.datetime):
        text = value.isoformat(sep=" ")
        return text[:-3] if text.endswith("+00:00") else text
    return str(value)
