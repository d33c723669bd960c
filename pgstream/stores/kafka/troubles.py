"""Why a query failed at a Kafka cluster: what the exceptions of its Java client mean.

Owns: Kafka's exceptions by name. Must not know: how they reach Python. Start reading at ``trouble``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pgstream.errors import StoreRefused, StoreUnreachable
from pgstream.stores.spec import Trouble, sentence

_KAFKA = "org.apache.kafka.common.errors."
_UNTRUSTED = ("SaslAuthenticationException", "SslAuthenticationException", "AuthenticationException")
_CREDENTIALS = "The query tries again by itself; UPDATE STORE changes the store's credentials and certificates."
_SETTINGS = (
    "Settings are the store's, and what begins with kafka.consumer., kafka.producer. or kafka.properties. in the "
    "statement."
)
_UNENDED = ("The query tries again by itself. If this stays, a broker that died has forgotten the transaction's end: "
            "Kafka's kafka-transactions.sh finds it (find-hanging) and ends it (abort), which takes its rows away: the "
            "query writes them again, unless Kafka had confirmed them.")  # fmt: skip
_REFUSED = ("TopicAuthorizationException", "GroupAuthorizationException", "ClusterAuthorizationException",
            "TransactionalIdAuthorizationException", "RecordTooLargeException", "InvalidTimestampException",
            "InvalidTopicException", "InvalidRecordException")  # fmt: skip


def trouble(link: Mapping[str, Any], store: str, root: str) -> Trouble | None:
    """See ``stores.spec.TroubleOf``."""
    name, message = str(link["class"]), str(link["message"])
    short = name.rsplit(".", 1)[-1]
    if name.startswith(_KAFKA):
        return _of_client(short, message, store, root)
    if name == "org.apache.kafka.common.config.ConfigException" and message.startswith("No resolvable bootstrap"):
        return _away("store", store, sentence(message))
    if name == "org.apache.kafka.common.config.ConfigException":
        return Trouble("user", "22023", f"Kafka's client refuses its settings: {sentence(message)}", hint=_SETTINGS)
    if short == "UnendedTransactionException":
        return Trouble("store", "58000", f'store "{store}" does not say whether a batch is in', f"{message}.", _UNENDED)
    if short == "LoginException":
        return _away("refused", store, sentence(root), StoreRefused)
    if "KAFKA_DATA_LOSS" in message or short == "OffsetOutOfRangeException":
        gone = "the topic no longer holds records that the query has not read yet"
        return Trouble(
            "data", "22000", gone, sentence(message) + ".", "Create the query again to begin at what is left."
        )
    return None


def _of_client(short: str, message: str, store: str, root: str) -> Trouble:
    if short == "UnknownTopicOrPartitionException":
        return Trouble("store", "42704", "the topic does not exist", sentence(message) + ".")
    if short in ("ProducerFencedException", "InvalidProducerEpochException", "FencedInstanceIdException"):
        return Trouble("engine", "55000", "another start of this query has taken over", sentence(message) + ".")
    why = sentence(message) or short
    if short == "SslAuthenticationException" and root != message:
        why = f"{why}: {sentence(root)}"
    if short == "SaslAuthenticationException":
        return _away("refused", store, why, StoreRefused)
    return _away("refused" if short in _UNTRUSTED else "user" if short in _REFUSED else "store", store, why)


def _away(kind: str, store: str, why: str, condition: type[StoreUnreachable] = StoreUnreachable) -> Trouble:
    e = condition(name=store, why=why, hint=_CREDENTIALS if kind == "refused" else None)
    return Trouble(kind, e.sqlstate, e.text, e.detail, e.hint)
