"""What PostgreSQL lets CREATE DATABASE say of the new database.

Owns: the words, which of them PostgreSQL is given, which say what is so anyway, and which are refused.
Must not know: how a database is made. Start reading at ``read``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pgstream.errors import NotSupported
from pgstream.names import Name
from pgstream.sql.cursor import Cursor
from pgstream.statements import owners

PASSED = ("STRATEGY", "LOCALE_PROVIDER", "LOCALE", "LC_COLLATE", "LC_CTYPE", "ICU_LOCALE", "ICU_RULES",
          "BUILTIN_LOCALE", "CONNECTION LIMIT")  # fmt: skip
"""PostgreSQL makes the database with these, and says itself what is wrong with a value."""
_YES, _NO = ("true", "on", "yes", "1"), ("false", "off", "no", "0")


@dataclass(frozen=True, slots=True)
class _Fixed:
    """An option with one value that is so anyway."""

    is_so: Callable[[str], bool]
    hint: str


FIXED = {
    "TEMPLATE": _Fixed(
        lambda value: value in ("template0", "template1"),
        "A new database is made of PostgreSQL's template0 and holds an empty schema public.",
    ),
    "ENCODING": _Fixed(
        lambda value: value.lower().replace("-", "") in ("utf8", "unicode", "6"),
        "Every database is UTF8; SET client_encoding gives a client another one.",
    ),
    "TABLESPACE": _Fixed(lambda value: value == "pg_default", "Every database is in PostgreSQL's default tablespace."),
    "ALLOW_CONNECTIONS": _Fixed(
        lambda value: value.lower() in _YES, "Every database takes connections; grants say from whom."
    ),
    "IS_TEMPLATE": _Fixed(lambda value: value.lower() in _NO, "No database is a template of others."),
}
REFUSED = ("COLLATION_VERSION", "OID")


@dataclass(frozen=True, slots=True)
class DatabaseOptions:
    """``owner`` None: the session's role. ``passed``: PostgreSQL's own options and their values."""

    owner: Name | None = None
    passed: Mapping[str, str] = field(default_factory=dict)


def read(c: Cursor) -> DatabaseOptions:
    """``[WITH] [option [=] value] …`` Errors: SyntaxFault, also at an option that is there twice; NotSupported."""
    c.accept("WITH")
    owner: Name | None = None
    passed: dict[str, str] = {}
    seen: set[str] = set()
    while not c.at_end:
        option = next((o for o in ("OWNER", *PASSED, *FIXED, *REFUSED) if c.peek(*o.split())), None)
        if option is None or option in seen:
            raise c.fault()
        seen.add(option)
        at = c.at
        c.expect(*option.split())
        c.accept("=")
        if option in REFUSED:
            raise NotSupported(what=f"{option} of CREATE DATABASE", at=at, hint="Leave it out.")
        if c.accept("DEFAULT"):
            continue
        if option == "OWNER":
            owner = owners.read(c)
            continue
        value, at = _value(c)
        if option in PASSED:
            passed[option] = value
        elif not FIXED[option].is_so(value):
            raise NotSupported(what=f'{option} "{value}" of CREATE DATABASE', hint=FIXED[option].hint, at=at)
    return DatabaseOptions(owner, passed)


def _value(c: Cursor) -> tuple[str, int]:
    at = c.at
    if c.peek_string():
        return c.string(), at
    if c.peek_number() or c.peek("-"):
        return ("-" if c.accept("-") else "") + str(c.integer()), at
    if (word := c.words(1)) and word[0].lower() in (*_YES, *_NO):
        return c.take_word()[0].lower(), at
    return c.name().text, at
