"""A PostgreSQL store without Spark, against a real server of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pgstream import stores
from pgstream.errors import InsufficientPrivilege, InvalidOption, PgStreamError, StoreUnreachable, UndefinedEntity
from pgstream.stores.postgresql import STORE
from pgstream.stores.spec import Admin, EntityColumn, NewRecord
from tests.compliance import Compliance, Place
from tests.postgres import Postgres
from tests.server import Server


class TestPostgresql(Compliance):
    @pytest.fixture
    def place(self, shop: Postgres) -> Place:
        away = {**shop.options, "uris": "postgresql://127.0.0.1:1/shop"}
        columns = [EntityColumn("id", "BIGINT", False), EntityColumn("Name", "VARCHAR"),
                   EntityColumn("price", "DECIMAL(12, 2)")]  # fmt: skip
        return Place(STORE, shop.options, away, "public.promises", columns=columns, primary_key=["id"],
                     record=b'{"id":1,"Name":"it\'s","price":12.30}')  # fmt: skip


@pytest.fixture
async def admin(shop: Postgres) -> AsyncIterator[Admin]:
    opened = stores.open_admin(STORE, "s", shop.options)
    yield opened
    await opened.close()


async def test_schemas_hold_tables(admin: Admin, shop: Postgres) -> None:
    shop.run("CREATE SCHEMA inner_s", "CREATE TABLE inner_s.t1 (a int)", "CREATE VIEW inner_s.v AS SELECT 1")
    assert [(e.name, e.is_leaf) for e in await admin.list_entities()] == [("inner_s", False), ("public", False)]
    for path in (["inner_s"], ["shop", "inner_s"]):
        assert [(e.name, e.is_leaf) for e in await admin.list_entities(path)] == [("t1", True)]
    for path in (["nowhere"], ["inner_s", "t1"]):
        with pytest.raises(UndefinedEntity):
            await admin.list_entities(path)
    with pytest.raises(InvalidOption) as e:
        await admin.describe("other.inner_s.t1")
    assert "is not the store's" in e.value.text


async def test_types_read_as_the_languages(admin: Admin, shop: Postgres) -> None:
    shop.run(
        "CREATE TYPE mood AS ENUM ('sad')",
        "CREATE DOMAIN money_of AS numeric(8,2)",
        "CREATE DOMAIN dear AS money_of CHECK (VALUE > 9)",
        """CREATE TABLE kinds (a bool, b int2, c int4, d int8, e float4, f float8, g numeric(10,2), h numeric, i text,
           j varchar(7), k bytea, l date, m timestamp, n timestamptz(3), o uuid, p jsonb, q int[], r mood, s time,
           t int[][], u dear, v int GENERATED ALWAYS AS (c + 1) STORED)""",
    )
    found = await admin.describe("kinds")
    assert found.name == "public.kinds"
    assert [c.type for c in found.columns or ()] == [
        "BOOLEAN", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10, 2)", "DECIMAL(38, 18)", "VARCHAR",
        "VARCHAR(7)", "VARBINARY", "DATE", "TIMESTAMP", "TIMESTAMP_LTZ(3)", "VARCHAR", "VARCHAR", "ARRAY<INTEGER>",
        "VARCHAR", "VARCHAR", "ARRAY<ARRAY<INTEGER>>", "DECIMAL(8, 2)",
        "INTEGER",
    ]  # fmt: skip


async def test_columns_in_words(admin: Admin) -> None:
    words = {
        "postgresql.columns": 'id BIGINT, "Odd, name" VARCHAR NOT NULL, n DECIMAL(7, 2)',
        "postgresql.primary.key": "id",
    }
    await admin.create("public.by_words", words)
    found = await admin.describe("by_words")
    assert [(c.name, c.nullable) for c in found.columns or ()] == [("id", False), ("Odd, name", False), ("n", True)]
    for wrong in ({}, {"postgresql.columns": "id"}, {"postgresql.columns": "id NOTHING"},
                  {"postgresql.columns": "id INT", "postgresql.primary.key": "other"}):  # fmt: skip
        with pytest.raises(InvalidOption):
            await admin.create("public.wrong", wrong)


@pytest.mark.parametrize(
    ("changed", "words", "hint"),
    [
        ({"postgres.password": "wrong"}, "password authentication failed", "postgres.password"),
        ({"postgres.username": "nobody"}, "password authentication failed", "postgres.username"),
        ({"uris": "postgresql://127.0.0.1:{port}/nothing"}, 'database "nothing" does not exist', "uris"),
        ({"tls.disabled": "false"}, "SSL", "tls.disabled"),
    ],
)
async def test_what_refuses_a_connection_is_said(
    shop: Postgres, changed: dict[str, str], words: str, hint: str
) -> None:
    options = shop.options | {k: v.format(port=shop.port) for k, v in changed.items()}
    admin = stores.open_admin(STORE, "s", options)
    with pytest.raises(StoreUnreachable) as e:
        await admin.check()
    assert words in e.value.text
    assert hint in (e.value.hint or "")
    assert "wrong" not in e.value.text.replace("wrong password", "")


async def test_what_the_server_refuses(shop: Postgres, admin: Admin) -> None:
    shop.run("CREATE TABLE kept (id int PRIMARY KEY)", "CREATE ROLE weak LOGIN PASSWORD 'w'")
    weak = stores.open_admin(STORE, "s", shop.options | {"postgres.username": "weak", "postgres.password": "w"})
    with pytest.raises(InsufficientPrivilege):
        await weak.insert("kept", [NewRecord(b'{"id": 1}')])
    await weak.close()
    await admin.insert("kept", [NewRecord(b'{"id": 1}')])
    for document in (b'{"id": 1}', b'{"id": "x"}', b'{"nope": 1}', b"[1]"):
        with pytest.raises(PgStreamError) as e:
            await admin.insert("kept", [NewRecord(document)])
        assert e.value.sqlstate.startswith("22")


def test_statements_over_a_store(server: Server, shop: Postgres) -> None:
    with server.connect() as c:
        c.execute(f"CREATE STORE pg_admin WITH ({shop.store})".encode())
        (row,) = c.execute("DESCRIBE STORE pg_admin").fetchall()
        assert "shop-pass" not in str(row)
        c.execute("CREATE ENTITY public.made IN STORE pg_admin WITH ('postgresql.columns' = 'id BIGINT, v VARCHAR', "
                  "'postgresql.primary.key' = 'id')")  # fmt: skip
        c.execute("""INSERT INTO ENTITY made IN STORE pg_admin VALUE('{"id": 1, "v": "x"}')""")
        assert ("made", True) in c.execute("LIST ENTITIES IN public IN STORE pg_admin").fetchall()
        assert c.execute("PRINT ENTITY made IN STORE pg_admin WITH ('from_beginning')").fetchall()[0][:2] == (
            '{"id" : 1}', '{"id":1,"v":"x"}',
        )  # fmt: skip
        # A column may be called as the alias of our own SQL.
        c.execute("CREATE ENTITY public.made_t IN STORE pg_admin WITH ('postgresql.columns' = 't BIGINT, v VARCHAR')")
        c.execute("""INSERT INTO ENTITY made_t IN STORE pg_admin VALUE('{"t": 1, "v": "x"}')""")
        rows = c.execute("PRINT ENTITY made_t IN STORE pg_admin WITH ('from_beginning')").fetchall()
        assert rows[0][1] == '{"t":1,"v":"x"}'
        # Also as the extended protocol asks, before it runs.
        found = c.execute("DESCRIBE ENTITY public.made IN STORE pg_admin", prepare=True)
        assert [d.name for d in found.description or ()] == ["Name", "Columns", "Primary Key", "Configs", "Records"]
        ((name, columns, key, configs, _),) = found.fetchall()
        assert (name, columns, key) == ("public.made", "id BIGINT NOT NULL, v VARCHAR", "id")
        assert "id bigint not null, v character varying" in configs
        # A table is declared with its own columns, or made.
        c.execute("CREATE TABLE pg_made WITH ('store' = pg_admin, 'postgresql.table.name' = 'made')")
        assert [r[:2] for r in c.execute("DESCRIBE TABLE COLUMNS pg_made").fetchall()] == [
            ("id", "BIGINT"), ("v", "VARCHAR")]  # fmt: skip
        c.execute("CREATE TABLE pg_new (a INT, b VARCHAR, PRIMARY KEY (a)) WITH ('store' = pg_admin)")
        assert shop.rows("SELECT count(*) FROM pg_new") == [(0,)]
        for text, code in (
            ("DROP ENTITY made IN STORE pg_admin", "2BP01"),
            (
                "CREATE TABLE pg_bad (a INT, nope INT) WITH ('store' = pg_admin, 'postgresql.table.name' = 'made')",
                "42703",
            ),
            ("CREATE TABLE pg_bad (id BOOLEAN) WITH ('store' = pg_admin, 'postgresql.table.name' = 'made')", "42804"),
            ("CREATE TABLE pg_bad (id INT) WITH ('store' = pg_admin, 'postgresql.db.name' = 'other')", "22023"),
            ("CREATE STORE pg_wrong WITH ('type' = POSTGRESQL, 'uris' = 'postgresql://u:p@h/d')", "22023"),
        ):
            with pytest.raises(Exception) as e:
                c.execute(text.encode())
            assert getattr(e.value, "sqlstate", None) == code, (text, e.value)
        c.execute("DROP TABLE pg_made")
        c.execute("DROP TABLE pg_new")
        c.execute("DROP ENTITY made IN STORE pg_admin")
        assert shop.rows("SELECT to_regclass('public.made')") == [(None,)]


PLANTED = (
    "CREATE ROLE mal LOGIN", "GRANT CREATE ON SCHEMA public TO mal", "CREATE TABLE lent (id int PRIMARY KEY)",
    "CREATE TABLE told (who text, by text)", "GRANT ALL ON told TO PUBLIC", "SET ROLE mal",
    "CREATE FUNCTION tells(name, name) RETURNS bool LANGUAGE sql AS $$ INSERT INTO told VALUES (current_user, '!~');"
    " SELECT true $$",
    "CREATE OPERATOR !~ (FUNCTION = tells, LEFTARG = name, RIGHTARG = name)",
    "CREATE FUNCTION row_to_json(lent) RETURNS json LANGUAGE sql AS $$ INSERT INTO told VALUES (current_user, 'row');"
    " SELECT '{}'::json $$",
    "CREATE FUNCTION json_populate_record(lent, json) RETURNS SETOF lent LANGUAGE sql AS $$"
    " INSERT INTO told VALUES (current_user, 'record'); SELECT 1 $$",
)  # fmt: skip


async def test_functions_and_operators_of_others_are_not_called(admin: Admin, shop: Postgres) -> None:
    """Those that fit better than PostgreSQL's own, in a schema of the search path; triggers find theirs as ever."""
    with shop.connect() as c:
        for text in PLANTED:
            c.execute(text.encode())
    shop.run(
        "CREATE TABLE heard (id int)",
        "CREATE FUNCTION hears() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO heard VALUES (NEW.id); RETURN NULL; END $$",
        "CREATE TRIGGER hears AFTER INSERT ON lent FOR EACH ROW EXECUTE FUNCTION hears()",
    )
    try:
        assert "pg_catalog" not in [e.name for e in await admin.list_entities()]
        await admin.insert("public.lent", [NewRecord(b'{"id": 7}')])
        assert [r.value async for r in admin.read("public.lent", True)] == [b'{"id":7}']
        assert (shop.rows("TABLE told"), shop.rows("TABLE heard")) == ([], [(7,)])
    finally:
        shop.run("DROP OWNED BY mal CASCADE", "DROP ROLE mal", "DROP TABLE lent, told, heard CASCADE")


async def test_long_rows_are_read_by_few(admin: Admin, shop: Postgres) -> None:
    """All of them at once would be more than one answer may have."""
    shop.run(
        "CREATE TABLE long_rows AS SELECT n, CASE WHEN n % 2 = 0 THEN repeat('x', 5000000) END AS said"
        " FROM generate_series(0, 29) n"
    )
    assert len([r async for r in admin.read("long_rows", True)]) == 30
    shop.run("DROP TABLE long_rows")
