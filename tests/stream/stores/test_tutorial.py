"""The tutorials, run as they are written: blocks ``sql pgstream`` and ``sql shop``, and the answers after them."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg

from tests.postgres import PASSWORD, USER, Postgres
from tests.server import Kafka, Server, within
from tests.stream.test_kill import worker_of

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


def real_places(kafka: Kafka, shop: Postgres) -> dict[str, str]:
    return {"postgresql://localhost:5432/shop": shop.uris, "localhost:9092": kafka.bootstrap,
            "'secret'": "'" + PASSWORD.replace("'", "''") + "'", "'shop_owner'": f"'{USER}'"}  # fmt: skip


def page(places: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Where each block runs, its text with what is to be put for what stands there, and the answer that it shows."""
    for where, block, expected in BLOCK.findall((DOCS / "cdc-to-view.md").read_text()):
        for said, meant in places.items():
            block = block.replace(said, meant)
        yield where, block, expected


def test_from_a_tables_changes_to_a_view(server: Server, kafka: Kafka, shop: Postgres) -> None:
    with server.connect() as admin:
        admin.execute("CREATE DATABASE tutorial_cdc")
    with server.connect("tutorial_cdc") as ours, shop.connect() as theirs:
        for where, block, expected in page(real_places(kafka, shop)):
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


def test_from_a_tables_changes_to_a_view_on_other_data(server: Server, kafka: Kafka, shop: Postgres) -> None:
    """The page's statements over random customers and changes of them; the worker dies once."""
    any_ = random.Random(20261123)
    renamed = {"STORE shop_kafka": "STORE other_kafka", "= shop_kafka": "= other_kafka",
               "STORE shop": "STORE other_shop", "= shop)": "= other_shop)", "= shop,": "= other_shop,",
               "customers": "clients"}  # fmt: skip
    cities = ["London", None, "Zürich", "", "Oslo", "New York", "O'Fallon", "Łódź"]
    with server.connect() as admin:
        admin.execute("CREATE DATABASE tutorial_cdc_other")
    with server.connect("tutorial_cdc_other") as ours, shop.connect() as theirs:
        for where, block, _ in page(real_places(kafka, shop) | renamed):
            for statement in re.split(r";\s*$", block, flags=re.M):
                if statement.strip().startswith(("CREATE", "ALTER")):
                    (ours if where == "pgstream" else theirs).execute(statement.encode())
        for turn in range(300):
            _change(theirs, any_, turn, cities)
            if turn == 150:
                worker_of(server).kill()
        by = "SELECT city, count(*), sum(credit) FROM clients GROUP BY city"
        within(90, lambda: _sorted(ours, "SELECT * FROM clients_by_city") == _sorted(theirs, by), 0.3)
        by = "SELECT city, count(*) FROM clients GROUP BY city"
        within(90, lambda: _sorted(theirs, "SELECT city, n FROM clients_per_city") == _sorted(theirs, by), 0.3)
        for query, *_ in ours.execute("LIST QUERIES").fetchall():
            ours.execute(f"TERMINATE QUERY {query}".encode())


def _sorted(c: psycopg.Connection[Any], text: str) -> list[str]:
    return sorted(map(repr, c.execute(text.encode()).fetchall()))


def _change(shop: psycopg.Connection[Any], any_: random.Random, turn: int, cities: list[str | None]) -> None:
    """One random transaction, which may be rolled back: rows that come, change, change their key, and go."""
    row = (any_.choice(cities), any_.choice([None, any_.randint(-(10**9), 10**9) / 100]))
    with shop.transaction(force_rollback=any_.random() < 0.1):
        for _ in range(any_.randint(1, 4)):
            id_, what = any_.randrange(60), any_.random()
            if what < 0.5:
                more = "ON CONFLICT (id) DO UPDATE SET city = EXCLUDED.city, credit = EXCLUDED.credit"
                shop.execute(f"INSERT INTO clients VALUES (%s, %s, %s, %s) {more}".encode(), (id_, f"n{turn}", *row))
            elif what < 0.75:
                shop.execute("UPDATE clients SET city = %s, credit = %s WHERE id %% 7 = %s", (*row, id_ % 7))
            elif what < 0.85:
                to = 1000 + 10 * turn + any_.randrange(10)
                shop.execute(
                    "UPDATE clients SET id = %s WHERE id = %s AND NOT EXISTS (SELECT FROM clients WHERE id = %s)",
                    (to, id_, to),
                )
            else:
                shop.execute("DELETE FROM clients WHERE id = %s", (id_,))
        if turn in (100, 200):
            shop.execute("TRUNCATE clients")
