"""Who may do what: roles, what they inherit, grants, ownership. Pure; the one place where the rules are.

Owns: built-in roles and what they hold, and every answer to "may this role …?". An object is named by its kind and its
canonical name (``str(FullName)``, a schema's ``database.schema``, a query's id; the organization's is empty).
Must not know: PostgreSQL, rows, statements. ``authority`` changes grants, ``statements.access`` asks before each
statement, ``records.Snapshot.seen_by`` hides what a role may not see. Start reading at ``Access``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

PUBLIC, ADMIN, WORKING = "public", "orgadmin", "sysadmin"
"""Everybody's role, the organization's owner, and the role that the first user works in."""
OWNERSHIP = "ownership"
MEMBERS = "manage_members"
ORGANIZATION = ("organization", "")
BUILT_IN: Mapping[str, tuple[str, ...]] = {
    "public": (),
    "useradmin": ("public",),
    "sysadmin": ("public",),
    "securityadmin": ("useradmin",),
    "orgadmin": ("sysadmin", "securityadmin"),
}
"""Roles of every organization, and the roles that each inherits."""
_WORK = ("create_compute_pool", "create_database", "create_store", "create_schema_registry",
         "create_descriptor_source", "create_function_source", "create_function", "create_connector",
         "create_query")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Membership:
    """``role`` was granted to ``member``: a role, or a user."""

    role: str
    member: str
    is_user: bool = False
    grantor: str = ADMIN
    granted_at: dt.datetime | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """A privilege of a role on an object, or on one ``column`` of it (empty: on all)."""

    role: str
    privilege: str
    kind: str
    name: str
    column: str = ""
    grant_option: bool = False
    grantor: str = ADMIN
    granted_at: dt.datetime | None = None


@dataclass(frozen=True, slots=True)
class Token:
    """What logs in for ``user``, and works in one role: as long as the user may work in it too."""

    user: str
    role: str


FIRST_MEMBERSHIPS = tuple(Membership(held, role) for role, inherited in BUILT_IN.items() for held in inherited)
FIRST_GRANTS = (
    Grant("public", "usage", *ORGANIZATION),
    Grant("public", "usage", "compute_pool", "default"),
    Grant("useradmin", "manage_members", *ORGANIZATION, grant_option=True),
    Grant("securityadmin", "manage_grants", *ORGANIZATION),
    *(Grant("sysadmin", privilege, *ORGANIZATION) for privilege in _WORK),
)


@dataclass(frozen=True)
class Access:
    """All roles' memberships and grants at one moment; ``tokens`` by the names that they log in with."""

    memberships: tuple[Membership, ...] = FIRST_MEMBERSHIPS
    grants: Mapping[tuple[str, str], tuple[Grant, ...]] = field(default_factory=lambda: by_object(FIRST_GRANTS))
    tokens: Mapping[str, Token] = field(default_factory=dict)

    @cached_property
    def _granted(self) -> dict[tuple[str, bool], tuple[str, ...]]:
        """What each member was granted directly."""
        out: dict[tuple[str, bool], tuple[str, ...]] = {}
        for m in self.memberships:
            out[m.member, m.is_user] = (*out.get((m.member, m.is_user), ()), m.role)
        return out

    @cached_property
    def _held(self) -> dict[str, frozenset[str]]:
        return {}

    def held(self, role: str) -> frozenset[str]:
        """A role and all that it inherits."""
        found = self._held.get(role)
        if found is None:
            found = self._held[role] = self._closure((role,))
        return found

    def _closure(self, roles: Iterable[str]) -> frozenset[str]:
        out: set[str] = {PUBLIC}
        todo = list(roles)
        while todo:
            role = todo.pop()
            if role not in out or role == PUBLIC:
                out.add(role)
                todo += [r for r in self._granted.get((role, False), ()) if r not in out]
        return frozenset(out)

    def members(self, role: str) -> list[Membership]:
        return [m for m in self.memberships if m.role == role]

    def user_of(self, login: str) -> str:
        """Whose session it is that came in under this name."""
        token = self.tokens.get(login)
        return token.user if token is not None else login

    def is_member(self, user: str) -> bool:
        """Whether a user was granted a role; a token is no user."""
        return user not in self.tokens and (user, True) in self._granted

    @property
    def users(self) -> frozenset[str]:
        """Users that were granted some role."""
        return frozenset(member for member, is_user in self._granted if is_user)

    @property
    def administrators(self) -> frozenset[str]:
        """Users who may do everything."""
        return frozenset(user for user in self.users if ADMIN in self.usable(user))

    def roles_of(self, login: str) -> tuple[str, ...]:
        """Roles granted to a user, not those that these inherit; the role of a token."""
        token = self.tokens.get(login)
        if token is None:
            return self._granted.get((login, True), ())
        return (token.role,) if token.role in self.usable(token.user) else ()

    def usable(self, login: str) -> frozenset[str]:
        """Roles that a user, or a token, may work in."""
        return self._closure(self.roles_of(login))

    def first_role(self, login: str) -> str:
        """Where a session without a default works."""
        working = login not in self.tokens and WORKING in self.usable(login)
        return WORKING if working else (sorted(self.roles_of(login)) or [PUBLIC])[0]

    def on(self, kind: str, name: str) -> tuple[Grant, ...]:
        return self.grants.get((kind, name), ())

    def has(self, role: str, privilege: str, kind: str, name: str, owner: str) -> bool:
        """Whether a role has a privilege on a whole object. Owners have all."""
        held = self.held(role)
        if owner in held:
            return True
        return any(g.privilege == privilege and not g.column and g.role in held for g in self.on(kind, name))

    def sees(self, role: str, kind: str, name: str, owner: str) -> bool:
        """Whether an object exists for a role: it owns it, or has some privilege on it."""
        held = self.held(role)
        return owner in held or any(g.role in held for g in self.on(kind, name))

    def manages(self, role: str, privilege: str) -> bool:
        """A privilege on the organization."""
        return self.has(role, privilege, *ORGANIZATION, ADMIN)

    def may_grant(self, role: str, privilege: str, kind: str, name: str, owner: str) -> bool:
        """Owner, MANAGE_GRANTS, or the privilege WITH GRANT OPTION."""
        held = self.held(role)
        if owner in held or self.manages(role, "manage_grants"):
            return True
        return any(g.grant_option and g.privilege == privilege and g.role in held for g in self.on(kind, name))


def by_object(grants: Iterable[Grant]) -> dict[tuple[str, str], tuple[Grant, ...]]:
    out: dict[tuple[str, str], list[Grant]] = {}
    for grant in grants:
        out.setdefault((grant.kind, grant.name), []).append(grant)
    return {k: tuple(v) for k, v in out.items()}
