"""SELECTs over random rows: filter and projection, UNION, GROUP BY with grouping sets, DISTINCT, CTEs, UNNEST, lookups.

What PostgreSQL is asked is made from the tree, never from a plan of ours. It reads all rows at once from the views of
``data``; a step that works by event time reads those without late rows (``early``), and where it waits for the
watermark also without the last one (``ok``), which nothing follows.
Must not know: windows, joins of two sources, ranks: they stand on this. Start reading at ``Selects.stream``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tests.stream.differential.aggregates import PLACE, aggregate
from tests.stream.differential.data import COLUMNS
from tests.stream.differential.expressions import KINDS, Column, E, Expressions
from tests.stream.differential.tree import Query, Rows

KEYS = {"c": ("k",), "e": ("g",), "m": ("k", "v")}


@dataclass
class Selects:
    """Draws queries. ``ctes``: those met so far; ``names`` counts aliases. ``expires``: a time to live is needed."""

    r: random.Random
    ctes: list[tuple[str, str]] = field(default_factory=list)
    names: int = 0
    expires: bool = False

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
            f"{name} {word}{alias}", f"{name}_{rows} {alias}", columns, kind, key, f"{alias}.__time", placed=True,
            alias=alias,
        )  # fmt: skip

    def stream(self, rows: str, depth: int = 0) -> Rows:
        """A stream: a relation, or a SELECT over one."""
        if depth < 2 and self.chance(0.4):
            makers: list[Callable[[str, int], Query]] = [self.union, self.filtered, self.filtered, self.unnested,
                                                         self.looked_up, *self.more_streams(rows)]  # fmt: skip
            return self.sub(self.r.choice(makers)(rows, depth + 1))
        return self.table(self.r.choice("ssq"), rows)

    def more_streams(self, rows: str) -> list[Callable[[str, int], Query]]:
        """Queries of those who stand on this that give streams."""
        return []

    def filtered(self, rows: str, depth: int) -> Query:
        return self.plain(self.stream(rows, depth))

    def unnested(self, rows: str, depth: int) -> Query:
        return self.plain(self.elements(self.table(self.r.choice("sq"), rows)))

    def looked_up(self, rows: str, depth: int) -> Query:
        return self.plain(self.lookup(self.stream(rows, depth)))

    def changelog(self, keyed: bool = True) -> Rows:
        """A changelog: a relation, or a filter or projection of one, without its key unless ``keyed``."""
        rows = self.table(self.r.choice("cccemm"), "all")
        if not keyed and self.chance(0.1) and any(c.type in ("ints", "strs") for c in rows.columns):
            return self.elements(rows)
        if self.chance(0.3):
            return self.sub(self.plain(rows, keyed=keyed or self.chance(0.5)))
        return rows

    def sub(self, query: Query) -> Rows:
        """A query as a relation: in parentheses, or a CTE, which may hide a relation of its name."""
        alias = self.name()
        columns = tuple(Column(n, t, f"{alias}.{n}", f"{alias}.{n}") for n, t in query.output)
        ours = f"({query.ours}) {alias}"
        if self.chance(0.3):
            cte = self.name("cte")
            self.ctes.append((cte, query.ours))
            ours = f"{cte} {alias}"
        elif self.chance(0.1):
            hidden = self.r.choice("sqcem")
            ours = f"(WITH {hidden} AS ({query.ours}) SELECT * FROM {hidden}) {alias}"
        key = tuple(c for c in columns if c.name in query.key)
        time = f"{alias}.__time" if query.timed else ""
        return Rows(ours, f"({query.pg}) {alias}", columns, query.kind, key, time, query.placed, alias, query.several)

    def elements(self, rows: Rows) -> Rows:
        """The rows with the elements of an array or a map of theirs."""
        column = self.r.choice([c for c in rows.columns if c.type in ("ints", "strs", "map", "recs")])
        alias, outer = self.name("u"), self.chance(0.4)
        names = {"ints": ["n"], "strs": ["t"], "map": ["key", "value"], "recs": ["i", "t"]}[column.type]
        kinds = {"ints": ["int"], "strs": ["str"], "map": ["str", "int"], "recs": ["int", "str"]}[column.type]
        pg = {
            "map": f"(SELECT e.key, e.value::int AS value FROM jsonb_each_text({column.pg}) e)",
            "recs": f"(SELECT (e->>'i')::int AS i, e->>'t' AS t FROM jsonb_array_elements({column.pg}) e)",
        }.get(column.type, f"(SELECT * FROM unnest({column.pg}) e({names[0]}))")
        word = "LEFT JOIN" if outer else self.r.choice(["CROSS JOIN", ","])
        tail = " ON TRUE" if outer else ""
        given = f"{alias}({', '.join(names)})"
        comma = "CROSS JOIN" if word == "," else word
        return replace(
            rows,
            ours=f"{rows.ours}{' ' if word != ',' else ''}{word} UNNEST({column.ours}) AS {given}{tail}",
            pg=f"{rows.pg} {comma} LATERAL {pg} {given}{tail}",
            columns=(*rows.columns, *(Column(n, k, f"{alias}.{n}", f"{alias}.{n}")
                                      for n, k in zip(names, kinds, strict=True))),
            key=(), placed=False, alias="", several=False,
        )  # fmt: skip

    def lookup(self, rows: Rows) -> Rows:
        """The rows of a stream with those of a materialized view."""
        keys = [c for c in rows.columns if c.type in ("str", "int")]
        if not keys:
            return rows
        alias, how = self.name("l"), self.r.choice(["", "LEFT "])
        columns = tuple(Column(c, KINDS[t], f"{alias}.{c}", f"{alias}.{c}") for c, t in COLUMNS["look"].items())
        key = self.r.choice(keys)
        given = key.e if self.chance(0.7) else Expressions(self.r, rows.columns, 1).of(key.type)
        if not any(c.ours in given.ours for c in rows.columns):
            given = key.e  # what reads nothing of the stream is PostgreSQL's, and of its language
        other = self.r.choice([c for c in columns if c.type == key.type])
        ours, pg = (f"{mine} = {other.ours}" if self.chance(0.7) else f"{other.ours} = {mine}" for mine in given[:2])
        if self.chance(0.3):
            more = self.r.choice([f"{alias}.n > 1", f"{alias}.t IS NOT NULL", f"{alias}.x = 1.25"])
            ours, pg = f"{ours} AND {more}", f"{pg} AND {more}"
        ours, pg = f"JOIN look {alias} ON {ours}", f"JOIN look {alias} ON {pg}"
        if self.chance(0.3):
            word = self.r.choice(["count(*)", "max(n)", "sum(n)"])
            one = f"(SELECT {word} AS n, min(x) AS x FROM look WHERE {other.name} = {{}}) {alias}"
            columns = tuple(Column(c, kind, f"{alias}.{c}", f"{alias}.{c}") for c, kind in (("n", "int"), ("x", "dec")))
            ours, pg = (f"JOIN LATERAL {one.format(mine)} ON TRUE" for mine in given[:2])
        return replace(
            rows, ours=f"{rows.ours} {how}{ours}", pg=f"{rows.pg} {how}{pg}", columns=rows.columns + columns,
            placed=False, alias="", several=False,
        )  # fmt: skip

    def asked(self, columns: Sequence[Column]) -> E:
        """A subquery over a materialized view, for a row that has these columns."""
        column = self.r.choice([c for c in columns if c.type in ("str", "int")])
        mine, other = column.e, "k" if column.type == "str" else "n"
        compare = f"{self.r.choice(['=', '<>', '<', '>='])} {self.r.choice(['ANY', 'ALL'])}"
        text, kind = self.r.choice([
            (f"{{}} {self.r.choice(['', 'NOT '])}IN (SELECT {other} FROM look)", "bool"),
            (f"{self.r.choice(['', 'NOT '])}EXISTS (SELECT 1 FROM look WHERE {other} = {{}} AND x IS NULL)", "bool"),
            (f"{{}} {compare} (SELECT {other} FROM look)", "bool"),
            (f"(SELECT max(t) FROM look WHERE {other} = {{}})", "str"),
            (f"(SELECT sum(x) FROM look WHERE {other} <> {{}})", "dec"),
        ])  # fmt: skip
        return E(f"({text.format(mine.ours)})", f"({text.format(mine.pg)})", kind)

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
            several=rows.several,
        )

    def where(self, rows: Rows, p: float = 0.5) -> tuple[str, str]:
        if not self.chance(p):
            return "", ""
        c = Expressions(self.r, rows.columns).condition()
        return f" WHERE {c.ours}", f" WHERE {c.pg}"

    def plain(self, rows: Rows, keyed: bool = True, p: float = 0.5, hide: bool = True, nested: bool = False) -> Query:
        """Filter and projection. A changelog keeps its key where it is ``keyed``. ``nested``: maps and STRUCTs too."""
        e = Expressions(self.r, rows.columns)
        key = [c.e for c in rows.key] if keyed else []
        own = [c.e for c in (rows.columns if nested else rows.flat) if c.e not in key]
        items = [*key, *self.r.sample(own, min(len(own), self.r.randint(1, 4)))]
        items += [e.any() for _ in range(self.r.randint(0 if items else 1, 2))]
        where = self.where(rows, p)
        if (rows.kind == "stream" or rows.key) and any(c.type in ("str", "int") for c in rows.columns):
            if self.chance(0.15):
                items.append(self.asked(rows.columns))
            if self.chance(0.05) and (made := self.asked(rows.columns)).type == "bool":
                word = "AND" if where[0] else "WHERE"
                where = f"{where[0]} {word} {made.ours}", f"{where[1]} {word} {made.pg}"
        return self.select(rows, items, where, key=key, hide=hide)

    def union(self, rows: str, depth: int, word: str = "UNION ALL") -> Query:
        """A union of streams: rows that have lost their place."""
        return self.united([self.stream(rows, depth) for _ in range(self.r.randint(2, 3))], word, timed=True)

    def united(self, inputs: Sequence[Rows], word: str = "UNION ALL", timed: bool = False) -> Query:
        types = [self.r.choice(["int", "str", "dec"]) for _ in range(self.r.randint(1, 3))] + ["str"]
        parts = []
        for one in inputs:
            e = Expressions(self.r, one.columns, 2)
            parts.append(self.select(one, [e.of(t) for t in types], self.where(one, 0.4), hide=timed))
        time = ", __time" if timed and word == "UNION ALL" else ""
        pg = f" {word} ".join(f"SELECT {', '.join(n for n, _ in p.output)}{time} FROM ({p.pg}) p" for p in parts)
        kind = "changelog" if any(p.kind == "changelog" for p in parts) else "stream"
        return Query(f" {word} ".join(p.ours for p in parts), pg, parts[0].output, kind, timed=bool(time))

    def distinct(self, rows: Rows) -> Query:
        query = self.plain(rows, keyed=False, hide=False)
        ours, pg = (t.replace("SELECT ", "SELECT DISTINCT ", 1) for t in (query.ours, query.pg))
        return replace(query, ours=ours, pg=pg, key=tuple(n for n, _ in query.output))

    # GROUP BY

    def group(self, rows: Rows, whole: bool = True, keyed: bool = True) -> Query:
        """GROUP BY without a window. ``whole``: it may be of all rows; not ``keyed``: its key may be left out."""
        e = Expressions(self.r, rows.columns, 2)
        count = self.r.choice([0, 1, 1, 1, 2] if whole else [1, 1, 2])
        by = self.by(rows, e, count)
        if not by and not whole:
            by.append(self.r.choice(rows.flat).e)
        return self.grouped(rows, by, e, self.where(rows, 0.4), keyed=keyed)

    def by(self, rows: Rows, e: Expressions, count: int) -> list[E]:
        out: list[E] = []
        for _ in range(count):
            made = self.r.choice(rows.flat).e if self.chance(0.7) else e.any()
            if made not in out and any(c.ours in made.ours for c in rows.columns):
                out.append(made)
        return out

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
        sets: bool = False,
    ) -> Query:
        """A GROUP BY with its aggregates. ``more``: what is grouped by beside ``by``, but need not be selected; with
        ``sets`` the bounds of a window, whose running values only a view with a key shows.
        """
        order = PLACE if rows.placed else rows.time if rows.kind == "stream" and not rows.several else ""
        calls = [aggregate(self.r, e, order, distinct, True) for _ in range(self.r.randint(1, 4))]
        after = Expressions(self.r, [Column("", x.type, x.ours, x.pg) for x in (*calls, *by)], 2)
        shown = [b for b in by if keyed or self.chance(0.5)]
        items = [*shown, calls[0], *(c if self.chance(0.75) else after.of(c.type) for c in calls[1:])]
        ours, pg = where
        if sets:
            clause = self.sets([b for b in by if b not in more])
            if more or self.chance(0.6):
                ours_by, pg_by = (", ".join(t) for t in ([b.ours for b in clause.by], [b.pg for b in clause.by]))
                items.append(E(f"GROUPING_ID({ours_by})", f"GROUPING({pg_by})", "int"))
            ours += f" GROUP BY {', '.join([*(m.ours for m in more), clause.ours])}"
            pg += f" GROUP BY {', '.join([*(m.pg for m in more), clause.pg])}"
        elif by or more:
            texts = [self.spelled(b, items) for b in by]
            ours += f" GROUP BY {', '.join([*texts, *(m.ours for m in more)])}"
            pg += f" GROUP BY {', '.join([*(b.pg for b in by), *(m.pg for m in more)])}"
        if self.chance(0.3):
            c = Expressions(self.r, [Column("", x.type, x.ours, x.pg) for x in calls], 1).condition()
            groups = [c for c in rows.columns if c.type in ("str", "int") and c.e in by and not sets]
            if groups and self.chance(0.3) and (made := self.asked(groups)).type == "bool":
                c = made
            elif groups and self.chance(0.3):
                items.append(self.asked(groups))
            ours, pg = f"{ours} HAVING {c.ours}", f"{pg} HAVING {c.pg}"
        key = () if sets else shown
        made = self.select(rows, items, (ours, pg), key=key, kind="changelog", hide=False)
        return replace(made, input=f"SELECT count(*) FROM {rows.pg}{where[1]}" if sets and not more else "")

    def spelled(self, by: E, items: list[E]) -> str:
        """A grouped expression as it stands in GROUP BY: itself, or its number in the select list."""
        if by in items and self.chance(0.15):
            return str(items.index(by) + 1)
        return by.ours

    def sets(self, by: list[E]) -> Sets:
        """GROUPING SETS, ROLLUP or CUBE of some expressions."""
        word = self.r.choice(["ROLLUP", "CUBE", "GROUPING SETS"])
        if word != "GROUPING SETS":
            return Sets(by, *(f"{word}({', '.join(t)})" for t in ([b.ours for b in by], [b.pg for b in by])))
        every = [[b for i, b in enumerate(by) if n >> i & 1] for n in range(1 << len(by))]
        chosen = [by, *self.r.sample(every[:-1], self.r.randint(1, len(every) - 1))]
        ours = ", ".join(f"({', '.join(b.ours for b in one)})" for one in chosen)
        pg = ", ".join(f"({', '.join(b.pg for b in one)})" for one in chosen)
        return Sets(by, f"GROUPING SETS ({ours})", f"GROUPING SETS ({pg})")

    def cubed(self, rows: Rows) -> Query:
        """GROUP BY of grouping sets."""
        e = Expressions(self.r, rows.columns, 2)
        by = list(dict.fromkeys(c.e for c in self.r.sample(rows.flat, min(len(rows.flat), self.r.randint(1, 3)))))
        return self.grouped(rows, by, e, self.where(rows, 0.4), sets=True)


@dataclass(frozen=True)
class Sets:
    """Grouping sets: of which expressions, and their clause."""

    by: list[E]
    ours: str
    pg: str
