"""The first words of a statement, with the product's older spellings.

Owns: SHOW for LIST, TOPIC for ENTITY and NAMESPACE for SCHEMA, both when a statement is found and when it is parsed.
Must not know: any statement. Start reading at ``expect``.
"""

from __future__ import annotations

from pgstream.sql.cursor import Cursor

OLDER = {"LIST": "SHOW", "ENTITY": "TOPIC", "ENTITIES": "TOPICS", "SCHEMA": "NAMESPACE", "SCHEMAS": "NAMESPACES"}
_NEWER = {old: new for new, old in OLDER.items()}


def expect(c: Cursor, *words: str) -> None:
    """Take these words, each in its newer or its older spelling."""
    for word in words:
        if not (word in OLDER and c.accept(OLDER[word])):
            c.expect(word)


def accept(c: Cursor, *words: str) -> bool:
    """Take these words, if they are next in their newer or their older spelling."""
    return c.accept(*words) or c.accept(*(OLDER.get(w, w) for w in words))


def newer(words: tuple[str, ...]) -> tuple[str, ...]:
    """First words in their newer spelling, where the grammar has them (not what may be an object's name)."""
    out = list(words)
    places = 3 if words[:2] == ("INSERT", "INTO") else 2
    for i, word in enumerate(out[:places]):
        if word in _NEWER and (word == "SHOW") == (i == 0):
            out[i] = _NEWER[word]
    return tuple(out)
