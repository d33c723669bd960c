"""The life of queries as a client sees it: TERMINATE, RESTART, faults and their cure, topics that change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import NewPartitions

from tests.server import Kafka, Server, within
from tests.stream.test_outage import facts, run, superuser

STORE = """
CREATE STORE {name} WITH ('type' = KAFKA, 'uris' = '{bootstrap}', 'tls.disabled' = TRUE,
  'kafka.sasl.hash_function' = NONE);
CREATE STREAM {name}_in (id BIGINT)
  WITH ('store' = {name}, 'topic' = '{name}', 'value.format' = 'json', 'starting.position' = 'earliest');
"""


def begin(db: psycopg.Connection[Any], kafka: Kafka, name: str, partitions: int = 1) -> None:
    kafka.topic(name, partitions)
    run(db, STORE.format(name=name, bootstrap=kafka.bootstrap))


def produce(kafka: Kafka, topic: str, *values: object) -> None:
    kafka.produce(topic, [(None, v if isinstance(v, str) else json.dumps({"id": v})) for v in values])


def count(db: psycopg.Connection[Any], view: str) -> int:
    row = db.execute(f"SELECT count(*) FROM {view}".encode()).fetchone()
    assert row
    return int(row[0])


@pytest.mark.stream
def test_terminated_is_over(db: psycopg.Connection[Any], kafka: Kafka) -> None:
    begin(db, kafka, "ended")
    (query,) = run(
        db, "CREATE MATERIALIZED VIEW ended_view AS SELECT id FROM ended_in QUERY WITH ('query.name' = ended_q)"
    )
    produce(kafka, "ended", 1, 2)
    within(30, lambda: count(db, "ended_view") == 2)
    with pytest.raises(psycopg.Error) as e:
        db.execute("DROP MATERIALIZED VIEW ended_view")
    assert e.value.sqlstate == "2BP01"
    db.execute("TERMINATE QUERY ended_q")
    within(20, lambda: facts(db, query)["state"] == "terminated")
    with pytest.raises(psycopg.Error) as e:
        db.execute(f"RESTART QUERY {query}".encode())
    assert (e.value.sqlstate, e.value.diag.message_primary) == (
        "55000", f'query "{query}" is terminated and cannot be restarted')  # fmt: skip
    produce(kafka, "ended", 3)
    assert count(db, "ended_view") == 2
    assert query not in [row[0] for row in db.execute("LIST QUERIES").fetchall()]
    assert query in [row[0] for row in db.execute("LIST QUERIES WITH ('all')").fetchall()]
    db.execute("DROP MATERIALIZED VIEW ended_view")
    db.execute("DROP STREAM ended_in")
    db.execute("DROP STORE ended")


@pytest.mark.stream
def test_another_query_goes_on_from_a_terminated_ones_id(db: psycopg.Connection[Any], kafka: Kafka) -> None:
    begin(db, kafka, "went")
    kafka.topic("went_out")
    run(db, "CREATE STREAM went_out (id BIGINT) WITH ('store' = went, 'topic' = 'went_out', 'value.format' = 'json')")
    (first,) = run(db, "INSERT INTO went_out SELECT id FROM went_in")
    produce(kafka, "went", 1, 2)
    assert [v for _, v, _ in kafka.consume("went_out", 2)] == ['{"id":1}', '{"id":2}']
    db.execute(f"TERMINATE QUERY {first}".encode())
    within(20, lambda: facts(db, first)["state"] == "terminated")
    produce(kafka, "went", 3)
    (second,) = run(
        db, f"INSERT INTO went_out SELECT id + 10 AS id FROM went_in QUERY WITH ('resume.from.query.id' = '{first}')"
    )
    produce(kafka, "went", 4)
    assert [v for _, v, _ in kafka.consume("went_out", 4)] == ['{"id":1}', '{"id":2}', '{"id":13}', '{"id":14}']
    db.execute(f"TERMINATE QUERY {second}".encode())


@pytest.mark.stream
def test_errored_goes_on_after_its_cause_is_gone(server: Server, db: psycopg.Connection[Any], kafka: Kafka) -> None:
    begin(db, kafka, "cured")
    (query,) = run(db, "CREATE MATERIALIZED VIEW cured_view AS SELECT id FROM cured_in")
    with superuser(server) as su:
        su.execute("ALTER TABLE public.cured_view ADD CONSTRAINT small CHECK (id < 10)")
        produce(kafka, "cured", 1)
        within(30, lambda: count(db, "cured_view") == 1)
        produce(kafka, "cured", 10)
        within(30, lambda: facts(db, query)["state"] == "errored")
        told = facts(db, query)
        assert 'violates check constraint "small"' in told["error"], told
        db.execute(f"RESTART QUERY {query}".encode())
        within(30, lambda: int(facts(db, query)["attempts"]) >= 2 and facts(db, query)["state"] == "errored")
        su.execute("ALTER TABLE public.cured_view DROP CONSTRAINT small")
    produce(kafka, "cured", 11)
    db.execute(f"RESTART QUERY {query}".encode())
    within(30, lambda: count(db, "cured_view") == 3)
    assert facts(db, query)["state"] == "running"


@pytest.mark.stream
def test_partitions_are_added(db: psycopg.Connection[Any], kafka: Kafka) -> None:
    begin(db, kafka, "more")
    run(db, "CREATE MATERIALIZED VIEW more_view AS SELECT id FROM more_in")
    produce(kafka, "more", 1, 2)
    within(30, lambda: count(db, "more_view") == 2)
    kafka.admin.create_partitions([NewPartitions("more", 4)])["more"].result(20)
    for i in range(3, 43):
        kafka.produce("more", [(str(i), json.dumps({"id": i}))])
    within(30, lambda: count(db, "more_view") == 42)


@pytest.mark.stream
def test_topic_is_deleted(db: psycopg.Connection[Any], kafka: Kafka) -> None:
    begin(db, kafka, "gone")
    (query,) = run(db, "CREATE MATERIALIZED VIEW gone_view AS SELECT id FROM gone_in")
    produce(kafka, "gone", 1, 2)
    within(30, lambda: count(db, "gone_view") == 2)
    kafka.admin.delete_topics(["gone"])["gone"].result(20)
    said = within(60, lambda: (f := facts(db, query)).get("message") or f.get("error"))
    assert "topic" in said, said
    assert count(db, "gone_view") == 2
    db.execute(f"TERMINATE QUERY {query}".encode())
    within(20, lambda: facts(db, query)["state"] == "terminated")


@pytest.mark.stream
def test_bad_record_ends_its_query(db: psycopg.Connection[Any], kafka: Kafka) -> None:
    begin(db, kafka, "bad")
    (query,) = run(db, "CREATE MATERIALIZED VIEW bad_view AS SELECT id FROM bad_in")
    produce(kafka, "bad", 1, 2)
    within(30, lambda: count(db, "bad_view") == 2)
    produce(kafka, "bad", 3, '{"id": "four"}', 5)
    within(30, lambda: facts(db, query)["state"] == "errored")
    text = 'record at partition 0, offset 3 of topic "bad" could not be decoded: field "id" must be BIGINT'
    assert facts(db, query)["error"].startswith(text)
    assert "source.deserialization.error.handling" in facts(db, query)["error"]
    # What came before it is there, what came after it is not.
    assert db.execute("SELECT array_agg(id ORDER BY id) FROM bad_view").fetchone() == ([1, 2, 3],)
    with pytest.raises(psycopg.Error) as e:
        db.execute("SELECT id FROM bad_in").fetchall()
    assert e.value.sqlstate is not None and e.value.sqlstate[:2] == "22"
    assert (e.value.diag.message_primary or "").startswith(text)
    assert e.value.diag.message_hint
    # Dropped, counted and kept aside.
    kafka.topic("bad_log")
    (logged,) = run(db, """CREATE MATERIALIZED VIEW bad_logged AS SELECT id FROM bad_in WITH (
        'source.deserialization.error.handling' = IGNORE_AND_LOG, 'source.deserialization.error.log.topic' = 'bad_log')
    """)  # fmt: skip
    within(30, lambda: count(db, "bad_logged") == 4)
    assert [v for _, v, _ in kafka.consume("bad_log", 1)] == ['{"id": "four"}']
    within(10, lambda: facts(db, logged)["bad records"] == "1")


@pytest.mark.stream
def test_late_rows_are_counted(db: psycopg.Connection[Any], kafka: Kafka) -> None:
    begin(db, kafka, "late")
    (query,) = run(db, """CREATE MATERIALIZED VIEW late_view AS SELECT window_start, window_end, count(*) AS n
        FROM TUMBLE(late_in, SIZE 1 SECOND) WITH ('timestamp' = 'id') GROUP BY window_start, window_end
    """)  # fmt: skip
    produce(kafka, "late", 1000, 100000)
    within(30, lambda: facts(db, query).get("watermark") == "1970-01-01T00:01:30.000Z")
    produce(kafka, "late", 1001, 5000, 100001)
    within(30, lambda: db.execute("SELECT max(n) FROM late_view").fetchone() == (2,))
    within(10, lambda: facts(db, query)["late rows"] == "2")
    produce(kafka, "late", 1002, 100002)
    within(30, lambda: db.execute("SELECT max(n) FROM late_view").fetchone() == (3,))
    within(10, lambda: facts(db, query)["late rows"] == "3")


@pytest.mark.stream
def test_idle_partitions_do_not_stop_time(db: psycopg.Connection[Any], kafka: Kafka) -> None:
    begin(db, kafka, "still", 3)
    db.execute("""CREATE CHANGELOG still_windows WITH ('store' = still) AS SELECT window_start, count(*) AS n
        FROM TUMBLE(still_in, SIZE 1 SECOND) WITH ('timestamp' = 'id') GROUP BY window_start""")
    # The second partition falls silent, the third never spoke.
    kafka.produce("still", [(None, '{"id": 1500}')], partition=1)
    kafka.produce("still", [(None, '{"id": 1000}'), (None, '{"id": 100000}')], partition=0)
    told = within(60, lambda: kafka.consume("still_windows", 1, 5))
    assert [json.loads(v or "")["n"] for _, v, _ in told] == [2]


@pytest.mark.stream
def test_queries_that_fail_harm_no_other(db: psycopg.Connection[Any], kafka: Kafka) -> None:
    begin(db, kafka, "harmless")
    for topic in ("rubbish", "gone_too"):
        kafka.topic(topic)
        db.execute(f"CREATE STREAM {topic}_in (id BIGINT) WITH ('store' = harmless, 'topic' = '{topic}', "
                   "'value.format' = 'json', 'starting.position' = 'earliest')".encode())  # fmt: skip
    (well,) = run(db, "CREATE MATERIALIZED VIEW harmless_view AS SELECT id FROM harmless_in")
    (bad,) = run(db, "CREATE MATERIALIZED VIEW rubbish_view AS SELECT id FROM rubbish_in")
    (waits,) = run(db, "CREATE MATERIALIZED VIEW gone_view_too AS SELECT id FROM gone_too_in")
    kafka.produce("rubbish", [(None, "rubbish")])
    kafka.admin.delete_topics(["gone_too"])["gone_too"].result(20)
    within(30, lambda: facts(db, bad)["state"] == "errored")
    said = within(60, lambda: (f := facts(db, waits)).get("message") or f.get("error"))
    assert "topic" in said
    produce(kafka, "harmless", *range(100))
    within(30, lambda: count(db, "harmless_view") == 100)
    found = facts(db, well)
    assert (found["state"], found["attempts"]) == ("running", "1")
    db.execute(f"TERMINATE QUERY {waits}".encode())


@pytest.mark.stream
@pytest.mark.timeout(120)
def test_states_outlive_the_server(kafka: Kafka, workspace: Path) -> None:
    server = Server(workspace / "states")
    with server.connect() as db:
        begin(db, kafka, "states")
        wrong, over, well = (run(db, f"CREATE MATERIALIZED VIEW v{i} AS SELECT id FROM states_in {more}")[0]
                             for i, more in enumerate(("", "", IGNORE)))  # fmt: skip
        produce(kafka, "states", 1)
        within(30, lambda: count(db, "v1") == 1)
        db.execute(f"TERMINATE QUERY {over}".encode())
        within(20, lambda: facts(db, over)["state"] == "terminated")
        produce(kafka, "states", "rubbish", 2)
        within(30, lambda: facts(db, wrong)["state"] == "errored")
        said = facts(db, wrong)["error"]
    assert server.stop() == 0
    produce(kafka, "states", 3)
    server = Server(workspace / "states")
    try:
        with server.connect() as db:
            within(60, lambda: count(db, "v2") == 3)
            assert [facts(db, q)["state"] for q in (wrong, over, well)] == ["errored", "terminated", "running"]
            assert facts(db, wrong)["error"] == said
            assert (count(db, "v0"), count(db, "v1")) == (1, 1)
            assert facts(db, wrong)["attempts"] == "1"
    finally:
        assert server.stop() == 0


IGNORE = "WITH ('source.deserialization.error.handling' = IGNORE)"


@pytest.mark.stream
def test_large_batches_are_staged(db: psycopg.Connection[Any], kafka: Kafka) -> None:
    """Tasks of more than 8 MB of text write a staging table; the last row of a key by offset still wins."""
    begin(db, kafka, "large", 2)
    run(db, """
        CREATE CHANGELOG large_log (k BIGINT, t BIGINT, pad VARCHAR, PRIMARY KEY (k)) WITH ('store' = large,
          'topic' = 'large', 'value.format' = 'json', 'key.format' = 'primitive', 'key.type' = 'VARCHAR',
          'timestamp' = 't', 'starting.position' = 'earliest')
    """)  # fmt: skip
    # Event times run backwards: only offsets say what is last. Partition 1 stays small and is not staged.
    pad = "x" * 2000
    big = [(i % 7000, i) for i in range(21000)]
    sent = [(str(k), json.dumps({"k": k, "t": 10**9 - i, "pad": f"{i} {pad}"})) for k, i in big]
    kafka.produce("large", sent, partition=0)
    few = [(str(k), json.dumps({"k": k, "t": 10**9 - k, "pad": f"{k} few"})) for k in range(8000, 8010)]
    kafka.produce("large", few, partition=1)
    kafka.produce("large", [("0", json.dumps({"k": 0, "t": 1, "pad": "last"}))], partition=0)
    run(db, """
        CREATE STREAM large_rows (k BIGINT, pad VARCHAR) WITH ('store' = large, 'topic' = 'large',
          'value.format' = 'json', 'starting.position' = 'earliest');
        CREATE MATERIALIZED VIEW large_last AS SELECT k, split_index(pad, ' ', 0) AS i, pad FROM large_log;
        CREATE MATERIALIZED VIEW large_all AS SELECT k, pad FROM large_rows;
        CREATE MATERIALIZED VIEW large_keys AS SELECT k, max(pad) AS pad, count(*) AS n FROM large_rows GROUP BY k
    """)  # fmt: skip
    within(60, lambda: count(db, "large_last") == 7010)
    wrong = db.execute("SELECT k, i FROM large_last WHERE i <> CASE WHEN k = 0 THEN 'last' WHEN k < 8000 THEN "
                       "(14000 + k)::text ELSE k::text END").fetchall()  # fmt: skip
    assert wrong == []
    within(60, lambda: count(db, "large_all") == 21011)
    within(60, lambda: db.execute("SELECT sum(n), count(*) FROM large_keys").fetchone() == (21011, 7010))
