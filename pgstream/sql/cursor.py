"""The cursor: what a statement's ``parse`` reads words, names, properties, columns and selects from.

Owns: reading a statement's head token by token, with 0-based character positions into ``text``; handing the rest to
the dialect when a select begins. Every failure is a SyntaxFault at the token where reading could not go on.
Must not know: any statement, the catalogue. Start reading at ``Cursor``.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from sqlglot.tokenizer_core import Token, TokenType

from pgstream import types
from pgstream.errors import DuplicateColumn, NameTooLong, PgStreamError, SyntaxEnd, TooComplex, TooManyColumns
from pgstream.names import Name, QName, quote
from pgstream.properties import Given
from pgstream.sql import dialect, properties
from pgstream.sql.columns import ColumnDef
from pgstream.sql.faults import fault
from pgstream.sql.select import Select

_PLAIN = re.compile(r"[^\W\d][\w$]*\Z")
_NAME_TOKENS = dialect.PLAIN_NAMES | dialect.UNRESERVED
_COLUMN_TOKENS = _NAME_TOKENS | dialect.WORDS
_QUOTED = (TokenType.STRING, TokenType.IDENTIFIER)
_OPENING, _CLOSING = (TokenType.L_PAREN, TokenType.L_BRACKET), (TokenType.R_PAREN, TokenType.R_BRACKET)
MAX_NAME_BYTES = 63
MOST_COLUMNS = 1664
"""Of a relation: those of a view of PostgreSQL's, which stands for it."""
MOST_TOKENS = 1 << 15
"""Of a query. Every session waits while it is parsed, which takes a second or two of so many."""
_LISTS = "Join a table, or a materialized view, instead of a long list."
_PARAMETERS = "The parameters come here: WITH ('parameter' = value, …)."


class Cursor:
    """Reads one statement from left to right; ``at`` is the offset of the next token."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens: list[Token] = dialect.tokenize(text)
        self._index = 0

    @property
    def at(self) -> int:
        """Offset of the next token; the text's length at the end."""
        return self._tokens[self._index].start if self._index < len(self._tokens) else len(self.text)

    @property
    def at_end(self) -> bool:
        """Whether only an optional semicolon is left."""
        return self.ends_after(0)

    def fault(self, hint: str | None = None) -> PgStreamError:
        """The syntax error at the next token, to be raised."""
        return fault(self._tokens, self._index, self.text, hint)

    # Words

    def peek(self, *words: str) -> bool:
        """Whether the next tokens are these words or signs; quoted ones never are."""
        return self._match(words) is not None

    def accept(self, *words: str) -> bool:
        """Take these words if they are next."""
        index = self._match(words)
        if index is None:
            return False
        self._index = index
        return True

    def expect(self, *words: str) -> None:
        """Take these words; SyntaxFault at the first that is not there."""
        # The tokenizer joins PARTITION BY into one token, so the words are tried together first.
        if self.accept(*words):
            return
        for word in words:
            if not self.accept(word):
                raise self.fault(_PARAMETERS if word == "WITH" else None)

    def _match(self, words: tuple[str, ...]) -> int | None:
        index, left = self._index, list(words)
        while left:
            if index >= len(self._tokens) or self._tokens[index].token_type in _QUOTED:
                return None
            said = self._tokens[index].text.upper().split() or [""]
            if left[: len(said)] != said:
                return None
            left, index = left[len(said) :], index + 1
        return index

    def words(self, count: int = 4) -> tuple[str, ...]:
        """Up to ``count`` next plain words in upper case, without taking them."""
        out: list[str] = []
        for token in self._tokens[self._index : self._index + count]:
            if token.token_type in _QUOTED or not _PLAIN.match(token.text.split()[0] if token.text else ""):
                break
            out += token.text.upper().split()
        return tuple(out[:count])

    # Values

    def name(self) -> Name:
        """An identifier: folded to lower case unless quoted."""
        return self._name(_NAME_TOKENS)

    def column(self) -> Name:
        """The name of a column where nothing else can stand: any word, also one that a select takes in quotes only."""
        return self._name(_COLUMN_TOKENS)

    def _name(self, kinds: Collection[TokenType]) -> Name:
        token = self._next(*kinds)
        quoted = token.token_type is TokenType.IDENTIFIER
        if not token.text or (not quoted and not _PLAIN.match(token.text)):
            self._index -= 1
            raise self.fault()
        text = token.text if quoted else token.text.lower()
        if len(text.encode()) > MAX_NAME_BYTES:
            raise NameTooLong(name=text, at=token.start)
        return Name(text, token.start)

    def qname(self) -> QName:
        """``[database.][schema.]name``"""
        parts = [self.name()]
        while len(parts) < 3 and self.accept("."):
            parts.append(self.name())
        if self.peek("."):
            raise self.fault()
        return QName(tuple(p.text for p in parts), parts[0].at)

    def signature(self) -> QName:
        """A function as it is kept: ``name(TYPE, …)``; a name alone stands for one without arguments."""
        at, name = self.at, self.name().text
        arguments = self.arguments() if self.peek("(") else ()
        return QName((f"{quote(name)}({', '.join(str(type_) for _, type_ in arguments)})",), at)

    def path(self) -> QName:
        """An entity's path in a store: one or more dotted parts."""
        parts = [self.name()]
        while self.accept("."):
            parts.append(self.name())
        return QName(tuple(p.text for p in parts), parts[0].at)

    def string(self) -> str:
        """A ``'…'`` literal's value."""
        return str(self._next(TokenType.STRING).text)

    def peek_string(self) -> bool:
        """Whether a ``'…'`` literal is next."""
        return self._index < len(self._tokens) and self._tokens[self._index].token_type is TokenType.STRING

    def peek_escaped(self) -> bool:
        """Whether an ``E'…'`` literal is next: the tokenizer reads a word and a string."""
        return self.text[self.at : self.at + 2].upper() == "E'"

    def take_word(self) -> tuple[str, ...]:
        """Take one plain word, whatever it is. Errors: SyntaxFault at anything else."""
        words = self.words(1)
        if not words:
            raise self.fault()
        self._index += 1
        return words

    def peek_number(self) -> bool:
        """Whether an unsigned number is next."""
        return self._index < len(self._tokens) and self._tokens[self._index].token_type is TokenType.NUMBER

    def ends_after(self, count: int) -> bool:
        """Whether the statement ends after ``count`` more tokens."""
        rest = self._tokens[self._index + count :]
        return not rest or (len(rest) == 1 and rest[0].token_type is TokenType.SEMICOLON)

    def integer(self) -> int:
        """An unsigned whole number."""
        token = self._next(TokenType.NUMBER)
        if not token.text.isdigit():
            self._index -= 1
            raise self.fault()
        return int(token.text)

    def uuid(self) -> str:
        """A bare UUID, re-read from the text: the tokenizer sees numbers and signs in it."""
        found = properties.UUID.match(self.text, self.at)
        if found is None:
            raise self.fault()
        self._index = properties.after(self._tokens, self._index, found.end())
        return found[0].lower()

    def query_ref(self) -> str:
        """A query: bare UUID, name, or string; ``name:version`` too."""
        if properties.UUID.match(self.text, self.at):
            return self.uuid()
        ref = self.string() if self.peek_string() else self.name().text
        return f"{ref}:{self.integer()}" if self.accept(":") else ref

    def properties(self) -> dict[str, Given]:
        """``( 'key' [= value], … )`` after WITH was taken."""
        given, self._index = properties.read(self._tokens, self._index, self.text)
        return given

    # Columns

    def columns(self) -> tuple[list[ColumnDef], list[Name]]:
        """``( name type [NOT NULL], …, PRIMARY KEY (a, b) )``: the columns and the primary key (empty if none)."""
        self.expect("(")
        columns: dict[str, ColumnDef] = {}
        key: list[Name] = []
        while True:
            if not key and self.peek("PRIMARY", "KEY", "("):
                self.expect("PRIMARY", "KEY")
                key = self.name_list()
            else:
                column = self._column()
                if column.name.text in columns:
                    raise DuplicateColumn(name=column.name.text, at=column.name.at)
                if len(columns) == MOST_COLUMNS:
                    raise TooManyColumns(most=MOST_COLUMNS, at=column.name.at)
                columns[column.name.text] = column
            if self.accept(")"):
                return list(columns.values()), key
            self.expect(",")

    def name_list(self) -> list[Name]:
        """``(a, b, …)``"""
        self.expect("(")
        out = [self.column()]
        while self.accept(","):
            out.append(self.column())
        self.expect(")")
        return out

    def _column(self) -> ColumnDef:
        name = self.column()
        type_ = self.type()
        not_null = self.accept("NOT", "NULL")
        if not not_null:
            self.accept("NULL")
        return ColumnDef(name, type_, not_null)

    def type(self) -> types.Type:
        """A type; what follows a word in ``(…)`` or ``<…>`` belongs to it."""
        first = self._next(TokenType.VAR)
        if first.text.upper() == "DOUBLE":
            self.accept("PRECISION")
        opened = next((sign for sign in ("(", "<") if self.peek(sign)), None)
        if opened is not None:
            depth = 0
            while True:
                if self._index >= len(self._tokens):
                    raise SyntaxEnd(at=len(self.text))
                text = self._tokens[self._index].text
                depth += {opened: 1, ")" if opened == "(" else ">": -1}.get(text, 0)
                self._index += 1
                if depth == 0:
                    break
        if first.text.upper() == "TIMESTAMP":
            any(self.accept(*words) for words in types.ZONES)
        try:
            return types.parse(self.text[first.start : self._tokens[self._index - 1].end + 1])
        except PgStreamError as e:
            e.at = first.start if e.at is None else e.at
            raise

    def arguments(self) -> tuple[tuple[str | None, types.Type], ...]:
        """``( [[name] type [, …]] )``: a function's arguments."""
        self.expect("(")
        out: list[tuple[str | None, types.Type]] = []
        if self.accept(")"):
            return ()
        while True:
            out.append(self._argument())
            if self.accept(")"):
                return tuple(out)
            self.expect(",")

    def _argument(self) -> tuple[str | None, types.Type]:
        begin = self._index
        name = self.name()
        # One word, or one with (…) or <…> after it, is a type; DOUBLE PRECISION and TIMESTAMP WITH … are too.
        if any(self.peek(sign) for sign in (",", ")", "(", "<", "PRECISION", "WITH", "WITHOUT")):
            self._index = begin
            return None, self.type()
        return name.text, self.type()

    # Queries

    def select(self) -> Select:
        """The query up to ``PARTITION BY``, ``QUERY WITH``, a closing parenthesis, a semicolon or the end."""
        begin, end = self._index, self._query_end()
        if begin == end:
            raise self.fault()
        self.bound("the query", end, _LISTS)
        try:
            tree = dialect.parse(self._tokens[begin:end], self.text)
        except SyntaxEnd as e:
            # The query ends too early: say it at the word that follows, if one does.
            raise fault(self._tokens, end, self.text, e.hint) from None
        at, self._index = self.at, end
        return Select(self.text, at, self._tokens[end - 1].end + 1, tree)

    def bound(self, what: str, end: int | None = None, hint: str = "Write it as several statements.") -> None:
        """Whether what comes next is short enough to be read. Errors: TooComplex."""
        if (len(self._tokens) if end is None else end) - self._index > MOST_TOKENS:
            detail = f"It has more than {MOST_TOKENS} words and signs."
            raise TooComplex(what=what, detail=detail, hint=hint, at=self.at)

    def _query_end(self) -> int:
        depth = 0
        for index in range(self._index, len(self._tokens)):
            token = self._tokens[index]
            depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
            if depth > 0:
                continue
            if depth < 0 or token.token_type in (TokenType.SEMICOLON, TokenType.PARTITION_BY):
                return index
            following = self._tokens[index + 1 : index + 2]
            if (
                token.token_type is TokenType.VAR
                and token.text.upper() == "QUERY"
                and following
                and following[0].token_type is TokenType.WITH
            ):
                return index
        return len(self._tokens)

    def partition_by(self) -> tuple[Name, ...]:
        """``[PARTITION BY column [, …]]``; empty when it is not there."""
        if not self.accept("PARTITION", "BY"):
            return ()
        out = [self.column()]
        while self.accept(","):
            out.append(self.column())
        return tuple(out)

    def query_with(self) -> dict[str, Given]:
        """``[QUERY WITH ( … )]``; empty when it is not there."""
        return self.properties() if self.accept("QUERY", "WITH") else {}

    def names(self) -> list[Name]:
        """One name or several, with commas between."""
        out = [self.name()]
        while self.accept(","):
            out.append(self.name())
        return out

    def parenthesized(self) -> tuple[str, int]:
        """The text between a "(" and its ")", and where it begins."""
        self.expect("(")
        at, depth = self.at, 1
        while self._index < len(self._tokens):
            kind = self._tokens[self._index].token_type
            depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
            if not depth:
                text = self.text[at : self.at].rstrip()
                if not text:
                    break
                self._index += 1
                return text, at
            self._index += 1
        raise self.fault()

    def items(self) -> list[tuple[str, int]]:
        """The texts between a "(" and its ")" that commas part, and where each begins."""
        self.expect("(")
        out, begin, depth = [], self._index, 0
        while self._index < len(self._tokens):
            kind = self._tokens[self._index].token_type
            if not depth and kind in (TokenType.COMMA, TokenType.R_PAREN):
                at = self._tokens[begin].start
                if self._index == begin:
                    break
                out.append((self.text[at : self.at].rstrip(), at))
                begin = self._index + 1
                if kind is TokenType.R_PAREN:
                    self._index = begin
                    return out
            depth += (kind in _OPENING) - (kind in _CLOSING)
            self._index += 1
        raise self.fault()

    def rest(self) -> tuple[str, int]:
        """The text up to the end, without a semicolon, and where it begins."""
        at, last = self.at, self._tokens[-1] if self._tokens else None
        end = last.start if last is not None and last.token_type is TokenType.SEMICOLON else len(self.text)
        self._index = len(self._tokens)
        return self.text[at:end].rstrip(), at

    def fork(self) -> Cursor:
        """Another cursor at the same place: to look ahead."""
        found = object.__new__(Cursor)
        found.text, found._tokens, found._index = self.text, self._tokens, self._index
        return found

    def inner(self) -> Cursor:
        """Take the next of several statements, with its semicolon: a cursor of its own, with this one's positions."""
        begin, depth = self._index, 0
        while True:
            if self._index >= len(self._tokens):
                raise SyntaxEnd(at=len(self.text))
            token = self._tokens[self._index]
            self._index += 1
            depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
            if token.token_type is TokenType.SEMICOLON and depth <= 0:
                break
        found = object.__new__(Cursor)
        found.text, found._tokens, found._index = self.text[: token.start], self._tokens[begin : self._index - 1], 0
        return found

    def end(self) -> None:
        """The end of the statement: an optional semicolon and nothing more."""
        if not self.at_end:
            raise fault(self._tokens, self._index + (1 if self.peek(";") else 0), self.text)
        self._index = len(self._tokens)

    def _next(self, *kinds: TokenType) -> Token:
        if self._index >= len(self._tokens) or self._tokens[self._index].token_type not in kinds:
            raise self.fault()
        self._index += 1
        return self._tokens[self._index - 1]
