"""A store's options as the settings of both clients: libpq's (psycopg) and those of the JDBC driver.

Owns: how TLS is asked of each, what must be given together, and that neither client looks for anything else: what the
server's system user has in its variables, home and ticket cache may open the PostgreSQL behind it, as its superuser,
and who makes a store chooses address and user. Must not know: who connects.
Start reading at ``libpq`` and ``jdbc``.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

import psycopg

from pgstream import pem
from pgstream.errors import InvalidOption, MissingOption

_NAME = "pgstream"
_FACTORY = "org.apache.spark.sql.pgstream.PemTls"
_PASSWORD = "postgres.password"  # noqa: S105
_NOWHERE = f"{os.devnull}/none"
"""A file that there never is, in the place of those in ``~``."""
OWN_NAMES = {"currentSchema": "pg_catalog"}
"""Properties of a session that reads: functions and operators that others in the store's database have made, and that
fit better than PostgreSQL's own, would run with the rights of the store's user."""
_NO_TICKET = {"require_auth": "!gss,!sspi"} if psycopg.pq.version() >= 160000 else {}


def _mode(options: Mapping[str, str]) -> str:
    """libpq's and JDBC's word for how much of TLS there is."""
    if options.get("tls.disabled") == "true":
        return "disable"
    if options.get("tls.verify_server_hostname", "true") == "true":
        return "verify-full"
    return "verify-ca" if "tls.ca_cert_file" in options else "require"


def _texts(options: Mapping[str, str]) -> pem.Texts:
    """Errors as ``pem.tls_texts``; MissingOption where neither a password nor a certificate says who one is."""
    texts = pem.tls_texts(options)
    if texts.certificate and _mode(options) == "disable":
        raise InvalidOption(what=f'parameter "{pem.CERTIFICATE}" needs TLS, which "tls.disabled" turns off')
    if _PASSWORD not in options and not texts.certificate:
        raise MissingOption(name=_PASSWORD, hint="Only who has a client certificate may do without.")
    return texts


@contextmanager
def files(options: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """What libpq wants as files while it connects: authorities, certificate and key. Empty without TLS."""
    mode, texts = _mode(options), _texts(options)
    if mode == "disable":
        yield {}
        return
    given = {"sslrootcert": texts.authorities, "sslcert": texts.certificate, "sslkey": texts.key}
    with tempfile.TemporaryDirectory() as folder:
        out = {} if texts.authorities or not mode.startswith("verify") else {"sslrootcert": "system"}
        for name, text in given.items():
            if text:
                file = Path(folder) / name
                file.touch(0o600)
                file.write_text(text.strip() + "\n")
                out[name] = str(file)
        yield out


def libpq(options: Mapping[str, str]) -> dict[str, str]:
    """Connection parameters, without those of ``files``. Errors as ``pem.tls_texts``, and MissingOption."""
    _texts(options)
    there = urlsplit(options["uris"])
    return {
        "host": there.hostname or "",
        "port": str(there.port or 5432),
        "dbname": unquote(there.path.strip("/")),
        "user": options["postgres.username"],
        "password": options.get(_PASSWORD, ""),  # an empty one keeps PGPASSWORD away
        "passfile": _NOWHERE,
        "sslcert": _NOWHERE,
        "gssencmode": "disable",
        **_NO_TICKET,
        "sslmode": _mode(options),
        "connect_timeout": "6",
        "application_name": _NAME,
    }


def jdbc(options: Mapping[str, str]) -> dict[str, str]:
    """Properties of the JDBC driver, with ``url``."""
    there = urlsplit(options["uris"])
    host = f"[{there.hostname}]" if ":" in (there.hostname or "") else there.hostname
    made = {
        "url": f"jdbc:postgresql://{host}:{there.port or 5432}{there.path}",
        "user": options["postgres.username"],
        "password": options.get(_PASSWORD, ""),  # an empty one keeps ~/.pgpass away
        "gssEncMode": "disable",
        "jaasLogin": "false",
        "sslmode": _mode(options),
        "ApplicationName": f"{_NAME} worker",
        "connectTimeout": "10",
        "loginTimeout": "15",
        # A statement that waits longer, for a lock or a server that is gone, ends its batch, which is tried again.
        "socketTimeout": "300",
        "tcpKeepAlive": "true",
    }
    if made["sslmode"] != "disable":
        texts = _texts(options)
        told = {"authorities": texts.authorities, "certificate": texts.certificate, "key": texts.key}
        given = {name: text for name, text in told.items() if text}
        anyone = {} if texts.authorities or made["sslmode"].startswith("verify") else {"any": True}
        made |= {"sslfactory": _FACTORY, "sslfactoryarg": json.dumps(given | anyone)}
    return made
