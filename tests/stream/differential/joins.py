"""Joins of random relations: two streams by time, a stream with the version of a changelog, changelogs.

Start reading at ``Joins.interval``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from tests.stream.differential.aggregates import aggregate
from tests.stream.differential.data import COLUMNS
from tests.stream.differential.expressions import KINDS, Column, Expressions
from tests.stream.differential.selects import KEYS
from tests.stream.differential.tree import Query, Rows
from tests.stream.differential.windows import Windows


class Joins(Windows):
    """Draws joins."""

    def more_streams(self, rows: str) -> list[Callable[[str, int], Query]]:
        return [*super().more_streams(rows), *([self.versions] if rows == "ok" else [])]

    def versions(self, rows: str, depth: int) -> Query:
        return self.plain(self.temporal(depth))

    def pair(self, a: Rows, b: Rows) -> tuple[Column, Column]:
        """Columns that may be compared, most often of one name."""
        pairs = [(x, y) for x in a.columns for y in b.columns if x.type == y.type and x.type in ("str", "int")]
        same = [(x, y) for x, y in pairs if x.name == y.name and x.name != "id"]
        return self.r.choice(same if same and self.chance(0.8) else pairs)

    def on(self, x: Column, y: Column) -> str:
        return f"{x.ours} = {y.ours}" if self.chance(0.7) else f"{y.ours} = {x.ours}"

    def condition(self, pairs: list[tuple[Column, Column]], how: str) -> tuple[str, tuple[Column, ...]]:
        """ON or USING, and the columns that USING makes. The left side is one relation."""
        if not all(x.name == y.name for x, y in pairs) or self.chance(0.6):
            return f"ON {' AND '.join(self.on(x, y) for x, y in pairs)}", ()
        side = {"RIGHT ": "{1}", "FULL ": "coalesce({0}, {1})"}.get(how, "{0}")
        merged = tuple(Column(x.name, x.type, x.name, side.format(x.pg, y.pg)) for x, y in dict.fromkeys(pairs))
        return f"USING ({', '.join(c.name for c in merged)})", merged

    def bare(self, rows: str) -> Rows:
        """A stream without operators that keep state."""
        if self.chance(0.35):
            return self.sub(self.plain(self.table(self.r.choice("ssq"), rows)))
        return self.table(self.r.choice("ssq"), rows)

    def interval(self, waits: bool = False) -> Rows:
        """Two streams by key and time apart. ``waits``: what is above waits for the watermark.

        A relation's last row may meet itself where both sides read it; one that meets nothing comes out never. Of an
        outer join it comes out at once when its key is NULL, which that of a bare relation is not.
        """
        how, apart = self.r.choice(["", "INNER ", "LEFT ", "FULL ", "RIGHT "]), self.r.choice([1, 3, 10])
        inner = how in ("", "INNER ")
        while True:
            name = "early" if inner and not waits else "ok"
            a, b = (self.bare(name) if inner else self.table(self.r.choice("ssq"), name) for _ in range(2))
            alike = {c.type for c in a.columns} & {c.type for c in b.columns} & {"str", "int"}
            if alike and (inner or not _read(a) & _read(b)):
                break
        x, y = self.pair(a, b)
        near = f"abs({a.time} - {b.time}) <= {apart * 1000}"
        on, merged = self.condition([(x, y)], how)
        return Rows(
            f"{a.ours} {how}JOIN {b.ours} WITHIN {apart} SECONDS {on}",
            f"{a.pg} {how}JOIN {b.pg} ON {x.pg} = {y.pg} AND {near}",
            a.columns + b.columns + merged,
            time=f"greatest({a.time}, {b.time})",
        )

    def regular(self) -> Rows:
        """Two or three streams, however far apart. A third one meets the others by more than one of a few values."""
        self.expires = True
        a = self.comparable()
        for least in self.r.choice([(1,), (1,), (1, 2)]):
            b = self.comparable({c.type for c in a.columns})
            a = _beside(a, (c.name for c in b.columns))
            pairs = list(dict.fromkeys(self.pair(a, b) for _ in range(self.r.choice([least, least, 2]))))
            how = self.r.choice(["", "INNER ", "LEFT ", "FULL ", "RIGHT "])
            on, merged = (
                self.condition(pairs, how) if " JOIN " not in a.ours else (_all(self.on(*p) for p in pairs), ())
            )
            on_pg = " AND ".join(f"{x.pg} = {y.pg}" for x, y in pairs)
            if not merged and self.chance(0.4):
                more = Expressions(self.r, a.columns + b.columns, 1).condition()
                on, on_pg = f"{on} AND ({more.ours})", f"{on_pg} AND ({more.pg})"
            comes = how in ("", "INNER ") and a.kind == b.kind == "stream"
            a = Rows(
                f"{a.ours} {how}JOIN {b.ours} {on}", f"{a.pg} {how}JOIN {b.pg} ON {on_pg}",
                a.columns + b.columns + merged, "stream" if comes else "changelog",
                time=f"greatest({a.time}, {b.time})" if comes else "",
            )  # fmt: skip
        return a

    def comparable(self, types: Collection[str] = ("str", "int")) -> Rows:
        """A stream with a column that may be compared with some of these types."""
        made = self.bare("all")
        if {c.type for c in made.columns} & {"str", "int"} & set(types):
            return made
        return self.table(self.r.choice("ssq"), "all")

    def temporal(self, depth: int = 0) -> Rows:
        """A stream, or two joined ones, with one or two changelogs as they were at its time."""
        left = self.interval(waits=True) if depth == 0 and self.chance(0.15) else self.stream("ok", depth + 1)
        left = _beside(left, (c for name in "cem" for c in COLUMNS[name]))
        keys = [c for c in left.columns if c.type == "str"]
        if not keys:
            return self.temporal(depth)
        for _ in range(self.r.choice([1, 1, 2])):
            left = self.version(left, keys) if self.chance(0.8) else self.group_version(left, keys)
        return left

    def group_version(self, left: Rows, keys: list[Column]) -> Rows:
        """The rows of a stream with a group of another as it was at their time."""
        inner, alias, how = self.table(self.r.choice("ssq"), "ok"), self.name("g"), self.r.choice(["", "LEFT "])
        by, key = self.r.choice([c for c in inner.columns if c.type == "str"]), self.r.choice(keys)
        e = Expressions(self.r, inner.columns, 1)
        calls = [aggregate(self.r, e, distinct=False) for _ in range(self.r.randint(1, 2))]
        having = ("", "")
        if self.chance(0.3):
            c = Expressions(self.r, [Column("", x.type, x.ours, x.pg) for x in calls], 1).condition()
            having = (f" HAVING {c.ours}", f" HAVING {c.pg}")
        names = [f"a{i}" for i in range(len(calls))]
        ours, pg = (
            ", ".join([f"{b} AS g", *(f"{c} AS {n}" for n, c in zip(names, texts, strict=True))])
            for b, texts in ((by.ours, [c.ours for c in calls]), (by.pg, [c.pg for c in calls]))
        )
        made = [("g", "str"), *((n, c.type) for n, c in zip(names, calls, strict=True))]
        before = f"WHERE {by.pg} = {key.pg} AND {inner.time} <= {left.time}"
        return Rows(
            f"{left.ours} {how}JOIN (SELECT {ours} FROM {inner.ours} GROUP BY {by.ours}{having[0]}) {alias}"
            f" ON {key.ours} = {alias}.g",
            f"{left.pg} {how}JOIN LATERAL (SELECT {pg} FROM {inner.pg} {before} GROUP BY {by.pg}{having[1]}) {alias}"
            " ON true",
            left.columns + tuple(Column(n, t, f"{alias}.{n}", f"{alias}.{n}") for n, t in made),
            time=left.time,
        )

    def version(self, left: Rows, keys: list[Column]) -> Rows:
        """The rows of a stream with a changelog's, or those of a filter of it."""
        numbers = [c for c in left.columns if c.type == "int"]
        name, how = self.r.choice("cem" if numbers else "ce"), self.r.choice(["", "LEFT "])
        alias = self.name("r")
        kinds = {c: KINDS[t] for c, t in COLUMNS[name].items()}
        pairs = []
        for k in KEYS[name]:
            own = keys if kinds[k] == "str" else numbers
            pairs.append(
                (self.r.choice([c for c in own if c.name == k] or own), Column(k, kinds[k], *[f"{alias}.{k}"] * 2))
            )
        same = " AND ".join(f"l.{right.name} = {key.pg}" for key, right in pairs)
        version = (
            f"SELECT * FROM log_{name} l WHERE {same} AND l.__time <= {left.time} "
            "ORDER BY l.__time DESC, l.__partition DESC, l.__offset DESC LIMIT 1"
        )
        ours, passes = f"{name} {alias}", ""
        if self.chance(0.25):
            inner = [Column(c, k, f"l.{c}", f"l.{c}") for c, k in kinds.items()]
            shown = [*KEYS[name], *self.r.sample([c for c in kinds if c not in KEYS[name]], 2)]
            c = Expressions(self.r, inner, 2).condition()
            ours, passes = f"(SELECT {', '.join(shown)} FROM {name} l WHERE {c.ours}) {alias}", f" AND {c.pg}"
            kinds = {c: kinds[c] for c in shown}
        mine = tuple(Column(c, k, f"{alias}.{c}", f"{alias}.{c}") for c, k in kinds.items())
        on, on_pg = " AND ".join(self.on(key, right) for key, right in pairs), "true"
        pairs = [(x, y) for x in left.columns for y in mine if x.type == y.type == "str" and y.name not in KEYS[name]]
        if pairs and self.chance(0.1):
            x, y = self.r.choice(pairs)
            on, on_pg = f"{self.on(x, y)} AND {on}", f"{x.pg} = {y.pg}"
        elif self.chance(0.25):
            more = Expressions(self.r, left.columns + mine, 1).condition()
            on, on_pg = f"{on} AND ({more.ours})", more.pg
        return Rows(
            f"{left.ours} {how}JOIN {ours} ON {on}",
            f"{left.pg} {how}JOIN LATERAL (SELECT * FROM ({version}) l WHERE NOT __delete{passes}) {alias} ON {on_pg}",
            left.columns + mine,
            time=left.time,
        )

    def changelogs(self) -> Rows:
        """Two or three changelogs, what they hold now; among them results of others."""
        a, joins = self.keyed_side(), self.r.choice([1, 1, 1, 2])
        for _ in range(joins):
            b = self.keyed_side()
            if not any(x.type == y.type and x.type in ("str", "int") for x in a.columns for y in b.columns):
                continue
            pairs = list(dict.fromkeys(self.pair(a, b) for _ in range(self.r.choice([1, 1, 1, 2]))))
            how = self.r.choice(["", "LEFT ", "FULL ", "RIGHT "])
            single = how in ("", "LEFT ") and {c.pg for c in b.key} <= {y.pg for _, y in pairs}
            one = joins == 1 and " JOIN " not in a.ours
            on, merged = self.condition(pairs, how) if one else (f"ON {' AND '.join(self.on(*p) for p in pairs)}", ())
            on_pg = " AND ".join(f"{x.pg} = {y.pg}" for x, y in pairs)
            if how in ("", "LEFT ") and not merged and self.chance(0.2):
                more = Expressions(self.r, b.columns if not single else a.columns + b.columns, 1).condition()
                on, on_pg = f"{on} AND ({more.ours})", f"{on_pg} AND ({more.pg})"
            a = Rows(
                f"{a.ours} {how}JOIN {b.ours} {on}", f"{a.pg} {how}JOIN {b.pg} ON {on_pg}",
                a.columns + b.columns + merged, "changelog", a.key + (() if single else b.key),
            )  # fmt: skip
        return a

    def asks(self, rows: Rows) -> tuple[str, str]:
        """A condition on the rows of a changelog: whether values of theirs are among those of another query."""
        named = replace(rows, columns=tuple(c for c in rows.columns if "." in c.ours and c.type in ("str", "int")))
        other = self.comparable() if self.chance(0.4) else self.keyed_side()
        if not any(x.type == y.type for x in named.columns for y in other.columns):
            return "TRUE", "TRUE"
        pairs = list(dict.fromkeys(self.pair(named, other) for _ in range(self.r.choice([1, 1, 2]))))
        form = self.r.choice(["IN", "EXISTS", "EXISTS", "NOT EXISTS", "NOT EXISTS"])
        more = Expressions(self.r, other.columns, 1).condition() if self.chance(0.4) else None
        met = [[f"({more.ours})"], [f"({more.pg})"]] if more is not None else [[], []]
        if form == "IN":
            given, found = ([[getattr(p[i], lang) for p in pairs] for lang in ("ours", "pg")] for i in (0, 1))
            begin = [f"({', '.join(g)}) IN (SELECT {', '.join(f)}" for g, f in zip(given, found, strict=True)]
        else:
            met[0] += [self.on(*p) for p in pairs]
            met[1] += [f"{x.pg} = {y.pg}" for x, y in pairs]
            begin = [f"{form} (SELECT {self.r.choice(['1', '*', pairs[0][1].ours])}", f"{form} (SELECT 1"]
        texts = zip(begin, (other.ours, other.pg), met, strict=True)
        ours, pg = (f"{b} FROM {f}{' WHERE ' if m else ''}{' AND '.join(m)})" for b, f, m in texts)
        return ours, pg

    def keyed_side(self) -> Rows:
        if self.chance(0.2):
            query = self.group(self.stream("all") if self.chance(0.5) else self.changelog(), whole=False)
            return self.sub(query)
        return self.changelog()


def _all(conditions: Iterable[str]) -> str:
    return f"ON {' AND '.join(conditions)}"


def _beside(rows: Rows, names: Iterable[str]) -> Rows:
    """Without the columns of USING that could be read as one of another relation's, which has these."""
    taken = set(names)
    return replace(rows, columns=tuple(c for c in rows.columns if c.ours != c.name or c.name not in taken))


def _read(rows: Rows) -> set[str]:
    """The streams that are read."""
    return set(re.findall(r"\b([sq])_(?:ok|early)\b", rows.pg))
