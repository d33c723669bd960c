"""PostgreSQL's addresses in JDBC's form. Owns: ``jdbc``. Must not know: who connects."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit


def jdbc(url: str) -> dict[str, str]:
    """A libpq connection URL as JDBC's URL, user and password."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    address = f"jdbc:postgresql://{host}:{parts.port or 5432}{parts.path}"
    # reWriteBatchedInserts is not needed: rows come by COPY.
    query = f"?{parts.query}" if parts.query else ""
    return {"url": address + query, "user": unquote(parts.username or ""), "password": unquote(parts.password or "")}
