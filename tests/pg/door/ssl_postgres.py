"""A PostgreSQL that speaks TLS: Debian's, since the embedded one is built without.

It knows three users, all with ``PASSWORD``: ``postgres``, its superuser; ``any``; and ``only``, whom it lets in over
TLS alone.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import psycopg
import pytest

from pgstream.embedded.child import free_port, spawn, unprivileged
from tests.pg.door.certificates import Authority

PASSWORD = "hush-hush-hush"
HBA = """
hostssl all only 127.0.0.1/32 scram-sha-256
host all any,postgres,admin,pgstream_worker 127.0.0.1/32 scram-sha-256
hostssl all all 127.0.0.1/32 scram-sha-256
"""


def binaries() -> Path:
    """The newest with TLS; skips where there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda p: int(p.parts[4]))
    if not found:
        pytest.skip("a PostgreSQL with TLS is not here: install postgresql")
    return found[-1].parent


class SslPostgres:
    """Its certificate is for ``localhost`` alone, signed by ``ca``; it asks nobody for one."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.folder = binaries(), folder
        folder.mkdir()
        self.user = unprivileged(folder, self.bin / "postgres")
        self.user.own(folder)
        self.ca = Authority(folder.parent / "postgres-ca")
        self.port = free_port()
        self._run("initdb", "-D", folder / "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        self._configure()
        self.log = (folder.parent / "ssl_postgres.log").open("ab")
        self.process = spawn([self.bin / "postgres", "-D", folder / "data"], user=self.user, output=self.log)
        self._await()

    def _run(self, program: str, *arguments: str | Path) -> None:
        done = spawn([self.bin / program, *arguments], user=self.user, output=subprocess.PIPE)
        said, _ = done.communicate()
        assert done.returncode == 0, said

    def _configure(self) -> None:
        data = self.folder / "data"
        for file, target in zip(
            self.ca.issue("localhost", hosts=("localhost",)), ("server.crt", "server.key"), strict=True
        ):
            (data / target).write_bytes(file.read_bytes())
            (data / target).chmod(0o600)
            self.user.own(data / target)
        with (data / "postgresql.conf").open("a") as conf:
            conf.write(
                f"port={self.port}\nlisten_addresses='127.0.0.1'\nunix_socket_directories='{self.folder}'\nssl=on\n"
                "password_encryption='scram-sha-256'\nfsync=off\n"
            )
        (data / "pg_hba.conf").write_text("local all all trust\n" + HBA)

    def _await(self) -> None:
        url = f"host={self.folder} port={self.port} user=postgres dbname=postgres"
        while True:
            assert self.process.poll() is None, Path(self.log.name).read_text()
            try:
                with psycopg.connect(url, autocommit=True) as conn:
                    conn.execute(f"ALTER ROLE postgres PASSWORD '{PASSWORD}'")
                    for user in ("any", "only"):
                        conn.execute(f"CREATE ROLE \"{user}\" LOGIN PASSWORD '{PASSWORD}'")
                    self.verifiers = dict(conn.execute("SELECT rolname, rolpassword FROM pg_authid").fetchall())
                    return
            except psycopg.OperationalError:
                pass

    def url(self, host: str = "localhost", **options: str) -> str:
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"postgresql://postgres:{PASSWORD}@{host}:{self.port}/postgres?{query}"

    def stop(self) -> None:
        self.process.terminate()
        with self.process:
            self.process.wait(30)
        self.log.close()
