"""The organizations of a session's user: which there are, making one, going on in one.

Owns: whom an organization exists for, which is whoever its own PostgreSQL lets in with what the session has shown.
Must not know: how one is opened (``organizations``), statements. Start reading at ``mine``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pgstream.catalog import kinds
from pgstream.errors import ActiveTransaction, NotSupported
from pgstream.server.flight import IDLE
from pgstream.statements.base import Member

if TYPE_CHECKING:
    from pgstream.server.listener import Listener
    from pgstream.server.session import ClientSession


async def mine(client: ClientSession) -> Sequence[Member]:
    """The organizations that the session may use, by name."""
    found = await _listeners(client)
    default = _default(client, found)
    members = [Member(o.organization, o is client.listener, o is default) for o in found]
    return sorted(members, key=lambda m: m.record.name)


async def _listeners(client: ClientSession) -> list[Listener]:
    organizations = client.listener.organizations
    entered = await organizations.entered_by(client.context.user, client.keys)
    return [o for o in organizations if o is client.listener or o in entered]


def _default(client: ClientSession, found: Sequence[Listener]) -> Listener:
    """SET DEFAULT ORGANIZATION is kept by the first one; who is nobody there has none but its own."""
    if client.listener.front not in found:
        return client.listener
    return client.listener.organizations.default_of(client.context.user)


async def create(client: ClientSession, name: str, at: int | None = None) -> None:
    """Make an organization, and go on in it. Errors: ActiveTransaction, NotSupported, DuplicateObject."""
    if client.flight.status != IDLE or client.context.undecided:
        raise ActiveTransaction(what="CREATE ORGANIZATION")
    if client.listener not in await client.listener.organizations.entered_by(client.context.user, client.keys):
        raise NotSupported(
            what="CREATE ORGANIZATION in a session that was not begun with the user's password",
            hint="The first user of an organization logs in to it with that password.",
        )
    made = await client.listener.organizations.create(name, client.context.user, at)
    await client.use_organization(made)


async def use(client: ClientSession, name: str, at: int | None = None) -> None:
    """Go on in an organization. Errors: UndefinedObject, also when it is none of the user's."""
    found = next((o for o in await _listeners(client) if o.organization.name == name), None)
    if found is None:
        raise kinds.missing("organization", name, at)
    if found is not client.listener:
        await client.use_organization(found)
