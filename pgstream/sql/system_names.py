"""Names of system tables in texts for PostgreSQL: ``deltastream.sys."x"`` becomes what PostgreSQL has, in place.

PostgreSQL refuses a name of three parts whose first is another database. Its own name for the schema is shorter and is
filled up with blanks, so that no length of a message and no position of an error changes.
Owns: finding such names outside strings, comments and quoted names. Must not know: sessions, which tables there are.
Start reading at ``renamed``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

MARK = b"deltastream"
_SCHEMA = b"pg_deltastream"
_WORD = rb"[A-Za-z_\x80-\xff][\w$\x80-\xff]*"
_ITEM = re.compile(
    rb"""(?P<name>(?<![\w$"`.\x80-\xff])(?:"deltastream"|(?i:deltastream)(?![\w$\x80-\xff]))
                  \s*\.\s*(?:"sys"|(?i:sys)(?![\w$\x80-\xff])))
         (?P<dot>\s*\.\s*)(?P<table>"(?:[^"]++|"")*+"|`[^`]*`|"""
    + _WORD
    + rb""")
       | --[^\n\r]* | /\*.*?(?:\*/|\Z) | \b[eE]'(?:[^'\\]++|\\.|'')*+'? | '(?:[^']++|'')*+'? | "(?:[^"]++|"")*+"?
       | (?<![\w$])(?P<dollar>\$(?:[A-Za-z_\x80-\xff][\w\x80-\xff]*)?\$).*?(?:(?P=dollar)|\Z)""",
    re.X | re.S,
)


# A letter in the encodings in which one may have a byte of ASCII, as PostgreSQL counts its bytes.
_LETTERS = {
    "BIG5": rb"[\x80-\xff].?",
    "GB18030": rb"[\x80-\xff](?:[0-9].{0,2}|.)?",
    "GBK": rb"[\x80-\xff].?",
    "JOHAB": rb"\x8f.{0,2}|[\x80-\xff].?",
    "SHIFT_JIS_2004": rb"[\x80-\xa0\xe0-\xff].?",
    "SJIS": rb"[\x80-\xa0\xe0-\xff].?",
    "UHC": rb"[\x80-\xff].?",
}
_LETTER = {encoding: re.compile(letters, re.S) for encoding, letters in _LETTERS.items()}


def of_letters(text: bytes, encoding: str, rename: Callable[[bytes], bytes]) -> bytes:
    """What ``rename`` makes of a text; it gets letters of several bytes in a form without any byte of ASCII."""
    letter = _LETTER.get(encoding)
    if letter is None:
        return rename(text)
    plain = letter.sub(lambda found: b"\x80" * len(found[0]), text)
    renamed = rename(plain)
    if renamed == plain:
        return text
    return bytes(is_ if seen >= 0x80 else new for is_, seen, new in zip(text, plain, renamed, strict=True))


def renamed(text: bytes, tables: Collection[str]) -> bytes:
    """The same text, of the same length; names of other tables than these stay as they are.

    Letters beyond ASCII have no byte of ASCII in them (``of_letters``).
    """
    if MARK not in text.lower():
        return text

    def change(item: re.Match[bytes]) -> bytes:
        name, table = item["name"], item["table"]
        if name is None:
            return item[0]
        quoted = table[:1] in b'"`'
        called = (table[1:-1] if quoted else table.lower()).decode(errors="replace")
        if called not in tables:
            return item[0]
        shown = b'"' + table[1:-1] + b'"' if quoted else table
        return _SCHEMA.ljust(len(name)) + item["dot"] + shown

    return _ITEM.sub(change, text)
