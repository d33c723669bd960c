"""The access table: who may connect from where, to which database, over TLS or not, and how they prove who they are.

Owns: the rules, the choice of the first that fits, whose name a client's certificate stands for.
Must not know: files, sockets, passwords. Start reading at ``Access.find``; ``hba`` reads the table.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pgstream.errors import AuthorizationRefused

SCRAM, PASSWORD, CERT, REJECT = "scram-sha-256", "password", "cert", "reject"
VERIFY_CA, VERIFY_FULL = "verify-ca", "verify-full"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Visit:
    """A client that asks to come in."""

    address: str
    database: str
    user: str
    tls: bool

    def __str__(self) -> str:
        secured = "SSL encryption" if self.tls else "no encryption"
        return f'host "{self.address}", user "{self.user}", database "{self.database}", {secured}'


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a user map: names in certificates (all that a pattern finds) and the user they may be.

    ``user`` None stands for every user; ``\\1`` in it for what the pattern's first group found.
    """

    name: str | re.Pattern[str]
    user: str | None

    def lets(self, name: str, user: str) -> bool:
        if isinstance(self.name, str):
            return self.name == name and self.user in (None, user)
        # Python's ``$`` stands before a last line break, too; PostgreSQL's at the end only.
        found = None if name.endswith("\n") else self.name.search(name)
        if found is None:
            return False
        return self.user is None or self.user.replace("\\1", found[1] or "" if self.name.groups else "") == user


@dataclass(frozen=True, slots=True)
class Rule:
    """A line. None stands for all; ``clientcert`` is empty, ``verify-ca`` or ``verify-full``; without ``users_of`` a
    certificate stands for the user it names."""

    tls: bool | None
    databases: frozenset[str] | None
    same_user: bool
    users: frozenset[str] | None
    networks: tuple[Network, ...] | None
    method: str
    clientcert: str = ""
    users_of: tuple[Entry, ...] | None = None

    def fits(self, visit: Visit) -> bool:
        if self.tls not in (None, visit.tls) or (self.users is not None and visit.user not in self.users):
            return False
        own = self.same_user and visit.database == visit.user
        if self.databases is not None and visit.database not in self.databases and not own:
            return False
        return self.networks is None or is_in(visit.address, self.networks)

    def lets(self, name: str, user: str) -> bool:
        """Whether a certificate of this name may be the user."""
        if self.users_of is None:
            return name == user
        return any(entry.lets(name, user) for entry in self.users_of)

    @property
    def wants_password(self) -> bool:
        return self.method in (SCRAM, PASSWORD)

    def is_met_by(self, shown: Rule) -> bool:
        """Whether a client who came in by another rule has shown all that this one asks for."""
        if self.wants_password != shown.wants_password:
            return False
        if self.clientcert == VERIFY_FULL:
            return shown.clientcert == VERIFY_FULL and shown.users_of == self.users_of
        return bool(shown.clientcert) or not self.clientcert


ALL = Rule(None, None, False, None, None, SCRAM)
"""What holds without a table."""


@dataclass(frozen=True, slots=True)
class Access:
    """The table."""

    rules: Sequence[Rule] = (ALL,)

    def find(self, visit: Visit) -> Rule:
        """The first rule that fits. Errors: AuthorizationRefused, also when that rejects."""
        for rule in self.rules:
            if rule.fits(visit):
                if rule.method == REJECT:
                    raise AuthorizationRefused(what=f"pg_hba.conf rejects connection for {visit}")
                return rule
        raise AuthorizationRefused(what=f"no pg_hba.conf entry for {visit}")

    @property
    def without_password(self) -> frozenset[str]:
        """Users who may come in by certificate; ``all`` stands for everybody."""
        found: set[str] = set()
        for rule in self.rules:
            if rule.method == CERT:
                found |= rule.users if rule.users is not None else {"all"}
        return frozenset(found)


def is_in(address: str, networks: Sequence[Network]) -> bool:
    """Without its zone, and IPv4 as IPv4 on a socket that takes both; no address (the client is gone) is in none."""
    if not address:
        return False
    found = ipaddress.ip_address(address.partition("%")[0])
    plain = getattr(found, "ipv4_mapped", None) or found
    return any(plain in network for network in networks)
