"""One running query: from ``Start`` to a stream in the JVM, and on to its end.

Owns: compiling and starting, the temporary checkpoint of an interactive query, the second run that writes what came
before a bad record. Must not know: the channel, other queries. Start reading at ``RunningQuery.begin``.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
import structlog
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pgstream import traces
from pgstream.engine.channel import Fault, Start
from pgstream.names import FullName, quote_always
from pgstream.planner.plan import (
    Kept,
    Plan,
    RecordSink,
    ResultSink,
    Sinks,
    Source,
    TableSink,
    ViewSink,
    ViewSource,
    ends_apart_ms,
    load,
    outputs,
    readings,
    sources,
)
from pgstream.planner.steps import with_sources
from pgstream.spark import checkpoints, faults
from pgstream.spark.compile import Compiled, Compiler
from pgstream.spark.jdbc import jdbc
from pgstream.spark.records import writing
from pgstream.spark.session import fresh
from pgstream.spark.sources import Sources, face, place
from pgstream.spark.step import Refused, Step
from pgstream.stores import find
from pgstream.stores.spec import LeavingInSpark, RealTimeInSpark

log = structlog.get_logger(__name__)

STOP_GRACE_MS = 3000
FINISH_GRACE_MS = 10_000
"""For a query's last batch: another query may go on from its end."""
LONGEST_PAUSE_S = 10.0
REAL_TIME_BATCH_MS = 30_000
"""How often a query in real time keeps how far it is: what is written again at most after a death, and the time after
which it sees new partitions. Between two batches it reads nothing for a moment."""


_TWO_STORES = Fault(
    "user", "0A000", "two stores of one PostgreSQL database in one application are not supported yet", None,
    "Write its tables through one of the stores.", None,
)  # fmt: skip


_RECORDS_FOR_A_CLIENT = "50000"


class _Whole(Exception):
    """The batch that has failed cannot end earlier."""


def _for_a_client(plan: Plan) -> Plan:
    """Of a SELECT, all rows of a batch are kept until its client takes them: it reads fewer records at a time."""
    if not isinstance(plan.sink, ResultSink):
        return plan

    def fewer(s: Source | ViewSource) -> Source | ViewSource:
        most = {"source.max.records.per.trigger": _RECORDS_FOR_A_CLIENT}
        return msgspec.structs.replace(s, options=most | s.options) if isinstance(s, Source) else s

    return msgspec.structs.replace(plan, root=with_sources(plan.root, fewer))


class RunningQuery:
    """``lock`` is held while the query starts, so that its end is not told before its beginning.

    ``interactive``: folder or URL under which an interactive query has its checkpoint.
    """

    def __init__(self, spark: SparkSession, start: Start, interactive: str, trigger_ms: int) -> None:
        self.start = start
        self.plan: Plan = _for_a_client(load(start.plan))
        self.lock = threading.Lock()
        self.trigger_ms = trigger_ms
        self.temporary = start.checkpoint is None
        self.checkpoint = start.checkpoint or f"{interactive}/{start.query}-{start.attempt}"
        self.spark = spark
        self.forget = False
        self.alive = False
        self.waits = False
        self.stopped = False
        self.failures = 0
        self.limits: dict[str, dict[int, int]] = {topic: dict(at) for topic, at in start.limits.items()}
        jvm: Any = spark._jvm
        self.kernel = jvm.org.apache.spark.sql.pgstream.Kernel

    def begin(self) -> None:
        """Compile the plan and start its stream. Errors: Refused, PgStreamError, Py4J's and Spark's."""
        checkpoints.repair(self.checkpoint)
        self._run(fail_after=None)

    def _run(self, fail_after: Mapping[str, Any] | None) -> None:
        with fresh(self.spark) as session:
            for name, value in self.start.settings.items():
                session.conf.set(name, value)
            session.conf.set("spark.pgstream.windows.every", str(ends_apart_ms(self.plan.root)))
            if self.plan.state_ttl_ms is not None and not any(s.watermark for s in readings(self.plan.root)):
                # Spark would run empty batches all the time, only to look for state that is too old.
                session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
            try:
                self._stream(session, fail_after)
            except Py4JJavaError as e:
                raise Refused(self.fault(json.loads(self.kernel.causes(e.java_exception)))) from None

    def _stream(self, session: SparkSession, fail_after: Mapping[str, Any] | None) -> None:
        reader = self.sources(session)
        compiler = Compiler(session, reader.read, self.start.readers, self.start.stores)
        with traces.span("compile plan"):
            compiled = compiler.compile(self.plan)
        sink = self.sink(compiled)
        if fail_after is not None:
            bad = json.dumps({k: fail_after[k] for k in ("topic", "partition", "offset", "place", "reason")})
            if not (self.temporary or self.kernel.endBefore(session._jsparkSession, json.dumps(sink), bad)):
                raise _Whole
            sink["fail_after"] = bad
        with traces.span("begin stream"):
            self.kernel.start(compiled.step.df._jdf, reader.bad, compiler.late, json.dumps(sink))

    def sources(self, session: SparkSession) -> Sources:
        return Sources(
            session, self.start.stores, self.limits, self.plan.apart, real_time=self.plan.real_time,
            query=self.start.query, attempt=self.start.attempt, databases=self.start.databases,
            shared=[place(found[0]) for found in self.readings() if len(found) > 1],
        )  # fmt: skip

    def again(self, chain: Sequence[Mapping[str, Any]]) -> bool:
        """After a bad record: run the same batch once more up to that record, then fail. False: let it fail now.

        In real time what came before it is written already. What of a batch has been written must not be more later,
        when the record can be read after all: the batch is made to end before it, or fails as a whole.
        """
        if self.plan.real_time:
            return False
        bad = next((link for link in chain if "reason" in link), None)
        if bad is None:
            return False
        known = self.limits.setdefault(str(bad["topic"]), {})
        if known.get(int(bad["partition"]), -1) == int(bad["offset"]):
            return False
        known[int(bad["partition"])] = int(bad["offset"])
        try:
            self._run(fail_after=bad)
        except _Whole:
            return False
        return True

    def pause(self, fault: Fault) -> float | None:
        """Seconds after which this query tries again by itself; None: its end is told.

        The engine starts continuous queries again. An interactive one has nobody else to wait for its store, once it
        has run: its first answer says what is wrong at once.
        """
        if not (self.temporary and fault.kind == "store" and (self.alive or self.failures)):
            return None
        self.failures = 1 if self.alive else self.failures + 1
        self.alive, self.waits = False, True
        return min(LONGEST_PAUSE_S, 0.5 * 2.0**self.failures)

    def resume(self) -> None:
        """Go on where the stream stopped: the batch that failed is repeated."""
        self.waits = False
        self._run(fail_after=None)

    def end(self) -> None:
        """End the stream after its running batch if that ends soon; what it does then is told by an event."""
        self.kernel.stop(self.start.query, FINISH_GRACE_MS if self.forget else STOP_GRACE_MS)

    def clean(self) -> None:
        """Remove the checkpoint of an interactive query, or of one that is forgotten."""
        self.kernel.forget(self.start.query)
        if not (self.forget or self.temporary):
            return
        # Else the server takes it away: it reads there what was left, and where.
        if self._leave() or self.temporary or "://" in self.checkpoint:
            self.kernel.remove(self.checkpoint)

    def _leave(self) -> bool:
        """Take away what the query's sources left in their stores, and whether all of it is; one that is away keeps it,
        and the log says so.
        """
        whole = True
        for source in sources(self.plan.root):
            access = self.start.stores[source.store]
            if not find(access.type).leaves:
                continue
            try:
                cast(LeavingInSpark, face(access.type)).forget(self.spark, source, access, self.checkpoint)
            except Py4JJavaError as e:
                why = str(e.java_exception.getMessage())
                log.warning("left behind", query_id=self.start.query, store=source.store, entity=source.entity, why=why)
                whole = False
        return whole

    def readings(self) -> list[list[Source | ViewSource]]:
        """The plan's sources as Spark counts them: those that are read as one together, in the plan's order."""
        every = readings(self.plan.root)
        if self.plan.apart:
            return [[s] for s in every]
        out: dict[Any, list[Source | ViewSource]] = {}
        for source in every:
            out.setdefault(place(source), []).append(source)
        return list(out.values())

    def fault(self, chain: Sequence[Mapping[str, Any]]) -> Fault:
        names = dict.fromkeys((*(s.store for s in sources(self.plan.root)), *self.start.stores))
        return faults.from_chain(chain, {name: self.start.stores[name].type for name in names})

    def sink(self, compiled: Compiled) -> dict[str, Any]:
        """What the kernel is told about the sink."""
        own = {"query": self.start.query, "attempt": self.start.attempt}
        common = own | {"checkpoint": self.checkpoint, "output_mode": compiled.output_mode,
                        "trigger_ms": self.trigger_ms}  # fmt: skip
        if self.start.ceiling_ms is not None:
            common["ceiling_ms"] = self.start.ceiling_ms
        if self.plan.real_time:
            [source] = sources(self.plan.root)
            access = self.start.stores[source.store]
            common |= {
                "batch_ms": REAL_TIME_BATCH_MS,
                "reads": cast(RealTimeInSpark, face(access.type)).asks(source, access),
            }
        made = [self._one(sink, step) for (_, sink), step in zip(outputs(self.plan), compiled.steps, strict=True)]
        if not isinstance(self.plan.sink, Sinks):
            return common | made[0] | ({"type": "real time"} if self.plan.real_time else {})
        return common | {"type": "outputs", "sinks": [
            {"outputs": numbers, "sink": own | sink} for numbers, sink in together(made)
        ]}  # fmt: skip

    def _one(self, sink: Kept | ResultSink, step: Step) -> dict[str, Any]:
        match sink:
            case ViewSink():
                return self._view(sink)
            case RecordSink():
                return self._records(sink, step)
            case TableSink():
                access = self.start.stores[sink.store]
                return {"mode": sink.mode, "key": sink.key} | face(access.type).write(sink, access)
            case ResultSink():
                return {"type": "result", "limit": sink.limit}

    def _view(self, sink: ViewSink) -> dict[str, Any]:
        full = FullName.read(sink.relation)
        aside = "_r" if self.start.beside else ""
        staging = f"{sink.table.replace('v_', 's_', 1)}{aside}_{self.start.attempt}"
        stores = [s[0].store if isinstance(s[0], Source) else "" for s in self.readings()]
        return {"type": "view", "mode": sink.mode, "key": sink.key, **jdbc(self.start.databases[sink.database]),
                "sources": stores, "relation": sink.relation, "notify": self.start.notify.get(sink.relation, ""),
                "table": self.start.beside or ".".join(quote_always(p) for p in full.path[1:]),
                "staging": f"pg_pgstream.{quote_always(staging)}"}  # fmt: skip

    def _records(self, sink: RecordSink, step: Step) -> dict[str, Any]:
        access = self.start.stores[sink.store]
        # Source rows keep the order of their partition; results of operators are put in event-time order.
        order = "all" if step.stateful else "source" if step.upsert else "runs"
        return {"topic": sink.entity, "mode": sink.mode, "order": order, "together": sink.together,
                "value": writing(sink.value_format, sink.timestamp_format, sink.value_schema,
                                 access.descriptors.get(sink.value_descriptor or "")),
                "key": writing(sink.key_format or "json", sink.timestamp_format, sink.key_schema,
                               access.descriptors.get(sink.key_descriptor or "")),
                "columns": sink.columns, "key_columns": sink.key_columns,
                **face(access.type).write(sink, access)}  # fmt: skip


def together(sinks: Sequence[dict[str, Any]]) -> list[tuple[list[int], dict[str, Any]]]:
    """The sinks of one query with the numbers of their outputs: what lies in one PostgreSQL database is one sink, and
    changes in one transaction. Errors: Refused, for two stores of one database: it has one row for the query's batches.
    """
    out: list[tuple[list[int], dict[str, Any]]] = []
    places: dict[Any, int] = {}
    databases: dict[Any, int] = {}
    for number, sink in enumerate(sinks):
        if "table" not in sink:
            out.append(([number], sink | {"output": number}))
            continue
        own = {k: sink[k] for k in ("mode", "key", "table", "staging", "store", "relation", "notify") if k in sink}
        shared = {k: v for k, v in sink.items() if k not in own}
        place = places.setdefault(json.dumps(shared, sort_keys=True), len(out))
        if databases.setdefault((sink["type"], sink["url"]), place) != place:
            raise Refused(_TWO_STORES)
        if place == len(out):
            out.append(([], shared | {"views": []}))
        out[place][0].append(number)
        out[place][1]["views"].append(own)
    return out
