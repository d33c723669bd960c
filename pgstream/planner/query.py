"""Queries: SELECT, set operations, subqueries and CTEs, in the order in which SQL takes their parts.

Owns: the order of things (FROM, joins, WHERE, GROUP BY, HAVING, the select list, OVER, DISTINCT), which changelog mode,
kind and key a result has. What is not whole yet is refused with its position.
Must not know: Spark beyond its SQL text, the sink, sessions. Start reading at ``Planner.select``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from sqlglot import exp

from pgstream.errors import InvalidStatement, NotSupported, NotYet, UndefinedColumn, UndefinedFunction
from pgstream.planner import joins, lookup_joins, plan, records, semi_joins
from pgstream.planner.bind import Item, Scope, at, renamed
from pgstream.planner.bounded import Bounded, Cte, Env
from pgstream.planner.expressions import Compiler, has_aggregate
from pgstream.planner.firsts import first_rows, of_whole, wants_first
from pgstream.planner.grouping import (
    Grouped,
    aggregate,
    as_of_times,
    distinct_rows,
    group,
    needs_kernel,
    tells_versions,
)
from pgstream.planner.outputs import Output, hides_window, only, project, select_list
from pgstream.planner.over import Overs, of_windows
from pgstream.planner.ranks import Numbering, bounded
from pgstream.planner.recognize import recognized
from pgstream.planner.relations import Relations, Virtual, given, opened, windowed
from pgstream.planner.set_operations import combined
from pgstream.planner.steps import Step, wanting
from pgstream.planner.subqueries import Lookups
from pgstream.planner.unnest import is_unnest, unnest
from pgstream.sql.select import fold, qname

_ENDLESS = "What does not end has no order. CREATE MATERIALIZED VIEW … AS SELECT … ORDER BY … LIMIT n keeps it."
_ELEMENTS = "Write CROSS JOIN UNNEST(array) AS name(column); SPLIT(s, ',') makes an array of a text."
_REFUSED_CLAUSES = (
    ("offset", "OFFSET"),
    ("qualify", "QUALIFY"),
    ("laterals", "LATERAL"),
    ("into", "SELECT INTO"),
    ("kind", "SELECT AS STRUCT"),
    ("locks", "FOR UPDATE"),
    ("hint", "a hint"),
)


class Planner:
    """Plans one select. ``want``: see ``plan_select``; ``expires``: its state has a time to live. ``numbering``: of its
    ranks.
    """

    def __init__(self, relations: Relations, bounded: Bounded, want: str, expires: bool, numbering: Numbering) -> None:
        self.relations, self.bounded, self.want, self.expires = relations, bounded, want, expires
        self.numbering = numbering
        self.versions = False  # whether a GROUP BY is to tell its groups as of each event time

    def query(self, tree: exp.Expr, env: Env, top: bool = False, last: bool = False) -> Step:
        """Any query: a select, a union, or one of them in parentheses. ``last``: no operator with state is above it."""
        tree = _placed(tree, self.relations.database) if top else tree
        env = self._ctes(tree, env)
        if not isinstance(tree, exp.Select) and not (top and self.want == "result") and wants_first(tree):
            return self.select(of_whole(tree), env, top, last)
        if isinstance(tree, exp.Subquery):
            only(tree, "this", "with_", "limit" if top else "")
            return self.query(tree.this, env, top, last)
        if isinstance(tree, exp.SetOperation):
            return self._combined(tree, env, top)
        if not isinstance(tree, exp.Select):
            raise NotYet(what=tree.key.upper(), at=at(tree))
        return self.select(tree, env, top, last)

    def _ctes(self, tree: exp.Expr, env: Env) -> Env:
        clause = tree.args.get("with_")
        if clause is None:
            return env
        if clause.args.get("recursive"):
            raise NotYet(what="WITH RECURSIVE", at=at(clause))
        for cte in clause.expressions:
            alias = cte.args["alias"]
            only(cte, "this", "alias")
            names = tuple(fold(c) for c in alias.args.get("columns") or [])
            env = {**env, fold(alias.this): Cte(cte.this, env, names)}
        return env

    def _combined(self, tree: exp.SetOperation, env: Env, top: bool) -> Step:
        only(tree, "this", "expression", "distinct", "with_", "limit" if self.want == "result" and top else "")
        return combined(tree, self.query(tree.this, env), self.query(tree.expression, env), top, self.want)

    def select(self, tree: exp.Select, env: Env, top: bool, last: bool) -> Step:
        """One SELECT."""
        if not (top and self.want == "result") and wants_first(tree):
            return self.select(first_rows(tree), env, top, last)
        self._refuse_clauses(tree, top)
        having = tree.args.get("having")
        found = next((n for n in (*tree.expressions, having) if n is not None and has_aggregate(n)), None)
        grouped = tree.args.get("group") or having or found
        distinct = tree.args.get("distinct")
        if distinct is not None:
            only(distinct)
        place = (top and distinct is None, last and distinct is None)
        step = self._alone(tree, env, place) if grouped is None else self._rows(tree, env, place, grouped)
        return step if distinct is None else distinct_rows(step, top, self.want)

    def _alone(self, tree: exp.Select, env: Env, place: tuple[bool, bool]) -> Step:
        """A select that groups nothing. A changelog that loses its key is taken back row by row, which is an operator
        with state above what it reads: it is planned again with that.
        """
        (top, last), versions = place, self.versions
        read, met = len(self.relations.read), len(self.relations.met)
        step = self._rows(tree, env, place, None)
        if not last or step.mode != "retract":
            return step
        del self.relations.read[read:], self.relations.met[met:]
        self.versions = versions
        return self._rows(tree, env, (top, False), None)

    def _rows(self, tree: exp.Select, env: Env, place: tuple[bool, bool], grouped: exp.Expr | None) -> Step:
        """The select before DISTINCT. ``place``: whether it is the top query, and has no operator with state above."""
        top, last = place
        overs = any(n.find(exp.Window) for n in tree.expressions)
        where = tree.args.get("where")
        parts = semi_joins.apart(where and where.this, self.bounded, env)
        alone = grouped is None and not tree.args.get("joins") and not parts.asking
        versions, self.versions = self.versions, self.versions and alone
        step, scope = self._from(tree, env, last and grouped is None and not overs and not parts.asking)
        if grouped is None or parts.asking:
            step, scope = opened(step, scope)
        wants: set[str] = set()
        if where is not None:
            step = bounded(step, scope, where.this, self.numbering)
        with _without_its_names(tree, "WHERE"):
            if parts.asking:
                step, scope = self._asked(parts, (step, scope), wants, env)
            elif where is not None:
                step = self._filter(step, scope, where.this, wants, env)
        if grouped is not None:
            self.versions = versions and tells_versions(step, scope, tree.args.get("group"))
            made = self._grouped(tree, (step, scope), wants, (top, last and not overs), env)
            self.versions = False
            return made
        rows = Compiler(scope, "the select list")
        over = self._over(rows, step)
        asked = self._lookups(rows, (c.field for c in step.columns), env)
        outputs = select_list(tree, scope, rows)
        over.check_times([o.typed.sql for o in outputs])
        step = asked.over(step, at(tree.expressions[0]))
        wants |= rows.wants
        _check_watermark(tree, wants if step.mode != "append" else set())
        step = replace(step, node=wanting(step.node, wants))
        return self._project(over.over(step), outputs, tree, top)

    def _asked(
        self, where: semi_joins.Where, rows: tuple[Step, Scope], wants: set[str], env: Env
    ) -> tuple[Step, Scope]:
        """The rows that meet a WHERE which asks what has no end."""
        step, scope = rows
        for part in where.others:
            step = self._filter(step, scope, part, wants, env)

        def keep(met: Step, seen: Scope, condition: exp.Expr) -> Step:
            return self._filter(met, seen, condition, wants, env)

        return semi_joins.joined((step, scope), where, lambda q: self.query(q, env), keep, self.expires)

    def _over(self, compiler: Compiler, step: Step) -> Overs:
        """What the select list computes OVER the rows of a step."""
        over = Overs([c.field for c in step.columns], step.times | of_windows(step), self.numbering)
        compiler.over = over.add
        return over

    def _grouped(
        self, tree: exp.Select, rows: tuple[Step, Scope], wants: set[str], place: tuple[bool, bool], env: Env
    ) -> Step:
        (step, scope), (top, last) = rows, place
        kernel = self.versions or needs_kernel(tree, step, scope, last and not self.expires)
        grouping = group(tree, scope, tree.expressions, kernel)
        compiler = Grouped(scope, grouping, "the select list")
        over = self._over(compiler, Step(step.node, ()))
        over.fields.extend(grouping.fields)
        asked = self._lookups(compiler, grouping.fields, env)
        outputs = select_list(tree, scope, compiler)
        having = compiler.other("HAVING")
        with _without_its_names(tree, "HAVING"):
            kept = self._having(tree.args.get("having"), having, grouping.fields, env)
        wants = wants | grouping.wants | compiler.inside.wants | having.inside.wants
        _check_watermark(tree, wants if step.mode != "append" else compiler.wants | having.wants)
        made = kept(
            as_of_times(step, grouping, wants) if self.versions
            else aggregate(step, scope, grouping, wants, last and self.want == "view")
        )  # fmt: skip
        made = asked.over(made, at(tree.expressions[0]))
        if last and made.mode == "upsert" and hides_window(made, outputs):
            return self._grouped(tree, rows, wants, (top, False), env)
        result = self._project(over.over(made), outputs, tree, top)
        if last and made.mode == "upsert" and result.mode == "retract":
            # Without its key the result is taken back row by row, which is an operator above: the same again with that.
            return self._grouped(tree, rows, wants, (top, False), env)
        return result

    def _having(
        self, clause: exp.Having | None, compiler: Grouped, fields: list[str], env: Env
    ) -> Callable[[Step], Step]:
        """What HAVING does with the groups."""
        if clause is None:
            return lambda step: step
        asked = self._lookups(compiler, fields, env)
        condition = plan.Expr("having", compiler.condition(clause.this, "HAVING"), at(clause.this))

        def kept(step: Step) -> Step:
            step = asked.over(step, condition.at)
            return replace(step, node=plan.Filter(step.node, condition))

        return kept

    def _project(self, step: Step, outputs: list[Output], tree: exp.Select, top: bool) -> Step:
        return project(step, outputs, tree, top, self.want)

    def _filter(self, step: Step, scope: Scope, condition: exp.Expr, wants: set[str], env: Env) -> Step:
        compiler = Compiler(scope, "WHERE")
        asked = self._lookups(compiler, (c.field for c in step.columns), env)
        sql = compiler.condition(condition, "WHERE")
        wants |= compiler.wants
        step = asked.over(step, at(condition))
        return replace(step, node=plan.Filter(step.node, plan.Expr("where", sql, at(condition))))

    def _lookups(self, compiler: Compiler, fields: Iterable[str], env: Env) -> Lookups:
        """What a clause asks PostgreSQL for each row of a step that has these fields."""
        asked = Lookups(self.bounded, compiler, env, list(fields))
        compiler.ask = asked.ask
        return asked

    def _refuse_clauses(self, tree: exp.Select, top: bool) -> None:
        if order := tree.args.get("order"):
            raise NotSupported(what="ORDER BY of an interactive SELECT", at=at(order), hint=_ENDLESS)
        for key, words in _REFUSED_CLAUSES:
            if tree.args.get(key):
                raise NotYet(what=words, at=_place(tree.args[key], tree))
        if not tree.args.get("from_"):
            raise NotSupported(
                what="a continuous query without FROM", at=at(tree), hint="INSERT INTO … VALUES writes rows at once."
            )
        only(
            tree,
            "with_",
            "expressions",
            "distinct",
            "from_",
            "where",
            "group",
            "having",
            "joins",
            "limit",
            "operation_modifiers",
        )

    # FROM

    def _from(self, tree: exp.Select, env: Env, last: bool) -> tuple[Step, Scope]:
        joins_, where = tree.args.get("joins") or [], tree.args.get("where")
        links = joins.links(where.this) if joins_ and where is not None else []
        joined = any(not is_unnest(j) for j in joins_)
        asked = records.asked(tree) if joins_ else []
        if (turned := self._turned(tree.args["from_"].this, joins_[:1], env, asked)) is not None:
            (step, scope), joins_ = turned, joins_[1:]
        else:
            step, scope = self._relation(tree.args["from_"].this, env, last and not joins_)
            if joined:
                step, scope = opened(step, scope)
            step, scope = records.kept(step, scope, asked)
        if "within" in tree.args["from_"].this.meta:
            raise InvalidStatement(
                what="WITHIN stands after the right relation of a join", at=tree.args["from_"].this.meta["within"][1]
            )
        for join in joins_:
            if is_unnest(join):
                step, scope = unnest(step, scope, join)
                continue
            if (found := lookup_joins.join(self.bounded, step, scope, join, env)) is not None:
                step, scope = found
                continue
            right, right_scope = opened(*self._relation(join.this, env))
            if step.mode == "append" and right.mode == "upsert" and right.stateful and "within" not in join.this.meta:
                self.versions = True
                right, right_scope = self._relation(join.this, env)
                self.versions = False
            other = records.kept(right, right_scope, asked)
            step, scope = joins.join(join, (step, scope), other, expires=self.expires, links=links)
        return step, scope

    def _turned(
        self, first: exp.Expr, joins_: list[exp.Join], env: Env, asked: list[exp.Anonymous]
    ) -> tuple[Step, Scope] | None:
        """A FROM that begins with a bounded relation beside a stream: the stream stands first, then."""
        if not joins_ or is_unnest(joins_[0]) or not lookup_joins.turns(self.bounded, first, joins_[0], env):
            return None
        read, met = len(self.relations.read), len(self.relations.met)
        right, right_scope = opened(*self._relation(joins_[0].this, env))
        if right.mode == "append":
            return lookup_joins.turned(self.bounded, first, records.kept(right, right_scope, asked), joins_[0], env)
        del self.relations.read[read:], self.relations.met[met:]
        return None

    def _relation(self, node: exp.Expr, env: Env, last: bool = False) -> tuple[Step, Scope]:
        alias, match = node.args.get("alias"), node.args.get("match")
        names = tuple(fold(c) for c in alias.args.get("columns") or []) if alias is not None else ()
        step, scope = self._unnamed(node, fold(alias.this) if alias is not None else "", env, last and match is None)
        scope = renamed(scope, names, at(alias)) if names else scope
        return (step, scope) if match is None else recognized(*opened(step, scope), match)

    def _unnamed(self, node: exp.Expr, name: str, env: Env, last: bool) -> tuple[Step, Scope]:
        """A relation whose columns have their own names."""
        if isinstance(node, exp.Subquery):
            only(node, "this", "alias", "with_", "match")
            window = node.meta.get("window")
            step = self.query(node.this, self._ctes(node, env), last=last and window is None)
            scope = Scope((Item(name or "unnamed_subquery", step.columns, at=at(node)),), placed=step.placed)
            return step, windowed(scope, window)
        if not isinstance(node, exp.Table):
            hint = None if isinstance(node.this, exp.Subquery) else _ELEMENTS
            raise NotYet(what=node.key.upper(), at=at(node), hint=hint if isinstance(node, exp.Lateral) else None)
        if not isinstance(node.this, exp.Identifier):
            raise NotYet(what="a table function", at=at(node))
        only(node, "this", "db", "catalog", "alias", "hints", "match")
        parts = node.parts
        cte = env.get(fold(parts[0])) if len(parts) == 1 and isinstance(parts[0], exp.Identifier) else None
        if cte is not None:
            return self._cte(node, cte, name, last)
        virtual = self.relations.virtual(qname(node))
        return self.relations.named(node, name) if virtual is None else self._virtual(node, virtual, name)

    def _virtual(self, node: exp.Table, virtual: Virtual, alias: str) -> tuple[Step, Scope]:
        """A virtual relation: its query, in the place of its name."""
        if properties := given(node):
            raise NotSupported(
                what="WITH after a virtual relation", at=next(iter(properties.values())).at,
                hint="Give it to the relations that the virtual one reads.",
            )  # fmt: skip
        relations = self.relations.within(virtual)
        bounded_ = Bounded(relations, virtual.select)
        planner = Planner(relations, bounded_, virtual.record.kind, self.expires, self.numbering)
        planner.versions = self.versions
        step = planner.query(virtual.select.tree, {}, top=True)
        known = virtual.record.columns
        columns = tuple(replace(c, type=k.type) for c, k in zip(step.columns, known, strict=True))
        path = () if alias else tuple(virtual.record.full.path)
        item = Item(alias or virtual.record.full.name, columns, path, at=at(node))
        return replace(step, columns=columns), windowed(Scope((item,), placed=step.placed), node.meta.get("window"))

    def _cte(self, node: exp.Table, cte: Cte, alias: str, last: bool) -> tuple[Step, Scope]:
        if properties := given(node):
            raise NotSupported(what="WITH after a CTE", at=next(iter(properties.values())).at)
        window = node.meta.get("window")
        step = self.query(cte.query, cte.env, last=last and window is None)
        scope = Scope((Item(alias or fold(node.this), step.columns, at=at(node)),), placed=step.placed)
        scope = renamed(scope, cte.columns, at(cte.query)) if cte.columns else scope
        return step, windowed(scope, window)


@contextmanager
def _without_its_names(tree: exp.Select, clause: str) -> Iterator[None]:
    """A clause in which the names that the select list gives are not known, and which says so."""
    try:
        yield
    except UndefinedColumn as e:
        if e.values["name"] in (fold(n.args["alias"]) for n in tree.expressions if isinstance(n, exp.Alias)):
            e.hint = f"{clause} knows no names that the select list gives: write the expression itself."
        raise


def _place(clause: object, tree: exp.Expr) -> int | None:
    found = at(clause) if isinstance(clause, exp.Expr) else None
    return at(tree) if found is None else found


def _placed(tree: exp.Expr, database: str) -> exp.Expr:
    """The query with the name of the database in its calls of CURRENT_DATABASE(). Error: UndefinedFunction."""
    if not any(c.name.upper() == "CURRENT_DATABASE" for c in tree.find_all(exp.Anonymous)):
        return tree
    tree = tree.copy()
    for call in tree.find_all(exp.Anonymous):
        if call.name.upper() == "CURRENT_DATABASE":
            if call.expressions:
                raise UndefinedFunction(name="current_database() with arguments", at=at(call), hint="It takes none.")
            call.set("expressions", [exp.Literal.string(database)])
    return tree


def _check_watermark(tree: exp.Expr, wants: set[str]) -> None:
    """Refuse what event time has passed, if rows want it that may be taken back: it would be another then."""
    if "watermark" in wants:
        call = next(c for c in tree.find_all(exp.Anonymous) if c.name.upper() == "CURRENT_WATERMARK")
        raise NotYet(
            what="CURRENT_WATERMARK of groups, or of a changelog's rows", at=at(call),
            hint="Compare with it in a query of the stream, before its rows are grouped or joined.",
        )  # fmt: skip
