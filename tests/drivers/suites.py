"""Which suites there are, and what each wants to be told.

Owns: names, versions, settings. Must not know: how a suite is fetched and run (``python``, ``maven``, ``go``).
Start reading at ``SUITES``.
"""

from __future__ import annotations

from tests.drivers.go import GoModule
from tests.drivers.maven import MavenProject, Pgjdbc
from tests.drivers.native import DbdPg, LibpqPipeline, Libpqxx, PhpTests
from tests.drivers.node import NodePostgres
from tests.drivers.place import Place
from tests.drivers.python import Django, Sdist
from tests.drivers.rust import Crate
from tests.drivers.suite import Suite


def _psycopg2(place: Place) -> dict[str, str]:
    names = {"": place.database, "_HOST": place.host, "_PORT": place.port, "_USER": place.user}
    return {f"PSYCOPG2_TESTDB{k}": v for k, v in names.items()} | {"PGPASSWORD": place.password}


def _pyodbc(place: Place) -> dict[str, str]:
    """psqlODBC is the machine's, from Debian's odbc-postgresql."""
    words = {"Driver": "PostgreSQL Unicode", "Server": place.host, "Port": place.port, "Database": place.database,
             "Uid": place.user, "Pwd": place.password, "BoolsAsChar": "0"}  # fmt: skip
    return {"PYODBC_POSTGRESQL": ";".join(f"{k}={v}" for k, v in words.items())}


def _pgx(place: Place) -> dict[str, str]:
    return {f"PGX_TEST_{name}": place.url() for name in ("DATABASE", "CONN_STRING", "TCP_CONN_STRING")}


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
    "bulk_create select_for_update constraints datatypes model_fields expressions "
    "raw_query async aggregation annotations indexes"
)

_PROTOCOL = "expects protocol 3.0 of a server that says it is PostgreSQL 16; pgstream speaks 3.2"

_TOKIO_EDITS = {
    "tests/test/main.rs": (
        ('TcpStream::connect("127.0.0.1:5433")', 'TcpStream::connect(std::env::var("PGADDR").unwrap())'),
        ("s.parse::<Config>()", 's.replace("user=postgres", &std::env::var("PGTEST").unwrap()).parse::<Config>()'),
    ),
    "tests/test/runtime.rs": (
        (
            "tokio_postgres::connect(s, NoTls)",
            'tokio_postgres::connect(&s.replace("user=postgres", &std::env::var("PGTEST").unwrap())'
            '.replace("5433", &std::env::var("PGPORT").unwrap()), NoTls)',
        ),
    ),
}
_TOKIO_FLAGS = (
    "--features",
    "array-impls with-bit-vec-0_8 with-chrono-0_4 with-eui48-1 with-geo-types-0_7 with-jiff-0_2 with-serde_json-1 "
    "with-time-0_3 with-uuid-1",
)

_GO_PG = (
    ('User:      "postgres",', 'User: os.Getenv("PGUSER"),'),
    ('Password:  "postgres",', 'Password: os.Getenv("PGPASSWORD"),'),
)
_XORM = {
    # A driver that the proxy does not have, and a database that the suite makes itself unless it is there.
    "go.mod": (("\tgitee.com/travelliu/dm v1.8.11192\n", ""),),
    "tests/engine_test.go": (('\t_ "gitee.com/travelliu/dm"\n', ""),),
    "tests/tests.go": (("datname = 'xorm_test'", "datname = current_database()"),),
}
_NOT_HERE = ("SQLX_MYSQL_DSN", "SQLX_SQLITE_DSN")

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
    Sdist("pygresql", "6.2.3"),
    Sdist("pyodbc", "5.5.0", selection=("tests/postgresql_test.py",), env=_pyodbc),
    # The embedded PostgreSQL has no ICU.
    Django(
        "django",
        "5.2.19",
        tests=("tests", "django"),
        selection=_DJANGO.split(),
        edits={"django/db/backends/postgresql/features.py": ("sv-x-icu", "C")},
    ),
    Pgjdbc("pgjdbc", "42.7.8"),
    GoModule("pq", "v1.12.3", module="github.com/lib/pq"),
    GoModule(
        "pgx",
        "v5.12.0",
        module="github.com/jackc/pgx/v5",
        env=lambda p: {"PGX_TEST_DATABASE": p.url()},
        expected={"TestConnectProtocolVersion32": _PROTOCOL},
    ),
    GoModule("pgconn", "v1.14.3", module="github.com/jackc/pgconn", env=_pgx),
    GoModule("pgx4", "v4.18.3", module="github.com/jackc/pgx/v4", env=_pgx),
    GoModule("pgtype", "v1.14.4", module="github.com/jackc/pgtype", env=_pgx),
    GoModule(
        "go-pg",
        "v10.11.0",
        module="github.com/go-pg/pg/v10",
        env=lambda p: p.env | {"PGSSLMODE": "disable"},
        packages=(".",),
        edits={"db_test.go": _GO_PG},
    ),
    GoModule(
        "pgdriver",
        "v1.2.18",
        module="github.com/uptrace/bun/driver/pgdriver",
        env=lambda p: {"PG": f"{p.url('postgres')}?sslmode=disable"},
        edits={"go.mod": (("replace github.com/uptrace/bun => ../..", ""),)},
    ),
    GoModule(
        "sqlx",
        "v1.4.0",
        module="github.com/jmoiron/sqlx",
        env=lambda p: {"SQLX_POSTGRES_DSN": f"{p.url()}?sslmode=disable"} | dict.fromkeys(_NOT_HERE, "skip"),
    ),
    GoModule(
        "goqu",
        "v9.19.0",
        module="github.com/doug-martin/goqu/v9",
        env=lambda p: {"PG_URI": f"{p.url('postgres')}?sslmode=disable"},
        packages=(".", "./dialect/postgres"),
    ),
    GoModule(
        "gorp",
        "v3.1.0",
        module="github.com/go-gorp/gorp/v3",
        env=lambda p: {"GORP_TEST_DIALECT": "postgres", "GORP_TEST_DSN": f"{p.url('postgres')}?sslmode=disable"},
    ),
    GoModule("pgxlisten", "v0.0.0-20250802141604-12b92425684c", module="github.com/jackc/pgxlisten"),
    GoModule(
        "xorm",
        "v1.4.3",
        module="xorm.io/xorm",
        packages=("./tests",),
        arguments=lambda p: (
            "-db=postgres",
            "-schema=",
            "-cache=false",
            f"-conn_str={p.url('postgres')}?sslmode=disable",
        ),
        edits=_XORM,
    ),
    Crate("tokio-postgres", "0.7.18", flags=_TOKIO_FLAGS, edits=_TOKIO_EDITS),
    MavenProject(
        "vertx",
        "4.5.10",
        properties=lambda p: {"connection.uri": p.url("postgres")},
        setup=("io.vertx:vertx-pg-client:4.5.10:jar:tests", "create-postgres.sql"),
    ),
    MavenProject("r2dbc", "1.0.7"),
    LibpqPipeline("libpq_pipeline", "17.11", package="postgresql-17", revision="-0+deb13u1", tools=("cc",)),
    Libpqxx("libpqxx", "7.10.0", package="libpqxx", revision="-2", tools=("cmake", "c++")),
    DbdPg("DBD-Pg", "3.18.0", package="libdbd-pg-perl", tools=("perl", "prove", "make", "cc")),
    PhpTests("php", "8.2.32", package="php8.2", revision="-1~deb12u1", tools=("php",)),
    NodePostgres("node-postgres", "8.16.3", package="node-postgres", revision="+~cs35.24.27-5", tools=("node", "npm")),
]
