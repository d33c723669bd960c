"""A select: the parsed query inside a statement, and the relations it names.

Owns: ``Select``, ``names`` and ``mentioned``. Must not know: the catalogue, what the names mean; ``planner`` does that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from pgstream.errors import InvalidStatement, TooDeep
from pgstream.names import QName


@dataclass(frozen=True, slots=True)
class Select:
    """A query as written. ``text`` is the whole statement's text; ``at`` and ``end`` bound the query in it.

    ``tree`` is sqlglot's; only ``sql`` and ``planner`` look inside.
    """

    text: str
    at: int
    end: int
    tree: exp.Expr

    @property
    def source(self) -> str:
        """The query's own text."""
        return self.text[self.at : self.end].strip()


def fold(identifier: exp.Identifier) -> str:
    """The name an identifier means: quoted as it is, otherwise lower case."""
    return str(identifier.this) if identifier.args.get("quoted") else str(identifier.this).lower()


def qname(table: exp.Table) -> QName:
    """A relation's name. Errors: InvalidStatement for more than three parts."""
    parts = table.parts
    if len(parts) > 3:
        raise InvalidStatement(
            what="improper qualified name (too many dotted names)", at=parts[0].meta.get("start"),
            hint="A relation is named [database.][schema.]name.",
        )  # fmt: skip
    return QName(tuple(fold(p) for p in parts if isinstance(p, exp.Identifier)), parts[0].meta.get("start"))


def names(select: Select) -> list[QName]:
    """Relations the query reads, each once, in the order of the text; its own CTEs are left out where they hold.

    Errors: TooDeep, also for a long sum or union, which is read as one in another.
    """
    seen: dict[tuple[str, ...], QName] = {}
    try:
        for name in _names(select.tree, frozenset()):
            seen.setdefault(name.parts, name)
    except RecursionError:
        raise TooDeep(what="the query", at=select.at) from None
    return sorted(seen.values(), key=lambda n: n.at or 0)


def mentioned(tree: exp.Expr) -> list[QName]:
    """Relations that a part of a query reads, as often as it does; the part's own CTEs are left out where they hold."""
    return list(_names(tree, frozenset()))


def _names(node: exp.Expr, hidden: frozenset[str]) -> Iterator[QName]:
    with_ = node.args.get("with_")
    if isinstance(with_, exp.With):
        for cte in with_.expressions:
            yield from _names(cte.this, hidden)
            hidden = hidden | {fold(cte.args["alias"].this)}
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
        name = qname(node)
        if len(name.parts) > 1 or name.name not in hidden:
            yield name
    for key, value in node.args.items():
        if key != "with_":
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, exp.Expr):
                    yield from _names(child, hidden)
