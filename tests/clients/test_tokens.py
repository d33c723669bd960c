"""API tokens as foreign clients log in with them: the user's name, ``~``, the token's name."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.test_jdbc import java  # noqa: F401 - a fixture
from tests.server import Server

pytestmark = pytest.mark.clients
ASK = "SELECT current_user, session_user"


@pytest.fixture(scope="module")
def token(server: Server) -> Iterator[str]:
    with server.connect() as c:
        yield c.execute("CREATE API_TOKEN clients WITH ('token.role_name' = securityadmin)").fetchone()[4]
        c.execute("DROP API_TOKEN clients")


@pytest.mark.skipif(shutil.which("psql") is None, reason="psql is not installed")
def test_psql(server: Server, token: str) -> None:
    command = ["psql", "-XAtq", "-h", "127.0.0.1", "-p", str(server.port), "-U", "admin~clients", "postgres", "-c", ASK]
    done = subprocess.run(command, env={**os.environ, "PGPASSWORD": token}, capture_output=True, text=True, timeout=60,
                          check=False)  # fmt: skip
    assert (done.stdout, done.stderr) == ("securityadmin|admin~clients\n", "")
    url = f"postgresql://admin~clients:{token}@127.0.0.1:{server.port}/postgres"
    done = subprocess.run(["psql", "-XAtq", url, "-c", ASK], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("securityadmin|admin~clients\n", "")


def test_jdbc(server: Server, token: str, java: list[str]) -> None:  # noqa: F811
    url = f"jdbc:postgresql://127.0.0.1:{server.port}/postgres?user=admin~clients&password={token}"
    program = Path(__file__).with_name("JdbcToken.java")
    done = subprocess.run([*java, program, url, ASK], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "securityadmin admin~clients\n", done.stderr
