"""The annotated SQL script of the demo: read it, run it through a real PostgreSQL connection, show it.

Owns: ``demo.sql`` and how its statements and answers are printed. Must not know: how the server was started.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import psycopg

_NOTE = re.compile(r"^--.*$", re.M)


def statements(values: Mapping[str, str], script: str = "demo.sql") -> list[tuple[str, str]]:
    """The script as (comment, SQL) pairs; what stands after a $ in it is one of ``values``."""
    text = files("pgstream.demo").joinpath(script).read_text()
    for name, value in values.items():
        text = text.replace(f"${name}", value)
    pieces = [p.strip() for p in text.split(";\n")]
    return [("\n".join(_NOTE.findall(p)), _NOTE.sub("", p).strip()) for p in pieces if p]


def table(names: list[str], rows: list[tuple[Any, ...]], width: int = 28) -> str:
    """Rows as psql prints them; long values are cut."""
    cut = [[_cut(_shown(v), width) for v in r] for r in rows]
    widths = [max(len(n), *(len(r[i]) for r in cut)) if cut else len(n) for i, n in enumerate(names)]
    lines = ["+".join("-" * (w + 2) for w in widths)]
    for row in (names, *cut):
        lines.append(" " + " | ".join(v.ljust(w) for v, w in zip(row, widths, strict=True)).rstrip())
    lines[:2] = [lines[1], lines[0]]
    return "\n".join(lines)


def _shown(value: Any) -> str:
    return "" if value is None else str(value)[0].lower() if isinstance(value, bool) else str(value)


def answer(names: list[str], rows: list[tuple[Any, ...]]) -> str:
    """A statement's answer, short: of a DDL row its sentence, of LIST QUERIES what a first reader wants to know."""
    if "Summary" in names:
        return "\n".join(f" {r[names.index('Summary')]}" for r in rows)
    wanted: list[str] = [n for n in ("ID", "Actual State", "Query") if n in names] or names
    return table(wanted, [tuple(r[names.index(n)] for n in wanted) for r in rows], 60)


def _cut(text: str, width: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"


def run(
    connection: psycopg.Connection[Any], given: Sequence[tuple[str, str]], say: Callable[[str], None], hidden: str = ""
) -> None:
    """Run the statements of a script; ``hidden`` is not shown.

    What exists already from an earlier demo is left as it is; any other error is raised.
    """
    bold, plain = ("\x1b[1m", "\x1b[0m") if sys.stdout.isatty() else ("", "")
    for note, sql in given:
        say(f"\n{note}" if note else "")
        say(f"{bold}{sql.replace(hidden, '********') if hidden else sql};{plain}")
        try:
            cursor = connection.execute(sql.encode())
        except psycopg.Error as e:
            if e.sqlstate != "42P07":
                raise
            say(" already there from an earlier demo: it goes on where it had stopped")
            continue
        if cursor.description:
            say(answer([c.name for c in cursor.description], cursor.fetchall()))


def without_kinesis(given: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The statements before the part about Kinesis."""
    return list(itertools.takewhile(lambda piece: "KINESIS" not in piece[1], given))
