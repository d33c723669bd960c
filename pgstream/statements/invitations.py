"""Everything about INVITATION: INVITE USER, ACCEPT, REJECT, REVOKE, LIST.

Owns: the grammar and the answers, and whom an invitation is shown to: the one it is for, and who manages the members.
Must not know: how a user logs in (``catalog.users``).
Manual: "INVITE USER", "ACCEPT INVITATION", "REJECT INVITATION", "REVOKE INVITATION", "LIST INVITATIONS".
"""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Self

from pgstream import types
from pgstream.catalog import kinds
from pgstream.catalog.privileges import MEMBERS
from pgstream.catalog.records import ObjectRecord
from pgstream.errors import InvalidOption, PgStreamError, ReservedName
from pgstream.names import Name
from pgstream.properties import Options
from pgstream.sql.cursor import Cursor
from pgstream.statements import places
from pgstream.statements.access import Need
from pgstream.statements.answers import ddl, done, listing
from pgstream.statements.base import DDL_ROW, Column, Context, Result, Statement
from pgstream.statements.roles import KEPT, known, user
from pgstream.statements.shapes import Words
from pgstream.stores.spec import Kind, Option, OptionTable

OPTIONS = OptionTable(
    "an invitation",
    (
        Option("default_role", Kind.TEXT, "Role that the user works in at first.", required=True, example="analyst"),
        Option("roles", Kind.TEXT, "Further roles, with commas between."),
        Option("password", Kind.SECRET, "First password; without it one is made and shown. An addition of ours."),
    ),
)
_ROW = (*DDL_ROW[:4], Column("Password"))


@dataclass(frozen=True, slots=True)
class InviteUser(Statement):
    """INVITE USER 'user' [, ...] WITH ( 'default_role' = role_name [, 'roles' = 'role_name [, ...]']
    [, 'password' = 'password'] );

    Make users who may log in, and who get the roles when they accept. Nothing is sent: Password shows what each logs in
    with at first, this once (``ALTER USER … PASSWORD`` changes it), to the database ``postgres`` until they accept. It
    needs MANAGE_MEMBERS.
    """

    words: ClassVar = ("INVITE", "USER")
    tag: ClassVar = "INVITE USER"
    columns: ClassVar = _ROW

    users: tuple[Name, ...]
    given: Options

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        users = [user(c)]
        while c.accept(","):
            users.append(user(c))
        given = c.properties() if c.accept("WITH") else {}
        c.end()
        return cls(tuple(users), given)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need(MEMBERS),)

    async def execute(self, ctx: Context) -> Result:
        checked = OPTIONS.check(self.given)
        default, roles = self._roles(ctx)
        for name in self.users:
            _check_new(ctx, name)
        lines = []
        for name in self.users:
            password = checked.get("password") or secrets.token_urlsafe(16)
            record = ObjectRecord(
                "invitation", str(uuid.uuid4()), created_by=ctx.session.user, state="pending",
                organization=ctx.session.organization,
                options={"email": name.text, "default_role": default, "roles": json.dumps(roles),
                         "grantor": ctx.session.role},
            )  # fmt: skip
            await ctx.catalog.users.invite(record, password, at=name.at)
            summary = f'invitation to organization "{ctx.catalog.snapshot.organization.id}" for "{name}" was created'
            shown = None if "password" in checked else password
            lines.append(["invitation", record.name, "CREATE", summary, shown])
        return Result(self.tag, self.columns, lines)

    def _roles(self, ctx: Context) -> tuple[str, list[str]]:
        """The default role, and all others."""
        given = self.given["default_role"]
        default = known(ctx, Name(given.value or "", given.value_at))
        more = self.given.get("roles")
        if more is None or not more.value:
            return default, []
        try:
            c = Cursor(more.value)
            named = c.names()
            c.end()
        except PgStreamError:
            hint = "Use names of roles, with commas between."
            raise InvalidOption(what="invalid list of roles", at=more.value_at, hint=hint) from None
        return default, [known(ctx, Name(n.text, more.value_at)) for n in named]


def _check_new(ctx: Context, name: Name) -> None:
    snapshot = ctx.catalog.snapshot
    if places.find(ctx, "user", name.text) is not None or snapshot.access.is_member(name.text):
        raise kinds.duplicate("user", name.text, name.at)
    if name.text in KEPT or name.text.startswith(("pg_", "pgstream_")) or not name.text or "\0" in name.text:
        raise ReservedName(kind="user", name=name.text, at=name.at)


@dataclass(frozen=True, slots=True)
class AcceptInvitation(Statement):
    """ACCEPT INVITATION invitation_id;

    Join the organization: you get the roles of an invitation to you, and the session works in its default role.
    """

    words: ClassVar[tuple[str, ...]] = ("ACCEPT", "INVITATION")
    tag: ClassVar[str] = "ACCEPT INVITATION"
    free: ClassVar[str] = "it is for whom the invitation is for; others' do not exist"
    columns: ClassVar[tuple[Column, ...]] = DDL_ROW

    id: Name

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        at = c.at
        id = c.string() if c.peek_string() else c.uuid()
        c.end()
        return cls(Name(id, at))

    def mine(self, ctx: Context) -> ObjectRecord:
        found = places.find(ctx, "invitation", self.id.text)
        if found is None or found.options["email"] != ctx.session.user:
            error = kinds.missing("invitation", self.id.text, self.id.at)
            error.hint = "LIST MY INVITATIONS shows those to you."
            raise error
        return found

    def answer(self, record: ObjectRecord, command: str, summary: str) -> Result:
        return done(self.tag, ddl("invitation", record.name, command, [record.name], summary))

    async def execute(self, ctx: Context) -> Result:
        record = self.mine(ctx)
        default = known(ctx, Name(record.options["default_role"]))
        roles = [known(ctx, Name(role)) for role in json.loads(record.options["roles"])]
        await ctx.catalog.users.accept(record, [*dict.fromkeys([default, *roles])], default)
        await ctx.use_role(default)
        joined = ctx.catalog.snapshot.organization.id
        return self.answer(record, "UPDATE", f'invitation to join organization "{joined}" was accepted')


class RejectInvitation(AcceptInvitation):
    """REJECT INVITATION invitation_id;

    Decline an invitation to you. The user goes with it: nobody logs in under the name any more.
    """

    words: ClassVar[tuple[str, ...]] = ("REJECT", "INVITATION")
    tag: ClassVar[str] = "REJECT INVITATION"

    async def execute(self, ctx: Context) -> Result:
        record = self.mine(ctx)
        await ctx.catalog.users.withdraw(record, at=self.id.at)
        refused = ctx.catalog.snapshot.organization.id
        return self.answer(record, "UPDATE", f'invitation to join organization "{refused}" was rejected')


class RevokeInvitation(AcceptInvitation):
    """REVOKE INVITATION invitation_id;

    Take an invitation back that is not accepted yet, and the user with it. It needs MANAGE_MEMBERS.
    """

    words: ClassVar[tuple[str, ...]] = ("REVOKE", "INVITATION")
    tag: ClassVar[str] = "REVOKE INVITATION"
    free: ClassVar[str] = ""

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need(MEMBERS),)

    async def execute(self, ctx: Context) -> Result:
        record = places.object(ctx, "invitation", self.id)
        await ctx.catalog.users.withdraw(record, at=self.id.at)
        email = record.options["email"]
        summary = f'invitation to organization "{ctx.catalog.snapshot.organization.id}" for "{email}" was revoked'
        return self.answer(record, "DROP", summary)


@dataclass(frozen=True, slots=True)
class ListMyInvitations(Words):
    """LIST MY INVITATIONS;

    The invitations to you that you have not answered yet.
    """

    words: ClassVar = ("LIST", "MY", "INVITATIONS")
    free: ClassVar = "it shows the user's own"
    columns: ClassVar = (Column("ID"), Column("Org Name"), Column("Invited By"))

    async def execute(self, ctx: Context) -> Result:
        mine = [i for i in places.objects(ctx, "invitation") if i.options["email"] == ctx.session.user]
        return listing(self.columns, [(i.name, ctx.catalog.snapshot.organization.name, i.created_by) for i in mine])


@dataclass(frozen=True, slots=True)
class ListPendingInvitations(Words):
    """LIST PENDING INVITATIONS;

    The organization's invitations that are not answered yet, oldest first. It needs MANAGE_MEMBERS.
    """

    words: ClassVar = ("LIST", "PENDING", "INVITATIONS")
    columns: ClassVar = (
        Column("ID"), Column("Org Name"), Column("Email Address"), Column("Invited By"), Column("User Roles"),
        Column("Default Role"), Column("Created At", types.TIMESTAMP_LTZ), Column("Updated At", types.TIMESTAMP_LTZ),
    )  # fmt: skip

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need(MEMBERS),)

    async def execute(self, ctx: Context) -> Result:
        found = sorted(places.objects(ctx, "invitation"), key=lambda i: (i.created_at, i.name))
        lines = [
            (i.name, ctx.catalog.snapshot.organization.name, i.options["email"], i.created_by, i.options["roles"],
             i.options["default_role"], i.created_at, i.updated_at)
            for i in found
        ]  # fmt: skip
        return listing(self.columns, lines)
