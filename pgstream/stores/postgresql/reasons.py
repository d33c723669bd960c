"""Why a PostgreSQL store did not do what it was asked, for a person: psycopg's errors as our conditions.

Owns: ``translate``. Must not know: what was asked. Start reading at ``translate``.
"""

from __future__ import annotations

import re

import psycopg

from pgstream.errors import (
    DependentsExist,
    DuplicateObject,
    InsufficientPrivilege,
    InvalidOption,
    PgStreamError,
    StoreHindered,
    StoreRefused,
    StoreUnreachable,
    UndefinedColumn,
    UndefinedEntity,
)

_COLUMN = re.compile(r'column (?:\w+\.)?"?(?P<name>.+?)"? does not exist')
_LONGEST = 1500
"""Characters of what a store says."""
_HINDERED = ("53100", "53200", "55P03", "57014")
"""A disk or memory that is full, a lock, a time limit; and classes 25 and 40: a server that only reads, a deadlock."""
_CERTIFICATE = "Check 'tls.client.cert_file', 'tls.client.key_file', and the server's pg_hba.conf."
_AUTHORITY = (
    "'tls.ca_cert_file' gives the certificate authorities to trust, 'uris' the host as the certificate names it."
)
_HINTS = {
    "28P01": "Check 'postgres.username' and 'postgres.password'.",
    "28000": "Check 'postgres.username', 'tls.disabled', and the server's pg_hba.conf.",
    "3D000": "Check the database in 'uris'.",
}


def translate(e: psycopg.Error, store: str, entity: str) -> PgStreamError:
    """The condition of ours that says what went wrong."""
    code = e.sqlstate or ""
    if code[:2] in ("25", "40") or code in _HINDERED:
        return StoreHindered(name=store, why=_short(_why(e)))
    if code[:2] in ("", "08", "28", "3D", "53", "57", "55") or isinstance(e, psycopg.OperationalError):
        return unreachable(store, code, _short(_why(e)), str(e)[:_LONGEST])
    told = _short(e.diag.message_primary or _why(e))
    detail = _short(e.diag.message_detail) if e.diag.message_detail else None
    match code:
        case "42501":
            return InsufficientPrivilege(kind="entity", name=entity, detail=f"{_sentence(told)}.")
        case "42P01" | "3F000":
            return UndefinedEntity(name=entity, store=store, detail=f"{_sentence(told)}.")
        case "42703":
            name = _COLUMN.fullmatch(told)
            return UndefinedColumn(
                name=name["name"] if name is not None else told,
                detail=f'Entity "{entity}" of store "{store}" does not have it.',
                hint="DESCRIBE ENTITY shows the columns that it has; declare the relation with these.",
            )
        case "42P07":
            return DuplicateObject(kind="entity", name=entity)
        case "2BP01":
            return DependentsExist(kind="entity", name=entity, users=[], detail=detail)
    return InvalidOption(what=told, detail=detail)


def _short(text: str) -> str:
    """What a store says may be of any length."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _why(e: psycopg.Error) -> str:
    """The last thing that libpq says, without the address before it."""
    lines = [line.strip() for line in str(e).strip().splitlines() if line.strip()]
    text = (e.diag.message_primary or (lines[0] if lines else "the connection was lost")).removeprefix(
        "connection failed: "
    )
    for mark in ("FATAL:  ", "ERROR:  "):
        text = text.rsplit(mark, 1)[-1]
    return text


def unreachable(store: str, code: str, why: str, said: str) -> StoreUnreachable:
    """Why there is no connection. ``code`` is empty for what fails while libpq connects, ``said`` all that it says."""
    if code[:2] == "28" or any(word in said for word in _UNTRUSTED):
        return StoreRefused(name=store, why=why, hint=_hint(code, said))
    return StoreUnreachable(name=store, why=why, hint=_hint(code, said))


_ROLE = re.compile(r'role ".*" (does not exist|is not permitted to log in)')
_UNTRUSTED = ("authentication failed", "no password supplied", "pg_hba.conf", 'FATAL:  role "')


def _hint(code: str, text: str) -> str | None:
    lowered = text.lower()
    if "client certificate" in lowered or "certificate authentication" in lowered or " alert " in lowered:
        return _CERTIFICATE
    if "certificate verify failed" in lowered or "does not match host name" in lowered:
        return _AUTHORITY
    if "server does not support SSL" in text:
        return "A server without TLS needs 'tls.disabled' = TRUE."
    for known, hint in _HINTS.items():
        if code == known:
            return hint
    # libpq gives no code for what fails while it connects.
    if "authentication failed" in text or "no password supplied" in text:
        return _HINTS["28P01"]
    if _ROLE.search(text) is not None:
        return "Check 'postgres.username'."
    if "permission denied for database" in text:
        return "The user of 'postgres.username' needs CONNECT on the database in 'uris'."
    if any(word in text for word in ("too many c", "connection slots")):
        return "Try again when the server has a connection free, or raise its limit."
    if "pg_hba.conf" in text or "SSL" in text or "certificate" in text:
        return _HINTS["28000"]
    if "does not exist" in text:
        return _HINTS["3D000"]
    return None


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
