"""What PostgreSQL calls our roles, and what API tokens log in as.

Owns: the one name of a role that differs, the login names of tokens and readers.
Must not know: anything else. Start reading at ``pg_role``.
"""

from __future__ import annotations

import hashlib

from pgstream.catalog.privileges import PUBLIC

NAME_BYTES = 63
"""What PostgreSQL keeps of a name: of a longer one the end is cut off, and two become one."""
EVERYBODY = "pgstream_public"
"""PostgreSQL's role for our role "public": PostgreSQL keeps that word, and nobody can SET ROLE to it."""


def login(user: str, token: str) -> str:
    """PostgreSQL's login role of an API token. The sign needs no quoting in the URLs of drivers."""
    return f"{user}~{token}"


def reader(role: str) -> str:
    """PostgreSQL's login role with which workers read for a role. No user is named like the worker's own role.

    Each role has one of its own: a name that leaves no room for it is hashed, behind letters that begin no role.
    """
    name = login("pgstream_worker", role)
    if len(name.encode()) <= NAME_BYTES:
        return name
    return login("pgstream_worker", "pg_" + hashlib.sha256(role.encode()).hexdigest()[:40])


def pg_role(role: str) -> str:
    """PostgreSQL's name of a role of ours."""
    return EVERYBODY if role == PUBLIC else role
