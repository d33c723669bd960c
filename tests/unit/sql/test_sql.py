"""The language without a catalogue: sniffing, splitting, reading statement heads, parsing selects.

``head`` and ``split`` print what the sniffer says; ``select`` prints the query in canonical form and what the dialect
added, or the error with its 0-based position; ``ddl`` reads ``name (columns) WITH (properties)``; ``names`` lists the
relations of a query.
"""

from __future__ import annotations

import random
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlglot import exp

from pgstream.errors import PgStreamError
from pgstream.sql.cursor import Cursor
from pgstream.sql.select import names
from pgstream.sql.sniff import head, split
from tests.datadriven import Case, cases, check

HERE = Path(__file__).parent


def _head(text: str) -> str:
    return " ".join(head(text))


def _split(text: str) -> str:
    return "\n".join(f"{at}: {piece!r}" for piece, at in split(text))


def _select(text: str) -> str:
    c = Cursor(text)
    select = c.select()
    partition, properties = c.partition_by(), c.query_with()
    c.end()
    lines = [select.tree.sql(comments=False)]
    for table in select.tree.find_all(exp.Table):
        extra = [f"{key}={table.meta[key]}" for key in ("window", "within") if key in table.meta]
        extra += [f"{g.name}={g.value}@{g.at}" for h in table.args.get("hints") or [] for g in h.meta["given"].values()]
        if extra:
            lines.append(f"{table.alias_or_name}: {', '.join(extra)}")
    if partition:
        lines.append("partition by " + ", ".join(f"{p}@{p.at}" for p in partition))
    lines += [f"query with {g.name}={g.value}@{g.value_at}" for g in properties.values()]
    return "\n".join(lines)


def _names(text: str) -> str:
    return "\n".join(f"{n} at {n.at}" for n in names(Cursor(text).select()))


def _ddl(text: str) -> str:
    c = Cursor(text)
    lines = [f"{c.qname()}"]
    if c.peek("("):
        columns, key = c.columns()
        lines += [f"{x.name}@{x.name.at} {x.type}{' NOT NULL' * x.not_null}" for x in columns]
        lines += ["key " + ", ".join(map(str, key))] * bool(key)
    if c.accept("WITH"):
        lines += [f"{g.name}@{g.at} = {g.value!r}@{g.value_at}" for g in c.properties().values()]
    c.end()
    return "\n".join(lines)


RUN: dict[str, Callable[[str], str]] = {
    "head": _head, "split": _split, "select": _select, "names": _names, "ddl": _ddl,
}  # fmt: skip


def _run(case: Case) -> str:
    try:
        return RUN[case.directive](case.input)
    except PgStreamError as e:
        return f"{e.sqlstate} at {e.at}: {e}" + (f"\nHINT: {e.hint}" if e.hint else "")


@pytest.mark.parametrize("case", [c for f in sorted(HERE.glob("*.test")) for c in cases(f)], ids=str)
def test_language(case: Case) -> None:
    check(case, _run(case))


def test_every_uuid_reads_as_one() -> None:
    rng = random.Random(7)
    for _ in range(500):
        wanted = str(uuid.UUID(int=rng.getrandbits(128)))
        c = Cursor(f"TERMINATE QUERY {wanted};")
        c.expect("TERMINATE", "QUERY")
        assert c.uuid() == wanted
        c.end()


def test_sniffing_does_not_load_the_parser() -> None:
    code = "import sys, pgstream.sql.sniff; sys.exit('sqlglot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_positions_are_those_of_the_whole_text() -> None:
    text = "CREATE STREAM x AS\n  SELECT é, nope FROM t;"
    c = Cursor(text)
    c.expect("CREATE", "STREAM")
    c.name()
    c.expect("AS")
    select = c.select()
    found = next(n for n in select.tree.find_all(exp.Identifier) if n.this == "nope")
    assert text[found.meta["start"] :].startswith("nope")
    assert select.source == "SELECT é, nope FROM t"


def test_a_very_deep_query_is_refused_not_crashed() -> None:
    text = "SELECT " + "(" * 5000 + "1" + ")" * 5000 + " FROM t"
    with pytest.raises(PgStreamError) as e:
        Cursor(text).select()
    assert e.value.sqlstate == "54001"


def test_a_query_of_very_many_words_is_not_parsed() -> None:
    listed = ",".join(map(str, range(20_000)))
    Cursor(f"SELECT id FROM clicks WHERE id IN ({listed[:60_000]}1)").select()
    with pytest.raises(PgStreamError, match="the query is too complex") as e:
        Cursor(f"SELECT id FROM clicks WHERE id IN ({listed})").select()
    assert (e.value.sqlstate, e.value.at) == ("54001", 0)
