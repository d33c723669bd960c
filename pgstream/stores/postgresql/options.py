"""The options of PostgreSQL stores, tables, relations and sources: the only description of them.

Owns: names, kinds, defaults, choices and sentences. Validation, DESCRIBE, docs and ``options.yaml`` read these rows.
Must not know: what a client library calls a setting; ``client.py`` translates. Start reading at ``OPTIONS``.
"""

from __future__ import annotations

from dataclasses import replace

from pgstream.stores import shared
from pgstream.stores.postgresql.values import slot, uri
from pgstream.stores.spec import Kind, Option, OptionTable

OPTIONS = OptionTable(
    "a PostgreSQL store",
    (
        Option(
            "uris", Kind.TEXT, "The server and its database; the port is 5432 when absent.", required=True,
            example="postgresql://db1:5432/shop", shape=uri,
        ),
        Option("postgres.username", Kind.TEXT, "User name.", required=True, aliases=("postgresql.username",),
               example="pgstream"),
        Option("postgres.password", Kind.SECRET, "Password; required without a client certificate.",
               aliases=("postgresql.password",), example="…"),
        *shared.TLS,
        Option("tls.ca_cert_file", Kind.FILE, "Certificate authority to trust, as PEM text; otherwise the system's."),
        Option("tls.client.cert_file", Kind.FILE, "Client certificate chain for mutual TLS, as PEM text."),
        Option("tls.client.key_file", Kind.FILE, "Key of the client certificate, as PEM text."),
        Option("tls.client.key_passphrase", Kind.SECRET, "What opens an encrypted key."),
        *shared.STORE,
    ),
)  # fmt: skip

ENTITY = OptionTable(
    "a PostgreSQL entity",
    (
        Option("postgresql.columns", Kind.TEXT, "Columns of the table, with DeltaStream's types.",
               example="id BIGINT NOT NULL, name VARCHAR"),
        Option("postgresql.primary.key", Kind.TEXT, "Comma-separated columns of the primary key.", example="id"),
    ),
)  # fmt: skip

_READING = (
    Option(
        "starting.position",
        Kind.WORD,
        "EARLIEST reads the rows that the table has, then its changes; LATEST only what changes from now on.",
        choices=("EARLIEST", "LATEST"),
    ),
    Option(
        "postgresql.slot.name",
        Kind.TEXT,
        "Replication slot. One that exists is used, from its position on and without the rows that the table has, and "
        "is kept; otherwise it is made, and dropped with the query. When absent the query has a slot of its own. Who "
        "names one in a query needs USAGE on the store.",
        example="shop_users",
        shape=slot,
    ),
    Option(
        "postgresql.publication.name",
        Kind.TEXT,
        "Publication that has the table; made when it does not exist. Otherwise one of the slot's name. Who names one "
        "in a query needs USAGE on the store.",
        example="shop",
    ),
    Option(
        "postgresql.slot.warning.mb",
        Kind.INTEGER,
        "How much of its log the server may keep for the slot, in MB, before DESCRIBE QUERY and the log warn; 1024 "
        "when absent. They also warn when the server is about to give the slot up (max_slot_wal_keep_size).",
        minimum=1,
        example="4096",
    ),
    shared.MAX_RECORDS,
)
_FORMAT = replace(shared.VALUE_FORMAT, choices=("JSON",), default="json", example=None)

RELATION = OptionTable(
    "a relation in a PostgreSQL store",
    (
        Option("store", Kind.TEXT, "Store of the table; otherwise the session's."),
        Option("postgresql.db.name", Kind.TEXT, "Database of the table, which is the store's."),
        Option("postgresql.schema.name", Kind.TEXT, "Schema of the table; public when absent."),
        Option("postgresql.table.name", Kind.TEXT, "Table; otherwise the relation's name in lower case."),
        Option("postgresql.cdc.table.list", Kind.TEXT, "Tables of one stream, whose rows are then BYTES of JSON.",
               example="public.customers,sales.orders"),
        _FORMAT,
        shared.TIMESTAMP,
        *shared.TIME,
        # A table is more than what changes in it from now on.
        replace(_READING[0], default="EARLIEST"),
        *_READING[1:],
        *shared.BAD_RECORDS,
    ),
)  # fmt: skip

SOURCE = OptionTable(
    "a source in a PostgreSQL store",
    (
        *_READING,
        *(o for o in shared.SOURCE if o is not shared.TIMESTAMP_FORMAT),
        replace(shared.OTHER_FORMAT, choices=("JSON",)),
    ),
)
