"""Keys of every format beside values of every format, said in every way: one query writes them, another reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import psycopg
import pytest

from tests.registry import store_behind
from tests.server import Kafka, Server, within

pytestmark = pytest.mark.stream

FORMATS = ("json", "avro", "protobuf", "primitive")
# By how the key is said: the columns in it, and those that are in it only.
WAYS = {"partition": ("id", ""), "named": ("id", ""), "excluded": ("id", "id"), "both": ("id,who", ""),
        "one_excluded": ("id,who", "id")}  # fmt: skip
ROWS = [(1, "ann"), (-2, "bob")]


class Case(NamedTuple):
    value: str
    key: str
    way: str

    @property
    def name(self) -> str:
        return "_".join(("ek", *self))

    @property
    def whole(self) -> bool:
        """Whether the value has both columns; of PRIMITIVE it has one."""
        return self.value != "primitive" or bool(WAYS[self.way][1])


def cases() -> Iterator[Case]:
    """Every pair of a value's format, a key's and a way, as far as there are such."""
    for k, key in enumerate(FORMATS):
        for w, way in enumerate(WAYS):
            value = FORMATS[(k + w) % 4]
            if value == "primitive" and way == "both":
                value = "json"
            if key != "primitive" or "," not in WAYS[way][0]:
                yield Case(value, key, way)


CASES = list(cases())


def writes(c: Case) -> str:
    key, out = WAYS[c.way]
    options = [f"'topic' = '{c.name}'", f"'value.format' = '{c.value}'", f"'key.format' = '{c.key}'"]
    options += [f"'key.columns' = '{key}'"] * (c.way != "partition") + [f"'value.columns.exclude' = '{out}'"] * bool(
        out
    )
    by = " PARTITION BY id" * (c.way == "partition")
    return f"CREATE STREAM {c.name} WITH ({', '.join(options)}) AS SELECT id{', who' * c.whole} FROM ek_rows{by};"


def declares(c: Case) -> str:
    columns = "who VARCHAR" if c.value == "primitive" and c.whole else "id BIGINT" + ", who VARCHAR" * c.whole
    type_ = {"id": "STRUCT<id BIGINT>", "id,who": "STRUCT<id BIGINT, who VARCHAR>"}[WAYS[c.way][0]]
    options = [f"'topic' = '{c.name}'", f"'value.format' = '{c.value}'", f"'key.format' = '{c.key}'"]
    # Of Avro and Protobuf the registry knows the key's type.
    if c.key in ("json", "primitive"):
        options.append(f"'key.type' = '{'BIGINT' if c.key == 'primitive' else type_}'")
    return f"CREATE STREAM {c.name}_in ({columns}) WITH ({', '.join(options)}, 'starting.position' = 'earliest')"


def reads(c: Case) -> str:
    names = ("NULL" if c.value == "primitive" and c.whole else "id", "who" if c.whole else "NULL")
    key = "rowkey()" if c.key == "primitive" else "rowkey()->id"
    other = "rowkey()->who" if "," in WAYS[c.way][0] else "NULL"
    value = f"CAST({names[0]} AS BIGINT) AS id, CAST({names[1]} AS VARCHAR) AS who"
    return f"SELECT '{c.name}' AS name, {value}, {key} AS k, CAST({other} AS VARCHAR) AS k2 FROM {c.name}_in"


def wanted(c: Case) -> list[tuple[Any, ...]]:
    key, out = WAYS[c.way]
    return [(c.name, None if out else i, who if c.whole else None, i, who if "," in key else None) for i, who in ROWS]


@pytest.fixture(scope="module")
def db(server: Server, kafka: Kafka, registry: str) -> Iterator[psycopg.Connection[Any]]:
    with store_behind(server, kafka, registry, "every_key", "ek") as c:
        yield c


def test_what_is_written_is_read(db: psycopg.Connection[Any], kafka: Kafka) -> None:
    assert {(c.key, c.way) for c in CASES} == {
        (k, w) for k in FORMATS for w in WAYS if k != "primitive" or "," not in WAYS[w][0]
    }
    assert len({(c.value, c.key) for c in CASES}) >= 14 and len({(c.value, c.way) for c in CASES}) >= 17
    kafka.topic("ek_rows", 1)
    kafka.produce("ek_rows", [(None, f'{{"id": {i}, "who": "{who}"}}'.encode()) for i, who in ROWS])
    db.execute(
        "CREATE STREAM ek_rows (id BIGINT, who VARCHAR) WITH ('topic' = 'ek_rows', 'value.format' = 'json', "
        "'starting.position' = 'earliest')"
    )
    lines = "\n".join(map(writes, CASES))
    db.execute(f"BEGIN APPLICATION ek {lines} END APPLICATION WITH ('query.name' = ek_all)".encode())
    for c in CASES:
        db.execute(declares(c).encode())
    view = " UNION ALL ".join(map(reads, CASES))
    db.execute(f"CREATE MATERIALIZED VIEW ek_seen AS {view}".encode())

    def seen() -> list[Any]:
        return db.execute("SELECT name, id, who, k, k2 FROM ek_seen").fetchall()

    within(180, lambda: len(seen()) == len(ROWS) * len(CASES))
    assert sorted(seen(), key=str) == sorted((row for c in CASES for row in wanted(c)), key=str)
