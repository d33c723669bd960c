"""Views over two topics of numbered events, and what each must hold once it has read so many of either partition.

Owns: the events by number, the SELECTs, the answer to "is this what the query makes of a beginning of each partition?".
Must not know: servers, kills. Start reading at ``Shape``.

An event's number says all of it, and its partition (the number modulo ``PARTITIONS``): the nth of a partition is known
without having been kept. So what a view shows tells how far it has read, and then everything else that it must show.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

PARTITIONS = 2
KEYS = 10
STEP_MS = 50
WINDOW_S = 10

Read = tuple[int, ...]
"""How many events of each partition a view has accounted for."""


def event(number: int) -> dict[str, int]:
    """``k`` stays in one partition, so the events of a key have an order."""
    k = number * 7 % (KEYS * PARTITIONS) // PARTITIONS * PARTITIONS + number % PARTITIONS
    return {"id": number, "p": number % PARTITIONS, "k": k, "v": number * 104_729 % 1000, "t": number * STEP_MS}


def events(read: Read, times: int) -> Iterable[dict[str, int]]:
    """Those of a beginning of each partition, their ``v`` so many ``times`` as large."""
    for p, n in enumerate(read):
        for i in range(n):
            one = event(p + i * PARTITIONS)
            yield one | {"v": one["v"] * times}


class Impossible(Exception):
    """What no beginning of the topics explains."""


@dataclass(frozen=True)
class Shape:
    """A view. ``sql``: its SELECT over ``events`` (a stream) and ``latest`` (a changelog by ``k``); ``read``: what its
    rows say of how far it has read; ``rows``: what it must then hold. Columns begin with ``p`` where a row tells its
    partition. ``{view}`` in ``sql`` is another view.
    """

    name: str
    sql: str
    read: Callable[[Sequence[tuple[Any, ...]]], Read]
    rows: Callable[[Read], Counter[tuple[Any, ...]]]

    def check(self, rows: Sequence[tuple[Any, ...]]) -> Read:
        """How far the view has read. Errors: Impossible."""
        read = self.read(rows)
        wanted, got = self.rows(read), Counter(rows)
        if wanted != got:
            missing, extra = list((wanted - got).items())[:3], list((got - wanted).items())[:3]
            raise Impossible(f"{self.name} after {read}: missing {missing}, too many {extra}")
        return read


def _counts(at: int) -> Callable[[Sequence[tuple[Any, ...]]], Read]:
    """Rows begin with their partition; column ``at`` adds up to the events read."""
    return lambda rows: tuple(sum(r[at] for r in rows if r[0] == p) for p in range(PARTITIONS))


def _newest(at: int) -> Callable[[Sequence[tuple[Any, ...]]], Read]:
    """Rows begin with their partition; the greatest number in column ``at`` is the last event read."""

    def read(rows: Sequence[tuple[Any, ...]]) -> Read:
        return tuple(max((r[at] // PARTITIONS + 1 for r in rows if r[0] == p), default=0) for p in range(PARTITIONS))

    return read


def window(at: int) -> dt.datetime:
    """The begin of an event's window."""
    return dt.datetime(1970, 1, 1) + dt.timedelta(seconds=at // (WINDOW_S * 1000) * WINDOW_S)


def _grouped(times: int, *by: str) -> Callable[[Read], Counter[tuple[Any, ...]]]:
    """A row a group: its columns, how many events, the sum of ``v``, the greatest number."""

    def rows(read: Read) -> Counter[tuple[Any, ...]]:
        groups: dict[tuple[Any, ...], list[int]] = {}
        for e in events(read, times):
            one = groups.setdefault(tuple(e[c] if c != "w" else window(e["t"]) for c in by), [0, 0, 0])
            one[0] += 1
            one[1] += e["v"]
            one[2] = max(one[2], e["id"])
        return Counter((*key, *values) for key, values in groups.items())

    return rows


def _every(times: int, read: Read) -> Counter[tuple[Any, ...]]:
    return Counter((e["p"], e["id"], e["k"], e["v"]) for e in events(read, times))


def _latest(times: int, read: Read) -> Counter[tuple[Any, ...]]:
    last = {e["k"]: e for e in sorted(events(read, times), key=lambda e: e["id"])}
    return Counter((e["p"], e["k"], e["id"], e["v"]) for e in last.values())


def _digits(times: int, read: Read) -> Counter[tuple[Any, ...]]:
    """Of the newest event of each key, by partition and last digit: how many, and the greatest number."""
    groups: dict[tuple[int, int], list[int]] = {}
    for p, _, number, v in _latest(times, read):
        one = groups.setdefault((p, v % 10), [0, 0])
        one[0] += 1
        one[1] = max(one[1], number)
    return Counter((*key, *values) for key, values in groups.items())


def _quarters(read: Read) -> Counter[tuple[Any, ...]]:
    """Of the groups by partition and key, those whose keys leave the same rest by four taken together."""
    groups: dict[tuple[int, int], list[int]] = {}
    for p, k, n, total, newest in _grouped(1, "p", "k")(read):
        one = groups.setdefault((p, k % 4), [0, 0, 0])
        one[0] += n
        one[1] += total
        one[2] = max(one[2], newest)
    return Counter((*key, *values) for key, values in groups.items())


OVER_SUMS = Shape(
    "quarters",
    "SELECT p, MOD(k, 4) AS q, SUM(n) AS n, SUM(total) AS total, MAX(newest) AS newest FROM {view} "
    "GROUP BY p, MOD(k, 4)",
    _counts(2),
    _quarters,
)
"""Over a view of the shape "sums" as it is first."""


def shapes(times: int = 1) -> dict[str, Shape]:
    """By name; with other ``times`` a view has the same columns and other rows."""
    v = f"(v * {times})"
    made = [
        Shape("every", f"SELECT p, id, k, {v} AS v FROM events", _newest(1), partial(_every, times)),
        Shape(
            "sums", f"SELECT p, k, COUNT(*) AS n, SUM({v}) AS total, MAX(id) AS newest FROM events GROUP BY p, k",
            _counts(2), _grouped(times, "p", "k"),
        ),
        Shape(
            "windows", f"SELECT p, window_start AS w, COUNT(*) AS n, SUM({v}) AS total, MAX(id) AS newest "
            f"FROM TUMBLE(events, SIZE {WINDOW_S} SECONDS) GROUP BY p, window_start, window_end",
            _counts(2), _grouped(times, "p", "w"),
        ),
        Shape("last", f"SELECT p, k, id, {v} AS v FROM latest", _newest(2), partial(_latest, times)),
        Shape(
            "digits", f"SELECT p, MOD({v}, 10) AS digit, COUNT(*) AS n, MAX(id) AS newest FROM latest "
            f"GROUP BY p, MOD({v}, 10)", _newest(3), partial(_digits, times),
        ),
        Shape(
            "top", f"SELECT p, k, id, {v} AS v FROM (SELECT p, k, id, v, ROW_NUMBER() OVER (PARTITION BY k "
            "ORDER BY id DESC) AS rn FROM events) r WHERE rn = 1", _newest(2), partial(_latest, times),
        ),
    ]  # fmt: skip
    return {shape.name: shape for shape in made}
