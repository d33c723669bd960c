"""Everything about API_TOKEN: CREATE, ALTER … RENEW TOKEN, DROP, LIST.

Owns: making a token and showing it once; the catalogue keeps its SHA-256 only, so nobody can read it again.
Must not know: who accepts tokens. Manual: "CREATE API_TOKEN", "ALTER API_TOKEN", "DROP API_TOKEN", "LIST API_TOKENS".
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
from pgstream.names import Name
from pgstream.sql.cursor import Cursor
from pgstream.statements import places
from pgstream.statements.answers import ddl
from pgstream.statements.base import DDL_ROW, Column, Context, Result, Statement
from pgstream.statements.shapes import Create, Drop, List, OfKind
from pgstream.stores.spec import Kind, Option, OptionTable

OPTIONS = OptionTable(
    "an API token",
    (
        Option("token.role_name", Kind.TEXT, "Role whose privileges the token has.", required=True, names="role",
               example="sysadmin"),
        Option("token.expires_in_days", Kind.INTEGER, "Days until it expires.", default="90", minimum=1),
    ),
)  # fmt: skip
_OWN = "a user's tokens are the user's own, whatever role the session has"
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

    Make a token that acts with a role's privileges. Token shows it this once; it cannot be read again.
    """

    kind: ClassVar[str] = "api_token"
    free: ClassVar[str] = _OWN
    needs = Statement.needs
    options: ClassVar[OptionTable] = OPTIONS
    columns: ClassVar[tuple[Column, ...]] = TOKEN_ROW

    async def execute(self, ctx: Context) -> Result:
        if self.found(ctx):
            if not self.if_not_exists:
                raise kinds.duplicate(self.kind, self.label, self.name.at)
            sentence = f'api_token "{self.label}" already exists'
            ctx.notice(f"{sentence}, skipping")
            return Result(self.tag, self.columns, [[self.kind, self.label, "CREATE", sentence, None]])
        record, _ = await self.record(ctx)
        role = record.options["token.role_name"]
        if role not in ctx.catalog.snapshot.access.usable(ctx.session.user):
            raise kinds.missing("role", role, self.given["token.role_name"].value_at)
        record, kept, token = new_token(record, int(record.options["token.expires_in_days"]))
        await ctx.catalog.inventory.create(record, kept, at=self.name.at)
        return Result(self.tag, self.columns, [[*ddl(self.kind, self.label, "CREATE", [])[:4], token]])


@dataclass(frozen=True, slots=True)
class AlterApiToken(OfKind):
    """ALTER API_TOKEN token_name RENEW TOKEN;

    Replace a token by a new one with a new life. Whoever holds the old one is locked out.
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
        record = places.object(ctx, self.kind, self.name)
        _check_owner(ctx, record, self.name)
        record, kept, token = new_token(record, int(record.options["token.expires_in_days"]))
        await ctx.catalog.inventory.update(record, kept, at=self.name.at)
        summary = f"api_token {self.label} was successfully refreshed"
        return Result(self.tag, self.columns, [[self.kind, self.label, "ALTER", summary, token]])


class DropApiToken(Drop):
    """DROP API_TOKEN [IF EXISTS] token_name;

    End a token. Only the user who made it may.
    """

    kind: ClassVar[str] = "api_token"
    free: ClassVar[str] = _OWN
    needs = Statement.needs

    async def drop(self, ctx: Context) -> None:
        record = places.object(ctx, self.kind, self.name)
        _check_owner(ctx, record, self.name)
        await ctx.catalog.inventory.drop(record.key, at=self.name.at)


def _check_owner(ctx: Context, record: ObjectRecord, name: Name) -> None:
    if record.created_by != ctx.session.user:
        raise kinds.missing("api_token", record.name, name.at)


class ListApiTokens(List):
    """LIST API_TOKENS;

    The current user's tokens, one a row.
    """

    kind: ClassVar[str] = "api_token"
    free: ClassVar[str] = _OWN
    needs = Statement.needs
    columns: ClassVar[tuple[Column, ...]] = (
        Column("Name"), Column("Last Used", types.TIMESTAMP_LTZ), Column("Created At", types.TIMESTAMP_LTZ),
        Column("Expires At", types.TIMESTAMP_LTZ),
    )  # fmt: skip

    async def lines(self, ctx: Context) -> list[Sequence[Any]]:
        return [
            (t.name, moment(t, "used_at"), moment(t, "issued_at"), moment(t, "expires_at"))
            for t in places.objects(ctx, self.kind)
            if t.created_by == ctx.session.user
        ]
