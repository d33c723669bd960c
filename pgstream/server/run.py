"""Run a statement of ours for a session: its context, the rules of transactions, cancellation, unknown faults.

Owns: what surrounds ``Statement.execute``. An exception that is not a ``PgStreamError`` becomes InternalError here,
the session's edge.
Must not know: which protocol asked. Start reading at ``Runner.cancelable``.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from pgstream.catalog.roles import pg_role
from pgstream.errors import (
    Canceled,
    InFailedTransaction,
    InternalError,
    NotSupported,
    PgStreamError,
    RelayedError,
    StatementTimeout,
)
from pgstream.names import quote_always
from pgstream.server import membership, undecided
from pgstream.server.ask import ask
from pgstream.server.executor import Executor, Here
from pgstream.server.flight import BLOCK, FAILED
from pgstream.server.limits import Limits
from pgstream.statements.base import Column, Context, Result, Statement
from pgstream.tasks import outlast
from pgstream.wire import backend
from pgstream.wire.encodings import CODECS

if TYPE_CHECKING:
    from pgstream.server.session import ClientSession

log = structlog.get_logger(__name__)
T = TypeVar("T")
HERE: Executor = Here()
SUCCESS, CANCELED = "00000", Canceled.sqlstate

READS = frozenset(("LIST", "DESCRIBE", "PRINT", "SELECT", "WITH", "VALUES", "TABLE", "USE", "SHOW", "EXPLAIN", "CAN",
                   "DECLARE", "FETCH", "MOVE", "CLOSE", "COPY"))  # fmt: skip
"""First words of statements that change nothing, so need no warning in a transaction block."""


def as_error(e: BaseException) -> PgStreamError:
    """The error to show for an exception; what is not ours is logged under an id that the client sees."""
    if isinstance(e, PgStreamError):
        return e
    id = uuid.uuid4().hex[:12]
    log.error("internal error", id=id, exc_info=e)
    return InternalError(id=id)


class Runner:
    """Runs statements of one session; ``cancel`` ends the running one."""

    def __init__(self, client: ClientSession) -> None:
        self._client = client
        self.running: asyncio.Task[Any] | None = None
        """A statement of ours, or a part of one that may be cancelled."""

    @property
    def is_running(self) -> bool:
        return self.running is not None

    def cancel(self) -> None:
        if self.running is not None:
            self.running.cancel()

    async def cancelable(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` so that a CancelRequest ends it as Canceled, and PostgreSQL's time limits hold for it."""
        task = self.running = asyncio.create_task(self._limited(work))
        task.add_done_callback(lambda _: work.close())  # canceled before it began
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:  # the session ends
            task.cancel()
            await asyncio.wait({task})
            raise
        finally:
            self.running = None
        if task.cancelled():
            raise Canceled()
        result: T = task.result()
        return result

    async def _limited(self, work: Coroutine[Any, Any, T]) -> T:
        backend = self._client.backend
        limits = await Limits.ask(backend)
        ended: BaseException | None = None
        awake = asyncio.ensure_future(limits.keep_awake(backend)) if limits.idle_s or limits.in_block_s else None
        limit = asyncio.timeout(limits.statement_s or None)
        try:
            async with limit:
                result = await work
        except TimeoutError:
            if limit.expired():
                raise StatementTimeout() from None
            raise
        finally:
            if awake is not None:
                awake.cancel()
                await outlast(awake)
                ended = None if awake.cancelled() else awake.exception()
        # A lost connection ends the session itself.
        if isinstance(ended, RelayedError) and ended.severity != "FATAL":
            raise ended  # it has failed the transaction in which ``work`` was done
        return result

    async def execute(
        self, text: str, statement: Statement, parameters: Sequence[str | None] = (), oids: Sequence[int] = ()
    ) -> Result:
        """Run a statement that was parsed from ``text``."""
        began, sqlstate = time.perf_counter(), CANCELED
        try:
            result = await self._execute(text, statement, parameters, oids)
            sqlstate = SUCCESS
            return result
        except PgStreamError as e:
            sqlstate = e.sqlstate
            raise
        except Exception:
            sqlstate = InternalError.sqlstate
            raise
        finally:
            self._client.listener.counts.ran(type(statement), sqlstate, time.perf_counter() - began)

    def parse(self, text: str, kind: type[Statement]) -> Statement:
        """A statement of ours from its text. Errors: SyntaxFault and its like, with positions."""
        try:
            return self._client.listener.language.parse(text, kind)
        except PgStreamError as e:
            self._client.listener.counts.ran(kind, e.sqlstate, 0.0)
            raise

    async def _execute(
        self, text: str, statement: Statement, parameters: Sequence[str | None], oids: Sequence[int]
    ) -> Result:
        executor = HERE if statement.local else self._client.listener.executor
        before = self._client.has_own_schema
        try:
            return await executor.execute(text, statement, self._context(parameters, oids))
        finally:  # also who fails, or is canceled, may have made something
            if self._client.has_own_schema != before:
                self._client.path.stale = True
            if self._client.context.cursors or self._client.context.undecided:
                self._client.alert = True

    async def describe(
        self, text: str, statement: Statement, parameters: Sequence[str | None], oids: Sequence[int]
    ) -> tuple[Column, ...]:
        """Its output columns, without running it."""
        executor = HERE if statement.local else self._client.listener.executor
        return await executor.describe(text, statement, self._context(parameters, oids))

    def _context(self, parameters: Sequence[str | None] = (), oids: Sequence[int] = ()) -> Context:
        client, listener = self._client, self._client.listener
        return Context(
            config=listener.config,
            session=client.context,
            catalog=listener.catalog,
            engine=listener.engine,
            notice=self._notice,
            use_database=client.use_database,
            use_schema=self._use_schema,
            use_role=self._use_role,
            postgres=self._postgres,
            transaction=lambda what: undecided.transaction(client, what),
            organizations=lambda: membership.mine(client),
            create_organization=lambda name, at=None: membership.create(client, name, at),
            use_organization=lambda name, at=None: membership.use(client, name, at),
            run=lambda text, statement: self.execute(text, statement, parameters, oids),
            cancel_own=lambda pid: listener.cancel_own(pid, client.context.user),
            parameters=parameters,
            parameter_oids=oids,
        )

    def _notice(self, text: str, severity: str = "NOTICE", **fields: Any) -> None:
        codec = self._client.backend.codec
        self._client.write(backend.notice(text, severity=severity, codec=codec, **fields))

    async def _postgres(self, text: str, oids: Sequence[int] = (), given: Sequence[str | None] = ()) -> str | None:
        return await ask(self._client.backend, text, oids, given)

    async def _use_schema(self, name: str) -> None:
        await self._postgres(f"SET search_path TO {quote_always(name)}")
        self._client.context.schema = name

    async def _use_role(self, name: str) -> None:
        await self._postgres(f"SET ROLE {quote_always(pg_role(name))}")
        self._client.context.role = name
        if self._client.flight.status == BLOCK:
            self._client.path.touched = True  # a ROLLBACK takes it back

    def check(self) -> None:
        """Whether a statement of ours may run now. Errors: InFailedTransaction, NotSupported."""
        if self._client.flight.status == FAILED:
            raise InFailedTransaction()
        encoding = self._client.backend.encoding
        if encoding not in CODECS:
            raise NotSupported(
                what=f"client_encoding {encoding} for statements of pgstream", hint="SET client_encoding TO 'UTF8'."
            )

    def warn_transaction(self, text: str, statement: Statement) -> None:
        """Say that a change will outlive a ROLLBACK."""
        if statement.rolls_back:
            return
        head = self._client.listener.language.head(text)
        if self._client.flight.status == BLOCK and head and head[0] not in READS:
            what = " ".join(statement.words) or head[0]
            self._notice(f"{what} takes effect at once and will not be rolled back", severity="WARNING")
