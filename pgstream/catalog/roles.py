"""What PostgreSQL calls our roles.

Owns: the one name that differs. Must not know: anything else. Start reading at ``pg_role``.
"""

from __future__ import annotations

from pgstream.catalog.privileges import PUBLIC

EVERYBODY = "pgstream_public"
"""PostgreSQL's role for our role "public": PostgreSQL keeps that word, and nobody can SET ROLE to it."""


def pg_role(role: str) -> str:
    """PostgreSQL's name of a role of ours."""
    return EVERYBODY if role == PUBLIC else role
