"""What a server knows after each change, whoever made it, is what it would read as a whole."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import fields
from typing import cast

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.pool import QueuePool

from pgstream.catalog.changes import Reader
from pgstream.catalog.delta import Delta, Part, applied
from pgstream.catalog.privileges import Grant
from pgstream.catalog.records import ObjectRecord, Snapshot
from pgstream.catalog.store import Catalog
from pgstream.errors import PgStreamError
from pgstream.names import FullName
from tests.pg.catalog.test_catalog import query, stream, view

pytestmark = pytest.mark.pg
PARTS = ("databases", "schemas", "stores", "relations", "objects", "defaults")


@pytest.fixture
async def second(catalog: Catalog, postgres, config) -> AsyncIterator[Catalog]:
    """Another server on the same PostgreSQL."""
    opened = await Catalog.open(config, postgres.url, config.data_dir)
    yield opened
    await opened.close()


def same(one: Snapshot, other: Snapshot) -> bool:
    return (
        all(getattr(one, part) == getattr(other, part) for part in PARTS)
        and set(one.access.memberships) == set(other.access.memberships)
        and {k: set(v) for k, v in one.access.grants.items()} == {k: set(v) for k, v in other.access.grants.items()}
    )


async def until_same(hearing: Catalog, other: Catalog) -> None:
    """Wait until one has heard of what the other did."""
    news = asyncio.Event()

    async def heard(delta: Delta) -> None:
        news.set()

    hearing.spread = heard
    async with asyncio.timeout(30):
        while not same(hearing.snapshot, other.snapshot):
            await news.wait()
            news.clear()


async def act(catalog: Catalog, choice: random.Random) -> None:
    """Some change, often one that is refused."""
    name, other = choice.choice("abcd"), choice.choice("abcd")
    match choice.randrange(11):
        case 0 | 1:
            await catalog.create_relation(stream(name))
        case 2:
            await catalog.drop_relation(FullName("main", "public", name))
        case 3:
            await catalog.describe_relation(FullName("main", "public", name), choice.choice(["x", None]))
        case 4:
            await catalog.create_schema("main", f"s_{name}", "sysadmin")
        case 5:
            await catalog.drop_schema("main", f"s_{name}")
        case 6:
            await catalog.create_store(name, "kafka", {"uris": "h:1"}, frozenset(), "sysadmin")
        case 7:
            await catalog.drop_store(name)
        case 8:
            await catalog.authority.create_role(ObjectRecord("role", f"r_{name}", owner="orgadmin"), [], [f"r_{other}"])
        case 9:
            await catalog.authority.drop_role(f"r_{name}")
        case 10:
            await catalog.authority.grant([Grant(f"r_{name}", "select", "relation", f"main.public.{other}")])


@pytest.mark.parametrize("seed", range(3))
async def test_two_servers_know_what_a_whole_reading_finds(catalog: Catalog, second: Catalog, seed: int) -> None:
    choice = random.Random(seed)
    done = 0
    for _ in range(60):
        by = choice.choice([catalog, second])
        try:
            await act(by, choice)
            done += 1
        except PgStreamError:
            pass
        await by.refresh()  # what the other did
        async with by._reading() as session:
            assert same(by.snapshot, applied(Snapshot(), await Reader().read(session)))
    assert done > 15
    await until_same(second, catalog)
    await until_same(catalog, second)


async def test_one_that_was_open_when_another_was_read_is_not_missed(catalog: Catalog, postgres) -> None:
    with psycopg.connect(postgres.url("pgstream_control")) as slow:
        slow.execute("INSERT INTO schemas (database, name, owner) VALUES ('main', 'early', 'sysadmin')")
        await catalog.create_schema("main", "late", "sysadmin")
        assert ("main", "late") in catalog.snapshot.schemas and ("main", "early") not in catalog.snapshot.schemas
        slow.commit()
    await catalog.refresh()
    assert ("main", "early") in catalog.snapshot.schemas


async def test_only_what_changed_is_read(catalog: Catalog) -> None:
    told: list[Delta] = []

    async def spread(delta: Delta) -> None:
        told.append(delta)

    catalog.spread = spread
    await catalog.create_relation(stream("a"))
    await catalog.create_relation(stream("b"))
    made = view()
    await catalog.create_query(query("counts"), made)
    await catalog.drop_relation(FullName("main", "public", "a"))
    key = "main", "public"
    assert [{of: part.keys for of, part in delta.items()} for delta in told] == [
        {"relations": {(*key, "a")}},
        {"relations": {(*key, "b")}},
        {"relations": {(*key, "counts")}},
        {"relations": {(*key, "a")}},
    ]
    assert told[-1]["relations"].found == {}
    await catalog.refresh()
    assert len(told) == 4, "nothing new, nothing told"


async def test_what_a_newer_server_logs_is_passed_over(catalog: Catalog, postgres) -> None:
    with psycopg.connect(postgres.url("pgstream_control"), autocommit=True) as control:
        control.execute("INSERT INTO changes (of, key) VALUES ('of_a_later_version', '{a}')")
    await catalog.create_relation(stream())
    assert ("main", "public", "pageviews") in catalog.snapshot.relations


async def test_the_log_does_not_grow_for_ever(catalog: Catalog, postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgstream.catalog.changes.FORGET_EVERY", 1)
    with psycopg.connect(postgres.url("pgstream_control"), autocommit=True) as control:
        control.execute("UPDATE changes SET at = now() - interval '2 days'")
        await catalog.create_relation(stream())
        assert control.execute("SELECT of, key FROM changes").fetchall() == [
            ("relations", ["main", "public", "pageviews"])
        ]


async def test_names_in_a_text_are_known_after_each_change(catalog: Catalog) -> None:
    assert not catalog.snapshot.mentions("SELECT * FROM pageviews")
    await catalog.create_relation(stream())
    assert catalog.snapshot.mentions("SELECT * FROM pageviews")
    await catalog.create_schema("main", "other", "sysadmin")
    await catalog.create_relation(stream(full=FullName("main", "other", "Pageviews")))
    await catalog.drop_relation(FullName("main", "public", "pageviews"))
    assert catalog.snapshot.mentions("SELECT * FROM pageviews"), "one of this name is left"
    await catalog.drop_relation(FullName("main", "other", "Pageviews"))
    assert not catalog.snapshot.mentions("SELECT * FROM pageviews")


def test_a_change_applied_twice_changes_nothing_more() -> None:
    before = Snapshot(stores={"a": 1, "b": 2})  # type: ignore[dict-item]
    delta = {"stores": Part({"c": 3}, frozenset(["a", "c"]))}
    once = applied(before, delta)
    assert once.stores == {"b": 2, "c": 3}
    assert applied(once, delta) == once
    assert {f.name for f in fields(before) if getattr(once, f.name) is not getattr(before, f.name)} == {"stores"}


async def test_what_reads_at_the_end_gives_its_connection_back(second: Catalog) -> None:
    """Else nobody closes it."""
    begun, over = asyncio.Event(), asyncio.Event()

    async def read() -> None:
        async with second._reading() as session:
            await session.execute(text("SELECT 1"))
            begun.set()
            await over.wait()

    reading = asyncio.ensure_future(read())
    await begun.wait()
    closing = asyncio.ensure_future(second.close())
    await asyncio.wait((closing,), timeout=0.2)
    assert not closing.done() and not reading.done()
    over.set()
    await closing
    assert reading.done() and cast(QueuePool, second._engine.pool).checkedout() == 0
