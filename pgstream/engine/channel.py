"""The control channel between the server and a pool's worker: messages and framing.

Owns: every message that crosses, as msgspec structs, and the frames (4-byte big-endian length, then MessagePack).
The channel is one socket pair made by the server; the worker inherits its end as file descriptor ``PGSTREAM_CHANNEL``
and ends itself when it reads end of file, so a killed server never leaves a worker behind.
Must not know: who is at either end. ``engine.pool`` holds the server's end, ``spark.worker`` the worker's.
Start reading at ``Request`` and ``Event``.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error of the worker for a person. ``kind``: user, data, refused, overtaken, store, engine
    (``spark.faults``).
    """

    kind: str
    sqlstate: str
    message: str
    detail: str | None = None
    hint: str | None = None
    at: int | None = None


class Descriptor(msgspec.Struct, frozen=True):
    """A Protobuf message: its full name, and the files that describe it, a FileDescriptorSet in base64."""

    files: str
    message: str


class StoreAccess(msgspec.Struct, frozen=True):
    """A store as the worker needs it: type and every option in clear. Never logged, never kept.

    ``registry``: the connection of its schema registry, as the kernel reads it (``formats.registry.java``).
    ``descriptors``: the messages of its entities that the plan names.
    """

    name: str
    type: str
    options: dict[str, str]
    registry: str = ""
    descriptors: dict[str, Descriptor] = {}

    def __repr__(self) -> str:
        return f"StoreAccess(name={self.name!r}, type={self.type!r}, options=…)"


class Reader(msgspec.Struct, frozen=True):
    """Where a query reads in PostgreSQL: a libpq connection URL, and the role that its sessions take. Never logged."""

    url: str
    role: str

    def __repr__(self) -> str:
        return f"Reader(role={self.role!r}, url=…)"


# Server → worker


class Analyze(msgspec.Struct, frozen=True, tag="analyze"):
    """Ask Spark's analyzer for the plan's output columns. Answer: Analyzed or Failed with the same ``id``.

    ``trace``, here and elsewhere: the span that asks (``traces.carried``).
    """

    id: int
    plan: bytes
    trace: str = ""


class Compile(msgspec.Struct, frozen=True, tag="compile"):
    """Ask for a .proto ``text`` as a descriptor set. ``refers``: the texts that it imports, by their names there.

    Answer: Compiled or Failed with the same ``id``.
    """

    id: int
    text: str
    refers: dict[str, str] = {}
    trace: str = ""


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Run a query. ``attempt`` fences: a higher one of the same query makes the sink refuse lower ones.

    ``databases`` maps database name → libpq connection URL (host and port over TCP) of the view state.
    ``readers``: by database name, whatever the query looks up there.
    ``notify``: by view, the channel of PostgreSQL that is told of each batch which changes it.
    ``beside``: the table that is written in the view's stead, until the query replaces the one that keeps the view.
    ``checkpoint`` is a folder or URL, None for interactive queries (a temporary one is used and removed).
    ``limits``: by topic and partition the first offset that does not count any more; of partition -1 it is that of all
    others. ``ceiling_ms``: event time goes no further, in milliseconds since 1970.
    ``settings`` are Spark settings fixed at the query's creation, such as shuffle partitions.
    ``origin``: the span in which the query was created, where this server still knows it.
    """

    query: str
    attempt: int
    plan: bytes
    stores: dict[str, StoreAccess]
    databases: dict[str, str] = {}
    checkpoint: str | None = None
    settings: dict[str, str] = {}
    name: str | None = None
    readers: dict[str, Reader] = {}
    notify: dict[str, str] = {}
    beside: str = ""
    limits: dict[str, dict[int, int]] = {}
    ceiling_ms: int | None = None
    trace: str = ""
    origin: str = ""

    def __repr__(self) -> str:
        return f"Start(query={self.query!r}, attempt={self.attempt})"


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """End a query; answered by Ended. ``forget`` also removes its checkpoint."""

    query: str
    forget: bool = False


class More(msgspec.Struct, frozen=True, tag="more"):
    """The client of an interactive query has taken rows that cost as much: back-pressure by credit."""

    query: str
    credit: int


class Shutdown(msgspec.Struct, frozen=True, tag="shutdown"):
    """Stop every query after its running batch and end the process."""


# Worker → server


class Preparing(msgspec.Struct, frozen=True, tag="preparing"):
    """The worker does first what is done once for a version of pgstream. ``what``: after "the worker is starting: "."""

    what: str


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The worker's Spark session is up."""

    spark: str
    java: str
    pid: int


class Executors(msgspec.Struct, frozen=True, tag="executors"):
    """Work waits for the first executor that the cluster gives the pool, or no longer does."""

    wanted: bool


class Analyzed(msgspec.Struct, frozen=True, tag="analyzed"):
    """Output columns in order: (name, Spark catalogString of the type, nullable), without the hidden ones."""

    id: int
    columns: list[tuple[str, str, bool]]


class Compiled(msgspec.Struct, frozen=True, tag="compiled"):
    """A descriptor set in base64: each file after those that it imports, that of the text being the last."""

    id: int
    files: str


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """Analyze or Compile could not be done."""

    id: int
    fault: Fault


class Running(msgspec.Struct, frozen=True, tag="running"):
    """The query's stream has started."""

    query: str
    attempt: int


class Alive(msgspec.Struct, frozen=True, tag="alive"):
    """The query's first trigger is over, with rows or without: its sources answer."""

    query: str
    attempt: int


class Rows(msgspec.Struct, frozen=True, tag="rows"):
    """Rows of an interactive query: values in PostgreSQL's text format. ``cost``: of the client's credit, one for each
    row and for each 4 kB.
    """

    query: str
    rows: list[list[str | None]]
    cost: int = 1


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """One finished micro-batch. ``sources`` maps relation → {"offset": …, "latest": …, "lag": …, "rows_in": …}.

    ``offset`` and ``latest`` are the next offset and the end, by partition; ``lag`` is the sum of the records between.
    ``durations``: milliseconds of each of Spark's steps. ``began``: when the batch did, in ISO 8601; ``caught_up``: it
    took all that was there then. ``totals``: "batches", "batch_ms", "rows_in", "rows_out" since the query was started.
    """

    query: str
    batch: int
    rows_in: int
    rows_out: int
    rows_per_s: float
    batch_ms: int
    state_rows: int
    state_bytes: int
    late_rows: int
    watermark: str | None
    sources: dict[str, dict[str, Any]]
    bad_records: int = 0
    durations: dict[str, int] = {}
    began: str = ""
    caught_up: bool = False
    totals: dict[str, int] = {}


class Idle(msgspec.Struct, frozen=True, tag="idle"):
    """A look at the query's sources found nothing new at ``began`` (ISO 8601): it has all that was there then."""

    query: str
    began: str


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The query's stream has ended: ``fault`` None after Stop or LIMIT, otherwise why it failed. ``whole``: between two
    batches, so that its last Progress is of all that it wrote.
    """

    query: str
    attempt: int
    fault: Fault | None = None
    whole: bool = False


Request = Analyze | Compile | Start | Stop | More | Shutdown
Event = Preparing | Ready | Executors | Analyzed | Compiled | Failed | Running | Alive | Rows | Progress | Idle | Ended

_encoder = msgspec.msgpack.Encoder()
_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_events: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)


def encode(message: Request | Event) -> bytes:
    """A message as one frame."""
    body = _encoder.encode(message)
    return struct.pack(">I", len(body)) + body


def decode_request(body: bytes) -> Request:
    """A frame's body at the worker's end."""
    return _requests.decode(body)


def decode_event(body: bytes) -> Event:
    """A frame's body at the server's end."""
    return _events.decode(body)
