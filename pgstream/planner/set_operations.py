"""UNION, INTERSECT and EXCEPT of two queries.

Owns: columns by position and their common types; INTERSECT and EXCEPT as a GROUP BY of the whole row that counts the
rows of either query, with ALL as many rows of it as stay. Must not know: how the queries are built. Start reading at
``combined``.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from pgstream.errors import InvalidStatement, NotYet, TypeMismatch
from pgstream.planner import infer, plan
from pgstream.planner.bind import Column, at, check_names, unique
from pgstream.planner.grouping import distinct_rows
from pgstream.planner.steps import Step, retracting

# Which rows stay, and with ALL how many, by how many of them the first and the second query have.
_STAYS = {"intersect": "{} > 0 AND {} > 0", "except": "{} > 0 AND {} = 0"}
_COPIES = {"intersect": "least({}, {})", "except": "greatest({} - {}, 0L)"}


def combined(tree: exp.SetOperation, one: Step, two: Step, top: bool, want: str) -> Step:
    """The set operation of two queries. Errors: InvalidStatement, TypeMismatch, NotYet."""
    distinct = bool(tree.args.get("distinct"))
    if not isinstance(tree, exp.Union):
        if not distinct and top and want not in ("view", "result"):
            what = f"{tree.key.upper()} ALL as a result, which has no key,"
            raise NotYet(
                what=what, at=at(tree.expression), hint="Without ALL each row is once, and the key; or group it."
            )
        return _counted(tree, one, two, top and want != "result", distinct)
    step = _all(tree, [one, two])
    if top and want != "result":
        check_names(step.columns)
        if step.keyless and want != "view" and not distinct:
            raise NotYet(what="UNION ALL of changelogs as a result", at=at(tree.expression), hint="Group it.")
    return distinct_rows(step, top, want) if distinct else step


def _counted(tree: exp.SetOperation, one: Step, two: Step, named: bool, distinct: bool) -> Step:
    """INTERSECT or EXCEPT: each row once, as long as it stays; not ``distinct``: as often as it stays."""
    if named:
        check_names(one.columns)
    mark = unique("of_second", (c.field for c in (*one.columns, *two.columns)))
    step = _all(tree, [_marked(one, mark, "false"), _marked(two, mark, "true")])
    columns = step.columns[:-1]
    names = [unique(f"of_{n}", (c.field for c in columns)) for n in ("one", "two")]
    calls = [
        plan.Call(name, "count", ["1"], where=f"{not_}{Column(mark, mark).sql}")
        for name, not_ in zip(names, ("NOT ", ""), strict=True)
    ]
    counted = plan.ChangeAggregate(retracting(step).node, [plan.Expr(c.field, c.sql) for c in columns], calls)
    key = tuple(c.field for c in columns)
    counts = [Column(n, n).sql for n in names]
    rows = [plan.Expr(c.field, c.sql) for c in columns]
    whole = Step(
        counted, columns, "upsert", "changelog", key, joined=step.joined, stateful=True, placed=False
    )  # fmt: skip
    if not distinct:
        whole = retracting(whole)
        copies = f"array_repeat(true, CAST({_COPIES[tree.key].format(*counts)} AS INT))"
        each = plan.Unnest(whole.node, plan.Expr("copies", copies, at(tree.expression)), [])
        return replace(whole, node=plan.Project(each, rows), key=(), keyless=True)
    kept = plan.Filter(counted, plan.Expr("stays", _STAYS[tree.key].format(*counts), at(tree.expression)))
    return replace(whole, node=plan.Project(kept, rows))


def _marked(step: Step, mark: str, value: str) -> Step:
    exprs = [plan.Expr(c.field, c.sql) for c in step.columns]
    return replace(
        step, node=plan.Project(step.node, [*exprs, plan.Expr(mark, value)]),
        columns=(*step.columns, Column(mark, mark)),
    )  # fmt: skip


def _all(tree: exp.SetOperation, steps: list[Step]) -> Step:
    """UNION ALL. A changelog in it comes as retractions, and has no key any more."""
    first, second = steps
    if len(first.columns) != len(second.columns):
        what = f"each {tree.key.upper()} query must have the same number of columns"
        raise InvalidStatement(what=what, at=at(tree.expression))
    if not all(s.is_plain for s in steps):
        steps = [retracting(s) for s in steps]
    inputs = [*(steps[0].node.inputs if isinstance(steps[0].node, plan.Union) else [steps[0].node]), steps[1].node]
    pairs = list(zip(first.columns, second.columns, strict=True))
    for c, other in pairs:
        if not infer.can_match(c.type, other.type):
            raise TypeMismatch(
                what=f"{tree.key.upper()} types {c.type} and {other.type} cannot be matched", at=at(tree.expression),
                detail=f'They are of column "{c.name}".', hint="Write CAST(value AS type) in one of the queries.",
            )  # fmt: skip
    columns = tuple(replace(c, type=infer.common(c.type, other.type)) for c, other in pairs)
    retract = any(s.mode == "retract" for s in steps)
    changelog = any(s.kind == "changelog" for s in steps)
    return Step(
        plan.Union(inputs), columns, "retract" if retract else "append", "changelog" if changelog else "stream",
        keyless=changelog, joined=any(s.joined for s in steps), stateful=any(s.stateful for s in steps),
        placed=False,
    )  # fmt: skip
