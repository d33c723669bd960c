"""Everything about API_TOKEN: CREATE, ALTER … RENEW TOKEN, DROP, LIST.

Owns: making a token and showing it once. Nobody can read it again: PostgreSQL keeps a SCRAM verifier of it, as of a
password, under the name that the token logs in with (``catalog.roles.login``).
Must not know: how that login role is made (``catalog.users``).
Manual: "CREATE API_TOKEN", "ALTER API_TOKEN", "DROP API_TOKEN", "LIST API_TOKENS".
"""

from __future__ import annotations

import datetime as dt
import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from pgstream import types
from pgstream.catalog import kinds
from pgstream.catalog.records import ObjectRecord
from pgstream.catalog.roles import login
from pgstream.errors import InsufficientPrivilege, InvalidOption, NameTooLong
from pgstream.names import Name
from pgstream.sql.cursor import MAX_NAME_BYTES, Cursor
from pgstream.statements import places
from pgstream.statements.answers import ddl
from pgstream.statements.base import DDL_ROW, Column, Context, Result, Statement
from pgstream.statements.shapes import Create, Drop, List, OfKind
from pgstream.stores.spec import Kind, Option, OptionTable

OPTIONS = OptionTable(
    "an API token",
    (
        Option("token.role_name", Kind.TEXT, "Role whose privileges the token has.", required=True, example="sysadmin"),
        Option("token.expires_in_days", Kind.INTEGER, "Days until it expires.", default="90", minimum=1),
    ),
)  # fmt: skip
_OWN = "a user's tokens are the user's own, whatever role the session has"
_LONGEST_DAYS = 36500
# Five columns, the fifth being the token: the manual's order, without a Path.
TOKEN_ROW = (*DDL_ROW[:4], Column("Token"))


def new_token(record: ObjectRecord, days: int) -> tuple[ObjectRecord, dict[str, str], str]:
    """A record that knows the token's moments, the secrets to keep (its digest), and the token."""
    token = secrets.token_urlsafe(32)
    now = dt.datetime.now(dt.UTC).replace(microsecond=0)
    facts = {"issued_at": now.isoformat(), "expires_at": (now + dt.timedelta(days=days)).isoformat()}
    kept = {"digest": hashlib.sha256(token.encode()).hexdigest()}
    return replace(record, options={**record.options, **facts}), kept, token


def moment(record: ObjectRecord, name: str) -> dt.datetime | None:
    """A moment that ``new_token`` wrote."""
    text = record.options.get(name)
    return dt.datetime.fromisoformat(text) if text else None


class CreateApiToken(Create):
    """CREATE API_TOKEN [IF NOT EXISTS] token_name
    WITH ( 'token.role_name' = role_name [, 'token.expires_in_days' = n] );

    Make a token that acts with a role's privileges. Token shows it this once; it cannot be read again. Any client logs
    in with it: the user name is yours and the token's with ``~`` between (``ann~ci``), the password is the token. Its
    sessions work in the token's role, for as long as you may work in it yourself, until it expires: after 90 days,
    unless said otherwise.
    """

    kind: ClassVar[str] = "api_token"
    free: ClassVar[str] = _OWN
    needs = Statement.needs
    options: ClassVar[OptionTable] = OPTIONS
    columns: ClassVar[tuple[Column, ...]] = TOKEN_ROW
    needs_with: ClassVar[bool] = False  # as older clients write it; then what is missing is said

    async def execute(self, ctx: Context) -> Result:
        _check_user(ctx)
        if self.found(ctx):
            if not self.if_not_exists:
                raise kinds.duplicate(self.kind, self.label, self.name.at)
            sentence = f'api_token "{self.label}" already exists'
            ctx.notice(f"{sentence}, skipping")
            return Result(self.tag, self.columns, [[self.kind, self.label, "CREATE", sentence, None]])
        record, _ = await self.record(ctx)
        self._check(ctx, record)
        record, _, token = new_token(record, int(record.options["token.expires_in_days"]))
        await ctx.catalog.users.create_token(record, token, _end(record), at=self.name.at)
        name = login(record.created_by, record.name)
        ctx.notice(f'the token logs in as user "{name}", with itself as the password')
        return Result(self.tag, self.columns, [[*ddl(self.kind, self.label, "CREATE", [])[:4], token]])

    def _check(self, ctx: Context, record: ObjectRecord) -> None:
        role, days = record.options["token.role_name"], int(record.options["token.expires_in_days"])
        if role not in ctx.catalog.snapshot.access.usable(ctx.session.user):
            at = self.given["token.role_name"].value_at
            places.object(ctx, "role", Name(role, at))
            hint = "A token takes a role that you have been granted."
            raise InsufficientPrivilege(kind="role", name=role, at=at, hint=hint)
        if days > _LONGEST_DAYS:
            raise InvalidOption(
                what=f"invalid value '{days}' for parameter \"token.expires_in_days\"",
                at=self.given["token.expires_in_days"].value_at, hint=f"Use at most {_LONGEST_DAYS}.",
            )  # fmt: skip
        name = login(record.created_by, record.name)
        if len(name.encode()) > MAX_NAME_BYTES:
            raise NameTooLong(name=name, at=self.name.at, hint="A token logs in under its user's name, ~ and its own.")


@dataclass(frozen=True, slots=True)
class AlterApiToken(OfKind):
    """ALTER API_TOKEN token_name RENEW TOKEN;

    Replace a token by a new one with a new life. Whoever holds the old one is locked out, in the middle of a session
    too.
    """

    kind: ClassVar[str] = "api_token"
    free: ClassVar[str] = _OWN
    needs = Statement.needs
    verb: ClassVar[str] = "ALTER"
    columns: ClassVar[tuple[Column, ...]] = TOKEN_ROW

    name: Name

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        name = c.name()
        c.expect("RENEW", "TOKEN")
        c.end()
        return cls(name)

    async def execute(self, ctx: Context) -> Result:
        record = _own(ctx, self.name)
        record, _, token = new_token(record, int(record.options["token.expires_in_days"]))
        await ctx.catalog.users.renew_token(record, token, _end(record), at=self.name.at)
        summary = f"api_token {self.label} was successfully refreshed"
        return Result(self.tag, self.columns, [[self.kind, self.label, "ALTER", summary, token]])


class DropApiToken(Drop):
    """DROP API_TOKEN [IF EXISTS] token_name;

    End a token, and the sessions that came in with it. Only the user who made it may.
    """

    kind: ClassVar[str] = "api_token"
    free: ClassVar[str] = _OWN
    needs = Statement.needs

    def found(self, ctx: Context) -> bool:
        record = places.find(ctx, self.kind, self.label)
        return record is not None and record.created_by == ctx.session.user

    async def drop(self, ctx: Context) -> None:
        await ctx.catalog.users.drop_token(_own(ctx, self.name), at=self.name.at)


def _check_user(ctx: Context) -> None:
    """A token that is let out of hand must not make others, which would outlive it."""
    if ctx.session.user in ctx.catalog.snapshot.access.tokens:
        raise InsufficientPrivilege(
            kind="user", name=ctx.session.user, detail="Tokens cannot make tokens.", hint="Log in as the user."
        )


def _own(ctx: Context, name: Name) -> ObjectRecord:
    """The token of that name, of this user: others' do not exist."""
    record = places.object(ctx, "api_token", name)
    if record.created_by != ctx.session.user:
        raise kinds.missing("api_token", record.name, name.at)
    return record


def _end(record: ObjectRecord) -> dt.datetime:
    end = moment(record, "expires_at")
    assert end is not None  # new_token wrote it
    return end


class ListApiTokens(List):
    """LIST API_TOKENS;

    The current user's tokens, one a row. Last Used is right to the minute; User, which the token logs in as, and Role
    are additions of ours.
    """

    kind: ClassVar[str] = "api_token"
    free: ClassVar[str] = _OWN
    needs = Statement.needs
    columns: ClassVar[tuple[Column, ...]] = (
        Column("Name"), Column("Last Used", types.TIMESTAMP_LTZ), Column("Created At", types.TIMESTAMP_LTZ),
        Column("Expires At", types.TIMESTAMP_LTZ), Column("User"), Column("Role"),
    )  # fmt: skip

    async def lines(self, ctx: Context) -> list[Sequence[Any]]:
        uses = await ctx.catalog.users.token_uses()
        mine = [t for t in places.objects(ctx, self.kind) if t.created_by == ctx.session.user]
        return [
            (t.name, uses.get(name), moment(t, "issued_at"), _end(t), name, t.options["token.role_name"])
            for t in mine
            for name in (login(t.created_by, t.name),)
        ]
