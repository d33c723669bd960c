"""Random streams and changelogs: rows replaced, deleted, doubled, NULL, out of order, late; in several partitions and
micro-batches that are cut anywhere.

Owns: the records, as bytes that Kafka could hold, and the same records as PostgreSQL's tables. Of each relation ``r``
PostgreSQL has ``log_r`` (all records) and the views ``r_all`` (a changelog: the last row of each key), ``r_early``
(without late rows) and ``r_ok`` (also without the last row, whose time ends all windows).
Must not know: queries. Start reading at ``relations``.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Any

import psycopg

from pgstream import types
from pgstream.catalog.records import ColumnRecord, RelationRecord
from pgstream.names import FullName

BASE = 1_700_000_000_000
PARTITIONS = 2
LATE_MS = 900_000
LAST_MS = 10_000_000
WIDE = Context(prec=50)


@dataclass
class Record:
    """A record of a topic. ``late``: it comes long after the watermark has passed it; ``last``: the relation's last."""

    values: Mapping[str, Any]
    time: int
    partition: int
    offset: int
    delete: bool = False
    late: bool = False
    last: bool = False


@dataclass
class Relation:
    """A stream, or with ``key`` a changelog: its records batch by batch. ``timestamp``: its column of event time."""

    name: str
    columns: Mapping[str, str]
    key: tuple[str, ...] = ()
    timestamp: str | None = None
    lateness: int = 10_000
    batches: list[list[Record]] = field(default_factory=list)

    @property
    def properties(self) -> dict[str, str]:
        """What stands in the relation's WITH, without its store and topic."""
        out = {"value.format": "json", "source.allow.latency.millis": str(self.lateness)}
        if self.timestamp:
            out["timestamp"] = self.timestamp
        if self.key:
            fields = ", ".join(f"{k} {self.columns[k]}" for k in self.key)
            out |= {"key.format": "json", "key.type": f"STRUCT<{fields}>"}
        return out

    @property
    def record(self) -> RelationRecord:
        """The relation as the catalogue has it."""
        columns = tuple(ColumnRecord(n, types.parse(t), n not in self.key) for n, t in self.columns.items())
        kind = "changelog" if self.key else "stream"
        return RelationRecord(
            self.name, FullName("main", "public", self.name), kind, columns, "o", primary_key=self.key, store="k",
            entity=self.name, properties=self.properties,
        )  # fmt: skip

    @property
    def records(self) -> list[Record]:
        return [r for batch in self.batches for r in batch]

    def message(self, r: Record) -> tuple[str | None, str | None]:
        """Key and value as they stand in the topic."""
        key = json.dumps({k: r.values[k] for k in self.key}) if self.key else None
        value = None if r.delete else _NUMBER.sub(r"\1", json.dumps(r.values, default=_json))
        return key, value


_NUMBER = re.compile(r'"#([-.\d]+)#"')


def _json(value: object) -> object:
    if isinstance(value, Decimal):
        return f"#{value:f}#"  # a number with all its digits: ``message`` takes the marks away
    assert isinstance(value, dt.datetime)
    return value.isoformat(" ", "milliseconds")


class Maker:
    """Makes the relations of one seed. ``late``: whether the streams have late rows."""

    def __init__(self, seed: str, late: bool) -> None:
        self.r = random.Random(f"data {seed}")
        self.late = late
        self.offset = 0

    def text(self) -> str | None:
        return self.r.choice([None, "", "a", "b", "ab", "a-b", "x y", "12", "-7", " pad ", "aXbXc", "A-B-C"])

    def row(self, name: str) -> dict[str, Any]:
        """The values of a row but for its key and id; a NULL stands as null, or is left out."""
        r = self.r
        some: dict[str, Any] = {
            "v": r.choice([None, *range(-2, 8)]),
            "w": r.choice([None, 0, 1, 2, 3, 1_000_000]),
            "d": r.choice([None, r.randint(-40, 40) / 4, 0.0, 2.5]),
            "x": r.choice([None, Decimal(r.randint(-999, 999)) / 100]),
            "t": self.text(),
            "b": r.choice([None, True, False]),
            "at": r.choice([None, dt.datetime(2024, 2, 28, 22, 59, 58, 500_000)
                            + dt.timedelta(milliseconds=r.randint(0, 200_000_000))]),
            "g": r.choice(["a", "b", "c", None]),
            "n": r.choice([None, 1, 2, 3, 4]),
            "u": r.choice([None, "one", "two"]),
            "y": r.choice([None, Decimal(r.randint(-(10**31), 10**31)).scaleb(-6, WIDE), Decimal("0.000001")]),
            "z": r.choice([None, dt.datetime(2024, 2, 28, 23, tzinfo=dt.UTC) + dt.timedelta(hours=r.randint(0, 40))]),
            "l": r.choice([None, [], self.several(name)]),
            "h": r.choice([None, {k: r.choice([None, 1, 2, 3]) for k in r.sample("abc", r.randint(0, 3))}]),
            "o": r.choice([None, {"i": r.choice([None, 1, 2]), "t": self.text()}, {"t": "only"}]),
            "r": r.choice([None, [], [{"i": r.randint(0, 3), "t": self.text()} for _ in range(r.randint(1, 3))]]),
        }  # fmt: skip
        return {c: some[c] for c in COLUMNS[name] if c in some and not (some[c] is None and r.random() < 0.3)}

    def several(self, relation: str) -> list[Any]:
        """The elements of an array column."""
        of = ["a", "b", "a-b", None] if relation == "q" else [1, 2, 3, None]
        return [self.r.choice(of) for _ in range(self.r.randint(1, 4))]

    def shuffled(self, count: int) -> list[int]:
        """Event times are in another order than offsets."""
        return self.r.sample(range(count), count)

    def place(self, key: object) -> int:
        return sum(str(key).encode()) % PARTITIONS

    def stream(self, relation: Relation, clock: int, number: int) -> None:
        r, rows = self.r, []
        for i in self.shuffled(r.randint(1 if number == 0 else 0, 9)):
            late = self.late and number > 1 and r.random() < 0.12
            time = clock + i * 700 - r.choice([0, 0, 0, 700, 2100, 4000]) - LATE_MS * late
            key = r.choice([*"kkklmno", None])
            row = self.row(relation.name) | ({"k": key} if key or r.random() < 0.5 else {})
            rows.append(self.record(relation, row, time, self.place(key), late=late))
            if r.random() < 0.15:  # the same row again, at another place of the topic
                rows.append(self.record(relation, row, time, self.place(key), late=late, again=True))
        relation.batches.append(rows)

    def record(
        self, relation: Relation, row: dict[str, Any], time: int, place: int, again: bool = False, **kw: bool
    ) -> Record:
        self.offset += 1
        values = dict(row)
        if not relation.key:
            values["id"] = self.offset - again
        if relation.timestamp:
            values[relation.timestamp] = time
        return Record(values, time, place, self.offset, **kw)

    def changelog(self, relation: Relation, clock: int, number: int) -> None:
        r, rows = self.r, []
        for i in self.shuffled(r.randint(1 if number == 0 else 0, 7)):
            key = {k: self.key(k) for k in relation.key}
            time = clock + i * 900 - r.choice([0, 0, 0, 900, 4000])
            delete = r.random() < 0.22
            row = key if delete else self.row(relation.name) | key
            rows.append(self.record(relation, row, time, self.place(key), delete=delete))
        relation.batches.append(rows)

    def key(self, column: str) -> Any:
        return {"k": self.r.choice("klmnp"), "g": self.r.choice("abcd"), "v": self.r.randint(1, 3)}[column]

    def whole(self, relation: str, name: str) -> dict[str, Any]:
        """A row without NULLs: one whose key is NULL waits for nobody, so it would come out of a FULL JOIN."""
        out: dict[str, Any] = {}
        while len(out) < len(COLUMNS[relation].keys() - {"id", "k", "ts"}):
            out |= {c: v for c, v in self.row(relation).items() if v is not None}
        return out | {"k": name, "g": name}

    def end(self, relation: Relation, clock: int) -> None:
        """One record moves event time so far on that nothing waits any more, but for itself."""
        name = f"end of {relation.name}"
        row = {k: 0 if k == "v" else name for k in relation.key} if relation.key else self.whole(relation.name, name)
        last = self.record(relation, row, clock + LAST_MS, 0, delete=bool(relation.key), last=True)
        relation.batches.append([last])


COLUMNS: dict[str, dict[str, str]] = {
    "s": {"id": "BIGINT", "k": "VARCHAR", "v": "INTEGER", "w": "BIGINT", "d": "DOUBLE", "x": "DECIMAL(10,2)",
          "t": "VARCHAR", "b": "BOOLEAN", "at": "TIMESTAMP(3)", "g": "VARCHAR", "y": "DECIMAL(38,6)",
          "z": "TIMESTAMP_LTZ(3)", "l": "ARRAY<INTEGER>", "h": "MAP<VARCHAR, INTEGER>",
          "o": "STRUCT<i INTEGER, t VARCHAR>"},
    "q": {"id": "BIGINT", "k": "VARCHAR", "v": "INTEGER", "t": "VARCHAR", "x": "DECIMAL(10,2)", "g": "VARCHAR",
          "ts": "BIGINT", "l": "ARRAY<VARCHAR>", "r": "ARRAY<STRUCT<i INTEGER, t VARCHAR>>"},
    "c": {"k": "VARCHAR", "g": "VARCHAR", "v": "INTEGER", "t": "VARCHAR", "d": "DOUBLE", "x": "DECIMAL(10,2)",
          "b": "BOOLEAN", "y": "DECIMAL(38,6)", "l": "ARRAY<INTEGER>"},
    "e": {"g": "VARCHAR", "n": "INTEGER", "u": "VARCHAR", "at": "TIMESTAMP(3)"},
    "m": {"k": "VARCHAR", "v": "INTEGER", "n": "INTEGER", "t": "VARCHAR"},
    "look": {"k": "VARCHAR", "n": "INTEGER", "t": "VARCHAR", "x": "DECIMAL(10,2)"},
}  # fmt: skip


def relations(seed: str, late: bool = True) -> list[Relation]:
    """Two streams and three changelogs, cut into the same number of batches."""
    maker = Maker(seed, late)
    made = [
        Relation("s", COLUMNS["s"], lateness=maker.r.choice([10_000, 15_000])),
        Relation("q", COLUMNS["q"], timestamp="ts"),
        Relation("c", COLUMNS["c"], ("k",)),
        Relation("e", COLUMNS["e"], ("g",)),
        Relation("m", COLUMNS["m"], ("k", "v")),
    ]
    clock = BASE + maker.r.randint(0, 100) * 1000
    for number in range(maker.r.choice([1, 2, 3, 3])):
        for relation in made:
            (maker.changelog if relation.key else maker.stream)(relation, clock, number)
        clock += 8_000
    for i, relation in enumerate(made):
        maker.end(relation, clock + i * LAST_MS // 10)  # apart, so that no two last rows meet in a join
    return made


_HIDDEN = {"__time": "bigint", "__partition": "int", "__offset": "bigint", "__delete": "boolean", "__late": "boolean",
           "__last": "boolean"}  # fmt: skip


def load(c: psycopg.Connection[Any], schema: str, made: list[Relation]) -> None:
    """The records as PostgreSQL has them, in a schema of their own."""
    c.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}; SET search_path = {schema}, public")
    for relation in made:
        columns = {n: types.parse(t).pg for n, t in relation.columns.items()} | _HIDDEN
        name, key = relation.name, ", ".join(relation.key)
        c.execute(f"CREATE TABLE log_{name} ({', '.join(f'{n} {t}' for n, t in columns.items())})")
        with c.cursor() as cursor, cursor.copy(f"COPY log_{name} FROM STDIN") as copy:
            for row in _rows(relation):
                copy.write_row(row)
        last = f"SELECT DISTINCT ON ({key}) * FROM log_{name} ORDER BY {key}, __partition DESC, __offset DESC"
        every = f"SELECT * FROM ({last}) x WHERE NOT __delete" if key else f"SELECT * FROM log_{name}"
        c.execute(f"CREATE VIEW {name}_all AS {every}")
        c.execute(f"CREATE VIEW {name}_early AS SELECT * FROM {name}_all WHERE NOT __late")
        c.execute(f"CREATE VIEW {name}_ok AS SELECT * FROM {name}_early WHERE NOT __last")
    c.execute(f"CREATE TABLE look ({', '.join(f'{n} {types.parse(t).pg}' for n, t in COLUMNS['look'].items())})")
    r = random.Random(f"look {schema}")
    for _ in range(r.randint(0, 12)):
        row = (
            r.choice([*"abkkmn", None]),
            r.choice([*range(5), None]),
            r.choice(["", "a", None]),
            r.choice([None, 1.25]),
        )
        c.execute("INSERT INTO look VALUES (%s, %s, %s, %s)", row)


def _rows(relation: Relation) -> Iterator[tuple[Any, ...]]:
    for r in relation.records:
        values = (_stored(r.values.get(n), t) for n, t in relation.columns.items())
        yield (*values, r.time, r.partition, r.offset, r.delete, r.late, r.last)


def _stored(value: Any, type_: str) -> Any:
    """A value as PostgreSQL takes it: maps and STRUCTs, also in arrays, are jsonb."""
    if value is None or types.parse(type_).pg != "jsonb":
        return value
    if type_.startswith("STRUCT"):
        value = {n: value.get(n) for n, _ in types.parse(type_).fields}  # one that the record leaves out is NULL
    return json.dumps(value)


def view(schema: str) -> RelationRecord:
    """The materialized view that streams look rows up in: it does not change."""
    columns = tuple(ColumnRecord(n, types.parse(t)) for n, t in COLUMNS["look"].items())
    return RelationRecord("look", FullName("main", schema, "look"), "materialized_view", columns, "o")
