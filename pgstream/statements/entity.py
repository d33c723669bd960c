"""What the statements about one entity have in common: its path, its store, the right to use that.

Owns: the head of their grammar, the options that name the schemas of its records. Must not know: any one of them.
Start reading at ``OfEntity``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from pgstream.names import Name, QName
from pgstream.sql.cursor import Cursor
from pgstream.statements import places
from pgstream.statements.access import Need
from pgstream.statements.base import Context, Statement
from pgstream.statements.heading import expect
from pgstream.stores.spec import Kind, Option

SCHEMAS = tuple(
    option
    for side in ("value", "key")
    for option in (
        Option(f"{side}.subject", Kind.TEXT, f"Subject of the {side}'s schema; otherwise <topic>-{side}."),
        Option(f"{side}.descriptor.name", Kind.TEXT, f"Descriptor of the {side}; otherwise the entity's.",
               example="shop.shop.Order" + "Key" * (side == "key")),
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class OfEntity(Statement):
    """A statement about the entity ``path`` in ``store`` (None: the session's)."""

    path: QName
    store: Name | None

    @classmethod
    def head(cls, c: Cursor) -> tuple[QName, Name | None]:
        """The statement's words, then what it is about."""
        expect(c, *cls.words)
        return c.path(), places.in_store(c)

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        path, store = cls.head(c)
        c.end()
        return cls(path, store)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need("usage", "store", self.store),)
