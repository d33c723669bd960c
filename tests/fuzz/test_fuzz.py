"""A fixed number of changed sessions, the same every time; ``make fuzz`` goes on from other seeds."""

from __future__ import annotations

from tests.fuzz.__main__ import fuzz
from tests.fuzz.transcript import all_of_them

SESSIONS = 400


def test_changed_sessions() -> None:
    assert fuzz("pgstream", range(SESSIONS)) == SESSIONS


def test_transcripts_are_of_real_clients() -> None:
    told = all_of_them()
    assert {"psql", "pgbench", "psycopg", "asyncpg"} <= set(told)
    kinds = {kind for messages in told.values() for kind, _ in messages}
    assert set("QPBDESHdc") <= kinds
