"""The PostgreSQL JDBC driver, run by java: the one that Spark's connectors bring, by coordinates and checksum."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pgstream import config
from pgstream.embedded.jars import fetch
from pgstream.embedded.java import find_java
from tests.clients.both import TARGETS, Language, run_language
from tests.server import PASSWORD, Server

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def java() -> list[str]:
    """A command that compiles and runs one file with the driver on its class path."""
    settings = config.load({})
    program = find_java(settings)
    modules = subprocess.run([program, "--list-modules"], capture_output=True, text=True, check=True).stdout
    if "jdk.compiler" not in modules:
        pytest.skip("this Java has no compiler for single-file programs")
    driver = next(p for p in fetch(settings) if p.name.startswith("postgresql-"))
    flags = ["-XX:TieredStopAtLevel=1", "-Duser.language=en", "-Dstdout.encoding=UTF-8"]
    return [str(program), *flags, "-cp", str(driver)]


@pytest.mark.parametrize("target", TARGETS)
def test_jdbc(server: Server, of_languages: None, java: list[str], target: str) -> None:
    run_language(Language("jdbc", run=[*java, "{here}/Client.java"]), server, target)


def test_inside_tls(workspace: Path, java: list[str]) -> None:
    server = Server(workspace / "jdbc_tls", tls="auto", log_level="info")
    try:
        url = f"jdbc:postgresql://localhost:{server.port}/main"
        certificate = server.data_dir / "server.crt"
        program = Path(__file__).with_name("JdbcTls.java")
        command = [*java, program, url, "admin", PASSWORD, certificate]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    finally:
        server.stop()
    assert done.stdout.splitlines() == [
        "sslmode=require: sysadmin",
        "sslmode=require&channelBinding=require: sysadmin",
        "sslmode=verify-ca&sslrootcert=CERTIFICATE: sysadmin",
        "sslmode=verify-full&sslrootcert=CERTIFICATE: sysadmin",
        "sslmode=require&sslNegotiation=direct: sysadmin",
        "sslmode=verify-ca&sslrootcert=/none: 08006",
    ], done.stderr
