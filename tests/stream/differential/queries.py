"""Random queries: one tree, written down for pgstream and for PostgreSQL.

Owns: the shapes of whole statements, and what may stand on what. Must not know: how it runs. ``selects``, ``windows``,
``joins`` and ``ranks`` draw the parts. Start reading at ``case``.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from tests.stream.differential.expressions import Expressions
from tests.stream.differential.ranks import Ranks
from tests.stream.differential.tree import Case, Query, Rows

Made = tuple[str, Query]


class Queries(Ranks):
    """Makes the query of one seed."""

    def case(self) -> Case:
        shape = self.r.choices(list(SHAPES), [w for w, _ in SHAPES.values()])[0]
        want, query = SHAPES[shape][1](self)
        ctes = ", ".join(f"{n} AS ({text})" for n, text in self.ctes)
        text = (f"WITH {ctes} " if ctes else "") + query.ours
        types = tuple(t for _, t in query.output)
        restarts, generated = self.chance(0.2), self.chance(0.25)
        return Case(shape, want, text, query.pg, query.input, restarts, generated, types, self.expires)

    def ended(self, rows: Rows, *wants: str) -> Made:
        """Rows as a result, or a GROUP BY of them."""
        if self.chance(0.3):
            return "view", self.group(rows)
        return self.r.choice(wants), self.plain(rows, hide=False, nested=self.chance(0.1))

    def of_plain(self) -> Made:
        if self.chance(0.3):
            return self.r.choice(["view", "changelog"]), self.plain(self.changelog(), hide=False)
        nested = self.chance(0.15)
        return self.r.choice(["view", "stream"]), self.plain(self.stream("all"), hide=False, nested=nested)

    def of_union(self) -> Made:
        """UNION ALL of streams or of anything, UNION, INTERSECT [ALL], EXCEPT [ALL]."""
        match self.r.randint(0, 4):
            case 4:
                sides = [self.r.choice([lambda: self.stream("all", 1), self.changelog, self.anything])() for _ in "ab"]
                query = self.united(sides, self.r.choice(["INTERSECT", "EXCEPT"]) + self.r.choice(["", " ALL"]))
                return "view", self.group(self.sub(query)) if self.chance(0.3) else query
            case 0:
                return self.r.choice(["view", "stream"]), unhidden(self.union("all", 0))
            case 1:
                query = self.united([self.stream("all", 1), self.stream("all", 1)], "UNION")
                return self.r.choice(["view", "stream"]), query
            case 2:
                return "view", self.united([self.changelog(keyed=False), self.stream("all", 1)], "UNION")
            case _:
                query = self.united([self.changelog(keyed=False), self.r.choice([self.anything, self.changelog])()])
                return "view", self.group(self.sub(query)) if self.chance(0.5) else query

    def anything(self) -> Rows:
        """A changelog made by an operator."""
        match self.r.randint(0, 3):
            case 0:
                return self.sub(self.ranked(self.stream("all", 1)))
            case 1:
                return self.sub(self.group(self.stream("all", 1), whole=False, keyed=False))
            case 2:
                return self.sub(self.group(self.changelog(keyed=False), whole=False, keyed=False))
            case _:
                return self.sub(self.plain(self.changelogs(), keyed=False))

    def of_group(self) -> Made:
        query = self.group(self.stream("all") if self.chance(0.5) else self.changelog(keyed=False))
        return ("view" if not query.key or self.chance(0.7) else "changelog"), query

    def of_sets(self) -> Made:
        if self.chance(0.3):
            return "view", self.windowed(final=False, kinds="THC", sets=True)
        return "view", self.cubed(self.stream("all", 1) if self.chance(0.6) else self.changelog(keyed=False))

    def of_window(self) -> Made:
        want = self.r.choice(["view", "changelog"])
        return want, self.windowed(final=want == "changelog")

    def of_distinct(self) -> Made:
        if self.chance(0.4):
            return "view", self.distinct(self.changelog(keyed=False))
        if self.chance(0.4):
            return "view", self.distinct(self.anything())
        return self.r.choice(["view", "stream"]), self.distinct(self.stream("all"))

    def of_interval(self) -> Made:
        return self.ended(self.interval(), "view", "stream")

    def of_regular(self) -> Made:
        rows = self.regular()
        match self.r.randint(0, 5):
            case 0:
                return "view", self.distinct(rows)
            case 1:
                return "view", self.ranked(rows)
            case _:
                return self.ended(rows, "view", *(["stream"] if rows.kind == "stream" else []))

    def of_temporal(self) -> Made:
        return self.ended(self.temporal(), "view", "stream")

    def of_changelogs(self) -> Made:
        return self.ended(self.changelogs(), "view", "changelog")

    def of_asked(self) -> Made:
        """The rows of a changelog for which there are others, or are none."""
        rows = self.changelogs() if self.chance(0.2) else self.changelog()
        met = [self.asks(rows) for _ in range(self.r.choice([1, 1, 1, 2]))]
        if self.chance(0.3):
            c = Expressions(self.r, rows.columns).condition()
            met.append((f"({c.ours})", f"({c.pg})"))
        ours, pg = (f" WHERE {' AND '.join(texts)}" for texts in zip(*met, strict=True))
        key = [c.e for c in rows.key]
        own = [c.e for c in rows.flat if c.e not in key]
        items = [*key, *self.r.sample(own, min(len(own), self.r.randint(1, 3)))]
        query = self.select(rows, items, (ours, pg), key=key, hide=False)
        if self.chance(0.2):
            return "view", self.group(self.sub(query))
        return self.r.choice(["view", "changelog"]), query

    def of_lookup(self) -> Made:
        return self.ended(self.lookup(self.stream("all", 1)), "view", "stream")

    def of_unnest(self) -> Made:
        rows = self.table(self.r.choice("sqcs"), "all")
        return self.ended(self.elements(rows), "view")

    def of_rank(self) -> Made:
        match self.r.randint(0, 4):
            case 0:
                return self.r.choice(["view", "changelog"]), self.first(self.table(self.r.choice("ssq"), "all"))
            case 1:
                rows = self.opened("ok")
                bounds = list(rows.columns[-2:])
                by = self.r.choice([bounds, bounds[1:]]) + self.r.sample(rows.flat[:-2], self.r.choice([0, 0, 1]))
                return "view", self.ranked(rows, [c.e for c in by])
            case 2:
                return "view", self.ranked(self.changelog(keyed=self.chance(0.6)))
            case _:
                return "view", self.ranked(self.stream("all", 1))

    def of_over(self) -> Made:
        query = self.running(self.in_order("ok", 1), leads=True)
        if self.chance(0.25):
            return "view", self.group(self.sub(query))
        return self.r.choice(["view", "stream"]), unhidden(query)

    def of_chain(self) -> Made:
        """Operators on operators."""
        match self.r.randint(0, 9):
            case 0:
                rows = self.sub(self.windowed(final=True, kinds="TTHC"))
                return "view", self.group(rows)
            case 1:
                return "view", self.group(self.sub(self.distinct(self.stream("all"))))
            case 2:
                return "view", self.group(self.sub(self.group(self.anything(), whole=False, keyed=False)))
            case 3:
                return "view", self.ranked(self.r.choice([self.anything, self.changelogs])())
            case 4:
                rows = self.interval() if self.chance(0.5) else self.temporal()
                return "view", self.ranked(rows)
            case 5:
                rows = self.interval(waits=True) if self.chance(0.5) else self.temporal()
                return "view", unhidden(self.running(rows))
            case 6:
                rows = self.sub(self.windowed(final=True, kinds="TTHC"))
                return "view", self.ranked(rows)
            case 7:
                return "view", self.distinct(self.changelogs())
            case 8:
                return "view", self.cubed(self.r.choice([self.anything, self.changelogs])())
            case _:
                return "view", self.group(self.anything())


def unhidden(query: Query) -> Query:
    names = ", ".join(n for n, _ in query.output)
    return replace(query, pg=f"SELECT {names} FROM ({query.pg}) p", timed=False, placed=False)


SHAPES: dict[str, tuple[int, Callable[[Queries], Made]]] = {
    "plain": (10, Queries.of_plain),
    "union": (8, Queries.of_union),
    "group": (12, Queries.of_group),
    "grouping sets": (7, Queries.of_sets),
    "window": (12, Queries.of_window),
    "distinct": (6, Queries.of_distinct),
    "interval join": (9, Queries.of_interval),
    "regular join": (9, Queries.of_regular),
    "temporal join": (9, Queries.of_temporal),
    "changelog join": (9, Queries.of_changelogs),
    "asked": (6, Queries.of_asked),
    "lookup": (4, Queries.of_lookup),
    "unnest": (4, Queries.of_unnest),
    "rank": (12, Queries.of_rank),
    "over": (10, Queries.of_over),
    "chain": (16, Queries.of_chain),
}


def case(seed: str) -> Case:
    """The query of a seed."""
    return Queries(random.Random(f"query {seed}")).case()
