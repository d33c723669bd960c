"""What a store type is: options as data, capabilities in three values, and the protocols of its two faces.

Owns: the contracts that plug-in authors implement. A store type is one folder of one shape: ``__init__.py``
(``STORE``), ``options.py`` (``OPTIONS``), ``admin.py`` (no Spark), ``spark.py`` (the only file that imports pyspark).
Must not know: any particular store. Start reading at ``StoreType``.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from pgstream.errors import InvalidOption, MissingOption, NotSupported, NotYet
from pgstream.properties import Given, Options


class Kind(Enum):
    """The kind of an option's value. SECRET, FILE (text) and BINARY (base64 of a file) are masked."""

    TEXT = "text"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    WORD = "word"  # one of ``choices``, case-insensitive, kept in upper case
    SECRET = "secret"  # noqa: S105
    FILE = "file"
    BINARY = "binary file"


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a store, entity, relation, source, sink or query.

    ``prefix`` marks a family: ``kafka.topic.`` accepts ``kafka.topic.retention.ms``. ``when`` names the option=VALUE
    that makes it required (``"kafka.sasl.hash_function=PLAIN|SHA256"``). ``minimum`` bounds an INTEGER.
    ``shape`` reads a TEXT and gives its one spelling; its ValueError is a sentence, which does not repeat the value.
    ``later``: the option is known and refused with this sentence; ``choices_later``: so are these of its values.
    ``names``: the value is the name of an object of this kind (``catalog.kinds``).
    A family may take some names ``only``, or those that begin as one of ``begins``: what loads code, runs programs,
    reads the server's files, leads elsewhere or would show a secret is for the server's own settings, not for who may
    write a statement. ``begins`` is in lower case.
    ``fixed``: what an entity option says, which UPDATE ENTITY cannot change ("how many replicas an entity has").
    """

    name: str
    kind: Kind
    say: str
    required: bool = False
    default: str | None = None
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    example: str | None = None
    when: str | None = None
    prefix: bool = False
    minimum: int | None = None
    shape: Callable[[str], str] | None = None
    later: str | None = None
    choices_later: tuple[str, ...] = ()
    names: str | None = None
    only: frozenset[str] = frozenset()
    begins: tuple[str, ...] = ()
    fixed: str | None = None

    def takes(self, name: str) -> bool:
        """Whether a statement may give this name of the family."""
        rest = name[len(self.name) :].lower()
        if self.only:
            return rest in self.only
        return not self.begins or rest.startswith(self.begins)


@dataclass(frozen=True, slots=True)
class OptionTable:
    """Options of one place. ``check`` is the only validation; DESCRIBE, docs and ``options.yaml`` read these rows."""

    title: str
    options: tuple[Option, ...]

    def find(self, name: str) -> Option | None:
        """The option of this name, alias or prefix."""
        lowered = name.lower()
        for o in self.options:
            if lowered == o.name or lowered in o.aliases or (o.prefix and lowered.startswith(o.name)):
                return o
        return None

    def check(self, given: Options) -> dict[str, str]:
        """Validate and normalise: canonical names, defaults filled in, booleans ``true``/``false``, words upper case.

        Errors: InvalidOption at the key (unknown) or at the value (wrong); MissingOption without position.
        """
        out: dict[str, str] = {}
        for g in given.values():
            option = self.find(g.name)
            if option is None:
                raise InvalidOption(
                    what=f'unknown parameter "{g.name}" for {self.title}', at=g.at, hint=self._suggest(g.name)
                )
            if option.later is not None:
                raise NotYet(what=f'parameter "{option.name}" for {self.title}', detail=option.later, at=g.at)
            if option.prefix and not option.takes(g.name):
                raise InvalidOption(
                    what=f'parameter "{g.name}" cannot be set by a statement', at=g.at, hint=_taken(option)
                )
            name = _full_name(option, g)
            if name in out:
                raise InvalidOption(what=f'parameter "{name}" specified more than once', at=g.at)
            if g.value is not None:
                out[name] = _normal(option, g)
        for o in self.options:
            if o.default is not None and not o.prefix:
                out.setdefault(o.name, o.default)
        for o in self.options:
            needed = o.required or (o.when is not None and _holds(o.when, out))
            if needed and o.name not in out:
                raise MissingOption(name=o.name, hint=f"{o.say} Example: '{o.name}' = '{o.example or '…'}'.")
        return out

    def update(self, current: Mapping[str, str], given: Options) -> dict[str, str]:
        """``current`` (checked, all in clear) with ``given`` on top; NULL takes an option away. Errors as ``check``."""
        taken = {self._canonical(g) for g in given.values()}
        kept = {n: Given(n, v) for n, v in current.items() if n not in taken}
        return self.check({**kept, **given})

    def _canonical(self, g: Given) -> str:
        option = self.find(g.name)
        return g.name.lower() if option is None else _full_name(option, g)

    def hidden(self, names: Iterable[str]) -> frozenset[str]:
        """Those of these options whose values are masked and encrypted."""
        found = ((n, self.find(n)) for n in names)
        return frozenset(n for n, o in found if o and o.kind in (Kind.SECRET, Kind.FILE, Kind.BINARY))

    def _suggest(self, name: str) -> str:
        import difflib

        close = difflib.get_close_matches(name.lower(), [o.name for o in self.options], 1, 0.6)
        names = ", ".join(o.name + ("…" if o.prefix else "") for o in self.options)
        return f"Perhaps you meant '{close[0]}'." if close else f"Known parameters: {names}."


def _taken(option: Option) -> str:
    if option.only:
        return f"{option.name}… takes {', '.join(sorted(option.only))}."
    return (
        f"A statement sets how much and how often, such as '{option.example}'; what loads code, runs programs, opens"
        " files or ways in and out belongs to who runs the server."
    )


def _full_name(option: Option, g: Given) -> str:
    # What follows a prefix is another system's name, and case may matter to it: spark.sql.…coalescePartitions.enabled.
    return option.name + g.name[len(option.name) :] if option.prefix else option.name


def _normal(option: Option, g: Given) -> str:
    value = g.value or ""
    if option.kind is Kind.WORD:
        if value.upper() in option.choices_later:
            raise NotYet(what=f'value {value.upper()} of parameter "{option.name}"', at=g.value_at)
        if value.upper() not in option.choices:
            raise InvalidOption(
                what=f"invalid value '{value}' for parameter \"{option.name}\"",
                at=g.value_at,
                hint=f"Use one of {', '.join(option.choices)}.",
            )
        return value.upper()
    if option.kind is Kind.BOOLEAN:
        if value.lower() not in ("true", "false"):
            raise InvalidOption(
                what=f"invalid value '{value}' for parameter \"{option.name}\"",
                at=g.value_at,
                hint="Use TRUE or FALSE.",
            )
        return value.lower()
    if option.kind is Kind.INTEGER:
        if not value.lstrip("-").isdigit() or (option.minimum is not None and int(value) < option.minimum):
            bound = f" of at least {option.minimum}" if option.minimum is not None else ""
            raise InvalidOption(
                what=f"invalid value '{value}' for parameter \"{option.name}\"",
                at=g.value_at,
                hint=f"Use a whole number{bound}.",
            )
        return str(int(value))
    if option.shape is not None:
        try:
            return option.shape(value)
        except ValueError as e:
            raise InvalidOption(
                what=f'invalid value for parameter "{option.name}": {e}',
                at=g.value_at,
                hint=f"Example: '{option.name}' = '{option.example}'." if option.example else None,
            ) from None
    return value


def _holds(when: str, values: Mapping[str, str]) -> bool:
    name, _, allowed = when.partition("=")
    return values.get(name, "").upper() in allowed.upper().split("|")


class Can(Enum):
    """What a store type may be asked for; the value completes the sentence of an error."""

    LIST = "listing entities"
    DESCRIBE = "describing entities"
    PRINT = "printing entities"
    CREATE_ENTITY = "creating entities"
    DROP_ENTITY = "dropping entities"
    INSERT = "inserting single records"
    STREAM = "a stream"
    CHANGELOG = "a changelog"
    TABLE = "a table"
    SINK = "writing query results"
    DELETES = "a change that deletes"
    BAD_RECORDS = "keeping bad records"
    METADATA = "ROWMETADATA()"
    LOOKUP = "looking rows up beside a stream"
    REAL_TIME = "running a query in real time"


@dataclass(frozen=True, slots=True)
class Full:
    """The capability is whole."""


@dataclass(frozen=True, slots=True)
class Later:
    """Not yet: ``why`` is a sentence for the error's detail."""

    why: str


@dataclass(frozen=True, slots=True)
class Never:
    """Never: ``why`` is a sentence for the error's detail."""

    why: str


Support = Full | Later | Never
ENTITIES = (Can.LIST, Can.DESCRIBE, Can.PRINT, Can.CREATE_ENTITY, Can.DROP_ENTITY, Can.INSERT)
"""All that statements about entities ask for."""


def full(*abilities: Can) -> dict[Can, Support]:
    """Rows of ``StoreType.can`` for what is whole."""
    return {ability: Full() for ability in abilities}


@dataclass(frozen=True, slots=True)
class EntityRow:
    """A line of LIST ENTITIES."""

    name: str
    is_leaf: bool = True


@dataclass(frozen=True, slots=True)
class EntityColumn:
    """A column of an entity that has columns: ``type`` is DeltaStream's type text. ``told``: changes say its value;
    a generated column's they do not."""

    name: str
    type: str
    nullable: bool = True
    told: bool = True


@dataclass(frozen=True, slots=True)
class EntityInfo:
    """What DESCRIBE ENTITY shows, and what relation DDL compares with.

    ``partitions``: or shards. ``kept_ms``: how long records are kept by their event time, None for ever.
    ``columns`` and ``primary_key``: of a table, None of what has none. ``unique``: its other keys, of which NULL is one
    value like others.
    """

    name: str
    partitions: int | None = None
    replicas: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict)
    kept_ms: int | None = None
    columns: Sequence[EntityColumn] | None = None
    primary_key: Sequence[str] = ()
    unique: Sequence[Sequence[str]] = ()


@dataclass(frozen=True, slots=True)
class Extent:
    """What a partition, shard or table holds: where its first record is, and where the next one will be.

    Positions are numbers where the system counts records, else text that only the system understands.
    """

    partition: int | str
    first: int | str | None
    next: int | str | None

    @property
    def records(self) -> int | None:
        """How many lie between, where that can be counted."""
        return self.next - self.first if isinstance(self.next, int) and isinstance(self.first, int) else None


@dataclass(frozen=True, slots=True)
class Record:
    """One raw record of PRINT ENTITY or a sample. ``position`` is text for a person: ``partition:offset``.

    ``headers`` are names and values in the record's order; a name may come twice.
    """

    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None
    position: str
    headers: Sequence[tuple[str, bytes | None]] = ()


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to be written. What is None is the system's choice; a value of None is a tombstone."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class Admin(Protocol):
    """A store without Spark. Every method is async and may not block the event loop; all raise PgStreamError.

    Made by ``open_admin`` for one statement and closed after it; ``close`` may be called twice. Every call answers or
    raises StoreUnreachable within 10 s.
    """

    async def check(self) -> None:
        """Raise StoreUnreachable, saying why, when the system does not answer, StoreRefused when it refuses us."""

    async def list_entities(self, path: Sequence[str] = ()) -> list[EntityRow]: ...

    async def describe(self, entity: str) -> EntityInfo:
        """Raise UndefinedEntity when it is not there."""

    async def extents(self, entity: str) -> list[Extent]:
        """What each partition of an entity holds now, by number. Raise UndefinedEntity."""

    async def create(
        self,
        entity: str,
        options: Mapping[str, str],
        columns: Sequence[EntityColumn] = (),
        primary_key: Sequence[str] = (),
    ) -> None:
        """Create a topic, stream or table; only a table has columns. Raise DuplicateObject when it is there."""

    async def update(self, entity: str, options: Mapping[str, str], unset: frozenset[str]) -> None:
        """Change options of an entity; those of ``unset`` go back to the system's defaults. Raise UndefinedEntity."""

    async def drop(self, entity: str) -> None: ...

    def read(self, entity: str, from_beginning: bool) -> AsyncIterator[Record]:
        """Records as they come, for ever; ends when the iterator is closed. A table: the rows that it has."""

    async def insert(self, entity: str, records: Sequence[NewRecord]) -> None:
        """Write records; where the system can do that, all of them or none."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Alone:
    """A parameter's value is the name of something that one query at a time reads by. ``of_entity``: each entity has
    such names of its own; otherwise they are the store's. ``used_up``: what one reads by it nobody else gets."""

    noun: str
    of_entity: bool = False
    used_up: bool = False


@dataclass(frozen=True, slots=True)
class StoreType:
    """One store type. ``admin`` and ``spark`` are ``"module:Class"``, imported on first use.

    ``options`` are those of CREATE STORE; ``entity_options`` of CREATE ENTITY; ``relation_options`` of relation DDL and
    sinks in this store; ``source_options`` of ``WITH`` after a source. ``sink_entity``: entity options that an entity
    made for a query's result gets unless the statement gives others.

    ``counts``: entity options that must be known when an entity is made and equal those of one that is there, each with
    the field of ``EntityInfo`` that holds it; a query's sink has them of the leftmost source, if its store is of this
    type. ``makes``: the kinds of relation whose missing entity is made. ``names``: the entity of a relation, taken out
    of its checked parameters; the second argument is the relation's own name, the third the store's options.
    ``shows``: the other way, the parameters that name an entity in lists.
    ``spelled``: the one spelling of an entity that a statement names. ``several``: the entities that a relation's
    stands for, where one stream may be over some. ``changes``: the columns of a stream of a table's
    changes, where entities are tables; ``key_format``: that of a changelog whose WITH says none.
    ``reading`` and ``sending``: the beginnings of parameters that go to ``SparkFace.read`` and ``SparkFace.write``.
    ``alone``: those of ``reading`` that name what one query at a time reads by. ``takes``: those that name what is
    made in the store, or used up there: in a query they need USAGE on it.
    ``kinds_apart``: a stream and a changelog over one entity do not share what is read. ``keep_hint``: how records are
    kept longer. ``trouble``: ``"module:function"`` (a ``TroubleOf``). ``leaves``: a query leaves something in the
    store, which both faces can take away (``Leaving``, ``LeavingInSpark``). ``marks``: one that writes there keeps the
    number of its last batch in the store, which ``Admin`` can take away (``Marking``).
    ``empties``: a record of a changelog with an empty key and no value says that no row is left.
    ``described``: the headings of DESCRIBE ENTITY's answer, where they are not those of a topic.
    ``dated``: reading from ``latest`` is reading from a moment on, which is that of the statement; ``ends``: it is
    reading from where partitions end then, which ``Admin`` can tell (``Ending``).
    ``metadata``: the type of ROWMETADATA(), a STRUCT, where ``Can.METADATA`` is whole; ``placed``: those of its fields
    that say where a record is, for a person, where its partition and offset do not.
    ``jars``: parts of the server's lock file that the worker needs when an option has a value, as (option=VALUE, part).
    """

    name: str
    label: str
    options: OptionTable
    entity_options: OptionTable
    relation_options: OptionTable
    source_options: OptionTable
    can: Mapping[Can, Support]
    admin: str
    spark: str
    aliases: tuple[str, ...] = ()
    sink_entity: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, str] = field(default_factory=dict)
    makes: frozenset[str] = frozenset(("stream", "changelog"))
    names: Callable[[dict[str, str], str, Mapping[str, str]], str] = lambda properties, name, _: properties.pop(
        "topic", name
    )
    shows: Callable[[str], Mapping[str, str]] = lambda entity: {"topic": entity}
    reading: tuple[str, ...] = ("source.max.records.per.trigger",)
    sending: tuple[str, ...] = ()
    alone: Mapping[str, Alone] = field(default_factory=dict)
    takes: tuple[str, ...] = ()
    spelled: Callable[[str, Mapping[str, str]], str] = lambda entity, _: entity
    several: Callable[[str], Sequence[str]] = lambda entity: (entity,)
    changes: Callable[[EntityInfo], Sequence[EntityColumn]] | None = None
    key_format: str | None = None
    kinds_apart: bool = False
    keep_hint: str | None = None
    trouble: str | None = None
    leaves: bool = False
    marks: bool = False
    empties: bool = False
    described: tuple[str, ...] = ()
    dated: bool = False
    ends: bool = False
    metadata: str | None = None
    placed: tuple[str, ...] = ()
    jars: tuple[tuple[str, str], ...] = ()

    def parts(self, options: Mapping[str, str]) -> list[str]:
        """The parts of the lock file that a store with these options needs."""
        return [part for when, part in self.jars if _holds(when, options)]

    def require(self, what: Can, at: int | None = None) -> None:
        """Raise NotYet or NotSupported, with the sentence, unless the capability is whole."""
        match self.can.get(what, Never(f"{self.label} stores do not offer it.")):
            case Later(why):
                raise NotYet(what=f"{what.value} in a {self.label} store", detail=why, at=at)
            case Never(why):
                raise NotSupported(what=f"{what.value} in a {self.label} store", detail=why, at=at)
            case _:
                return


class AdminFactory(Protocol):
    """The constructor of an ``admin`` class: the store's name and all its options in clear."""

    def __call__(self, name: str, options: Mapping[str, str]) -> Admin: ...


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a query failed in a store, for a person. ``kind`` as in ``spark.faults``."""

    kind: str
    sqlstate: str
    message: str
    detail: str | None = None
    hint: str | None = None


_NOISE = re.compile(r"^\[[A-Z0-9_.]+\]\s*|\s*SQLSTATE: \w{5}\b.*|;\s*(line \d+ pos \d+)?;?\s*\n.*", re.S)
_MARKS = re.compile(r"`([^`]*)`")


def sentence(message: str) -> str:
    """A message of Spark's or of a Java client's in PostgreSQL's style.

    No condition name, no plan dump, lower case, no full stop.
    """
    text = _NOISE.sub("", message.strip())
    text = _NOISE.sub("", text)
    text = _MARKS.sub(r'"\1"', " ".join(text.split()))
    text = text.split(" Use `try_")[0].rstrip(". ")
    return text[:1].lower() + text[1:]


class TroubleOf(Protocol):
    """What a Java exception means, if this store's client made it: its class and message, the store's name, and the
    message of the innermost cause. It must not import pyspark."""

    def __call__(self, link: Mapping[str, Any], store: str, root: str) -> Trouble | None: ...


Dataframe = Any


class SparkFace(Protocol):
    """A store in the worker. Classes are made without arguments; ``spark`` is the SparkSession, ``access`` what the
    query may know of the store (``engine.channel.StoreAccess``)."""

    def read(self, spark: Any, source: Any, access: Any, query: str) -> Dataframe:
        """A streaming DataFrame of raw records for ``planner.plan.Source``; columns: key binary, value binary,
        ``__time`` timestamp, ``__partition`` int, ``__offset`` bigint, ``__metadata`` where the type has
        ``StoreType.metadata``, and perhaps ``__headers``. ``__offset`` grows within a partition and is the same when a
        record is read again, and so must a batch be: from the offsets of its checkpoint. ``query``: the id of the one
        that reads."""

    def write(self, sink: Any, access: Any) -> dict[str, Any]:
        """What the kernel is told of a sink beside its rows. ``type``: ``kafka``, or the name of a class that extends
        ``TaskSink`` and is made of the whole as JSON text."""


class KeepingInSpark(Protocol):
    """What ``SparkFace`` has too where ``Can.BAD_RECORDS`` is whole."""

    def bad_records(self, access: Any) -> dict[str, str]:
        """The settings of a producer of bad records."""


class RealTimeInSpark(Protocol):
    """What ``SparkFace`` has too where ``Can.REAL_TIME`` is whole."""

    def follow(self, spark: Any, source: Any, access: Any, query: str) -> Dataframe:
        """As ``read``, of a source that Spark's real-time mode knows."""

    def asks(self, source: Any, access: Any) -> dict[str, Any]:
        """What the kernel asks for the source's offsets with: its ``topic``, and a client's ``properties``."""


class Asked(Protocol):
    """What ``Admin`` has too where ``Can.LOOKUP`` is whole."""

    async def answers(self, entity: str, query: str) -> None:
        """Raise why the store would not answer a query over a table, in PostgreSQL's language. Nothing is run."""


class AskedInSpark(Protocol):
    """What ``SparkFace`` has too where ``Can.LOOKUP`` is whole."""

    def ask(self, access: Any) -> dict[str, Any]:
        """The connection that the kernel's ``Lookup`` makes: url, user, password and properties of the JDBC driver."""


class LeavingInSpark(Protocol):
    """What ``SparkFace`` has too where ``StoreType.leaves``."""

    def forget(self, spark: Any, source: Any, access: Any, checkpoint: str) -> None:
        """Take away what a query that is over for good left there for this source, by what its checkpoint says."""


class Leaving(Protocol):
    """What ``Admin`` has too where ``StoreType.leaves``."""

    async def forget(self, left: Mapping[str, Any]) -> None:
        """Take away what a query left that no worker runs any more. ``left``: what a source's checkpoint says of it."""

    async def forget_own(self, query: str, entity: str) -> None:
        """The same of a query whose checkpoint is gone: what has its name, where the entity is."""


class Ending(Protocol):
    """What ``Admin`` has too where ``StoreType.ends``."""

    async def ends(self, entity: str) -> dict[int, int]:
        """The offset of the next record of each partition, for who reads what is committed."""


class Marking(Protocol):
    """What ``Admin`` has too where ``StoreType.marks``."""

    async def unmark(self, query: str) -> None:
        """Take away what a query that is over for good kept of its batches. Nothing, if there is nothing."""
