"""The plan: what a continuous query does, as versioned JSON.

Owns: the structs that the planner makes and the worker runs, their JSON form and version. This is the only thing that
crosses from planner to Spark; expressions in it are **Spark SQL text**.
Must not know: sqlglot, the catalogue, Spark. Secrets never stand in a plan: a source or sink names its store, and the
engine hands the store's options to the worker beside the plan.

Hidden columns, added by the worker to every source and kept by every step:
``__time`` timestamp    the row's event time (``semantics.md`` §28.1 says what each step makes of it)
``__delete`` boolean    in *upsert* steps: this row removes its key; in *retract* steps: this row is taken back
``__partition`` int, ``__offset`` bigint   the source position, while a step keeps one row per source row
``__rowkey``            the record key as ``key_type``, only if some expression above uses rowkey() (``Source.wants``);
                        in older plans ``__key``, its bytes
``__metadata``          what the store says of the record, as ``Source.metadata``, only if wanted so; in older plans
                        ``__timestamp_type``, a field of it
Rules for names: a step's output columns have plain, unique names; expressions name the columns of their input as
back-ticked identifiers. The two inputs of a join are prefixed: column ``userid`` of the left input with alias ``p`` is
the single identifier `` `p.userid` `` above the join (no prefix where the alias is empty).
Start reading at ``Plan``.
"""

from __future__ import annotations

import math

import msgspec

VERSION = 15
WINDOW_BOUNDS = ("window_start", "window_end")


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    """A declared column: ``type`` is DeltaStream's type text (``types.parse``)."""

    name: str
    type: str
    nullable: bool = True


class Expr(msgspec.Struct, frozen=True, omit_defaults=True):
    """A named expression in Spark SQL text; ``at`` is its 0-based character offset in the client's statement."""

    name: str
    sql: str
    at: int | None = None


class Window(msgspec.Struct, frozen=True, omit_defaults=True):
    """``kind`` is ``tumble``, ``hop``, ``cumulate`` or ``session`` (``size_ms`` is its gap); milliseconds;
    ``advance_ms`` equals ``size_ms`` but for hop and cumulate.
    """

    kind: str
    size_ms: int
    advance_ms: int


class Source(msgspec.Struct, frozen=True, omit_defaults=True, tag="source"):
    """Read one relation. Output: its columns, then the hidden ones. Mode: append for a stream, upsert for a changelog.

    ``watermark``: whether a step above needs event time; the worker sets withWatermark(lateness_ms) only then.
    ``idle_ms``: silent this long, the source no longer holds the others' event time back.
    ``value_descriptor`` and ``key_descriptor``: Protobuf messages, ``source.message``, where no registry knows them.
    ``on_bad_record``: terminate, ignore, or log (to ``bad_record_topic`` in ``bad_record_store``).
    ``apart``: relations of another kind over the same entity are read by themselves. ``empties``: the entity of a
    changelog may be emptied as a whole. ``metadata``: the type of what its store says of each record. ``needs``:
    columns without which a record is a bad one.
    """

    alias: str
    relation: str
    kind: str
    store: str
    entity: str
    columns: list[Column]
    value_format: str
    primary_key: list[str] = []
    key_format: str | None = None
    key_type: str | None = None
    value_descriptor: str | None = None
    key_descriptor: str | None = None
    timestamp: str | None = None
    timestamp_format: str = "sql"
    lateness_ms: int = 10000
    idle_ms: int | None = None
    starting_position: str = "latest"
    on_bad_record: str = "terminate"
    bad_record_topic: str | None = None
    bad_record_store: str | None = None
    watermark: bool = False
    wants: list[str] = []
    options: dict[str, str] = {}
    at: int | None = None
    apart: bool = False
    empties: bool = False
    metadata: str | None = None
    needs: list[str] = []

    @property
    def follows(self) -> bool:
        """Whether a query can follow the emptying of a source: its keys, and what its rows may come without, are then
        kept. Event time is told of rows as they are read, so where it is needed they go on as they come."""
        return self.empties and not self.watermark and not self.wants


class ViewSource(msgspec.Struct, frozen=True, omit_defaults=True, tag="view_source"):
    """Read a materialized view: the rows that it had when the query was made, then its changes. Output: its columns,
    then the hidden ones, in a ``mode`` of their own: append for a view whose rows only come, upsert by ``key``, or
    retract.

    ``view`` is the relation's id; it and the query's name the log in ``database`` in which the changes wait.
    ``timestamp``, ``lateness_ms``, ``idle_ms`` and ``watermark`` as in ``Source``; without ``timestamp`` the event time
    is when the view got the row.
    """

    alias: str
    relation: str
    database: str
    view: str
    columns: list[Column]
    mode: str
    key: list[str] = []
    timestamp: str | None = None
    lateness_ms: int = 10000
    idle_ms: int | None = None
    watermark: bool = False
    at: int | None = None

    @property
    def entity(self) -> str:
        """What figures of its reading are told under."""
        return self.relation


class Filter(msgspec.Struct, frozen=True, omit_defaults=True, tag="filter"):
    """Keep rows whose ``condition`` is true. Over an upsert input a row that fails becomes a delete of its key."""

    input: Node
    condition: Expr


class Project(msgspec.Struct, frozen=True, omit_defaults=True, tag="project"):
    """Compute the output columns; hidden columns pass through."""

    input: Node
    columns: list[Expr]


class Aggregate(msgspec.Struct, frozen=True, omit_defaults=True, tag="aggregate"):
    """GROUP BY. Output: ``group`` columns, ``aggregates`` columns, and with a window ``window_start``, ``window_end``
    (timestamp_ntz). Mode: upsert, keyed by window bounds (if any) and group; with ``final`` append: one row a key once
    the watermark passes the window's end. ``__time``: window_end - 1 ms, or the latest contributing event time.
    """

    input: Node
    group: list[Expr]
    aggregates: list[Expr]
    window: Window | None = None
    final: bool = False


class Normalize(msgspec.Struct, frozen=True, omit_defaults=True, tag="normalize"):
    """Upserts by ``key`` (columns of the input) to retractions: the old row is taken back before the new one is added.

    Mode: retract. Of a batch only the last row of a key counts, by its position in the source. With ``upserts`` the
    other way round: retractions to upserts by key. State: a row a key.
    """

    input: Node
    key: list[str]
    upserts: bool = False


class Call(msgspec.Struct, frozen=True, omit_defaults=True):
    """An aggregate call of ``ChangeAggregate``: ``count``, ``sum``, ``avg``, ``avg_whole`` (of whole numbers, exact),
    ``avg_wide`` (of a DECIMAL of over 34 digits: as many before the point), ``min``, ``max``, ``stddev_samp``,
    ``stddev_pop``, ``var_samp``, ``var_pop``, ``listagg``, ``array_agg``, ``first_value`` or ``last_value``; of
    ``Over`` also ``row_number``, ``rank``, ``dense_rank`` (of the event time, their argument), ``lag`` and ``lead`` (of
    the row ``offset`` away; a second argument for where there is none).

    ``arguments`` are Spark SQL over the input; ``where`` the FILTER, which is the second argument of ``array_agg``;
    ``cast`` the Spark type of the result, if not the function's own.
    """

    name: str
    function: str
    arguments: list[str]
    distinct: bool = False
    where: str | None = None
    separator: str = ","
    cast: str | None = None
    at: int | None = None
    offset: int = 0


class ChangeAggregate(msgspec.Struct, frozen=True, omit_defaults=True, tag="change_aggregate"):
    """GROUP BY by the kernel: over rows that may be taken back, and for what Spark's own operator cannot do.

    Output as of ``Aggregate``, told only when it differs from what was told. Mode: upsert by group.
    ``window`` and ``final`` as there; the window's bounds are then part of the group.
    ``until``: the end of the window that the group is of (timestamp_ntz over the input), where its bounds are columns;
    ``every_ms``: how far apart such windows begin, 0 where that is not known. ``by_time``: functions of values in the
    order of arrival take that of the event times, since the rows, which only come, have no other.
    State: the sums of each group, and for DISTINCT, MIN, MAX and functions of all values each value with its count.
    """

    input: Node
    group: list[Expr]
    calls: list[Call]
    window: Window | None = None
    final: bool = False
    until: str | None = None
    every_ms: int = 0
    by_time: bool = False


class IntervalJoin(msgspec.Struct, frozen=True, omit_defaults=True, tag="interval_join"):
    """Stream with stream: equal keys and at most ``within_ms`` between the event times. ``how``: inner, left or full.

    ``left_key`` / ``right_key`` are over the unprefixed columns of each input, ``more`` are further such pairs, and
    ``condition`` is over the prefixed columns. Output: prefixed columns of both. ``__time``: the later of the two (that
    of the present side for an unmatched row). Mode: append. ``ahead_ms``: rows that are further ahead of the watermark
    wait, since those without a match come when it has passed them; from version 9 on. ``by_key``: the kernel keeps the
    rows of each key together; plans of before version 11 have Spark's own join. ``behind_ms``: how long after the
    watermark has passed it a row may come, as one without a match does, and for a window of one side its pair.
    """

    left: Node
    right: Node
    how: str
    within_ms: int
    left_key: Expr
    right_key: Expr
    left_alias: str = ""
    right_alias: str = ""
    more: list[tuple[Expr, Expr]] = []
    condition: Expr | None = None
    ahead_ms: int | None = None
    by_key: bool = False
    behind_ms: int = 0


class TemporalJoin(msgspec.Struct, frozen=True, omit_defaults=True, tag="temporal_join"):
    """Stream with changelog: each row of the left input meets the row that the right one had at its event time.

    ``keys`` are pairs (over the unprefixed columns of each input) that name the whole key of the right one. ``how``:
    inner or left. Output: prefixed columns of both, ``__time`` the left row's. Mode: append. State: versions of the
    right rows from the watermark on, and left rows until the watermark has reached them.
    """

    left: Node
    right: Node
    how: str
    keys: list[tuple[Expr, Expr]]
    left_alias: str = ""
    right_alias: str = ""


class Argument(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value of a row, in Spark SQL, that PostgreSQL is given as one of DeltaStream's type ``type``."""

    sql: str
    type: str
    at: int | None = None


class Lookup(msgspec.Struct, frozen=True, omit_defaults=True, tag="lookup"):
    """Each row beside what PostgreSQL answers for it when it comes by. ``how``: inner or left.

    ``sql`` is a query in PostgreSQL's language for database ``database``, with schema ``schema`` in its search path; it
    reads ``relation`` (names, to be shown) and the row's ``arguments`` as columns ``p1``, ``p2`` … of ``"__row"``.
    ``columns``: what it gives, in order. Output: prefixed columns of both. Mode: of the input, append, or upsert where
    it answers with one row each time. State: none.
    ``store``: the store that is asked instead of ``database``, with its own user; from version 8 on.
    Plans of before version 4 have instead ``keys``, an expression over the input and the column of view ``relation``
    that equals it.
    """

    input: Node
    relation: str
    database: str
    columns: list[Column]
    how: str
    keys: list[tuple[Expr, str]] = []
    left_alias: str = ""
    right_alias: str = ""
    sql: str = ""
    arguments: list[Argument] = []
    schema: str = ""
    store: str = ""


class ChangelogJoin(msgspec.Struct, frozen=True, omit_defaults=True, tag="changelog_join"):
    """Changelog with changelog, both retract or append: equal ``keys`` as in ``TemporalJoin``.

    ``how``: inner, left or full. Output: prefixed columns of both, ``__time`` the later. Mode: retract. State: the rows
    of both sides. ``append``: streams with a time to live of before version 13, which has ``StreamJoin``; an inner one,
    whose rows are told apart by columns of theirs. Mode: append.
    """

    left: Node
    right: Node
    how: str
    keys: list[tuple[Expr, Expr]]
    left_alias: str = ""
    right_alias: str = ""
    append: bool = False


class StreamJoin(msgspec.Struct, frozen=True, omit_defaults=True, tag="stream_join"):
    """Stream with stream, append or retract, however far apart in time: equal ``keys`` as in ``TemporalJoin``, and
    ``condition`` over the prefixed columns. ``how``: inner, left or full. Output: prefixed columns of both, ``__time``
    the later. Mode: append for an inner join of append, else retract: a row without a match comes, and is taken back
    when it meets its first. State: the rows of both sides, each for the query's time to live. From version 13 on.
    """

    left: Node
    right: Node
    how: str
    keys: list[tuple[Expr, Expr]]
    left_alias: str = ""
    right_alias: str = ""
    condition: Expr | None = None


class Windows(msgspec.Struct, frozen=True, omit_defaults=True, tag="windows"):
    """A window function without GROUP BY: each row once a window that it falls into, with ``window_start`` and
    ``window_end`` (timestamp_ntz) as columns. Mode: append.
    """

    input: Node
    window: Window


class Expand(msgspec.Struct, frozen=True, omit_defaults=True, tag="expand"):
    """GROUPING SETS: each row once a set, with ``columns`` added, NULL where the set does not group by them, and the
    set's mark as integer column ``mark``: bit by bit from the left, 1 for a column that it does not group by.
    """

    input: Node
    columns: list[Expr]
    marks: list[int]
    mark: str


class Unnest(msgspec.Struct, frozen=True, omit_defaults=True, tag="unnest"):
    """Each row once an element of the array ``item``, with ``columns`` over `` `__item` `` added. ``outer``: a row
    without elements stays, with NULLs. ``numbered``: `` `__place` `` is the element's place, from 0 on. Mode: of the
    input, which is no upsert.
    """

    input: Node
    item: Expr
    columns: list[Expr]
    outer: bool = False
    numbered: bool = False


class Order(msgspec.Struct, frozen=True, omit_defaults=True):
    """An item of ORDER BY."""

    sql: str
    descending: bool = False
    nulls_first: bool = True
    at: int | None = None


class Rank(msgspec.Struct, frozen=True, omit_defaults=True, tag="rank"):
    """Top-N: rows of a partition whose rank is at most ``limit``, with the rank (bigint) as column ``name``.

    ``function``: row_number, rank or dense_rank; ``also`` are further ranks in the same order, by name. Equal rows
    stand in the source's order. Mode: retract; with ``until``, the end of the window that the partition is of
    (timestamp_ntz), append: one row a rank when the watermark passes it; ``every_ms`` as in ``ChangeAggregate``.
    State: of rows that only come the first ``limit`` a partition, otherwise every row.
    """

    input: Node
    name: str
    function: str
    partition: list[Expr]
    order: list[Order]
    limit: int = 0
    until: str | None = None
    at: int | None = None
    also: dict[str, str] = {}
    every_ms: int = 0


class Over(msgspec.Struct, frozen=True, omit_defaults=True, tag="over"):
    """Aggregates over the rows of a partition up to each row, by event time: each row once, with ``calls`` as columns,
    when the watermark has reached it.

    The frame: ``rows`` rows before it, or ``range_ms`` milliseconds; all with neither, where rows of the same event
    time (``peers``) count together. ``ahead``: each row comes out when so many after it have come, at the event time of
    the last of them. Mode: append; with ``versions`` upsert by partition, where each row is a new version of its
    partition's. State: rows until the watermark reaches them, and the frame.
    """

    input: Node
    partition: list[Expr]
    calls: list[Call]
    rows: int | None = None
    range_ms: int | None = None
    peers: bool = True
    ahead: int = 0
    versions: bool = False


class Row(msgspec.Struct, frozen=True, omit_defaults=True, tag="row"):
    """A row pattern: one row, mapped to variable ``name``."""

    name: str


class Sequence(msgspec.Struct, frozen=True, omit_defaults=True, tag="sequence"):
    """Row patterns one after the other."""

    parts: list[Pattern]


class Choice(msgspec.Struct, frozen=True, omit_defaults=True, tag="choice"):
    """One of several row patterns, the first preferred."""

    parts: list[Pattern]


class Repeat(msgspec.Struct, frozen=True, omit_defaults=True, tag="repeat"):
    """A row pattern from ``least`` to ``most`` times (None: without end), rather more often than less, or ``reluctant``
    the other way round.
    """

    part: Pattern
    least: int
    most: int | None = None
    reluctant: bool = False


Pattern = Row | Sequence | Choice | Repeat


class Read(msgspec.Struct, frozen=True, omit_defaults=True):
    """What conditions and measures read of a match, as column ``name`` of theirs; of the rows mapped to ``variable``,
    of all where it is empty.

    Either ``value`` (Spark SQL over the input) of the first or the ``last`` of those rows, ``offset`` of them further
    in, and from there ``shift`` rows on in the partition; or aggregate ``call`` of them. NULL where there is no row.
    ``raises``: of some rows it may be an error, which ends the query when it is read; before version 12 it did at once.
    """

    name: str
    variable: str = ""
    value: str = ""
    last: bool = True
    offset: int = 0
    shift: int = 0
    call: Call | None = None
    at: int | None = None
    raises: bool = False


class Recognize(msgspec.Struct, frozen=True, omit_defaults=True, tag="recognize"):
    """MATCH_RECOGNIZE: a row a match of ``pattern`` in the rows of a partition, in the order of their event times, then
    of ``order``, then of arrival.

    ``define``: variables and their conditions over the ``reads``, in which the row that may be mapped to the variable
    counts already; a variable without one takes every row. ``skip``: where the next match may begin, one of ``past last
    row``, ``to next row``, ``to first`` and ``to last``, these of the rows of variable ``to``. ``within_ms``: between
    the first and the last row. Output: columns of ``partition``, then ``measures``, over the reads too; ``__time`` that
    of the last row. Mode: append; a match may come after the watermark has passed its time, ``behind_ms`` after it at
    most where the next row has to be seen for its end; 0, as before version 15: what is late above is late. State: rows
    until the watermark reaches them, and those that may be of a match yet.
    """

    input: Node
    partition: list[Expr]
    order: list[Order]
    pattern: Pattern
    define: list[Expr]
    reads: list[Read]
    measures: list[Expr]
    skip: str
    to: str = ""
    within_ms: int | None = None
    behind_ms: int = 0


class Union(msgspec.Struct, frozen=True, omit_defaults=True, tag="union"):
    """UNION ALL by position; the first input's names. All inputs are append."""

    inputs: list[Node]


class Outputs(msgspec.Struct, frozen=True, omit_defaults=True, tag="outputs"):
    """The results of several queries that run as one: each row is of one input, and goes to the sink at its place
    (``Sinks``). Only a plan's root. Those that keep state stand first: what Spark numbers is then the same at every
    start (``KafkaSink.scala``).
    """

    inputs: list[Node]


Node = (
    Source
    | ViewSource
    | Filter
    | Project
    | Aggregate
    | Normalize
    | ChangeAggregate
    | IntervalJoin
    | TemporalJoin
    | ChangelogJoin
    | StreamJoin
    | Lookup
    | Windows
    | Expand
    | Unnest
    | Rank
    | Over
    | Recognize
    | Union
    | Outputs
)


class ViewSink(msgspec.Struct, frozen=True, omit_defaults=True, tag="view"):
    """Materialized view: rows go to the table ``relation`` of database ``database``; staging is named after ``table``.

    ``mode`` append: every row is kept. upsert: one row per ``key`` (output column names; empty: a single row). retract:
    every row that is not taken back. ``options``: those of the view once this query has replaced the one that keeps it.
    """

    relation: str
    database: str
    table: str
    mode: str
    key: list[str] = []
    options: dict[str, str] = {}


class Schema(msgspec.Struct, frozen=True, omit_defaults=True):
    """A schema as a registry knows it: the text that records are written by, and the id that they carry.

    Of Protobuf: its files in base64, and the ``message`` of them that is written.
    """

    id: int
    text: str
    message: str = ""


class RecordSink(msgspec.Struct, frozen=True, omit_defaults=True, tag="kafka"):
    """Write records to an entity; the tag is of when all of them were topics. ``columns`` go into the value (after
    ``value.columns.exclude``), in order.

    ``key_columns`` with ``key_format`` make the record key (primitive: exactly one). ``mode`` upsert: a deleted key
    is written as a tombstone (needs a key). The record's timestamp is ``__time``. ``value_schema`` and ``key_schema``:
    of formats that have schemas; ``value_descriptor`` and ``key_descriptor``: the Protobuf messages instead.
    ``together``: the tasks of a batch write a topic in one transaction; in plans of before version 9 each in its own.
    """

    relation: str
    store: str
    entity: str
    mode: str
    value_format: str
    columns: list[str]
    key_format: str | None = None
    key_columns: list[str] = []
    timestamp_format: str = "sql"
    options: dict[str, str] = {}
    value_schema: Schema | None = None
    key_schema: Schema | None = None
    value_descriptor: str | None = None
    key_descriptor: str | None = None
    together: bool = False


class TableSink(msgspec.Struct, frozen=True, omit_defaults=True, tag="table"):
    """Write to a table of a store, exactly once. ``mode`` append: every row is added; upsert: one row per ``key``, the
    table's primary key, and rows that are deleted go.
    """

    relation: str
    store: str
    entity: str
    mode: str
    key: list[str] = []


class ResultSink(msgspec.Struct, frozen=True, omit_defaults=True, tag="result"):
    """Rows go to the client of an interactive SELECT, in PostgreSQL's text format. ``limit`` ends the query."""

    limit: int | None = None


Kept = ViewSink | RecordSink | TableSink


class Sinks(msgspec.Struct, frozen=True, omit_defaults=True, tag="sinks"):
    """Where the inputs of ``Outputs`` go, in their order: each exactly once as by itself, batch by batch together."""

    sinks: list[Kept]


Sink = Kept | ResultSink | Sinks


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    """A whole continuous query. ``columns`` is filled from the analyzer: output names and DeltaStream types.

    ``version`` stands in the JSON only; a plan in memory has none. The first version did not write it.
    ``apart``: of before version 3, where each reading of a topic is a source of its own.
    ``real_time``: each record is written as it comes, at least once (``planner.real_time``).
    """

    root: Node
    sink: Sink
    columns: list[Column] = []
    state_ttl_ms: int | None = None
    apart: bool = False
    real_time: bool = False
    version: int = 1

    def json(self) -> bytes:
        return msgspec.json.encode(msgspec.structs.replace(self, version=VERSION))


# Made here, once: msgspec learns a type when it first meets it, and threads that meet it at once crash the process.
_plans = msgspec.json.Decoder(Plan)


def load(data: bytes | str) -> Plan:
    """Read a plan; a plan of a newer version raises ValueError."""
    plan = _plans.decode(data)
    if plan.version > VERSION:
        raise ValueError(f"plan version {plan.version} is newer than {VERSION}")
    return msgspec.structs.replace(plan, apart=plan.apart or plan.version < 3, version=1)


def outputs(plan: Plan) -> list[tuple[Node, Kept | ResultSink]]:
    """What a plan computes and where each goes: one, or the several of an application."""
    if isinstance(plan.sink, Sinks):
        return list(zip(inputs(plan.root), plan.sink.sinks, strict=True))
    return [(plan.root, plan.sink)]


def inputs(node: Node) -> list[Node]:
    """The steps whose rows a step reads, left to right."""
    match node:
        case Source() | ViewSource():
            return []
        case IntervalJoin() | TemporalJoin() | ChangelogJoin() | StreamJoin():
            return [node.left, node.right]
        case Union() | Outputs():
            return list(node.inputs)
        case _:
            return [node.input]


def mode(node: Node) -> str:
    """The changelog mode of a step's output: append, upsert or retract."""
    match node:
        case Source():
            return "upsert" if node.kind == "changelog" else "append"
        case ViewSource():
            return node.mode
        case Normalize():
            return "upsert" if node.upserts else "retract"
        case ChangelogJoin():
            return "append" if node.append else "retract"
        case StreamJoin():
            return "append" if node.how == "inner" and {mode(node.left), mode(node.right)} == {"append"} else "retract"
        case Aggregate() | ChangeAggregate():
            return "append" if node.final else "upsert"
        case Rank():
            return "append" if node.until is not None else "retract"
        case Over():
            return "upsert" if node.versions else "append"
        case Union():
            return "append" if all(mode(n) == "append" for n in node.inputs) else "retract"
        case IntervalJoin() | TemporalJoin() | Windows() | Recognize() | Outputs():
            return "append"
        case _:
            return mode(node.input)


STATEFUL = (Aggregate | Normalize | ChangeAggregate | IntervalJoin | TemporalJoin | ChangelogJoin | StreamJoin | Rank
            | Over | Recognize)  # fmt: skip


def keeps_state(node: Node) -> bool:
    """Whether a step, or one below it, keeps state from batch to batch."""
    return any(isinstance(n, STATEFUL) for n in walk(node))


def walk(node: Node) -> list[Node]:
    """Every step of a plan, inputs first."""
    return [n for i in inputs(node) for n in walk(i)] + [node]


def output_mode(root: Node) -> str:
    """Spark's output mode for the whole: update where running values of its own aggregates are told, else append."""
    return "update" if any(isinstance(n, Aggregate) and not n.final for n in walk(root)) else "append"


def sources(node: Node) -> list[Source]:
    """Every source of a plan that reads an entity of a store, left to right."""
    return [n for n in walk(node) if isinstance(n, Source)]


def lookups(node: Node) -> list[Lookup]:
    """Every step of a plan that asks a database or a store for rows, inputs first."""
    return [n for n in walk(node) if isinstance(n, Lookup)]


def view_sources(node: Node) -> list[ViewSource]:
    """Every source of a plan that reads a materialized view, left to right."""
    return [n for n in walk(node) if isinstance(n, ViewSource)]


def readings(node: Node) -> list[Source | ViewSource]:
    """Every source of a plan, left to right."""
    return [n for n in walk(node) if isinstance(n, (Source, ViewSource))]


def behind_ms(node: Node) -> int:
    """By how many milliseconds results are behind the watermark of the sources, at most."""
    below = max(map(behind_ms, inputs(node)), default=0)
    match node:
        case IntervalJoin():
            return below + (node.behind_ms if node.by_key else node.within_ms + 1)
        case Recognize():
            return below + node.behind_ms
        case _:
            return below


def ends_apart_ms(node: Node) -> int:
    """All ends of the windows that a plan groups by are so many milliseconds apart, or a multiple of it, from 1970 on;
    0 without such windows. Sessions are left out: they end anywhere, and have an operator of their own.
    """
    grouped = [n.window for n in walk(node) if isinstance(n, Aggregate) and n.window is not None]
    return math.gcd(*(ms for w in grouped if w.kind != "session" for ms in (w.size_ms, w.advance_ms)))
