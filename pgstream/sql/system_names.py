"""Names of system tables in texts for PostgreSQL: ``deltastream.sys."x"`` becomes what PostgreSQL has, in place.

PostgreSQL refuses a name of three parts whose first is another database. Its own name for the schema is shorter and is
filled up with blanks, so that no length of a message and no position of an error changes.
Owns: finding such names outside strings, comments and quoted names. Must not know: sessions, which tables there are.
Start reading at ``renamed``.
"""

from __future__ import annotations

import re
from collections.abc import Collection

MARK = b"deltastream"
_SCHEMA = b"pg_deltastream"
_WORD = rb"[A-Za-z_\x80-\xff][\w$\x80-\xff]*"
# Of the client's encodings none has a quote, a sign or a digit as the second byte of a letter, so bytes will do.
_ITEM = re.compile(
    rb"""(?P<name>(?<![\w$"`.\x80-\xff])(?:"deltastream"|(?i:deltastream)(?![\w$\x80-\xff]))
                  \s*\.\s*(?:"sys"|(?i:sys)(?![\w$\x80-\xff])))
         (?P<dot>\s*\.\s*)(?P<table>"(?:[^"]|"")*"|`[^`]*`|"""
    + _WORD
    + rb""")
       | --[^\n\r]* | /\*.*?(?:\*/|\Z) | \b[eE]'(?:[^'\\]|\\.|'')*'? | '(?:[^']|'')*'? | "(?:[^"]|"")*"?
       | (?<![\w$])(?P<dollar>\$(?:[A-Za-z_\x80-\xff][\w\x80-\xff]*)?\$).*?(?:(?P=dollar)|\Z)""",
    re.X | re.S,
)


def renamed(text: bytes, tables: Collection[str]) -> bytes:
    """The same text, of the same length; names of other tables than these stay as they are."""
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
