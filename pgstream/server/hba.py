"""Reading the access table: ``hba_file`` is PostgreSQL's pg_hba.conf and ``ident_file`` its pg_ident.conf, as far as
those have a meaning here.

Owns: what their lines mean. What it does not know is refused at start: a rule that never fits is a hole.
Must not know: clients. Start reading at ``load``.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pgstream.config import Config
from pgstream.errors import ConfigurationError
from pgstream.server.access import (
    CERT,
    PASSWORD,
    REJECT,
    SCRAM,
    VERIFY_CA,
    VERIFY_FULL,
    Access,
    Entry,
    Network,
    Rule,
)
from pgstream.server.hba_lines import BadLine, Field, one, read

_TYPES = {"host": None, "hostssl": True, "hostnossl": False}
_OTHER_METHODS = {
    "trust": "pgstream opens PostgreSQL as the user, with what the user proves: use scram-sha-256 or cert.",
    "md5": "Use scram-sha-256: it takes the same password, once it is set again.",
}
_OTHER_DATABASES = ("samerole", "samegroup", "replication")
_SHORT = BadLine("end of line before the method", "A line is TYPE DATABASE USER ADDRESS METHOD [OPTIONS].")

_Maps = Mapping[str, tuple[Entry, ...]]


def load(config: Config) -> Access:
    """Read the table. Errors: ConfigurationError with the line's number."""
    if config.hba_file is None:
        if config.ident_file is not None:
            raise ConfigurationError(what='setting "ident_file" is only used together with "hba_file"')
        return Access()
    maps = _maps(config)
    rules = read(config.hba_file, "access table", lambda fields: _rule(fields, config, maps))
    if not rules:
        raise ConfigurationError(
            what=f'the access table "{config.hba_file}" holds no line',
            hint="Nobody could connect: host all all all scram-sha-256",
        )
    return Access(rules)


def _maps(config: Config) -> _Maps:
    maps: dict[str, tuple[Entry, ...]] = {}
    if config.ident_file is not None:
        for name, entry in read(config.ident_file, "user map", _entry):
            maps[name] = (*maps.get(name, ()), entry)
    return maps


def _entry(fields: list[Field]) -> tuple[str, Entry]:
    if len(fields) != 3:
        raise BadLine("a line has three fields", "A line is MAP NAME-IN-THE-CERTIFICATE USER.")
    name, user = fields[1][0], fields[2][0]
    one(fields[1])
    if user.begins("+/"):
        raise BadLine(f'user "{one(fields[2])}" is not supported', "Name a user, or write all; or quote the name.")
    to = None if user.means("all") else one(fields[2])
    if not name.begins("/"):
        return one(fields[0]), Entry(name.text, to)
    try:
        pattern = re.compile(name.text[1:])
    except re.error as e:
        raise BadLine(f'invalid regular expression "{name.text[1:]}": {e}') from None
    if to is not None and "\\1" in to and not pattern.groups:
        raise BadLine(f'regular expression "{name.text[1:]}" has no group for \\1 in "{to}"')
    return one(fields[0]), Entry(pattern, to)


def _rule(fields: list[Field], config: Config, maps: _Maps) -> Rule:
    kind = one(fields[0])
    if kind not in _TYPES:
        raise BadLine(f'invalid connection type "{kind}"', "A line begins with host, hostssl or hostnossl.")
    tls = _TYPES[kind]
    if len(fields) < 5:
        raise _SHORT
    if tls and config.tls == "off":
        raise BadLine("hostssl record cannot match because SSL is disabled", 'Set "tls" to auto or on.')
    networks, rest = _address(fields[3], fields[4:])
    if not rest:
        raise _SHORT
    method = _method(one(rest[0]), tls)
    options = _options(method, rest[1:], maps)
    if options.clientcert and not tls:
        raise BadLine("client certificates are only there on hostssl connections", "Write hostssl in place of host.")
    if options.clientcert and config.tls_ca_file is None:
        raise BadLine(
            "client certificates can only be checked if a root certificate is known",
            'Set "tls_ca_file" to the certificates that signed theirs.',
        )
    databases, same_user = _databases(fields[1])
    users = _users(fields[2])
    return Rule(tls, databases, same_user, users, networks, method, options.clientcert, options.users_of)


def _databases(field: Field) -> tuple[frozenset[str] | None, bool]:
    for word in field:
        if word.means(*_OTHER_DATABASES) or word.begins("@/"):
            hint = "Name databases, or write all or sameuser; or quote the name."
            raise BadLine(f'database "{word.text}" is not supported', hint)
    if any(word.means("all") for word in field):
        return None, False
    named = frozenset(word.text for word in field if not word.means("sameuser"))
    return named, any(word.means("sameuser") for word in field)


def _users(field: Field) -> frozenset[str] | None:
    for word in field:
        if word.begins("+@/"):
            raise BadLine(f'user "{word.text}" is not supported', "Name users, or write all; or quote the name.")
    return None if any(word.means("all") for word in field) else frozenset(word.text for word in field)


def _address(field: Field, rest: list[Field]) -> tuple[tuple[Network, ...] | None, list[Field]]:
    """The networks of a line, and what follows the mask that may stand behind."""
    text = one(field)
    if field[0].means("all"):
        return None, rest
    mask = ""
    if "/" not in text and rest and _is_address(rest[0][0].text):
        mask, rest = "/" + rest[0][0].text, rest[1:]
    if "/" not in text + mask:
        raise BadLine(f'address "{text}" has no mask', "Write all, or an address such as 10.0.0.0/8 or ::1/128.")
    try:
        return (ipaddress.ip_network(text + mask, strict=False),), rest
    except ValueError:
        hint = "Write all, or an address such as 10.0.0.0/8 or ::1/128; not a host name."
        raise BadLine(f'invalid address "{text}{mask}"', hint) from None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _method(method: str, tls: bool | None) -> str:
    if method not in (SCRAM, PASSWORD, CERT, REJECT):
        hint = _OTHER_METHODS.get(method, f"Methods are {SCRAM}, {PASSWORD}, {CERT} and {REJECT}.")
        raise BadLine(f'authentication method "{method}" is not supported', hint)
    if method == PASSWORD and not tls:
        raise BadLine(
            "passwords cross in clear only inside TLS", "Write hostssl in place of host, or use scram-sha-256."
        )
    return method


@dataclass(slots=True)
class _Options:
    clientcert: str = ""
    users_of: tuple[Entry, ...] | None = None


def _options(method: str, fields: Iterable[Field], maps: _Maps) -> _Options:
    """What is asked of a client's certificate."""
    found = _Options(clientcert=VERIFY_FULL if method == CERT else "")
    for field in fields:
        name, _, value = one(field).partition("=")
        if name == "clientcert":
            if value not in (VERIFY_CA, VERIFY_FULL):
                raise BadLine(f'invalid value for clientcert: "{value}"', "It is verify-ca or verify-full.")
            if method == CERT and value != VERIFY_FULL:
                raise BadLine('clientcert only accepts "verify-full" when using "cert" authentication')
            found.clientcert = value
        elif name == "map" and method == CERT:
            if value not in maps:
                raise BadLine(f'user map "{value}" does not exist', 'Its lines stand in the file of "ident_file".')
            found.users_of = maps[value]
        else:
            raise BadLine(
                f'option "{name}" is not supported', "Options are clientcert=verify-ca or verify-full; map for cert."
            )
    return found
