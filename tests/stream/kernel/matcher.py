"""Matches of a pattern by trying everything: what ``Recognize`` is judged by. It shares nothing with it.

A pattern yields the ways in which it can be mapped to rows, the preferred ones first. Where a way needs a row that is
not there yet, it yields ``LATER``: of what comes behind that nothing is known. Conditions and measures are trees
(``Value``) that both print themselves as SQL and have a meaning here.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
Mapped = tuple[str, ...]  # the variable of each row of a match


class Later(Exception):
    """A row is asked for that is not there yet."""


LATER = None


# Values


@dataclass(frozen=True)
class State:
    """The rows of a partition, where the match begins, and how its rows are mapped so far."""

    rows: Sequence[Row]
    start: int
    mapped: Mapped

    def places(self, variable: str) -> list[int]:
        return [self.start + i for i, v in enumerate(self.mapped) if variable in ("", v)]


class Value:
    """A value of a match."""

    def sql(self) -> str:
        raise NotImplementedError

    def of(self, state: State) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class Literal(Value):
    value: int

    def sql(self) -> str:
        return str(self.value)

    def of(self, state: State) -> Any:
        return self.value


@dataclass(frozen=True)
class Seek(Value):
    variable: str
    column: str
    last: bool = True
    offset: int = 0
    shift: int = 0

    def sql(self) -> str:
        text = f"{self.variable}.{self.column}" if self.variable else self.column
        if not self.last or self.offset:
            text = f"{'LAST' if self.last else 'FIRST'}({text}, {self.offset})"
        if self.shift:
            text = f"{'NEXT' if self.shift > 0 else 'PREV'}({text}, {abs(self.shift)})"
        return text

    def of(self, state: State) -> Any:
        places = state.places(self.variable)
        if self.last:
            places = places[::-1]
        if self.offset >= len(places):
            return None
        place = places[self.offset] + self.shift
        if place >= len(state.rows):
            raise Later
        return state.rows[place][self.column] if place >= 0 else None


@dataclass(frozen=True)
class Aggregate(Value):
    function: str
    variable: str
    column: str

    def sql(self) -> str:
        argument = f"{self.variable}.{self.column}" if self.variable else self.column
        distinct, name = ("DISTINCT ", "COUNT") if self.function == "DISTINCT" else ("", self.function)
        return f"{name}({distinct}{argument})"

    def of(self, state: State) -> Any:
        places = state.places(self.variable)
        if self.column == "*":
            return len(places)
        values = [v for p in places if (v := state.rows[p][self.column]) is not None]
        match self.function:
            case "COUNT":
                return len(values)
            case "DISTINCT":
                return len(set(values))
            case "LISTAGG":
                return ",".join(map(str, values)) if values else None
            case "AVG":
                # Of whole numbers a whole number, cut.
                return int(sum(values) / len(values)) if values else None
            case "FIRST_VALUE":
                return values[0] if values else None
            case _:
                what = {"SUM": sum, "MIN": min, "MAX": max}[self.function]
                return what(values) if values else None


@dataclass(frozen=True)
class Compare(Value):
    left: Value
    sign: str
    right: Value

    def sql(self) -> str:
        return f"{self.left.sql()} {self.sign} {self.right.sql()}"

    def of(self, state: State) -> Any:
        a, b = self.left.of(state), self.right.of(state)
        if a is None or b is None:
            return None
        return {"<": a < b, ">": a > b, "=": a == b, "<>": a != b, "<=": a <= b}[self.sign]


@dataclass(frozen=True)
class Missing(Value):
    value: Value

    def sql(self) -> str:
        return f"{self.value.sql()} IS NULL"

    def of(self, state: State) -> Any:
        return self.value.of(state) is None


@dataclass(frozen=True)
class Both(Value):
    """AND or OR of NULLs too. Either side is asked for its rows: so it is of the operator as well."""

    word: str
    left: Value
    right: Value

    def sql(self) -> str:
        return f"({self.left.sql()} {self.word} {self.right.sql()})"

    def of(self, state: State) -> Any:
        sides = [self.left.of(state), self.right.of(state)]
        decides = self.word == "OR"
        if decides in sides:
            return decides
        return None if None in sides else not decides


# Patterns


@dataclass(frozen=True)
class Search:
    """One partition's rows, conditions by variable, and how long a match may be (ms). ``now``: the watermark."""

    rows: Sequence[Row]
    define: dict[str, Value]
    within: int | None
    now: int


class Pattern:
    def sql(self) -> str:
        raise NotImplementedError

    def ways(self, s: Search, start: int, mapped: Mapped) -> Iterator[Mapped | None]:
        raise NotImplementedError

    def empty(self) -> bool:
        raise NotImplementedError


@dataclass(frozen=True)
class One(Pattern):
    name: str

    def sql(self) -> str:
        return self.name

    def ways(self, s: Search, start: int, mapped: Mapped) -> Iterator[Mapped | None]:
        place, begun = start + len(mapped), s.rows[start]["t"]
        if place >= len(s.rows):
            if s.within is None or s.now < begun + s.within:
                yield LATER
            return
        if s.within is not None and s.rows[place]["t"] - begun > s.within:
            return
        now = (*mapped, self.name)
        try:
            if self.name not in s.define or s.define[self.name].of(State(s.rows, start, now)):
                yield now
        except Later:
            yield LATER

    def empty(self) -> bool:
        return False


@dataclass(frozen=True)
class Chain(Pattern):
    parts: tuple[Pattern, ...]

    def sql(self) -> str:
        return " ".join(f"({p.sql()})" if isinstance(p, Either) else p.sql() for p in self.parts)

    def ways(self, s: Search, start: int, mapped: Mapped) -> Iterator[Mapped | None]:
        yield from _chain(self.parts, s, start, mapped)

    def empty(self) -> bool:
        return all(p.empty() for p in self.parts)


def _chain(parts: Sequence[Pattern], s: Search, start: int, mapped: Mapped) -> Iterator[Mapped | None]:
    if not parts:
        yield mapped
        return
    for way in parts[0].ways(s, start, mapped):
        if way is LATER:
            yield LATER
        else:
            yield from _chain(parts[1:], s, start, way)


@dataclass(frozen=True)
class Either(Pattern):
    parts: tuple[Pattern, ...]

    def sql(self) -> str:
        return " | ".join(p.sql() for p in self.parts)

    def ways(self, s: Search, start: int, mapped: Mapped) -> Iterator[Mapped | None]:
        for part in self.parts:
            yield from part.ways(s, start, mapped)

    def empty(self) -> bool:
        return any(p.empty() for p in self.parts)


@dataclass(frozen=True)
class Times(Pattern):
    part: Pattern
    least: int
    most: int | None
    reluctant: bool

    def sql(self) -> str:
        part = self.part.sql() if isinstance(self.part, One) else f"({self.part.sql()})"
        signs = {(0, None): "*", (1, None): "+", (0, 1): "?"}
        sign = signs.get((self.least, self.most), f"{{{self.least},{'' if self.most is None else self.most}}}")
        if self.least == self.most:
            sign = f"{{{self.least}}}"
        return part + sign + "?" * self.reluctant

    def ways(self, s: Search, start: int, mapped: Mapped) -> Iterator[Mapped | None]:
        yield from self._more(s, start, mapped, 0)

    def _more(self, s: Search, start: int, mapped: Mapped, done: int) -> Iterator[Mapped | None]:
        if self.reluctant and done >= self.least:
            yield mapped
        if self.most is None or done < self.most:
            for way in self.part.ways(s, start, mapped):
                if way is LATER:
                    yield LATER
                elif len(way) == len(mapped) and done >= self.least and self.most is None:
                    yield way  # an empty time is the last one
                else:
                    yield from self._more(s, start, way, done + 1)
        if not self.reluctant and done >= self.least:
            yield mapped

    def empty(self) -> bool:
        return self.least == 0 or self.part.empty()


@dataclass(frozen=True)
class Query:
    """A MATCH_RECOGNIZE of one letter's variables."""

    pattern: Pattern
    define: dict[str, Value]
    measures: dict[str, Value]
    skip: str
    to: str = ""
    within: int | None = None
    order: str = "rowtime()"
    variables: tuple[str, ...] = field(default=())

    def sql(self) -> str:
        measures = ", ".join(f"{v.sql()} AS {n}" for n, v in self.measures.items())
        define = ", ".join(f"{n} AS {v.sql()}" for n, v in self.define.items())
        within = "" if self.within is None else f" WITHIN {self.within} MILLISECOND"
        return (
            f"SELECT k, {', '.join(self.measures)} FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY {self.order} "
            f"MEASURES {measures} ONE ROW PER MATCH AFTER MATCH SKIP {self.skip}{' ' * bool(self.to)}{self.to} "
            f"PATTERN ({self.pattern.sql()}){within} DEFINE {define}) AS m"
        )

    def matches(self, rows: Sequence[Row], now: int) -> list[tuple[Any, ...]] | str:
        """The measures of every match that is decided, or the SQLSTATE that the query ends with."""
        s, start, out = Search(rows, self.define, self.within, now), 0, []
        while start < len(rows):
            way = next(self.pattern.ways(s, start, ()), ())
            if way is LATER:
                break
            if not way:
                start += 1
                continue
            state = State(rows, start, way)
            try:
                out.append(tuple(v.of(state) for v in self.measures.values()))
            except Later:
                break
            following = self._next(state)
            if isinstance(following, str):
                return following
            start = following
        return out

    def _next(self, state: State) -> int | str:
        if self.skip == "PAST LAST ROW":
            return state.start + len(state.mapped)
        if self.skip == "TO NEXT ROW":
            return state.start + 1
        places = state.places(self.to)
        if not places:
            return "2202K"
        place = places[0] if self.skip == "TO FIRST" else places[-1]
        return place if place != state.start else "2202L"


# At random


class Maker:
    """Patterns, conditions and rows by a seed."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)

    def query(self) -> Query:
        r = self.r
        names = ("A", "B", "C", "D")[: r.randint(1, 4)]
        make = self.nested if r.random() < 0.25 else self.pattern
        while (pattern := make(names, 2)).empty() or len(pattern.sql()) > 24:
            pass
        used = tuple(sorted({n for n in names if n in pattern.sql()}))
        define = {n: self.condition(n, used) for n in used if r.random() < 0.75} or {used[0]: self.condition("", used)}
        if make == self.nested and r.random() < 0.7:  # conditions on the match make ways without number
            define = {n: Compare(Seek(n, "v"), r.choice(["<", ">", "<>"]), Literal(r.randint(0, 5))) for n in define}
        skip, to = r.choice(["PAST LAST ROW", "PAST LAST ROW", "TO NEXT ROW", "TO FIRST", "TO LAST"]), ""
        if skip in ("TO FIRST", "TO LAST"):
            to = r.choice(used)
        measures = {"first_t": Seek("", "t", False), "last_t": Seek("", "t"), "n": Aggregate("COUNT", "", "*")}
        measures |= {f"m{i}": self.measure(used) for i in range(r.randint(1, 4))}
        within = r.choice([None, None, 0, 2000, 5000, 9000]) or None
        order = r.choice(["rowtime()", "rowtime(), v DESC", "rowtime(), v"])
        return Query(pattern, define, measures, skip, to, within, order, used)

    def pattern(self, names: Sequence[str], depth: int) -> Pattern:
        r = self.r
        if depth == 0 or r.random() < 0.25:
            return self.repeated(One(r.choice(names)))
        parts = tuple(self.pattern(names, depth - 1) for _ in range(r.randint(2, 3)))
        return self.repeated(Chain(parts) if r.random() < 0.7 else Either(parts))

    def nested(self, names: Sequence[str], depth: int) -> Pattern:
        """Repetitions of repetitions, also of what may be empty, most often with a row behind them."""
        r = self.r
        inner: Pattern = One(r.choice(names))
        if depth:
            parts = tuple(self.nested(names, depth - 1) for _ in range(r.choice([1, 1, 2, 2, 3])))
            inner = parts[0] if len(parts) == 1 else Chain(parts) if r.random() < 0.65 else Either(parts)
        if r.random() < 0.75:
            bounds = r.choice([(0, None), (0, None), (1, None), (0, 1), (0, 1), (0, 2), (2, None), (2, 2)])
            inner = Times(inner, *bounds, r.random() < 0.35)
        return Chain((inner, One(r.choice(names)))) if depth == 2 and r.random() < 0.8 else inner

    def repeated(self, part: Pattern) -> Pattern:
        r = self.r
        if r.random() < 0.55 or isinstance(part, Times):
            return part
        least, most = r.choice([(0, None), (1, None), (0, 1), (2, 2), (1, 2), (0, 2), (2, None), (1, 3)])
        return Times(part, least, most, r.random() < 0.4)

    def value(self, own: str, used: Sequence[str]) -> Value:
        """A value of a row of a variable, or of all."""
        r, column = self.r, self.r.choice("vvvw")
        of = r.choice([own, own, "", *used])
        kind = r.random()
        if kind < 0.45:
            return Seek(of, column)
        if kind < 0.6:
            return Seek(of, column, shift=-r.randint(1, 2))
        if kind < 0.65:
            return Seek(of, column, shift=1)
        if kind < 0.8:
            return Seek(of, column, r.random() < 0.5, r.randint(0, 2), r.choice([0, 0, -1]))
        return self.aggregate(of, column)

    def aggregate(self, of: str, column: str) -> Value:
        function = self.r.choice(["SUM", "COUNT", "MIN", "MAX", "DISTINCT", "AVG"])
        if function == "COUNT" and self.r.random() < 0.5:
            column = "*"
        return Aggregate(function, of, column)

    def condition(self, own: str, used: Sequence[str], depth: int = 1) -> Value:
        r = self.r
        if depth and r.random() < 0.5:
            sides = [self.condition(own, used, depth - 1) for _ in range(2)]
            return Both(r.choice(["AND", "OR", "OR", "OR"]), *sides)
        if r.random() < 0.04:
            return Missing(self.value(own, used))
        right = Literal(r.randint(0, 5)) if r.random() < 0.7 else self.value(own, used)
        left = Seek(own, "v") if r.random() < 0.6 else self.value(own, used)
        return Compare(left, r.choice(["<", ">", ">", "<>", "<>", "<="]), right)

    def measure(self, used: Sequence[str]) -> Value:
        made = self.value(self.r.choice(used), used)
        if self.r.random() < 0.25:
            return Aggregate(self.r.choice(["LISTAGG", "FIRST_VALUE"]), self.r.choice(["", *used]), "v")
        return made

    def rows(self, partition: str) -> list[Row]:
        """Rows of rising times, some of the same; each has its batch, which may be behind its time."""
        t, out = 1000, []
        for n in range(self.r.randint(4, 14)):
            t += self.r.choice([0, 1000, 1000, 2000, 4000])
            v = None if self.r.random() < 0.08 else self.r.randint(0, 5)
            out.append({"k": partition, "t": t, "v": v, "w": self.r.randint(0, 3), "n": n})
        return out


def in_order(rows: Sequence[Row], order: str) -> list[Row]:
    """NULL is the smallest value."""
    sign = {"rowtime()": 0, "rowtime(), v": 1, "rowtime(), v DESC": -1}[order]
    return sorted(rows, key=lambda r: (r["t"], sign * (-1 if r["v"] is None else r["v"]), r["n"]))
