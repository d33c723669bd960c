"""Everything about SCHEMA_REGISTRY: CREATE, UPDATE, DROP, LIST, DESCRIBE.

Owns: its options and its columns. Must not know: how a registry is asked (``pgstream.formats``).
Manual: "CREATE SCHEMA_REGISTRY", "UPDATE SCHEMA_REGISTRY", "LIST SCHEMA_REGISTRIES". A store is attached to one by its
parameter ``schema_registry.name``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pgstream import types
from pgstream.catalog.records import ObjectRecord
from pgstream.formats.registry import urls
from pgstream.statements.base import Column, Context
from pgstream.statements.shapes import Create, Describe, Drop, List, Update
from pgstream.stores.spec import Kind, Option, OptionTable

OPTIONS = OptionTable(
    "a schema registry",
    (
        Option("type", Kind.WORD, "Kind of registry.", required=True, choices=("CONFLUENT", "CONFLUENT_CLOUD"),
               example="CONFLUENT"),
        Option("uris", Kind.TEXT, "Comma-separated URLs, tried in turn.", required=True, shape=urls,
               example="https://registry:8081"),
        Option("confluent.username", Kind.TEXT, "User name for basic authentication."),
        Option("confluent.password", Kind.SECRET, "Password for basic authentication."),
        Option("confluent_cloud.key", Kind.TEXT, "API key of Confluent Cloud.", when="type=CONFLUENT_CLOUD"),
        Option("confluent_cloud.secret", Kind.SECRET, "API secret of Confluent Cloud.", when="type=CONFLUENT_CLOUD"),
        Option("tls.client.cert_file", Kind.FILE, "Client certificate chain (PEM) for mutual TLS."),
        Option("tls.client.key_file", Kind.FILE, "Key of the client certificate (PEM)."),
        Option("tls.client.key_passphrase", Kind.SECRET, "What opens an encrypted key."),
        Option("tls.ca_cert_file", Kind.FILE, "Certificate authorities to trust (PEM)."),
        Option("properties.file", Kind.FILE, "YAML file of parameters; those of the statement win."),
        Option("access_region", Kind.TEXT, "Accepted for older scripts; this server connects from where it runs.",
               aliases=("access.region", "availability_zone")),
    ),
)  # fmt: skip


class CreateSchemaRegistry(Create):
    """CREATE SCHEMA_REGISTRY [IF NOT EXISTS] registry_name
    WITH ( 'type' = { CONFLUENT | CONFLUENT_CLOUD }, 'uris' = 'url' [, 'parameter' = value ...] );

    Register a schema registry. Parameters: ``confluent.username`` and ``confluent.password``, ``confluent_cloud.key``
    and ``confluent_cloud.secret``, ``tls.client.cert_file``, ``tls.client.key_file``,
    ``tls.client.key_passphrase``, ``tls.ca_cert_file``. A store
    uses it when its parameter ``schema_registry.name`` names it.
    """

    kind: ClassVar[str] = "schema_registry"
    options: ClassVar[OptionTable] = OPTIONS


class UpdateSchemaRegistry(Update):
    """UPDATE SCHEMA_REGISTRY registry_name WITH ( 'parameter' = { value | NULL } [, ...] );

    Change parameters of a registry; NULL takes one away. The type cannot change.
    """

    kind: ClassVar[str] = "schema_registry"
    options: ClassVar[OptionTable] = OPTIONS


class DropSchemaRegistry(Drop):
    """DROP SCHEMA_REGISTRY [IF EXISTS] registry_name;

    Forget a registry. Refused while a store uses it.
    """

    kind: ClassVar[str] = "schema_registry"


class ListSchemaRegistries(List):
    """LIST SCHEMA_REGISTRIES;

    The schema registries, one a row.
    """

    kind: ClassVar[str] = "schema_registry"
    columns: ClassVar[tuple[Column, ...]] = (
        Column("Name"), Column("Type"), Column("State"), Column("Message"), Column("Owner"),
        Column("CreatedAt", types.TIMESTAMP_LTZ), Column("UpdatedAt", types.TIMESTAMP_LTZ),
    )  # fmt: skip

    @classmethod
    def line(cls, ctx: Context, record: ObjectRecord) -> Sequence[Any]:
        r = record
        return r.name, r.type, r.state, r.message, r.owner, r.created_at, r.updated_at


class DescribeSchemaRegistry(Describe):
    """DESCRIBE SCHEMA_REGISTRY registry_name;

    The row of LIST SCHEMA_REGISTRIES and the parameters as JSON, secrets masked.
    """

    kind: ClassVar[str] = "schema_registry"
    of: ClassVar[type[List]] = ListSchemaRegistries
