"""Replacing the query of a view, without Spark: what the sinks would write is written here."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import threading
import time
import uuid
from typing import Any

import psycopg
import pytest

from pgstream.catalog import queries, replacing
from pgstream.catalog.postgres import LOCKED
from pgstream.catalog.records import QueryRecord
from pgstream.catalog.store import REPLACES, Catalog
from pgstream.errors import (
    BeingReplaced,
    DependentsExist,
    NotSupported,
    ReadersRemain,
    RelayedError,
    Superseded,
    UndefinedRelation,
)
from pgstream.names import FullName, beside
from tests.pg.catalog.conftest import eventually
from tests.pg.catalog.test_catalog import query, view

COUNTS = FullName("main", "public", "counts")
TEXT, NUMBER = {"name": "userid", "type": "VARCHAR"}, {"name": "n", "type": "BIGINT"}


def other(
    mode: str = "upsert", key: tuple[str, ...] = ("userid",), columns: Any = (TEXT, NUMBER), **more: str
) -> QueryRecord:
    sink = {"type": "view", "mode": mode, "key": key, "options": more}
    plan = json.dumps({"sink": sink, "columns": columns}).encode()
    return dataclasses.replace(query("counts"), id=str(uuid.uuid4()), kind=REPLACES, plan=plan)


def always(old: object, new: object) -> bool:
    return True


def ledger(ask) -> list[Any]:
    return ask("SELECT query::text, sink, attempt FROM pg_pgstream.ledger ORDER BY sink", None)


MODES = {
    "upsert": (("userid",), "VALUES ('a', 1), (NULL, 2), ('c', 3)", "VALUES ('a', 1), (NULL, 5), ('d', NULL)"),
    "upsert of one row": ((), "VALUES ('a', 1)", "VALUES ('b', NULL::bigint)"),
    "upsert of none": ((), "VALUES ('a', 1)", "SELECT NULL, 1 WHERE false"),
    "retract": ((), "VALUES ('a', 1), ('a', 1), (NULL, 2)", "VALUES ('a', 1), (NULL, 2), (NULL, 2), (NULL, NULL)"),
    "append": ((), "VALUES ('a', 1), ('a', 1), (NULL, 2)", "VALUES ('a', 1), (NULL, 2), (NULL, 2), (NULL, NULL)"),
}


@pytest.mark.parametrize("case", MODES)
async def test_the_difference_alone_is_written(catalog: Catalog, ask, write, case: str) -> None:
    (key, before, after), mode = MODES[case], case.split(maxsplit=1)[0]
    made = await catalog.create_query(other(mode, key), view())
    write(f"INSERT INTO public.counts {before}")
    new = await catalog.create_replacement(other(mode, key), view())
    write(f"INSERT INTO {beside(new.id)} {after}")
    was = dict(ask("SELECT ctid::text, md5(counts::text) FROM counts"))
    assert await catalog.replace_view(new.id, always, 1)
    now = dict(ask("SELECT ctid::text, md5(counts::text) FROM counts"))
    rows = "SELECT count(*), userid, n FROM {} t (userid, n) GROUP BY 2, 3 ORDER BY 2, 3"
    assert ask(rows.format("counts")) == ask(rows.format(f"({after})"))
    # Rows that are in both were not touched.
    common = ask(f"SELECT count(*) FROM (({before}) INTERSECT ALL ({after})) t")[0][0]
    assert len(was.items() & now.items()) == common
    assert ledger(ask) == [[made.id, "", 2**31 - 1], [new.id, '"public"."counts"', 1]]
    record = catalog.snapshot.relations[COUNTS.key]
    assert (record.query, record.mode, record.primary_key) == (new.id, mode, key)
    old = await catalog.query(made.id)
    assert (old.intended, old.actual) == ("terminated", "terminate_requested")
    await catalog.end_beside(made.id)
    assert [q for q, *_ in ledger(ask)] == [new.id]
    assert ask("SELECT relname FROM pg_class WHERE relname ~ '^r_'", None) == []


async def test_columns_key_and_options_change(catalog: Catalog, ask, write, reopen) -> None:
    await catalog.create_query(other(), view())
    write("INSERT INTO public.counts VALUES ('a', 1), ('b', 2)")
    ask("CREATE VIEW over AS SELECT userid FROM counts; CREATE INDEX mine ON counts (n)", None)
    ask("GRANT SELECT ON counts TO useradmin", None)
    await catalog.describe_column(COUNTS, "n", "how many")
    oid = ask("SELECT 'counts'::regclass::oid")
    more = {"name": "at", "type": "TIMESTAMP"}
    new = await catalog.create_replacement(other(key=("userid", "n"), columns=(TEXT, NUMBER, more), notify="x"), view())
    write(f"INSERT INTO {beside(new.id)} VALUES ('a', 1, NULL), ('a', 2, now())")
    # An index of a client's own is known by the catalogue; this one is not, and goes with those of the old key.
    assert await catalog.replace_view(new.id, always, 1)
    assert ask("SELECT userid, n, at IS NULL FROM counts ORDER BY n") == [["a", 1, True], ["a", 2, False]]
    assert ask("SELECT * FROM over", None) == [["a"], ["a"]] and ask("SELECT 'counts'::regclass::oid") == oid
    assert ask("SELECT has_table_privilege('useradmin', 'counts', 'SELECT')") == [[True]]
    with pytest.raises(psycopg.errors.UniqueViolation):
        write("INSERT INTO public.counts VALUES ('a', 1)")
    ask("REVOKE SELECT ON counts FROM useradmin", None)  # of which the catalogue does not know
    record = catalog.snapshot.relations[COUNTS.key]
    assert ([c.name for c in record.columns], record.properties) == (["userid", "n", "at"], {"notify": "x"})
    assert [c.description for c in record.columns] == [None, "how many", None]
    assert ask("SELECT col_description('counts'::regclass, 2)") == [["how many"]]
    again = await reopen()
    assert again.repaired == []
    await again.close()


async def test_readers_wait_for_nothing(catalog: Catalog, postgres, ask, write) -> None:
    """A transaction of before goes on with what it saw; who comes during the exchange sees the view as it was."""
    await catalog.create_query(other(), view())
    write("INSERT INTO public.counts SELECT 'k' || i, 1 FROM generate_series(1, 1000) i")
    new = await catalog.create_replacement(other(), view())
    write(f"INSERT INTO {beside(new.id)} SELECT 'k' || i, 2 FROM generate_series(1, 1000) i")
    url, over, wrong, seen = postgres.url("main", "admin", "first's password"), threading.Event(), [], set()

    def read() -> None:
        with psycopg.connect(url, autocommit=True, options="-c role=sysadmin -c lock_timeout=1") as conn:
            while not over.is_set():
                (row,) = conn.execute("SELECT count(*), min(n), max(n) FROM counts", prepare=True).fetchall()
                seen.add(row)
                if row not in ((1000, 1, 1), (1000, 2, 2)):
                    wrong.append(row)

    thread = threading.Thread(target=read)
    with psycopg.connect(url, options="-c role=sysadmin") as before:
        before.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor = before.cursor("c")
        cursor.execute("SELECT n FROM counts")
        assert cursor.fetchone() == (1,)
        thread.start()
        while not seen:
            pass
        assert await catalog.replace_view(new.id, always, 1)
        assert {n for (n,) in cursor.fetchall()} == {1}
        cursor.close()
        assert before.execute("SELECT sum(n) FROM counts").fetchone() == (1000,)
    while (1000, 2, 2) not in seen and thread.is_alive():
        pass
    over.set()
    thread.join()
    assert wrong == [] and seen == {(1000, 1, 1), (1000, 2, 2)}


async def test_new_columns_wait_for_a_transaction_and_readers_for_neither(
    catalog: Catalog, postgres, ask, write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has read the view stays open, so that nobody can have the view alone."""
    monkeypatch.setattr(replacing, "_READERS_WAIT_S", 0.05)
    await catalog.create_query(other(), view())
    more = other(columns=(TEXT, NUMBER, {"name": "more", "type": "BIGINT"}))
    new = await catalog.create_replacement(more, view())
    write(f"INSERT INTO {beside(new.id)} VALUES ('a', 1, 2)")
    url, over, looks = postgres.url("main", "admin", "first's password"), threading.Event(), []

    def read() -> None:
        with psycopg.connect(url, autocommit=True, options="-c role=sysadmin -c lock_timeout=1s") as conn:
            while not over.is_set():
                looks.append(conn.execute("SELECT userid FROM counts").fetchall())
                time.sleep(0.02)

    thread = threading.Thread(target=read)
    with psycopg.connect(url, options="-c role=sysadmin") as opened:
        assert opened.execute("SELECT userid FROM counts").fetchall() == []
        thread.start()
        with pytest.raises(RelayedError) as e:
            await catalog.replace_view(new.id, always, 3)
        assert e.value.sqlstate == LOCKED and thread.is_alive()
        over.set()
        thread.join()
    assert len(looks) > 1 and all(rows == [] for rows in looks)
    assert await catalog.replace_view(new.id, always, 3)
    assert ask("SELECT more FROM counts") == [[2]]


async def test_not_before_it_is_as_far(catalog: Catalog, ask, write) -> None:
    made = await catalog.create_query(other(), view())
    new = await catalog.create_replacement(other(), view())
    asked: list[Any] = []

    def never(old: Any, new: Any) -> bool:
        asked.append((old, new))
        return False

    set_ = "UPDATE pg_pgstream.ledger SET consumed = '{}' WHERE query = '{}'"
    write(set_.format('[{"store": "k", "at": {"t": {"0": 7}}}]', made.id))
    assert not await catalog.replace_view(new.id, never, 0.3)
    assert asked[0] == ([{"store": "k", "at": {"t": {"0": 7}}}], []) and len(asked) > 2
    assert catalog.snapshot.relations[COUNTS.key].query == made.id
    with pytest.raises(BeingReplaced) as e:
        await catalog.create_replacement(other(), view())
    assert e.value.hint is not None and new.id in e.value.hint
    # Given up: nothing is left of it.
    await catalog.set_query(new.id, intended="terminated", actual="terminate_requested")
    assert not await catalog.replace_view(new.id, always, 1)
    await catalog.end_beside(new.id)
    await catalog.set_query(new.id, actual="terminated")
    assert [q for q, *_ in ledger(ask)] == [made.id]
    assert ask("SELECT relname FROM pg_class WHERE relname ~ '^r_'", None) == []
    assert await catalog.create_replacement(other(), view())


async def test_queries_that_read_it_are_told_the_difference(catalog: Catalog, ask, write) -> None:
    await catalog.create_query(other(), view())
    write("INSERT INTO public.counts VALUES ('a', 1), ('b', 2)")
    reader = await catalog.create_query(query("sums", sources=(str(COUNTS),)), view("sums"), reads=[COUNTS])
    new = await catalog.create_replacement(other(), view())
    write(f"INSERT INTO {beside(new.id)} VALUES ('a', 1), ('c', 3)")
    (log,) = await catalog.view_logs(reader)
    assert await catalog.replace_view(new.id, always, 1)
    told = f'SELECT userid, n, __delete FROM pg_pgstream."{log}" ORDER BY __seq'
    assert ask(told, None) == [["a", 1, False], ["b", 2, False], ["b", 2, True], ["c", 3, False]]
    # Who writes the view now waits for the new query's row, and the triggers are still nobody's business.
    arguments = ask("SELECT encode(tgargs, 'escape'), tgisinternal FROM pg_trigger WHERE tgname ~ '_b$'", None)
    assert len(arguments) == 1 and new.id in arguments[0][0] and arguments[0][1]
    ask("DELETE FROM counts WHERE userid = 'a'", None)
    assert ask(told, None)[-1] == ["a", 1, True]
    changed = other(columns=(TEXT, NUMBER, {"name": "x", "type": "BIGINT"}))
    with pytest.raises(ReadersRemain):
        await catalog.check_replacement(catalog.snapshot.relations[COUNTS.key], changed, None)


@pytest.mark.parametrize("cut", ["before", "after"])
async def test_a_crash_between_postgresql_and_the_catalogue(catalog: Catalog, ask, write, reopen, cut: str) -> None:
    """``cut``: before PostgreSQL has committed the exchange, or after."""
    made = await catalog.create_query(other(), view())
    write("INSERT INTO public.counts VALUES ('a', 1)")
    new = await catalog.create_replacement(other(), view())
    write(f"INSERT INTO {beside(new.id)} VALUES ('b', 2)")

    class Died(Exception):
        pass

    async def die(*_: object) -> None:
        raise Died

    def enough(old: object, new: object) -> bool:
        if cut == "before":
            raise Died
        return True

    with pytest.MonkeyPatch.context() as m, pytest.raises(Died):
        m.setattr(Catalog, "_tell", die)
        await catalog.replace_view(new.id, enough, 1)
    assert catalog.snapshot.relations[COUNTS.key].query == made.id
    again = await reopen()
    kept = again.snapshot.relations[COUNTS.key].query
    if cut == "before":
        assert (kept, again.repaired, ask("TABLE counts")) == (made.id, [], [["a", 1]])
        assert await again.replace_view(new.id, always, 1)
    else:
        assert (kept, again.repaired) == (new.id, [f"main.public.counts is kept by query {new.id}"])
        # Nobody has ended the old query yet: who looks again finds nothing to do.
        assert await again.finish_replacements() == []
        assert [sink for id, sink, _ in ledger(ask) if id == made.id] == [""]
    assert ask("TABLE counts") == [["b", 2]]
    assert (await again.query(made.id)).intended == "terminated"
    await again.close()


async def test_terminated_while_it_takes_over(catalog: Catalog, postgres, ask, write) -> None:
    """All is done in PostgreSQL when somebody ends it: it is taken back, and the view is as it was."""
    made = await catalog.create_query(other(), view())
    write("INSERT INTO public.counts VALUES ('a', 1)")
    new = await catalog.create_replacement(other(), view())
    write(f"INSERT INTO {beside(new.id)} VALUES ('b', 2)")

    def enough(old: object, new_: object) -> bool:
        with psycopg.connect(postgres.url("pgstream_control"), autocommit=True) as conn:
            conn.execute("UPDATE queries SET intended = 'terminated' WHERE id = %s", [new.id])
        return True

    assert not await catalog.replace_view(new.id, enough, 1)
    assert (catalog.snapshot.relations[COUNTS.key].query, ask("TABLE counts")) == (made.id, [["a", 1]])
    assert ledger(ask) == [[new.id, "", 0], [made.id, '"public"."counts"', 0]]
    await catalog.end_beside(new.id)
    assert [id for id, *_ in ledger(ask)] == [made.id]
    # Who ends the query that keeps the view, so an old snapshot, leaves it its row.
    await catalog.end_beside(made.id)
    assert [id for id, *_ in ledger(ask)] == [made.id]


@pytest.mark.parametrize("newer_first", [False, True])
async def test_progress_that_is_written_as_it_takes_over(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, newer_first: bool
) -> None:
    """Both queries tell how far they are when their rows are held."""
    made = await catalog.create_query(other(), view())
    new = await catalog.create_replacement(other(), view())
    progress = {id: {"batch": 1} for id in sorted((made.id, new.id), key=lambda id: (id == new.id) is not newer_first)}
    real, telling = queries.locked, list[asyncio.Task[None]]()

    async def locked(*given: Any) -> Any:
        found = await real(*given)
        telling.append(asyncio.create_task(catalog.record_progress(progress)))
        await asyncio.sleep(0.3)
        return found

    monkeypatch.setattr(queries, "locked", locked)
    assert await catalog.replace_view(new.id, always, 1)
    await telling[0]
    assert [(await catalog.query(q.id)).progress for q in (made, new)] == [{"batch": 1}] * 2


async def test_progress_is_written_in_the_order_of_the_ids(catalog: Catalog, postgres) -> None:
    low, high = sorted([(await catalog.create_query(query(n), view(n))).id for n in ("one", "two")])
    with psycopg.connect(postgres.url("pgstream_control")) as conn:
        conn.execute("UPDATE queries SET message = 'x' WHERE id = %s", [low])
        telling = asyncio.create_task(catalog.record_progress({high: {"batch": 1}, low: {"batch": 1}}))
        await asyncio.sleep(0.3)
        conn.execute("SELECT FROM queries WHERE id = %s FOR UPDATE NOWAIT", [high])
    await telling


async def test_one_that_keeps_the_view_is_never_discarded(catalog: Catalog, ask, write) -> None:
    made = await catalog.create_query(other(), view())
    write("INSERT INTO public.counts VALUES ('a', 1)")
    new = await catalog.create_replacement(other(), view())
    write(f"INSERT INTO {beside(new.id)} VALUES ('b', 2)")
    assert await catalog.replace_view(new.id, always, 1)
    for ended in (made, new):
        await catalog.set_query(ended.id, intended="terminated", actual="terminated")
    with pytest.raises(DependentsExist):
        await catalog.discard_query(new.id)
    assert (await catalog.query(new.id)).id == catalog.snapshot.relations[COUNTS.key].query
    assert ask("TABLE counts") == [["b", 2]]


async def test_one_that_had_ended_before_leaves_nothing(catalog: Catalog, ask) -> None:
    made = await catalog.create_query(other(), view())
    await catalog.set_query(made.id, intended="terminated", actual="terminated")
    new = await catalog.create_replacement(other(), view())
    assert await catalog.replace_view(new.id, always, 1)
    assert [id for id, *_ in ledger(ask)] == [new.id]


async def test_a_view_of_another_database_is_read(catalog: Catalog, ask, write) -> None:
    """The logs lie where the views do that are read."""
    await catalog.create_database("other", "sysadmin")
    there = FullName("other", "public", "there")
    source = await catalog.create_query(
        dataclasses.replace(query("there"), sinks=(str(there),)), dataclasses.replace(view(), full=there)
    )
    made = await catalog.create_query(dataclasses.replace(other(), sources=(str(there),)), view(), reads=[there])
    new = await catalog.create_replacement(dataclasses.replace(other(), sources=(str(there),)), view(), reads=[there])
    assert await catalog.replace_view(new.id, always, 1)
    assert catalog.snapshot.relations[COUNTS.key].query == new.id
    assert (made.id, source.id) != (new.id, new.id)


async def test_nothing_is_left_of_one_that_could_not_be_made(catalog: Catalog, ask, write) -> None:
    """The log of the first view is made, that of the second is not: neither stays."""
    await catalog.create_query(other(), view())
    gone = FullName("main", "public", "nothing")
    with pytest.raises(UndefinedRelation):
        await catalog.create_replacement(
            dataclasses.replace(other(), sources=(str(COUNTS),)), view(), reads=[COUNTS, gone]
        )
    assert ask("SELECT count(*) FROM pg_class WHERE relname ~ '^[cr]_' AND relkind = 'r'", None) == [[0]]
    assert ask("SELECT count(*) FROM pg_trigger WHERE tgrelid = 'counts'::regclass", None) == [[0]]


async def test_what_is_in_use_does_not_keep_a_server_from_starting(catalog: Catalog, postgres, ask, reopen) -> None:
    """Another server compares a view with what another query has made of the same records."""
    stray = beside(str(uuid.uuid4()))
    ask(f"CREATE TABLE {stray} (i int)", None)
    with psycopg.connect(postgres.url("main")) as using:
        using.execute(f"SELECT FROM {stray}".encode())
        again = await reopen()
        assert again.repaired == []
    third = await reopen()
    assert len(third.repaired) == 1 and "left-over table r_" in third.repaired[0]
    await again.close()
    await third.close()


async def test_retention_takes_turns_by_the_ledger_first(catalog: Catalog, postgres, ask, write) -> None:
    """It holds nothing of a view that is read by a query while it waits for who writes the view, or replaces it."""
    kept = dataclasses.replace(view(), properties={"retention.millis": "1"})
    made = await catalog.create_query(query("counts"), kept)
    write("INSERT INTO public.counts VALUES ('a', 1)")
    await catalog.create_query(
        dataclasses.replace(query("copies"), sources=(str(COUNTS),)),
        dataclasses.replace(view("copies")), reads=[COUNTS],
    )  # fmt: skip
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND state = 'active'"
    with psycopg.connect(postgres.url("main")) as writer:
        writer.execute("SELECT FROM pg_pgstream.ledger WHERE query = %s FOR UPDATE", [made.id])
        expiring = asyncio.create_task(catalog.expire_rows(catalog.snapshot.relations[COUNTS.key]))
        await eventually(lambda: ask(waits, None) == [[1]])
        held = "SELECT mode FROM pg_locks WHERE relation = 'counts'::regclass AND mode <> 'AccessShareLock'"
        assert ask(held, None) == []
    assert await expiring == 1


async def test_what_a_crash_left_beside_is_dropped(catalog: Catalog, ask, reopen) -> None:
    await catalog.create_query(other(), view())
    stray = beside(str(uuid.uuid4()))
    ask(f"CREATE TABLE {stray} (i int)", None)
    new = await catalog.create_replacement(other(), view())
    again = await reopen()
    assert len(again.repaired) == 1 and "left-over table r_" in again.repaired[0]
    assert ask("SELECT count(*) FROM pg_class WHERE relname ~ '^r_' AND relkind = 'r'", None) == [[1]]
    await again.discard_query(new.id)
    assert ask("SELECT count(*) FROM pg_class WHERE relname ~ '^r_' AND relkind = 'r'", None) == [[0]]
    await again.close()


async def test_the_index_by_which_rows_are_taken_back_stays(catalog: Catalog, ask, reopen) -> None:
    """A start takes it for no left-over, and makes it again where an earlier version did."""
    await catalog.create_query(other(mode="retract", key=()), view())
    index = "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = 'counts'::regclass"
    again = await reopen()
    assert (again.repaired, ask(index)) == ([], [["counts_hash_record_idx"]])
    ask("DROP INDEX counts_hash_record_idx", None)
    third = await reopen()
    assert (third.repaired, ask(index)) == (["index of main.public.counts made again"], [["counts_hash_record_idx"]])
    ask("DROP TABLE counts", None)
    fourth = await reopen()
    assert (fourth.repaired[0], ask(index)) == (
        "materialized view main.public.counts made again", [["counts_hash_record_idx"]],
    )  # fmt: skip
    for each in (again, third, fourth):
        await each.close()


STRAY = "INSERT INTO pg_pgstream.ledger (query, sink, batch, attempt) VALUES ('{}', '\"public\".\"counts\"', 3, 1)"


async def test_a_row_that_a_view_of_that_name_has_left_is_nobodys(catalog: Catalog, ask, reopen) -> None:
    """A server died over its CREATE or DROP, and the view was made again: neither is taken for the query that keeps it,
    whether the catalogue knows it or not.
    """
    ended = dataclasses.replace(query("x"), id=str(uuid.uuid4()), sinks=(str(COUNTS),))
    await catalog.create_query(ended)
    await catalog.set_query(ended.id, intended="terminated", actual="terminated")
    made = await catalog.create_query(other(), view())
    for stray in (str(uuid.uuid4()), ended.id):
        ask(STRAY.format(stray), None)
    assert await catalog.finish_replacements() == []
    again = await reopen()
    assert again.snapshot.relations[COUNTS.key].query == made.id and len(again.repaired) == 2
    assert [id for id, *_ in ledger(ask)] == [made.id]
    third = await reopen()
    assert third.repaired == []
    for each in (again, third):
        await each.close()


async def test_one_that_was_ended_before_its_exchange_was_written_down(
    catalog: Catalog, ask, write, reopen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL has the exchange: the view is the new query's, though somebody ended it before the catalogue knew."""
    await catalog.create_query(other(), view())
    new = await catalog.create_replacement(other(), view())
    write(f"INSERT INTO {beside(new.id)} VALUES ('b', 2)")

    async def die(*_: object) -> None:
        raise ConnectionError

    with monkeypatch.context() as m, pytest.raises(ConnectionError):
        m.setattr(Catalog, "_tell", die)
        await catalog.replace_view(new.id, always, 1)
    await catalog.set_query(new.id, intended="terminated", actual="terminated")
    again = await reopen()
    assert again.repaired == [f"main.public.counts is kept by query {new.id}"]
    await again.close()


async def test_what_another_query_keeps_by_now_is_not_replaced(catalog: Catalog) -> None:
    """A statement went by the view as it was: a REPAIR would bring its old definition back."""
    await catalog.create_query(other(), view())
    seen = catalog.snapshot.relations[COUNTS.key]
    new = await catalog.create_replacement(other(), seen)
    assert await catalog.replace_view(new.id, always, 1)
    with pytest.raises(Superseded) as e:
        await catalog.create_replacement(other(), seen, 7)
    assert e.value.at == 7 and e.value.hint
    assert await catalog.create_replacement(other(), catalog.snapshot.relations[COUNTS.key])


async def test_rows_that_are_over_do_not_come_back(catalog: Catalog, ask, write) -> None:
    """The table beside has all that its query has made; of that a view with a retention shows what is not over."""
    kept = {"retention.millis": "60000", "timestamp": "n"}
    await catalog.create_query(other(mode="retract", **kept), dataclasses.replace(view(), properties=kept))
    write("INSERT INTO public.counts VALUES ('new', extract(epoch FROM now()) * 1000)")
    new = await catalog.create_replacement(other(mode="retract", **kept), view())
    write(f"INSERT INTO {beside(new.id)} VALUES ('old', 1)", f"INSERT INTO {beside(new.id)} TABLE public.counts")
    was = ask("SELECT ctid::text FROM counts")
    assert await catalog.replace_view(new.id, always, 1)
    assert ask("SELECT userid FROM counts") == [["new"]] and ask("SELECT ctid::text FROM counts") == was


async def test_a_retention_beyond_all_times_is_none(catalog: Catalog, ask, write) -> None:
    kept = {"retention.millis": str(2**63 - 1), "timestamp": "n"}
    await catalog.create_query(other(**kept), dataclasses.replace(view(), properties=kept))
    write("INSERT INTO public.counts VALUES ('old', 1)")
    assert await catalog.expire_rows(catalog.snapshot.relations[COUNTS.key]) == 0
    new = await catalog.create_replacement(other(**kept), view())
    write(f"INSERT INTO {beside(new.id)} TABLE public.counts")
    assert await catalog.replace_view(new.id, always, 1)
    assert ask("TABLE counts") == [["old", 1]]


async def test_who_listens_is_told(catalog: Catalog, postgres, write) -> None:
    await catalog.create_query(other(notify="before"), dataclasses.replace(view(), properties={"notify": "before"}))
    new = await catalog.create_replacement(other(notify="After"), view())
    write(f"UPDATE pg_pgstream.ledger SET batch = 4 WHERE query = '{new.id}'")
    with psycopg.connect(postgres.url("main"), autocommit=True) as conn:
        conn.execute('LISTEN before; LISTEN "After"')
        assert await catalog.replace_view(new.id, always, 1)
        heard = {n.channel: n.payload for n in conn.notifies(timeout=5, stop_after=2)}
    assert heard == dict.fromkeys(("before", "After"), '{"view":"main.public.counts","batch":4}')


async def test_a_view_is_read_as_the_plan_knows_it(catalog: Catalog) -> None:
    """A plan was made before the view got another key, or row-level security; it is recorded afterwards."""
    await catalog.create_query(other(), view())
    seen = catalog.snapshot.relations[COUNTS.key]
    reader = query("sums", sources=(str(COUNTS),))
    await catalog.policies.switch(COUNTS, True)
    with pytest.raises(NotSupported) as no:
        await catalog.create_query(reader, view("sums"), reads=[COUNTS], sources=[seen])
    assert no.value.hint
    await catalog.policies.switch(COUNTS, False)
    new = await catalog.create_replacement(other(key=("userid", "n")), view())
    assert await catalog.replace_view(new.id, always, 1)
    with pytest.raises(Superseded) as e:
        await catalog.create_query(reader, view("sums"), reads=[COUNTS], sources=[seen])
    assert e.value.hint
    now = catalog.snapshot.relations[COUNTS.key]
    await catalog.create_query(reader, view("sums"), reads=[COUNTS], sources=[now])
    assert len(await catalog.view_logs(reader)) == 1
