"""Lookups: bounded relations beside the rows of a stream.

PostgreSQL answers, in its own language and with the rights of the query's role, for the rows of each batch when
they come by: a join, ``LATERAL``, ``IN``, ``EXISTS``, ``= ANY`` and scalar subqueries are one step, ``plan.Lookup``,
whose text is the client's with what it reads of the stream replaced by arguments.
Owns: which parts of a bounded query read the stream, the text. The planner does no I/O: what only PostgreSQL knows
is a ``Question``, and ``Unanswered`` asks for it; the planner is then run again with the answer.
Must not know: FROM (``lookup_joins``), where subqueries stand (``subqueries``), connections, sinks. Start reading at
``Lookup``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from pgstream import types
from pgstream.errors import NotYet, PgStreamError, TypeMismatch
from pgstream.names import QName, quote_always
from pgstream.planner import plan
from pgstream.planner.answers import Described
from pgstream.planner.bind import at
from pgstream.planner.bounded import Bounded, Cte, Env, cte_of
from pgstream.planner.expressions import Compiler, Typed
from pgstream.planner.functions import FUNCTIONS, RECORDS
from pgstream.planner.slices import Range, Words
from pgstream.sql.select import fold, mentioned

ROW = '"__row"'  # what the text calls the arguments of one row of the stream
_NAMED = (exp.Table, exp.Subquery, exp.Values, exp.Lateral, exp.CTE, exp.Unnest)


class Lookup:
    """One question to PostgreSQL for each row of a stream, under way."""

    def __init__(self, bounded: Bounded, compiler: Compiler, env: Env) -> None:
        self.bounded, self.scope, self.env = bounded, compiler.scope, env
        self.compiler = compiler.other("a lookup")
        self.words = Words(bounded.slices)
        self.arguments: list[plan.Argument] = []
        self.read: dict[str, None] = {}
        self.ctes: dict[str, Cte] = {}
        self.databases: dict[str, None] = {}

    def argument(self, typed: Typed, position: int | None) -> str:
        """What stands for a value of the stream's row in the text."""
        type_ = types.TEXT if typed.sql == "null" else typed.type
        if type_ is None:
            raise NotYet(
                what="a value whose type is not known here in a query of PostgreSQL's", at=position,
                hint="Write CAST(value AS type).",
            )  # fmt: skip
        if not type_.is_scalar:
            raise TypeMismatch(what=f"a value of type {type_} cannot be given to PostgreSQL", at=position)
        known = next((i for i, a in enumerate(self.arguments) if (a.sql, a.type) == (typed.sql, str(type_))), None)
        if known is None:
            known = len(self.arguments)
            self.arguments.append(plan.Argument(typed.sql, str(type_), position))
        return f"{ROW}.p{known + 1}"

    def cut(self, where: Range, tree: exp.Expr | None, seen: Sequence[exp.Expr]) -> None:
        """The client's words; ``tree``, in which parts may read the stream, and ``seen`` say what is PostgreSQL's."""
        for relation in {id(r): r for r in (tree, *seen) if r is not None}.values():
            self._note(relation, self.env)
        names, columns = self._inner([t for t in (tree, *seen) if t is not None])
        replaced = []
        for node in self._outer(tree, names, columns) if tree is not None else ():
            place = self.bounded.slices.range(node)
            assert place is not None
            replaced.append((place, self.argument(self.compiler.compile(node), at(node))))
        self.words.cut(where, replaced)

    def on(self, where: Range, condition: exp.Expr, item: exp.Expr) -> None:
        """What the rows of ``item`` must meet: the client's words at ``where``."""
        self.words.say("WHERE ")
        self.cut(where, condition, [item])

    def equal(self, name: str, column: exp.Column) -> str:
        """That a column which both sides have is the same in relation ``name`` of the text."""
        theirs = f"{quote_always(name)}.{quote_always(fold(column.this))}"
        return f"{theirs} = {self.argument(self.compiler.compile(column), at(column))}"

    def require(self, conditions: Sequence[str]) -> None:
        """All of these conditions."""
        self.words.say(f"WHERE {' AND '.join(conditions)}")

    def _note(self, tree: exp.Expr, env: Env) -> None:
        """What the text reads: for the catalogue, and which database answers."""
        relations = self.bounded.relations
        for name in mentioned(tree):
            if (cte := cte_of(name, env)) is not None:
                self._note(cte.query, cte.env)
                if self.ctes.setdefault(name.name, cte).query is not cte.query:
                    raise NotYet(what=f'a second CTE named "{name.name}" in one query of PostgreSQL\'s', at=name.at)
            elif (record := self.bounded.record(name)) is not None:
                relations.read.append(record)
                relations.met.append(record)
                self.read[str(record.full)] = None
                self.databases[record.full.database] = None
                if len(self.databases) > 1:
                    raise NotYet(what="reading several databases in one query of PostgreSQL's", at=name.at)

    def _inner(self, trees: Sequence[exp.Expr]) -> tuple[set[str], set[str]]:
        """The names of relations, and of columns, that the text has of its own."""
        names, columns = set(), set()
        for tree in trees:
            for name in mentioned(tree):
                names.add(name.name)
                cte = cte_of(name, self.env)
                columns |= {*self._outputs(cte.query), *cte.columns} if cte is not None else self._declared(name)
            for node in tree.find_all(*_NAMED):
                alias = node.args.get("alias")
                if isinstance(alias, exp.TableAlias):
                    names |= {fold(alias.this)} if alias.this is not None else set()
                    columns |= {fold(c) for c in alias.args.get("columns") or []}
            columns |= self._outputs(tree)
        return names, columns

    def _declared(self, name: QName) -> set[str]:
        record = self.bounded.record(name)
        return {c.name for c in record.columns} if record is not None else set()

    def _outputs(self, tree: exp.Expr) -> set[str]:
        """Names that a query gives its columns, and those of the relations in it."""
        given_ = {
            fold(a.args["alias"]) for a in tree.find_all(exp.Alias) if isinstance(a.args["alias"], exp.Identifier)
        }
        return given_ | {c for name in mentioned(tree) if cte_of(name, self.env) is None for c in self._declared(name)}

    def _outer(self, node: exp.Expr, names: set[str], columns: set[str]) -> Iterator[exp.Expr]:
        """The greatest parts that read nothing but the stream's row."""
        kinds = (exp.Column, exp.Dot, exp.Bracket, exp.Cast)
        if (isinstance(node, kinds) or _is_called(node)) and self.bounded.slices.range(node) is not None:
            units = {id(u) for c in node.find_all(exp.Anonymous) for u in _units(c)}
            used = [c for c in node.find_all(exp.Column) if not isinstance(c.this, exp.Star) and id(c) not in units]
            reads = bool(used) or any(map(_is_of_row, node.find_all(exp.Anonymous)))
            if reads and all(self._is_outer(c, names, columns) for c in used) and self._compiles(node):
                yield node
                return
        start = node.meta.get("start")
        if (
            start is not None
            and self.bounded.slices.text[start] == "$"
            and isinstance(node, (exp.Literal, exp.Cast, exp.Null))
        ):
            yield node
            return
        for value in node.args.values():
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, exp.Expr):
                    yield from self._outer(child, names, columns)

    def _is_outer(self, column: exp.Column, names: set[str], columns: set[str]) -> bool:
        parts = [fold(p) for p in column.parts if isinstance(p, exp.Identifier)]
        if len(parts) > 1:
            return parts[-2] not in names and any(i.answers(tuple(parts[:-1])) for i in self.scope.items)
        return parts[0] not in columns and self.scope.has(parts[0])

    def _compiles(self, node: exp.Expr) -> bool:
        """Whether a call or cast can be left to the stream's side; a column must, and says what is wrong with it."""
        if isinstance(node, exp.Column):
            return True
        try:
            return self.compiler.other("a lookup").compile(node).type is not None
        except PgStreamError:
            return False

    def described(self) -> Described:
        relations = self.bounded.relations
        database = next(iter(self.databases), relations.database)
        prelude = Words(self.bounded.slices)
        for i, (name, cte) in enumerate(self.ctes.items()):
            prelude.say(f"{', ' if i else 'WITH '}{quote_always(name)}{_listed(cte)} AS (")
            prelude.cut(self.bounded.slices.inside(cte.query))
            prelude.say(")\n")
        shift = len(prelude.text)
        places = (*prelude.places, *((mine + shift, theirs) for mine, theirs in self.words.places))
        # Without precision: that of a calculated DECIMAL is Spark's to say.
        kinds = tuple(types.TABLE[types.parse(a.type).name].pg for a in self.arguments)
        return Described(database, relations.schema, prelude.text + self.words.text, kinds, places)

    def columns(self) -> list[plan.Column]:
        """What PostgreSQL says the text gives. Raises Unanswered."""
        return list(self.bounded.relations.answers.described(self.described()))

    def step(
        self, node: plan.Node, columns: list[plan.Column], how: str, left_alias: str = "", right_alias: str = ""
    ) -> plan.Lookup:
        if self.compiler.wants:
            raise NotYet(what="the record key in a lookup")
        d = self.described()
        return plan.Lookup(
            node, ", ".join(self.read) or "VALUES", d.database, columns, how, [], left_alias, right_alias,
            d.sql, self.arguments, d.schema,
        )  # fmt: skip


def _listed(cte: Cte) -> str:
    return f"({', '.join(map(quote_always, cte.columns))})" if cte.columns else ""


def _units(call: exp.Anonymous) -> list[exp.Expr]:
    """The units of time among a call's arguments, which look like columns."""
    row = FUNCTIONS.get(str(call.this).upper())
    return [call.expressions[i] for i in row.units if i < len(call.expressions)] if row is not None else []


def _is_of_row(call: exp.Anonymous) -> bool:
    """Whether a call tells something of the stream's row that is no column of it: of its record."""
    row = FUNCTIONS.get(str(call.this).upper())
    return row is not None and row.call in RECORDS


def _is_called(node: exp.Expr) -> bool:
    row = FUNCTIONS.get(str(node.this).upper()) if isinstance(node, exp.Anonymous) else None
    # A row is none: its values are given one by one.
    return row is not None and row.call != "row" and not row.aggregate and node.find(exp.Query) is None
