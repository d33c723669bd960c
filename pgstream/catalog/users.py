"""Who may log in: users, their invitations, their API tokens; in the catalogue and as PostgreSQL's login roles.

Owns: the rows, and the login role of each, which change together (roles belong to the whole cluster). A password is in
neither: PostgreSQL keeps its SCRAM verifier, which the front door checks.
Must not know: who asks and whether they may. Roles to work in are ``authority``'s. Start reading at ``Users``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from sqlalchemy import and_, delete, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from pgstream.catalog import authority, inventory, kinds, models, postgres
from pgstream.catalog.privileges import ADMIN, PUBLIC, Membership
from pgstream.catalog.records import ObjectRecord
from pgstream.catalog.roles import login
from pgstream.errors import DependentsExist, ReservedName

if TYPE_CHECKING:
    from pgstream.catalog.store import Change


ACTIVE, INVITED = "active", "invited"


class Users:
    """``change`` and ``reading`` are the catalogue's transactions."""

    def __init__(
        self,
        change: Callable[[], AbstractAsyncContextManager[Change]],
        reading: Callable[[], AbstractAsyncContextManager[AsyncSession]],
    ) -> None:
        self._change = change
        self._reading = reading

    async def set_password(self, user: str, password: str, at: int | None = None) -> None:
        """``password`` may be a SCRAM verifier, which clients make so that no password crosses."""
        async with self._change() as change:
            if not await postgres.has_login(change.session, user):
                raise kinds.missing("user", user, at)
            await postgres.alter_login(change.session, user, password)

    async def drop(self, user: str, at: int | None = None) -> None:
        """With tokens, defaults and invitation; sessions end. Somebody must be left who may do everything."""
        async with self._change() as change:
            held = [t for t in await authority.tokens(change.session) if t.created_by == user]
            who = await postgres.numbers(change.session, [user, *(login(user, t.name) for t in held)])
            for token in held:
                await drop_token(change.session, token)
            await _forget(change.session, user, at)
            if not (await authority.read(change.session)).administrators:
                raise DependentsExist(
                    kind="user", name=user, at=at, detail=f"No other user has role {ADMIN}.",
                    hint=f"Grant {ADMIN} to another user first.",
                )  # fmt: skip
        await self._end_sessions(change, who)

    # Invitations: a user who may log in, and works in no role before it is accepted

    async def invite(self, invitation: ObjectRecord, password: str, at: int | None = None) -> None:
        """Make the user, with a first password."""
        user = invitation.options["email"]
        async with self._change() as change:
            await inventory.insert(
                change.session,
                ObjectRecord("user", user, created_by=invitation.created_by, state=INVITED),
                at,
            )
            await _free(change.session, user, at)
            await inventory.insert(change.session, invitation, at)
            await postgres.create_login(change.session, user, password)
            await postgres.grant_role(change.session, PUBLIC, user, is_user=True)

    async def accept(self, invitation: ObjectRecord, roles: Sequence[str], default: str) -> None:
        """Give the user the roles."""
        user = invitation.options["email"]
        async with self._change() as change:
            await change.session.delete(await inventory.find(change.session, invitation.key))
            (await inventory.find(change.session, (invitation.organization, "user", user))).state = ACTIVE
            grants = [Membership(r, user, is_user=True, grantor=invitation.options["grantor"]) for r in roles]
            await authority.join(change.session, grants)
            await change.session.merge(
                models.DefaultRow(user=user, organization=invitation.organization, kind="role", value=default)
            )

    async def withdraw(self, invitation: ObjectRecord, at: int | None = None) -> None:
        """It was rejected, or revoked: the user goes."""
        user = invitation.options["email"]
        async with self._change() as change:
            await _forget(change.session, user, at)

    # API tokens: a login role each, which works in the token's role

    async def create_token(self, record: ObjectRecord, secret: str, until: dt.datetime, at: int | None = None) -> None:
        """``secret`` is what is logged in with; its user may work in the token's role."""
        name = login(record.created_by, record.name)
        async with self._change() as change:
            await inventory.insert(change.session, record, at)
            await _free(change.session, name, at)
            await postgres.create_login(change.session, name, secret, until)
            await authority.settle_tokens(change.session)

    async def renew_token(self, record: ObjectRecord, secret: str, until: dt.datetime, at: int | None = None) -> None:
        """Whoever came in with the earlier secret is sent out."""
        name = login(record.created_by, record.name)
        async with self._change() as change:
            row = await inventory.find(change.session, record.key, at)
            row.options = dict(record.options)
            await postgres.alter_login(change.session, name, secret, until)
            who = await postgres.numbers(change.session, [name])
        await self._end_sessions(change, who)

    async def drop_token(self, record: ObjectRecord, at: int | None = None) -> None:
        """Whoever came in with it is sent out."""
        async with self._change() as change:
            row = await inventory.find(change.session, record.key, at)
            who = await postgres.numbers(change.session, [login(record.created_by, record.name)])
            await drop_token(change.session, row)
        await self._end_sessions(change, who)

    async def token_uses(self) -> Mapping[str, dt.datetime]:
        """When each was last logged in with, by the names that they log in with."""
        async with self._reading() as session:
            return {use.login: use.used_at for use in await session.scalars(select(models.TokenUseRow))}

    @staticmethod
    async def _end_sessions(change: Change, who: list[int]) -> None:
        """After the catalogue has committed: nobody comes in again."""
        async with change.administrator.connect("postgres") as conn:
            await postgres.end_sessions(conn, who)


async def _free(session: AsyncSession, name: str, at: int | None) -> None:
    """PostgreSQL has one name space for roles and users."""
    if await postgres.has_login(session, name):
        raise ReservedName(kind="user", name=name, at=at)


async def _forget(session: AsyncSession, user: str, at: int | None) -> None:
    row = models.ObjectRow
    theirs = or_(and_(row.kind == "user", row.name == user), row.kind == "invitation")
    for found in await session.scalars(select(row).where(theirs)):
        if found.kind == "user" or found.options["email"] == user:
            await session.delete(found)
    member, default = models.MembershipRow, models.DefaultRow
    await session.execute(delete(member).where(member.member == user, member.is_user))
    await session.execute(delete(default).where(default.user == user))
    await session.flush()
    await postgres.drop_role(session, user, at)


async def drop_token(session: AsyncSession, row: models.ObjectRow) -> None:
    """Inside the caller's transaction."""
    name = login(row.created_by, row.name)
    await session.delete(row)
    use = models.TokenUseRow
    await session.execute(delete(use).where(use.login == name))
    await session.flush()
    await postgres.drop_role(session, name)
