"""Client programs: psql, drivers of many languages, ORMs. ``test_jdbc`` has pgjdbc."""

from __future__ import annotations

import sys

import pytest

from pgstream.embedded.cluster import binaries
from tests.clients.both import TARGETS, Language, run_language
from tests.server import Server

pytestmark = pytest.mark.clients

_PSQL = "{psql} -X -q < ../psql/client.sql 2>&1 | sed -E 's/PID [0-9]+/PID n/'"

_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"


def python(name: str, package: str) -> Language:
    """A program in Python; its packages are in the extra ``dev``."""
    return Language(
        name, probe=([sys.executable, "-c", f"import {package}"], name), run=[sys.executable, "{here}/client.py"]
    )


LANGUAGES = [
    Language(
        "psql15",
        tools={"psql": "postgresql-client-15"},
        probe=(["sh", "-c", "psql --version | grep -q ' 15'"], "postgresql-client-15"),
        run=["sh", "-c", _PSQL.replace("{psql}", "psql")],
    ),
    Language("psql16", run=["sh", "-c", _PSQL.replace("{psql}", str(binaries() / "psql"))]),
    python("psycopg", "psycopg"),
    python("psycopg2", "psycopg2"),
    python("asyncpg", "asyncpg"),
    python("pg8000", "pg8000"),
    python("sqlalchemy", "sqlalchemy"),
    python("django", "django"),
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
        "r2dbc",
        tools={"mvn": "Maven", "javac": "a JDK, 17 or newer"},
        fetch=["mvn", "-q", "-B", "-f", "{here}/pom.xml", f"{_COPY}:copy-dependencies", "-DoutputDirectory={cache}"],
        run=["java", "-XX:TieredStopAtLevel=1", "-Dstdout.encoding=UTF-8", "-cp", "{cache}/*", "{here}/Client.java"],
    ),
    Language(
        "ruby", tools={"ruby": "ruby"}, probe=(["ruby", "-rpg", "-e1"], "ruby-pg"), run=["ruby", "{here}/client.rb"]
    ),
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("language", LANGUAGES, ids=str)
def test_language(server: Server, of_languages: None, language: Language, target: str) -> None:
    run_language(language, server, target)
