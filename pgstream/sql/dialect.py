"""The dialect: the one file that subclasses sqlglot.

Owns: the tokenizer (few keywords, so that ``state``, ``type`` or ``date`` stay plain names; back-ticks and double
quotes both quote), and what DeltaStream's SELECT adds or forbids:

- ``relation [AS] alias WITH ('prop' = value, …)``: properties in ``meta["given"]`` of the table's node;
- ``TUMBLE(relation or (query), SIZE n unit)``, ``HOP`` and ``CUMULATE(…, ADVANCE BY n unit)`` (or ``STEP n unit``),
  ``SESSION(…, GAP n unit)`` (or ``SIZE n unit``): ``meta["window"]``;
- ``JOIN relation WITHIN n unit ON …``: ``meta["within"]`` of the table's node;
- ``relation MATCH_RECOGNIZE (…) [AS alias]``: an ``exp.MatchRecognize`` (``recognize.read``) as the relation's
  ``match``, with the alias that stands after it; ``FINAL f(…)`` and ``RUNNING f(…)`` in it: the word in
  ``meta["told"]`` of the call;
- ``a->b`` is ``exp.Dot``; every function is ``exp.Anonymous`` by its written name, so that the planner's own table
  decides what exists; types are text (``exp.Var``) that ``types.parse`` reads;
- where sqlglot is lenient (empty list items, CASE without THEN, BETWEEN without AND) this is strict.

Must not know: what a function or a name means. Positions are the tokens' own offsets (``node.meta["start"]``).
Start reading at ``DeltaStream`` and ``parse``.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from sqlglot import exp, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.tokens import SQLGLOTC_INSTALLED

from pgstream.errors import (
    ConfigurationError,
    IntervalOutOfRange,
    InvalidStatement,
    NotYet,
    NumberTooLong,
    SyntaxFault,
    TooDeep,
)
from pgstream.sql import composed, properties, recognize
from pgstream.sql.faults import fault
from pgstream.sql.sniff import unclosed
from pgstream.types import ZONES

T = TypeVar("T")

# Called at start-up and before the class statements below, which a compiled sqlglot would refuse one by one.
if SQLGLOTC_INSTALLED:
    raise ConfigurationError(
        what="the compiled build of sqlglot is installed, which cannot be extended",
        hint="Run: pip uninstall sqlglotc mypy-extensions && pip install --force-reinstall 'sqlglot>=30,<31'.",
    )

_SIGNS = {
    "||": TokenType.DPIPE,
    ">=": TokenType.GTE,
    "<=": TokenType.LTE,
    "<>": TokenType.NEQ,
    "!=": TokenType.NEQ,
    "->": TokenType.ARROW,
    "::": TokenType.DCOLON,
}
_WORDS = (
    "ALL", "AND", "ASC", "BETWEEN", "CASE", "CROSS", "CUBE", "CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP",
    "DESC", "DISTINCT", "ELSE", "END", "ESCAPE", "EXCEPT", "EXISTS", "FALSE", "FETCH", "FILTER", "FROM", "FULL",
    "HAVING", "ILIKE", "IN", "INNER", "INTERSECT", "INTERVAL", "INTO", "IS", "JOIN", "LATERAL", "LEFT", "LIKE", "LIMIT",
    "LOCALTIME", "LOCALTIMESTAMP", "MATCH_RECOGNIZE", "NATURAL", "NOT", "NULL", "OFFSET", "ON", "OR", "OUTER",
    "OVER", "RECURSIVE", "RIGHT", "ROLLUP", "SELECT", "THEN", "TRUE", "UNION", "UNNEST", "USING", "VALUES", "WHEN",
    "WHERE", "WITH",
)  # fmt: skip
WITHIN = TokenType.BLOCK_START  # no token type of sqlglot's own; this one means nothing to its parser
# Keywords of PostgreSQL that are not reserved there stay usable as column and relation names.
UNRESERVED = frozenset({TokenType.FILTER, TokenType.ESCAPE, TokenType.RECURSIVE, TokenType.CUBE, TokenType.ROLLUP})
WORDS = frozenset({TokenType.ALIAS, WITHIN, *(TokenType[word] for word in _WORDS)})
_QUANTITY = (TokenType.NUMBER, TokenType.STRING, TokenType.INTERVAL)
PLAIN_NAMES = frozenset({TokenType.VAR, TokenType.IDENTIFIER})
WINDOWS = ("TUMBLE", "HOP", "CUMULATE", "SESSION")
_ADVANCING = ("HOP", "CUMULATE")
UNIT_MS = {"MILLISECOND": 1, "SECOND": 1000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000,
           "WEEK": 604_800_000}  # fmt: skip
MOST_DIGITS = 1000
_LONGEST_MS = 2**62 // 1000  # in microseconds, and added to a time, it is a whole number of eight bytes
_UNITS = (*UNIT_MS, "MONTH", "QUARTER", "YEAR")
_SIGNED = (TokenType.DASH, TokenType.PLUS)
_RELATIONS = (*PLAIN_NAMES, TokenType.L_PAREN, TokenType.UNNEST, TokenType.LATERAL)
_FRAMES = {"ROWS": TokenType.ROWS, "RANGE": TokenType.RANGE}
_AS_OF = (
    "Leave FOR SYSTEM_TIME AS OF … out: a stream's record is joined with a changelog's row of the record's event time."
)
_TYPED_LITERALS = ("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ")


@dataclass(frozen=True, slots=True)
class WindowCall:
    """``TUMBLE(…)`` or another window around a relation; milliseconds (of a session its gap); ``at``: of its name."""

    kind: str
    size_ms: int
    advance_ms: int
    at: int


class DeltaStreamTokenizer(tokens.Tokenizer):
    """Few keywords; SHOW, EXECUTE and the like are words like any other, since statement heads are the cursor's."""

    QUOTES: ClassVar = ["'"]
    IDENTIFIERS: ClassVar = ['"', "`"]
    STRING_ESCAPES: ClassVar = ["'"]
    COMMANDS: ClassVar = set()
    TOKENS_PRECEDING_HINT: ClassVar = set()
    KEYWORDS: ClassVar = {
        **_SIGNS,
        **{word: TokenType[word] for word in _WORDS},
        "AS": TokenType.ALIAS,
        "GROUP BY": TokenType.GROUP_BY,
        "GROUPING SETS": TokenType.GROUPING_SETS,
        "ORDER BY": TokenType.ORDER_BY,
        "PARTITION BY": TokenType.PARTITION_BY,
        "WITHIN": WITHIN,
    }


# The base class adds Jinja's comments; a "{#" of ours is a syntax error.
DeltaStreamTokenizer._COMMENTS.pop("{#", None)


class Stop(ParseError):
    """sqlglot cannot go on; ``index`` is the token it stands at, ``hint`` what would fit where that can be said."""

    def __init__(self, index: int, hint: str | None = None) -> None:
        super().__init__("", errors=[])
        self.index = index
        self.hint = hint


@contextmanager
def _hinted(hint: str | None) -> Iterator[None]:
    """What stops in it without a hint of its own gets this one."""
    try:
        yield
    except Stop as stop:
        stop.hint = stop.hint or hint
        raise


def window_form(kind: str) -> str:
    """How a window function is written."""
    if kind == "SESSION":
        return "SESSION(relation, GAP 10 SECONDS)"
    return f"{kind}(relation, SIZE 10 SECONDS{', ADVANCE BY 5 SECONDS' if kind in _ADVANCING else ''})"


class DeltaStreamParser(Parser):
    """sqlglot's SELECT parser with our additions and without its leniency."""

    FUNCTIONS: ClassVar = {}
    LAMBDAS: ClassVar = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar = {"CASE": lambda self: self._parse_case()}
    NO_PAREN_FUNCTIONS: ClassVar = {
        TokenType[name]: (lambda name=name: exp.Anonymous(this=name))
        for name in ("CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP")
    }
    FUNCTION_PARSERS: ClassVar = {
        "CAST": lambda self: self._cast("CAST"),
        "TRY_CAST": lambda self: self._cast("TRY_CAST"),
        "EXTRACT": lambda self: self._extract(),
        "TRIM": lambda self: self._trim(),
        "POSITION": lambda self: self._separated("POSITION", "IN"),
        "SUBSTRING": lambda self: self._separated("SUBSTRING", "FROM", "FOR"),
        "OVERLAY": lambda self: self._separated("OVERLAY", "PLACING", "FROM", "FOR"),
        "CEIL": lambda self: self._separated("CEIL", "TO"),
        "CEILING": lambda self: self._separated("CEILING", "TO"),
        "FLOOR": lambda self: self._separated("FLOOR", "TO"),
        "JSON_VALUE": lambda self: self._json_path("JSON_VALUE"),
        "JSON_QUERY": lambda self: self._json_path("JSON_QUERY"),
        "JSON_EXISTS": lambda self: self._json_path("JSON_EXISTS"),
        "JSON_OBJECT": lambda self: self._json_object(),
        "JSON_ARRAY": lambda self: self._json_array(),
        "JSON_OBJECTAGG": lambda self: self._json_objectagg(),
        "JSON_ARRAYAGG": lambda self: self._json_arrayagg(),
    }
    COLUMN_OPERATORS: ClassVar = {
        TokenType.DOT: None,
        TokenType.ARROW: lambda self, this, field: self._arrow(this, field),
        TokenType.DCOLON: lambda self, this, to: self.expression(exp.Cast(this=this, to=to)),
    }
    CAST_COLUMN_OPERATORS: ClassVar = {TokenType.DCOLON}
    BRACKETS: ClassVar = frozenset({TokenType.L_BRACKET})
    QUERY_MODIFIER_PARSERS: ClassVar = {
        token: Parser.QUERY_MODIFIER_PARSERS[token]
        for token in (TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.WINDOW, TokenType.ORDER_BY,
                      TokenType.LIMIT, TokenType.OFFSET, TokenType.FETCH)
    }  # fmt: skip
    QUERY_MODIFIER_TOKENS: ClassVar = set(QUERY_MODIFIER_PARSERS)
    RANGE_PARSERS: ClassVar = {
        token: Parser.RANGE_PARSERS[token] for token in (TokenType.ILIKE, TokenType.IN, TokenType.LIKE)
    } | {
        TokenType.BETWEEN: lambda self, this: self._parse_between(this),
        TokenType.IS: lambda self, this: self._is(this),
    }
    PLACEHOLDER_PARSERS: ClassVar = {}
    ID_VAR_TOKENS: ClassVar = {TokenType.VAR, *UNRESERVED}
    TABLE_ALIAS_TOKENS: ClassVar = {TokenType.VAR}
    ALIAS_TOKENS: ClassVar = {TokenType.VAR}

    _recognizing = False  # inside MATCH_RECOGNIZE (…)

    def raise_error(self, message: str, token: Token | None = None) -> None:
        """Remember only where: the words are PostgreSQL's, made by ``parse``."""
        raise Stop(self._index)

    def _parse_statement(self) -> exp.Expr | None:
        if not self._match_set((TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN), advance=False):
            self.raise_error("a query")
        query = self._parse_set_operations(self._parse_select(nested=True))
        return self._parse_query_modifiers(query)

    def _parse_select_query(self, *args: Any, **kw: Any) -> exp.Expr | None:
        token = self._curr
        if token and token.token_type is TokenType.FROM:
            return None  # sqlglot would read a FROM without SELECT as SELECT *
        query = super()._parse_select_query(*args, **kw)
        if isinstance(query, exp.Select) and "start" not in query.meta:
            query.update_positions(token)
        return query

    def _parse_csv(self, parse_method: Callable[[], T | None], sep: TokenType = TokenType.COMMA) -> list[T]:
        first = parse_method()
        items = [first] if first is not None else []
        while self._match(sep):
            item = parse_method()
            if item is None:
                self.raise_error("a list item")
            else:
                items.append(item)
        if first is None and len(items) > 0:
            self.raise_error("a list item")
        return items

    def _parse_projections(self) -> tuple[list[exp.Expr], list[exp.Expr] | None]:
        items = self._parse_expressions()
        if not items:
            self.raise_error("a select list")
        return items, None

    def _parse_from(self, *args: Any, **kw: Any) -> exp.From | None:
        found = super()._parse_from(*args, **kw)
        if found is not None and found.this is None:
            self.raise_error("a relation")
        return found

    def _parse_function_parameter(self) -> exp.Expr | None:
        # A name in the column list of an alias, where sqlglot would also read a type.
        return self._parse_id_var()

    def _parse_lambda(self, *args: Any, **kw: Any) -> exp.Expr | None:
        argument = super()._parse_lambda(*args, **kw)
        if isinstance(argument, exp.Distinct) and not argument.expressions:
            self.raise_error("an argument")
        return argument

    # Relations: windows, WITH, WITHIN

    def _parse_table_alias(self, *args: Any, **kw: Any) -> exp.TableAlias | None:
        begin = self._index
        alias = super()._parse_table_alias(*args, **kw)
        if alias is not None and alias.this is None:
            self._retreat(begin + (self._tokens[begin].token_type is TokenType.ALIAS))
            self.raise_error("a name")
        return alias

    def _parse_table(self, *args: Any, **kw: Any) -> exp.Expr | None:
        table = super()._parse_table(*args, **kw)
        if table is None:
            self.raise_error("a relation")
            return None
        if self._curr.token_type is TokenType.MATCH_RECOGNIZE:
            self._match_recognize(table)
        if self._curr.token_type is WITHIN:
            at = self._curr.start
            self._advance()
            with _hinted("Write WITHIN 5 MINUTES."):
                table.meta["within"] = (self._duration(), at)
        return table

    def _match_recognize(self, table: exp.Expr) -> None:
        self._advance()
        outer, self._recognizing = self._recognizing, True
        match = recognize.read(self)
        self._recognizing = outer
        match.set("alias", self._parse_table_alias(alias_tokens=self.TABLE_ALIAS_TOKENS))
        table.set("match", match)
        if isinstance(table, exp.Table) and not table.args.get("hints"):
            table.set("hints", self._parse_table_hints())

    def _parse_unnest(self, with_alias: bool = True) -> exp.Unnest | None:
        # ORDINALITY is a word like any other elsewhere, and its column is the alias's last, as in PostgreSQL.
        if not self._match_pair(TokenType.UNNEST, TokenType.L_PAREN, advance=False):
            return None
        self._advance()
        arrays = self._parse_wrapped_csv(self._parse_equality)
        numbered = bool(self._match_text_seq("WITH", "ORDINALITY"))
        alias = self._parse_table_alias() if with_alias else None
        return self.expression(exp.Unnest(expressions=arrays, alias=alias, offset=numbered))

    def _parse_table_parts(self, *args: Any, **kw: Any) -> Any:
        name = self._curr
        kind = name.text.upper()
        if self._next.token_type is not TokenType.L_PAREN:
            return super()._parse_table_parts(*args, **kw)
        inner = next((t.text.upper() for t in self._tokens[self._index + 2 : self._index + 3]), "")
        if kind == "TABLE" and inner in WINDOWS:
            raise Stop(self._index, f"Write {window_form(inner)}, without TABLE.")
        if kind not in WINDOWS:
            close = difflib.get_close_matches(kind, WINDOWS, 1, 0.6)
            with _hinted(f"Perhaps you meant {window_form(close[0])}." if close else None):
                return super()._parse_table_parts(*args, **kw)
        self._advance(2)
        query = self._curr.token_type is TokenType.L_PAREN
        table: Any = self._parse_select(table=True) if query else super()._parse_table_parts(fast=True)
        with _hinted(f"Write {window_form(kind)}."):
            if table is None or not self._match(TokenType.COMMA):
                self.raise_error("a relation and a size")
            if kind != "SESSION" or not self._match_text_seq("GAP"):
                self._expect("SIZE")
            size = advance = self._duration()
            if kind in _ADVANCING:
                if not self._match(TokenType.COMMA):
                    self.raise_error("ADVANCE BY")
                if not self._match_text_seq("STEP"):
                    self._expect("ADVANCE", "BY")
                advance = self._duration()
            self._match_r_paren()
        table.meta["window"] = WindowCall(kind.lower(), size, advance, name.start)
        return table

    def _parse_table_hints(self) -> list[exp.Expr] | None:
        if self._match_pair(TokenType.WITH, TokenType.L_PAREN, advance=False):
            given, index = properties.read(self._tokens, self._index + 1, self.sql)
            self._advance(index - self._index)
            hint = exp.WithTableHint()
            hint.meta["given"] = given
            return [hint]
        return None

    def _parse_partition_and_order(self) -> tuple[list[exp.Expr], exp.Expr | None]:
        found = super()._parse_partition_and_order()
        # Words like any other elsewhere, so they are no keywords of the tokenizer.
        word = self._curr.text.upper() if self._curr and self._curr.token_type is TokenType.VAR else ""
        if word in _FRAMES:
            self._curr.token_type = _FRAMES[word]
        return found

    def _take(self, what: str) -> None:
        # sqlglot's _advance runs past the end of the tokens.
        if not self._curr:
            self.raise_error(what)
        self._advance()

    def _expect(self, *words: str) -> None:
        for word in words:
            if not self._match_text_seq(word):
                self.raise_error(word)

    def _parse_join(self, *args: Any, **kw: Any) -> exp.Join | None:
        token = self._curr
        join = super()._parse_join(*args, **kw)
        if join is not None:
            if self._prev and self._prev.token_type is TokenType.ON:
                self.raise_error("a condition")
            join.update_positions(token)
        return join

    def _parse_window_spec(self) -> dict[str, str | exp.Expr | None]:
        self._match(TokenType.BETWEEN)
        unit = self._next.text.upper().removesuffix("S") if self._next else ""
        if self._curr is None or self._curr.token_type is not TokenType.NUMBER or unit not in UNIT_MS:
            return super()._parse_window_spec()
        # RANGE BETWEEN 1 HOUR PRECEDING, without the word INTERVAL.
        start = self._curr
        self._advance(2)
        literal = exp.Literal.string(start.text)
        interval = self.expression(exp.Interval(this=literal, unit=exp.var(unit)), start)
        return {"value": interval, "side": self._prev.text if self._match_texts(self.WINDOW_SIDES) else None}

    def _duration(self) -> int:
        """``n unit`` or ``'n' unit`` in milliseconds."""
        number = self._curr
        if number.token_type not in (TokenType.NUMBER, TokenType.STRING) or not is_whole(number.text):
            self.raise_error("a number")
        if int(number.text) == 0:
            raise Stop(self._index, "Write a number above zero.")
        self._advance()
        unit = self._curr.text.upper()
        size = UNIT_MS.get(unit) or UNIT_MS.get(unit.removesuffix("S"))
        if size is None or self._curr.token_type is not TokenType.VAR:
            raise Stop(self._index, f"Write the unit of time: {number.text} SECONDS, for example.")
        if int(number.text) * size > _LONGEST_MS:
            raise IntervalOutOfRange(text=f"{number.text} {self._curr.text}", at=number.start)
        self._advance()
        return int(number.text) * size

    # Expressions

    def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> exp.Expr | None:
        token = self._curr
        if token.token_type is TokenType.INTERVAL:
            return self._interval()
        if self._recognizing and token.text.upper() in ("FINAL", "RUNNING") and self._next.token_type is TokenType.VAR:
            self._advance()
            value = self._parse_function()
            if value is None:
                self.raise_error("a function")
            else:
                value.meta["told"] = token
            return value
        if (
            token.token_type is TokenType.VAR
            and self._next.token_type is TokenType.STRING
            and token.text.upper() in _TYPED_LITERALS
        ):
            self._advance(2)
            literal = exp.Literal.string(self._prev.text).update_positions(self._prev)
            return self.expression(exp.Cast(this=literal, to=self._type_var(token.text, token)), token)
        if not fallback_to_identifier and (atom := self._parse_atom()) is not None:
            return atom
        return self._parse_id_var() if fallback_to_identifier else self._parse_column()

    def _interval(self) -> exp.Expr:
        start = self._curr
        self._advance()
        number = self._curr
        if number.token_type not in (TokenType.STRING, TokenType.NUMBER):
            self.raise_error("an interval")
        text = number.text.split()
        self._advance()
        # After a plain number TO is another's: FLOOR(t + INTERVAL '1' DAY TO HOUR).
        spans = number.token_type is TokenType.STRING and not number.text.strip(" +-").replace(".", "").isdigit()
        if spans and self._next and self._next.text.upper() == "TO":
            span = self._curr.text.upper()
            self._advance(2)
            span = f"{span} TO {self._curr.text.upper()}"
            self._take("a unit of time")
            return self.expression(exp.Interval(this=exp.Literal.string(number.text), unit=exp.var(span)), start)
        unit = text[1] if len(text) == 2 else self._curr.text
        if len(text) < 2:
            self._take("a unit of time")
        if not text or len(text) > 2 or not _is_unit(unit):
            self._retreat(self._index - 1)
            self.raise_error("an interval")
        return self.expression(
            exp.Interval(this=exp.Literal.string(text[0]), unit=exp.var(unit.upper().removesuffix("S"))), start
        )

    def _parse_function_call(self, *args: Any, **kw: Any) -> exp.Expr | None:
        token = self._curr
        result = super()._parse_function_call(*args, **kw)
        if result is not None and "start" not in result.meta:
            result.update_positions(token)
        return result

    def _parse_range(self, *args: Any, **kw: Any) -> Any:
        first = self._curr
        value = super()._parse_range(*args, **kw)
        negated = self._curr.token_type is TokenType.NOT and self._next.text.upper() == "SIMILAR"
        if negated:
            self._advance()
        if isinstance(value, exp.Tuple) and self._match_text_seq("OVERLAPS"):
            return self._overlaps(first, value)
        if value is None or not self._match_text_seq("SIMILAR", "TO"):
            return value
        if (pattern := self._parse_bitwise()) is None:
            self.raise_error("a pattern")
        similar = exp.Anonymous(this="SIMILAR", expressions=[value, pattern])
        return self.expression(exp.Not(this=similar)) if negated else similar

    def _parse_limit(self, *args: Any, **kw: Any) -> exp.Expr | None:
        if not self._match(TokenType.FETCH):
            return super()._parse_limit(*args, **kw)
        first, start = self._prev_word(("FIRST", "NEXT")), self._prev
        count = exp.Literal.number(1) if self._curr.text.upper() in ("ROW", "ROWS") else self._parse_term()
        if first is None or count is None or self._prev_word(("ROW", "ROWS")) is None:
            raise Stop(self._index, "Write FETCH FIRST 10 ROWS ONLY, or LIMIT 10.")
        self._expect("ONLY")
        return self.expression(exp.Limit(expression=count), start)

    def _parse_version(self) -> None:
        if self._curr.text.upper() == "FOR" and self._next.text.upper() == "SYSTEM_TIME":
            raise Stop(self._index, _AS_OF)

    def _overlaps(self, first: Token, period: exp.Tuple) -> exp.Expr | None:
        """``(a, b) OVERLAPS (c, d)``, which begins with token ``first``."""
        begin, other = self._index, self._parse_bitwise()
        if not isinstance(other, exp.Tuple):
            self._retreat(begin)
            self.raise_error("a period")
            return None
        for side, one, token in (("left", period, first), ("right", other, self._tokens[begin])):
            if len(one.expressions) != 2:
                what = f"wrong number of parameters on {side} side of OVERLAPS expression"
                raise InvalidStatement(what=what, at=token.start)
        return self.expression(
            exp.Anonymous(this="OVERLAPS", expressions=[*period.expressions, *other.expressions]), first
        )

    def _is(self, this: exp.Expr | None) -> exp.Expr | None:
        """``IS``; with ``[NOT] JSON [VALUE | SCALAR | ARRAY | OBJECT]`` too."""
        negated = self._curr.token_type is TokenType.NOT
        word = self._next if negated else self._curr
        if word is None or word.text.upper() != "JSON" or word.token_type is not TokenType.VAR:
            other: exp.Expr | None = Parser.RANGE_PARSERS[TokenType.IS](self, this)
            return other
        self._advance(1 + negated)
        kind = self._prev_word(("VALUE", "SCALAR", "ARRAY", "OBJECT")) or "VALUE"
        made = exp.Anonymous(this="IS_JSON", expressions=[this, exp.Literal.string(kind)])
        return exp.Not(this=made) if negated else made

    def _json_path(self, name: str) -> exp.Expr:
        """JSON_VALUE, JSON_QUERY and JSON_EXISTS with their clauses, as Flink has them."""
        args = self._parse_csv(self._parse_disjunction)
        word = self._curr
        to = self._type_text() if name != "JSON_EXISTS" and self._match_text_seq("RETURNING") else None
        if name == "JSON_QUERY" and to is not None:
            name, to = self._json_query_as(to.sql(), word.start), None
        wrapper = self._json_wrapper() if name == "JSON_QUERY" else ""
        empty, error = self._json_else(name, "EMPTY"), self._json_else(name, "ERROR")
        clause = self._curr.text.upper()
        if clause in ("NULL", "ERROR", "DEFAULT", "TRUE", "UNKNOWN", "WITH", "WITHOUT", "EMPTY"):
            raise NotYet(what=f"{clause} … in {name}", at=self._curr.start)
        call = self._call(name, *args)
        found = exp.TryCast(this=call, to=to) if to is not None else call
        if len(args) != 2 or (empty is None and error is None and not wrapper):
            return found
        return self._json_case(call, found, wrapper, empty, error)

    def _json_wrapper(self) -> str:
        """WITH CONDITIONAL ARRAY WRAPPER is the word in the middle; without a wrapper there is none."""
        if self._match_text_seq("WITHOUT"):
            kind = ""
        elif self._match_text_seq("WITH"):
            kind = self._prev_word(("CONDITIONAL", "UNCONDITIONAL")) or "UNCONDITIONAL"
        else:
            return ""
        self._match_text_seq("ARRAY")
        self._expect("WRAPPER")
        return kind

    def _json_else(self, name: str, when: str) -> exp.Expr | None:
        """What is given ON EMPTY or ON ERROR, if not what it is anyway."""
        if self._match_text_seq("FALSE" if name == "JSON_EXISTS" else "NULL", "ON", when):
            return None
        if name in ("JSON_VALUE", "JSON_QUERY") and self._match_text_seq("ERROR", "ON", when):
            return exp.Anonymous(this="JSON_ERROR", expressions=[])
        if name == "JSON_QUERY":
            for text in ("[]", "{}"):
                if self._match_text_seq("EMPTY", "ARRAY" if text == "[]" else "OBJECT", "ON", when):
                    return exp.Literal.string(text)
        if name == "JSON_VALUE" and self._curr.text.upper() == "DEFAULT":
            start = self._index
            self._advance()
            value = self._parse_disjunction()
            if self._match_text_seq("ON", when):
                return value
            self._retreat(start)
        return None

    def _json_case(
        self, call: exp.Expr, found: exp.Expr, wrapper: str, empty: exp.Expr | None, error: exp.Expr | None
    ) -> exp.Expr:
        """What is there, else what is given ON EMPTY or ON ERROR.

        A path that is not there is empty in mode lax and an error in mode strict, the default; JSON's null is empty in
        both; a value of the wrong kind is empty in mode lax, and one that is not of the type an error in both.
        """
        json, path = call.expressions
        lax = path.is_string and str(path.this).strip().startswith("lax ")
        is_null: exp.Expr = exp.Anonymous(this="JSON_TEXT", expressions=[json.copy(), path.copy()]).eq("null")
        if wrapper:
            found = exp.Anonymous(
                this="JSON_WRAPPED", expressions=[json.copy(), path.copy(), exp.Literal.string(wrapper)]
            )
            is_empty = exp.true() if lax else is_null
        elif lax:
            is_empty = call.copy().is_(exp.null())
        else:
            is_empty = is_null
        to = found.args["to"] if isinstance(found, exp.TryCast) else exp.Var(this="VARCHAR")
        given = [exp.null() if e is None else exp.Cast(this=e, to=to.copy()) for e in (empty, error)]
        ifs = [
            exp.If(this=json.copy().is_(exp.null()), true=exp.null()),
            exp.If(this=exp.Not(this=found.copy().is_(exp.null())), true=found),
            exp.If(this=is_empty, true=given[0]),
        ]
        return exp.Case(ifs=ifs, default=given[1])

    def _json_query_as(self, text: str, start: int) -> str:
        """The function that JSON_QUERY … RETURNING this type is: Flink's two types."""
        of = text.replace(" ", "").upper()
        if of in ("VARCHAR", "STRING"):
            return "JSON_QUERY"
        if of in ("ARRAY<VARCHAR>", "ARRAY<STRING>"):
            return "JSON_QUERY_ARRAY"
        raise NotYet(what=f"JSON_QUERY … RETURNING {text}", at=start, hint="It returns VARCHAR or ARRAY<VARCHAR>.")

    def _json_object(self) -> exp.Expr:
        """``JSON_OBJECT([KEY] key VALUE value, … [NULL | ABSENT ON NULL])``; its first argument says which."""
        args: list[exp.Expr | None] = []
        while self._curr.token_type is not TokenType.R_PAREN and not self._is_null_clause():
            if self._curr.text.upper() == "KEY" and self._next.text.upper() != "VALUE":
                self._advance()
            args.append(self._parse_bitwise())
            self._expect("VALUE")
            args.append(self._parse_disjunction())
            if not self._match(TokenType.COMMA):
                break
        return self._call("JSON_OBJECT", exp.Literal.string(self._null_clause("NULL")), *args)

    def _json_array(self) -> exp.Expr:
        """``JSON_ARRAY(value, … [NULL | ABSENT ON NULL])``; its first argument says which."""
        args: list[exp.Expr | None] = []
        while self._curr.token_type is not TokenType.R_PAREN and not self._is_null_clause():
            args.append(self._parse_disjunction())
            if not self._match(TokenType.COMMA):
                break
        return self._call("JSON_ARRAY", exp.Literal.string(self._null_clause("ABSENT")), *args)

    def _json_objectagg(self) -> exp.Expr:
        """``JSON_OBJECTAGG([KEY] key VALUE value [NULL | ABSENT ON NULL])``."""
        if self._curr.text.upper() == "KEY" and self._next.text.upper() != "VALUE":
            self._advance()
        key = self._parse_bitwise()
        self._expect("VALUE")
        value = self._parse_disjunction()
        return self._call("JSON_OBJECTAGG", exp.Literal.string(self._null_clause("NULL")), key, value)

    def _json_arrayagg(self) -> exp.Expr:
        """``JSON_ARRAYAGG(value [NULL | ABSENT ON NULL])``."""
        value = self._parse_disjunction()
        return self._call("JSON_ARRAYAGG", exp.Literal.string(self._null_clause("ABSENT")), value)

    def _is_null_clause(self) -> bool:
        return self._curr.text.upper() in ("NULL", "ABSENT") and self._next.token_type is TokenType.ON

    def _null_clause(self, default: str) -> str:
        if not self._is_null_clause():
            return default
        word = self._curr.text.upper()
        self._advance(2)
        self._expect("NULL")
        return word

    def _parse_between(self, this: exp.Expr | None) -> exp.Between:
        symmetric = bool(self._match_text_seq("SYMMETRIC"))
        if not symmetric:
            self._match_text_seq("ASYMMETRIC")
        low = self._parse_bitwise()
        if not self._match(TokenType.AND):
            self.raise_error("AND")
        high = self._parse_bitwise()
        between = self.expression(exp.Between(this=this, low=low, high=high))
        if symmetric:
            between.meta["symmetric"] = True
        return between

    def _parse_case(self) -> exp.Expr | None:
        subject = self._parse_disjunction() if self._curr.token_type is not TokenType.WHEN else None
        ifs = []
        while self._match(TokenType.WHEN):
            condition = self._parse_disjunction()
            if condition is None or not self._match(TokenType.THEN):
                self.raise_error("THEN")
            ifs.append(self.expression(exp.If(this=condition, true=self._parse_disjunction())))
        default = self._parse_disjunction() if self._match(TokenType.ELSE) else None
        if not ifs or not self._match(TokenType.END):
            self.raise_error("END")
        return self.expression(exp.Case(this=subject, ifs=ifs, default=default))

    def _arrow(self, this: exp.Expr | None, field: exp.Expr | None) -> exp.Expr:
        if not isinstance(field, exp.Column) or len(field.parts) != 1:
            self._retreat(self._index - (field is not None))
            self.raise_error("a field")
        assert isinstance(field, exp.Column)
        return self.expression(exp.Dot(this=this, expression=field.this))

    def _parse_dcolon(self) -> exp.Expr | None:
        return self._type_text()

    def _cast(self, name: str) -> exp.Expr:
        value = self._parse_disjunction()
        if value is None or not self._match(TokenType.ALIAS):
            self.raise_error("AS")
        to = self._type_text()
        self._closing()
        return self.expression((exp.Cast if name == "CAST" else exp.TryCast)(this=value, to=to))

    def _type_text(self) -> exp.Expr:
        """The text of a type: a word, and what follows in ``(…)`` or ``<…>``; ``types.parse`` says if it is one."""
        first = self._curr
        if first.token_type not in (*PLAIN_NAMES, TokenType.INTERVAL):
            self.raise_error("a type")
        self._advance()
        if first.text.upper() == "DOUBLE" and self._match_text_seq("PRECISION"):
            pass
        close = {TokenType.L_PAREN: TokenType.R_PAREN, TokenType.LT: TokenType.GT}.get(self._curr.token_type)
        opened, depth = self._curr.token_type, 0
        while close is not None:
            if not self._curr:
                self.raise_error("the end of a type")
            depth += {opened: 1, close: -1}.get(self._curr.token_type, 0)
            self._advance()
            if depth == 0:
                break
        if first.text.upper() == "TIMESTAMP":
            any(self._match_text_seq(*words) for words in ZONES)
        return self._type_var(self.sql[first.start : self._prev.end + 1], first)

    def _type_var(self, text: str, token: Token) -> exp.Expr:
        var = exp.Var(this=text)
        return var.update_positions(token)

    def _closing(self) -> None:
        # sqlglot does not insist on the ")" of a function that has a parser of its own.
        if self._curr.token_type is not TokenType.R_PAREN:
            self.raise_error(")")

    def _call(self, name: str, *args: exp.Expr | None) -> exp.Expr:
        if any(a is None for a in args):
            self.raise_error("an argument")
        self._closing()
        return self.expression(exp.Anonymous(this=name, expressions=list(args)))

    def _extract(self) -> exp.Expr:
        unit = exp.var(self._curr.text.upper()).update_positions(self._curr)
        self._take("a unit of time")
        if not self._match(TokenType.FROM):
            self.raise_error("FROM")
        return self._call("EXTRACT", unit, self._parse_disjunction())

    def _trim(self) -> exp.Expr:
        side = self._prev_word(("LEADING", "TRAILING", "BOTH"))
        first = None if self._curr.token_type is TokenType.FROM else self._parse_disjunction()
        name = "TRIM" if side in (None, "BOTH") else f"TRIM_{side}"
        if self._match(TokenType.FROM):
            value = self._parse_disjunction()
            return self._call(name, value, first) if first is not None else self._call(name, value)
        return self._call(name, first)

    def _prev_word(self, words: Collection[str]) -> str | None:
        if self._curr.token_type is TokenType.VAR and self._curr.text.upper() in words:
            self._advance()
            return self._prev.text.upper()
        return None

    def _separated(self, name: str, *words: str) -> exp.Expr:
        """Arguments between words (``SUBSTRING(s FROM 1 FOR 2)``) or commas, to plain arguments in that order."""
        # "x IN y" would be read as a predicate: POSITION's operands are parsed below that level.
        parse = self._parse_bitwise if "IN" in words else self._parse_disjunction
        args = [parse()]
        if args[0] is None:
            self._closing()
            return self.expression(exp.Anonymous(this=name, expressions=[]))
        for word in words:
            if self._match_text_seq(word) or self._match(TokenType.COMMA):
                args.append(self._unit() if word == "TO" else parse())
        return self._call(name, *args)

    def _unit(self) -> exp.Expr | None:
        if self._curr.token_type is not TokenType.VAR:
            return self._parse_disjunction()
        self._advance()
        return exp.var(self._prev.text.upper()).update_positions(self._prev)


class DeltaStream(Dialect):
    """DeltaStream SQL."""

    SUPPORTS_LIMIT_ALL = True
    Tokenizer = DeltaStreamTokenizer
    Parser = DeltaStreamParser


_DIALECT = DeltaStream()


def tokenize(text: str) -> list[Token]:
    """The tokens of a text. Errors: SyntaxFault where a string, quoted name or comment is never closed."""
    try:
        found = _DIALECT.tokenize(text)
    except TokenError:
        at = unclosed(text)
        at = 0 if at is None else at
        raise SyntaxFault(near=text[at : at + 40], at=at) from None
    at = unclosed(text)
    if at is not None:
        raise SyntaxFault(near=text[at : at + 40], at=at)
    for token in found:
        if token.token_type is TokenType.NUMBER and len(token.text) > MOST_DIGITS:
            raise NumberTooLong(most=MOST_DIGITS, at=token.start)
    return found


def is_whole(text: str) -> bool:
    """Whether a text is the digits of a whole number that ``int`` reads; other scripts have digits that it does not."""
    return text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS


def parse(found: Sequence[Token], text: str) -> exp.Expr:
    """One query from tokens of ``text``. Errors: SyntaxFault or SyntaxEnd, positions in ``text``."""
    found = list(found)
    for i, token in enumerate(found):
        if token.token_type is TokenType.IDENTIFIER and not token.text:
            raise fault(found, i, text)
    _mark_windows(found)
    _mark_names(found)
    parser = DeltaStreamParser(error_level=ErrorLevel.IMMEDIATE, dialect=_DIALECT)
    try:
        (tree,) = parser.parse(found, text) or [None]
    except Stop as stop:
        raise fault(found, stop.index, text, stop.hint) from None
    except RecursionError:
        raise TooDeep(what="the query", at=found[0].start if found else 0) from None
    if tree is None:
        raise fault(found, 0, text)
    _settle_windows(tree)
    for limit in list(tree.find_all(exp.Limit)):
        if limit.expression == exp.var("ALL"):
            limit.pop()
    composed.settle(tree)
    return tree


def _mark_windows(found: Sequence[Token]) -> None:
    """WINDOW is a word like any other, but before ``name AS (``."""
    for word, name, then, opening in zip(found, found[1:], found[2:], found[3:], strict=False):
        if (word.token_type is TokenType.VAR and word.text.upper() == "WINDOW" and name.token_type in PLAIN_NAMES
                and then.token_type is TokenType.ALIAS and opening.token_type is TokenType.L_PAREN):  # fmt: skip
            word.token_type = TokenType.WINDOW


def _mark_names(found: Sequence[Token]) -> None:
    """Any word names a field or a column after ``->`` or ``.``, ``-> FROM`` but before a relation; INTERVAL and WITHIN
    do but before what they begin.
    """
    for i, word in enumerate(found):
        if word.token_type not in WORDS:
            continue
        after = found[i + 1] if i + 1 < len(found) else None
        named = i > 0 and found[i - 1].token_type in (TokenType.ARROW, TokenType.DOT)
        if word.token_type is TokenType.FROM and named and found[i - 1].token_type is TokenType.ARROW:
            named = after is None or after.token_type not in _RELATIONS
        if word.token_type in (TokenType.INTERVAL, WITHIN) and not named:
            named = not _begins_quantity(found, i + 1) and (after is None or after.text.upper() != "GROUP")
        if named:
            word.token_type = TokenType.VAR


def _begins_quantity(found: Sequence[Token], i: int) -> bool:
    """Whether an interval's quantity begins at a token, or what is taken for one: a parameter, or a sign before it."""
    quantity, unit = found[i + 1 : i + 2], found[i + 2 : i + 3]
    if i < len(found) and found[i].token_type in _SIGNED and quantity and quantity[0].token_type in _QUANTITY:
        return quantity[0].token_type is TokenType.STRING or any(_is_unit(u.text) for u in unit)
    return i < len(found) and (found[i].token_type in _QUANTITY or found[i].text.startswith("$"))


def _is_unit(word: str) -> bool:
    return word.upper().removesuffix("S") in _UNITS


def _settle_windows(tree: exp.Expr) -> None:
    """Put what ``WINDOW name AS (…)`` says into the calls ``OVER name``; a name that means nothing stays."""
    for select in list(tree.find_all(exp.Select)):
        named = {w.this.name: w for w in select.args.get("windows") or []}
        select.set("windows", None)
        for call in list(select.find_all(exp.Window)) if named else []:
            alias = call.args.get("alias")
            known = named.get(alias.name) if alias is not None and call.parent_select is select else None
            if known is not None:
                call.set("alias", None)
                for part in ("partition_by", "order", "spec"):
                    if not call.args.get(part):
                        given = known.args.get(part)
                        call.set(part, [g.copy() for g in given] if isinstance(given, list) else given and given.copy())
