"""What PostgreSQL calls our roles, and what API tokens log in as.

Owns: the one name of a role that differs, the login names of tokens and readers.
Must not know: anything else. Start reading at ``pg_role``.
"""

from __future__ import annotations

from pgstream.catalog.privileges import PUBLIC

EVERYBODY = "pgstream_public"
"""PostgreSQL's role for our role "public": PostgreSQL keeps that word, and nobody can SET ROLE to it."""


def login(user: str, token: str) -> str:
    """PostgreSQL's login role of an API token. The sign needs no quoting in the URLs of drivers."""
    return f"{user}~{token}"


def reader(role: str) -> str:
    """PostgreSQL's login with which workers read for a role. No user is named like the worker's own role."""
    return login("pgstream_worker", role)


def pg_role(role: str) -> str:
    """PostgreSQL's name of a role of ours."""
    return EVERYBODY if role == PUBLIC else role
