"""The tutorials, run as they are written: blocks ``sql pgstream`` and ``sql shop``, and the answers after them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg

from tests.postgres import PASSWORD, USER, Postgres
from tests.server import Kafka, Server, within

DOCS = Path(__file__).parents[3] / "docs" / "tutorials"
BLOCK = re.compile(r"^```sql (\w+)\n(.*?)^```\n(?:```\n(.*?)^```\n)?", re.M | re.S)


def rows(c: psycopg.Connection[Any], text: str) -> str:
    """What the last statement of a text answers, as the page shows it."""
    cursor = c.execute(text.encode())
    while cursor.nextset():
        pass
    if cursor.description is None:
        return ""
    shown = {True: "t", False: "f", None: "NULL"}
    return "\n".join(" | ".join(shown[v] if isinstance(v, bool | None) else str(v) for v in r) for r in cursor)


def test_from_a_tables_changes_to_a_view(server: Server, kafka: Kafka, shop: Postgres) -> None:
    text = (DOCS / "cdc-to-view.md").read_text()
    places = {"postgresql://localhost:5432/shop": shop.uris, "localhost:9092": kafka.bootstrap,
              "'secret'": "'" + PASSWORD.replace("'", "''") + "'", "'shop_owner'": f"'{USER}'"}  # fmt: skip
    with server.connect() as admin:
        admin.execute("CREATE DATABASE tutorial_cdc")
    with server.connect("tutorial_cdc") as ours, shop.connect() as theirs:
        for where, block, expected in BLOCK.findall(text):
            for said, meant in places.items():
                block = block.replace(said, meant)
            run(ours if where == "pgstream" else theirs, block, expected.strip())
        for query, *_ in ours.execute("LIST QUERIES").fetchall():
            ours.execute(f"TERMINATE QUERY {query}".encode())


def run(c: psycopg.Connection[Any], block: str, expected: str) -> None:
    """Every statement once; a SELECT at the end until it gives what the page shows."""
    statements = [s.strip() for s in re.split(r";\s*$", block, flags=re.M) if s.strip()]
    for statement in statements[:-1]:
        c.execute(statement.encode())
    last = statements[-1]
    if not expected:
        c.execute(last.encode())
    elif last.startswith("SELECT"):
        try:
            within(90, lambda: rows(c, last) == expected, 0.3)
        finally:
            assert rows(c, last) == expected
    else:
        assert rows(c, last) == expected
