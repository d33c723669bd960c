"""Statements without a server: whose a text is, what parsing gives, what the checks before any effect say."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pgstream import statements, types
from pgstream.catalog.records import ObjectRecord
from pgstream.config import Config
from pgstream.errors import PgStreamError, SyntaxFault
from pgstream.names import Name, QName
from pgstream.properties import Given
from pgstream.sql.cursor import Cursor
from pgstream.sql.select import Select
from pgstream.statements import glance, shared
from pgstream.statements.base import Context, Statement
from pgstream.statements.explained import plan_text
from pgstream.statements.insert import InsertInto
from pgstream.statements.unknown import Unknown
from tests.datadriven import Case, cases, check
from tests.unit.statements.snapshots import SNAPSHOT, session

HERE = Path(__file__).parent
TYPES = {"n": types.BIGINT, "viewtime": types.BIGINT, "list": types.parse("ARRAY<VARCHAR>"),
         "window_start": types.Type("TIMESTAMP"), "window_end": types.Type("TIMESTAMP")}  # fmt: skip


def text_of(value: Any) -> str:
    """A field of a statement, for a person."""
    match value:
        case Given():
            return f"{value.name}={value.value}"
        case dict():
            return "{" + ", ".join(text_of(v) for v in value.values()) + "}"
        case tuple() | list():
            return "[" + ", ".join(map(text_of, value)) + "]"
        case Name() | QName():
            return f"{value}@{value.at}"
        case Select():
            return f"«{value.source}»"
        case Statement():
            return shown(value)
        case _ if dataclasses.is_dataclass(value):
            return " ".join(text_of(getattr(value, f.name)) for f in dataclasses.fields(value))
        case _:
            return str(value)


def shown(statement: Any) -> str:
    fields = (f"{f.name}: {text_of(getattr(statement, f.name))}" for f in dataclasses.fields(statement))
    return f"{type(statement).__name__}({', '.join(fields)})"


def fault(e: PgStreamError) -> str:
    where = f" at {e.at + 1}" if e.at is not None else ""
    return f"{e.sqlstate}{where}: {e.text}" + (f"\nHINT: {e.hint}" if e.hint else "")


def do_whose(text: str) -> str:
    found = statements.recognize(text, SNAPSHOT, session())
    assert found is None or not glance.is_postgres(text.encode(), SNAPSHOT), "not PostgreSQL's, as it seemed"
    return found.__name__ if found is not None else "PostgreSQL"


def do_parse(text: str) -> str:
    found = statements.recognize(text, SNAPSHOT, session())
    return shown(statements.parse(text, found)) if found is not None else "PostgreSQL"


class Analyzer:
    """An engine that knows the types of columns by their names."""

    def is_ready(self, pool: str) -> bool:
        return True

    async def analyze(self, plan: Any, pool: str) -> list[tuple[str, types.Type, bool]]:
        return [(e.name, TYPES.get(e.name, types.TEXT), True) for e in plan.root.columns]


async def nothing(*_: Any) -> None:
    """PostgreSQL has no relations of its own."""


def do_explain(text: str) -> str:
    """What DESCRIBE shows, and what would be recorded; nothing of it touches a store."""
    pool = ObjectRecord("compute_pool", "default", owner="sysadmin")
    catalog = SimpleNamespace(
        snapshot=dataclasses.replace(SNAPSHOT, objects={pool.key: pool}), staging_stem=lambda id: "v_1",
        postgres_relation=nothing,
    )  # fmt: skip
    ctx: Any = Context(Config(), session(), catalog, Analyzer(), lambda *_, **__: None, *[None] * 10)  # type: ignore[arg-type]
    found = statements.recognize(text, SNAPSHOT, session())
    assert found is not None
    statement: Any = statements.parse(text, found)
    explained = asyncio.run(statement.explain(ctx))
    out = [explained.kind, json.dumps(explained.info)]
    if hasattr(statement, "prepare"):
        into = asyncio.run(statement.prepare(ctx)).into
        out.append(f"{into.label} ({', '.join(into.primary_key)}) {dict(into.properties)}")
    return "\n".join([*out, *([plan_text(explained.plan)] if explained.plan else [])])


def run(case: Case) -> str:
    act = {"whose": do_whose, "parse": do_parse, "explain": do_explain}[case.directive]
    # "each": every line is a text of its own.
    texts = case.input.split("\n") if "each" in case.args else [case.input]
    out = []
    for text in texts:
        try:
            out.append(act(text))
        except PgStreamError as e:
            out.append(fault(e))
    return "\n".join(out)


@pytest.mark.parametrize("case", [c for f in sorted(HERE.glob("*.test")) for c in cases(f)], ids=str)
def test_file(case: Case) -> None:
    check(case, run(case))


def test_every_statement_says_its_syntax() -> None:
    for s in statements.STATEMENTS:
        assert s.__doc__ and s.words, s
        syntax, _, meaning = s.__doc__.partition("\n\n")
        assert ";" in syntax and meaning.strip(), s
        if s not in (statements.SelectStream, statements.DescribeStatement):
            assert syntax.startswith(" ".join(s.words)), s


def test_every_statement_declares_its_privileges_or_why_it_needs_none() -> None:
    """``needs`` is asked in one place for all; a statement that says nothing would be refused as an internal error."""
    for s in statements.STATEMENTS:
        assert (s.needs is not Statement.needs) != bool(s.free), s
    assert not Unknown.free  # its parsing never ends well
    with pytest.raises(NotImplementedError):
        Statement().needs(None)  # type: ignore[arg-type]


def test_words_that_are_none_are_refused() -> None:
    with pytest.raises(SyntaxFault):
        Unknown.parse(Cursor("List\0"))


def test_statements_are_sorted_and_found_by_their_words() -> None:
    words = [s.words for s in statements.STATEMENTS]
    assert words == sorted(words)
    for s in statements.STATEMENTS:
        if s not in statements._SHARED_WORDS:
            assert statements.recognize(" ".join(s.words) + " x y", SNAPSHOT, session()) is s
            assert statements.recognize(" ".join(s.words).lower() + " x y", SNAPSHOT, session()) is s


def test_shared_words_without_streams_never_reach_a_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "Cursor", None)
    for text in (
        "SELECT 'x' FROM t",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "INSERT INTO t SELECT 1",
        "COPY t TO STDOUT",
    ):
        assert statements.recognize(text, SNAPSHOT, session()) is None


@pytest.mark.parametrize("name", ["pageviews", 'main . "public".pageviews', "/* into */ pageviews"])
@pytest.mark.parametrize("row", ["('x')", "(1)", "($$x$$)"])
def test_a_long_insert_is_known_by_its_beginning(name: str, row: str) -> None:
    """Of a long text the session looks at the beginning alone, which may end in the middle of a string."""
    text = f"INSERT INTO {name} (userid) VALUES {', '.join([row] * 100_000)}"
    for cut in (1 << 18, (1 << 18) + 1, (1 << 18) + 2):
        assert statements.recognize(text[:cut], SNAPSHOT, session()) is InsertInto
    with pytest.raises(PgStreamError) as caught:
        statements.parse(text, InsertInto)
    assert caught.value.sqlstate == "54000"


def test_tags_that_clients_count_rows_by() -> None:
    """libpq reads a number behind some words, psql complains where there is none."""
    counted = re.compile(r"(INSERT 0|UPDATE|DELETE|SELECT|FETCH|MOVE|COPY|MERGE) (\d+|\{rows\})\Z")
    for statement in statements.STATEMENTS:
        if statement.tag.partition(" ")[0] in (
            "INSERT",
            "UPDATE",
            "DELETE",
            "SELECT",
            "FETCH",
            "MOVE",
            "COPY",
            "MERGE",
        ):
            assert counted.fullmatch(statement.tag), statement
