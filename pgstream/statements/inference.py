"""Column types guessed from records of JSON, and how sure the guess is.

Owns: what a JSON value may be a value of, which type holds all that was seen, when an object is a MAP. Text that is a
date or a time everywhere is one; what nothing else holds is VARCHAR, which takes every value as its text.
Must not know: where the records come from. Start reading at ``Seen``.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from pgstream.types import BIGINT, BOOLEAN, TEXT, Type

DOUBLE, DATE = Type("DOUBLE"), Type("DATE")
_EXACT = 15
"""Digits that a DOUBLE keeps."""
_WIDEST = 38
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d(?P<sep>[ T])\d\d:\d\d:\d\d(?:\.(?P<fraction>\d{1,9}))?(?P<zone>Z|[+-]\d\d(?::?\d\d)?)?"
)
_LAYOUT = {" ": "sql", "T": "iso8601"}
_NUMBERS = {"integer", "long number", "fraction", "long fraction"}
# A MAP has more names than its objects use at a time, and values of one kind.
_NAMES, _SPARSE = 5, 2


@dataclass
class Seen:
    """What was seen at one place of the records: ``kinds`` counts values that are not null by what they are."""

    values: int = 0
    nulls: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    whole: int = 0
    scale: int = 0
    precision: int = 0
    elements: Seen | None = None
    fields: dict[str, Seen] = field(default_factory=dict)

    def add(self, value: Any) -> None:
        """One more value, as ``json.loads(…, parse_float=Decimal)`` gives it."""
        self.values += 1
        if value is None:
            self.nulls += 1
            return
        self.kinds[self._kind(value)] += 1
        if isinstance(value, list):
            self.elements = self.elements or Seen()
            for v in value:
                self.elements.add(v)
        elif isinstance(value, dict):
            for name, v in value.items():
                if name:  # a column has a name
                    self.fields.setdefault(name, Seen()).add(v)

    def _kind(self, value: Any) -> str:
        match value:
            case bool():
                return "boolean"
            case int():
                self.whole = max(self.whole, len(str(abs(value))))
                return "integer" if -(2**63) <= value < 2**63 else "long number"
            case Decimal():
                return self._fraction(value)
            case float():
                return "fraction"
            case str():
                return self._text(value)
            case list():
                return "array"
        return "object"

    def _fraction(self, value: Decimal) -> str:
        digits, exponent = value.as_tuple().digits, value.as_tuple().exponent
        assert isinstance(exponent, int)
        self.scale = max(self.scale, -exponent)
        self.whole = max(self.whole, len(digits) + exponent)
        return "fraction" if len(digits) <= _EXACT else "long fraction"

    def _text(self, value: str) -> str:
        try:
            if len(value) == 10 and value[4:5] == value[7:8] == "-":
                dt.date.fromisoformat(value)
                return "date"
            if (m := _TIME.fullmatch(value)) is not None:
                dt.datetime.fromisoformat(value[:19])
                self.precision = max(self.precision, len(m["fraction"] or ""))
                return f"{_LAYOUT[m['sep']]} time{' with zone' if m['zone'] else ''}"
        except ValueError:
            pass
        return "text"

    def absorb(self, other: Seen) -> None:
        """What was seen at another place, as if it had been seen here."""
        self.values += other.values
        self.nulls += other.nulls
        self.kinds.update(other.kinds)
        self.whole, self.scale = max(self.whole, other.whole), max(self.scale, other.scale)
        self.precision = max(self.precision, other.precision)
        if other.elements is not None:
            self.elements = self.elements or Seen()
            self.elements.absorb(other.elements)
        for name, seen in other.fields.items():
            self.fields.setdefault(name, Seen()).absorb(seen)

    def type(self, layout: str) -> Type:
        """The type that holds all of it; times are those of the layout, sql or iso8601."""
        kinds = set(self.kinds)
        if kinds == {"boolean"}:
            return BOOLEAN
        if kinds and kinds <= _NUMBERS:
            return self._number(kinds)
        if kinds == {"date"}:
            return DATE
        if kinds and kinds <= {f"{layout} time", f"{layout} time with zone"}:
            name = "TIMESTAMP_LTZ" if f"{layout} time with zone" in kinds else "TIMESTAMP"
            return Type(name, (next(p for p in (3, 6, 9) if self.precision <= p),))
        if kinds == {"array"}:
            return Type("ARRAY", args=(self.elements.type(layout) if self.elements is not None else TEXT,))
        if kinds == {"object"} and self.fields:
            return self._object(layout)
        return TEXT

    def _number(self, kinds: set[str]) -> Type:
        if kinds == {"integer"}:
            return BIGINT
        if kinds <= {"integer", "fraction"} or self.whole + self.scale > _WIDEST:
            return DOUBLE
        return Type("DECIMAL", (_WIDEST, self.scale))

    def _object(self, layout: str) -> Type:
        objects, used = self.kinds["object"], sum(f.values for f in self.fields.values())
        if objects > _SPARSE and len(self.fields) >= _NAMES and len(self.fields) * objects > _SPARSE * used:
            every = Seen()
            for f in self.fields.values():
                every.absorb(f)
            if len(every.kinds) <= 1 or set(every.kinds) <= _NUMBERS:
                return Type("MAP", args=(TEXT, every.type(layout)))
        return Type("STRUCT", fields=tuple((n, f.type(layout)) for n, f in self.fields.items()))

    def confidence(self, layout: str) -> float:
        """How likely the next value is of the type, by the rule of succession: (n + 1) / (n + 2) after n that were.

        Where VARCHAR stands for several kinds of values, n counts the most frequent one.
        """
        n = sum(self.kinds.values())
        mixed = self.type(layout) == TEXT and len(self.kinds) > 1
        return ((max(self.kinds.values()) if mixed else n) + 1) / (n + 2)

    @property
    def found(self) -> str:
        """The kinds of values and how many of each, most frequent first."""
        return ", ".join(f"{n} {kind}" for kind, n in self.kinds.most_common())

    def layout(self) -> str:
        """The layout that most times have."""
        times: Counter[str] = Counter()
        for seen in self._all():
            for kind, n in seen.kinds.items():
                times[kind.partition(" ")[0]] += n if " time" in kind else 0
        return "iso8601" if times["iso8601"] > times["sql"] else "sql"

    def _all(self) -> Iterator[Seen]:
        yield self
        for seen in (*self.fields.values(), *((self.elements,) if self.elements is not None else ())):
            yield from seen._all()
