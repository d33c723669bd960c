"""Selects to plans, over a small fixed catalogue (``RELATIONS``), and the errors of binding with their positions.

``plan want=view|stream|changelog|result``: the plan as a tree, then mode, kind, key and output columns.
``gives="a INTEGER, b VARCHAR; …"``: the columns that PostgreSQL says its queries have, in their order; ``rates`` is a
relation of its own, ``users_now`` and ``documents`` are tables of store ``pg``. ``expires``: its state has a time
to live. ``held``: it is written to a relation.
``error want=…``: ``SQLSTATE at OFFSET "text from there": message``. ``json``: the plan's JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from pgstream import types
from pgstream.catalog.records import ColumnRecord, DatabaseRecord, RelationRecord, Snapshot, StoreRecord
from pgstream.engine.requests import stores_of
from pgstream.errors import PgStreamError
from pgstream.names import FullName
from pgstream.planner.answers import Answers, Described, Named
from pgstream.planner.explain import explain
from pgstream.planner.held import held, lateness
from pgstream.planner.plan import (
    VERSION,
    Column,
    Outputs,
    Plan,
    ResultSink,
    Sinks,
    ViewSink,
    ends_apart_ms,
    load,
    outputs,
    walk,
)
from pgstream.planner.relations import Virtual
from pgstream.planner.select import Planned, plan_select
from pgstream.sql.cursor import Cursor
from tests.datadriven import Case, cases, check

HERE = Path(__file__).parent


def _relation(
    name: str,
    columns: Mapping[str, str],
    kind: str = "stream",
    key: tuple[str, ...] = (),
    *,
    mode: str = "",
    **properties: str,
) -> RelationRecord:
    return RelationRecord(
        id=name,
        full=FullName("main", "public", name),
        kind=kind,
        columns=tuple(ColumnRecord(n, types.parse(t), n not in key) for n, t in columns.items()),
        owner="o",
        primary_key=key,
        store=None if kind == "materialized_view" else "kafka",
        entity=f"topic_{name}",
        mode=mode,
        properties={"value.format": "JSON", **{k.replace("__", "."): v for k, v in properties.items()}},
    )


_PAGEVIEWS = {"viewtime": "BIGINT", "userid": "VARCHAR", "pageid": "VARCHAR"}
_USERS = {"registertime": "BIGINT", "userid": "VARCHAR", "regionid": "VARCHAR", "interests": "ARRAY<VARCHAR>",
          "contactinfo": 'STRUCT<phone VARCHAR, city VARCHAR, "State" VARCHAR, geo STRUCT<lat DOUBLE>>'}  # fmt: skip
_ALL = {"i": "INTEGER", "l": "BIGINT", "d": "DOUBLE", "s": "VARCHAR", "Case": "VARCHAR", "ts": "TIMESTAMP(3)",
        "f": "BOOLEAN", "m": "MAP<VARCHAR, INTEGER>", "arr": "ARRAY<BIGINT>"}  # fmt: skip
_CITIES = {"userid": "VARCHAR(20)", "city": "VARCHAR", "n": "BIGINT", "price": "DECIMAL(10, 2)",
           "since": "TIMESTAMP_LTZ(3)", "ok": "BOOLEAN"}  # fmt: skip
RELATIONS = [
    _relation("pageviews", _PAGEVIEWS, timestamp="viewtime"),
    _relation("users", _USERS, starting__position="EARLIEST", key__format="JSON", key__type="STRUCT<userid VARCHAR>"),
    _relation("users_log", {"userid": "VARCHAR", "city": "VARCHAR", "n": "INTEGER"}, "changelog", ("userid",)),
    _relation("t", _ALL),
    _relation("v", {"a": "INTEGER"}, "materialized_view", mode="append"),
    _relation("totals", {"k": "VARCHAR", "n": "BIGINT"}, "materialized_view", ("k",), mode="upsert"),
    _relation("loose", {"city": "VARCHAR", "n": "BIGINT"}, "materialized_view", mode="retract"),
    _relation("events", {"k": "VARCHAR", "at": "TIMESTAMP(3)"}, "materialized_view", mode="append", timestamp="at"),
    replace(_relation("shards", {"k": "VARCHAR"}), store="kinesis"),
    replace(_relation("users_now", _CITIES, "table", ("userid",)), store="pg", entity="public.Users"),
    replace(_relation("documents", {"id": "BIGINT", "doc": "STRUCT<a VARCHAR>"}, "table"), store="pg", entity="s.d"),
    replace(_relation("hidden", {"k": "VARCHAR"}, "materialized_view", mode="append"), row_security=True),
]
SNAPSHOT = Snapshot(
    databases={"main": DatabaseRecord("main", "o")},
    stores={
        n: StoreRecord(n, n, t, {}, "o")
        for n, t in {"kafka": "KAFKA", "other": "KAFKA", "kinesis": "KINESIS", "pg": "POSTGRESQL"}.items()
    },
    relations={(r.full.database, r.full.schema, r.full.name): r for r in RELATIONS},
)


RATES = RelationRecord(
    "", FullName("main", "public", "rates"), "table", tuple(ColumnRecord(n, types.TEXT) for n in ("k", "rate")), "o"
)


@dataclass
class Postgres(Answers):
    """PostgreSQL's answers as the case says them."""

    gives: list[str] = field(default_factory=list)

    def named(self, question: Named) -> RelationRecord | None:
        return RATES if question.full == RATES.full else None

    def described(self, question: Described) -> tuple[Column, ...]:
        if question.store:
            return ()  # it can answer
        if question not in self.queries:
            columns = (c.split(" ", 1) for c in self.gives.pop(0).strip().split(", "))
            self.queries[question] = tuple(Column(n, t) for n, t in columns)
        return self.queries[question]


def _plan(text: str, want: str, gives: str = "", expires: bool = False) -> Planned:
    c = Cursor(text)
    select = c.select()
    c.end()
    answers = Postgres(gives=gives.split(";"))
    return plan_select(select, SNAPSHOT, "main", "public", want, answers=answers, expires=expires)


def _run(case: Case) -> str:
    try:
        want, gives = case.args.get("want", "result"), case.args.get("gives", "")
        planned = _plan(case.input, want, gives, "expires" in case.args)
    except PgStreamError as e:
        hint = f"\nHINT: {e.hint}" if e.hint and "docs/statements" not in e.hint else ""
        detail = f"\nDETAIL: {e.detail}" if e.detail else ""
        where = "" if e.at is None else f' "{case.input[e.at : e.at + 12]}"'
        return f"{e.sqlstate} at {e.at}{where}: {e}{detail}{hint}"
    if case.directive == "json":
        return Plan(planned.root, ResultSink(planned.limit)).json().decode()
    key = f" by ({', '.join(planned.key)})" if planned.kind == "changelog" else ""
    limit = "" if planned.limit is None else f", limit {planned.limit}"
    kept = "" if planned.state_ttl_ms is None else f", state for {planned.state_ttl_ms} ms"
    root = held(planned.root) if "held" in case.args else planned.root
    if (late := lateness(planned.root)) and "held" in case.args:
        kept += f", late by up to {late} ms"
    return f"{explain(root)}\n{planned.kind}{key}, {planned.mode}{limit}{kept}: {', '.join(planned.columns)}"


@pytest.mark.parametrize("case", [c for f in sorted(HERE.glob("*.test")) for c in cases(f)], ids=str)
def test_plan(case: Case) -> None:
    out = _run(case)
    assert (case.directive == "error") == (" at " in out.split("\n")[0] and out[5:9] == " at "), out
    check(case, out)


def test_plan_survives_json() -> None:
    planned = _plan("SELECT userid FROM pageviews WHERE viewtime > 5", "result")
    plan = Plan(planned.root, ResultSink())
    assert load(plan.json()) == plan


@pytest.mark.parametrize(
    "line", [x for f in sorted((HERE / "golden").glob("*.jsonl")) for x in f.read_text().splitlines()]
)
def test_plans_of_earlier_versions_can_be_read(line: str) -> None:
    plan = load(line)
    again = plan.json()
    assert load(again) == plan and f'"version":{VERSION}' in again.decode()
    apart = {"apart": True} if json.loads(line).get("version", 1) < 3 else {}
    assert json.loads(again) == json.loads(line) | {"version": VERSION} | apart, "nothing of it is lost"


def test_plans_of_later_versions_are_refused() -> None:
    with pytest.raises(ValueError, match="newer"):
        load('{"root":{"type":"union","inputs":[]},"sink":{"type":"result"},"version":99}')


FIRST_READ = """
import sys, threading
from pgstream.planner.plan import load
sys.setswitchinterval(1e-6)
barrier = threading.Barrier(8)
def read():
    barrier.wait()
    load('{"root":{"type":"union","inputs":[]},"sink":{"type":"result"}}')
threads = [threading.Thread(target=read) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
"""


def test_the_first_plans_are_read_by_several_threads() -> None:
    """A worker that starts two queries at once read half-known types, and crashed."""
    readers = [subprocess.Popen([sys.executable, "-c", FIRST_READ]) for _ in range(4)]
    assert [reader.wait(60) for reader in readers] == [0] * 4


def test_relations_and_stores_are_listed_once() -> None:
    text = (
        "SELECT a.userid FROM pageviews a WITH ('source.deserialization.error.handling' = IGNORE_AND_LOG, "
        "'source.deserialization.error.log.topic' = 'bad', 'source.deserialization.error.log.store' = 'other') "
        "JOIN pageviews b WITHIN 1 HOUR ON a.userid = b.userid"
    )
    planned = _plan(text, "view")
    assert [r.full.name for r in planned.sources] == ["pageviews"]
    assert planned.stores == ("kafka", "other")


def test_a_table_that_is_looked_up_is_read_and_its_store_used() -> None:
    """What is read is what the role needs SELECT on, and what DROP is refused for; the worker is given the store."""
    planned = _plan("SELECT p.userid FROM users_now u RIGHT JOIN pageviews p ON u.userid = p.userid", "view")
    assert [r.full.name for r in planned.sources] == ["pageviews", "users_now"]
    assert planned.stores == ("kafka", "pg")
    assert stores_of(Plan(planned.root, ResultSink())) == {"kafka", "pg"}


def test_with_a_time_to_live_operators_are_those_that_forget() -> None:
    def planned(text: str) -> str:
        select = Cursor(text).select()
        return explain(plan_select(select, SNAPSHOT, "main", "public", "view", expires=True).root)

    assert "ChangeAggregate" in planned("SELECT userid, count(*) FROM pageviews GROUP BY userid")
    windowed = "SELECT window_start, count(*) FROM TUMBLE(pageviews, SIZE 1 DAY) GROUP BY window_start"
    assert "  Aggregate tumble" in planned(windowed), "it forgets by event time"
    assert "TemporalJoin" in planned("SELECT city FROM pageviews p JOIN users_log u ON p.userid = u.userid")


def test_a_virtual_relation_stands_for_its_query() -> None:
    """It is planned where it is named, with the names of its own place; the statement reads what it reads."""
    known = SNAPSHOT.relations["main", "public", "pageviews"]
    full = FullName("virtual", "public", "p1")
    record = RelationRecord("v", full, "stream", known.columns, "sysadmin")
    inner = Cursor("SELECT * FROM pageviews WHERE pageid = 'p1'").select()
    virtuals = {full: Virtual(record, inner, "main", "public")}
    outer = Cursor("SELECT count(*) AS n FROM virtual.public.p1").select()
    planned = plan_select(outer, SNAPSHOT, "other", "nowhere", "view", virtuals=virtuals)
    assert [str(r.full) for r in planned.sources] == ["main.public.pageviews"]
    assert [str(r.full) for r in planned.met] == ["virtual.public.p1"]
    kinds = [type(n).__name__ for n in walk(planned.root)]
    assert kinds == ["Source", "Filter", "Project", "ChangeAggregate", "Project"], "Spark's own would need update mode"


@pytest.mark.parametrize(("window", "apart"), [
    ("TUMBLE(pageviews, SIZE 10 SECONDS)", 10_000),
    ("HOP(pageviews, SIZE 10 SECONDS, ADVANCE BY 5 SECONDS)", 5_000),
    ("CUMULATE(pageviews, SIZE 1 HOUR, ADVANCE BY 20 MINUTES)", 1_200_000),
])  # fmt: skip
def test_how_far_apart_windows_end(window: str, apart: int) -> None:
    root = _plan(f"SELECT window_start, count(*) AS n FROM {window} GROUP BY window_start, window_end", "view").root
    assert ends_apart_ms(root) == apart
    assert ends_apart_ms(Outputs([root, _plan("SELECT userid FROM pageviews", "stream").root])) == apart


def test_sessions_end_anywhere() -> None:
    of = "SESSION(pageviews, GAP 1 MINUTE) GROUP BY window_start, window_end, userid"
    by_session = f"SELECT window_start, window_end, userid, count(*) AS n FROM {of}"
    assert ends_apart_ms(_plan(by_session, "changelog").root) == 0
    assert ends_apart_ms(_plan("SELECT userid FROM pageviews", "stream").root) == 0


def test_outputs_of_a_plan_and_their_sinks() -> None:
    root = _plan("SELECT userid FROM pageviews", "stream").root
    sinks = [ViewSink(f"main.public.{n}", "main", n, "append") for n in "ab"]
    whole = Plan(Outputs([root, root]), Sinks(list(sinks)))
    assert load(whole.json()) == whole
    assert outputs(whole) == [(root, sinks[0]), (root, sinks[1])]
    assert outputs(Plan(root, sinks[0])) == [(root, sinks[0])]


def _nested(call: str, times: int) -> str:
    text = "userid"
    for _ in range(times):
        text = call.format(text)
    return text


@pytest.mark.parametrize(
    "call",
    ["REPEAT({}, 1)", "JSON_QUERY({}, '$.a')", "GREATEST({}, 'x')",
     "CASE {} WHEN 'a' THEN 'b' WHEN 'c' THEN 'd' ELSE '' END"],
)  # fmt: skip
def test_calls_within_calls_are_bounded(call: str) -> None:
    """Each is written with its argument more than once: some more of them would be more than there is room for."""
    _plan(f"SELECT {_nested(call, 3)} AS x FROM pageviews", "result")
    with pytest.raises(PgStreamError, match="an expression is too complex") as e:
        _plan(f"SELECT {_nested(call, 16)} AS x FROM pageviews", "result")
    assert e.value.sqlstate == "54001"


def test_lists_may_be_long() -> None:
    listed = ", ".join(f"'{n:040}'" for n in range(5000))
    planned = _plan(f"SELECT userid FROM pageviews WHERE userid = 'x' OR (userid IN ({listed}))", "result")
    assert len(Plan(planned.root, ResultSink()).json()) > len(listed)


def test_what_is_read_is_bounded() -> None:
    """A CTE is read as often as it is named."""
    ctes = ["c0 AS (SELECT userid FROM pageviews)"]
    ctes += [f"c{n} AS (SELECT userid FROM c{n - 1} UNION ALL SELECT userid FROM c{n - 1})" for n in range(1, 25)]
    _plan(f"WITH {', '.join(ctes[:6])} SELECT userid FROM c5", "result")
    with pytest.raises(PgStreamError, match="the query is too complex") as e:
        _plan(f"WITH {', '.join(ctes)} SELECT userid FROM c24", "result")
    assert (e.value.sqlstate, e.value.detail) == ("54001", "It reads more than 128 relations.")


def test_stars_of_stars_are_bounded() -> None:
    source = "pageviews"
    for _ in range(25):
        source = f"(SELECT *, * FROM {source}) s"
    with pytest.raises(PgStreamError, match="at most 1664 entries") as e:
        _plan(f"SELECT * FROM {source}", "result")
    assert e.value.sqlstate == "54011"
    with pytest.raises(PgStreamError, match="at most 1664 entries"):
        _plan(f"SELECT {', '.join('userid' for _ in range(1665))} FROM pageviews", "result")


@pytest.mark.parametrize("clause", ["CUBE(%s)", "CUBE(%s), userid", "GROUPING SETS (CUBE(%s), ROLLUP(userid))"])
def test_sets_are_counted_before_they_are_made(clause: str) -> None:
    many = ", ".join(f"viewtime + {n}" for n in range(40))
    with pytest.raises(PgStreamError, match="more than 64 grouping sets"):
        _plan(f"SELECT count(*) AS n FROM pageviews GROUP BY {clause % many}", "view")


@pytest.mark.parametrize("call", ["LPAD(userid, viewtime, 'x')", "RPAD(userid, viewtime, 'x')", "REPEAT(userid, 9)"])
def test_texts_that_a_function_makes_of_a_few_characters_are_bounded(call: str) -> None:
    """A record would end the JVM that all queries of a pool run in."""
    planned = _plan(f"SELECT {call} AS x FROM pageviews", "result")
    assert b"> 1048576, raise_error('54000 requested length too large')" in Plan(planned.root, ResultSink()).json()


@pytest.mark.parametrize("number", ["²", "٣", "9" * 25, "9" * 400, "9" * 5000])
@pytest.mark.parametrize(
    "text",
    ["SELECT s FROM t LIMIT {}", "SELECT i + {} AS x FROM t", "SELECT arr[{}] AS x FROM t",
     "SELECT s FROM t WHERE i IN ({})", "SELECT arr['{}'] AS x FROM t", "SELECT CAST(s AS VARCHAR({})) AS x FROM t",
     "SELECT s, COUNT(*) AS n FROM TUMBLE(t, SIZE {} MINUTE) GROUP BY s, window_start, window_end",
     "SELECT SUM(i) OVER (ORDER BY ts ROWS BETWEEN {} PRECEDING AND CURRENT ROW) AS x FROM t WITH ('timestamp' = 'ts')",
     "SELECT SUM(i) OVER (ORDER BY ts RANGE BETWEEN INTERVAL '{}' MINUTE PRECEDING AND CURRENT ROW) AS x FROM t "
     "WITH ('timestamp' = 'ts')",
     "SELECT x FROM pageviews MATCH_RECOGNIZE (ORDER BY viewtime MEASURES A.pageid AS x PATTERN (A B) "
     "WITHIN INTERVAL '{}' SECOND DEFINE A AS A.pageid = 'a') m"],
)  # fmt: skip
def test_numbers_of_any_length_and_script(text: str, number: str) -> None:
    try:
        assert _plan(text.format(number), "result")
    except PgStreamError as e:
        assert e.sqlstate != "XX000"


@pytest.mark.parametrize("where", ["SELECT {} AS x FROM t", "SELECT s FROM t WHERE {} > 1"])
@pytest.mark.parametrize("count", [200, 250, 400, 1500])
def test_a_long_sum_is_planned_or_too_deep(where: str, count: int) -> None:
    try:
        assert _plan(where.format("+".join(["i"] * count)), "result")
    except PgStreamError as e:
        assert (e.sqlstate, e.at) == ("54001", 0)
