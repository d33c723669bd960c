"""The toy without Spark."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from pgstream.errors import DuplicateObject, StoreUnreachable, UndefinedEntity
from pgstream.stores.spec import EntityColumn, EntityInfo, EntityRow, Extent, NewRecord, Record

_HELD: dict[str, dict[str, tuple[int, list[NewRecord]]]] = {"here": {}}


class MemoryAdmin:
    """See ``stores.spec.Admin``."""

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        self.name, self._place = name, options["place"]

    async def check(self) -> None:
        if self._place not in _HELD:
            raise StoreUnreachable(name=self.name, why=f"there is no memory {self._place}")

    async def list_entities(self, path: Sequence[str] = ()) -> list[EntityRow]:
        return [EntityRow(name) for name in sorted(_HELD[self._place])]

    async def describe(self, entity: str) -> EntityInfo:
        return EntityInfo(entity, self._found(entity)[0])

    async def extents(self, entity: str) -> list[Extent]:
        return [Extent(0, 0, len(self._found(entity)[1]))]

    async def create(
        self,
        entity: str,
        options: Mapping[str, str],
        columns: Sequence[EntityColumn] = (),
        primary_key: Sequence[str] = (),
    ) -> None:
        if entity in _HELD[self._place]:
            raise DuplicateObject(kind="entity", name=entity)
        _HELD[self._place][entity] = int(options["memory.cells"]), []

    async def update(self, entity: str, options: Mapping[str, str], unset: frozenset[str]) -> None:
        _HELD[self._place][entity] = int(options["memory.cells"]), self._found(entity)[1]

    async def drop(self, entity: str) -> None:
        self._found(entity)
        del _HELD[self._place][entity]

    async def read(self, entity: str, from_beginning: bool) -> AsyncIterator[Record]:
        for i, r in enumerate(self._found(entity)[1]):
            yield Record(r.key, r.value, r.timestamp_ms, str(i))

    async def insert(self, entity: str, records: Sequence[NewRecord]) -> None:
        self._found(entity)[1].extend(records)

    async def close(self) -> None:
        pass

    def _found(self, entity: str) -> tuple[int, list[NewRecord]]:
        if entity not in _HELD[self._place]:
            raise UndefinedEntity(name=entity, store=self.name)
        return _HELD[self._place][entity]
