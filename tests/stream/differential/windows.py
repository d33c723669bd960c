"""Windows over random streams: grouped, or their rows with the bounds as columns.

Owns: TUMBLE, HOP, CUMULATE and SESSION in both languages. Start reading at ``Windows.windowed``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.stream.differential.expressions import Column, E, Expressions
from tests.stream.differential.selects import Selects
from tests.stream.differential.tree import Query, Rows, moment

BOUNDS = ("window_start", "window_end")


class Windows(Selects):
    """Draws queries with windows."""

    def more_streams(self, rows: str) -> list[Callable[[str, int], Query]]:
        return [*super().more_streams(rows), self.in_windows]

    def in_windows(self, rows: str, depth: int) -> Query:
        """Rows that are no longer of a window: who groups them by its bounds gets windows, which close."""
        made = self.opened(rows)
        bounds = [
            Column(b, "ts", f"TIMESTAMPADD(SECOND, 1, {b})", f"({b} + interval '1 second')") for b in BOUNDS
        ]  # fmt: skip
        return self.plain(replace(made, columns=(*made.columns[:-2], *bounds)))

    def opened(self, rows: str, kinds: str = "THC") -> Rows:
        """The rows of a window function, once a window: its bounds are columns like others. Those of one record stand
        in no order.
        """
        table, kind = self.table(self.r.choice("ssq"), rows), self.r.choice(kinds)
        made = self.window(table, kind)
        columns = (*made.columns, *(Column(b, "ts", b, b) for b in BOUNDS))
        return replace(made, columns=columns, placed=made.placed and kind == "T", several=kind != "T")

    def window(self, rows: Rows, kind: str) -> Rows:
        """A relation's rows in the windows of a kind but SESSION."""
        step = self.r.choice([5, 7, 10])
        size = step if kind == "T" else step * self.r.randint(1, 4)
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
            f"SELECT z.*, {moment(start)} AS window_start, {moment(end)} AS window_end "
            f"FROM ({times}) z, generate_series(0, {size // step - 1}) i WHERE __time < {end}"
        )
        return replace(rows, ours=f"{words.format(name)} {rows.alias}", pg=f"({bounds}) {rows.alias}")

    def windowed(self, final: bool, kinds: str = "TTHCS", sets: bool = False) -> Query:
        """GROUP BY with a window over a relation. Not ``final``: running values are seen, that of the last row too."""
        kind = self.r.choice(kinds)
        rows = self.table(self.r.choice("ssq"), "ok" if final or kind == "S" else "early")
        if kind == "S":
            return self.session(rows)
        over = self.window(rows, kind)
        return self.over_window(over, self.where(over, 0.4), sets=sets, start_tells=kind != "C")

    def over_window(
        self,
        rows: Rows,
        where: tuple[str, str],
        *,
        distinct: bool = True,
        by: list[E] | None = None,
        sets: bool = False,
        start_tells: bool = True,
    ) -> Query:
        """``start_tells``: a window is known by its start."""
        e = Expressions(self.r, rows.columns, 2)
        if by is None:
            by = [self.r.choice(rows.flat).e for _ in range(self.r.choice([1, 2] if sets else [0, 1, 1, 2]))]
        bounds = [E(b, b, "ts") for b in BOUNDS]
        shown = self.r.choice([bounds[1:], bounds, *([bounds[:1]] * start_tells)])
        by = [*shown, *dict.fromkeys(by)]
        more = bounds if sets else [b for b in bounds if b not in shown]
        return self.grouped(rows, by, e, where, distinct=distinct, more=more, sets=sets)

    def session(self, rows: Rows) -> Query:
        alias = rows.alias
        gap = self.r.choice([1, 2, 5])
        where = self.where(rows, 0.4)
        by = [c.e for c in self.r.sample(rows.flat, self.r.choice([0, 1, 1, 2]))]
        part = f"PARTITION BY {', '.join(b.pg for b in by)} " if by else ""
        over = f"({part}ORDER BY {alias}.__time, {alias}.__offset)"
        near = f"CASE WHEN __time - lag(__time) OVER {over} <= {gap * 1000} THEN 0 ELSE 1 END"
        new = f"SELECT *, {near} AS fresh FROM {rows.pg}{where[1]}"
        number = f"SELECT *, sum(fresh) OVER {over} AS number FROM ({new}) {alias}"
        both = f"({part.strip()}{', ' if part else 'PARTITION BY '}number)"
        start, end = (moment(f"{f}(__time) OVER {both}") for f in ("min", "max"))
        end += f" + interval '{gap} seconds'"
        ends = f"SELECT *, {start} AS window_start, {end} AS window_end FROM ({number}) {alias}"
        name = rows.ours.split()[0]
        made = replace(rows, ours=f"SESSION({name}, GAP {gap} SECONDS) {alias}", pg=f"({ends}) {alias}")
        return self.over_window(made, (where[0], ""), distinct=False, by=by)
