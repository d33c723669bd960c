"""The PostgreSQL JDBC driver, run by java."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pgstream import config
from pgstream.embedded.jars import fetch
from pgstream.embedded.java import find_java
from tests.server import PASSWORD, Server

pytestmark = pytest.mark.clients


def test_jdbc(server: Server) -> None:
    settings = config.load({})
    java = find_java(settings)
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=True).stdout
    if "jdk.compiler" not in modules:
        pytest.skip("this Java has no compiler for single-file programs")
    driver = next(p for p in fetch(settings) if p.name.startswith("postgresql-"))
    program = Path(__file__).with_name("Jdbc.java")
    url = f"jdbc:postgresql://127.0.0.1:{server.port}/main"
    command = [java, "-XX:TieredStopAtLevel=1", "-cp", driver, program, url, "admin", PASSWORD]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines() == [
        "prepared ok", "list true", "error 42704", "metadata ok true", "cursor 12502500",
    ], done.stderr  # fmt: skip
