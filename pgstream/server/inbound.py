"""What a client sends: each message is PostgreSQL's, and relayed as it lies, or begins an answer of ours.

Owns: the walk over a client's bytes, whose each message is, and what waits while a message of ours is answered.
Must not know: transports, how statements of ours are answered (``simple``, ``extended``).
Start reading at ``Inbound.pump``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from pgstream.catalog.roles import pg_role
from pgstream.errors import Canceled, InvalidEncoding, PgStreamError, ProtocolViolation, UndefinedPortal
from pgstream.server import search_path, shapes, simple, undecided
from pgstream.server.ask import ask, ask_json
from pgstream.server.flight import BLOCK, FAILED, IDLE, QUERY, SYNC
from pgstream.server.language import Piece
from pgstream.server.run import CANCELED, as_error
from pgstream.server.settled import has_numbers_only, query_key
from pgstream.sql import system_names
from pgstream.statements import system_tables
from pgstream.statements.base import Statement
from pgstream.statements.system_tables import CopySystemTables
from pgstream.wire import backend as messages
from pgstream.wire import frontend
from pgstream.wire.framing import SMALL_LIMIT, check_client_header, header

if TYPE_CHECKING:
    from pgstream.server.session import ClientSession

PARSE, FLUSH = b"PH"
COPY_DATA, COPY_DONE, COPY_FAIL, TERMINATE, FUNCTION_CALL = b"dcfXF"
BIND, EXECUTE = b"BE"
NAMING = frozenset(b"BDEC")
PORTALS = frozenset((BIND, EXECUTE))
"""Messages that begin with a portal's name."""
COPYING = frozenset(b"dcfHS")
SIMPLE = frozenset((QUERY, FUNCTION_CALL))
ANSWERED = NAMING | SIMPLE | {PARSE}
"""Messages whose answer an error can be."""
LOOKED_AT = 1 << 18
"""Characters of a text. Of a longer one only the begin is looked at, and what it does is asked afterwards: nobody else
is served meanwhile, and PostgreSQL's may be a gigabyte long."""
log = structlog.get_logger(__name__)


class Inbound:
    """One client's bytes. ``waiting``: those behind a message of ours that is being answered, and parts of messages.
    ``bound``: a Bind of the unnamed portal was relayed since the last Query or Sync.
    """

    def __init__(self, client: ClientSession) -> None:
        self._client = client
        self.waiting: bytes | bytearray = b""
        self.bound = False
        self._passing = 0  # rest of a relayed message whose begin has been relayed
        self._skipping = False  # after an error of ours, to the next Sync
        self.left = False  # PostgreSQL was told goodbye, and answers what came before
        self._following = False  # PostgreSQL is asked what the client will not see
        self._inside = False  # and that in the middle of a Query
        self._canceled = False  # a cancel request came meanwhile
        self._uncopied = False  # the database could not get its copy of the system tables

    @property
    def whole(self) -> bool:
        """Whether PostgreSQL was sent whole messages only, and may be sent more."""
        return not (self._passing or self._skipping or self.left)

    def pump(self, data: bytes | bytearray) -> None:
        """Relay runs of PostgreSQL's messages as they lie; stop at one of ours, or at a part of a message."""
        # Runs for every chunk of every client: locals, and no calls on the common path.
        client = self._client
        if self.left:
            return
        flight, end, begin, pos = client.flight, len(data), 0, self._passing
        named = bool(client.extended.prepared or client.extended.portals or client.alert)
        clean = not (pos or named or self._skipping or flight.copying)
        if clean:
            shape = shapes.requests.get(end)
            if (shape is not None and shape[0](data) == shape[1]) or self._passes(data, end):
                flight.pending.append(QUERY if data[0] == QUERY else SYNC)
                flight.open = 0
                self.bound = False
                self.waiting = b""  # of which data may consist
                client.backend.write(data)
                return
        behind, bound = 0, self.bound  # behind the last text lie messages of which the layout may be kept
        if flight.copying:
            pos = self._feed_copy(data, pos)
        while end - pos >= 5:
            kind, length = header(data, pos)
            after = pos + length + 1
            if not 4 <= length <= SMALL_LIMIT:
                check_client_header(kind, length)
            if self._skipping and kind not in (SYNC, TERMINATE):
                if after > end:
                    break
                self._relay(data, begin, pos)
                begin = pos = after
                continue
            if kind in NAMING:
                if named:
                    if after > end:
                        break
                    if self._own_naming(kind, data, pos, begin):
                        return
                if kind in PORTALS and length > 4:
                    if pos + 5 >= end:
                        break
                    if not data[pos + 5]:
                        if kind == EXECUTE and not self.bound:
                            if after > end:
                                break
                            self._hold(data, begin, pos, after)
                            client.begin(self._execute_unbound(bytes(data[pos:after])))
                            return
                        self.bound = True
                flight.open += 1
            elif kind == SYNC:
                self._skipping = self.bound = False
                flight.sent(SYNC)
            elif kind in (QUERY, PARSE):
                if after > end:
                    break
                if kind == QUERY:
                    self.bound = False
                if not (clean and self._is_postgres(kind, data, pos, after)):
                    read = self._system_names(kind, data, pos, after)
                    if read is None:
                        self._hold(data, begin, pos, pos)
                        client.begin(self._copy_system_tables())
                        return
                    data = read
                    if self._own_text(kind, data, pos, begin):
                        return
                behind, bound = after, self.bound
                if kind == PARSE:
                    flight.open += 1
                else:
                    flight.sent(QUERY)
            elif kind in (COPY_DONE, COPY_FAIL):
                flight.copy_ended()
            elif kind == FUNCTION_CALL:
                self.bound = False
                if flight.open:
                    if after > end:
                        break
                    self._hold(data, begin, pos, after)
                    client.begin(self._relay_call(bytes(data[pos:after])))
                    return
                flight.sent(QUERY)
            elif kind == TERMINATE:
                self._leave(data, begin, pos)
                return
            elif kind == FLUSH:
                if length != 4:  # to PostgreSQL an error after which it skips to Sync, where no answer is due
                    raise ProtocolViolation(what="invalid message length")
            elif kind != COPY_DATA:
                raise ProtocolViolation(what=f"invalid frontend message type {kind}")
            pos = after
        if pos >= end:
            self._passing, self.waiting = pos - end, b""
            client.backend.write(data[begin:] if begin else data)
            if clean and behind < pos == end <= shapes.LONGEST and not bound:
                shapes.learn(shapes.requests, data[behind:], NAMING, SYNC, PORTALS)
        else:
            # As it lies when nothing came before it: a long message comes in thousands of chunks.
            self._passing, self.waiting = 0, data[pos:] if pos else data
            self._relay(data, begin, pos)

    async def _execute_unbound(self, message: bytes) -> None:
        """An Execute of the unnamed portal that nothing was bound to since the last Query or Sync.

        In a failed block PostgreSQL (16.14) may still have the portal of the Query that failed, whose plan it has
        freed: its process dies of signal 11, and all sessions with it. Where it has none it says what is said here.
        """
        client = self._client
        if not await client.catch_up():
            client.eat(message)
        elif client.flight.status != FAILED:
            client.flight.open += 1
            client.backend.write(message)
        else:
            client.report(UndefinedPortal(name=""))
            self._skipping = True

    def _leave(self, data: bytes | bytearray, begin: int, pos: int) -> None:
        """The client says goodbye, perhaps before it has its answers: PostgreSQL gives them, and then closes."""
        client = self._client
        if client.flight.caught_up:
            self._relay(data, begin, pos)
            client.end()
        else:
            self.left, self.waiting = True, b""
            client.backend.write(data[begin:pos] + frontend.TERMINATE)

    def _passes(self, data: bytes | bytearray, end: int) -> bool:
        """Whether a chunk is a Query of PostgreSQL's, or a Parse of its before messages laid out as others were.

        Only while nothing of ours is held or awaited.
        """
        kind = data[0] if end >= 5 else 0
        if kind not in (QUERY, PARSE):
            return False
        after = header(data)[1] + 1
        if kind == QUERY:
            return after == end and self._is_postgres(QUERY, data, 0, end)
        if after >= end or not self._is_postgres(PARSE, data, 0, after):
            return False
        shape = shapes.requests.get(end - after)
        return shape is not None and shape[0](data, after) == shape[1]

    def is_settled(self, data: bytes, pos: int) -> bool:
        """Whether the Query or Parse at a place is PostgreSQL's at a glance, of a session that was lent."""
        return self._is_text_of_postgres(data[pos], data, pos, pos + header(data, pos)[1] + 1)

    def _is_postgres(self, kind: int, data: bytes | bytearray, pos: int, after: int) -> bool:
        """Whether a Query or Parse is PostgreSQL's at a glance, while nothing of ours is held or awaited."""
        client = self._client
        if client.path.stale or client.cursors.doubtful or (kind == QUERY and client.flight.open):
            return False
        return self._is_text_of_postgres(kind, data, pos, after)

    def _is_text_of_postgres(self, kind: int, data: bytes | bytearray, pos: int, after: int) -> bool:
        listener, message = self._client.listener, data[pos:after]
        if not isinstance(message, bytes):
            message = bytes(message)
        snapshot = listener.catalog.snapshot
        key = message if kind == PARSE else query_key(message)
        if key is not None and key in listener.settled.known(snapshot):
            return True
        begin, end = _text(kind, data, pos, after)
        text = data[begin:end]
        found = listener.language.is_postgres(text, snapshot)
        if found and key is not None and (kind == PARSE or has_numbers_only(text)):
            listener.settled.add(key, snapshot)
        return found

    def _system_names(self, kind: int, data: bytes | bytearray, pos: int, after: int) -> bytes | bytearray | None:
        """The data with PostgreSQL's names of system tables in a text; None: the database has no copy of them yet."""
        begin, end = _text(kind, data, pos, after)
        text = bytes(data[begin:end])
        if system_names.MARK not in text.lower():
            return data
        client = self._client
        renamed = system_names.of_letters(text, client.backend.encoding, system_tables.renamed)
        if renamed == text:
            return data
        if client.context.database in client.listener.snapshot.system_copies:
            return bytes(data[:begin]) + renamed + bytes(data[end:])
        if client.context.database not in client.listener.snapshot.databases or self._uncopied:
            self._uncopied = False
            return data
        return None

    async def _copy_system_tables(self) -> None:
        try:
            await self._client.runner.execute("", CopySystemTables())
        except PgStreamError as e:
            if e.sqlstate == CANCELED:  # which was meant for the text that waits; the next one begins anew
                await self._fail_first(e)
                return
            self._uncopied = True  # the text is refused with a sentence
            log.warning("system tables not copied", database=self._client.context.database, error=e.text)

    def _relay(self, data: bytes | bytearray, begin: int, end: int) -> None:
        if begin < end:
            self._client.backend.write(data if begin == 0 and end == len(data) else data[begin:end])

    def _feed_copy(self, data: bytes | bytearray, pos: int) -> int:
        """While PostgreSQL wants COPY data: where the messages end that it takes as such. Another one ends the COPY
        with an error, whoever's it would be.
        """
        flight, end = self._client.flight, len(data)
        while flight.copying and end - pos >= 5:
            kind, length = header(data, pos)
            check_client_header(kind, length)
            if kind == TERMINATE:
                break
            if kind in (COPY_DONE, COPY_FAIL):
                flight.copy_ended()
            elif kind not in COPYING:
                flight.copying = False
            pos += length + 1
        return pos

    def _own_naming(self, kind: int, data: bytes | bytearray, pos: int, begin: int) -> bool:
        """A Bind, Describe, Execute or Close while we hold statements: begin its answer if it is ours."""
        after = pos + header(data, pos)[1] + 1
        try:
            message = frontend.decode(kind, bytes(data[pos + 5 : after]))
        except (ProtocolViolation, InvalidEncoding):
            return False  # PostgreSQL refuses it, unless it skips it
        if isinstance(message, frontend.Bind) and self._client.must_follow and self._behind():
            self._ask_first(data, begin, pos)
            return True
        if not self._client.extended.is_ours(message):
            if isinstance(message, frontend.Bind):
                self._client.path.bound(message.statement)
            if not isinstance(message, frontend.Bind) or message.portal or "" not in self._client.extended.portals:
                return False
            if not self._client.flight.open:
                self._forget(statement=False)
                return False
            self._hold(data, begin, pos, after)
            self._client.begin(self._relay_late(bytes(data[pos:after]), statement=False))
            return True
        if self._behind(own=not isinstance(message, frontend.Close)):
            self._ask_first(data, begin, pos, own=True)
            return True
        self._hold(data, begin, pos, after)
        self._client.begin(self._answer_extended(message, None, bytes(data[pos:after])))
        return True

    def _behind(self, *, own: bool = False) -> bool:
        """Whether what we know of PostgreSQL's session may be wrong, and PostgreSQL can be asked. ``own``: a statement
        of ours goes by it, so nothing is taken for granted but what PostgreSQL has just said.
        """
        client, flight = self._client, self._client.flight
        if not (client.path.stale or client.cursors.doubtful or (own and not self._is_sure)):
            return False
        failed = flight.status == FAILED or flight.failed
        if own and failed and not flight.caught_up:  # what is under way may end that
            return not client.backend.closed.done()
        return not failed

    @property
    def _is_sure(self) -> bool:
        """Nothing was relayed since PostgreSQL was asked what is in force."""
        client = self._client
        return client.asked == client.relayed and client.flight.caught_up

    def _ask_first(self, data: bytes | bytearray, begin: int, pos: int, *, own: bool = False) -> None:
        """The message at a place waits until PostgreSQL has been asked."""
        self._hold(data, begin, pos, pos)
        self._client.begin(self.follow_ahead(own=own))

    def _may_be_ours(self, kind: int, data: bytes | bytearray, pos: int, after: int) -> bool:
        """Whether a text names a stream while it is not known in which schema the session looks for it."""
        client = self._client
        if client.path.known:
            return False
        return client.listener.snapshot.mentions(self._looked_at(kind, data, pos, after))

    def _looked_at(self, kind: int, data: bytes | bytearray, pos: int, after: int) -> str:
        """The begin of the text of a Query or Parse."""
        begin, end = _text(kind, data, pos, after)
        text = bytes(data[begin : min(end, begin + LOOKED_AT)])
        return text.decode(self._client.backend.codec, "replace")

    def _sets(self, text: str) -> bool:
        """Whether a text begins with a SET, whose names are no relations. PostgreSQL is not asked before it: a question
        is a query, before which SET TRANSACTION ISOLATION LEVEL has to come.
        """
        return self._client.listener.language.head(text)[:1] == ("SET",)

    def _own_text(self, kind: int, data: bytes | bytearray, pos: int, begin: int) -> bool:
        """A Query or Parse: begin its answer if it holds a statement of ours."""
        named = self._client.extended.prepared or self._client.extended.portals
        after = pos + header(data, pos)[1] + 1
        unknown = self._may_be_ours(kind, data, pos, after)
        if self._behind(own=unknown) and not self._sets(self._looked_at(kind, data, pos, after)):
            self._ask_first(data, begin, pos, own=unknown)
            return True
        if kind == QUERY:
            raw = bytes(data[pos + 5 : after - 1])
            pieces = self._pieces(raw)
            if pieces is not None and pieces[0].kind is not None and self._behind(own=True):
                self._ask_first(data, begin, pos, own=True)
                return True
            if pieces is None and not self._client.flight.open:
                if named:
                    self._forget()
                return False
            self._hold(data, begin, pos, after)
            self._client.begin(self._relay_query(raw) if pieces is None else simple.answer(self._client, pieces, raw))
            return True
        try:
            message = frontend.decode_parse(bytes(data[pos + 5 : after]))
        except (ProtocolViolation, InvalidEncoding):
            return False
        found = self.recognize(message.text.decode(self._client.backend.codec, "replace"), message.name)
        if found is None:
            if message.name or "" not in self._client.extended.prepared:
                return False
            if not self._client.flight.open:
                self._forget(portal=False)
                return False
            self._hold(data, begin, pos, after)
            self._client.begin(self._relay_late(bytes(data[pos:after]), portal=False))
            return True
        if self._behind(own=True):
            self._ask_first(data, begin, pos, own=True)
            return True
        self._hold(data, begin, pos, after)
        self._client.begin(self._answer_extended(message, found, bytes(data[pos:after])))
        return True

    def _hold(self, data: bytes | bytearray, begin: int, pos: int, after: int) -> None:
        """Relay what came before a message of ours, keep what comes after it."""
        self._relay(data, begin, pos)
        self._passing, self.waiting = 0, data[after:]

    async def follow_ahead(self, *, own: bool = False) -> None:
        """``follow`` before the message that waits, or comes meanwhile: an error is that one's. Without one nobody is
        told, and PostgreSQL is asked again before the next.
        """
        try:
            await self.follow(inside=False, own=own)
        except Exception as e:  # the session's edge
            await self._fail_first(as_error(e))

    async def follow(self, *, inside: bool = True, own: bool = False) -> None:
        """What is unqualified in our statements lies where it does in PostgreSQL's, and our cursors are its own.

        ``inside``: in the middle of a Query. ``own``: before a statement of ours, whatever was noticed. Errors:
        Canceled, if the statement that waits for this was to be canceled; those of the questions, which then failed the
        transaction that is open.
        """
        client, flight = self._client, self._client.flight
        if not await client.catch_up() or flight.status == FAILED:
            return  # PostgreSQL answers nothing in a failed block, nor do we: it is asked after it
        self._following, self._inside, self._canceled = True, inside, False
        try:
            try:
                await self._follow(own)
            except PgStreamError as e:
                if e.sqlstate != CANCELED or flight.status != IDLE or flight.open:
                    raise
                await self._follow(own)  # what ended the question has not failed a transaction of the client's
        finally:
            self._following = False
        if self._canceled:
            raise Canceled()

    async def _follow(self, own: bool) -> None:
        client = self._client
        ask_anyway = own and not self._is_sure
        if client.cursors.doubtful or (ask_anyway and any(client.extended.prepared)):
            try:
                await client.cursors.settle()
                await undecided.settle(client)
            except BaseException:
                client.cursors.doubtful = True
                raise
        if client.path.stale or ask_anyway:
            client.path.stale = False
            try:
                await self._follow_path()
                client.path.known, client.asked = True, client.relayed
            except BaseException:
                client.path.stale = True
                raise

    def cancel(self) -> bool:
        """A CancelRequest came; whether it met a question of ours. Then it is for the statement that waits for that.

        PostgreSQL: between two statements it does nothing.
        """
        if self._following and (self._inside or self._first() is not None):
            self._canceled = True
        return self._following

    def _first(self) -> int | None:
        """The kind of the message that waits first, if it is whole and an error can be its answer."""
        if len(self.waiting) < 5:
            return None
        kind, length = header(self.waiting)
        return kind if kind in ANSWERED and len(self.waiting) > length else None

    async def _fail_first(self, e: PgStreamError) -> None:
        """Answer the message that waits first with an error, as PostgreSQL would in the middle of it."""
        client, kind = self._client, self._first()
        if kind is None:
            log.info("not followed", error=e.text)
            return
        self.waiting = self.waiting[header(self.waiting)[1] + 1 :]
        client.report(e)
        if e.severity == "FATAL":
            return
        if kind in SIMPLE:
            await client.fail_transaction(extended=client.flight.open > 0)
            await client.own_ready()
        else:
            await client.fail_transaction(extended=True)
            self._skipping = True

    async def _follow_path(self) -> None:
        client, context = self._client, self._client.context
        schema, role, path = await self._in_force()
        if role == context.user:
            # DISCARD ALL, for one, leaves a session without a role, and so without rights.
            await ask(client.backend, "RESET ROLE")
            schema, role, path = await self._in_force()
        own = client.has_own_schema and search_path.with_own_schema(path, context.user)
        if own:
            # In a transaction for it alone: whether the path is for longer is seen, and followed, when it has ended.
            local = client.flight.status == BLOCK or client.flight.open > 0
            if local:
                client.path.touched = client.alert = True
            await ask(client.backend, search_path.change(own, local=local))
            schema, role, _ = await self._in_force()
        context.schema = schema or "public"
        if role != pg_role(context.role):  # one that the user has lost meanwhile stays, and is refused
            context.role = client.listener.snapshot.role_of(context.user, role)

    async def _in_force(self) -> tuple[str | None, str, str]:
        schema, role, path = await ask_json(self._client.backend, search_path.QUESTION)
        return schema, role, path

    def recognize(self, text: str, name: str | None = None) -> type[Statement] | None:
        """The class of a statement of ours; ``name`` is that of a prepared statement."""
        client = self._client
        looked_at = text[:LOOKED_AT]
        kind = client.listener.language.recognize(looked_at, client.listener.snapshot, client.context)
        if kind is None:
            changes = client.path.saw(looked_at, whole=len(text) <= LOOKED_AT)
            if changes:
                client.alert = True
            if not client.context.temporary and search_path.may_make_temporary(looked_at):
                client.context.temporary = True
            if name is not None and (changes or client.path.statements):
                client.path.parsed(name, changes)
            if client.alert or client.extended.prepared:
                client.cursors.saw(looked_at, whole=len(text) <= LOOKED_AT)
        elif name is not None:
            client.path.parsed(name, False)  # one of PostgreSQL's had the name before
        return kind

    async def recognize_now(self, text: str) -> type[Statement] | None:
        """``recognize`` in the middle of a Query, behind what has run of it. Errors: those of ``follow``."""
        if not self._sets(text):
            await self.follow()
        kind = self.recognize(text)
        if kind is not None and not self._is_sure:
            await self.follow(own=True)
            kind = self.recognize(text)
        return kind

    def _pieces(self, raw: bytes) -> list[Piece] | None:
        """The statements of a Query; None when all are PostgreSQL's."""
        text = raw.decode(self._client.backend.codec, "replace")
        if len(text) > LOOKED_AT or ";" not in text[:-1]:
            kind = self.recognize(text)
            pieces = [Piece(text, 0, kind)]
        else:
            pieces = [Piece(part, at, self.recognize(part)) for part, at in self._client.listener.language.split(text)]
        # A path set by one statement decides whose the next one is.
        mixed = any(piece.kind for piece in pieces) or (len(pieces) > 1 and self._client.path.stale)
        return pieces if mixed else None

    async def _relay_query(self, raw: bytes) -> None:
        """A Query after messages without Sync: if one of those fails, PostgreSQL discards it."""
        message = messages.message(b"Q", raw + b"\0")
        if await self._client.catch_up():
            self._forget()
            self._client.flight.sent(QUERY)
            self._client.backend.write(message)
        else:
            self._client.eat(message)

    async def _relay_call(self, message: bytes) -> None:
        """A FunctionCall after messages without Sync."""
        if await self._client.catch_up():
            self._client.flight.sent(QUERY)
            self._client.backend.write(message)
        else:
            self._client.eat(message)

    async def _relay_late(self, message: bytes, **forgets: bool) -> None:
        """A Parse or Bind that takes an unnamed place from ours, unless PostgreSQL skips it after an error."""
        if await self._client.catch_up():
            self._forget(**forgets)
            self.bound |= message[0] == BIND
            self._client.flight.open += 1
            self._client.backend.write(message)
        else:
            self._client.eat(message)

    def _forget(self, *, statement: bool = True, portal: bool = True) -> None:
        """PostgreSQL has the unnamed statement or portal now."""
        if statement:
            self._client.extended.prepared.pop("", None)
        if portal and (mine := self._client.extended.portals.pop("", None)) is not None:
            self._client.spawn(self._client.extended.close_portals([mine]))

    async def _answer_extended(self, message: frontend.Message, kind: type[Statement] | None, raw: bytes) -> None:
        client = self._client
        await client.drained()  # who asks and never reads gets no more answers to keep for it
        if not await client.catch_up():
            self._skipping = not client.flight.simple
            client.eat(raw)
            return
        client.backend.hold()
        try:
            await client.extended.answer(message, kind)
        except Exception as e:  # the session's edge
            client.report(as_error(e))
            await client.fail_transaction(extended=True)
            # PostgreSQL: messages after an error are discarded until Sync.
            self._skipping = True
        finally:
            client.backend.release()

    def pump_copy(self) -> None:
        """Relay COPY data that waits, while PostgreSQL wants it; at anything else it ends the connection."""
        data, pos, end = self.waiting, self._passing, len(self.waiting)
        while self._client.flight.copying and end - pos >= 5:
            kind, length = header(data, pos)
            check_client_header(kind, length)
            pos += length + 1
            if kind in (COPY_DONE, COPY_FAIL):
                self._client.flight.copy_ended()
            elif kind not in COPYING:
                break
        begun = min(pos, end)
        self._relay(data, 0, begun)
        self._passing, self.waiting = pos - begun, data[begun:]


def _text(kind: int, data: bytes | bytearray, pos: int, after: int) -> tuple[int, int]:
    """Where the text of a Query or Parse lies; empty in one that PostgreSQL will refuse."""
    if kind == QUERY:
        return pos + 5, after - 1
    begin = data.find(0, pos + 5, after) + 1  # behind the statement's name
    end = data.find(0, begin, after) if begin else -1
    return (begin, end) if end >= 0 else (after, after)
