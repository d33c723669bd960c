"""The server's own tables go, whatever clients have made of them: they can name each by its number."""

from __future__ import annotations

import psycopg
import pytest

from pgstream.catalog import own_tables
from tests.pg.access.conftest import Ask, House

pytestmark = pytest.mark.pg
OWN = 'pg_pgstream."s_9_1"'


@pytest.fixture
def number(house: House) -> int:
    columns = "i int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, t text"
    house.superuser(f"CREATE TABLE {OWN} ({columns}); ALTER TABLE {OWN} OWNER TO pgstream_worker", "main")
    return int(house.superuser(f"SELECT '{OWN}'::regclass::oid", "main")[0][0])


async def dropped(house: House) -> None:
    async with house.catalog._administrator.connect("main") as conn, conn.transaction():
        await own_tables.drop(conn, OWN, "pg_pgstream.there_is_none")
        found = await (await conn.execute("SHOW lock_timeout")).fetchone()
        assert found == ("10s",)


def there(house: House) -> bool:
    return house.superuser(f"SELECT to_regclass('{OWN}') IS NOT NULL", "main") == [(True,)]


def test_a_table_of_ours_goes_with_what_names_it(house: House, ask: Ask, number: int) -> None:
    named = f"'{number}'::regclass"
    ask(f"CREATE VIEW public.pin_view AS SELECT {named} AS x", f"CREATE TABLE public.pin_table (x oid DEFAULT {named})",
        f"CREATE TEMPORARY VIEW pin_temporary AS SELECT {named} AS x",
        f"CREATE FUNCTION public.pin_function() RETURNS regclass BEGIN ATOMIC SELECT {named}; END",
        role="sysadmin")  # fmt: skip
    house.run(dropped(house))
    assert not there(house)
    assert ask("SELECT relname FROM pg_class WHERE relname ~ '^pin_'") == [("pin_table",)]
    ask("DROP TABLE public.pin_table")


def test_one_that_a_client_holds_stays_for_a_start(house: House, ask: Ask, number: int) -> None:
    ask(f"CREATE VIEW public.pin_held AS SELECT '{number}'::regclass AS x", role="sysadmin")
    with house.connect() as c, c.transaction():
        c.execute("SELECT * FROM public.pin_held")
        house.run(dropped(house))
        assert there(house)
    house.run(dropped(house))
    assert not there(house)
    with pytest.raises(psycopg.errors.UndefinedTable):
        ask("SELECT * FROM public.pin_held")


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ("indexrelid FROM pg_index WHERE indrelid", "regclass"),
        ("reltoastrelid FROM pg_class WHERE oid", "regclass"),
        ("oid FROM pg_type WHERE typrelid", "regtype"),
    ],
)
def test_so_does_what_names_a_part_of_it(house: House, ask: Ask, number: int, part: str, kind: str) -> None:
    ((found,),) = house.superuser(f"SELECT {part} = {number}", "main")
    ask(f"CREATE VIEW public.pin_part AS SELECT '{found}'::{kind} AS x", role="sysadmin")
    house.run(dropped(house))
    assert not there(house)
