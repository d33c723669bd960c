"""The kinds of object: what each is called, where it lives, who may make one, which privileges it has.

Owns: one row a kind, and the two errors that every kind can raise (``missing``, ``duplicate``). Statements, privileges,
system tables and docs read these rows. Every object of a kind with ``owned`` has an owner role.
Must not know: rows of the catalogue, grammar. Start reading at ``KINDS``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pgstream.errors import (
    DuplicateDatabase,
    DuplicateObject,
    DuplicateRelation,
    DuplicateSchema,
    PgStreamError,
    UndefinedDatabase,
    UndefinedObject,
    UndefinedQuery,
    UndefinedRelation,
    UndefinedSchema,
    UndefinedStore,
)


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """One kind.

    ``name`` is the Type of a result row (``api_token``) and the kind's name in the catalogue; ``label`` its words in
    errors. ``words`` begin its statements (CREATE *words*), ``plural`` those of LIST. ``within``: ``organization``,
    ``database``, ``schema``, or ``server``. ``create``: the privilege on the container that CREATE needs.
    ``missing_code`` and ``duplicate_code`` are DeltaStream's own, for its clients.
    """

    name: str
    words: str
    plural: str
    label: str = ""
    within: str = "organization"
    privileges: tuple[str, ...] = ("usage",)
    create: str | None = None
    owned: bool = True
    missing_code: str = "3D008"
    duplicate_code: str = "42710"

    @property
    def called(self) -> str:
        """The kind in words."""
        return self.label or self.name


ORGANIZATION = (
    "create_compute_pool", "create_database", "create_store", "create_schema_registry", "create_descriptor_source",
    "create_function_source", "create_function", "create_connector", "create_query", "manage_members", "manage_grants",
    "usage",
)  # fmt: skip

KINDS: Final[dict[str, ObjectKind]] = {
    k.name: k
    for k in (
        ObjectKind("organization", "ORGANIZATION", "ORGANIZATIONS", within="server", privileges=ORGANIZATION,
                   missing_code="3D004", duplicate_code="42P001"),
        ObjectKind("database", "DATABASE", "DATABASES", privileges=("usage", "create"), create="create_database",
                   missing_code="3D002", duplicate_code="42P04"),
        ObjectKind("schema", "SCHEMA", "SCHEMAS", within="database", privileges=("usage", "create"), create="create",
                   missing_code="3D003", duplicate_code="42P06"),
        ObjectKind("relation", "RELATION", "RELATIONS", within="schema", privileges=("select", "insert"),
                   create="create", missing_code="3D020", duplicate_code="42P017"),
        ObjectKind("store", "STORE", "STORES", create="create_store", missing_code="3D006", duplicate_code="42P05"),
        ObjectKind("schema_registry", "SCHEMA_REGISTRY", "SCHEMA_REGISTRIES", "schema registry",
                   create="create_schema_registry", missing_code="3D009", duplicate_code="42P018"),
        ObjectKind("secret", "SECRET", "SECRETS", create="create_store", missing_code="3D016",
                   duplicate_code="42P014"),
        ObjectKind("descriptor_source", "DESCRIPTOR_SOURCE", "DESCRIPTOR_SOURCES", "descriptor source",
                   create="create_descriptor_source", missing_code="3D011", duplicate_code="42P08"),
        ObjectKind("function_source", "FUNCTION_SOURCE", "FUNCTION_SOURCES", "function source",
                   create="create_function_source", missing_code="3D018", duplicate_code="42P016"),
        ObjectKind("function", "FUNCTION", "FUNCTIONS", create="create_function", missing_code="3D017",
                   duplicate_code="42P015"),
        ObjectKind("query", "QUERY", "QUERIES", create="create_query", missing_code="3D019"),
        ObjectKind("compute_pool", "COMPUTE_POOL", "COMPUTE_POOLS", "compute pool", create="create_compute_pool",
                   missing_code="3D023", duplicate_code="42P019"),
        ObjectKind("role", "ROLE", "ROLES", create="manage_members", missing_code="3D001", duplicate_code="42P011"),
        ObjectKind("user", "USER", "USERS", create="manage_members", privileges=(), owned=False, missing_code="3D000",
                   duplicate_code="42P07"),
        ObjectKind("invitation", "INVITATION", "PENDING INVITATIONS", create="manage_members",
                   privileges=(), owned=False),
        ObjectKind("api_token", "API_TOKEN", "API_TOKENS", privileges=(), missing_code="3D012",
                   duplicate_code="42P09"),
        ObjectKind("security_integration", "SECURITY INTEGRATION", "SECURITY INTEGRATIONS", "security integration",
                   create="manage_members", privileges=(), missing_code="3D013", duplicate_code="42P010"),
        ObjectKind("metrics_integration", "METRICS INTEGRATION", "METRICS INTEGRATIONS", "metrics integration",
                   create="manage_members", privileges=(), missing_code="3D014", duplicate_code="42P012"),
        ObjectKind("sandbox", "SANDBOX", "SANDBOXES", create="create_query", privileges=(), missing_code="3D015",
                   duplicate_code="42P013"),
    )
}  # fmt: skip

# Kinds that older code and PostgreSQL itself have conditions for.
_MISSING: dict[str, type[PgStreamError]] = {
    "database": UndefinedDatabase, "schema": UndefinedSchema, "relation": UndefinedRelation, "store": UndefinedStore,
    "query": UndefinedQuery,
}  # fmt: skip
_DUPLICATE: dict[str, type[PgStreamError]] = {
    "database": DuplicateDatabase, "schema": DuplicateSchema, "relation": DuplicateRelation,
}  # fmt: skip


def missing(kind: str, name: str, at: int | None = None) -> PgStreamError:
    """The error for an object that is not there, or that the role may not see: to be raised."""
    if kind in _MISSING:
        return _MISSING[kind](name=name, at=at)
    k = KINDS[kind]
    return UndefinedObject(
        kind=k.called, name=name, at=at, hint=f"LIST {k.plural} shows those you can see.", ds_code=k.missing_code
    )


def duplicate(kind: str, name: str, at: int | None = None) -> PgStreamError:
    """The error for a name that is taken: to be raised."""
    if kind in _DUPLICATE:
        return _DUPLICATE[kind](name=name, at=at)
    return DuplicateObject(kind=KINDS[kind].called, name=name, at=at, ds_code=KINDS[kind].duplicate_code)
