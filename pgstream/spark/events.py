"""What the kernel tells (``Watch.scala``), as messages of the channel.

Owns: the JSON of ``Events.scala``, the arithmetic of lag, a batch as a span. Must not know: Py4J.
Start reading at ``progress``.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pgstream import traces
from pgstream.engine.channel import Progress
from pgstream.planner.plan import Source, ViewSource

_TOPIC = re.compile(r"\[([^\[\]]+)\]\]?\Z")


def progress(told: Mapping[str, Any], sources: Sequence[Sequence[Source | ViewSource]]) -> Progress:
    """One batch's figures. ``sources``: the readings of the plan, those that are one source of Spark's together."""
    read = _sources(told["sources"], sources)
    return Progress(
        query=told["query"],
        batch=told["batch"],
        rows_in=told["rows_in"],
        rows_out=told["rows_out"],
        rows_per_s=round(told["rows_per_s"], 1),
        batch_ms=told["batch_ms"],
        state_rows=told["state_rows"],
        state_bytes=told["state_bytes"],
        late_rows=told["late_rows"],
        watermark=_watermark(told.get("watermark")),
        sources=read,
        bad_records=told["bad_records"],
        durations=told.get("durations", {}),
        began=told["began"],
        caught_up=all(_is_read(figures) for figures in told["sources"]),
        totals=told["totals"],
    )


def trace(batch: Progress, origin: str) -> None:
    """A batch as a span. ``origin``: the span in which its query was created."""
    if not traces.is_on():
        return
    began = dt.datetime.fromisoformat(batch.began).timestamp()
    said: dict[str, str | int | float] = {
        traces.QUERY_ID: batch.query,
        "pgstream.batch.id": batch.batch,
        "pgstream.batch.rows_in": batch.rows_in,
        "pgstream.batch.rows_out": batch.rows_out,
        "pgstream.batch.late_rows": batch.late_rows,
        "pgstream.batch.state_rows": batch.state_rows,
    }
    said |= {f"pgstream.batch.{step}_ms": ms for step, ms in batch.durations.items()}
    traces.past("batch", began, batch.batch_ms, said, origin)


def _watermark(text: str | None) -> str | None:
    """Before the first event Spark reports the epoch."""
    return None if text is None or text.startswith("1970-01-01T00:00:00") else text


def _sources(
    told: Sequence[Mapping[str, Any]], plan: Sequence[Sequence[Source | ViewSource]]
) -> dict[str, dict[str, Any]]:
    """Figures by relation. Spark lists sources in the plan's order; one of several sources in a plan is added up."""
    out: dict[str, dict[str, Any]] = {}
    for i, figures in enumerate(told):
        topic = _topic(figures["description"])
        known = i < len(plan) and topic in ("", plan[i][0].entity)
        end, latest = _offsets(figures["end"]), _offsets(figures["latest"])
        lag = sum(_between(end.get(p, 0), o) for p, o in latest.items())
        for relation in dict.fromkeys(s.relation for s in plan[i]) if known else [topic]:
            entry = out.setdefault(relation, {"offset": {}, "latest": {}, "lag": 0, "rows_in": 0})
            entry["offset"] |= end
            entry["latest"] |= latest
            entry["lag"] += lag
            entry["rows_in"] += figures["rows_in"]
            entry |= {name: _figure(said) for name, said in figures.get("figures", {}).items()}
    return out


def _is_read(figures: Mapping[str, Any]) -> bool:
    """Whether a batch took all that its source had when it began; a source that tells no end has had nothing more."""
    end, latest = _offsets(figures["end"]), _offsets(figures["latest"])
    return all(_between(end.get(p, 0), o) == 0 and (isinstance(o, int) or end.get(p) == o) for p, o in latest.items())


def _topic(description: str) -> str:
    found = _TOPIC.search(description)
    return found[1] if found else ""


def _figure(text: str) -> int | str:
    return int(text) if text.lstrip("-").isdigit() else text


def _between(here: int | str, end: int | str) -> int:
    """How many records lie between two places, where places are counted."""
    return max(0, end - here) if isinstance(end, int) and isinstance(here, int) else 0


def _offsets(text: str | None) -> dict[str, int | str]:
    """``{"topic": {"0": 12}}`` as partition → offset: a number, or text that only its system understands.

    Of a place with more to it, ``{"count": 12, …}``, how many records come before it.
    """
    if not text or text == "null":
        return {}
    read = json.loads(text)
    if not isinstance(read, dict):
        return {}
    places = {p: o for topic in read.values() if isinstance(topic, dict) for p, o in topic.items()}
    return {p: o["count"] if isinstance(o, dict) else o for p, o in places.items()}
