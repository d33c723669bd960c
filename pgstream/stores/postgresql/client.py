"""A store's options as the settings of both clients: libpq's (psycopg) and those of the JDBC driver.

Owns: how TLS is asked of each. Must not know: who connects. Start reading at ``libpq`` and ``jdbc``.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

_NAME = "pgstream"


def _mode(options: Mapping[str, str]) -> str:
    """libpq's and JDBC's word for how much of TLS there is."""
    if options.get("tls.disabled") == "true":
        return "disable"
    if options.get("tls.verify_server_hostname", "true") == "true":
        return "verify-full"
    return "verify-ca" if "tls.ca_cert_file" in options else "require"


def libpq(options: Mapping[str, str]) -> dict[str, str]:
    """Connection parameters; the certificate authority, which libpq wants as a file, is the caller's to add."""
    there = urlsplit(options["uris"])
    return {
        "host": there.hostname or "",
        "port": str(there.port or 5432),
        "dbname": unquote(there.path.strip("/")),
        "user": options["postgres.username"],
        "password": options["postgres.password"],
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
        "password": options["postgres.password"],
        "sslmode": _mode(options),
        "ApplicationName": f"{_NAME} worker",
        "connectTimeout": "10",
        "loginTimeout": "15",
        # A statement that waits longer, for a lock or a server that is gone, ends its batch, which is tried again.
        "socketTimeout": "300",
        "tcpKeepAlive": "true",
    }
    if made["sslmode"].startswith("verify"):
        made["sslfactory"] = "org.postgresql.ssl.DefaultJavaSSLFactory"
    if (ca := options.get("tls.ca_cert_file")) is not None and made["sslmode"] != "disable":
        made |= {"sslfactory": "org.postgresql.ssl.SingleCertValidatingFactory", "sslfactoryarg": ca.strip()}
    return made
