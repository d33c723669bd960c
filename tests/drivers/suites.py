"""Which suites there are, and what each wants to be told.

Owns: names, versions, settings. Must not know: how a suite is fetched and run (``python``, ``maven``, ``go``).
Start reading at ``SUITES``.
"""

from __future__ import annotations

from tests.drivers.go import GoModule
from tests.drivers.maven import Pgjdbc
from tests.drivers.place import Place
from tests.drivers.python import Django, Sdist
from tests.drivers.suite import Suite


def _psycopg2(place: Place) -> dict[str, str]:
    names = {"": place.database, "_HOST": place.host, "_PORT": place.port, "_USER": place.user}
    return {f"PSYCOPG2_TESTDB{k}": v for k, v in names.items()} | {"PGPASSWORD": place.password}


def _sqlalchemy(driver: str) -> Sdist:
    """The suite for dialects that SQLAlchemy ships, and its own tests of PostgreSQL's dialect."""
    return Sdist(
        f"sqlalchemy-{driver}",
        "2.1.9",
        package="sqlalchemy",
        tests=("test", "lib", "setup.cfg", "pyproject.toml"),
        selection=("test/dialect/test_suite.py", "test/dialect/postgresql"),
        arguments=lambda place: ["--dburi", place.url(f"postgresql+{driver}"), "--maxfail=10000"],
        schemas=("test_schema", "test_schema_2"),
        # The embedded PostgreSQL has no extensions.
        edits={
            "lib/sqlalchemy/dialects/postgresql/provision.py": (
                "CREATE EXTENSION IF NOT EXISTS {extension}",
                "SELECT 1",
            )
        },
    )


_PG8000 = {
    f"test/{kind}/conftest.py": (
        '{"user": "postgres", "password": "pw"}',
        '{"user": environ["PGUSER"], "database": environ["PGDATABASE"]}',
    )
    for kind in ("native", "dbapi", "legacy")
}
_DJANGO = (
    "backends basic introspection inspectdb transactions transaction_hooks schema migrations queries lookup "
    "bulk_create select_for_update constraints datatypes model_fields db_functions expressions postgres_tests "
    "raw_query async aggregation annotations indexes"
)

_USER = '"$user" in search_path is the role that the session works in'
_PROTOCOL = "expects protocol 3.0 of a server that says it is PostgreSQL 16; pgstream speaks 3.2"

SUITES: list[Suite] = [
    Sdist("psycopg2", "2.9.13", env=_psycopg2),
    Sdist("asyncpg", "0.32.0"),
    Sdist(
        "pg8000",
        "1.31.6",
        tests=("test",),
        selection=("test",),
        edits=_PG8000,
        arguments=lambda _: [
            *(f"--ignore=test/{kind}/auth" for kind in ("native", "dbapi", "legacy")),
            "--benchmark-disable",
        ],
    ),
    _sqlalchemy("psycopg"),
    _sqlalchemy("asyncpg"),
    # The embedded PostgreSQL has no ICU.
    Django(
        "django",
        "5.2.19",
        tests=("tests", "django"),
        selection=_DJANGO.split(),
        edits={"django/db/backends/postgresql/features.py": ("sv-x-icu", "C")},
    ),
    Pgjdbc("pgjdbc", "42.7.8", expected={"SchemaTest::schemaPath$User": _USER}),
    GoModule("pq", "v1.12.3", module="github.com/lib/pq"),
    GoModule(
        "pgx",
        "v5.12.0",
        module="github.com/jackc/pgx/v5",
        env=lambda p: {"PGX_TEST_DATABASE": p.url()},
        expected={"TestConnectProtocolVersion32": _PROTOCOL},
    ),
]
