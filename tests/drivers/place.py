"""Where a suite runs: one of the two addresses of one database, in the words that test suites ask for.

Owns: the database that is made for each run. Must not know: suites. Start reading at ``Place``.
"""

from __future__ import annotations

from dataclasses import dataclass

import psycopg

from tests.clients.both import address, backend_port
from tests.server import Server


@dataclass(frozen=True)
class Place:
    """An address with its user and database."""

    host: str
    port: str
    user: str
    password: str
    database: str

    @classmethod
    def of(cls, server: Server, target: str, database: str) -> Place:
        there = address(server, target)
        return cls(there["PGHOST"], there["PGPORT"], there["PGUSER"], there["PGPASSWORD"], database)

    @property
    def other(self) -> str:
        """A second empty database."""
        return f"{self.database}_other"

    @property
    def env(self) -> dict[str, str]:
        """libpq's environment variables."""
        return {"PGHOST": self.host, "PGPORT": self.port, "PGUSER": self.user, "PGPASSWORD": self.password,
                "PGDATABASE": self.database}  # fmt: skip

    def url(self, scheme: str = "postgresql") -> str:
        return f"{scheme}://{self.user}:{self.password}@{self.host}:{self.port}/{self.database}"


def new_databases(server: Server, place: Place, schemas: tuple[str, ...]) -> None:
    """Empty databases for each run, so that both find the same; with the schemas that a suite expects.

    The role that sessions work in becomes their owner in PostgreSQL too: otherwise suites that make schemas fail
    directly, where CREATE SCHEMA is PostgreSQL's own.
    """
    for name in (place.database, place.other):
        with server.connect() as c:
            c.execute(f'CREATE DATABASE "{name}"')
        with psycopg.connect(**superuser(server), autocommit=True) as c:
            c.execute(f'ALTER DATABASE "{name}" OWNER TO sysadmin')
        with server.connect(name) as c:
            for schema in schemas:
                c.execute(f"CREATE SCHEMA {schema}")


def superuser(server: Server) -> dict[str, str]:
    """The embedded PostgreSQL's own user."""
    password = (server.data_dir / "postgres.password").read_text().strip()
    return {"host": "127.0.0.1", "port": str(backend_port(server)), "user": "pgstream", "password": password,
            "dbname": "postgres"}  # fmt: skip
