"""Everything about SECURITY INTEGRATION and METRICS INTEGRATION: CREATE, ALTER … RENEW TOKEN, DROP, LIST, DESCRIBE.

Owns: their options and columns, and the token of a security integration, shown once. Must not know: who calls with it.
Manual: "CREATE SECURITY INTEGRATION", "ALTER SECURITY INTEGRATION", "LIST SECURITY INTEGRATIONS". Of METRICS
INTEGRATION the manual has the names only; its parameters here are those that a Prometheus remote write needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pgstream import types
from pgstream.catalog import kinds
from pgstream.catalog.records import ObjectRecord
from pgstream.names import Name
from pgstream.sql.cursor import Cursor
from pgstream.statements import access, places
from pgstream.statements.access import Need
from pgstream.statements.answers import ddl
from pgstream.statements.base import DDL_ROW, Column, Context, Result
from pgstream.statements.shapes import Create, Describe, Drop, List, OfKind
from pgstream.statements.tokens import moment, new_token
from pgstream.stores.spec import Kind, Option, OptionTable

SECURITY = OptionTable(
    "a security integration",
    (
        Option("type", Kind.WORD, "Kind of integration.", required=True, choices=("SCIM",), example="SCIM"),
        Option("scim.client", Kind.WORD, "Who calls.", default="OKTA", choices=("OKTA",)),
        Option("scim.run_as_role", Kind.WORD, "Role in which it acts.", default="OKTA_SKIM_PROVISIONER",
               choices=("OKTA_SKIM_PROVISIONER",)),
    ),
)  # fmt: skip
METRICS = OptionTable(
    "a metrics integration",
    (
        Option("type", Kind.WORD, "Kind of integration.", required=True, choices=("PROMETHEUS",), example="PROMETHEUS"),
        Option("prometheus.uri", Kind.TEXT, "URL of the remote-write endpoint."),
        Option("prometheus.username", Kind.TEXT, "User name for basic authentication."),
        Option("prometheus.password", Kind.SECRET, "Password for basic authentication."),
    ),
)
_TOKEN_DAYS = 365
_TOKEN_ROW = (*DDL_ROW[:4], Column("Token"), Column("Uri"), Column("Expires At", types.TIMESTAMP_LTZ))


def _row(ctx: Context, record: ObjectRecord, command: str, summary: str, token: str) -> list[str | None]:
    uri = f"/scim/v2/{ctx.catalog.snapshot.organization.id}"
    return [
        "security integration",
        record.name,
        command,
        summary,
        token,
        uri,
        types.render(moment(record, "expires_at")),
    ]


class CreateSecurityIntegration(Create):
    """CREATE SECURITY INTEGRATION [IF NOT EXISTS] name
    WITH ( 'type' = SCIM [, 'scim.client' = OKTA] [, 'scim.run_as_role' = okta_skim_provisioner] );

    Register an identity provider that will manage users by SCIM. Token shows the secret it calls with, this once.
    """

    kind: ClassVar[str] = "security_integration"
    options: ClassVar[OptionTable] = SECURITY
    columns: ClassVar[tuple[Column, ...]] = _TOKEN_ROW

    async def execute(self, ctx: Context) -> Result:
        if self.found(ctx):
            if not self.if_not_exists:
                raise kinds.duplicate(self.kind, self.label, self.name.at)
            sentence = f"security integration {self.label} already exists"
            ctx.notice(f"{sentence}, skipping")
            return Result(
                self.tag, self.columns, [[*ddl(self.kind, self.label, "CREATE", [], sentence)[:4], *[None] * 3]]
            )
        record, _ = await self.record(ctx)
        record, kept, token = new_token(record, _TOKEN_DAYS)
        await ctx.catalog.inventory.create(record, kept, at=self.name.at)
        summary = f"security integration {self.label} was successfully created"
        return Result(self.tag, self.columns, [_row(ctx, record, "CREATE", summary, token)])


@dataclass(frozen=True, slots=True)
class AlterSecurityIntegration(OfKind):
    """ALTER SECURITY INTEGRATION name RENEW TOKEN;

    Replace the integration's token by a new one, valid for a year.
    """

    kind: ClassVar[str] = "security_integration"
    verb: ClassVar[str] = "ALTER"
    columns: ClassVar[tuple[Column, ...]] = _TOKEN_ROW

    name: Name

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        name = c.name()
        c.expect("RENEW", "TOKEN")
        c.end()
        return cls(name)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (access.changes(self.kind, self.name),)

    async def execute(self, ctx: Context) -> Result:
        record, kept, token = new_token(places.object(ctx, self.kind, self.name), _TOKEN_DAYS)
        await ctx.catalog.inventory.update(record, kept, at=self.name.at)
        summary = f"security integration {self.label} was successfully refreshed"
        return Result(self.tag, self.columns, [_row(ctx, record, "ALTER", summary, token)])


class DropSecurityIntegration(Drop):
    """DROP SECURITY INTEGRATION [IF EXISTS] name;

    End a security integration and its token.
    """

    kind: ClassVar[str] = "security_integration"


class ListSecurityIntegrations(List):
    """LIST SECURITY INTEGRATIONS;

    The security integrations, one a row.
    """

    kind: ClassVar[str] = "security_integration"
    columns: ClassVar[tuple[Column, ...]] = (
        Column("Name"), Column("Type"), Column("Created At", types.TIMESTAMP_LTZ),
        Column("Updated At", types.TIMESTAMP_LTZ),
    )  # fmt: skip

    @classmethod
    def line(cls, ctx: Context, record: ObjectRecord) -> Sequence[Any]:
        return record.name, record.type.lower(), record.created_at, record.updated_at


class DescribeSecurityIntegration(Describe):
    """DESCRIBE SECURITY INTEGRATION name;

    The row of LIST SECURITY INTEGRATIONS and its parameters as JSON, without the token.
    """

    kind: ClassVar[str] = "security_integration"
    of: ClassVar[type[List]] = ListSecurityIntegrations


class CreateMetricsIntegration(Create):
    """CREATE METRICS INTEGRATION [IF NOT EXISTS] name
    WITH ( 'type' = PROMETHEUS [, 'prometheus.uri' = 'url']
    [, 'prometheus.username' = 'user', 'prometheus.password' = 'secret'] );

    Register a place for metrics. Its parameters are kept; nothing is sent to it yet.
    """

    kind: ClassVar[str] = "metrics_integration"
    options: ClassVar[OptionTable] = METRICS


class DropMetricsIntegration(Drop):
    """DROP METRICS INTEGRATION [IF EXISTS] name;

    Forget a metrics integration.
    """

    kind: ClassVar[str] = "metrics_integration"


class ListMetricsIntegrations(List):
    """LIST METRICS INTEGRATIONS;

    The metrics integrations, one a row.
    """

    kind: ClassVar[str] = "metrics_integration"
    columns: ClassVar[tuple[Column, ...]] = ListSecurityIntegrations.columns

    @classmethod
    def line(cls, ctx: Context, record: ObjectRecord) -> Sequence[Any]:
        return record.name, record.type.lower(), record.created_at, record.updated_at
