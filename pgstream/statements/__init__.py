"""Statements: one module per kind of object, one class per statement, and finding the one that a text is.

Owns: the registration of every statement, ``recognize`` and ``parse``.
Must not know: grammar (each class's ``parse``), sessions, the wire.
Start reading at ``STATEMENTS``; words that PostgreSQL has too are decided in ``shared.py``. How
to add a statement: ``docs/howto/add_a_statement.md``.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from pgstream.catalog.records import Snapshot
from pgstream.errors import StatementTooLong
from pgstream.sql.cursor import Cursor
from pgstream.sql.sniff import begin, has_pieces, head
from pgstream.statements.alterations import AlterRelation, TruncateRelation
from pgstream.statements.applications import BeginApplication
from pgstream.statements.base import Session, Statement
from pgstream.statements.checks import CheckMaterializedView
from pgstream.statements.comments import CommentOn, quoted
from pgstream.statements.compute_pools import (
    CreateComputePool,
    DescribeComputePool,
    DropComputePool,
    ListComputePools,
    StartComputePool,
    StopComputePool,
    UpdateComputePool,
)
from pgstream.statements.copy import CopyStream
from pgstream.statements.create_as import (
    CreateChangelogAs,
    CreateMaterializedViewAs,
    CreateStreamAs,
    CreateTableAs,
    ReplaceMaterializedViewAs,
    as_form,
)
from pgstream.statements.cursors import CloseCursor, DeclareCursor, FetchCursor, MoveCursor
from pgstream.statements.databases import CreateDatabase, DescribeDatabase, DropDatabase, ListDatabases
from pgstream.statements.defaults import SetDefault
from pgstream.statements.describe import DescribeStatement
from pgstream.statements.entities import (
    CreateEntity,
    DescribeEntity,
    DropEntity,
    ListEntities,
    UpdateEntity,
)
from pgstream.statements.entity_records import InsertIntoEntity, PrintEntity
from pgstream.statements.functions import CreateFunction, DescribeFunction, DropFunction, ListFunctions
from pgstream.statements.generate import GenerateColumns, GenerateStreamDdl
from pgstream.statements.grants import (
    AlterDefaultPrivileges,
    AlterOwner,
    CanI,
    GrantOwnership,
    GrantPrivileges,
    RevokePrivileges,
)
from pgstream.statements.heading import newer
from pgstream.statements.indexes import CreateIndex, DropIndex, ListIndexes, Reindex
from pgstream.statements.insert import InsertInto
from pgstream.statements.insert_values import InsertValues, is_values
from pgstream.statements.integrations import (
    AlterSecurityIntegration,
    CreateMetricsIntegration,
    CreateSecurityIntegration,
    DescribeSecurityIntegration,
    DropMetricsIntegration,
    DropSecurityIntegration,
    ListMetricsIntegrations,
    ListSecurityIntegrations,
)
from pgstream.statements.invitations import (
    AcceptInvitation,
    InviteUser,
    ListMyInvitations,
    ListPendingInvitations,
    RejectInvitation,
    RevokeInvitation,
)
from pgstream.statements.organizations import (
    CreateOrganization,
    DescribeOrganization,
    ListOrganizations,
    UseOrganization,
)
from pgstream.statements.policies import AlterPolicy, AlterRowSecurity, CreatePolicy, DropPolicy, ListPolicies
from pgstream.statements.queries import AlterQuery, ListQueries, RestartQuery, TerminateQuery
from pgstream.statements.query_details import (
    DescribeQuery,
    DescribeQueryEvents,
    DescribeQueryMetrics,
    DescribeQueryState,
)
from pgstream.statements.regions import ListRegions
from pgstream.statements.relations import (
    DescribeChangelog,
    DescribeChangelogColumns,
    DescribeColumns,
    DescribeMaterializedView,
    DescribeMaterializedViewColumns,
    DescribeRelation,
    DescribeRelationColumns,
    DescribeStream,
    DescribeStreamColumns,
    DropChangelog,
    DropMaterializedView,
    DropRelation,
    DropStream,
    DropTable,
    DropView,
    ListChangelogs,
    ListMaterializedViews,
    ListRelations,
    ListStreams,
)
from pgstream.statements.repairs import RepairMaterializedView
from pgstream.statements.roles import (
    CreateRole,
    DescribeRole,
    DropRole,
    GrantRole,
    ListRoles,
    ListUserRoles,
    RevokeRole,
    UseRole,
)
from pgstream.statements.sandbox import DescribeSandbox, StartSandbox, StopSandbox
from pgstream.statements.schema_registries import (
    CreateSchemaRegistry,
    DescribeSchemaRegistry,
    DropSchemaRegistry,
    ListSchemaRegistries,
    UpdateSchemaRegistry,
)
from pgstream.statements.schemas import CreateSchema, DescribeSchema, DropSchema, ListSchemas
from pgstream.statements.secrets import CreateSecret, DescribeSecret, DropSecret, ListSecrets, UpdateSecret
from pgstream.statements.select import SelectStream
from pgstream.statements.shared import SHARED, UPDATES, code, decided
from pgstream.statements.sources import (
    CopyDescriptorSource,
    CopyFunctionSource,
    CreateDescriptorSource,
    CreateFunctionSource,
    DescribeDescriptorSource,
    DescribeFunctionSource,
    DropDescriptorSource,
    DropFunctionSource,
    ListDescriptors,
    ListDescriptorSources,
    ListFunctionSources,
)
from pgstream.statements.stores import CreateStore, DescribeStore, DropStore, ListStores, UpdateStore
from pgstream.statements.streams import CreateChangelog, CreateStream
from pgstream.statements.tables import CreateTable, DescribeTable, DescribeTableColumns, ListTables
from pgstream.statements.templates import GenerateTemplate
from pgstream.statements.tokens import AlterApiToken, CreateApiToken, DropApiToken, ListApiTokens
from pgstream.statements.unknown import Unknown
from pgstream.statements.use import UseComputePool, UseDatabase, UseSchema, UseStore
from pgstream.statements.users import AlterUser, DescribeUser, DropUser, ListUsers
from pgstream.statements.virtual import CreateVirtualChangelog, CreateVirtualStream

# Every statement, sorted by its words.
STATEMENTS: tuple[type[Statement], ...] = (
    AcceptInvitation,
    AlterOwner,
    AlterApiToken,
    AlterDefaultPrivileges,
    AlterRowSecurity,
    AlterPolicy,
    AlterQuery,
    AlterRelation,
    AlterSecurityIntegration,
    AlterUser,
    BeginApplication,
    CanI,
    CheckMaterializedView,
    CloseCursor,
    CommentOn,
    CopyStream,
    CopyDescriptorSource,
    CopyFunctionSource,
    CreateApiToken,
    CreateChangelog,
    CreateChangelogAs,
    CreateComputePool,
    CreateDatabase,
    CreateDescriptorSource,
    CreateEntity,
    CreateFunction,
    CreateFunctionSource,
    CreateIndex,
    CreateMaterializedViewAs,
    CreateMetricsIntegration,
    ReplaceMaterializedViewAs,
    CreateOrganization,
    CreatePolicy,
    CreateRole,
    CreateSchema,
    CreateSchemaRegistry,
    CreateSecret,
    CreateSecurityIntegration,
    CreateStore,
    CreateStream,
    CreateStreamAs,
    CreateTable,
    CreateTableAs,
    CreateVirtualChangelog,
    CreateVirtualStream,
    DeclareCursor,
    DescribeStatement,
    DescribeChangelog,
    DescribeChangelogColumns,
    DescribeColumns,
    DescribeComputePool,
    DescribeDatabase,
    DescribeDescriptorSource,
    DescribeEntity,
    DescribeFunction,
    DescribeFunctionSource,
    DescribeMaterializedView,
    DescribeMaterializedViewColumns,
    DescribeOrganization,
    DescribeQuery,
    DescribeQueryEvents,
    DescribeQueryMetrics,
    DescribeQueryState,
    DescribeRelation,
    DescribeRelationColumns,
    DescribeRole,
    DescribeSandbox,
    DescribeSchema,
    DescribeSchemaRegistry,
    DescribeSecret,
    DescribeSecurityIntegration,
    DescribeStore,
    DescribeStream,
    DescribeStreamColumns,
    DescribeTable,
    DescribeTableColumns,
    DescribeUser,
    DropApiToken,
    DropChangelog,
    DropComputePool,
    DropDatabase,
    DropDescriptorSource,
    DropEntity,
    DropFunction,
    DropFunctionSource,
    DropIndex,
    DropMaterializedView,
    DropMetricsIntegration,
    DropPolicy,
    DropRelation,
    DropRole,
    DropSchema,
    DropSchemaRegistry,
    DropSecret,
    DropSecurityIntegration,
    DropStore,
    DropStream,
    DropTable,
    DropUser,
    DropView,
    FetchCursor,
    GenerateColumns,
    GenerateStreamDdl,
    GenerateTemplate,
    GrantPrivileges,
    GrantOwnership,
    GrantRole,
    InsertInto,
    InsertValues,
    InsertIntoEntity,
    InviteUser,
    ListApiTokens,
    ListChangelogs,
    ListComputePools,
    ListDatabases,
    ListDescriptors,
    ListDescriptorSources,
    ListEntities,
    ListFunctions,
    ListFunctionSources,
    ListIndexes,
    ListMaterializedViews,
    ListMetricsIntegrations,
    ListMyInvitations,
    ListOrganizations,
    ListPendingInvitations,
    ListPolicies,
    ListQueries,
    ListRegions,
    ListRelations,
    ListRoles,
    ListSchemas,
    ListSchemaRegistries,
    ListSecrets,
    ListSecurityIntegrations,
    ListStores,
    ListStreams,
    ListTables,
    ListUserRoles,
    ListUsers,
    MoveCursor,
    PrintEntity,
    Reindex,
    RejectInvitation,
    RepairMaterializedView,
    RestartQuery,
    RevokePrivileges,
    RevokeInvitation,
    RevokeRole,
    SelectStream,
    SetDefault,
    StartComputePool,
    StartSandbox,
    StopComputePool,
    StopSandbox,
    TerminateQuery,
    TruncateRelation,
    UpdateComputePool,
    UpdateEntity,
    UpdateSchemaRegistry,
    UpdateSecret,
    UpdateStore,
    UseComputePool,
    UseDatabase,
    UseOrganization,
    UseRole,
    UseSchema,
    UseStore,
)

# A second form under the same words, and what tells it. What ``shared`` decides is not found by words alone.
_FORMS: dict[type[Statement], tuple[type[Statement], Callable[[Cursor], bool]]] = {
    CreateStream: (CreateStreamAs, as_form),
    CreateChangelog: (CreateChangelogAs, as_form),
    InsertInto: (InsertValues, is_values),
}
_SHARED_WORDS = (AlterDefaultPrivileges, AlterOwner, AlterPolicy, AlterQuery, AlterRelation, AlterRowSecurity,
                 AlterUser, CloseCursor, CommentOn, CopyStream, CreateFunction, CreateIndex, CreateMaterializedViewAs,
                 CreatePolicy, CreateTable, CreateTableAs, DeclareCursor, DropFunction, DropIndex, DropMaterializedView,
                 DropPolicy, DropTable, DropView, FetchCursor, GrantOwnership, GrantPrivileges, GrantRole, InsertInto,
                 MoveCursor, Reindex, RevokePrivileges, RevokeRole, SelectStream, TruncateRelation, *UPDATES.values(),
                 *(f for f, _ in _FORMS.values()))  # fmt: skip
_BY_WORDS: dict[tuple[str, ...], type[Statement]] = {s.words: s for s in STATEMENTS if s not in _SHARED_WORDS}
Unknown.known = _BY_WORDS
# First words that PostgreSQL does not know: whatever follows is ours, if only as an error.
_OURS = frozenset(("ACCEPT", "CAN", "DESCRIBE", "GENERATE", "INVITE", "LIST", "PRINT", "REJECT", "RESTART", "STOP",
                   "TERMINATE", "USE"))  # fmt: skip
_FIRST = frozenset({w[0] for w in _BY_WORDS} | set(SHARED) | _OURS | {"SHOW"})
# DESCRIBE QUERY state describes a query of that name.
_A_QUERY = re.compile(r"\s*\w+\s+\w+\s+\w+\s*+(?::\s*\d+\s*+)?;?\s*+\Z")
# INSERT INTO entity VALUES … writes PostgreSQL's table of that name.
_NOT_A_NAME = frozenset(("VALUES", "SELECT", "DEFAULT", "OVERRIDING", "AS", "TABLE", "WITH"))


LONGEST = 1 << 18
"""Characters of a statement without its strings and comments. Reading this many takes a second, in which nobody else is
served."""
LONGEST_WHOLE = 1 << 21
"""Characters with them, beside long strings: comments and doubled quotes are many small pieces, too."""


_RECOGNIZED = 1 << 16
"""Words and signs by which a statement is recognized: a query that is ours has half as many at most."""


def recognize(text: str, snapshot: Snapshot, session: Session) -> type[Statement] | None:
    """The class of the statement that a text is; None when it is PostgreSQL's. Never raises."""
    words = head(text)
    if not words or words[0] not in _FIRST:
        return None
    text = begin(text, _RECOGNIZED)
    if words[0] in ("SELECT", "WITH"):  # by far the most texts: no table is asked
        return decided(text, words, snapshot, session)
    found = _by_words(newer(words), text)
    if found is not None:
        return found
    if words[0] in SHARED and (found := decided(text, words, snapshot, session)) is not None:
        return found
    return Unknown if words[0] in _OURS else None


def parse(text: str, cls: type[Statement]) -> Statement:
    """The statement. ``cls`` is ``recognize``'s answer; error positions are offsets into ``text``."""
    if len(text) > LONGEST:
        if len(text) > LONGEST_WHOLE and has_pieces(text, LONGEST_WHOLE):
            raise StatementTooLong(most=LONGEST_WHOLE, beside="long strings without quotes in them")
        if len(code(text)) > LONGEST:
            raise StatementTooLong(most=LONGEST, beside="its strings and comments")
    if cls in _FORMS and _FORMS[cls][1](Cursor(text)):
        cls = _FORMS[cls][0]
    return cls.parse(Cursor(quoted(text) if cls is CommentOn else text))


def _by_words(words: tuple[str, ...], text: str) -> type[Statement] | None:
    for count in range(len(words), 0, -1):
        found = _BY_WORDS.get(words[:count])
        if found is None:
            continue
        if found is InsertIntoEntity and (words[3:4] == () or words[3] in _NOT_A_NAME) and not _quoted_entity(text):
            return None
        if found.words[0] == "COPY" and words[2:3] in (("TO",), ("FROM",)):
            return None  # PostgreSQL's, of a table of that name
        if found.words[:2] == ("DESCRIBE", "QUERY") and _A_QUERY.match(text):
            return DescribeQuery
        if found is RevokeInvitation and words[2:3] == ("FROM",):
            return None  # PostgreSQL's, of a role of that name
        return found
    return None


def _quoted_entity(text: str) -> bool:
    """INSERT INTO ENTITY "My topic" …: the head ends at the quoted name."""
    after = text.upper().partition("ENTITY")[2] or text.upper().partition("TOPIC")[2]
    return after.lstrip()[:1] in ('"', "`")
