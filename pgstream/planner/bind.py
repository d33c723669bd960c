"""Names: which column of which input an identifier means.

Owns: scopes (the relations of one FROM), resolution of plain and qualified names, ``*``, and what is said when a name
means nothing or two things. A column has the user's ``name`` and the ``field`` it has in the step below (plan.py's
naming rules).
Must not know: expressions, Spark SQL beyond a back-ticked field. Start reading at ``Scope``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from pgstream import types
from pgstream.catalog.records import RelationRecord
from pgstream.errors import (
    AmbiguousColumn,
    DuplicateAlias,
    DuplicateColumn,
    InvalidStatement,
    MissingFrom,
    NotSupported,
    UndefinedColumn,
)
from pgstream.names import closest, quote_spark
from pgstream.sql.dialect import WindowCall
from pgstream.sql.select import fold
from pgstream.stores.spec import StoreType


def at(node: exp.Expr | None) -> int | None:
    """Where a node begins in the statement's text: its own token, or the leftmost below it."""
    if node is None:
        return None
    if "start" in node.meta:
        return int(node.meta["start"])
    return min((int(n.meta["start"]) for n in node.walk() if "start" in n.meta), default=None)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a scope. ``type`` is None where only Spark knows it. ``bound``: it is a window's bound."""

    name: str
    field: str
    type: types.Type | None = None
    bound: bool = False

    @property
    def sql(self) -> str:
        return quote_spark(self.field)


@dataclass(frozen=True, slots=True)
class Item:
    """One relation of a FROM. ``path`` is its full name when it has no alias, so that ``schema.name.column`` works.
    ``matched``: its rows are matches, which DeltaStream has no ``*`` of. ``records``: what a join keeps of its records,
    by the functions that read it (``records.py``).
    """

    alias: str
    columns: tuple[Column, ...]
    path: tuple[str, ...] = ()
    relation: RelationRecord | None = None
    store: StoreType | None = None
    window: WindowCall | None = None
    at: int | None = None
    matched: bool = False
    records: tuple[Column, ...] = ()

    def answers(self, qualifier: tuple[str, ...]) -> bool:
        if len(qualifier) == 1:
            return qualifier[0] == self.alias
        return len(qualifier) <= len(self.path) and self.path[-len(qualifier) :] == qualifier


@dataclass(frozen=True, slots=True)
class Scope:
    """The relations of one FROM, left to right. ``joined``: they are a join's output, with prefixed fields.

    ``placed``: each row still has the position of its one source record (``__partition``, ``__offset``). ``merged``:
    columns of JOIN … USING, which stand for the ``hidden`` fields where no relation is named.
    """

    items: tuple[Item, ...]
    joined: bool = False
    placed: bool = True
    merged: tuple[Column, ...] = ()
    hidden: frozenset[str] = frozenset()

    @property
    def columns(self) -> tuple[Column, ...]:
        """Those that have a name without their relation's, in the order of ``*``."""
        return (*self.merged, *(c for i in self.items for c in i.columns if c.field not in self.hidden))

    @property
    def every(self) -> tuple[Column, ...]:
        """All, those that only a relation's name tells included."""
        mine = (c for i in self.items for c in (*i.columns, *i.records))
        return tuple({c.field: c for c in (*mine, *self.merged)}.values())

    @property
    def window(self) -> WindowCall | None:
        return next((i.window for i in self.items if i.window is not None), None)

    def join(self, right: Scope, left_alias: str, right_alias: str) -> Scope:
        """The scope above a join: fields prefixed as plan.py says (none where the alias is empty)."""
        mine = {i.alias for i in self.items}
        for item in right.items:
            if item.alias in mine:
                raise DuplicateAlias(name=item.alias, at=item.at)
        left = _prefixed(self.items, left_alias)
        # What is merged on either side is of a join, whose fields are prefixed already.
        return Scope(
            left + _prefixed(right.items, right_alias), joined=True, placed=False,
            merged=self.merged + right.merged, hidden=self.hidden | right.hidden,
        )  # fmt: skip

    def item(self, node: exp.Column) -> Item:
        """The relation that a name means where no column can stand. Error: MissingFrom."""
        path = self.path(node)
        for item in self.items:
            if item.answers(path):
                return item
        hint = closest(path[-1], (i.alias for i in self.items))
        raise MissingFrom(name=".".join(path), at=at(node), hint=hint)

    @staticmethod
    def path(node: exp.Column) -> tuple[str, ...]:
        """The parts of a name."""
        return (*_qualifier(node), fold(node.this))

    def column(self, node: exp.Column) -> Column:
        """The column a reference means. Errors: UndefinedColumn, AmbiguousColumn, MissingFrom, with position."""
        name, qualifier = fold(node.this), _qualifier(node)
        known = self._known(qualifier, node)
        found = [c for c in known if c.name == name]
        if len(found) == 1:
            return found[0]
        if found:
            raise AmbiguousColumn(name=name, at=at(node))
        shown = ".".join((*qualifier, name))
        hint = closest(name, (c.name for c in known))
        if name == "window_time" and any(c.name == "window_end" for c in known):
            hint = "Leave it out: the rows of a window have its end less 1 ms as their event time."
        raise UndefinedColumn(name=shown, at=at(node), hint=hint)

    def has(self, name: str) -> bool:
        """Whether some relation has a column of this name."""
        return any(c.name == name for c in self.columns)

    def star(self, node: exp.Expr) -> Iterator[Column]:
        """The columns of ``*`` or ``alias.*``. Error: NotSupported over MATCH_RECOGNIZE."""
        qualifier = _qualifier(node) if isinstance(node, exp.Column) else ()
        matched = [i for i in self.items if i.matched and (not qualifier or i.answers(qualifier))]
        if matched:
            listed = ", ".join(c.name for c in matched[0].columns)
            raise NotSupported(what="* over MATCH_RECOGNIZE", at=at(node), hint=f"Its columns are {listed}.")
        yield from self._known(qualifier, node)

    def _known(self, qualifier: tuple[str, ...], node: exp.Expr) -> Sequence[Column]:
        """The columns of the relations that a qualifier means, all where there is none."""
        if not qualifier:
            return self.columns
        items = [i for i in self.items if i.answers(qualifier)]
        if items:
            return [c for i in items for c in i.columns]
        name = ".".join(qualifier)
        hint = self.of_struct(qualifier[-1]) or closest(name, (i.alias for i in self.items))
        raise MissingFrom(name=name, at=at(node), hint=hint)

    def of_struct(self, name: str) -> str | None:
        """The hint where a STRUCT stands before a dot."""
        structs = {c.name for i in self.items for c in i.columns if c.type is not None and c.type.name == "STRUCT"}
        return "A field of a STRUCT is written column->field." if name in structs else None


def _qualifier(node: exp.Expr) -> tuple[str, ...]:
    parts = (node.args.get(k) for k in ("catalog", "db", "table"))
    return tuple(fold(p) for p in parts if isinstance(p, exp.Identifier))


def _prefixed(items: tuple[Item, ...], alias: str) -> tuple[Item, ...]:
    if not alias:
        return items

    def named(columns: tuple[Column, ...]) -> tuple[Column, ...]:
        return tuple(replace(c, field=f"{alias}.{c.field}") for c in columns)

    return tuple(replace(i, columns=named(i.columns), records=named(i.records)) for i in items)


def renamed(scope: Scope, names: tuple[str, ...], position: int | None) -> Scope:
    """One relation with the names of an alias's column list for its first columns. Error: InvalidStatement."""
    (item,) = scope.items
    if len(names) > len(item.columns):
        what = f'table "{item.alias}" has {len(item.columns)} columns available but {len(names)} columns specified'
        raise InvalidStatement(what=what, at=position)
    given = [replace(c, name=n) for c, n in zip(item.columns, names, strict=False)]
    return replace(scope, items=(replace(item, columns=(*given, *item.columns[len(names) :])),))


def unique(name: str, taken: Iterable[str]) -> str:
    """``name``, or ``name_2``, ``name_3`` … when it is taken."""
    taken = set(taken)
    candidate, n = name, 1
    while candidate in taken:
        n += 1
        candidate = f"{name}_{n}"
    return candidate


def check_names(columns: Iterable[Column]) -> None:
    """Output names are unique. Errors: DuplicateColumn."""
    seen: set[str] = set()
    for column in columns:
        if column.name in seen:
            raise DuplicateColumn(name=column.name, hint="Give one of them another name with AS.")
        seen.add(column.name)
