"""The error catalogue: one class per condition, with SQLSTATE, message template and hint.

Owns: what a person reads when something is wrong. PostgreSQL's meaning of a SQLSTATE always wins; ``ds_code`` is
DeltaStream's own code, kept for the log, the docs page and a later REST face.
Must not know: anything else of pgstream. ``wire.backend`` encodes an error; ``server`` decides what it does to a
session. Start reading at ``PgStreamError``. Grouped by SQLSTATE class with PostgreSQL's headings.

Style (PostgreSQL's error style guide): the primary message is lower case, one line, no full stop; names in double
quotes preceded by the kind of object; *cannot* if it will never work, *could not* if it may; detail and hint are
sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

CATALOGUE: dict[str, type[PgStreamError]] = {}


class PgStreamError(Exception):
    """Base of all conditions. ``at`` is a 0-based character offset into the statement's text.

    Raise as ``raise UndefinedStore(name=…, at=…)``: keyword arguments fill the templates of the class's message and
    hint; a ``hint`` given at the raise replaces the class's own and, like ``detail``, is taken as it is.
    """

    sqlstate: ClassVar[str] = "XX000"
    ds_code: ClassVar[str] = "XX000"
    message: ClassVar[str] = "internal error"
    class_hint: ClassVar[str | None] = None
    severity: ClassVar[str] = "ERROR"

    def __init_subclass__(
        cls,
        sqlstate: str | None = None,
        ds_code: str | None = None,
        message: str | None = None,
        hint: str | None = None,
        severity: str | None = None,
        **kw: Any,
    ) -> None:
        super().__init_subclass__(**kw)
        if sqlstate is not None:
            if len(sqlstate) != 5:
                raise TypeError(f"{cls.__name__}: a SQLSTATE has five characters")
            cls.sqlstate = sqlstate
            cls.ds_code = ds_code or sqlstate
        if message is not None:
            cls.message = message
        if hint is not None:
            cls.class_hint = hint
        if severity is not None:
            cls.severity = severity
        if cls.__name__ in CATALOGUE:
            raise TypeError(f"two error classes named {cls.__name__}")
        CATALOGUE[cls.__name__] = cls

    def __init__(
        self,
        *,
        at: int | None = None,
        detail: str | None = None,
        hint: str | None = None,
        ds_code: str | None = None,
        **values: Any,
    ) -> None:
        """``ds_code``: DeltaStream's own code, for a condition that stands for several kinds of object."""
        if ds_code is not None:
            self.ds_code = ds_code  # type: ignore[misc]
        self.values = values
        self.at = at
        self.detail = detail
        template = self.class_hint
        if hint is None and template is not None:
            hint = template.format(**values) if values else template
        self.hint = hint
        self.text = self.message.format(**values) if values else self.message
        super().__init__(self.text)

    def __reduce__(self) -> tuple[Any, ...]:
        """As it is, without its templates filled again: listener processes get errors from the server process."""
        return _restored, (type(self), dict(self.__dict__))

    @property
    def condition(self) -> str:
        """The condition's name in snake case, sent as the routine field ``R``: ``undefined_store``."""
        name = type(self).__name__
        return "".join("_" + c.lower() if c.isupper() and i else c.lower() for i, c in enumerate(name))


def _restored(cls: type[PgStreamError], state: dict[str, Any]) -> PgStreamError:
    e = cls.__new__(cls, state["text"])
    e.__dict__.update(state)
    return e


class RelayedError(PgStreamError, sqlstate="XX000", message="{text}"):
    """An error whose five characters are known only at run time (from PostgreSQL, or from the worker).

    ``position``: where in the text that PostgreSQL was sent, which is seldom the client's; from 0.
    """

    def __init__(
        self,
        *,
        code: str,
        text: str,
        at: int | None = None,
        detail: str | None = None,
        hint: str | None = None,
        severity: str = "ERROR",
        position: int | None = None,
    ) -> None:
        super().__init__(at=at, detail=detail, text=text)
        self.position = position
        self.sqlstate = code  # type: ignore[misc]
        self.ds_code = code  # type: ignore[misc]
        self.severity = severity  # type: ignore[misc]
        self.hint = hint


# Class 08 — Connection Exception


class ProtocolViolation(PgStreamError, sqlstate="08P01", message="{what}", severity="FATAL"):
    """A client sent bytes that are not a message of the protocol."""


class NoStartUp(PgStreamError, sqlstate="08P01", message="invalid length of startup packet", severity="FATAL"):
    """What a connection begins with is no start-up packet. It is logged; as from PostgreSQL, no answer comes."""


# Class 0A — Feature Not Supported


class NotSupported(PgStreamError, sqlstate="0A000", message="{what} is not supported"):
    """Never will be, or has no meaning here."""


class PlanChanged(
    PgStreamError, sqlstate="0A000", message="cached plan must not change result type", hint="Prepare it again."
):
    """What a prepared statement reads has other columns than when it was described."""


class NotYet(
    PgStreamError,
    sqlstate="0A000",
    message="{what} is not supported yet",
    hint="It is planned; docs/statements says what works today.",
):
    """Planned, and refused aloud until it is whole."""


class NotInstalled(
    PgStreamError,
    sqlstate="0A000",
    message='store type "{name}" is not installed',
    hint='pip install "pgstream[{name}]"',
):
    """A store type whose library is missing; detail names the module."""


# Class 0L — Invalid Grantor


class InvalidGrant(PgStreamError, sqlstate="0LP01", message="{what}"):
    """A GRANT or REVOKE that has no meaning for its object, or would make a role a member of itself."""


# Class 22 — Data Exception


class InvalidOption(PgStreamError, sqlstate="22023", ds_code="3D008", message="{what}"):
    """A WITH property is unknown, or its value is not one of those allowed."""


class MissingOption(PgStreamError, sqlstate="22023", ds_code="3D021", message='parameter "{name}" is required'):
    """A WITH property that must be given is missing."""


class BadRecord(
    PgStreamError,
    sqlstate="22000",
    message="{what}",
    hint="WITH ('source.deserialization.error.handling' = IGNORE) after the source skips such records.",
):
    """A record of a source could not be decoded and the query's error mode is TERMINATE."""


class DivisionByZero(PgStreamError, sqlstate="22012", message="division by zero"):
    """A divisor that is the literal zero."""


class InvalidPattern(PgStreamError, sqlstate="22007", message='invalid pattern "{pattern}": {why}'):
    """A pattern of dates and times that nothing could be written or read by."""


class NumberTooLong(PgStreamError, sqlstate="22003", message="a number of more than {most} digits is out of range"):
    """No type holds it, and reading it takes long."""


class IntervalOutOfRange(PgStreamError, sqlstate="22008", message='interval field value out of range: "{text}"'):
    """A part of an INTERVAL literal is more than it may be: 25 hours after days, 13 months after years."""


class InvalidText(PgStreamError, sqlstate="22P02", message="invalid input syntax for type {type}"):
    """A literal is not a value of its type."""


class StringTooLong(PgStreamError, sqlstate="22001", message="value too long for type character varying({most})"):
    """A text has more characters than its column takes."""


class InvalidEncoding(PgStreamError, sqlstate="22021", message='invalid byte sequence for encoding "{encoding}"'):
    """Text from a client is not in its client_encoding."""


class UntranslatableCharacter(
    PgStreamError,
    sqlstate="22P05",
    message='character with byte sequence {sequence} in encoding "UTF8" has no equivalent in encoding "{encoding}"',
    hint="SET client_encoding TO 'UTF8' takes every character.",
):
    """A row or message of ours holds a character that the client's encoding has not."""


class InvalidBinary(PgStreamError, sqlstate="22P03", message="incorrect binary data format in bind parameter {number}"):
    """A bound value in binary format is not one of its type."""


# Class 23 — Integrity Constraint Violation


class NullViolation(
    PgStreamError,
    sqlstate="23502",
    message='null value in column "{column}" of relation "{relation}" violates not-null constraint',
):
    """A row for a column that takes no NULL, or for a primary key, has none."""


# Class 25 — Invalid Transaction State


class ActiveTransaction(PgStreamError, sqlstate="25001", message="{what} cannot run inside a transaction block"):
    """A statement that would lose the open transaction."""


class ReadOnlyTransaction(PgStreamError, sqlstate="25006", message="cannot execute {what} in a read-only transaction"):
    """A change that stands or falls with a transaction which may change nothing."""


class NoTransactionBlock(PgStreamError, sqlstate="25P01", message="{what} can only be used in transaction blocks"):
    """SAVEPOINT and its like in a text of several statements that has not said BEGIN."""


class InFailedTransaction(
    PgStreamError,
    sqlstate="25P02",
    message="current transaction is aborted, commands ignored until end of transaction block",
):
    """One of our statements in a failed transaction block."""


# Class 26 — Invalid SQL Statement Name


class UndefinedPrepared(PgStreamError, sqlstate="26000", message="{what} does not exist"):
    """Bind or Describe names a statement nobody prepared."""


# Class 28 — Invalid Authorization Specification


class PasswordRefused(
    PgStreamError, sqlstate="28P01", message='password authentication failed for user "{user}"', severity="FATAL"
):
    """Wrong user or password; the message does not say which."""


class AuthorizationRefused(PgStreamError, sqlstate="28000", message="{what}", severity="FATAL"):
    """Start-up refused for another reason than the password."""


# Class 2B — Dependent Privilege Descriptors Still Exist


class DependentsExist(
    PgStreamError,
    sqlstate="2BP01",
    message='cannot drop {kind} "{name}" because other objects depend on it',
    hint="Drop the dependent objects first; TERMINATE QUERY ends a query.",
):
    """A DROP is refused because something depends on the object; detail lists what.

    ``users``: the objects of the catalogue that do, of kind and name; what of them a role may not see is not named to
    it (``naming``). ``says`` stands before them, ``bare`` leaves their kinds out.
    """

    def __init__(
        self,
        *,
        users: Sequence[tuple[str, str]] = (),
        says: str = "Used by:",
        bare: bool = False,
        detail: str | None = None,
        **given: Any,
    ) -> None:
        super().__init__(detail=detail, **given)
        self.users, self._says, self._bare = tuple(users), says, bare
        if users:
            self.naming(users)

    def naming(self, users: Sequence[tuple[str, str]], most: int = 10) -> None:
        """Say these in the detail, and of the others how many there are."""
        shown = [name if self._bare else f"{kind} {name}" for kind, name in users[:most]]
        more = len(self.users) - len(shown)
        listed = ", ".join(shown) + (f" and {more} more" if more else "") if shown else "none that the role sees"
        self.detail = f"{self._says} {listed}."


class ChangesAreRead(
    DependentsExist,
    sqlstate="0A000",
    message="row-level security of a materialized view whose changes are read is not supported",
    hint="TERMINATE QUERY first.",
):
    """Queries read the changes of a view as a whole, past its policies; ``users`` are those queries."""


class ReadersRemain(
    DependentsExist,
    message='cannot replace {kind} "{name}" as its changes are read by other queries',
    hint="Keep its columns and its key; rows that only come cannot be taken back. TERMINATE QUERY ends a query.",
):
    """A replacement that the queries which read the view's changes could not follow; ``users`` are those queries."""


# Class 34 — Invalid Cursor Name


class UndefinedPortal(PgStreamError, sqlstate="34000", message='portal "{name}" does not exist'):
    """Execute or Describe names a portal that is not open."""


class UndefinedCursor(PgStreamError, sqlstate="34000", message='cursor "{name}" does not exist'):
    """FETCH, MOVE or CLOSE of a cursor that its transaction's end, or CLOSE ALL, has closed."""


# Class 3D — Invalid Catalog Name


class UndefinedDatabase(
    PgStreamError,
    sqlstate="3D000",
    ds_code="3D002",
    message='database "{name}" does not exist',
    hint="LIST DATABASES shows the databases you can see.",
):
    """A statement names a database that is not in the catalogue."""


# Class 3F — Invalid Schema Name


class UndefinedSchema(
    PgStreamError,
    sqlstate="3F000",
    ds_code="3D003",
    message='schema "{name}" does not exist',
    hint="LIST SCHEMAS shows the schemas of the current database.",
):
    """A statement names a schema that is not in the database."""


# Class 42 — Syntax Error or Access Rule Violation


class SyntaxFault(PgStreamError, sqlstate="42601", message='syntax error at or near "{near}"'):
    """The text is not a statement of the language. ``near`` is the word at ``at``."""


class SyntaxEnd(PgStreamError, sqlstate="42601", message="syntax error at end of input"):
    """The text ends in the middle of a statement."""


class InvalidStatement(PgStreamError, sqlstate="42601", message="{what}"):
    """Words in a right place that together have no meaning; ``what`` is the whole message."""


class InsufficientPrivilege(PgStreamError, sqlstate="42501", message="permission denied for {kind} {name}"):
    """The current role may not do this."""


class DuplicatePrepared(PgStreamError, sqlstate="42P05", message='prepared statement "{name}" already exists'):
    """Parse of a name that is in use."""


class NameTooLong(
    PgStreamError,
    sqlstate="42622",
    message='identifier "{name}" is too long',
    hint="Identifiers have at most 63 bytes.",
):
    """An identifier is longer than PostgreSQL's limit."""


class UndefinedColumn(PgStreamError, sqlstate="42703", message='column "{name}" does not exist'):
    """A select names a column that no relation in scope has."""


class AmbiguousColumn(
    PgStreamError,
    sqlstate="42702",
    message='column reference "{name}" is ambiguous',
    hint="Qualify it with the relation's name or alias.",
):
    """A select names a column that several relations in scope have."""


class UndefinedFunction(PgStreamError, sqlstate="42883", message="function {name} does not exist"):
    """A select calls a function that is not in the catalogue of functions."""


class UndefinedOperator(
    PgStreamError,
    sqlstate="42883",
    message="operator does not exist: {what}",
    hint="No operator matches the given argument types. You might need to add explicit type casts.",
):
    """Arithmetic on what is not a number, or a comparison of what cannot be compared."""


class CannotCast(PgStreamError, sqlstate="42846", message="cannot cast type {source} to {to}"):
    """A CAST between types that have no common values."""


class UndefinedObject(PgStreamError, sqlstate="42704", ds_code="3D008", message='{kind} "{name}" does not exist'):
    """An object without a class of its own below."""


class UndefinedStore(
    PgStreamError,
    sqlstate="42704",
    ds_code="3D006",
    message='store "{name}" does not exist',
    hint="LIST STORES shows the stores you can see.",
):
    """A statement names a store that is not in the catalogue."""


class UndefinedEntity(
    PgStreamError,
    sqlstate="42704",
    ds_code="3D007",
    message='entity "{name}" does not exist in store "{store}"',
    hint="LIST ENTITIES IN STORE {store} shows what is there.",
):
    """A statement names a topic that the store does not hold."""


class UndefinedQuery(
    PgStreamError,
    sqlstate="42704",
    ds_code="3D019",
    message='query "{name}" does not exist',
    hint="LIST QUERIES shows the queries you can see.",
):
    """A statement names a query that is not in the catalogue."""


class UndefinedRelation(
    PgStreamError,
    sqlstate="42P01",
    ds_code="3D020",
    message='relation "{name}" does not exist',
    hint="LIST RELATIONS shows the relations of the current schema.",
):
    """A statement names a relation that is not in the catalogue."""


class UndefinedParameter(
    PgStreamError,
    sqlstate="42P02",
    message="there is no parameter ${number}",
    hint="Values are bound to an interactive SELECT through the extended protocol; a continuous query takes none.",
):
    """``$n`` stands in a select to which no such value was bound."""


class MissingFrom(PgStreamError, sqlstate="42P01", message='missing FROM-clause entry for table "{name}"'):
    """A column is qualified by a name that is no relation or alias of the FROM."""


class DuplicateAlias(PgStreamError, sqlstate="42712", message='table name "{name}" specified more than once'):
    """Two relations of one FROM have the same name or alias."""


class CannotCopy(
    PgStreamError,
    sqlstate="42809",
    message='cannot copy {direction} {kind} "{name}"',
):
    """COPY of a stream or changelog by name; the hint says what to write instead."""


class CannotChange(
    PgStreamError,
    sqlstate="42809",
    message='cannot change materialized view "{name}"',
    hint="What it holds is its query's answer: INSERT INTO what the query reads, or CREATE OR REPLACE it.",
):
    """INSERT, UPDATE, DELETE, MERGE or TRUNCATE of a materialized view; the words are PostgreSQL's."""


class ColumnsDiffer(PgStreamError, sqlstate="42P16", message="{what}"):
    """A view cannot be replaced by one whose columns are others; the words are PostgreSQL's."""


class WrongKind(PgStreamError, sqlstate="42809", message='"{name}" is a {is_a}, not a {wanted}'):
    """A statement wants another kind of object than the one named."""


class TypeMismatch(PgStreamError, sqlstate="42804", message="{what}"):
    """An expression's type does not fit; Spark's analyzer said so."""


class UnusableSchema(PgStreamError, sqlstate="42804", message="the schema cannot be used: {why}"):
    """A schema of a registry has no columns, or types that the language has not."""


class SchemaRefused(
    PgStreamError,
    sqlstate="42804",
    message='the schema registry refuses the schema for subject "{subject}"',
    hint="What may change is said by the subject's compatibility level; another topic has a subject of its own.",
):
    """The columns of a sink do not fit what its subject holds."""


class GroupingError(PgStreamError, sqlstate="42803", message="{what}"):
    """A column stands outside GROUP BY and outside an aggregate, or an aggregate stands where none may."""


class DuplicateObject(PgStreamError, sqlstate="42710", ds_code="42710", message='{kind} "{name}" already exists'):
    """CREATE of an object that exists, of a kind without a class of its own below."""


class DuplicateDatabase(PgStreamError, sqlstate="42P04", message='database "{name}" already exists'):
    """CREATE DATABASE of one that exists."""


class DuplicateSchema(PgStreamError, sqlstate="42P06", message='schema "{name}" already exists'):
    """CREATE SCHEMA of one that exists."""


class DuplicateRelation(PgStreamError, sqlstate="42P07", ds_code="42P017", message='relation "{name}" already exists'):
    """CREATE of a relation whose name is taken in its schema."""


class DuplicatePortal(PgStreamError, sqlstate="42P03", message='cursor "{name}" already exists'):
    """A Bind names a portal that is open."""


class ReservedName(
    PgStreamError,
    sqlstate="42939",
    message='{kind} name "{name}" is reserved',
    hint="PostgreSQL or pgstream keeps something of its own under it; choose another name.",
):
    """CREATE with a name that PostgreSQL or pgstream needs for itself."""


class UnacceptableSchemaName(PgStreamError, sqlstate="42939", message='unacceptable schema name "{name}"'):
    """CREATE SCHEMA with a prefix that PostgreSQL keeps for itself, refused in its words."""


class DuplicateColumn(PgStreamError, sqlstate="42701", message='column "{name}" specified more than once'):
    """A relation or a select has two output columns of one name."""


# Class 54 — Program Limit Exceeded


class StatementTooLong(
    PgStreamError,
    sqlstate="54000",
    message="a statement of pgstream cannot have more than {most} characters beside {beside}",
    hint="Leave out comments, or break it up into several statements.",
):
    """Reading it would keep every session waiting."""


class TypeTooLong(
    PgStreamError,
    sqlstate="54000",
    message="a type cannot have more than {most} characters",
    hint="Declare the fields that are wanted, or VARCHAR for a part that is taken as text.",
):
    """Reading it would keep every session waiting."""


class TooDeep(
    PgStreamError, sqlstate="54001", message="{what} is nested too deeply", hint="Break it up into several statements."
):
    """A query or a type holds more levels than can be read: PostgreSQL's statement_too_complex."""


class TooComplex(
    PgStreamError,
    sqlstate="54001",
    message="{what} is too complex",
    hint="Of many calls an argument is written several times: compute what stands inside them in a subquery in FROM.",
):
    """What a short text stands for, written out, may be too much to read: PostgreSQL's statement_too_complex."""


class RowsTooLong(
    PgStreamError, sqlstate="54000", message="the rows of an INSERT INTO … VALUES have more than {most} bytes as JSON"
):
    """They are kept until the store has them all."""


class DocumentTooLong(
    PgStreamError,
    sqlstate="54000",
    message="a JSON document has more than {most} characters",
    hint="Write what is longer with a program of the store's own.",
):
    """Reading it would keep every session waiting."""


class TooManyColumns(PgStreamError, sqlstate="54011", message="target lists can have at most {most} entries"):
    """A select list with its stars written out, which may stand for those of a subquery twice."""


class OffsetTooLarge(
    PgStreamError,
    sqlstate="54001",
    message="the offset {size} of {name} is too large, the most is {most}",
    hint="Rows so far away would have to be kept; compute what is wanted of them before, with LAG for example.",
):
    """An offset of FIRST, LAST, PREV or NEXT in a MATCH_RECOGNIZE."""


class PatternTooLarge(
    PgStreamError,
    sqlstate="54001",
    message="the pattern has {size} variables with its repetitions written out, the most is {most}",
    hint="Count in a condition instead: B AS COUNT(B.*) <= 20000.",
):
    """The pattern of a MATCH_RECOGNIZE."""


# Class 53 — Insufficient Resources


class TooManyConnections(PgStreamError, sqlstate="53300", message="sorry, too many clients already", severity="FATAL"):
    """The connection limit is reached."""


# Class 54 — Program Limit Exceeded


class TooMuchHeld(
    PgStreamError,
    sqlstate="54000",
    message="too many prepared statements and portals of pgstream in one session",
    hint="Close those that are no longer needed, or connect again.",
):
    """A session keeps more statements, or longer ones, than the server has room for."""


# Class 55 — Object Not In Prerequisite State


class NotReady(PgStreamError, sqlstate="55000", ds_code="3E001", message="{what}"):
    """The object exists but cannot serve now; the hint says when it can."""


class Superseded(
    PgStreamError,
    sqlstate="55000",
    ds_code="3E001",
    message="{what} by now",
    hint="Send the statement again: it goes by the view as it is then.",
):
    """A statement went by what has just been replaced. Nothing is done."""


class NoRegistry(
    PgStreamError,
    sqlstate="55000",
    ds_code="3E002",
    message='store "{store}" has no schema registry, which format {format} needs',
    hint="UPDATE STORE … WITH ('schema_registry.name' = registry) attaches one; LIST SCHEMA_REGISTRIES shows them.",
):
    """A relation whose records need schemas lies in a store without a registry."""


class ForwardOnly(
    PgStreamError,
    sqlstate="55000",
    message="cursor can only scan forward",
    hint="A cursor over a stream keeps no rows that were fetched.",
):
    """FETCH or MOVE backwards in a cursor of ours."""


class ObjectInUse(
    PgStreamError,
    sqlstate="55006",
    message='{kind} "{name}" is being used by other sessions',
    hint="USE another database in this session, end the other sessions, and try again.",
):
    """A DROP of a database that sessions are connected to."""


class BeingReplaced(
    PgStreamError,
    sqlstate="55006",
    message='materialized view "{name}" is being replaced already',
    hint="LIST QUERIES shows how far that is; TERMINATE QUERY {id} gives it up.",
):
    """A second replacement of a materialized view at a time."""


class BeingRead(
    PgStreamError,
    sqlstate="55006",
    message="{kind} {name} is read by query {id} already",
    hint="Name another one in '{option}', or TERMINATE QUERY {id} first.",
):
    """A source that only one query at a time can read by its name."""


class NoCurrentStore(
    PgStreamError,
    sqlstate="55000",
    ds_code="3D006",
    message="no store is selected",
    hint="USE STORE sets the session's store; IN STORE, or 'store' in WITH, names one for a single statement.",
):
    """A statement needs a store and neither it nor the session names one."""


# Class 57 — Operator Intervention


class Canceled(PgStreamError, sqlstate="57014", ds_code="57000", message="canceling statement due to user request"):
    """A CancelRequest ended the statement."""


class AuthenticationTimeout(
    PgStreamError, sqlstate="57014", message="canceling authentication due to timeout", severity="FATAL"
):
    """A client did not authenticate in time."""


class StatementTimeout(PgStreamError, sqlstate="57014", message="canceling statement due to statement timeout"):
    """The session's statement_timeout ended a statement of ours."""


class SlowReader(
    PgStreamError,
    sqlstate="53400",
    message="canceling statement because the client has taken no rows for {seconds} s",
    hint="Read faster, use a cursor or a fetch size, or raise the server's setting slow_reader_timeout_s.",
):
    """A client left the rows of a statement of ours unread for too long."""


class TooManyStreams(
    PgStreamError,
    sqlstate="53400",
    message="too many streaming SELECTs at once: a user may run {most}",
    hint="End one of them, read a materialized view, or raise the server's setting max_streams_per_user.",
):
    """A user reads as many streaming results as the server allows one user."""


class CrashedWorkers(
    PgStreamError,
    sqlstate="53200",
    message="your streaming SELECTs made the pool's worker crash {times} times",
    hint="Others run there, too: try again in {minutes} min, with a select that makes shorter values, or fewer.",
):
    """Right after a user's streaming SELECTs had begun, and those of no one else, their worker ran out of memory."""


class NoRealTimePlace(
    PgStreamError,
    sqlstate="53400",
    message="the compute pool has no place for a query in real time: {why}",
    hint="Use a pool in one process with more tasks: setting spark_master, as 'local[8]', or 'compute_pool.cores'.",
):
    """A query with 'execution.mode' = 'realtime' holds a task of its pool for each partition of its topic."""


class ShuttingDown(
    PgStreamError, sqlstate="57P01", message="terminating connection due to administrator command", severity="FATAL"
):
    """The server is ending."""


class StartingUp(PgStreamError, sqlstate="57P03", message="the database system is starting up", severity="FATAL"):
    """Clients cannot be served yet."""


# Class 58 — System Error


class StoreUnreachable(
    PgStreamError,
    sqlstate="58000",
    ds_code="57015",
    message='could not reach store "{name}": {why}',
    hint="Check 'uris' and the network between this server and the store.",
):
    """A store's system did not answer. Not class 08: pools take that for their own connection."""


class StoreRefused(
    StoreUnreachable,
    sqlstate="58000",
    ds_code="57015",
    message='could not log in to store "{name}": {why}',
    hint="Check the credentials among the store's parameters.",
):
    """A store's system answered and refused the credentials, or how they were shown. Nor is that class 28."""


class StoreHindered(
    StoreUnreachable,
    sqlstate="58000",
    ds_code="57015",
    message='store "{name}" could not do what was asked: {why}',
    hint="Look at locks, limits and settings of its server, and at those of the store's user.",
):
    """A store's system answered, and something that may pass was in the way: a lock, a limit, a full disk."""


class RegistryUnreachable(
    PgStreamError,
    sqlstate="58000",
    ds_code="57015",
    message='could not reach schema registry "{name}": {why}',
    hint="Check its 'uris' and the network between it and this server.",
):
    """A schema registry did not answer, or refused."""


class EngineUnavailable(
    PgStreamError,
    sqlstate="58000",
    ds_code="57015",
    message="the query engine is not available: {why}",
    hint="The pool's worker is restarted by itself; try again in a few seconds.",
):
    """The pool's worker is not running or did not answer in time."""


# Class F0 — Configuration File Error


class ConfigurationError(PgStreamError, sqlstate="F0000", message="{what}", severity="FATAL"):
    """A setting, the data directory or something embedded keeps the server from starting."""


# Class XX — Internal Error


class InternalError(
    PgStreamError,
    sqlstate="XX000",
    message="internal error {id}",
    hint="The server's log has the details under this id.",
):
    """A bug of ours; the id is also in the log."""
