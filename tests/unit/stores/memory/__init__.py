"""A store type of a third party, as ``docs/howto/add_a_store.md`` has it: entities in this process's memory."""

from __future__ import annotations

from pgstream.stores import shared
from pgstream.stores.spec import ENTITIES, Can, Kind, Later, Never, Option, OptionTable, StoreType, full

LATER = Later("It is a toy.")
STORE = StoreType(
    name="memory",
    label="Memory",
    options=OptionTable("a memory store", (Option("place", Kind.TEXT, "Name of the memory.", required=True),)),
    entity_options=OptionTable("a memory entity", (Option("memory.cells", Kind.INTEGER, "Its cells.", minimum=1),)),
    relation_options=OptionTable(
        "a relation in a memory store",
        (
            Option("topic", Kind.TEXT, "Entity that holds the data."),
            Option("store", Kind.TEXT, "Store of the entity."),
            Option("value.format", Kind.WORD, "Format of the values.", choices=("JSON",)),
            Option("topic.cells", Kind.INTEGER, "Cells of an entity that is made.", aliases=("memory.cells",)),
        ),
    ),
    source_options=OptionTable("a source in a memory store", (*shared.SOURCE, shared.MAX_RECORDS)),
    can={
        **full(*ENTITIES),
        **dict.fromkeys((Can.STREAM, Can.CHANGELOG, Can.SINK, Can.DELETES, Can.BAD_RECORDS, Can.METADATA), LATER),
        Can.REAL_TIME: LATER,
        **dict.fromkeys((Can.TABLE, Can.LOOKUP), Never("A memory has no tables.")),
    },
    admin="tests.unit.stores.memory.admin:MemoryAdmin",
    spark="tests.unit.stores.memory.spark:MemoryStreams",
    counts={"memory.cells": "partitions"},
)
