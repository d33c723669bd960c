"""The select list: output columns, their names, and the key that a changelog keeps through it.

Owns: ``*``, names of unnamed outputs (PostgreSQL's), duplicates, and the rule that a changelog's key is selected.
Must not know: FROM, what the statement wants it for. Start reading at ``select_list`` and ``project``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from pgstream.errors import DuplicateColumn, NotYet, ReservedName, TooManyColumns
from pgstream.planner import plan
from pgstream.planner.bind import Column, Scope, at, unique
from pgstream.planner.expressions import Compiler, Typed
from pgstream.planner.grouping import MARK, Grouped
from pgstream.planner.steps import ROWTIME, Step, retracting
from pgstream.sql.select import fold

HIDDEN = "hidden"
"""Of a star that no client wrote: names of columns that it leaves out (``meta``)."""
RANK = "rank of the row"
"""The number of a row by which ORDER BY … LIMIT takes it."""
MOST = 1664
"""Columns of a select list, as many as PostgreSQL has."""


@dataclass(frozen=True, slots=True)
class Output:
    """One column of a select list. ``plain``: its name was written or is a column's, so a duplicate is an error."""

    name: str
    typed: Typed
    at: int | None
    plain: bool


def select_list(tree: exp.Select, scope: Scope, compiler: Compiler) -> list[Output]:
    """The select list compiled, stars expanded."""
    out: list[Output] = []
    for node in tree.expressions:
        if len(out) > MOST:
            raise TooManyColumns(most=MOST, at=at(node))
        if node.is_star and isinstance(node, (exp.Star, exp.Column)):
            only(node, "this", "table", "db", "catalog")
            for column in (c for c in scope.star(node) if c.name not in node.meta.get(HIDDEN, ())):
                typed = Typed(column.sql, column.type)
                if isinstance(compiler, Grouped):
                    typed = compiler.column(column, at(node))
                out.append(Output(column.name, typed, at(node), True))
            continue
        inner = node.this if isinstance(node, exp.Alias) else node
        name = fold(node.args["alias"]) if isinstance(node, exp.Alias) else column_name(inner, len(out) + 1)
        plain = isinstance(node, (exp.Alias, exp.Column, exp.Dot))
        out.append(Output(name, compiler.compile(inner), at(node), plain))
    if len(out) > MOST:
        raise TooManyColumns(most=MOST, at=at(tree.expressions[-1]))
    return out


def project(step: Step, outputs: list[Output], tree: exp.Select, top: bool, want: str) -> Step:
    """The projection. ``top``: of the whole query, whose names are unique and whose changelog keeps its key where a
    topic is wanted. A changelog that loses its key goes on as retractions, which a view can hold too.
    """
    strict = top and want != "result"
    fields: list[str] = []
    for output in outputs:
        if output.name.startswith("__"):
            raise ReservedName(kind="column", name=output.name, at=output.at)
        if strict and output.plain and output.name in fields:
            raise DuplicateColumn(name=output.name, at=output.at, hint="Give one of them another name with AS.")
        fields.append(unique(output.name, fields))
    columns = tuple(Column(o.name, f, o.typed.type) for o, f in zip(outputs, fields, strict=True))
    key, missing = _key(step, columns, outputs)
    first = any(HIDDEN in e.meta for e in tree.expressions)  # of ORDER BY … LIMIT, whose number nobody can select
    if missing and step.other_key:
        other = _key(replace(step, key=step.other_key), columns, outputs)
        key, missing = (key, missing) if other[1] and not first else other
    if missing and strict and want != "view":
        listed = ", ".join(f'"{m}"' for m in missing)
        raise NotYet(
            what=f"a select list without the key column{'s' * (len(missing) > 1)} {listed} of its changelog",
            at=at(tree.expressions[0]),
            hint=f"Add {', '.join(_selected(m) for m in missing)} to the select list.",
        )
    if (step.keyless or step.ambiguous) and strict and want != "view":
        raise NotYet(
            what="a changelog without a key as a result",
            at=at(tree.expressions[0]),
            detail="The key is NULL in rows of either side of the FULL JOIN alone." if step.ambiguous else None,
            hint="Group it." if step.ambiguous else "Group it, or select its key.",
        )
    if missing and want == "view" and top and step.mode == "append":
        step = replace(step, key=())  # windows that are final: a row each, whatever is told of them
    elif (missing and (not top or want == "view")) or (step.ambiguous and top and want == "view"):
        step, key = replace(retracting(step), keyless=True, ambiguous=False), ()
    exprs = [plan.Expr(f, o.typed.sql, o.at) for o, f in zip(outputs, fields, strict=True)]
    carried = _carried(step, dict(zip(fields, (o.typed.sql for o in outputs), strict=True)))
    return replace(carried, node=plan.Project(step.node, exprs), columns=columns, key=() if missing else key)


def _selected(key: str) -> str:
    """What a select list has to name for a key column."""
    return {MARK: "GROUPING_ID(…)", RANK: "ROW_NUMBER() OVER (ORDER BY …), instead of LIMIT,"}.get(key, key)


def hides_window(step: Step, outputs: list[Output]) -> bool:
    """Whether it is not selected of which window a row is: what is told early of it could not be replaced."""
    columns = tuple(Column(o.name, str(i), o.typed.type) for i, o in enumerate(outputs))
    return bool({step.bounds.start, step.bounds.end} & set(_key(step, columns, outputs)[1]))


def _carried(step: Step, outputs: Mapping[str, str]) -> Step:
    """What is known of some fields, under the names that the select list gives them."""
    by_sql = {sql: name for name, sql in reversed(list(outputs.items()))}

    def found(field: str) -> str:
        return by_sql.get(Column(field, field).sql, "") if field else ""

    times = {ROWTIME, *(Column(f, f).sql for f in step.times)}
    other = tuple(found(f) for f in step.other_key)
    return replace(
        step, bounds=step.bounds.renamed(found), ranked=tuple((f, r) for n, r in step.ranked if (f := found(n))),
        other_key=other if all(other) else (),
        times=frozenset(name for name, sql in outputs.items() if sql in times),
    )  # fmt: skip


def _key(step: Step, columns: tuple[Column, ...], outputs: list[Output]) -> tuple[tuple[str, ...], list[str]]:
    """The output fields of a changelog's key, and what of the key is not selected; of a window one bound is enough."""
    if step.kind != "changelog":
        return (), []
    b = step.bounds
    bounds = [f for f in (b.start, b.end) if f] if b.start in step.key or b.end in step.key else []
    by_sql = {o.typed.sql: c.field for o, c in reversed(list(zip(outputs, columns, strict=True)))}
    wanted = [*bounds, *(k for k in step.key if k not in bounds)]
    found = {k: by_sql[sql] for k in wanted if (sql := Column(k, k).sql) in by_sql}
    missing = [k for k in step.key if k not in found and k not in bounds]
    if bounds and b.end not in found and not (b.start_tells and b.start in found):
        missing.insert(0, bounds[0] if b.start_tells else bounds[-1])
    return tuple(found.values()), missing


def column_name(node: exp.Expr, number: int) -> str:
    """The name of an unnamed output, as PostgreSQL makes it; ``columnN`` where PostgreSQL says ``?column?``."""
    node = node.unnest()
    if isinstance(node, exp.Column):
        return fold(node.this)
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        return fold(node.expression)
    if isinstance(node, exp.Bracket):
        return column_name(node.this, number)
    if isinstance(node, exp.Filter):
        return column_name(node.this, number)
    if isinstance(node, exp.Anonymous):
        return str(node.name).lower()
    if isinstance(node, (exp.Cast, exp.TryCast)):
        inner = column_name(node.this, number)
        return inner if inner != f"column{number}" else str(node.args["to"].this).split("(")[0].split("<")[0].lower()
    if isinstance(node, exp.Case):
        return "case"
    return f"column{number}"


def only(node: exp.Expr, *allowed: str) -> None:
    """Refuse what sqlglot read into a node and nobody here knows: nothing is passed over in silence."""
    for key, value in node.args.items():
        if value and key not in allowed:
            inner = value[0] if isinstance(value, list) else value
            raise NotYet(what=key.strip("_").upper(), at=at(inner) if isinstance(inner, exp.Expr) else at(node))
