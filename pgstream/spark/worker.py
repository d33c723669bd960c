"""The worker: takes requests from the channel, runs queries, tells what happens.

Owns: the threads of the process and the table of running queries; one query's failure touches no other.
Must not know: SQL text, the catalogue, clients. Start reading at ``Worker.run``.

Threads: the channel's reader; the main thread, which launches the JVM (the kernel of Linux ties the JVM's life to that
thread) and hands requests out; a few job threads, on which requests of one query run in their order; one that waits in
the JVM for events.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, TypeVar

import pyspark
import structlog
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pgstream import traces
from pgstream.embedded.archive import Archive
from pgstream.engine.channel import (
    Alive,
    Analyze,
    Analyzed,
    Compile,
    Compiled,
    Ended,
    Executors,
    Failed,
    Fault,
    Idle,
    More,
    Preparing,
    Ready,
    Request,
    Rows,
    Running,
    Shutdown,
    Start,
    Stop,
)
from pgstream.errors import PgStreamError, UnusableSchema
from pgstream.planner.plan import load
from pgstream.spark import events, faults, jvm, trial
from pgstream.spark.channel import Channel
from pgstream.spark.compile import Compiler
from pgstream.spark.query import RunningQuery
from pgstream.spark.session import fresh, open_session
from pgstream.spark.settings import Settings
from pgstream.spark.sources import Sources
from pgstream.spark.step import Refused, columns

log = structlog.get_logger(__name__)

_PREFIX = "pgstream-worker-"
_POLL_MS = 500
_JOBS = 8
_SETTLED_S = 60
_EXECUTORS_S = 5
KILLED = 128 + signal.SIGKILL
Asked = TypeVar("Asked", Analyze, Compile, Start)
# Less than the server waits for us (its setting ``shutdown_grace_s``, 5 s).
SHUTDOWN_GRACE_MS = 3000


class Worker:
    """One pool's process."""

    def __init__(self, connection: socket.socket, settings: Settings) -> None:
        self.settings = settings
        self.channel = Channel(connection, self.die)
        self.folder = _own_folder()
        self.interactive = str(self.folder / "interactive")
        self.process: subprocess.Popen[bytes] | None = None
        self.queries: dict[str, RunningQuery] = {}
        self.jobs = ThreadPoolExecutor(_JOBS, thread_name_prefix="job")
        self.last: dict[str, Future[None]] = {}
        self.dying = False
        self.litter = False
        self.archive: Archive
        self.spark: SparkSession

    def run(self) -> None:
        """Serve until Shutdown. The end of the channel, or of the JVM, ends the process from its own thread."""
        self.channel.start()
        self.archive = Archive(self.settings.java, jvm.class_path(self.settings, self._preparing), self.settings.cache)
        self.process = jvm.launch(self.settings, self.folder, self.archive.flags())
        threading.Thread(target=self._guard, name="guard", daemon=True).start()
        self.spark = open_session(self.settings, self.folder)
        gc.collect()
        gc.freeze()  # what is here now stays: `_sweep` need not look at it
        self.kernel: Any = self.spark._jvm.org.apache.spark.sql.pgstream.Kernel
        if not self.settings.in_one_jvm and self.settings.checkpoints:
            self.interactive = self._shared()
        threading.Thread(target=self._tell, name="events", daemon=True).start()
        java = str(self.spark._jvm.System.getProperty("java.version"))
        log.info("spark session ready", spark=pyspark.__version__, java=java, python=platform.python_version())
        self.channel.send(Ready(pyspark.__version__, java, os.getpid()))
        if not self.settings.in_one_jvm:
            threading.Thread(target=self._count_executors, name="executors", daemon=True).start()
        while True:
            request = self.channel.requests.get()
            if isinstance(request, Shutdown):
                self.shutdown()
            self.hand_out(request)

    def _shared(self) -> str:
        """Where executors, too, reach the checkpoints of interactive queries: a folder of this process. Those of dead
        workers of this machine are swept.
        """
        base, here = f"{self.settings.checkpoints}/interactive", f"{socket.gethostname()}-"
        for other in self.kernel.list(base):
            pid = other.removeprefix(here)
            if other.startswith(here) and pid.isdigit() and (int(pid) == os.getpid() or not _is_alive(int(pid))):
                self.kernel.remove(f"{base}/{other}")
        return f"{base}/{here}{os.getpid()}"

    def _preparing(self, what: str) -> None:
        self.channel.send(Preparing(what))

    def hand_out(self, request: Request) -> None:
        """Run a request on a job thread, after those of the same query before it."""
        match request:
            case Analyze():
                self.jobs.submit(self._edge, lambda: self.traced("analyze", self.analyze, request))
            case Compile():
                self.jobs.submit(self._edge, lambda: self.traced("compile", self.compile, request))
            case Start():
                self.after(request.query, lambda: self.traced("start stream", self.start, request))
            case Stop():
                self.after(request.query, lambda: self.stop(request))
            case More():
                self.after(request.query, lambda: self.kernel.more(request.query, request.credit))

    def after(self, query: str, job: Callable[[], None]) -> None:
        before = self.last.get(query)

        def run() -> None:
            if before is not None:
                wait([before])
            self._edge(job)

        self.last[query] = self.jobs.submit(run)
        for done in [q for q, f in self.last.items() if f.done() and q not in self.queries]:
            del self.last[done]

    def _edge(self, job: Callable[[], None]) -> None:
        """A job's failure is logged and ends there."""
        try:
            job()
        except Exception:
            if not self.dying:
                log.exception("request failed")

    # Requests

    def traced(self, name: str, job: Callable[[Asked], None], request: Asked) -> None:
        """Run a job as a part of the trace that asks for it."""
        said = {traces.QUERY_ID: request.query} if isinstance(request, Start) else {}
        with traces.joined(name, said, request.trace):
            job(request)

    def failed(self, id: int, fault: Fault) -> None:
        traces.fail(fault.sqlstate)
        self.channel.send(Failed(id, fault))

    def analyze(self, request: Analyze) -> None:
        try:
            plan = load(request.plan)
            with fresh(self.spark) as session:
                analyzed = columns(Compiler(session, Sources(session, None, {}).read).compile(plan).step)
            self.channel.send(Analyzed(request.id, analyzed))
        except Exception as e:
            self.failed(request.id, self._fault(e))
        self.litter = True

    def compile(self, request: Compile) -> None:
        try:
            jvm: Any = self.spark._jvm
            text = jvm.org.apache.spark.sql.pgstream.ProtobufText
            asked = {"text": request.text, "refers": request.refers}
            self.channel.send(Compiled(request.id, text.compiled(json.dumps(asked))))
        except Py4JJavaError as e:
            why = UnusableSchema(why=str(e.java_exception.getMessage()))
            self.failed(request.id, faults.fault("user", why))
        except Exception as e:
            self.failed(request.id, self._fault(e))

    def start(self, request: Start) -> None:
        try:
            if (old := self.queries.get(request.query)) is not None:
                old.end()
            query = RunningQuery(self.spark, request, self.interactive, self.settings.trigger_ms)
            with query.lock:
                self.queries[request.query] = query
                query.begin()
                self.channel.send(Running(request.query, request.attempt))
            log.info("stream started", query_id=request.query, attempt=request.attempt)
        except Exception as e:
            failed = self.queries.pop(request.query, None)
            if failed is not None:
                self._edge(failed.clean)
            fault = self._fault(e)
            traces.fail(fault.sqlstate)
            log.warning("query not started", query_id=request.query, error=fault.message)
            self.channel.send(Ended(request.query, request.attempt, fault))
            self.litter = True

    def stop(self, request: Stop) -> None:
        query = self.queries.get(request.query)
        if query is None:
            self.channel.send(Ended(request.query, 0))
            return
        query.forget = request.forget
        with query.lock:
            query.stopped = True  # else one that ends by itself at this moment might begin again
            waits, query.waits = query.waits, False
        if waits:
            self.over(query, None)
        else:
            query.end()

    def _fault(self, e: Exception) -> Fault:
        match e:
            case Refused():
                return e.fault
            case PgStreamError():
                return faults.fault("user", e)
            case PySparkException():
                return faults.from_analysis(e.getCondition(), e.getMessage() or str(e))
            case _:
                log.error("unexpected failure", exc_info=e)
                return Fault("engine", "XX000", f"the query could not be started: {faults.sentence(str(e))[:500]}")

    # Events

    def _tell(self) -> None:
        while True:
            try:
                told = json.loads(self.kernel.poll(_POLL_MS))
            except Py4JJavaError as e:
                log.error("spark ended", why=str(e.java_exception.getMessage()))
                self.die(1)
            except (Py4JError, OSError):
                self.die()
            for event in told:
                self._edge(lambda event=event: self._one(event))  # type: ignore[misc]
            self._sweep()

    def _count_executors(self) -> None:
        """Tell when there has been work, and no executor for it, at two looks, and when that is over."""
        tracker: Any = self.spark.sparkContext._jsc.sc().statusTracker()
        told = before = False
        while True:
            time.sleep(_EXECUTORS_S)
            try:
                # The driver is one of them; where executors come and go with the work, none is what there should be.
                wanted = len(tracker.getExecutorInfos()) < 2 and len(tracker.getActiveJobIds()) > 0
            except (Py4JError, OSError):
                return  # the JVM's end is for others to see
            if told != (wanted and before):
                told = not told
                self.channel.send(Executors(told))
            before = wanted

    def _sweep(self) -> None:
        """A query's session has Java objects, and stands in cycles of Python: Java's go when those are collected."""
        if self.litter:
            self.litter = False
            gc.collect()

    def _one(self, event: Mapping[str, Any]) -> None:
        query = self.queries.get(event["query"])
        if query is None:
            return
        match event["type"]:
            case "alive":
                query.alive = True
                self.channel.send(Alive(event["query"], event["attempt"]))
            case "rows":
                self.channel.send(Rows(event["query"], event["rows"], event["cost"]))
            case "progress":
                log.debug("batch", query_id=event["query"], batch=event["batch"], **event["durations"])
                told = events.progress(event, query.readings())
                self.channel.send(told)
                events.trace(told, query.start.origin)
            case "idle":
                self.channel.send(Idle(event["query"], event["began"]))
            case "ended":
                self.jobs.submit(self._edge, lambda: self.ended(query, event))

    def ended(self, query: RunningQuery, event: Mapping[str, Any]) -> None:
        chain = [] if event["asked"] else event["chain"]
        with query.lock:
            if query.start.attempt != event["attempt"]:
                return
            try:
                if chain and not query.stopped and query.again(chain):
                    self.litter = True
                    return
                fault = query.fault(chain) if chain else None
            except Exception as e:  # its end is told whatever became of its reason
                fault = self._fault(e)
        if fault is not None and fault.sqlstate == "XX000":
            log.error("unexpected failure", query_id=query.start.query, stack=event.get("trace"))
        self.over(query, fault, whole=event["whole"])

    def over(self, query: RunningQuery, fault: Fault | None, *, whole: bool = False) -> None:
        """A query's stream has ended: told, unless the query waits here for its store."""
        id = query.start.query
        if fault is not None:
            log.warning("query failed", query_id=id, kind=fault.kind, error=fault.message)
            with query.lock:
                if (pause := query.pause(fault)) is not None:
                    later = threading.Timer(pause, lambda: self.after(id, lambda: self.resume(query)))
                    later.daemon = True
                    later.start()
                    self.litter = True
                    return
        if self.queries.get(id) is query:
            del self.queries[id]
        self._edge(query.clean)
        self.channel.send(Ended(id, query.start.attempt, fault, whole))
        self.litter = True

    def resume(self, query: RunningQuery) -> None:
        """Run an interactive query again after its pause, unless its client is gone."""
        try:
            with query.lock:
                if query.waits:
                    query.resume()
        except Exception as e:
            self.over(query, self._fault(e))

    # Ends

    def shutdown(self) -> None:
        """End between batches. A batch that takes longer is repeated at the next start: the sinks know what they have.

        Streams are not stopped: that would interrupt what they do, and they would complain.
        """
        with contextlib.suppress(Py4JError):
            if not self.kernel.quiesce(SHUTDOWN_GRACE_MS):
                log.info("ending in the middle of a batch")
        traces.close()
        self.die()

    def _guard(self) -> None:
        """The JVM's end is the worker's; the exit code says whether it was killed.

        A worker that has lived for a while makes the archive that is missing, from here: as Linux sees it, a child
        ends with the thread that started it.
        """
        assert self.process is not None
        try:
            code = self.process.wait(_SETTLED_S)
        except subprocess.TimeoutExpired:
            if not self.archive.made:
                trial.begin()
            code = self.process.wait()
        if not self.dying:  # else it was ended by who ends the worker, too
            log.error("the JVM ended", code=code)
            self.die(KILLED if code in (-signal.SIGKILL, KILLED) else 1)

    def die(self, code: int = 0) -> None:
        """End now, JVM included: state and sinks are safe at any moment."""
        self.dying = True
        if self.process is not None:
            with contextlib.suppress(OSError):
                self.process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        os._exit(code)


def _own_folder() -> Path:
    """A folder for temporary files, named after the process; those of dead workers are swept."""
    base = Path(tempfile.gettempdir())
    for other in base.glob(_PREFIX + "*"):
        pid = other.name.removeprefix(_PREFIX).split("-")[0]
        if pid.isdigit() and not _is_alive(int(pid)):
            shutil.rmtree(other, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=base))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
