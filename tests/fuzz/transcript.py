"""What a client said in a session, as a text file: one message a line, its type and its payload as a Python literal.

The start-up packet has the type ``-``; answers to authentication are left out, since no proof is good twice.
"""

from __future__ import annotations

import ast
from pathlib import Path

FOLDER = Path(__file__).parent / "transcripts"
START = "-"

Message = tuple[str, bytes]


def cut(data: bytes) -> list[Message]:
    """The messages of a client's whole stream."""
    messages: list[Message] = []
    while data:
        begun = any(kind == START for kind, _ in messages)
        kind, data = (chr(data[0]), data[1:]) if begun else ("", data)
        length = int.from_bytes(data[:4], "big")
        payload, data = data[4:length], data[length:]
        if begun and kind != "p":
            messages.append((kind, payload))
        elif payload[:2] == b"\0\3":
            messages.append((START, payload))
    return messages


def write(name: str, messages: list[Message]) -> None:
    text = "".join(f"{kind} {payload!r}\n" for kind, payload in messages)
    (FOLDER / f"{name}.txt").write_text(text)


def read(path: Path) -> list[Message]:
    lines = (line.partition(" ") for line in path.read_text().splitlines())
    return [(kind, ast.literal_eval(payload)) for kind, _, payload in lines]


def all_of_them() -> dict[str, list[Message]]:
    found = {path.stem: read(path) for path in sorted(FOLDER.glob("*.txt"))}
    assert found, "no transcripts"
    return found
