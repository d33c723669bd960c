"""psql: the commands a person types first, and how errors look."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.server import Kafka, Server

pytestmark = [pytest.mark.clients, pytest.mark.skipif(shutil.which("psql") is None, reason="psql is not installed")]


def psql(server: Server, *commands: str) -> subprocess.CompletedProcess[str]:
    arguments = ["psql", "-X", "-q", server.url, *[a for c in commands for a in ("-c", c)]]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def pageviews(server: Server, kafka: Kafka) -> str:
    kafka.topic("psql_pageviews")
    done = psql(
        server,
        f"CREATE STORE psql_k WITH ('type' = KAFKA, 'uris' = '{kafka.bootstrap}', 'tls.disabled' = TRUE, "
        "'kafka.sasl.hash_function' = NONE)",
        "CREATE STREAM psql_pageviews (viewtime BIGINT, userid VARCHAR, detail STRUCT<a BIGINT, tags ARRAY<VARCHAR>>) "
        "WITH ('store' = psql_k, 'value.format' = 'json')",
    )
    assert done.returncode == 0, done.stderr
    return "psql_pageviews"


@pytest.mark.parametrize(
    "command", [r"\l", r"\d", r"\dt", r"\dv", r"\d psql_pageviews", r"\df", r"\dn", r"\du", r"\d+"]
)
def test_backslash_commands(server: Server, pageviews: str, command: str) -> None:
    done = psql(server, command)
    assert (done.returncode, done.stderr) == (0, "")


def test_streams_are_listed_with_their_columns(server: Server, pageviews: str) -> None:
    assert "psql_pageviews" in psql(server, r"\d").stdout
    columns = psql(server, r"\d psql_pageviews").stdout
    for line in ("viewtime | bigint", "userid   | character varying", "detail   | jsonb"):
        assert line in columns


def test_an_error_shows_position_and_hint(server: Server, pageviews: str) -> None:
    done = psql(server, "SELECT viewtme FROM psql_pageviews")
    assert done.returncode == 1
    assert 'ERROR:  column "viewtme" does not exist' in done.stderr
    assert "LINE 1: SELECT viewtme FROM psql_pageviews\n               ^" in done.stderr
    assert 'HINT:  Perhaps you meant "viewtime"' in done.stderr


def test_several_statements_of_both_kinds_in_one_text(server: Server, pageviews: str) -> None:
    done = psql(server, "SELECT 1 AS one; LIST STORES; SELECT 2 AS two")
    assert done.returncode == 0
    assert "one" in done.stdout
    assert "psql_k" in done.stdout
    assert "two" in done.stdout


def test_what_is_done_is_told_without_complaints(server: Server, kafka: Kafka, pageviews: str) -> None:
    """psql looks for a count of rows behind some words, and complains where there is none."""
    kafka.topic("psql_copied")
    done = psql(
        server,
        f"UPDATE STORE psql_k WITH ('uris' = '{kafka.bootstrap}')",
        "CREATE STREAM psql_copied (userid VARCHAR) WITH ('store' = psql_k, 'value.format' = 'json')",
        "INSERT INTO psql_copied SELECT userid FROM psql_pageviews",
    )
    assert (done.returncode, done.stderr) == (0, "")
    query = done.stdout.rsplit("query", 2)[1].split("|")[1].strip()
    assert psql(server, f"TERMINATE QUERY {query}").stderr == ""
