"""Random expressions, each in DeltaStream SQL and in PostgreSQL's.

Where the languages differ, PostgreSQL is asked in its own words for what ours means (docs/semantics.md): TRY_CAST gives
NULL, CAST to whole numbers cuts, BOOLEAN prints in capitals. Nothing is drawn that would end the query.
Types are int, dbl, dec, big (DECIMAL of 38 digits), str, bool, ts, tz, and for columns ints, strs, recs (arrays), map,
rec (a STRUCT).
Owns: scalar expressions. Must not know: FROM, aggregates. Start reading at ``Expressions.of``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class E(NamedTuple):
    """An expression and its type."""

    ours: str
    pg: str
    type: str


@dataclass(frozen=True)
class Column:
    """A column that expressions may read: its name, and how it is written here and there."""

    name: str
    type: str
    ours: str
    pg: str

    @property
    def e(self) -> E:
        return E(self.ours, self.pg, self.type)


KINDS = {"BIGINT": "int", "INTEGER": "int", "DOUBLE": "dbl", "DECIMAL(10,2)": "dec", "VARCHAR": "str",
         "BOOLEAN": "bool", "TIMESTAMP(3)": "ts", "TIMESTAMP_LTZ(3)": "tz", "DECIMAL(38,6)": "big",
         "ARRAY<INTEGER>": "ints", "ARRAY<VARCHAR>": "strs", "MAP<VARCHAR, INTEGER>": "map",
         "STRUCT<i INTEGER, t VARCHAR>": "rec", "ARRAY<STRUCT<i INTEGER, t VARCHAR>>": "recs"}  # fmt: skip
TEXTS = ("", "a", "b", "ab", "a-b", "x", "12")
TYPES = ("int", "int", "str", "bool", "dbl", "dec", "ts", "big", "tz")


class Expressions:
    """Expressions over columns. ``deep`` bounds how deep they nest."""

    def __init__(self, r: random.Random, columns: Sequence[Column], deep: int = 3) -> None:
        self.r, self.columns, self.deep = r, columns, deep

    def any(self, depth: int = 0) -> E:
        """An expression of some type that the columns have."""
        have = [t for t in TYPES if any(c.type == t for c in self.columns)] or ["int"]
        return self.of(self.r.choice(have), depth)

    def of(self, type_: str, depth: int = 0) -> E:
        """An expression of a type."""
        own = [c.e for c in self.columns if c.type == type_]
        if own and (depth >= self.deep or type_ not in TYPES or self.r.random() < 0.4):
            return self.r.choice(own)
        if depth >= self.deep:
            return self.literal(type_)
        made: E = getattr(self, "_" + type_)(depth + 1)
        return made

    def literal(self, type_: str) -> E:
        match type_:
            case "int":
                n = self.r.randint(-3, 9)
                return E(f"({n})", f"({n})", "int")
            case "dbl":
                x = self.r.randint(-9, 20) / 4
                return E(f"CAST({x} AS DOUBLE)", f"({x}::float8)", "dbl")
            case "dec":
                x = self.r.randint(-400, 400) / 100
                return E(f"CAST({x} AS DECIMAL(10,2))", f"({x}::numeric(10,2))", "dec")
            case "str":
                t = self.r.choice(TEXTS)
                return E(f"'{t}'", f"'{t}'::text", "str")
            case "bool":
                b = self.r.choice(["TRUE", "FALSE"])
                return E(b, b, "bool")
            case "big":
                big = f"{self.r.choice([0, 1, -3, 10**30 + 1, -(10**31)])}.000125"
                return E(f"CAST('{big}' AS DECIMAL(38,6))", f"({big}::numeric(38,6))", "big")
            case "tz":
                t = f"2024-02-{self.r.randint(26, 29)} 12:00:00"
                return E(f"CAST('{t}' AS TIMESTAMP_LTZ(3))", f"('{t}+00'::timestamptz(3))", "tz")
            case _:
                t = f"2024-02-{self.r.randint(26, 29)} {self.r.randint(0, 23):02}:30:00.250"
                return E(f"CAST('{t}' AS TIMESTAMP(3))", f"'{t}'::timestamp(3)", "ts")

    def condition(self, depth: int = 1) -> E:
        return self._bool(depth)

    # Of any type

    def _either(self, type_: str, depth: int) -> E:
        """CASE, COALESCE, IF, NULLIF and the like."""
        a, b = self.of(type_, depth), self.of(type_, depth)
        c = self._bool(depth)
        match self.r.randint(0, 5):
            case 0:
                text = "CASE WHEN {} THEN {} ELSE {} END"
                return E(text.format(c.ours, a.ours, b.ours), text.format(c.pg, a.pg, b.pg), type_)
            case 1:
                text = "CASE WHEN {} THEN {} END"
                return E(text.format(c.ours, a.ours), text.format(c.pg, a.pg), type_)
            case 2:
                return E(f"IF({c.ours}, {a.ours}, {b.ours})", f"CASE WHEN {c.pg} THEN {a.pg} ELSE {b.pg} END", type_)
            case 3:
                return E(f"NULLIF({a.ours}, {b.ours})", f"NULLIF({a.pg}, {b.pg})", type_)
            case 4 if type_ != "bool":
                word = self.r.choice(["GREATEST", "LEAST"])
                c_ = ' COLLATE "C"' if type_ == "str" else ""
                both = f"CASE WHEN {a.pg} IS NULL OR {b.pg} IS NULL THEN NULL ELSE {word}({a.pg}{c_}, {b.pg}{c_}) END"
                return E(f"{word}({a.ours}, {b.ours})", both, type_)
            case _:
                return E(f"COALESCE({a.ours}, {b.ours})", f"COALESCE({a.pg}, {b.pg})", type_)

    def _two(self, type_: str, operator: str, depth: int) -> E:
        a, b = self.of(type_, depth), self.of(type_, depth)
        return E(f"({a.ours} {operator} {b.ours})", f"({a.pg} {operator} {b.pg})", type_)

    def _more(self, *types: str) -> list[str]:
        return [t for t in types if any(c.type == t for c in self.columns)]

    def _inside(self, *types: str) -> Column | None:
        """A column with something inside."""
        found = [c for c in self.columns if c.type in types]
        return self.r.choice(found) if found and self.r.random() < 0.12 else None

    def _int(self, depth: int) -> E:
        r = self.r
        if c := self._inside("ints", "strs", "recs", "map", "rec"):
            return self._int_of(c)
        choice = r.randint(0, 13)
        if choice <= 1:
            return self._two("int", r.choice("+-"), depth)
        if choice == 2:
            a, n = self.of("int", depth), r.randint(2, 9)
            return E(f"({a.ours} * {n})", f"({a.pg} * {n})", "int")
        if choice <= 4:
            a, b, o = self.of("int", depth), self.of("int", depth), r.choice("/%")
            return E(f"({a.ours} {o} NULLIF({b.ours}, 0))", f"({a.pg} {o} nullif({b.pg}, 0))", "int")
        if choice == 5:
            a = self.of("int", depth)
            return r.choice([E(f"ABS({a.ours})", f"abs({a.pg})", "int"),
                             E(f"SIGN({a.ours})", f"sign({a.pg})::int", "int"),
                             E(f"(- {a.ours})", f"(- {a.pg})", "int")])  # fmt: skip
        if choice <= 7:
            return self._either("int", depth)
        if choice == 8:
            a = self.of("str", depth)
            t = r.choice(["a", "-", "b"])
            return r.choice([E(f"CHAR_LENGTH({a.ours})", f"char_length({a.pg})", "int"),
                             E(f"POSITION('{t}' IN {a.ours})", f"position('{t}' in {a.pg})", "int"),
                             E(f"ASCII({a.ours})", f"ascii({a.pg})", "int")])  # fmt: skip
        if choice == 9:
            a = self.of("str", depth)
            number = (
                rf"CASE WHEN {a.pg} ~ '^\s*[+-]?[0-9]{{1,9}}(\.[0-9]*)?\s*$' THEN trunc({a.pg}::numeric)::int "
                rf"WHEN {a.pg} ~ '^\s*[+-]?\.[0-9]*\s*$' THEN 0 END"
            )
            return E(f"TRY_CAST({a.ours} AS INTEGER)", number, "int")
        if choice == 10:
            a = self.of("dbl", depth)
            return E(f"CAST({a.ours} AS BIGINT)", f"trunc({a.pg})::bigint", "int")
        if choice == 11:
            a = self.of("dec", depth)
            return E(f"CAST({a.ours} AS INTEGER)", f"trunc({a.pg})::int", "int")
        if choice == 12:
            a, part = self.of("ts", depth), r.choice(["YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "QUARTER"])
            return E(f"EXTRACT({part} FROM {a.ours})", f"floor(extract({part} from {a.pg}))::bigint", "int")
        a, b = self.of("ts", depth), self.of("ts", depth)
        seconds, unit = r.choice([(1, "SECOND"), (60, "MINUTE"), (3600, "HOUR"), (86400, "DAY")])
        return E(f"TIMESTAMPDIFF({unit}, {a.ours}, {b.ours})",
                 f"trunc(extract(epoch from ({b.pg} - {a.pg})) / {seconds})::int", "int")  # fmt: skip

    def _int_of(self, c: Column) -> E:
        i, k = self.r.randint(1, 4), self.r.choice("abz")
        length = {
            "map": f"(SELECT count(*) FROM jsonb_object_keys({c.pg}))", "recs": f"jsonb_array_length({c.pg})",
        }.get(c.type, f"cardinality({c.pg})")  # fmt: skip
        size = E(f"CARDINALITY({c.ours})", f"CASE WHEN {c.pg} IS NOT NULL THEN {length} END", "int")
        match c.type:
            case "ints":
                return self.r.choice([size, E(f"{c.ours}[{i}]", f"{c.pg}[{i}]", "int")])
            case "map":
                return self.r.choice([size, E(f"{c.ours}['{k}']", f"({c.pg}->>'{k}')::int", "int")])
            case "rec":
                return E(f"{c.ours}->i", f"({c.pg}->>'i')::int", "int")
            case "recs":
                return self.r.choice([size, E(f"{c.ours}[{i}]->i", f"({c.pg}->{i - 1}->>'i')::int", "int")])
            case _:
                return size

    def _big(self, depth: int) -> E:
        match self.r.randint(0, 4):
            case 0 | 1:
                return self._two("big", self.r.choice("+-"), depth)
            case 2:
                a = self.of("int", depth)
                return E(f"CAST(({a.ours} % 1000) AS DECIMAL(38,6))", f"({a.pg} % 1000)::numeric(38,6)", "big")
            case 3:
                a = self.of("big", depth)
                return E(f"ABS({a.ours})", f"abs({a.pg})", "big")
            case _:
                return self._either("big", depth)

    def _tz(self, depth: int) -> E:
        if self.r.random() < 0.4:
            a = self.of("ts", depth)
            return E(f"CAST({a.ours} AS TIMESTAMP_LTZ(3))", f"({a.pg} AT TIME ZONE 'UTC')", "tz")
        return self._either("tz", depth)

    def _dbl(self, depth: int) -> E:
        r = self.r
        match r.randint(0, 6):
            case 0 | 1:
                return self._two("dbl", r.choice("+-"), depth)
            case 2:
                a, b = self.of("dbl", depth), self.of("dbl", depth)
                return E(f"({a.ours} / NULLIF({b.ours}, 0))", f"({a.pg} / nullif({b.pg}, 0))", "dbl")
            case 3:
                a, word = self.of("dbl", depth), r.choice(["ABS", "FLOOR", "CEIL"])
                return E(f"{word}({a.ours})", f"{word}({a.pg})", "dbl")
            case 4:
                a = self.of("int", depth)
                return E(f"CAST({a.ours} AS DOUBLE)", f"({a.pg})::float8", "dbl")
            case 5:
                a = self.of("dbl", depth)
                return E(f"SQRT(ABS({a.ours}))", f"sqrt(abs({a.pg}))", "dbl")
            case _:
                return self._either("dbl", depth)

    def _dec(self, depth: int) -> E:
        match self.r.randint(0, 4):
            case 0 | 1:
                return self._two("dec", self.r.choice("+-"), depth)
            case 2:
                a = self.of("int", depth)
                return E(f"CAST(({a.ours} % 1000) AS DECIMAL(10,2))", f"({a.pg} % 1000)::numeric(10,2)", "dec")
            case 3:
                a = self.of("dec", depth)
                return E(f"ABS({a.ours})", f"abs({a.pg})", "dec")
            case _:
                return self._either("dec", depth)

    def _str(self, depth: int) -> E:
        r = self.r
        i, n = r.randint(1, 4), r.randint(0, 5)
        if c := self._inside("strs", "rec"):
            return E(f"{c.ours}->t", f"({c.pg}->>'t')", "str") if c.type == "rec" \
                else E(f"{c.ours}[{i}]", f"{c.pg}[{i}]", "str")  # fmt: skip
        a = self.of("str", depth)
        match r.randint(0, 17):
            case 0:
                b = self.of("str", depth)
                return r.choice([E(f"({a.ours} || {b.ours})", f"({a.pg} || {b.pg})", "str"),
                                 E(f"CONCAT({a.ours}, {b.ours})", f"({a.pg} || {b.pg})", "str")])  # fmt: skip
            case 1:
                b = self.of("str", depth)
                return E(f"CONCAT_WS('+', {a.ours}, {b.ours})", f"concat_ws('+', {a.pg}, {b.pg})", "str")
            case 2:
                word = r.choice(["UPPER", "LOWER", "REVERSE"])
                return E(f"{word}({a.ours})", f"{word}({a.pg})", "str")
            case 3:
                return E(f"SUBSTRING({a.ours}, {i}, {n})", f"substring({a.pg}, {i}, {n})", "str")
            case 4:
                word = r.choice(["LEFT", "RIGHT"])
                return E(f"{word}({a.ours}, {n})", f"{word}({a.pg}, {n})", "str")
            case 5:
                return E(f"REPLACE({a.ours}, '-', '~~')", f"replace({a.pg}, '-', '~~')", "str")
            case 6:
                word = r.choice(["TRIM", "LTRIM", "RTRIM"])
                return E(f"{word}({a.ours})", f"{'b' * (word == 'TRIM')}{word}({a.pg})", "str")
            case 7:
                word = r.choice(["LPAD", "RPAD"])
                return E(f"{word}({a.ours}, {n}, '*')", f"{word}({a.pg}, {n}, '*')", "str")
            case 8:
                b = self.of("int", depth)
                return E(f"CAST({b.ours} AS VARCHAR)", f"({b.pg})::text", "str")
            case 9:
                b = self.of("bool", depth)
                return E(f"CAST({b.ours} AS VARCHAR)", f"upper(({b.pg})::text)", "str")
            case 10:
                part = f"split_part({a.pg}, '-', {i})"
                many = f"{a.pg} <> '' AND array_length(string_to_array({a.pg}, '-'), 1) >= {i}"
                return E(f"SPLIT_INDEX({a.ours}, '-', {i - 1})", f"CASE WHEN {many} THEN {part} END", "str")
            case 11:
                b = self.of("ts", depth)
                return E(f"CAST({b.ours} AS VARCHAR)", f"to_char({b.pg}, 'YYYY-MM-DD HH24:MI:SS.MS')", "str")
            case 12:
                return E(f"MD5({a.ours})", f"md5({a.pg})", "str")
            case 14:
                b, zone = self.of("ts", depth), r.choice(["America/Los_Angeles", "Asia/Kolkata", "Europe/Berlin"])
                local = f"(({b.pg}) AT TIME ZONE 'UTC') AT TIME ZONE '{zone}'"
                return E(f"CONVERT_TZ(CAST({b.ours} AS VARCHAR), 'UTC', '{zone}')",
                         f"to_char({local}, 'YYYY-MM-DD HH24:MI:SS')", "str")  # fmt: skip
            case 15:
                b, (f, g) = (
                    self.of("ts", depth),
                    r.choice([("yyyy/MM/dd HH", "YYYY/MM/DD HH24"), ("H:mm", "FMHH24:MI")]),
                )
                return E(f"DATE_FORMAT({b.ours}, '{f}')", f"to_char({b.pg}, '{g}')", "str")
            case 16:
                return E(f"REPEAT({a.ours}, {n})", f"repeat({a.pg}, {n})", "str")
            case 17:
                b = self.of("dec", depth)
                return E(f"CAST(CAST({b.ours} AS DECIMAL(12,2)) AS VARCHAR)", f"(({b.pg})::numeric(12,2))::text", "str")
            case _:
                return self._either("str", depth)

    def _bool(self, depth: int) -> E:
        r = self.r
        choice = r.randint(0, 11)
        if choice <= 4:
            type_ = r.choice(["int", "int", "str", "dbl", "dec", "ts", *self._more("big", "tz")])
            a, b = self.of(type_, depth), self.of(type_, depth)
            o, c = r.choice(["=", "<>", "<", "<=", ">", ">="]), ' COLLATE "C"' if type_ == "str" else ""
            return E(f"({a.ours} {o} {b.ours})", f"({a.pg}{c} {o} {b.pg})", "bool")
        if choice == 5:
            a, b, o = self.of("bool", depth), self.of("bool", depth), r.choice(["AND", "OR"])
            return E(f"({a.ours} {o} {b.ours})", f"({a.pg} {o} {b.pg})", "bool")
        if choice == 6:
            a = self.of("bool", depth)
            return E(f"(NOT {a.ours})", f"(NOT {a.pg})", "bool")
        if choice == 7:
            a, n = self.any(depth), r.choice(["", "NOT "])
            return E(f"({a.ours} IS {n}NULL)", f"({a.pg} IS {n}NULL)", "bool")
        if choice == 8:
            type_ = r.choice(["int", "str", "dec"])
            a, b, n = self.of(type_, depth), self.of(type_, depth), r.choice(["", "NOT "])
            text = "({} IS " + n + "DISTINCT FROM {})"
            return E(text.format(a.ours, b.ours), text.format(a.pg, b.pg), "bool")
        if choice == 9:
            a, n = self.of("int", depth), r.choice(["", "NOT "])
            low, high = r.randint(-2, 3), r.randint(1, 8)
            return r.choice([E(f"({e} {n}BETWEEN {low} AND {high})", f"({p} {n}BETWEEN {low} AND {high})", "bool")
                             for e, p, _ in (a,)]
                            + [E(f"({e} {n}IN ({low}, {high}, NULL))", f"({p} {n}IN ({low}, {high}, NULL))", "bool")
                               for e, p, _ in (a,)])  # fmt: skip
        if choice == 10:
            a, like = self.of("str", depth), r.choice(["a%", "%b", "_", "%-%", "a_b"])
            n = r.choice(["", "NOT "])
            word = r.choice(["LIKE", "ILIKE"])
            return E(f"({a.ours} {n}{word} '{like}')", f"({a.pg} {n}{word} '{like}')", "bool")
        a = self.of("str", depth)
        return E(f"({a.ours} IN ('a', 'b', 'x y'))", f"({a.pg} IN ('a', 'b', 'x y'))", "bool")

    def _ts(self, depth: int) -> E:
        a = self.of("ts", depth)
        match self.r.randint(0, 4):
            case 2 if any(c.type == "tz" for c in self.columns):
                b = self.of("tz", depth)
                return E(f"CAST({b.ours} AS TIMESTAMP(3))", f"({b.pg} AT TIME ZONE 'UTC')", "ts")
            case 0:
                unit = self.r.choice(["DAY", "HOUR", "MINUTE"])
                return E(f"FLOOR({a.ours} TO {unit})", f"date_trunc('{unit}', {a.pg})", "ts")
            case 1:
                unit, n = self.r.choice(["DAY", "HOUR", "MINUTE", "SECOND"]), self.r.randint(-5, 5)
                return E(f"TIMESTAMPADD({unit}, {n}, {a.ours})", f"({a.pg} + interval '{n} {unit}')", "ts")
            case _:
                return self._either("ts", depth)
