"""The port of ``metrics_listen``, asked as Prometheus and a load balancer ask it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from tests.server import Kafka, Server, within
from tests.stream.test_workers import listeners

SETUP = """
CREATE STORE seen_store WITH ('type' = KAFKA, 'uris' = '{bootstrap}', 'tls.disabled' = TRUE,
  'kafka.sasl.hash_function' = NONE);
CREATE STREAM seen_in (id BIGINT) WITH ('store' = seen_store, 'topic' = 'seen_in', 'value.format' = 'json',
  'starting.position' = 'earliest');
CREATE MATERIALIZED VIEW seen_view AS SELECT id, count(*) AS n FROM seen_in GROUP BY id
"""


def told(server: Server) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Samples by name: labels and value."""
    status, text = server.ask("/metrics")
    assert status == 200
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in parse(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def one(server: Server, name: str, **labels: str) -> float:
    """The sum of a metric's samples with these labels."""
    return sum(value for found, value in told(server).get(name, []) if labels.items() <= found.items())


def test_a_query_is_seen_from_its_first_row_to_its_end(
    server: Server, db: psycopg.Connection[Any], kafka: Kafka
) -> None:
    kafka.topic("seen_in", 2)
    kafka.produce("seen_in", [(None, json.dumps({"id": n % 3})) for n in range(20)])
    for text in SETUP.format(bootstrap=kafka.bootstrap).split(";"):
        db.execute(text)
    of = {"sink": "main.public.seen_view"}
    within(60, lambda: one(server, "pgstream_query_rows_in_total", **of) == 20)
    assert db.execute("SELECT sum(n) FROM seen_view").fetchone() == (20,)
    now = told(server)
    assert [v for found, v in now["pgstream_query_state"] if of.items() <= found.items()] == [1]
    assert one(server, "pgstream_query_state", state="running", **of) == 1
    assert one(server, "pgstream_query_rows_out_total", **of) >= 3
    assert one(server, "pgstream_query_batch_seconds_sum", **of) > 0
    lag = {f["partition"]: v for f, v in now["pgstream_query_lag_records"] if of.items() <= f.items()}
    assert lag == {"0": 0, "1": 0}
    assert one(server, "pgstream_query_state_rows", **of) == 3
    # Nothing comes any more, and that is known; of an errored query nothing is known any more.
    within(30, lambda: one(server, "pgstream_query_freshness_seconds", **of) < 4)
    assert one(server, "pgstream_pool_lock", pool="default") == 1
    assert one(server, "pgstream_pool_memory_bytes", pool="default") > 100e6
    # All that the Grafana board asks for is there, but for what did not happen.
    board = (Path(__file__).parents[2] / "docs" / "grafana.json").read_text()
    rare = {"pgstream_connections_refused_total", "pgstream_query_watermark_timestamp_seconds"}
    assert set(re.findall(r"\bpgstream_\w+", board)) - set(told(server)) <= rare
    kafka.produce("seen_in", [(None, "{no json")])
    within(60, lambda: one(server, "pgstream_query_state", state="errored", **of) == 1)
    age = one(server, "pgstream_query_freshness_seconds", **of)
    within(20, lambda: one(server, "pgstream_query_freshness_seconds", **of) > age + 3)
    query = next(f["query"] for f, _ in told(server)["pgstream_query_state"] if of.items() <= f.items())
    db.execute(f"TERMINATE QUERY {query}")
    assert one(server, "pgstream_query_state", **of) == 0
    assert "{no json" not in server.ask("/metrics")[1]


def test_statements_are_counted_by_what_they_are_and_how_they_ended(
    server: Server, db: psycopg.Connection[Any]
) -> None:
    def counted(sqlstate: str) -> float:
        return one(server, "pgstream_statements_total", kind="LIST STORES", sqlstate=sqlstate)

    good, bad = counted("00000"), counted("42601")
    rounds, errors = one(server, "pgstream_relayed_statements_total"), one(server, "pgstream_relayed_errors_total")
    for _ in range(3):
        db.execute("LIST STORES")
    with pytest.raises(psycopg.errors.SyntaxError):
        db.execute("LIST STORES 'secret-in-a-text'")
    before = one(server, "pgstream_relayed_bytes_total"), one(server, "pgstream_received_bytes_total")
    assert db.execute("SELECT repeat('x', 1000000)").fetchone()
    with pytest.raises(psycopg.errors.DivisionByZero):
        db.execute("SELECT 1 / 0")
    assert (counted("00000") - good, counted("42601") - bad) == (3, 1)
    assert one(server, "pgstream_relayed_bytes_total") - before[0] > 1_000_000
    assert 40 < one(server, "pgstream_received_bytes_total") - before[1] < 100_000
    assert one(server, "pgstream_relayed_statements_total") - rounds >= 2
    assert one(server, "pgstream_relayed_errors_total") - errors >= 1
    assert "secret-in-a-text" not in server.ask("/metrics")[1]


def test_both_formats_and_what_else_is_asked(server: Server) -> None:
    _, text = server.ask("/metrics", "application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n") and list(parse_openmetrics(text))
    assert server.ask("/health") == (200, "ok\n")
    assert server.ask("/nowhere")[0] == 404
    status, body = server.ask("/ready?verbose")
    assert status == 200
    assert json.loads(body) | {"worker": "running"} == {
        "ready": True, "server": "serving", "catalogue": "up", "default_pool": "this server", "worker": "running",
    }  # fmt: skip
    # curl is a client that is nobody's of ours.
    port = server.metrics_port
    shown = subprocess.run(["curl", "-sS", "-I", f"http://127.0.0.1:{port}/metrics"], capture_output=True, text=True)
    assert shown.stdout.startswith("HTTP/1.1 200 OK") and not shown.stderr
    refused = subprocess.run(
        ["curl", "-sS", "-d", "x", f"http://127.0.0.1:{port}/metrics"], capture_output=True, text=True
    )
    assert refused.stdout == "GET or HEAD\n"


def test_listener_processes_are_counted_as_one_server(workspace: Path) -> None:
    server = Server(workspace / "observed_both", workers="2", metrics_listen="127.0.0.1:0", log_format="json")
    try:
        connections = [server.connect() for _ in range(12)]
        for connection in connections:
            connection.execute("LIST STORES")
        assert one(server, "pgstream_sessions") == 12
        assert one(server, "pgstream_statements_total", kind="LIST STORES", sqlstate="00000") == 12
        processes = {f["process"] for f, _ in told(server)["pgstream_process_memory_bytes"]}
        assert processes == {"server", "listener 0", "listener 1"}
        # One of them is killed: its sessions are gone, what it had counted is not.
        listeners(server)[0].send_signal(signal.SIGKILL)
        within(30, lambda: one(server, "pgstream_listener_process_ends_total") == 1 and len(listeners(server)) == 2)
        assert one(server, "pgstream_statements_total", kind="LIST STORES", sqlstate="00000") == 12
        assert one(server, "pgstream_sessions") < 12
        for connection in connections:
            connection.close()
        # With none of them nobody accepts clients.
        assert server.ask("/ready")[0] == 200
        for process in listeners(server):
            process.kill()
        status, body = within(10, lambda: (found := server.ask("/ready"))[0] == 503 and found, every=0.02)
        assert (status, json.loads(body)["server"]) == (503, "no listener process")
        within(30, lambda: server.ask("/ready")[0] == 200)
    finally:
        assert server.stop() == 0
    # Java itself knows no form of ours.
    lines = [line for line in server.log.read_text().splitlines() if not line.startswith("WARNING: Using incubator")]
    assert len(lines) > 10 and all("timestamp" in json.loads(line) for line in lines)
