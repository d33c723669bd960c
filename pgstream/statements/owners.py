"""The role that a new object is given to: PostgreSQL's AUTHORIZATION and OWNER.

Owns: the words for a role there, and who may give an object to which. Must not know: what is made.
Start reading at ``owner``.
"""

from __future__ import annotations

from pgstream.errors import InsufficientPrivilege, NotSupported
from pgstream.names import Name
from pgstream.sql.cursor import Cursor
from pgstream.statements.base import Context
from pgstream.statements.roles import known

_MINE = ("CURRENT_ROLE", "CURRENT_USER")
SESSION = Name("")
"""The session's own role."""
_USER = "session_user"


def read(c: Cursor) -> Name:
    """``role_name | CURRENT_ROLE | CURRENT_USER | SESSION_USER``"""
    at = c.at
    if any(c.accept(word) for word in _MINE):
        return Name(SESSION.text, at)
    return Name(_USER, at) if c.accept("SESSION_USER") else c.name()


def named(ctx: Context, given: Name) -> str:
    """The role that something is granted to. Errors: UndefinedObject, NotSupported."""
    if given.text == SESSION.text:
        return ctx.session.role
    if given.text == _USER:
        hint = "Privileges and objects belong to roles: name one, or CURRENT_ROLE."
        raise NotSupported(what="SESSION_USER, a user, in the place of a role", hint=hint, at=given.at)
    return known(ctx, given)


def owner(ctx: Context, given: Name | None) -> str:
    """The role that is meant; without one, the session's. Errors: UndefinedObject, InsufficientPrivilege,
    NotSupported.
    """
    if given is None or given.text in (SESSION.text, ctx.session.role):
        return ctx.session.role
    if given.text in (_USER, ctx.session.user):
        hint = "Objects belong to roles: name one, or CURRENT_ROLE."
        raise NotSupported(what="an object that belongs to a user", hint=hint, at=given.at)
    role = known(ctx, given)
    if role not in ctx.catalog.snapshot.access.usable(ctx.session.user):
        hint = "An object can be given to roles that you may work in; LIST USER ROLES shows them."
        raise InsufficientPrivilege(kind="role", name=role, at=given.at, hint=hint)
    return role
