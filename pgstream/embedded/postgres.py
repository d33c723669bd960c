"""The PostgreSQL behind the server: embedded by default, external by URL; both look the same from here on.

Owns: the choice, the superuser's connection URL, the check of an external one, the claim on the data directory.
Must not know: what is kept in it. Start reading at ``open_postgres``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import quote, urlencode

import psycopg
import structlog
from psycopg.conninfo import conninfo_to_dict

from pgstream.config import Config
from pgstream.embedded.cluster import SUPERUSER, Cluster
from pgstream.embedded.datadir import DataDir
from pgstream.errors import ConfigurationError

log = structlog.get_logger(__name__)

OLDEST = 15
# Connections that are not a client session's: catalogue, workers, reserved ones.
_OURS = 50
_CONNECT_S = 10


@dataclass(slots=True)
class Postgres:
    """A PostgreSQL that accepts connections. ``host`` is a folder of unix sockets (embedded) or a host name."""

    host: str
    port: int
    tcp_host: str
    user: str
    password: str = field(repr=False)
    embedded: bool
    database: str = "postgres"
    options: Mapping[str, str] = field(default_factory=dict)
    _cluster: Cluster | None = field(default=None, repr=False)
    _data_dir: DataDir | None = field(default=None, repr=False)

    def url(self, database: str, user: str | None = None, password: str | None = None, tcp: bool = False) -> str:
        """A libpq URL, of the superuser unless ``user`` is given; ``tcp`` never uses the socket."""
        if user is None:
            user, password = self.user, self.password
        login = quote(user, safe="") + (":" + quote(password, safe="") if password else "")
        host = self.tcp_host if tcp else self.host
        place, options = "", dict(self.options)
        if host.startswith("/"):
            options |= {"host": host, "port": str(self.port)}
        else:
            place = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
        query = "?" + urlencode(options, quote_via=quote, safe="") if options else ""
        return f"postgresql://{login}@{place}/{quote(database, safe='')}{query}"

    @property
    def postmaster(self) -> int | None:
        """The process id of the embedded PostgreSQL."""
        return self._cluster.pid if self._cluster is not None else None

    def let_in(self, without_password: Collection[str]) -> None:
        """From now on the embedded PostgreSQL lets this process in as these users without a password (``all``: as all).

        An external one has its own table. Errors: ConfigurationError.
        """
        if self._cluster is not None:
            self._cluster.let_in(without_password)

    async def stop(self) -> None:
        """Stop the embedded PostgreSQL and give the data directory back. May be called twice."""
        if self._cluster is not None:
            await self._cluster.stop()
        if self._data_dir is not None:
            self._data_dir.release()


async def open_postgres(
    config: Config, *, without_password: Collection[str] = (), settings: Mapping[str, str] = MappingProxyType({})
) -> Postgres:
    """Claim the data directory and have a PostgreSQL ready. Errors: ConfigurationError.

    ``without_password``: see ``Postgres.let_in``. ``settings``: an embedded one's, instead of ours.
    """
    data_dir = DataDir.claim(config.data_dir)
    try:
        if config.postgres_url:
            postgres = external(config.postgres_url)
            await check_external(postgres)
        else:
            cluster = Cluster(data_dir, config.max_connections + _OURS, without_password, settings)
            await cluster.start()
            postgres = Postgres(
                host=str(cluster.sockets),
                port=cluster.port,
                tcp_host="127.0.0.1",
                user=SUPERUSER,
                password=cluster.password,
                embedded=True,
                _cluster=cluster,
            )
    except BaseException:
        data_dir.release()
        raise
    postgres._data_dir = data_dir
    log.info("postgres ready", embedded=postgres.embedded, host=postgres.host, port=postgres.port)
    return postgres


def external(url: str) -> Postgres:
    """Take an external PostgreSQL's URL apart. Errors: ConfigurationError, which never shows the URL."""
    try:
        given = {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
    except psycopg.Error:
        raise ConfigurationError(
            what='setting "postgres_url" is not a PostgreSQL URL',
            hint="It looks like postgresql://USER:PASSWORD@HOST:PORT/DATABASE.",
        ) from None
    host = given.pop("host", "localhost")
    if "," in host or "user" not in given:
        raise ConfigurationError(what='setting "postgres_url" must name one host and a user')
    return Postgres(
        host=host,
        port=int(given.pop("port", "5432")),
        tcp_host="127.0.0.1" if host.startswith("/") else host,
        user=given.pop("user"),
        password=given.pop("password", ""),
        embedded=False,
        database=given.pop("dbname", "postgres"),
        options=given,
    )


async def check_external(postgres: Postgres) -> None:
    """Refuse an external PostgreSQL that is too old, or whose user may not do what the catalogue needs."""
    where = f'PostgreSQL at "{postgres.host}" port {postgres.port}'
    try:
        connection = await psycopg.AsyncConnection.connect(postgres.url(postgres.database), connect_timeout=_CONNECT_S)
    except psycopg.OperationalError as e:
        raise ConfigurationError(
            what=f"could not connect to the {where}", detail=str(e).strip(), hint="Check PGSTREAM_POSTGRES_URL."
        ) from None
    async with connection:
        version = connection.info.server_version // 10000
        if version < OLDEST:
            raise ConfigurationError(what=f"the {where} is version {version}; {OLDEST} or newer is needed")
        cursor = await connection.execute(
            "SELECT rolsuper OR (rolcreaterole AND rolcreatedb"
            " AND has_table_privilege('pg_catalog.pg_authid', 'select'))"
            " FROM pg_catalog.pg_roles WHERE rolname = current_user"
        )
        row = await cursor.fetchone()
    if not row or not row[0]:
        raise ConfigurationError(
            what=f'user "{postgres.user}" of the {where} may not create databases and roles and read their verifiers',
            hint="Name a superuser in PGSTREAM_POSTGRES_URL.",
        )
