"""The relay judged by PostgreSQL: each file of statements, sent directly and through the door, gets the same answers.

Every file in ``sql/`` runs on one connection in each of ``MODES``, on both sides from an empty database, with
pgstream's own language in front and a catalogue that has streams. Compared byte for byte: command tags, column names,
type oids, type modifiers, formats, rows, all fields of errors and notices, parameter changes, transaction states.

A file is blocks between blank lines; a block is one message's text. Its last lines may begin with a backslash:
``\\params a|NULL|c`` (bound in the extended modes), ``\\copy text`` (a line of COPY data), ``\\hex 00ff`` (COPY data in
hexadecimal), ``\\fail why`` (CopyFail instead of CopyDone), ``\\rows n`` (Execute's limit; it is sent four times).
A block must give the same answer on every run: no times, no process ids, no random values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import psycopg
import pytest

from pgstream.server.language import Language
from tests.pg.door import double
from tests.pg.door.raw import SYNC, Message, Wire, bind, close, describe, execute, frame, parse, query
from tests.unit.statements.snapshots import SNAPSHOT

FILES = sorted((Path(__file__).parent / "sql").glob("*.sql"))
MODES = ("simple", "text", "binary", "named")
OWN_OIDS = 16384
"""PostgreSQL's first oid for what users make: from here on oids are compared by when they appear."""


@dataclass
class Block:
    """One message's text and what belongs to it."""

    line: int
    text: str = ""
    parameters: list[bytes | None] = field(default_factory=list)
    copy: bytes | None = None
    fail: str | None = None
    limit: int = 0


def blocks(path: Path) -> list[Block]:
    out: list[Block] = []
    fresh = True
    for number, line in enumerate(path.read_text().split("\n"), 1):
        if not line.strip():
            fresh = True
            continue
        if fresh:
            out.append(Block(number))
            fresh = False
        _add(out[-1], line)
    return out


def _add(block: Block, line: str) -> None:
    word, _, rest = line.partition(" ")
    if word == "\\params":
        block.parameters = [None if p == "NULL" else p.encode() for p in rest.split("|")]
    elif word == "\\copy":
        block.copy = (block.copy or b"") + rest.encode() + b"\n"
    elif word == "\\hex":
        block.copy = (block.copy or b"") + bytes.fromhex(rest)
    elif word == "\\fail":
        block.fail = rest
    elif word == "\\rows":
        block.limit = int(rest)
    else:
        block.text += ("\n" if block.text else "") + line


def messages(block: Block, mode: str, number: int) -> bytes:
    """The bytes that a client sends for a block. Sync comes last in the extended protocol, and begins a new start."""
    data = b"" if block.copy is None else frame("d", block.copy)
    end = frame("f", block.fail.encode() + b"\0") if block.fail is not None else frame("c")
    copied = data + end if block.copy is not None or block.fail is not None else b""
    if mode == "simple":
        return query(block.text) + copied
    name, portal = (f"s{number}", f"p{number}") if mode == "named" else ("", "")
    results = [1] if mode == "binary" else []
    head = parse(block.text, name) + describe("S", name) + bind(portal, name, block.parameters, results=results)
    run = execute(portal, block.limit) * (4 if block.limit else 1)
    tail = close("P", portal) + close("S", name) if mode == "named" else b""
    return head + describe("P", portal) + run + copied + tail + SYNC


MARKER = SYNC + close("S", "marker") * 5 + SYNC
"""Works in every state, so that skipped messages need not be counted."""


class Oids:
    """Oids of users' objects as numbers in the order of their appearance."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}

    def of(self, data: bytes) -> bytes:
        oid = int.from_bytes(data, "big")
        return data if oid < OWN_OIDS else (OWN_OIDS + self._seen.setdefault(oid, len(self._seen))).to_bytes(4, "big")


def _masked(message: Message, oids: Oids) -> Message:
    """Without what differs between two runs on one PostgreSQL."""
    kind, payload = message
    if kind == "A":
        return kind, payload[4:]
    if kind == "t":
        each = [payload[at : at + 4] for at in range(2, len(payload), 4)]
        return kind, payload[:2] + b"".join(map(oids.of, each))
    if kind == "T":
        at, out = 2, payload[:2]
        for _ in range(int.from_bytes(payload[:2], "big")):
            end = payload.index(0, at) + 1
            out += payload[at:end] + oids.of(payload[end : end + 4]) + payload[end + 4 : end + 6]
            out += oids.of(payload[end + 6 : end + 10]) + payload[end + 10 : end + 18]
            at = end + 18
        return kind, out
    return kind, re.sub(rb"pg_(temp|toast)_\d+", rb"pg_\1_n", payload) if kind in "EN" else payload


def answers(wire: Wire, data: bytes, oids: Oids) -> list[Message]:
    wire.send(data + MARKER)
    out: list[Message] = []
    while "".join(m[0] for m in out[-6:]) != "33333Z":
        out.append(wire.read())
    return [_masked(m, oids) for m in out[:-6]]


def run(front: double.Door, port: int, script: list[Block], mode: str) -> list[list[Message]]:
    """All answers, from an empty database."""
    oids = Oids()
    with psycopg.connect(front.postgres.url("main"), autocommit=True) as conn:
        conn.execute(f"DROP OWNED BY {front.USER} CASCADE")
        with Wire(port, front.USER, front.PASSWORD) as wire:
            out = [answers(wire, messages(block, mode, n), oids) for n, block in enumerate(script)]
        types = conn.execute(f"SELECT oid FROM pg_type WHERE oid >= {OWN_OIDS} ORDER BY oid").fetchall()
    # Binary arrays and composites hold the oids of their elements' types.
    numbers = {oid.to_bytes(4, "big"): b"%04d" % n for n, (oid,) in enumerate(types)}
    return [[(kind, _replaced(row, numbers) if kind == "D" else row) for kind, row in answer] for answer in out]


def _replaced(row: bytes, numbers: dict[bytes, bytes]) -> bytes:
    for oid, number in numbers.items():
        row = row.replace(oid, number)
    return row


@pytest.fixture(scope="session")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[double.Door]:
    """A door with pgstream's language, and streams in its catalogue that the statements' texts name."""
    data_dir = tmp_path_factory.mktemp("front")
    seen = replace(SNAPSHOT, databases=double.Databases.snapshot.databases, access=double.Databases.snapshot.access)
    front = double.start(data_dir, language=Language.ours(), snapshot=seen)
    yield front
    front.stop()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_same_answers(front: double.Door, path: Path, mode: str) -> None:
    script = blocks(path)
    direct = run(front, front.postgres.port, script, mode)
    through = run(front, front.port, script, mode)
    differ = [
        f"{path.name}:{block.line}: {block.text[:200]}\n  direct  {str(wanted)[:400]}\n  through {str(got)[:400]}"
        for block, wanted, got in zip(script, direct, through, strict=True)
        if got != wanted
    ]
    assert not differ, "\n".join(differ)


def test_there_are_many() -> None:
    assert sum(len(blocks(path)) for path in FILES) >= 300
