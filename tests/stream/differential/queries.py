"""Random queries: one tree, written down for pgstream and for PostgreSQL.

What PostgreSQL is asked is made from the tree, never from a plan of ours. It reads all rows at once from the views of
``data``; a step that works by event time reads those without late rows (``early``), and where it waits for the
watermark also without the last one (``ok``), which nothing follows.
Owns: FROM, joins, windows, groups, DISTINCT, UNION ALL, CTEs, and what may stand on what. Must not know: how it runs.
Start reading at ``case``.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tests.stream.differential.data import COLUMNS
from tests.stream.differential.expressions import KINDS, Column, E, Expressions, aggregate

KEYS = {"c": ("k",), "e": ("g",), "m": ("k", "v")}


@dataclass(frozen=True)
class Case:
    """A query in both languages. ``want``: planned for a view, a stream or a changelog. ``input``: PostgreSQL's count
    of the rows of a GROUP BY of all rows: there is no group before the first of them.
    """

    shape: str
    want: str
    ours: str
    pg: str
    input: str = ""


@dataclass(frozen=True)
class Rows:
    """A FROM clause and what may be read from it. ``time``: PostgreSQL's text of a row's event time in ms.

    ``placed``: the rows still have the place of their one record.
    """

    ours: str
    pg: str
    columns: tuple[Column, ...]
    kind: str = "stream"
    key: tuple[Column, ...] = ()
    time: str = ""
    placed: bool = False


@dataclass(frozen=True)
class Query:
    """A SELECT: its output columns by type, the names of its key."""

    ours: str
    pg: str
    output: tuple[tuple[str, str], ...]
    kind: str = "stream"
    key: tuple[str, ...] = ()
    placed: bool = False
    timed: bool = False
    input: str = ""


@dataclass
class Queries:
    """Makes the query of one seed. ``ctes``: those met so far; ``names`` counts aliases."""

    r: random.Random
    ctes: list[tuple[str, str]] = field(default_factory=list)
    names: int = 0

    def case(self) -> Case:
        shape = self.r.choices(list(SHAPES), [w for w, _ in SHAPES.values()])[0]
        want, query = SHAPES[shape][1](self)
        ctes = ", ".join(f"{n} AS ({text})" for n, text in self.ctes)
        return Case(shape, want, (f"WITH {ctes} " if ctes else "") + query.ours, query.pg, query.input)

    def name(self, prefix: str = "x") -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def chance(self, p: float) -> bool:
        return self.r.random() < p

    # What a FROM begins with

    def table(self, name: str, rows: str) -> Rows:
        """A relation; ``rows`` names the view of PostgreSQL: all, early or ok."""
        alias = self.name("r")
        columns = tuple(
            Column(c, KINDS[t], f"{alias}.{c}", f"{alias}.{c}") for c, t in COLUMNS[name].items() if c != "ts"
        )
        key = tuple(c for c in columns if c.name in KEYS.get(name, ()))
        kind = "changelog" if key else "stream"
        word = self.r.choice(["", "AS "])
        return Rows(
            f"{name} {word}{alias}", f"{name}_{rows} {alias}", columns, kind, key, f"{alias}.__time", placed=True
        )

    def stream(self, rows: str, depth: int = 0) -> Rows:
        """A stream: a relation, or a SELECT without state over one."""
        if depth < 2 and self.chance(0.35):
            inner = self.union(rows, depth + 1) if self.chance(0.35) else self.plain(self.stream(rows, depth + 1))
            return self.sub(inner)
        return self.table(self.r.choice("ssq"), rows)

    def changelog(self, keyed: bool = True) -> Rows:
        """A changelog: a relation, or a filter or projection of one, without its key unless ``keyed``."""
        rows = self.table(self.r.choice("cccemm"), "all")
        if self.chance(0.3):
            return self.sub(self.plain(rows, keyed=keyed or self.chance(0.5)))
        return rows

    def sub(self, query: Query) -> Rows:
        """A query as a relation: in parentheses, or a CTE."""
        alias = self.name()
        columns = tuple(Column(n, t, f"{alias}.{n}", f"{alias}.{n}") for n, t in query.output)
        ours = f"({query.ours}) {alias}"
        if self.chance(0.3):
            cte = self.name("cte")
            self.ctes.append((cte, query.ours))
            ours = f"{cte} {alias}"
        key = tuple(c for c in columns if c.name in query.key)
        time = f"{alias}.__time" if query.timed else ""
        return Rows(ours, f"({query.pg}) {alias}", columns, query.kind, key, time, query.placed)

    # SELECTs

    def select(
        self,
        rows: Rows,
        items: Sequence[E],
        tail: tuple[str, str] = ("", ""),
        *,
        key: Sequence[E] = (),
        kind: str = "",
        hide: bool = True,
    ) -> Query:
        """``key``: those of the items that are the key of a changelog. ``hide``: with the hidden columns there are."""
        named = [(f"o{i + 1}", e) for i, e in enumerate(items)]
        hidden = f", {rows.time} AS __time" if rows.time and hide else ""
        if hidden and rows.placed:
            hidden += ", __partition, __offset"
        return Query(
            f"SELECT {', '.join(f'{e.ours} AS {n}' for n, e in named)} FROM {rows.ours}{tail[0]}",
            f"SELECT {', '.join(f'{e.pg} AS {n}' for n, e in named)}{hidden} FROM {rows.pg}{tail[1]}",
            tuple((n, e.type) for n, e in named),
            kind or rows.kind,
            tuple(n for n, e in named if e in key),
            placed=bool(hidden) and rows.placed,
            timed=bool(hidden),
        )

    def where(self, rows: Rows, p: float = 0.5) -> tuple[str, str]:
        if not self.chance(p):
            return "", ""
        c = Expressions(self.r, rows.columns).condition()
        return f" WHERE {c.ours}", f" WHERE {c.pg}"

    def plain(self, rows: Rows, keyed: bool = True, p: float = 0.5, hide: bool = True) -> Query:
        """Filter and projection. A changelog keeps its key where it is ``keyed``."""
        e = Expressions(self.r, rows.columns)
        key = [c.e for c in rows.key] if keyed else []
        own = [c.e for c in rows.columns if c.e not in key]
        items = [*key, *self.r.sample(own, min(len(own), self.r.randint(1, 4)))]
        items += [e.any() for _ in range(self.r.randint(0, 2))]
        return self.select(rows, items, self.where(rows, p), key=key, hide=hide)

    def union(self, rows: str, depth: int) -> Query:
        """UNION ALL of streams: rows that have lost their place."""
        types = [self.r.choice(["int", "str", "dec"]) for _ in range(self.r.randint(1, 3))] + ["str"]
        parts = []
        for _ in range(self.r.randint(2, 3)):
            one = self.stream(rows, depth)
            e = Expressions(self.r, one.columns, 2)
            parts.append(self.select(one, [e.of(t) for t in types], self.where(one, 0.4)))
        pg = " UNION ALL ".join(f"SELECT {', '.join(n for n, _ in p.output)}, __time FROM ({p.pg}) p" for p in parts)
        return Query(" UNION ALL ".join(p.ours for p in parts), pg, parts[0].output, timed=True)

    def group(self, rows: Rows, whole: bool = True, keyed: bool = True) -> Query:
        """GROUP BY without a window. ``whole``: it may be of all rows; not ``keyed``: its key may be left out."""
        e = Expressions(self.r, rows.columns, 2)
        count = self.r.choice([0, 1, 1, 1, 2] if whole else [1, 1, 2])
        by = []
        for _ in range(count):
            made = self.r.choice(rows.columns).e if self.chance(0.7) else e.any()
            if made not in by and any(c.ours in made.ours for c in rows.columns):
                by.append(made)
        if not by and not whole:
            by.append(self.r.choice(rows.columns).e)
        return self.grouped(rows, by, e, self.where(rows, 0.4), keyed=keyed)

    def grouped(
        self,
        rows: Rows,
        by: list[E],
        e: Expressions,
        where: tuple[str, str],
        *,
        keyed: bool = True,
        distinct: bool = True,
        more: Sequence[E] = (),
    ) -> Query:
        """A GROUP BY with its aggregates. ``more``: what is grouped by beside ``by``, but need not be selected."""
        calls = [aggregate(self.r, e, rows.placed, distinct) for _ in range(self.r.randint(1, 4))]
        after = Expressions(self.r, [Column("", x.type, x.ours, x.pg) for x in (*calls, *by)], 2)
        shown = [b for b in by if keyed or self.chance(0.5)]
        items = [*shown, calls[0], *(c if self.chance(0.75) else after.of(c.type) for c in calls[1:])]
        ours, pg = where
        if by or more:
            texts = [self.spelled(b, items) for b in by]
            ours += f" GROUP BY {', '.join([*texts, *(m.ours for m in more)])}"
            pg += f" GROUP BY {', '.join([*(b.pg for b in by), *(m.pg for m in more)])}"
        if self.chance(0.3):
            c = Expressions(self.r, [Column("", x.type, x.ours, x.pg) for x in calls], 1).condition()
            ours, pg = f"{ours} HAVING {c.ours}", f"{pg} HAVING {c.pg}"
        made = self.select(rows, items, (ours, pg), key=shown, kind="changelog", hide=False)
        count = "" if by or more else f"SELECT count(*) FROM {rows.pg}{where[1]}"
        return replace(made, input=count)

    def spelled(self, by: E, items: list[E]) -> str:
        """A grouped expression as it stands in GROUP BY: itself, or its number in the select list."""
        if by in items and self.chance(0.15):
            return str(items.index(by) + 1)
        return by.ours

    def windowed(self, final: bool, kinds: str = "TTHCS") -> Query:
        """GROUP BY with a window over a relation. Not ``final``: running values are seen, that of the last row too."""
        kind = self.r.choice(kinds)
        rows = self.table(self.r.choice("ssq"), "ok" if final or kind == "S" else "early")
        if kind == "S":
            return self.session(rows)
        step = self.r.choice([5, 7, 10])
        size = step if kind == "T" else step * self.r.randint(1, 4)
        alias = rows.time.removesuffix(".__time")
        words = {
            "T": f"TUMBLE({{}}, SIZE {size} SECONDS)",
            "H": f"HOP({{}}, SIZE {size} SECOND, ADVANCE BY {step} SECOND)",
            "C": f"CUMULATE({{}}, SIZE {size} SECONDS, ADVANCE BY {step} SECONDS)",
        }[kind]
        name = rows.ours.split()[0]
        size, step = size * 1000, step * 1000
        if kind == "C":
            start, end, first = "__at", f"__at + (i + 1) * {step}", f"__time / {size} * {size}"
        else:
            start, end, first = f"__at - i * {step}", f"__at - i * {step} + {size}", f"__time / {step} * {step}"
        times = f"SELECT y.*, {first} AS __at FROM {rows.pg.split()[0]} y"
        bounds = (
            f"SELECT z.*, {_moment(start)} AS window_start, {_moment(end)} AS window_end "
            f"FROM ({times}) z, generate_series(0, {size // step - 1}) i WHERE __time < {end}"
        )
        over = replace(rows, ours=f"{words.format(name)} {alias}", pg=f"({bounds}) {alias}")
        return self.over_window(over, self.where(rows, 0.4))

    def over_window(
        self, rows: Rows, where: tuple[str, str], distinct: bool = True, by: list[E] | None = None
    ) -> Query:
        e = Expressions(self.r, rows.columns, 2)
        if by is None:
            by = [self.r.choice(rows.columns).e for _ in range(self.r.choice([0, 1, 1, 2]))]
        bounds = [E(b, b, "ts") for b in ("window_start", "window_end")]
        shown = self.r.choice([bounds[:1], bounds[1:], bounds])
        by = [*shown, *dict.fromkeys(by)]
        return self.grouped(rows, by, e, where, distinct=distinct, more=[b for b in bounds if b not in shown])

    def session(self, rows: Rows) -> Query:
        alias = rows.time.removesuffix(".__time")
        gap = self.r.choice([1, 2, 5])
        where = self.where(rows, 0.4)
        by = [c.e for c in self.r.sample(rows.columns, self.r.choice([0, 1, 1, 2]))]
        part = f"PARTITION BY {', '.join(b.pg for b in by)} " if by else ""
        over = f"({part}ORDER BY {alias}.__time, {alias}.__offset)"
        near = f"CASE WHEN __time - lag(__time) OVER {over} <= {gap * 1000} THEN 0 ELSE 1 END"
        new = f"SELECT *, {near} AS fresh FROM {rows.pg}{where[1]}"
        number = f"SELECT *, sum(fresh) OVER {over} AS n FROM ({new}) {alias}"
        both = f"({part.strip()}{', ' if part else 'PARTITION BY '}n)"
        start, end = (_moment(f"{f}(__time) OVER {both}") for f in ("min", "max"))
        end += f" + interval '{gap} seconds'"
        ends = f"SELECT *, {start} AS window_start, {end} AS window_end FROM ({number}) {alias}"
        name = rows.ours.split()[0]
        made = replace(rows, ours=f"SESSION({name}, GAP {gap} SECONDS) {alias}", pg=f"({ends}) {alias}")
        return self.over_window(made, (where[0], ""), distinct=False, by=by)

    def distinct(self, rows: Rows) -> Query:
        query = self.plain(rows, keyed=False, hide=False)
        ours, pg = (t.replace("SELECT ", "SELECT DISTINCT ", 1) for t in (query.ours, query.pg))
        return replace(query, ours=ours, pg=pg, key=tuple(n for n, _ in query.output))

    # Joins

    def pair(self, a: Rows, b: Rows) -> tuple[Column, Column]:
        """Columns that may be compared, most often of one name."""
        pairs = [(x, y) for x in a.columns for y in b.columns if x.type == y.type and x.type in ("str", "int")]
        same = [(x, y) for x, y in pairs if x.name == y.name and x.name != "id"]
        return self.r.choice(same if same and self.chance(0.8) else pairs)

    def on(self, x: Column, y: Column) -> str:
        return f"{x.ours} = {y.ours}" if self.chance(0.7) else f"{y.ours} = {x.ours}"

    def interval(self, waits: bool = False) -> Rows:
        """Two streams by key and time apart. ``waits``: what is above waits for the watermark.

        A relation's last row may meet itself where both sides read it; one that meets nothing comes out never. Of a
        FULL JOIN it comes out at once when its key is NULL, which that of a bare relation is not.
        """
        how, apart = self.r.choice(["", "INNER ", "LEFT ", "FULL "]), self.r.choice([1, 3, 10])
        inner = how in ("", "INNER ")
        while True:
            depth = 2 if how == "FULL " else 0
            a, b = (self.stream("early" if inner and not waits else "ok", depth) for _ in range(2))
            alike = {c.type for c in a.columns} & {c.type for c in b.columns} & {"str", "int"}
            if alike and (inner or not _read(a) & _read(b)):
                break
        x, y = self.pair(a, b)
        near = f"abs({a.time} - {b.time}) <= {apart * 1000}"
        return Rows(
            f"{a.ours} {how}JOIN {b.ours} WITHIN {apart} SECONDS ON {self.on(x, y)}",
            f"{a.pg} {how}JOIN {b.pg} ON {x.pg} = {y.pg} AND {near}",
            a.columns + b.columns,
            time=f"greatest({a.time}, {b.time})",
        )

    def temporal(self) -> Rows:
        """A stream, or two joined ones, with one or two changelogs as they were at its time."""
        left = self.interval(waits=True) if self.chance(0.15) else self.stream("ok")
        keys = [c for c in left.columns if c.type == "str"]
        if not keys:
            return self.temporal()
        for _ in range(self.r.choice([1, 1, 2])):
            name, how = self.r.choice("ce"), self.r.choice(["", "LEFT "])
            alias = self.name("r")
            key = self.r.choice([c for c in keys if c.name == KEYS[name][0]] or keys)
            right = Column(KEYS[name][0], "str", f"{alias}.{KEYS[name][0]}", f"{alias}.{KEYS[name][0]}")
            version = (
                f"SELECT * FROM log_{name} l WHERE l.{right.name} = {key.pg} AND l.__time <= {left.time} "
                "ORDER BY l.__time DESC, l.__partition DESC, l.__offset DESC LIMIT 1"
            )
            columns = tuple(Column(c, KINDS[t], f"{alias}.{c}", f"{alias}.{c}") for c, t in COLUMNS[name].items())
            left = Rows(
                f"{left.ours} {how}JOIN {name} {alias} ON {self.on(key, right)}",
                f"{left.pg} {how}JOIN LATERAL (SELECT * FROM ({version}) l WHERE NOT __delete) {alias} ON true",
                left.columns + columns,
                time=left.time,
            )
        return left

    def changelogs(self) -> Rows:
        """Two or three changelogs, what they hold now; among them a GROUP BY."""
        a = self.keyed_side()
        for _ in range(self.r.choice([1, 1, 1, 2])):
            b = self.keyed_side()
            if not any(x.type == y.type and x.type in ("str", "int") for x in a.columns for y in b.columns):
                continue
            x, y = self.pair(a, b)
            how = self.r.choice(["", "LEFT ", "FULL "])
            single = how != "FULL " and [c.pg for c in b.key] == [y.pg]
            a = Rows(
                f"{a.ours} {how}JOIN {b.ours} ON {self.on(x, y)}",
                f"{a.pg} {how}JOIN {b.pg} ON {x.pg} = {y.pg}",
                a.columns + b.columns, "changelog", a.key + (() if single else b.key),
            )  # fmt: skip
        return a

    def keyed_side(self) -> Rows:
        if self.chance(0.2):
            query = self.group(self.stream("all") if self.chance(0.5) else self.changelog(), whole=False)
            return self.sub(query)
        return self.changelog()

    # Whole statements

    def of_plain(self) -> tuple[str, Query]:
        if self.chance(0.3):
            return self.r.choice(["view", "changelog"]), self.plain(self.changelog(), hide=False)
        if self.chance(0.25):
            query = self.union("all", 0)
            return self.r.choice(["view", "stream"]), unhidden(query)
        return self.r.choice(["view", "stream"]), self.plain(self.stream("all"), hide=False)

    def of_group(self) -> tuple[str, Query]:
        query = self.group(self.stream("all") if self.chance(0.5) else self.changelog(keyed=False))
        return ("view" if not query.key or self.chance(0.7) else "changelog"), query

    def of_window(self) -> tuple[str, Query]:
        want = self.r.choice(["view", "changelog"])
        return want, self.windowed(final=want == "changelog")

    def of_distinct(self) -> tuple[str, Query]:
        if self.chance(0.4):
            return "view", self.distinct(self.changelog(keyed=False))
        if self.chance(0.3):
            return "view", self.distinct(self.sub(self.group(self.stream("all"), whole=False, keyed=False)))
        return self.r.choice(["view", "stream"]), self.distinct(self.stream("all"))

    def of_interval(self) -> tuple[str, Query]:
        rows = self.interval()
        if self.chance(0.3):
            return "view", self.group(rows)
        return self.r.choice(["view", "stream"]), self.plain(rows, hide=False)

    def of_temporal(self) -> tuple[str, Query]:
        rows = self.temporal()
        if self.chance(0.3):
            return "view", self.group(rows)
        return self.r.choice(["view", "stream"]), self.plain(rows, hide=False)

    def of_changelogs(self) -> tuple[str, Query]:
        rows = self.changelogs()
        if self.chance(0.35):
            return "view", self.group(rows)
        return self.r.choice(["view", "changelog"]), self.plain(rows, hide=False)

    def of_chain(self) -> tuple[str, Query]:
        """An aggregate over what an aggregate, a DISTINCT or a final window tells."""
        match self.r.randint(0, 3):
            case 0:
                rows = self.sub(self.windowed(final=True, kinds="TTHC"))
            case 1:
                rows = self.sub(self.distinct(self.stream("all")))
            case 2:
                inner = self.sub(self.group(self.changelog(), whole=False, keyed=False))
                rows = self.sub(self.group(inner, whole=False, keyed=False))
            case _:
                rows = self.sub(self.group(self.stream("all"), whole=False, keyed=False))
        return "view", self.group(rows)


def unhidden(query: Query) -> Query:
    return replace(query, pg=f"SELECT {', '.join(n for n, _ in query.output)} FROM ({query.pg}) p")


def _read(rows: Rows) -> set[str]:
    """The streams that are read."""
    return set(re.findall(r"\b([sq])_(?:ok|early)\b", rows.pg))


def _moment(ms: str) -> str:
    return f"timestamp '1970-01-01' + ({ms}) * interval '1 millisecond'"


SHAPES: dict[str, tuple[int, Callable[[Queries], tuple[str, Query]]]] = {
    "plain": (14, Queries.of_plain),
    "group": (16, Queries.of_group),
    "window": (18, Queries.of_window),
    "distinct": (8, Queries.of_distinct),
    "interval join": (12, Queries.of_interval),
    "temporal join": (12, Queries.of_temporal),
    "changelog join": (12, Queries.of_changelogs),
    "chain": (8, Queries.of_chain),
}


def case(seed: str) -> Case:
    """The query of a seed."""
    return Queries(random.Random(f"query {seed}")).case()
