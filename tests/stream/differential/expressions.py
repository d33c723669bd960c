"""Random expressions, each in DeltaStream SQL and in PostgreSQL's.

Where the languages differ, PostgreSQL is asked in its own words for what ours means (docs/semantics.md): TRY_CAST gives
NULL, CAST to whole numbers cuts, BOOLEAN prints in capitals. Nothing is drawn that would end the query.
Owns: scalar expressions, aggregate calls. Must not know: FROM. Start reading at ``Expressions.of``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class E(NamedTuple):
    """An expression; ``type`` is int, dbl, dec, str, bool or ts."""

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
         "BOOLEAN": "bool", "TIMESTAMP(3)": "ts"}  # fmt: skip
TEXTS = ("", "a", "b", "ab", "a-b", "x", "12")
TYPES = ("int", "int", "str", "bool", "dbl", "dec", "ts")


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
        if own and (depth >= self.deep or self.r.random() < 0.4):
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
                n = self.r.randint(-9, 20) / 4
                return E(f"CAST({n} AS DOUBLE)", f"({n}::float8)", "dbl")
            case "dec":
                n = self.r.randint(-400, 400) / 100
                return E(f"CAST({n} AS DECIMAL(10,2))", f"({n}::numeric(10,2))", "dec")
            case "str":
                t = self.r.choice(TEXTS)
                return E(f"'{t}'", f"'{t}'::text", "str")
            case "bool":
                b = self.r.choice(["TRUE", "FALSE"])
                return E(b, b, "bool")
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

    def _int(self, depth: int) -> E:
        r = self.r
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
            number = rf"CASE WHEN {a.pg} ~ '^\s*[+-]?[0-9]{{1,9}}\s*$' THEN {a.pg}::int END"
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
        a = self.of("str", depth)
        i, n = r.randint(1, 4), r.randint(0, 5)
        match r.randint(0, 13):
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
                many = f"array_length(string_to_array({a.pg} || ' ', '-'), 1) >= {i}"
                return E(f"SPLIT_INDEX({a.ours}, '-', {i - 1})", f"CASE WHEN {many} THEN {part} END", "str")
            case 11:
                b = self.of("ts", depth)
                return E(f"CAST({b.ours} AS VARCHAR)", f"to_char({b.pg}, 'YYYY-MM-DD HH24:MI:SS.MS')", "str")
            case 12:
                return E(f"MD5({a.ours})", f"md5({a.pg})", "str")
            case _:
                return self._either("str", depth)

    def _bool(self, depth: int) -> E:
        r = self.r
        choice = r.randint(0, 11)
        if choice <= 4:
            type_ = r.choice(["int", "int", "str", "dbl", "dec", "ts"])
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
            return E(f"({a.ours} {n}LIKE '{like}')", f"({a.pg} {n}LIKE '{like}')", "bool")
        a = self.of("str", depth)
        return E(f"({a.ours} IN ('a', 'b', 'x y'))", f"({a.pg} IN ('a', 'b', 'x y'))", "bool")

    def _ts(self, depth: int) -> E:
        a = self.of("ts", depth)
        match self.r.randint(0, 3):
            case 0:
                unit = self.r.choice(["DAY", "HOUR", "MINUTE"])
                return E(f"FLOOR({a.ours} TO {unit})", f"date_trunc('{unit}', {a.pg})", "ts")
            case 1:
                unit, n = self.r.choice(["DAY", "HOUR", "MINUTE", "SECOND"]), self.r.randint(-5, 5)
                return E(f"TIMESTAMPADD({unit}, {n}, {a.ours})", f"({a.pg} + interval '{n} {unit}')", "ts")
            case _:
                return self._either("ts", depth)


ORDER = "ORDER BY __partition, __offset"


def aggregate(r: random.Random, rows: Expressions, ordered: bool, distinct: bool = True) -> E:
    """A call of an aggregate over rows. ``ordered``: the rows have the place of their record."""
    types = {c.type for c in rows.columns}
    choices = ["count(*)", "count", "count", "extreme", "extreme"]
    choices += ["sum", "sum", "avg"] * ("int" in types) + ["dec"] * ("dec" in types) + ["dbl", "var"] * ("dbl" in types)
    choices += ["distinct", "distinct"] * distinct + ["list", "first", "array"] * ordered
    where, where_pg = "", ""
    choice = r.choice(choices)
    if choice not in ("list", "first", "array") and r.random() < 0.2:
        c = rows.condition()
        where, where_pg = f" FILTER (WHERE {c.ours})", f" FILTER (WHERE {c.pg})"

    def call(word: str, e: E, type_: str, pg: str = "{}") -> E:
        return E(f"{word}({e.ours}){where}", pg.format(f"{word}({e.pg}){where_pg}"), type_)

    match choice:
        case "count(*)":
            return E(f"COUNT(*){where}", f"count(*){where_pg}", "int")
        case "count":
            return call("COUNT", rows.any(), "int")
        case "extreme":
            e, word = rows.of(r.choice([t for t in ("int", "str", "dbl", "dec", "ts") if t in types] or ["int"])), \
                r.choice(["MIN", "MAX"])  # fmt: skip
            c = ' COLLATE "C"' if e.type == "str" else ""
            return E(f"{word}({e.ours}){where}", f"{word}({e.pg}{c}){where_pg}", e.type)
        case "sum":
            return call("SUM", rows.of("int"), "int")
        case "avg":
            return call("AVG", rows.of("int"), "int", "trunc({})::bigint")
        case "dec":
            return call(r.choice(["SUM", "AVG"]), rows.of("dec", 2), "dec")
        case "dbl":
            own = r.choice([c.e for c in rows.columns if c.type == "dbl"])
            return call(r.choice(["SUM", "AVG"]), own, "dbl")
        case "var":
            own = r.choice([c.e for c in rows.columns if c.type == "dbl"])
            return call(r.choice(["STDDEV", "STDDEV_POP", "VAR_SAMP", "VAR_POP"]), own, "dbl")
        case "distinct":
            if r.random() < 0.3:
                e = rows.of("int")
                return E(f"SUM(DISTINCT {e.ours}){where}", f"sum(DISTINCT {e.pg}){where_pg}", "int")
            e = rows.any()
            return E(f"COUNT(DISTINCT {e.ours}){where}", f"count(DISTINCT {e.pg}){where_pg}", "int")
        case "list":
            e, s = rows.of("str"), r.choice(["|", ", "])
            return E(f"LISTAGG({e.ours}, '{s}')", f"string_agg({e.pg}, '{s}' {ORDER})", "str")
        case "first":
            e, (word, order) = rows.any(2), r.choice([("FIRST_VALUE", "ASC"), ("LAST_VALUE", "DESC")])
            by = f"ORDER BY __partition {order}, __offset {order}"
            return E(f"{word}({e.ours})", f"(array_agg({e.pg} {by}) FILTER (WHERE {e.pg} IS NOT NULL))[1]", e.type)
        case _:
            e = rows.of("int")
            return E(f"CARDINALITY(ARRAY_AGG({e.ours}))", f"cardinality(array_agg({e.pg} {ORDER}))", "int")
