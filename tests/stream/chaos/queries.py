"""What runs under chaos, and what it must have made of the topic's records in the end.

Owns: the statements, their plans, the right answers. Must not know: workers, kills. Start reading at ``VIEWS``.
"""

from __future__ import annotations

import calendar
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from pgstream import types
from pgstream.catalog.records import ColumnRecord, RelationRecord, Snapshot, StoreRecord
from pgstream.names import FullName
from pgstream.planner import plan as p
from pgstream.planner.select import plan_select
from pgstream.sql.cursor import Cursor

EVENTS = "id BIGINT, k BIGINT, v BIGINT"
Events = list[tuple[dict[str, int], int]]
"""The records of the topic with their timestamps."""

# Name → statement, and of a view its columns and key, of a topic its kind and key.
VIEWS = {
    "every": ("SELECT id, k FROM events", "id bigint, k bigint", []),
    "per_key": ("SELECT k, count(*) AS n, sum(v) AS total FROM events GROUP BY k",
                "k bigint, n bigint, total numeric", ["k"]),
    "bank": ("SELECT k, sum(v) AS balance FROM (SELECT k, v FROM events UNION ALL "
             "SELECT k + 1 AS k, - v AS v FROM events) x GROUP BY k", "k bigint, balance numeric", ["k"]),
    "joined": ("SELECT a.id, b.v FROM events a WITH ('source.allow.latency.millis' = 60000) "
               "JOIN events b WITH ('source.allow.latency.millis' = 60000) WITHIN 1 HOUR ON a.id = b.id",
               "id bigint, v bigint", []),
    "tens": ("SELECT v % 10 AS ten, count(*) AS n, sum(id) AS ids, max(k) AS high FROM latest GROUP BY v % 10",
             "ten bigint, n bigint, ids numeric, high bigint", ["ten"]),
    "summed": ("SELECT count(*) AS accounts, sum(balance) AS total FROM v_bank", "accounts bigint, total numeric",
               ["(true)"]),
}  # fmt: skip
TOPICS = {
    "copied": ("stream", "SELECT id, v FROM events", []),
    "counted": ("changelog", "SELECT k, count(*) AS n FROM events GROUP BY k", ["k"]),
    "windows": ("changelog", "SELECT window_start, k, count(*) AS n FROM TUMBLE(events, SIZE 1 SECOND) "
                "WITH ('source.allow.latency.millis' = 20000) GROUP BY window_start, k", ["window_start", "k"]),
}  # fmt: skip
ALL = (*VIEWS, *TOPICS)


def relation(kind: str, key: tuple[str, ...] = ()) -> RelationRecord:
    columns = tuple(ColumnRecord(n, types.parse(t)) for n, t in (c.split() for c in EVENTS.split(", ")))
    name = "latest" if key else "events"
    given = {"value.format": "json", "starting.position": "earliest", "kafka.consumer.max.poll.records": "500"}
    if key:
        given |= {"key.format": "json", "key.type": "STRUCT<k BIGINT>"}
    return RelationRecord(name, FullName("main", "public", name), kind, columns, "o", primary_key=key, store="k",
                          entity="events", properties=given)  # fmt: skip


def bank_view(query: str = "") -> RelationRecord:
    """The view that another one reads."""
    columns = tuple(ColumnRecord(n, types.parse("BIGINT")) for n in ("k", "balance"))
    return RelationRecord("bank", FullName("main", "public", "v_bank"), "materialized_view", columns, "o",
                          primary_key=("k",), mode="upsert", query=query)  # fmt: skip


def plans(names: Iterable[str]) -> dict[str, p.Plan]:
    """The statements planned as the server does it."""
    made = [relation("stream"), relation("changelog", ("k",)), bank_view()]
    snapshot = Snapshot(
        stores={"k": StoreRecord("k", "k", "KAFKA", {}, "o")},
        relations={("main", "public", r.full.name): r for r in made},
    )
    out = {}
    for name in names:
        want, sql, key = TOPICS[name] if name in TOPICS else ("view", VIEWS[name][0], [])
        planned = plan_select(Cursor(sql).select(), snapshot, "main", "public", want)
        if name in VIEWS:
            sink: p.Sink = p.ViewSink(f"main.public.v_{name}", "main", f"v_{name}", planned.mode, list(planned.key))
        else:
            mode = planned.mode if want == "changelog" else "append"
            sink = p.RecordSink(
                f"main.public.{name}", "k", name, mode, "json", list(planned.columns), "json" if key else None, key
            )
        out[name] = p.Plan(planned.root, sink)
    return out


# The right answers


def every(events: Events) -> list[int]:
    return sorted(e["id"] for e, _ in events)


def per_key(events: Events) -> dict[int, tuple[int, int]]:
    values: dict[int, list[int]] = {}
    for e, _ in events:
        values.setdefault(e["k"], []).append(e["v"])
    return {k: (len(vs), sum(vs)) for k, vs in values.items()}


def bank(events: Events) -> dict[int, int]:
    money: Counter[int] = Counter()
    for e, _ in events:
        money[e["k"]] += e["v"]
        money[e["k"] + 1] -= e["v"]
    return dict(money)


def summed(events: Events) -> list[tuple[int, int]]:
    return [(len(bank(events)), 0)]


def joined(events: Events) -> list[tuple[int, int]]:
    return sorted((e["id"], e["v"]) for e, _ in events)


def tens(events: Events) -> dict[int, tuple[int, int, int]]:
    last = {e["k"]: e for e in sorted((e for e, _ in events), key=lambda e: e["id"])}
    groups: dict[int, list[dict[str, int]]] = {}
    for e in last.values():
        groups.setdefault(e["v"] % 10, []).append(e)
    return {t: (len(es), sum(e["id"] for e in es), max(e["k"] for e in es)) for t, es in groups.items()}


def counted(told: list[dict[str, Any]]) -> dict[int, int]:
    """The last count of each key; it never falls nor stays within a topic that holds each change once."""
    last: dict[int, int] = {}
    for row in told:
        assert row["n"] > last.get(row["k"], 0), f"counted: {row} after {last.get(row['k'])}"
        last[row["k"]] = row["n"]
    return last


def check_windows(told: list[dict[str, Any]], events: Events) -> None:
    """Each window once, and right. The tasks of a batch commit one by one: the last window may be on its way."""
    once = Counter((w["window_start"], w["k"]) for w in told)
    assert max(once.values()) == 1, f"windows told again: {once.most_common(3)}"
    right: Counter[tuple[int, int]] = Counter()
    for e, ms in events:
        right[ms // 1000, e["k"]] += 1
    end = max(_second(w["window_start"]) for w in told)
    done = {(_second(w["window_start"]), w["k"]): w["n"] for w in told if _second(w["window_start"]) < end}
    assert done == {key: n for key, n in right.items() if key[0] < end}, "windows lost or wrong"


def _second(text: str) -> int:
    return calendar.timegm(time.strptime(text.split(".", maxsplit=1)[0], "%Y-%m-%d %H:%M:%S"))
