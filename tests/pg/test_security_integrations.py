"""The token of a security integration: shown once, kept as a digest, replaced by RENEW TOKEN."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.server import Server

pytestmark = pytest.mark.pg


def one(c: psycopg.Connection[Any], text: bytes) -> tuple[Any, ...]:
    row = c.execute(text).fetchone()
    assert row is not None
    return row


def test_token_is_shown_once(server: Server) -> None:
    with server.connect() as c:
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for organization"):
            c.execute(b"CREATE SECURITY INTEGRATION okta WITH ('type' = SCIM)")
        c.execute(b"USE ROLE useradmin")
        made = one(c, b"CREATE SECURITY INTEGRATION okta WITH ('type' = SCIM)")
        assert made[:4] == (
            "security integration",
            "okta",
            "CREATE",
            "security integration okta was successfully created",
        )
        again = one(c, b"CREATE SECURITY INTEGRATION IF NOT EXISTS okta WITH ('type' = SCIM)")
        assert again[3:] == ("security integration okta already exists", None, None, None)
        renewed = one(c, b"ALTER SECURITY INTEGRATION okta RENEW TOKEN")
        assert len(made[4]) >= 43 and len(renewed[4]) >= 43 and made[4] != renewed[4]
        listed = one(c, b"LIST SECURITY INTEGRATIONS")
        assert listed[:2] == ("okta", "scim")
        described = one(c, b"DESCRIBE SECURITY INTEGRATION okta")
        assert described[:2] == ("okta", "scim")
        for token in (made[4], renewed[4]):
            assert token not in str(listed) + str(described)
        with pytest.raises(psycopg.errors.DuplicateObject):
            c.execute(b"CREATE SECURITY INTEGRATION okta WITH ('type' = SCIM)")
        assert one(c, b"DROP SECURITY INTEGRATION okta")[2] == "DROP"
