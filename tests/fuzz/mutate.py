"""From a recorded session to one that no client would hold: a list of steps, made of a seed.

``Plan.framed`` says whether every message still has its own length: then the session must answer a last question;
otherwise it must end once the client has said all. Start reading at ``plan``.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass

from tests.fuzz.transcript import START, Message

LENGTHS = (0, 1, 3, 4, 5, 0x2710, 0x2711, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
KINDS = "QPBDECSHXFdcfp" + "\0\x01zR\xff"
# fmt: off
TEXTS = (
    b"LIST DOORS", b"LIST !", b"COUNT TO 3", b"COUNT FOREVER", b"QUIET", b"CREATE DOOR", b"ECHO $1", b"WHERE AM I",
    b"USE DATABASE other", b"USE DATABASE nowhere", b"USE SCHEMA public", b"SELECT 1", b"SELECT 1/0", b"BEGIN",
    b"COMMIT", b"ROLLBACK", b"SAVEPOINT a", b"ROLLBACK TO a", b"", b";", b"; ;LIST DOORS;",
    b"SELECT 1; LIST DOORS; SELECT 1/0; QUIET",
    b"BEGIN; LIST DOORS; LIST !; SELECT 1", b"COPY t FROM STDIN; LIST DOORS", b"COPY (SELECT 1) TO STDOUT; COUNT TO 2",
    b"LIST DOORS; COPY t FROM STDIN", b"SET client_encoding TO latin1", b"SET client_encoding TO utf8",
    b"SET client_encoding TO sjis", b"SET search_path TO \"\xc3\xbc\"", b"RESET ALL", b"DISCARD ALL", b"DEALLOCATE ALL",
    b"PREPARE p AS SELECT 1", b"EXECUTE p", b"DECLARE c CURSOR WITH HOLD FOR SELECT 1", b"FETCH ALL c", b"CLOSE ALL",
    b"DECLARE c CURSOR FOR LIST DOORS", b"SELECT '\xff\xfe'", b"LIST \xff", b"/* LIST DOORS", b"'LIST DOORS",
    b"$$LIST DOORS",
    b"SELECT pg_terminate_backend(pg_backend_pid())", b"SELECT pg_cancel_backend(pg_backend_pid())",
    b"LISTEN rooms; NOTIFY rooms, 'hi'", b"DO $$ BEGIN RAISE WARNING 'x'; END $$", b"SELECT repeat('x', 300000)",
    b"SELECT * FROM generate_series(1, 5000)", b"SET ROLE pgstream", b"SET statement_timeout = 1",
)
# fmt: on
NAMES = (b"", b"a", b"c", b"_pg3_0", b"x" * 100, b"\xff", b"'")


@dataclass(frozen=True)
class Send:
    data: bytes


@dataclass(frozen=True)
class Read:
    """Wait a moment for what has been asked so far."""


@dataclass(frozen=True)
class CancelIt:
    """A CancelRequest for this session, with its own key or a wrong one."""

    key: bytes | None


@dataclass(frozen=True)
class Leave:
    """The client is gone: with a reset, or having said all and still listening."""

    reset: bool


Step = Send | Read | CancelIt | Leave


@dataclass(frozen=True)
class Plan:
    start: dict[str, str] | bytes
    """Parameters of a session that logs in, or the bytes sent in place of a start."""
    steps: list[Step]
    framed: bool
    name: str


def frame(kind: str, payload: bytes, length: int | None = None) -> bytes:
    counted = len(payload) + 4 if length is None else length
    return kind.encode("latin1") + struct.pack(">I", counted & 0xFFFFFFFF) + payload


def plan(seed: str, transcripts: dict[str, list[Message]]) -> Plan:
    """What one client does."""
    chance = random.Random(seed)
    name = chance.choice(sorted(transcripts))
    messages = transcripts[name]
    if chance.random() < 0.2:
        return Plan(_start(chance, messages), [Leave(reset=chance.random() < 0.2)], False, name)
    body = [m for m in messages if m[0] not in (START, "X")]
    begin = chance.randrange(len(body))
    body = body[begin : begin + chance.randint(1, 40)]
    for _ in range(chance.choice((0, 1, 1, 2, 3, 5, 8))):
        chance.choice(_CHANGES)(chance, body, transcripts)
    return _steps(chance, body, messages, name)


def _steps(chance: random.Random, body: list[Message], messages: list[Message], name: str) -> Plan:
    data = b"".join(frame(kind, payload) for kind, payload in body)
    framed = True
    if chance.random() < 0.35:
        data, framed = _break(chance, data), False
    steps: list[Step] = []
    while data:
        n = chance.choice((1, 2, 5, 6, 40, 300, 5000, 1 << 20))
        steps.append(Send(data[:n]))
        data = data[n:]
        if chance.random() < 0.1:
            steps.append(Read())
        if chance.random() < 0.03:
            steps.append(CancelIt(chance.choice((None, None, b"", b"1234", b"x" * 32))))
        if chance.random() < 0.02:
            return Plan(_parameters(chance, messages), [*steps, Leave(reset=chance.random() < 0.7)], False, name)
        if len(steps) > 200:  # byte by byte, but not for ever
            steps.append(Send(data))
            break
    return Plan(_parameters(chance, messages), steps, framed, name)


def _parameters(chance: random.Random, messages: list[Message]) -> dict[str, str]:
    words = messages[0][1][4:].split(b"\0")
    given = dict(zip((w.decode() for w in words[0::2] if w), (w.decode() for w in words[1::2]), strict=False))
    if chance.random() < 0.1:
        given |= chance.choice(
            ({"client_encoding": "latin1"}, {"options": "-c search_path=pg_catalog"}, {"database": "other"},
             {"application_name": "\xfc"}, {"options": "-c statement_timeout=50"}, {"DateStyle": "german"})
        )  # fmt: skip
    return given


# Changes of whole messages: the framing stays


def _drop(chance: random.Random, body: list[Message], _: object) -> None:
    if body:
        del body[chance.randrange(len(body))]


def _again(chance: random.Random, body: list[Message], _: object) -> None:
    if body:
        begin = chance.randrange(len(body))
        body[begin:begin] = body[begin : begin + chance.randint(1, 5)] * chance.choice((1, 1, 2, 30))


def _swap(chance: random.Random, body: list[Message], _: object) -> None:
    if body:
        a, b = chance.randrange(len(body)), chance.randrange(len(body))
        body[a], body[b] = body[b], body[a]


def _splice(chance: random.Random, body: list[Message], transcripts: dict[str, list[Message]]) -> None:
    other = transcripts[chance.choice(sorted(transcripts))]
    begin = chance.randrange(len(other))
    piece = [m for m in other[begin : begin + chance.randint(1, 8)] if m[0] not in (START, "X")]
    at = chance.randint(0, len(body))
    body[at:at] = piece


def _text(chance: random.Random, body: list[Message], _: object) -> None:
    """A Query or Parse of another text, somewhere."""
    text, at = chance.choice(TEXTS), chance.randint(0, len(body))
    if chance.random() < 0.5:
        body.insert(at, ("Q", text + b"\0"))
        return
    name = chance.choice(NAMES)
    body.insert(at, ("P", name + b"\0" + text + b"\0\0\0"))
    if chance.random() < 0.7:
        bound = b"\0" + name + b"\0\0\0\0\0\0\0"
        rest: list[Message] = [("B", bound), ("D", b"P\0"), ("E", b"\0\0\0\0\x02"), ("S", b"")]
        body[at + 1 : at + 1] = rest[: chance.randint(1, 4)]


def _flip(chance: random.Random, body: list[Message], _: object) -> None:
    """Bytes of a payload."""
    if body:
        at = chance.randrange(len(body))
        kind, payload = body[at]
        changed = bytearray(payload)
        for _ in range(chance.choice((1, 1, 2, 8))):
            if changed:
                changed[chance.randrange(len(changed))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        body[at] = kind, bytes(changed)


def _resize(chance: random.Random, body: list[Message], _: object) -> None:
    """A payload cut or made longer, its length with it."""
    if body:
        at = chance.randrange(len(body))
        kind, payload = body[at]
        n = chance.randint(0, len(payload))
        body[at] = kind, payload[:n] + (chance.randbytes(chance.choice((0, 1, 20))) if chance.random() < 0.5 else b"")


def _kind(chance: random.Random, body: list[Message], _: object) -> None:
    if body:
        at = chance.randrange(len(body))
        body[at] = chance.choice("QPBDECSHFdcf"), body[at][1]


Change = Callable[[random.Random, list[Message], dict[str, list[Message]]], None]
_CHANGES: tuple[Change, ...] = (_drop, _again, _swap, _splice, _text, _text, _text, _flip, _resize, _kind)


# Changes of the stream


def _break(chance: random.Random, data: bytes) -> bytes:
    """Somewhere the framing is lost."""
    at = chance.randint(0, len(data))
    match chance.randrange(5):
        case 0:
            return data[:at] + chance.randbytes(chance.choice((1, 4, 60)))
        case 1:
            return data[:at] + frame(chance.choice(KINDS), chance.randbytes(9), chance.choice(LENGTHS)) + data[at:]
        case 2:
            return data[:at] + data[at + chance.randint(1, 9) :]
        case 3:
            return data[:at]
    changed = bytearray(data or b"\0")
    for _ in range(chance.choice((1, 3, 20))):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def _start(chance: random.Random, messages: list[Message]) -> bytes:
    """What comes in place of a login."""
    parameters = messages[0][1]
    changed = bytearray(parameters)
    for _ in range(chance.choice((0, 1, 3, 10))):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    minor = chance.choice((b"", b"\0\3\0\2", b"\0\3\xff\xff", b"\0\2\0\0", b"\x04\xd2\x16\x2e", b"\x04\xd2\x16\x2f"))
    payload = minor + bytes(changed[len(minor) :])
    if chance.random() < 0.3:
        payload = payload[:-1] + b"_pq_.x\0y\0" * chance.choice((1, 900)) + b"\0"
    length = len(payload) + 4 if chance.random() < 0.8 else chance.choice(LENGTHS)
    data = struct.pack(">I", length) + payload
    if chance.random() < 0.2:
        data = chance.choice((b"\0\0\0\x08\x04\xd2\x16/", b"\0\0\0\x08\x04\xd2\x160", b"\x16\3\1\0\5")) + data
    heads = b"n,,n=,r=abc", b"y,,n=,r=abc", b"p=x,,n=,r=abc", b"n,a=x,n=,r=", b"\xff,,", b"n,,r=" + b"x" * 900
    sasl = chance.choice(heads)
    for payload in (
        chance.choice((b"SCRAM-SHA-256", b"SCRAM-SHA-256-PLUS", b"", b"\xff")) + b"\0"
        + struct.pack(">I", chance.choice((len(sasl), len(sasl), 0xFFFFFFFF, 0, 9000))) + sasl,
        chance.choice((b"c=biws,r=abc,p=AAAA", b"c=,r=,p=", b"", b"\xff", b"c=biws,r=abc,p=" + b"A" * 44)),
    ):  # fmt: skip
        if chance.random() < 0.6:
            data += frame(chance.choice("pppppQ"), payload, None if chance.random() < 0.9 else chance.choice(LENGTHS))
    return data
