"""TLS of the connections to PostgreSQL, by libpq's rules: the same options mean the same as for the server's own
connections, which libpq makes.

Owns: which options of the connection URL say how a connection is encrypted, with libpq's defaults (its environment
variables and files), and the TLS context made of them.
Must not know: sockets, messages. Start reading at ``read``.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from psycopg import pq

from pgstream.errors import ConfigurationError
from pgstream.server.tls import ALPN, no_passphrase

MODES = ("disable", "prefer", "require", "verify-ca", "verify-full")
_VERSIONS = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
_ONLY = {"sslnegotiation": "postgres", "sslsni": "1", "sslcertmode": "allow", "sslcrldir": ""}
"""Options of which one value is built."""
_FOLDER = Path("~/.postgresql")


@dataclass(frozen=True, slots=True)
class Encryption:
    """``mode`` is libpq's sslmode. ``root``: a file, ``system``, or empty: nothing is verified. ``binding``: its
    channel_binding.
    """

    mode: str = "disable"
    root: str = ""
    crl: str = ""
    certificate: str = ""
    key: str = ""
    passphrase: str = field(default="", repr=False)
    oldest: str = "TLSv1.2"
    newest: str = ""
    binding: str = "prefer"

    @property
    def context(self) -> ssl.SSLContext:
        """Made once a process. Errors: ConfigurationError."""
        return _context(self)


PLAIN = Encryption()


def read(options: Mapping[str, str]) -> Encryption:
    """What a connection URL's options ask for; what they leave out is as libpq has it. Errors: ConfigurationError."""
    defaults = {o.keyword.decode(): o.val.decode() for o in pq.Conninfo.get_defaults() if o.val is not None}
    given = {**defaults, **options}
    mode = given.get("sslmode", "prefer")
    if mode not in MODES:
        raise ConfigurationError(
            what=f'setting "postgres_url": sslmode "{mode}" is not supported', hint=f"Use one of {', '.join(MODES)}."
        )
    for name, value in _ONLY.items():
        if given.get(name, value) not in (value, ""):
            raise ConfigurationError(what=f'setting "postgres_url": {name}={given[name]} is not supported')
    made = Encryption(
        mode=mode,
        root=_root(mode, given.get("sslrootcert", "")),
        crl=given.get("sslcrl", ""),
        certificate=given.get("sslcert", "") or _there("postgresql.crt"),
        key=given.get("sslkey", "") or _there("postgresql.key"),
        passphrase=given.get("sslpassword", ""),
        oldest=given.get("ssl_min_protocol_version", "") or "TLSv1.2",
        newest=given.get("ssl_max_protocol_version", ""),
        binding=given.get("channel_binding", "prefer"),
    )
    if mode != "disable":
        _context(made)  # what is wrong with its files is said now
    return made


def _root(mode: str, given: str) -> str:
    if given == "system" and mode != "verify-full":
        raise ConfigurationError(what='setting "postgres_url": sslrootcert=system needs sslmode=verify-full')
    found = given or _there("root.crt")
    if mode.startswith("verify-") and not found:
        raise ConfigurationError(
            what=f'setting "postgres_url": sslmode={mode} needs the certificate that signs PostgreSQL\'s',
            hint="Name it with sslrootcert=FILE, or put it into ~/.postgresql/root.crt.",
        )
    # libpq: a file that is not there is an error only where it is needed.
    return found if found == "system" or mode.startswith("verify-") or Path(found or "-").exists() else ""


def _there(name: str) -> str:
    file = (_FOLDER / name).expanduser()
    return str(file) if file.exists() else ""


@cache
def _context(asked: Encryption) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = asked.mode == "verify-full"
    context.verify_mode = ssl.CERT_REQUIRED if asked.root else ssl.CERT_NONE
    context.set_alpn_protocols([ALPN])
    try:
        context.minimum_version = _VERSIONS[asked.oldest]
        if asked.newest:
            context.maximum_version = _VERSIONS[asked.newest]
        if asked.root == "system":
            context.load_default_certs()
        elif asked.root:
            context.load_verify_locations(asked.root)
        if asked.crl:
            context.load_verify_locations(asked.crl)
            context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_CHAIN
        if asked.certificate:
            context.load_cert_chain(asked.certificate, asked.key or None, asked.passphrase or no_passphrase)
    except (OSError, ValueError, KeyError) as e:
        raise ConfigurationError(what=f'setting "postgres_url": TLS to PostgreSQL cannot be set up: {e}') from None
    return context
