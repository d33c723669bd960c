"""PostgreSQL stores: tables as entities, their changes as streams and changelogs.

Owns: what the type is called, what it can do, and where its two faces are.
Must not know: how either face works. Start reading at ``STORE``; the options are in ``options.py``, the
connections made from them in ``client.py``, talking to a server without Spark in ``admin.py``.
"""

from __future__ import annotations

from pgstream.stores.postgresql.columns import changes
from pgstream.stores.postgresql.options import ENTITY, OPTIONS, RELATION, SOURCE
from pgstream.stores.postgresql.values import entity_of, several, shows, spelled
from pgstream.stores.spec import ENTITIES, Alone, Can, Later, Never, StoreType, full

STORE = StoreType(
    name="postgresql",
    label="PostgreSQL",
    aliases=("postgres",),
    options=OPTIONS,
    entity_options=ENTITY,
    relation_options=RELATION,
    source_options=SOURCE,
    makes=frozenset(("table",)),
    names=entity_of,
    shows=shows,
    spelled=spelled,
    several=several,
    changes=changes,
    key_format="json",
    reading=(
        "postgresql.slot.name",
        "postgresql.publication.name",
        "postgresql.slot.warning.mb",
        "source.max.records.per.trigger",
    ),
    kinds_apart=True,
    alone={"postgresql.slot.name": Alone("replication slot", used_up=True)},
    takes=("postgresql.slot.name", "postgresql.publication.name"),
    trouble="pgstream.stores.postgresql.troubles:trouble",
    leaves=True,
    empties=True,
    described=("Name", "Columns", "Primary Key", "Configs", "Records"),
    can={
        **full(*ENTITIES, Can.STREAM, Can.CHANGELOG, Can.TABLE, Can.SINK, Can.DELETES, Can.LOOKUP),
        Can.METADATA: Never("Where a change stands is in its column source."),
        Can.REAL_TIME: Later("In real time records go from one topic of Kafka to another."),
        Can.BAD_RECORDS: Later("Bad records are kept in topics; name one with source.deserialization.error.log.store."),
    },
    admin="pgstream.stores.postgresql.admin:PostgresAdmin",
    spark="pgstream.stores.postgresql.spark:TableChanges",
)
