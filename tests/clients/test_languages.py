"""Drivers of other languages: node-postgres, lib/pq, pgx, tokio-postgres, psqlODBC, DBD::Pg, PDO, Ruby's pg."""

from __future__ import annotations

import sys

import pytest

from tests.clients.both import TARGETS, Language
from tests.datadriven import same_file
from tests.server import Kafka, Server

pytestmark = pytest.mark.clients

LANGUAGES = [
    Language(
        "node",
        tools={"node": "nodejs 18 or newer", "npm": "npm"},
        fetch=["sh", "-c", "cp package.json package-lock.json {cache} && npm ci --silent --prefix {cache}"],
        run=["node", "{here}/client.js"],
        env={"NODE_PATH": "{cache}/node_modules"},
    ),
    Language(
        "go",
        tools={"go": "Go 1.24 or newer"},
        fetch=["go", "mod", "download"],
        build=["go", "build", "-o", "{cache}/client", "."],
        run=["{cache}/client"],
        env={"GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"},
    ),
    Language(
        "rust",
        tools={"cargo": "Rust 1.85 or newer"},
        fetch=["cargo", "fetch", "--locked", "--quiet"],
        build=["cargo", "build", "--locked", "--quiet"],
        run=["{cache}/debug/client"],
        env={"CARGO_TARGET_DIR": "{cache}"},
    ),
    Language(
        "odbc",
        probe=([sys.executable, "-c", "import client; client.driver()"], "odbc-postgresql and unixodbc"),
        run=[sys.executable, "{here}/client.py"],
    ),
    Language(
        "perl",
        tools={"perl": "perl"},
        probe=(["perl", "-MDBD::Pg", "-e1"], "libdbd-pg-perl"),
        run=["perl", "{here}/client.pl"],
    ),
    Language(
        "php",
        tools={"php": "php-cli"},
        probe=(["php", "-r", "exit(extension_loaded('pdo_pgsql') && extension_loaded('pgsql') ? 0 : 1);"], "php-pgsql"),
        run=["php", "{here}/client.php"],
    ),
    Language(
        "ruby", tools={"ruby": "ruby"}, probe=(["ruby", "-rpg", "-e1"], "ruby-pg"), run=["ruby", "{here}/client.rb"]
    ),
]
MORE = "== pgstream\n"


@pytest.fixture(scope="module")
def a_stream(server: Server, kafka: Kafka) -> None:
    """Something of pgstream's that the programs look for."""
    kafka.topic("of_languages")
    with server.connect() as c:
        c.execute(
            f"CREATE STORE of_languages WITH ('type' = KAFKA, 'uris' = '{kafka.bootstrap}', 'tls.disabled' = TRUE, "
            "'kafka.sasl.hash_function' = NONE)"
        )
        c.execute(
            "CREATE STREAM of_languages_clicks (n BIGINT, userid VARCHAR) "
            "WITH ('store' = of_languages, 'topic' = 'of_languages', 'value.format' = 'json')"
        )


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("language", LANGUAGES, ids=str)
def test_language(server: Server, a_stream: None, language: Language, target: str) -> None:
    language.prepare()
    common, mark, more = language.output(server, target).partition(MORE)
    assert bool(mark) == (target == "pgstream")
    same_file(language.here / "expected.txt", common, bless=target == "postgresql")
    if mark:
        same_file(language.here / "expected.pgstream.txt", more)
