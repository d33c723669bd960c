"""The PostgreSQL JDBC driver, run by java: the one that Spark's connectors bring, by coordinates and checksum."""

from __future__ import annotations

import subprocess

import pytest

from pgstream import config
from pgstream.embedded.jars import fetch
from pgstream.embedded.java import find_java
from tests.clients.both import TARGETS, Language, run_language
from tests.server import Server

pytestmark = pytest.mark.clients


@pytest.mark.parametrize("target", TARGETS)
def test_jdbc(server: Server, of_languages: None, target: str) -> None:
    settings = config.load({})
    java = find_java(settings)
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=True).stdout
    if "jdk.compiler" not in modules:
        pytest.skip("this Java has no compiler for single-file programs")
    driver = next(p for p in fetch(settings) if p.name.startswith("postgresql-"))
    flags = ["-XX:TieredStopAtLevel=1", "-Duser.language=en", "-Dstdout.encoding=UTF-8"]
    run_language(Language("jdbc", run=[str(java), *flags, "-cp", str(driver), "{here}/Client.java"]), server, target)
