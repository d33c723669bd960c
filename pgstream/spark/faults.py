"""What went wrong in Spark, as a fault that a person can act on.

Owns: the mapping from the analyzer's error conditions and from chains of Java exceptions to ``channel.Fault``.
Must not know: sessions, queries, Py4J; it takes plain values. Start reading at ``from_analysis`` and ``from_chain``.

Kinds: *user* (the statement or the store's options must change), *data* (a record must), *refused* (a system outside
does not take the credentials, or proves to be another), *overtaken* (another start has written on), *store* (it does
not answer) and *engine* (ours). The last two are tried again by the engine, *overtaken* a few times, and *refused* once
the query's statement is over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pgstream import stores, types
from pgstream.engine.channel import Fault
from pgstream.errors import BadRecord, CannotCast, NoRealTimePlace, NotYet, PgStreamError
from pgstream.formats.registry import advice
from pgstream.stores.spec import sentence as sentence

# Spark's error condition (or its first part) → SQLSTATE with PostgreSQL's meaning.
_CONDITIONS: dict[str, str] = {
    "INTERNAL_ERROR": "XX000",
    "UNRESOLVED_COLUMN": "42703",
    "UNRESOLVED_MAP_KEY": "42703",
    "FIELD_NOT_FOUND": "42703",
    "UNRESOLVED_ROUTINE": "42883",
    "WRONG_NUM_ARGS": "42883",
    "AMBIGUOUS_REFERENCE": "42702",
    "AMBIGUOUS_COLUMN_OR_FIELD": "42702",
    "AMBIGUOUS_REFERENCE_TO_FIELDS": "42702",
    "DATATYPE_MISMATCH": "42804",
    "INVALID_EXTRACT_BASE_FIELD_TYPE": "42809",
    "INVALID_EXTRACT_FIELD_TYPE": "42804",
    "INCOMPATIBLE_COLUMN_TYPE": "42804",
    "NUM_COLUMNS_MISMATCH": "42601",
    "MISSING_AGGREGATION": "42803",
    "MISSING_GROUP_BY": "42803",
    "GROUP_BY_AGGREGATE": "42803",
    "NESTED_AGGREGATE_FUNCTION": "42803",
    "INVALID_WHERE_CONDITION": "42803",
    "UNSUPPORTED_EXPR_FOR_OPERATOR": "42803",
    "PARSE_SYNTAX_ERROR": "42601",
    "INVALID_FORMAT": "22023",
    "INVALID_PARAMETER_VALUE": "22023",
}
# Conditions of a running query → SQLSTATE, and what the innermost cause is said after.
_FAILED = {
    "INVALID_DATETIME_PATTERN": ("22007", "invalid pattern of a date or time: "),
    "INCONSISTENT_BEHAVIOR_CROSS_VERSION.DATETIME_PATTERN_RECOGNITION": (
        "22007",
        "invalid pattern of a date or time: ",
    ),
    "INVALID_PARAMETER_VALUE.PATTERN": ("2201B", "invalid regular expression: "),
    "INVALID_PARAMETER_VALUE": ("22023", ""),
}
_CONDITION = re.compile(r"\[(\w+)(\.\w+)?\]")
_OF_DATA = re.compile(r"\[[A-Z_.]+\].* SQLSTATE: (22\w{3})$", re.S)  # what Spark itself says lies at the values
# What planner/checked.py has an expression raise, and operators of the kernel: SQLSTATE, then the message.
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (\w{5}) (.*?)(?: SQLSTATE: \w{5}|$)", re.S)
_LONG_ROWS = (
    "Select less, or read fewer records at a time, WITH ('source.max.records.per.trigger' = 1000) behind the relation."
)
_LONG_LOOKUP = "A narrower condition finds fewer rows; select fewer of their columns, or shorter ones."
_RAISED_HINTS = {
    "22P02": "TRY_CAST gives NULL instead. After a change of the data or the statement: RESTART QUERY.",
    "22012": "NULLIF(divisor, 0) gives NULL instead.",
    "22035": "DEFAULT … ON ERROR or NULL ON ERROR gives something instead, and DEFAULT … ON EMPTY where nothing is.",
    "2202K": "AFTER MATCH SKIP TO NEXT ROW leads on from every match.",
    "2202L": "AFTER MATCH SKIP TO NEXT ROW leads on from every match.",
    "54001": "Give the pattern fewer repetitions inside repetitions, or WITHIN.",
}
_CANNOT_CAST = re.compile(r'cannot cast "([^"]+)" to "([^"]+)"')
_STRANGE = (
    "One of them was put back, or is gone: put back the other as well. Else CREATE OR REPLACE MATERIALIZED VIEW builds"
    " a view anew; for a topic or a table begin a new query."
)
_SLOW = (
    "A table is locked, or what is looked up takes long: an index, or a narrower condition, may help. Setting"
    " lookup_timeout_s gives it more time."
)
SHARE = "Setting checkpoint_dir names a folder that all machines mount, or a URL (hdfs:, s3a:)."


def fault(kind: str, e: PgStreamError) -> Fault:
    """One of our conditions as a fault."""
    return Fault(kind, e.sqlstate, e.text, e.detail, e.hint, e.at)


def from_analysis(condition: str | None, message: str, at: int | None = None) -> Fault:
    """An analyzer's refusal. ``condition`` is Spark's, such as ``DATATYPE_MISMATCH.BINARY_OP_WRONG_TYPE``."""
    name = (condition or "").split(".")[0]
    code = _CONDITIONS.get(name)
    no_cast = _CANNOT_CAST.search(message) if name == "DATATYPE_MISMATCH" else None
    if no_cast is not None:
        source, to = (_type_name(t) for t in no_cast.groups())
        return fault("user", CannotCast(source=source, to=to, at=at))
    if code is None and (not name or name.startswith(("STREAMING_", "UNSUPPORTED_STREAMING", "_LEGACY"))):
        return Fault("user", "0A000", "this cannot run as a continuous query", sentence(message) + ".", None, at)
    if name.startswith("UNSUPPORTED"):
        code = "0A000"
    return Fault("user", code or "42804", sentence(message), None, None, at)


def _type_name(text: str) -> str:
    """A type as Spark writes it in its messages, in our words."""
    try:
        return str(types.from_spark(text.lower())).lower()
    except PgStreamError:
        return text.lower()


def not_yet(what: str, detail: str | None = None, at: int | None = None) -> Fault:
    return fault("user", NotYet(what=what, detail=detail, at=at))


def from_chain(chain: Sequence[Mapping[str, Any]], known: Mapping[str, str] = MappingProxyType({})) -> Fault:
    """A failed stream. ``chain``: its Java exceptions, outermost first, as {class, message, …}; ``known``: the stores
    of the query by name, with their types."""
    root = chain[-1] if chain else {"class": "", "message": "no reason was given"}
    for link in reversed(chain):
        found = _from_link(link, known, str(root["message"]))
        if found is not None:
            return found
    kind = str(root["class"]).rsplit(".", 1)[-1]
    return Fault("engine", "XX000", f"the query failed in Spark: {sentence(str(root['message']))}", f"{kind}.")


def _from_link(link: Mapping[str, Any], known: Mapping[str, str], root: str) -> Fault | None:
    name, message = str(link["class"]), str(link["message"])
    short = name.rsplit(".", 1)[-1]
    if "reason" in link:
        return bad_record(link)
    if short == "FencedException":
        return Fault("engine", "55000", "another start of this query has taken over", message + ".")
    if short == "StrangeBatchException":
        what = "the query's checkpoint and what it has written are of different days"
        # More is written than the checkpoint says where the worker of an earlier start has not ended yet, too.
        kind = "overtaken" if message.endswith(" already") else "user"
        return Fault(kind, "55000", what, sentence(message) + ".", _STRANGE)
    if short == "UnsharedException":
        return Fault("refused", "58030", "the checkpoint's folder is not that of all executors", f"{message}.", SHARE)
    if short == "RegistryException":
        return Fault("store", "58000", message, None, advice(message))
    if short == "NoPlaceException":
        return fault("user", NoRealTimePlace(why=message))
    if short == "LongRows":
        return Fault("data", "54000", message, None, _LONG_ROWS)
    if short == "LongLookup":
        return Fault("data", "54000", message, None, _LONG_LOOKUP)
    if short == "Unwritable":
        return Fault("data", "22000", message, None, "CAST or COALESCE in the select make it fit.")
    if short == "SlowLookup":  # a store's may pass by itself, as when it is away
        return Fault("store" if message.startswith("store ") else "user", "57014", message, None, _SLOW)
    for store, of_type in known.items():
        told = stores.trouble(of_type, link, store, root)
        if told is not None:
            return Fault(told.kind, told.sqlstate, told.message, told.detail, told.hint)
    if "sqlstate" in link:
        return _from_postgres(str(link["sqlstate"] or ""), message)
    raised = _RAISED.search(message)
    if raised is not None:
        return Fault("data", raised[1], raised[2], None, _RAISED_HINTS.get(raised[1]))
    if short == "PatternSyntaxException":
        return Fault("data", "2201B", f"invalid regular expression: {sentence(message.splitlines()[0])}")
    condition = _CONDITION.match(message)
    failed = condition and (_FAILED.get(condition[0][1:-1]) or _FAILED.get(condition[1]))
    if failed:
        return Fault("data", failed[0], failed[1] + sentence(root if failed[1] else message))
    if short in ("SparkArithmeticException", "ArithmeticException"):
        return Fault("data", "22012" if "zero" in message.lower() else "22003", sentence(message))
    if short in ("SparkDateTimeException", "DateTimeException", "SparkUpgradeException"):
        return Fault("data", "22007", sentence(message))
    if short in ("SparkNumberFormatException", "NumberFormatException", "SparkIllegalArgumentException"):
        return Fault("data", "22023", sentence(message))
    if short in ("SparkArrayIndexOutOfBoundsException", "SparkNoSuchElementException"):
        return Fault("data", "2202E", sentence(message))
    of_data = _OF_DATA.match(message.strip())
    if of_data is not None:
        return Fault("data", of_data[1], sentence(message))
    if short == "OutOfMemoryError":
        return Fault("engine", "53200", "out of memory", sentence(message) + ".", "Raise setting spark_memory_mb.")
    return None


def bad_record(link: Mapping[str, Any]) -> Fault:
    """A record that could not be decoded, by its place."""
    place = link.get("place") or f"partition {link['partition']}, offset {link['offset']}"
    where = f'record at {place} of topic "{link["topic"]}"'
    return fault("data", BadRecord(what=f"{where} could not be decoded: {link['reason']}"))


def _from_postgres(code: str, message: str) -> Fault:
    text = sentence(message.removeprefix("ERROR: ").split("\n")[0])
    if code[:2] in ("21", "22", "23", "42"):
        return Fault("data", code, text, "PostgreSQL refused what the query reads or writes there.")
    return Fault("engine", "58000", f"could not write the view's state: {text}")
