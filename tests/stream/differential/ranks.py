"""OVER: Top-N and deduplication, aggregates over the rows before each row.

PostgreSQL computes an aggregate OVER rows by a subquery a row, so that all aggregates go, not only those that it has
as window functions. Start reading at ``Ranks.ranked`` and ``Ranks.running``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tests.stream.differential.aggregates import aggregate
from tests.stream.differential.expressions import E, Expressions
from tests.stream.differential.joins import Joins
from tests.stream.differential.tree import Query, Rows

PLACE = ("__partition", "__offset")


@dataclass(frozen=True)
class Ranking:
    """A rank: its function, partition, ORDER BY in our and PostgreSQL's items, and the most of it that is asked for."""

    function: str
    by: list[E]
    orders: list[tuple[str, str]]
    orders_pg: list[tuple[str, str]]
    limit: int


class Ranks(Joins):
    """Draws queries with OVER."""

    def more_streams(self, rows: str) -> list[Callable[[str, int], Query]]:
        return [*super().more_streams(rows), *([self.run_over] if rows == "ok" else [])]

    def run_over(self, rows: str, depth: int) -> Query:
        return self.running(self.in_order(rows, depth + 1))

    def in_order(self, rows: str, depth: int) -> Rows:
        """A stream without records that are in several windows: several rows, whose order nothing says."""
        while True:
            made = self.stream(rows, depth)
            if not any(f"{kind}(" in made.ours for kind in ("HOP", "CUMULATE")):
                return made

    def keyed_side(self) -> Rows:
        if self.chance(0.15):
            return self.sub(self.first(self.table(self.r.choice("ssq"), "all")))
        return super().keyed_side()

    # Ranks

    def order(self, e: E) -> tuple[str, str]:
        """An item of ORDER BY. NULL is the smallest value unless said otherwise."""
        text = ' COLLATE "C"' if e.type == "str" else ""
        way = self.r.choice(["", " ASC", " DESC"])
        nulls = self.r.choice(["", "", " NULLS FIRST", " NULLS LAST"])
        known = nulls or (" NULLS LAST" if way == " DESC" else " NULLS FIRST")
        return f"{e.ours}{way}{nulls}", f"{e.pg}{text}{way}{known}"

    def ranked(self, rows: Rows, by: Sequence[E] | None = None) -> Query:
        """Top-N. ``by``: the partition. Rows that have lost their place are told apart by what is selected of them."""
        e = Expressions(self.r, rows.columns, 2)
        by = self.by(rows, e, self.r.choice([0, 1, 1, 1, 2])) if by is None else by
        own = [c.e for c in rows.flat if c.type not in ("ints", "strs")]
        sorts = [self.r.choice(own) if own and self.chance(0.7) else e.any() for _ in range(self.r.choice([1, 1, 2]))]
        function = self.r.choice(["ROW_NUMBER", "ROW_NUMBER", "ROW_NUMBER", "RANK", "DENSE_RANK"])
        orders = [self.order(s) for s in sorts]
        place = [(p, p) for p in PLACE] if rows.placed and function == "ROW_NUMBER" else []
        items = [*by, *sorts]
        if rows.placed or function != "ROW_NUMBER":
            items = [*by, *(c.e for c in self.r.sample(rows.flat, min(len(rows.flat), self.r.randint(1, 3))))]
        n = self.r.randint(1, 3)
        return self.bounded(rows, Ranking(function, list(by), orders, [*orders, *place], n), list(dict.fromkeys(items)))

    def first(self, rows: Rows) -> Query:
        """Deduplication of a stream that has its places: the first or last row of a key by event time."""
        by = [self.r.choice([c for c in rows.columns if c.type in ("str", "int") and c.name != "id"] or rows.flat).e]
        time = f"{rows.alias}.ts" if rows.pg.startswith("q_") and self.chance(0.5) else "rowtime()"
        way = self.r.choice(["", " DESC"])
        items = [*by, *(c.e for c in self.r.sample(rows.flat, min(len(rows.flat), 3)) if c.e not in by)]
        orders = [(f"{time}{way}", f"{rows.time}{way}"), *((p, p) for p in PLACE)]
        return self.bounded(rows, Ranking("ROW_NUMBER", by, orders[:1], orders, 1), items)

    def bounded(self, rows: Rows, rank: Ranking, items: list[E]) -> Query:
        """The rank beside some items of the rows, and the query around it that bounds it."""
        where, by, n = self.where(rows, 0.3), rank.by, rank.limit
        part, part_pg = _partition(by)
        over = f"{rank.function}() OVER ({part}ORDER BY {', '.join(o for o, _ in rank.orders)})"
        over_pg = f"{rank.function}() OVER ({part_pg}ORDER BY {', '.join(o for _, o in rank.orders_pg)})"
        inner = self.select(rows, [*items, E(over, over_pg, "int")], where, hide=False)
        x, rn = self.name(), inner.output[-1][0]
        bound = self.r.choice(
            [f"{rn} <= {n}", f"{x}.{rn} < {n + 1}", f"{n} >= {rn}", f"{rn} BETWEEN 1 AND {n}", f"{rn} = {n}"]
        )
        shown = [name for name, _ in inner.output]
        if n == 1 and self.chance(0.7):
            shown.remove(rn)
        keyed = rank.function == "ROW_NUMBER" and items[: len(by)] == by
        key = (*shown[: len(by)], *([rn] if n > 1 else [])) if keyed else ()
        text = f"SELECT {', '.join(shown)} FROM ({{}}) {x} WHERE {bound}"
        output = tuple((name, type_) for name, type_ in inner.output if name in shown)
        return Query(text.format(inner.ours), text.format(inner.pg), output, "changelog", key)

    # Aggregates

    def running(self, rows: Rows, leads: bool = False) -> Query:
        """Aggregates and ranks OVER the rows before each row, by event time. ``leads``: also over those behind it, for
        which the row waits.
        """
        if not rows.alias:
            rows = self.sub(self.plain(rows))
        e, alias = Expressions(self.r, rows.columns, 2), rows.alias
        by = self.by(rows, e, self.r.choice([0, 1, 1, 2]))
        where = self.where(rows, 0.3)
        frame, near, bounded = self.frame(rows)
        part, part_pg = _partition(by)
        order = ", ".join([rows.time, *(PLACE if rows.placed else ())])
        own = "".join(f", {b.pg} AS __p{i}" for i, b in enumerate(by))
        number = f"row_number() OVER ({part_pg}ORDER BY {order}) AS __n"
        base = f"(SELECT {alias}.*{own}, {number} FROM {rows.pg}{where[1]}) {alias}"
        here = self.name("here")
        same = "".join(f" AND {alias}.__p{i} IS NOT DISTINCT FROM {here}.__p{i}" for i in range(len(by)))
        calls, waits = [], ""
        for _ in range(self.r.randint(1, 3)):
            if self.chance(0.25):
                calls.append(self.ranking(rows, e, f" OVER ({part}ORDER BY rowtime())", base, here=here, same=same))
                continue
            known = "__time, __partition, __offset" if rows.placed and bounded else ""
            a = aggregate(self.r, e, known, distinct=bounded)
            over = f" OVER ({part}ORDER BY rowtime(){frame})"
            near_pg = near.format(a=alias, h=here)
            calls.append(E(a.ours + over, f"(SELECT {a.pg} FROM {base} WHERE {near_pg}{same})", a.type))
        if leads and rows.placed and self.chance(0.3):
            n, x = self.r.randint(1, 2), e.any()
            behind = f"FROM {base} WHERE {alias}.__n = {here}.__n + {n}{same}"
            over = f" OVER ({part}ORDER BY rowtime())"
            calls.append(E(f"LEAD({x.ours}, {n}){over}", f"(SELECT {x.pg} {behind})", x.type))
            waits = f" WHERE EXISTS (SELECT 1 {behind})"
        mine = ", ".join([f"{alias}.__time", f"{alias}.__n", *(f"{alias}.__p{i}" for i in range(len(by)))])
        over_rows = replace(rows, pg=f"{base}, LATERAL (SELECT {mine}) {here}")
        if waits:
            # A row that waited for another has that one's event time, and no order of arrival.
            over_rows = replace(over_rows, placed=False, time="")
        items = [c.e for c in self.r.sample(rows.flat, min(len(rows.flat), self.r.randint(1, 3)))]
        return self.select(over_rows, [*items, *calls], (where[0], waits))

    def ranking(self, rows: Rows, e: Expressions, over: str, base: str, *, here: str, same: str) -> E:
        """A rank or LAG, where ``here`` is the row in ``base``, whose partition is ``same``."""
        before = f"FROM {base} WHERE {rows.alias}.__time < {here}.__time{same}"
        match self.r.choice(["RANK", "DENSE_RANK", *["ROW_NUMBER", "LAG", "LAG", "LAG"] * rows.placed]):
            case "RANK":
                return E(f"RANK(){over}", f"(SELECT count(*) + 1 {before})", "int")
            case "DENSE_RANK":
                return E(f"DENSE_RANK(){over}", f"(SELECT count(DISTINCT {rows.alias}.__time) + 1 {before})", "int")
            case "ROW_NUMBER":
                return E(f"ROW_NUMBER(){over}", f"{here}.__n", "int")
        n, x = self.r.randint(0, 3), e.any()
        lag = f"(SELECT {x.pg} FROM {base} WHERE {rows.alias}.__n = {here}.__n - {n}{same})"
        if x.type == "int" and self.chance(0.3):
            return E(f"LAG({x.ours}, {n}, -7){over}", f"CASE WHEN {here}.__n > {n} THEN {lag} ELSE -7 END", "int")
        return E(f"LAG({x.ours}, {n}){over}", lag, x.type)

    def frame(self, rows: Rows) -> tuple[str, str, bool]:
        """The text of a frame, PostgreSQL's condition for the rows in it, whether it is bounded."""
        n, ms = self.r.randint(0, 3), self.r.choice([0, 1, 2, 5])
        kinds = ["range", "range", "all", "default"] + ["rows", "rows", "rows all"] * rows.placed
        upto = "{a}.__time <= {h}.__time"
        match self.r.choice(kinds):
            case "range":
                text = f" RANGE BETWEEN INTERVAL '{ms}' SECONDS PRECEDING AND CURRENT ROW"
                return text, f"{upto} AND {{a}}.__time >= {{h}}.__time - {ms * 1000}", True
            case "all":
                return " RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW", upto, False
            case "rows":
                text = self.r.choice([f" ROWS BETWEEN {n} PRECEDING AND CURRENT ROW", f" ROWS {n} PRECEDING"])
                return text, f"{{a}}.__n BETWEEN {{h}}.__n - {n} AND {{h}}.__n", True
            case "rows all":
                return " ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW", "{a}.__n <= {h}.__n", False
            case _:
                return "", upto, False


def _partition(by: Sequence[E]) -> tuple[str, str]:
    ours, pg = ", ".join(b.ours for b in by), ", ".join(b.pg for b in by)
    return (f"PARTITION BY {ours} ", f"PARTITION BY {pg} ") if by else ("", "")
