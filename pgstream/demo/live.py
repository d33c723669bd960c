"""The view changing before one's eyes: two windows side by side, one growing, drawn again every second.

Owns: the query it is read with, how it is drawn. Must not know: how the server was started, the script.
Start reading at ``watch``.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg

LIVE = """SELECT window_start, pageid, views FROM views_per_10s
WHERE window_start >= (SELECT max(window_start) FROM views_per_10s) - interval '10 seconds'"""
_TOTALS = "SELECT (SELECT sum(views) FROM views_per_10s), (SELECT count(*) FROM viewer_cities)"
_BAR = 40
_PAGES = 9


async def watch(url: str, seconds: float | None) -> None:
    """Show the view, for ``seconds`` or until cancelled: in place on a terminal, else a picture every five seconds.

    Whoever looks may drop what it shows: nothing is drawn then, until it is there again.
    """
    end = time.monotonic() + seconds if seconds is not None else None
    in_place = sys.stdout.isatty()
    shown: list[str] = []
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        while end is None or time.monotonic() < end:
            lines = _fit(await look(connection))
            if lines != shown:
                print((f"\x1b[{len(shown)}F\x1b[0J" if in_place and shown else "") + "\n".join(lines), flush=True)
            shown = lines
            await asyncio.sleep(1 if in_place else 5)


async def look(connection: psycopg.AsyncConnection[Any]) -> list[str]:
    """The picture of now, or one line in its place where a view is gone or is another one."""
    try:
        rows = await (await connection.execute(LIVE)).fetchall()
        views, joined = await (await connection.execute(_TOTALS)).fetchone() or (0, 0)
    except psycopg.ProgrammingError as e:
        return [f" Not drawn: {e.diag.message_primary}. Ctrl-C ends the demo."]
    return picture(rows, views or 0, joined)


def picture(rows: Sequence[tuple[datetime, str | None, int]], views: int, joined: int) -> list[str]:
    """The lines of one picture: page by page the window before, the newest window, and a bar of it."""
    windows = sorted({row[0] for row in rows})[-2:]
    counts = {(window, page): n for window, page, n in rows}
    pages = sorted(
        {row[1] for row in rows if row[0] in windows},
        key=lambda p: (-sum(counts.get((w, p), 0) for w in windows), p is None, p or ""),
    )[:_PAGES]
    most = max((row[2] for row in rows), default=1)
    lines = [f" views_per_10s: {views:,} page views counted · viewer_cities: {joined:,} rows joined", ""]
    lines += [" page   |" + "".join(f" from {_clock(w)} |" for w in windows)]
    lines += ["--------+" + "---------------+" * len(windows)]
    for page in pages:
        name = "(null)" if page is None else page
        cells = "".join(f" {counts.get((w, page), 0):>13} |" for w in windows)
        lines.append(f" {name:<6} |{cells} " + "█" * round(_BAR * counts.get((windows[-1], page), 0) / most))
    return [*lines, "", " Ctrl-C ends the demo and all it started."]


def _clock(window_start: datetime) -> str:
    """The wall clock of whoever looks; times in views are UTC."""
    return window_start.replace(tzinfo=UTC).astimezone().strftime("%H:%M:%S")


def _fit(lines: list[str]) -> list[str]:
    """Cut to the terminal: a line that wraps, or a picture that scrolls, could not be drawn over."""
    width, height = shutil.get_terminal_size()
    return [line[: width - 1] for line in lines][-(height - 1) :]


def wait_for_rows(connection: psycopg.Connection[Any]) -> float:
    """Wait until a window of the last half minute is in the view; how long that took."""
    begin = time.monotonic()
    fresh = "SELECT 1 FROM views_per_10s WHERE window_end > (now() AT TIME ZONE 'UTC') - interval '5 seconds' LIMIT 1"
    while connection.execute(fresh).fetchone() is None:
        time.sleep(0.1)
    return time.monotonic() - begin
