"""Why a query failed at Kinesis: what the exceptions of the kernel's client mean (``AwsCall.scala``).

Owns: the service's codes, and whether a query is tried again. Must not know: how they reach Python.
Start reading at ``trouble``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pgstream.errors import StoreRefused, StoreUnreachable
from pgstream.stores.kinesis.reasons import DENIED, UNTRUSTED
from pgstream.stores.spec import Trouble, sentence

_WAY = "Check 'uris' or 'kinesis.region', and the network between this server and the store."
_REFUSED = {"ValidationException", "InvalidArgumentException", "SerializationException"}


def trouble(link: Mapping[str, Any], store: str, root: str) -> Trouble | None:
    """See ``stores.spec.TroubleOf``."""
    short, message = str(link["class"]).rsplit(".", 1)[-1], str(link["message"])
    if short == "RecordsGoneException":
        gone = "the data stream no longer holds records that the query has not read yet"
        return Trouble(
            "data", "22000", gone, sentence(message) + ".", "Create the query again to begin at what is left."
        )
    if short == "RecordTooLargeException" and str(link["class"]).startswith("org.apache.spark.sql.pgstream."):
        return Trouble("data", "22000", sentence(message), None, "A record of Kinesis has at most 1 MiB.")
    if short != "AwsException":
        return None
    code, _, why = message.partition(": ")
    if code == "ResourceNotFoundException":
        return Trouble("store", "42704", "the data stream does not exist", sentence(why) + ".")
    if code == "ConsumerNotFoundException":
        how = "Register it: aws kinesis register-stream-consumer --stream-arn ... --consumer-name ..."
        return Trouble("user", "42704", "the data stream has no such consumer", sentence(why) + ".", how)
    if code in UNTRUSTED:
        e: StoreUnreachable = StoreRefused(name=store, why=sentence(why), hint=UNTRUSTED[code])
        return Trouble("refused", e.sqlstate, e.text, e.detail, e.hint)
    e = StoreUnreachable(name=store, why=sentence(why), hint=_WAY)
    kind = "refused" if code in DENIED else "user" if code in _REFUSED else "store"
    return Trouble(kind, e.sqlstate, e.text, e.detail, e.hint)
