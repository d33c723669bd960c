"""GENERATE TEMPLATE: the statement that makes an object of a kind, with every parameter that it takes.

Owns: the grammar, which is of our own, and how a parameter is shown: the required ones with an example, the others as
comments with their defaults. What the parameters are is read from the tables that CREATE checks them with.
Must not know: any kind beyond its name, any store type. Start reading at ``GenerateTemplate``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from pgstream import stores
from pgstream.errors import InvalidStatement
from pgstream.names import Name, quote_literal
from pgstream.sql.cursor import Cursor
from pgstream.statements.answers import listing
from pgstream.statements.base import Column, Context, Result, Statement
from pgstream.statements.compute_pools import CreateComputePool
from pgstream.statements.functions import CreateFunction
from pgstream.statements.integrations import CreateMetricsIntegration, CreateSecurityIntegration
from pgstream.statements.schema_registries import CreateSchemaRegistry
from pgstream.statements.secrets import CreateSecret
from pgstream.statements.shapes import Create
from pgstream.statements.sources import CreateDescriptorSource, CreateFunctionSource
from pgstream.statements.tokens import CreateApiToken
from pgstream.stores.spec import Kind, Option, StoreType

Words = tuple[str, ...]
_CREATES: tuple[type[Create], ...] = (
    CreateApiToken, CreateComputePool, CreateDescriptorSource, CreateFunction, CreateFunctionSource,
    CreateMetricsIntegration, CreateSchemaRegistry, CreateSecret, CreateSecurityIntegration,
)  # fmt: skip
_PLAIN: Mapping[Words, tuple[Option, ...]] = {c.words[1:]: c.options.options for c in _CREATES}
_ALWAYS = {"store": "store_name", "value.format": "JSON"}
"""Parameters of relations that are shown as given, though a session or a schema may say them."""
_COLUMNS = "(\n    column_name VARCHAR\n)"
_KEYED = "(\n    key_name VARCHAR,\n    column_name VARCHAR,\n    PRIMARY KEY (key_name)\n)"
# Kinds whose parameters are a store type's.
_OF_STORES: Mapping[Words, Callable[[StoreType], tuple[Option, ...]]] = {
    ("STORE",): lambda t: (Option("type", Kind.WORD, "", True, example=t.label.upper()), *t.options.options),
    ("ENTITY",): lambda t: t.entity_options.options,
    ("STREAM",): lambda t: t.relation_options.options,
    ("CHANGELOG",): lambda t: t.relation_options.options,
    ("TABLE",): lambda t: t.relation_options.options,
}
_BEFORE = {"STREAM": _COLUMNS, "CHANGELOG": _KEYED, "TABLE": _KEYED, "ENTITY": "IN STORE store_name",
           "FUNCTION": "(argument_name BIGINT)\n    RETURNS BIGINT LANGUAGE JAVA"}  # fmt: skip
"""What stands between the name and WITH."""
_WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9]*\Z")
_SAMPLE = {Kind.BOOLEAN: "TRUE", Kind.INTEGER: "1", Kind.BINARY: "@name"}


@dataclass(frozen=True, slots=True)
class GenerateTemplate(Statement):
    """GENERATE TEMPLATE FOR { STORE | ENTITY | STREAM | CHANGELOG | TABLE } [TYPE store_type];
    GENERATE TEMPLATE FOR { API_TOKEN | COMPUTE_POOL | DESCRIPTOR_SOURCE | FUNCTION | FUNCTION_SOURCE
    | METRICS INTEGRATION | SCHEMA_REGISTRY | SECRET | SECURITY INTEGRATION };

    Write the CREATE statement of a kind of object, with every parameter that it takes: the required ones with an
    example, the others as comments, with their defaults and what they mean. Take away the two dashes before one to set
    it. TYPE is a store type, KAFKA unless given. The product has a statement of this name whose grammar is not known;
    this one is ours.
    """

    words: ClassVar = ("GENERATE", "TEMPLATE")
    columns: ClassVar = (Column("DDL"),)
    free: ClassVar = "it shows what the manual says"

    of: Words
    type: Name | None

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words, "FOR")
        at = c.at
        of = next((words for words in (*_OF_STORES, *_PLAIN) if c.accept(*words)), None)
        if of is None:
            fault, known = c.fault(), sorted(" ".join(words) for words in (*_OF_STORES, *_PLAIN))
            fault.hint = f"Kinds of objects: {', '.join(known)}."
            raise fault
        type_ = c.name() if c.accept("TYPE") else None
        c.end()
        if type_ is not None and of not in _OF_STORES:
            raise InvalidStatement(what=f"a template of {' '.join(of)} has no TYPE", at=at, hint="It is a store type.")
        return cls(of, type_)

    async def execute(self, ctx: Context) -> Result:
        return listing(self.columns, [(self.text(),)])

    def text(self) -> str:
        """The statement. Errors: those of a store type that is not there."""
        if self.of in _OF_STORES:
            type_ = stores.find(self.type.text, self.type.at) if self.type is not None else stores.find("kafka")
            options = _OF_STORES[self.of](type_)
        else:
            options = _PLAIN[self.of]
        name = " ".join(self.of)
        before = f" {_BEFORE[name]}" if name in _BEFORE else ""
        return f"CREATE {name} {name.lower().replace(' ', '_')}_name{before} WITH (\n{_lines(options)}\n);"


def _lines(options: tuple[Option, ...]) -> str:
    shown = [o for o in options if o.later is None]
    given = [o for o in shown if o.required or o.name in _ALWAYS]
    if not given:  # one, so that there is something: at best one that says what holds anyway
        given = sorted((o for o in shown if not o.prefix), key=lambda o: o.default is None)[:1]
    needed = [f"    {_pair(o)}{',' if o is not given[-1] else ''}{_said(o)}" for o in given]
    return "\n".join([*needed, *(f"    -- , {_pair(o)}{_said(o)}" for o in shown if o not in given)])


def _pair(o: Option) -> str:
    if o.prefix:  # of a family the example is a name
        return f"'{o.example or o.name + '…'}' = '…'"
    if o.name in _ALWAYS:
        return f"'{o.name}' = {_ALWAYS[o.name]}"
    value = o.default or o.example or next(iter(o.choices), None) or _SAMPLE.get(o.kind, "…")
    bare = o.kind is Kind.INTEGER or (o.kind in (Kind.BOOLEAN, Kind.WORD) and _WORD.match(value))
    shown = value.upper() if o.kind in (Kind.BOOLEAN, Kind.WORD) else value
    return f"'{o.name}' = {shown if bare else quote_literal(shown)}"


def _said(o: Option) -> str:
    parts = (
        "Required." if o.required else "",
        f"Required with {o.when}." if o.when is not None else "",
        o.say,
        f"One of {', '.join(o.choices)}." if o.choices else "",
    )
    return "".join(["  -- ", " ".join(p for p in parts if p)]) if any(parts) else ""
