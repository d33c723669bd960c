"""``"$user"`` in a search path is the user's own schema, whatever role the session works in."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.pg.door.whole import Whole, start


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    house = start(tmp_path_factory.mktemp("own"))
    yield house
    house.stop()


def schema(conn: psycopg.Connection) -> str | None:
    row = conn.execute("SELECT current_schema()").fetchone()
    return row[0] if row else None


def test_the_schema_of_a_users_name(house: Whole) -> None:
    with house.connect("admin") as conn, house.connect("mallory") as other:
        assert schema(conn) == "public"
        conn.execute("CREATE SCHEMA admin")
        assert schema(conn) == "admin"
        conn.execute("CREATE TABLE mine AS SELECT 1 AS n")
        assert (schema(other), other.execute("SHOW search_path").fetchone()) == ("public", ('"$user", public',))
    with house.connect("admin") as conn:
        assert conn.execute("SELECT n FROM mine").fetchone() == (1,)
        assert conn.execute("SHOW search_path").fetchone() == ('"$user", admin, public',)
        conn.execute("SET search_path TO public")
        assert schema(conn) == "public"
        conn.execute('SET search_path TO "$user"')
        assert schema(conn) == "admin"
        conn.execute("SELECT set_config('search_path', 'public, $user', false)")
        assert (schema(conn), conn.execute("SHOW search_path").fetchone()) == ("public", ("public, $user, admin",))


def test_in_a_transaction(house: Whole) -> None:
    with house.connect("admin") as conn:
        if not conn.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'admin'").fetchone():
            conn.execute("CREATE SCHEMA admin")
        conn.execute("SET search_path TO public")
        for local, end, after in (
            ("LOCAL ", "COMMIT", "public"), ("", "ROLLBACK", "public"), ("", "COMMIT", "admin"),
        ):  # fmt: skip
            conn.execute("BEGIN")
            conn.execute(f'SET {local}search_path TO "$user"'.encode())
            assert schema(conn) == "admin"
            conn.execute(end.encode())
            assert schema(conn) == after
        conn.execute("RESET search_path")
        assert schema(conn) == "admin"
        conn.execute("DROP SCHEMA admin CASCADE")
        assert schema(conn) == "public"
