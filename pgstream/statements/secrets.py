"""Everything about SECRET: CREATE, UPDATE, DROP, LIST, DESCRIBE.

Owns: its options and its columns. The secret itself is shown by none of them.
Manual: "CREATE SECRET", "UPDATE SECRET", "LIST SECRETS".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pgstream import types
from pgstream.catalog.records import ObjectRecord
from pgstream.statements.base import Column, Context
from pgstream.statements.shapes import Create, Describe, Drop, List, Update
from pgstream.stores.spec import Kind, Option, OptionTable

OPTIONS = OptionTable(
    "a secret",
    (
        Option("type", Kind.WORD, "Kind of secret.", required=True, choices=("GENERIC_SECRET", "GENERIC_STRING"),
               example="GENERIC_SECRET"),
        Option("description", Kind.TEXT, "A sentence for people."),
        Option("access_region", Kind.TEXT, "Accepted for older scripts.", aliases=("access.region",)),
        Option("properties.file", Kind.FILE, "YAML file of parameters; those of the statement win."),
        Option("secret_string", Kind.SECRET, "The secret itself."),
        # Any property of the user's own; a prefix of nothing, so it must stand last.
        Option("", Kind.SECRET, "Any other string, kept with the secret.", prefix=True, example="custom"),
    ),
)  # fmt: skip


class CreateSecret(Create):
    """CREATE SECRET [IF NOT EXISTS] secret_name
    WITH ( 'type' = GENERIC_SECRET [, 'description' = 'text'] [, 'secret_string' = 'secret']
    [, 'custom' = 'string' ...] );

    Keep a secret, encrypted. Everything but type and description is secret and never shown again.
    """

    kind: ClassVar[str] = "secret"
    options: ClassVar[OptionTable] = OPTIONS


class UpdateSecret(Update):
    """UPDATE SECRET secret_name WITH ( 'parameter' = { value | NULL } [, ...] );

    Change a secret's description or its strings; NULL takes one away.
    """

    kind: ClassVar[str] = "secret"
    options: ClassVar[OptionTable] = OPTIONS


class DropSecret(Drop):
    """DROP SECRET [IF EXISTS] secret_name;

    Forget a secret.
    """

    kind: ClassVar[str] = "secret"


class ListSecrets(List):
    """LIST SECRETS;

    The secrets, one a row, without what is secret.
    """

    kind: ClassVar[str] = "secret"
    columns: ClassVar[tuple[Column, ...]] = (
        Column("Name"), Column("Type"), Column("Description"), Column("Region"), Column("Status"), Column("Owner"),
        Column("CreatedAt", types.TIMESTAMP_LTZ), Column("UpdatedAt", types.TIMESTAMP_LTZ),
    )  # fmt: skip

    @classmethod
    def line(cls, ctx: Context, record: ObjectRecord) -> Sequence[Any]:
        r = record
        shown = r.options.get("description"), r.options.get("access_region")
        return r.name, r.type, *shown, r.state, r.owner, r.created_at, r.updated_at


class DescribeSecret(Describe):
    """DESCRIBE SECRET secret_name;

    The row of LIST SECRETS and the names of its strings, their values masked.
    """

    kind: ClassVar[str] = "secret"
    of: ClassVar[type[List]] = ListSecrets
