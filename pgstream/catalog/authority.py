"""Changing who may do what: roles, memberships, grants, ownership; in the catalogue and, by it, in PostgreSQL.

Owns: the rows of memberships and grants, and the refusals that protect them. PostgreSQL's roles change in the same
transaction as the catalogue (roles belong to the whole cluster); privileges on PostgreSQL's objects after it (``acl``).
Must not know: who asks and whether they may (``privileges`` says, ``statements`` asks). Start reading at ``Authority``.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from sqlalchemy import and_, delete, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from pgstream.catalog import acl, inventory, kinds, models, policies, postgres, rows
from pgstream.catalog.privileges import (
    ADMIN,
    BUILT_IN,
    FIRST_GRANTS,
    FIRST_MEMBERSHIPS,
    Access,
    Grant,
    Membership,
    by_object,
)
from pgstream.catalog.records import DEFAULT_ORGANIZATION, ObjectRecord
from pgstream.catalog.roles import login, pg_role
from pgstream.errors import DependentsExist, InvalidGrant, ReservedName
from pgstream.names import FullName

if TYPE_CHECKING:
    from pgstream.catalog.store import Change


def key(role: str) -> tuple[str, str, str]:
    return DEFAULT_ORGANIZATION, "role", role


class Authority:
    """Roles and grants; ``change`` is the catalogue's transaction."""

    def __init__(self, change: Callable[..., AbstractAsyncContextManager[Change]]) -> None:
        self._change = change

    async def create_role(
        self, record: ObjectRecord, inherits: Sequence[str], members: Sequence[str], at: int | None = None
    ) -> None:
        """``inherits``: roles granted to the new one; ``members``: roles that the new one is granted to."""
        async with self._change() as change:
            await inventory.insert(change.session, record, at)
            if await postgres.has_role_in(change.session, record.name):
                raise ReservedName(kind="role", name=record.name, at=at)
            await postgres.create_role(change.session, record.name)
            grants = [Membership(r, record.name, grantor=record.owner) for r in inherits]
            await join(change.session, [*grants, *(Membership(record.name, m, grantor=record.owner) for m in members)])
            await settle_tokens(change.session)

    async def drop_role(self, name: str, at: int | None = None) -> None:
        """Refused for a built-in role, one that owns something, and one that has been granted other roles."""
        if name in BUILT_IN:
            raise ReservedName(kind="role", name=name, at=at, hint="Built-in roles stay.")
        async with self._change() as change:
            await inventory.find(change.session, key(name), at)
            says, users = await _uses(change.session, name)
            if users:
                raise DependentsExist(kind="role", name=name, users=users, says=says, at=at, hint=_HANDOVER)
            found = select(models.GrantRow.kind, models.GrantRow.name).where(models.GrantRow.role == name)
            held = {(kind, object) for kind, object in await change.session.execute(found)}
            await change.session.execute(delete(models.GrantRow).where(models.GrantRow.role == name))
            await acl.settle(change, held)
        # PostgreSQL drops a role only when no database knows of a privilege of its: a second step.
        async with self._change() as change:
            await forget(change.session, "role", name)
            for token in await tokens(change.session):
                if token.options["token.role_name"] == name:
                    await postgres.drop_role(change.session, login(token.created_by, token.name))
                    await change.session.delete(token)
            await change.session.delete(await inventory.find(change.session, key(name), at))
            member = models.MembershipRow
            await change.session.execute(
                delete(member).where(or_(member.role == name, and_(member.member == name, ~member.is_user)))
            )
            await change.session.flush()
            await settle_tokens(change.session)
            await postgres.drop_role(change.session, name, at)

    async def grant_roles(self, memberships: Sequence[Membership]) -> None:
        """Errors: InvalidGrant for a circle."""
        async with self._change() as change:
            await join(change.session, memberships)
            await settle_tokens(change.session)

    async def revoke_roles(self, memberships: Iterable[Membership]) -> list[Membership]:
        """Those that were there."""
        async with self._change() as change:
            gone = []
            for m in memberships:
                row = await change.session.get(models.MembershipRow, (m.role, m.member, m.is_user))
                if row is not None:
                    await change.session.delete(row)
                    await postgres.revoke_role(change.session, m.role, m.member, m.is_user)
                    gone.append(m)
            await change.session.flush()
            await settle_tokens(change.session)
            return gone

    async def grant(self, grants: Sequence[Grant]) -> None:
        """Granting again may add the grant option, and never takes it away."""
        async with self._change() as change:
            for g in grants:
                values = {f: getattr(g, f) for f in _FIELDS}
                added = insert(models.GrantRow).values(**values)
                again = {"grant_option": or_(models.GrantRow.grant_option, added.excluded.grant_option)}
                await change.session.execute(added.on_conflict_do_update(index_elements=_FIELDS[:5], set_=again))
            await acl.settle(change, {(g.kind, g.name) for g in grants})

    async def revoke(self, grants: Sequence[Grant], option_only: bool = False) -> int:
        """How many there were. A privilege on the whole takes those on single columns with it.

        ``option_only``: the privilege stays, the right to pass it on goes.
        """
        async with self._change() as change:
            gone = 0
            row = models.GrantRow
            for g in grants:
                which = and_(row.role == g.role, row.kind == g.kind, row.name == g.name, row.privilege == g.privilege)
                if g.column:
                    which = and_(which, row.column == g.column)
                taken = update(row).where(which).values(grant_option=False) if option_only else delete(row).where(which)
                gone += (await change.session.execute(taken)).rowcount  # type: ignore[attr-defined]
            await acl.settle(change, {(g.kind, g.name) for g in grants})
            return gone

    async def give(self, kind: str, name: str, owner: str) -> None:
        """Make a role the owner of an object."""
        async with self._change(*([FullName.read(name)] if kind == "relation" else ())) as change:
            row = await _owned(change.session, kind, name)
            row.owner = owner
            await change.session.flush()
            await acl.settle(change, {(kind, name)})
            if isinstance(row, models.RelationRow) and row.row_security:
                await policies.settle(change, row)


_FIELDS = ("role", "kind", "name", "privilege", "column", "grant_option", "grantor")
_HANDOVER = "GRANT OWNERSHIP gives objects to another role; REVOKE ROLE takes roles back."
_OWNING = {
    "database": models.DatabaseRow, "schema": models.SchemaRow, "relation": models.RelationRow,
    "store": models.StoreRow, "query": models.QueryRow,
}  # fmt: skip
Owned = (
    models.DatabaseRow | models.SchemaRow | models.RelationRow | models.StoreRow | models.QueryRow | models.ObjectRow
)


async def _owned(session: AsyncSession, kind: str, name: str) -> Owned:
    """The row of an object by its canonical name."""
    found: Owned | None
    if kind == "database":
        found = await session.get(models.DatabaseRow, name)
    elif kind == "schema":
        found = await session.get(models.SchemaRow, FullName.parse(name))
    elif kind == "relation":
        r, (database, schema, relation) = models.RelationRow, FullName.parse(name)
        found = await session.scalar(select(r).where(r.database == database, r.schema == schema, r.name == relation))
    elif kind == "store":
        found = await session.scalar(select(models.StoreRow).where(models.StoreRow.name == name))
    elif kind == "query":
        found = await session.get(models.QueryRow, name)
    else:
        found = await inventory.find(session, (DEFAULT_ORGANIZATION, kind, name))
    if found is None:
        raise kinds.missing(kind, name)
    return found


async def join(session: AsyncSession, memberships: Sequence[Membership]) -> None:
    access = await read(session)
    for m in memberships:
        if not m.is_user and m.member in access.held(m.role):
            raise InvalidGrant(what=f'role "{m.role}" is a member of role "{m.member}"')
        row = models.MembershipRow(role=m.role, member=m.member, is_user=m.is_user, grantor=m.grantor)
        if await session.get(models.MembershipRow, (m.role, m.member, m.is_user)) is None:
            session.add(row)
            await session.flush()
            await postgres.grant_role(session, m.role, m.member, m.is_user)
        access = Access((*access.memberships, m), access.grants, access.tokens)


async def tokens(session: AsyncSession) -> list[models.ObjectRow]:
    return list(await session.scalars(select(models.ObjectRow).where(models.ObjectRow.kind == "api_token")))


async def settle_tokens(session: AsyncSession) -> None:
    """A token may work in its role in PostgreSQL as long as its user may."""
    if not await tokens(session):
        return
    access = await read(session)
    has = await postgres.granted(session, access.tokens)
    for name, token in access.tokens.items():
        wanted = bool(access.roles_of(name))
        if wanted and pg_role(token.role) not in has[name]:
            await postgres.grant_role(session, token.role, name, is_user=True)
        elif not wanted and pg_role(token.role) in has[name]:
            await postgres.revoke_role(session, token.role, name, is_user=True)


async def _uses(session: AsyncSession, role: str) -> tuple[str, list[tuple[str, str]]]:
    """Why a role cannot go yet: what is said of the objects, and these."""
    owned = [
        (row.kind if isinstance(row, models.ObjectRow) else kind, _label(row))
        for kind, model in {**_OWNING, "": models.ObjectRow}.items()
        for row in await session.scalars(select(model).where(model.owner == role).limit(5))  # type: ignore[attr-defined]
    ]
    if owned:
        return "It owns", owned
    if named := await policies.uses(session, role):
        return "It is named by", named
    m = models.MembershipRow
    held = await session.scalars(select(m.role).where(m.member == role, ~m.is_user))
    return "It has been granted", [("role", name) for name in sorted(held)]


def _label(row: object) -> str:
    if isinstance(row, models.RelationRow):
        return str(FullName(row.database, row.schema, row.name))
    return str(row.id if isinstance(row, models.QueryRow) else getattr(row, "name", ""))


async def forget(session: AsyncSession, kind: str, *names: str) -> None:
    """An object goes, and every privilege on it."""
    await session.execute(delete(models.GrantRow).where(models.GrantRow.kind == kind, models.GrantRow.name.in_(names)))


async def read(session: AsyncSession) -> Access:
    memberships = tuple([rows.membership(r) for r in await session.scalars(select(models.MembershipRow))])
    grants = by_object([rows.grant(r) for r in await session.scalars(select(models.GrantRow))])
    return Access(memberships, grants, rows.tokens(await tokens(session)))


async def first(session: AsyncSession) -> None:
    """Built-in roles with what they hold, once; they may be changed later."""
    if await session.get(models.MetaRow, "first_roles"):
        return
    for name in BUILT_IN:
        session.add(
            rows.object_row(ObjectRecord("role", name, owner="orgadmin", id=str(uuid.uuid4()), created_by="pgstream"))
        )
    for m in FIRST_MEMBERSHIPS:
        session.add(models.MembershipRow(role=m.role, member=m.member, is_user=False, grantor=m.grantor))
    for g in FIRST_GRANTS:
        session.add(models.GrantRow(**{f: getattr(g, f) for f in _FIELDS}))
    session.add(models.MetaRow(key="first_roles", value="1"))
    await session.flush()


async def first_user(session: AsyncSession, user: str) -> None:
    """The first user administers the organization; granted once, so that it can be taken away."""
    await inventory.ensure(session, ObjectRecord("user", user, created_by=user, state="active"))
    if await session.get(models.MetaRow, "first_user"):
        return
    session.add(models.MetaRow(key="first_user", value=user))
    await join(session, [Membership("orgadmin", user, is_user=True)])


async def users_before(session: AsyncSession, users: Iterable[str]) -> None:
    """Users of a version in which they inherited their roles: from now on they work in one of them."""
    for user in users:
        # PostgreSQL keeps with each membership whether it is inherited, so it is taken and given again.
        await postgres.revoke_role(session, ADMIN, user, is_user=True)
        await postgres.disinherit(session, user)
        await join(session, [Membership(ADMIN, user, is_user=True)])
