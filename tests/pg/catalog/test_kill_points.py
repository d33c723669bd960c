"""The server dies at a numbered point of a change; the next start finds the whole of it or nothing, and repairs.

A point is a round trip to PostgreSQL: even numbers die before it, odd ones when PostgreSQL has done what was asked and
nobody hears of it. From the point on nothing reaches PostgreSQL any more, as when a process is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import gc
import json
import os
import random
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import pytest

from pgstream.catalog.ledger import NEVER, table
from pgstream.catalog.policies import Using
from pgstream.catalog.privileges import Grant
from pgstream.catalog.records import ObjectRecord, PolicyRecord, RelationRecord, Snapshot
from pgstream.catalog.store import Catalog
from pgstream.errors import BeingReplaced
from pgstream.names import FullName, beside, view_log
from tests.pg.catalog.conftest import wipe
from tests.pg.catalog.test_catalog import query, stream, view
from tests.pg.catalog.test_replacing import always, other

pytestmark = pytest.mark.pg
SEED = int(os.environ.get("PGSTREAM_TEST_SEED", "20261121"))
POINTS = int(os.environ.get("PGSTREAM_TEST_POINTS", "1"))
"""How many points of each change are tried in a run; another seed tries others."""
FULL = FullName("main", "public", "counts")
INDEX = replace(view(), full=FullName("main", "public", "by_n"), kind="index", columns=(), mode="", query=None,
                properties={"on": "main.public.counts", "definition": "(n)"})  # fmt: skip
SECRET = ObjectRecord("secret", "s", "GENERIC_SECRET", owner="sysadmin")
Step = Callable[[Catalog], Awaitable[Any]]


async def _stream(catalog: Catalog) -> None:
    await catalog.create_relation(replace(stream(), id=""))


async def _view(catalog: Catalog) -> None:
    made = await catalog.create_query(query("counts"), replace(view(), id=""))
    await catalog.set_query(made.id, intended="terminated", actual="terminated")


async def _indexed(catalog: Catalog) -> None:
    await _view(catalog)
    await catalog.create_relation(replace(INDEX, id=""))


async def _other_database(catalog: Catalog) -> None:
    await catalog.create_database("other", "sysadmin")
    await catalog.create_schema("other", "s", "sysadmin")


# A change, and what has to be there before it.
CHANGES: dict[str, tuple[Step | None, Step]] = {
    "create_database": (None, lambda c: c.create_database("other", "sysadmin")),
    "drop_database": (_other_database, lambda c: c.drop_database("other")),
    "create_schema": (None, lambda c: c.create_schema("main", "s", "sysadmin")),
    "drop_schema": (_other_database, lambda c: c.drop_schema("other", "s")),
    "create_stream": (None, lambda c: c.create_relation(replace(stream(), id=""))),
    "drop_stream": (_stream, lambda c: c.drop_relation(stream().full)),
    "create_view": (None, lambda c: c.create_query(query("counts"), replace(view(), id=""))),
    "drop_view": (_indexed, lambda c: c.drop_relation(FULL)),
    "describe_view": (_view, lambda c: c.describe_relation(FULL, "words")),
    "truncate_view": (_view, lambda c: c.truncate_relation(FULL)),
    "create_index": (_view, lambda c: c.create_relation(replace(INDEX, id=""))),
    "drop_index": (_indexed, lambda c: c.drop_relation(INDEX.full)),
    "create_store": (None, lambda c: c.create_store("k", "kafka", {"a": "b", "p": "x"}, frozenset({"p"}), "sysadmin")),
    "create_object": (None, lambda c: c.inventory.create(SECRET, {"secret_string": "hush"})),
    "drop_object": (lambda c: c.inventory.create(SECRET, {"a": "x"}), lambda c: c.inventory.drop(SECRET.key)),
    "set_default": (None, lambda c: c.inventory.set_default("admin", "o", "schema", "s")),
}  # fmt: skip


TOKEN = ObjectRecord("api_token", "t", options={"token.role_name": "sysadmin"}, owner="sysadmin", created_by="admin")
_TO_ANN = {"email": "ann", "roles": "[]", "default_role": "public", "grantor": "orgadmin"}
INVITATION = ObjectRecord("invitation", "i", created_by="admin", options=_TO_ANN)
POLICY = PolicyRecord("p", ("sysadmin",), "n > 0")
USING = Using("sysadmin", 0)
END = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)


async def _policy(catalog: Catalog) -> None:
    await _view(catalog)
    await catalog.policies.create(FULL, POLICY, None, USING)


async def _user(catalog: Catalog) -> None:
    await catalog.users.invite(INVITATION, "hush")
    await catalog.users.accept(INVITATION, ["sysadmin"], "sysadmin")
    await catalog.users.create_token(replace(TOKEN, created_by="ann"), "hush", END)


CHANGES |= {
    "create_token": (None, lambda c: c.users.create_token(TOKEN, "hush", END)),
    "renew_token": (lambda c: c.users.create_token(TOKEN, "hush", END), lambda c: c.users.renew_token(TOKEN, "x", END)),
    "drop_token": (lambda c: c.users.create_token(TOKEN, "hush", END), lambda c: c.users.drop_token(TOKEN)),
    "invite_user": (None, lambda c: c.users.invite(INVITATION, "hush")),
    "accept_invitation": (lambda c: c.users.invite(INVITATION, "hush"),
                          lambda c: c.users.accept(INVITATION, ["sysadmin"], "sysadmin")),
    "reject_invitation": (lambda c: c.users.invite(INVITATION, "hush"), lambda c: c.users.withdraw(INVITATION)),
    "drop_user": (_user, lambda c: c.users.drop("ann")),
    "create_policy": (_view, lambda c: c.policies.create(FULL, POLICY, None, USING)),
    "enable_row_security": (_policy, lambda c: c.policies.switch(FULL, True)),
    "drop_policy": (_policy, lambda c: c.policies.drop(FULL, "p", None)),
}  # fmt: skip


async def _reader(catalog: Catalog) -> None:
    """A view upon a view, whose query reads the first one's changes."""
    await _view(catalog)
    await _read(catalog)


async def _read(catalog: Catalog) -> None:
    reads = replace(query("more", sources=(str(FULL),)), id=str(uuid.uuid4()))
    await catalog.create_query(reads, replace(view("more"), id=""), reads=[FULL])


async def _readers(catalog: Catalog, step: Callable[[str], Awaitable[Any]]) -> None:
    for found in await catalog.queries():
        if str(FULL) in found.sources:
            await step(found.id)


async def _end(catalog: Catalog, id: str) -> None:
    """As the engine ends a query."""
    await catalog.set_query(id, intended="terminated", actual="terminate_requested")
    await catalog.drop_view_logs(id)
    await catalog.set_query(id, actual="terminated")


SOURCE = ObjectRecord("descriptor_source", "d", "", options={"messages": "a.M"}, owner="sysadmin", created_by="admin")
REGISTRY = ObjectRecord("schema_registry", "g", "CONFLUENT", options={"uris": "http://x"}, owner="sysadmin")
ATTACHED = replace(SOURCE, options={"messages": "a.M", "attached to value of t in k": "a.M"})
ROLE = ObjectRecord("role", "r", owner="sysadmin", created_by="admin")
GRANT = Grant("r", "select", "relation", str(FULL))


async def _store(catalog: Catalog) -> None:
    await catalog.create_store("k", "kafka", {"a": "b", "p": "x"}, frozenset({"p"}), "sysadmin")


async def _role(catalog: Catalog) -> None:
    await _view(catalog)
    await catalog.authority.create_role(ROLE, [], ["sysadmin"])


async def _granted(catalog: Catalog) -> None:
    await _role(catalog)
    await catalog.authority.grant([GRANT])


async def _application(catalog: Catalog) -> None:
    """What it declares, and two views of one query."""
    sinks = [{"relation": f"main.public.{n}", "mode": "upsert", "key": ["n"]} for n in ("counts", "more")]
    plan = json.dumps({"root": {}, "sink": {"type": "sinks", "sinks": sinks}}).encode()
    record = replace(query("counts", plan=plan), sinks=("main.public.counts", "main.public.more"))
    made = [(replace(stream(), id=""), False, None), (replace(view(), id=""), True, None),
            (replace(view("more"), id=""), True, None)]  # fmt: skip
    await catalog.create_query(record, application=made)


async def _discard(catalog: Catalog) -> None:
    [found] = await catalog.queries()
    await catalog.discard_query(found.id, [stream().full])


async def _kept(catalog: Catalog) -> None:
    await catalog.create_query(other(), replace(view(), id=""))


async def _beside(catalog: Catalog) -> None:
    await _kept(catalog)
    await _replace(catalog)


async def _replace(catalog: Catalog) -> None:
    with contextlib.suppress(BeingReplaced):
        await catalog.create_replacement(other(), view())


async def _each_beside(catalog: Catalog, step: Callable[[str], Awaitable[Any]]) -> None:
    for _, found in await catalog.replacements():
        await step(found.id)


CHANGES |= {
    "begin_replacement": (_kept, _replace),
    "exchange": (_beside, lambda c: _each_beside(c, lambda id: c.replace_view(id, always, 1))),
    "discard_replacement": (_beside, lambda c: _each_beside(c, c.discard_query)),
    "create_application": (None, _application),
    "discard_application": (_application, _discard),
    "read_view": (_view, _read),
    "end_reader": (_reader, lambda c: _readers(c, lambda id: _end(c, id))),
    "discard_reader": (_reader, lambda c: _readers(c, c.discard_query)),
    "truncate_read_view": (_reader, lambda c: c.truncate_relation(FULL)),
    "drop_store": (_store, lambda c: c.drop_store("k")),
    "update_store": (_store, lambda c: c.update_store("k", {"a": "c", "p": "y"}, frozenset({"p"}))),
    "create_descriptors": (None, lambda c: c.inventory.create(SOURCE, {"file": "QUJD"})),
    "attach_descriptor": (lambda c: c.inventory.create(SOURCE, {"file": "QUJD"}),
                          lambda c: c.inventory.update(ATTACHED)),
    "create_registry": (None, lambda c: c.inventory.create(REGISTRY, {"password": "hush"})),
    "drop_registry": (lambda c: c.inventory.create(REGISTRY, {"password": "hush"}),
                      lambda c: c.inventory.drop(REGISTRY.key)),
    "create_role": (_view, lambda c: c.authority.create_role(ROLE, [], ["sysadmin"])),
    "drop_role": (_role, lambda c: c.authority.drop_role("r")),
    "grant": (_role, lambda c: c.authority.grant([GRANT])),
    "revoke": (_granted, lambda c: c.authority.revoke([GRANT])),
    "give_view": (_granted, lambda c: c.authority.give("relation", str(FULL), "r")),
    "alter_policy": (_policy, lambda c: c.policies.alter(FULL, "p", replace(POLICY, using="n > 1"), None, USING)),
    "copy_system_tables": (_view, lambda c: c.copy_system_tables("main")),
}  # fmt: skip


class Killed(BaseException):
    """The end of the process, as far as PostgreSQL is concerned."""


@dataclass
class Life:
    """Counts round trips, and ends them all at the chosen point."""

    point: int = -1
    trips: int = 0
    dead: bool = False

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        waiting = psycopg.AsyncConnection.wait

        async def wait(conn: psycopg.AsyncConnection[Any], gen: Any, **more: Any) -> Any:
            if self.dead:
                gen.close()
                raise Killed()
            trip, self.trips = self.trips, self.trips + 1
            if 2 * trip == self.point:
                self.dead = True
                gen.close()
                raise Killed()
            answer = await waiting(conn, gen, **more)
            if 2 * trip + 1 == self.point:
                self.dead = True
                raise Killed()
            return answer

        monkeypatch.setattr(psycopg.AsyncConnection, "wait", wait)

    def bury(self) -> None:
        """Close what a dead process holds open."""
        for found in gc.get_objects():
            if isinstance(found, psycopg.AsyncConnection):
                found.pgconn.finish()


def shown(snapshot: Snapshot) -> dict[str, Any]:
    """What is there, without the ids and moments that are made anew."""
    return {
        "databases": sorted(snapshot.databases), "schemas": sorted(snapshot.schemas),
        "stores": sorted((s.name, dict(s.options)) for s in snapshot.stores.values()),
        "relations": sorted(
            (str(r.full), r.kind, r.description, r.row_security, r.policies, r.owner)
            for r in snapshot.relations.values()
        ),
        "copies": sorted(snapshot.system_copies),
        "memberships": sorted((m.role, m.member) for m in snapshot.access.memberships),
        "grants": sorted((g.role, g.privilege, g.name) for of in snapshot.access.grants.values() for g in of),
        "tokens": dict(snapshot.access.tokens), "users": snapshot.access.users,
        "objects": sorted((o.key, sorted(o.options.items())) for o in snapshot.objects.values()),
        "defaults": dict(snapshot.defaults),
    }  # fmt: skip


def in_postgres(postgres: Any, database: str, relations: list[RelationRecord]) -> None:
    """PostgreSQL has the relations of the catalogue, and no other of ours."""
    with psycopg.connect(postgres.url(database)) as conn:
        found = conn.execute(
            "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.relowner = 'pgstream_worker'::regrole AND n.nspname !~ '^pg_' AND (c.relkind IN ('r', 'v')"
            " OR c.relkind = 'i' AND NOT (SELECT indisunique FROM pg_index WHERE indexrelid = c.oid)) ORDER BY 1, 2"
        ).fetchall()
    assert found == sorted((r.full.schema, r.full.name) for r in relations)


def logs_agree(postgres: Any, database: str, live: list[str]) -> None:
    """Views write their changes for queries that live, each into a log that is there."""
    with psycopg.connect(postgres.url(database)) as conn:
        found = conn.execute("SELECT relname FROM pg_class WHERE relname ~ '^c_[0-9a-f]{32}_' AND relkind = 'r'")
        logs = {name for (name,) in found.fetchall()}
        triggers = conn.execute("SELECT tgname, tgenabled <> 'D' FROM pg_trigger WHERE tgname ~ '^c_[0-9a-f]{32}_'")
        written = {(name[:-2], on) for name, on in triggers.fetchall()}
    assert written == {(log, True) for log in logs}
    assert all(any(log.startswith(view_log(id)) for id in live) for log in logs)


def ledger_agrees(postgres: Any, database: str, relations: list[RelationRecord], live: list[str]) -> None:
    """The query that keeps a view has a row that says so, and no other one; what is beside views is of queries that
    live.
    """
    with psycopg.connect(postgres.url(database)) as conn:
        rows = conn.execute(
            "SELECT query::text, string_to_array(sink, E'\\n') FROM pg_pgstream.ledger WHERE attempt <> %s", [NEVER]
        ).fetchall()
        asked = conn.execute("SELECT relname FROM pg_class WHERE relname ~ '^r_[0-9a-f]{32}$' AND relkind = 'r'")
        tables = {name for (name,) in asked.fetchall()}
    kept = sorted((table(r), r.query) for r in relations if r.kind == "materialized_view")
    assert sorted((sink, query) for query, sinks in rows for sink in sinks) == kept
    assert {query for query, sinks in rows if not sinks} <= set(live)
    assert tables <= {beside(id).split('"')[1] for id in live}


@pytest.mark.parametrize("name", sorted(CHANGES))
async def test_killed(name: str, catalog: Catalog, reopen: Any, postgres: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare, change = CHANGES[name]
    if prepare is not None:
        await prepare(catalog)
    # How many points there are, and what is there when nobody dies.
    start = shown(catalog.snapshot)
    whole = Life()
    with monkeypatch.context() as patch:
        whole.patch(patch)
        await change(catalog)
    await catalog.refresh()
    end = shown(catalog.snapshot)
    points = random.Random(f"{SEED} {name}").sample(range(2 * whole.trips), min(POINTS, 2 * whole.trips))
    for point in sorted(points):
        await catalog.close()
        wipe(postgres)
        catalog = await reopen()
        if prepare is not None:
            await prepare(catalog)
        life = Life(point)
        with monkeypatch.context() as patch:
            life.patch(patch)
            try:
                await change(catalog)
            except BaseException as e:
                assert life.dead, f"point {point} of seed {SEED}: {e!r}"
            if catalog._watch is not None:
                catalog._watch.cancel()
                await asyncio.gather(catalog._watch, return_exceptions=True)
                catalog._watch = None
        life.bury()
        await catalog._engine.dispose(close=False)
        catalog = await reopen()
        where = f"point {point} of {2 * whole.trips}, seed {SEED}"
        assert shown(catalog.snapshot) in (start, end), where
        for database in catalog.snapshot.databases:
            mine = [r for r in catalog.snapshot.relations.values() if r.full.database == database]
            in_postgres(postgres, database, mine)
            live = [q.id for q in await catalog.queries()]
            logs_agree(postgres, database, live)
            ledger_agrees(postgres, database, mine, live)
        # What was cut off can be done now, unless it is done.
        if shown(catalog.snapshot) == start:
            await change(catalog)
            assert shown(catalog.snapshot) == end, where
    await catalog.close()
