"""What every store type promises, whoever wrote it: run against a real system, or the best double there is.

``Compliance`` is a suite: a test module of a type makes a subclass with a fixture ``place`` (a ``Place``).
Owns: the promises of ``stores.spec``. Must not know: any store type.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import pytest

from pgstream import stores
from pgstream.errors import DuplicateObject, StoreUnreachable, UndefinedEntity
from pgstream.stores.spec import Admin, Can, EntityColumn, Full, Kind, NewRecord, OptionTable, StoreType


@dataclass
class Place:
    """A system to try a type on: options that reach it and some that do not, and how an entity is made there."""

    kind: StoreType
    options: Mapping[str, str]
    away: Mapping[str, str]
    entity: str
    made: Mapping[str, str] = field(default_factory=dict)
    columns: Sequence[EntityColumn] = ()
    primary_key: Sequence[str] = ()
    record: bytes = b'{"id": 1}'

    def open(self) -> Admin:
        return stores.open_admin(self.kind, "tried", self.options)

    async def make(self, admin: Admin) -> None:
        await admin.create(self.entity, self.made, self.columns, self.primary_key)


def tables(kind: StoreType) -> list[OptionTable]:
    return [kind.options, kind.entity_options, kind.relation_options, kind.source_options]


class Compliance:
    """Tests that read ``place``."""

    def test_options_say_what_they_are(self, place: Place) -> None:
        for table in tables(place.kind):
            names = [n for o in table.options for n in (o.name, *o.aliases)]
            assert len(names) == len(set(names)), table.title
            for o in table.options:
                assert o.say.endswith("."), f"{o.name}: a sentence"
                assert (o.kind is Kind.WORD) == bool(o.choices), o.name
                assert o.name == o.name.lower()

    def test_every_ability_has_a_value(self, place: Place) -> None:
        assert place.kind.can.keys() == set(Can)
        for can, support in place.kind.can.items():
            assert isinstance(support, Full) or support.why.endswith("."), can

    def test_counts_are_entity_options(self, place: Place) -> None:
        for count in place.kind.counts:
            assert place.kind.entity_options.find(count) is not None
            assert place.kind.relation_options.find(count) is not None

    def test_what_is_handed_to_the_worker_can_be_said(self, place: Place) -> None:
        for prefix in place.kind.reading:
            assert place.kind.source_options.find(prefix) is not None, prefix
        for prefix in place.kind.sending:
            assert place.kind.relation_options.find(prefix) is not None, prefix

    async def test_an_entity_from_creation_to_drop(self, place: Place) -> None:
        admin = place.open()
        try:
            await admin.check()
            await place.make(admin)
            parent = place.entity.split(".")[:-1]
            assert place.entity.split(".")[-1] in [e.name for e in await admin.list_entities(parent)]
            found = await admin.describe(place.entity)
            for option, of in place.kind.counts.items():
                assert str(getattr(found, of)) == place.made[option]
            if place.columns:
                assert list(found.columns or ()) == list(place.columns)
                assert list(found.primary_key) == list(place.primary_key)
            with pytest.raises(DuplicateObject):
                await place.make(admin)
            await self._record(place, admin)
            assert await admin.extents(place.entity)
            await admin.drop(place.entity)
            for gone in (admin.describe(place.entity), admin.drop(place.entity), admin.extents(place.entity)):
                with pytest.raises(UndefinedEntity):
                    await gone
        finally:
            await admin.close()
            await admin.close()  # may be called twice

    async def _record(self, place: Place, admin: Admin) -> None:
        """What is inserted is what is printed."""
        if not isinstance(place.kind.can[Can.INSERT], Full):
            return
        await admin.insert(place.entity, [NewRecord(place.record)])
        async with aclosing(admin.read(place.entity, from_beginning=True)) as records:  # type: ignore[type-var]
            async for record in records:
                assert record.value == place.record
                assert record.position
                break

    async def test_a_system_that_is_away_is_named_within_ten_seconds(self, place: Place) -> None:
        admin = stores.open_admin(place.kind, "away", place.away)
        started = time.monotonic()
        with pytest.raises(StoreUnreachable) as e:
            await admin.check()
        await admin.close()
        assert time.monotonic() - started < 10
        assert '"away"' in e.value.text
