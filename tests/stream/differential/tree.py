"""What a random query is made of: rows that may be read, and queries that give rows; both in two languages.

Owns: ``Case``, ``Rows``, ``Query``. Must not know: how they are drawn. Start reading at ``Rows``.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.stream.differential.expressions import Column

FLAT = ("int", "dbl", "dec", "big", "str", "bool", "ts", "tz", "ints", "strs")


@dataclass(frozen=True)
class Case:
    """A query in both languages. ``want``: planned for a view, a stream or a changelog. ``input``: PostgreSQL's count
    of the rows of GROUPING SETS: of the set of nothing there is no group before the first of them. ``restarts``: the
    query is stopped in the midst of a batch and goes on from its checkpoint. ``generated``: Spark compiles its
    expressions. ``types``: of its columns. ``expires``: its state has a time to live, which is longer than it runs.
    """

    shape: str
    want: str
    ours: str
    pg: str
    input: str = ""
    restarts: bool = False
    generated: bool = False
    types: tuple[str, ...] = ()
    expires: bool = False


@dataclass(frozen=True)
class Rows:
    """A FROM clause and what may be read from it. ``time``: PostgreSQL's text of a row's event time in ms.

    ``placed``: the rows still have the place of their one record. ``several``: rows of one record have one place.
    ``alias``: of all columns, if there is one.
    """

    ours: str
    pg: str
    columns: tuple[Column, ...]
    kind: str = "stream"
    key: tuple[Column, ...] = ()
    time: str = ""
    placed: bool = False
    alias: str = ""
    several: bool = False

    @property
    def flat(self) -> tuple[Column, ...]:
        """The columns that can be compared and grouped."""
        return tuple(c for c in self.columns if c.type in FLAT)


@dataclass(frozen=True)
class Query:
    """A SELECT: its output columns by type, the names of its key."""

    ours: str
    pg: str
    output: tuple[tuple[str, str], ...]
    kind: str = "stream"
    key: tuple[str, ...] = ()
    placed: bool = False
    timed: bool = False
    input: str = ""
    several: bool = False


def moment(ms: str) -> str:
    """Milliseconds as PostgreSQL's timestamp."""
    return f"timestamp '1970-01-01' + ({ms}) * interval '1 millisecond'"
