"""Why a Kafka cluster did not do what it was asked, for a person: confluent-kafka's errors as our conditions.

Owns: ``translate``, and the reason of a cluster that cannot be opened, with what may help. Secrets are masked in all
that comes from outside. Must not know: what was asked. Start reading at ``translate`` and ``unreachable``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from confluent_kafka import KafkaError

from pgstream.errors import (
    DuplicateObject,
    InsufficientPrivilege,
    InvalidOption,
    PgStreamError,
    StoreUnreachable,
    UndefinedEntity,
)
from pgstream.stores.kafka.client import Connection
from pgstream.stores.kafka.tls import complaint
from pgstream.stores.kafka.topics import meant

HOPELESS = {KafkaError._ALL_BROKERS_DOWN, KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE}
# 'ssl://host:9092/bootstrap: Connect to … failed: Connection refused (after 0ms in state CONNECT)'
_REPORT = re.compile(r"(?:\w+://)?(?P<broker>[^/\s]+)/\w+: (?P<why>.*?)(?: \(after .*\))?\Z", re.S)

_DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
}
_REFUSED = {
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_REQUEST,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.POLICY_VIOLATION,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError._INVALID_ARG,
}
MISSING = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}


def translate(error: KafkaError, store: str, entity: str = "") -> PgStreamError:
    """Our condition for one of the library's errors; what is not in the tables is a store that cannot serve."""
    code, why = error.code(), _sentence(error.str())
    if code in MISSING:
        return UndefinedEntity(name=entity, store=store)
    if code == KafkaError.TOPIC_ALREADY_EXISTS:
        return DuplicateObject(kind="entity", name=entity)
    if code in _DENIED:
        return InsufficientPrivilege(kind="entity", name=f'"{entity}"', detail=f"The broker said: {why}.")
    if code in _REFUSED:
        return InvalidOption(what=f'store "{store}" refused entity "{entity}": {why}', hint=meant(why))
    return StoreUnreachable(name=store, why=why)


_NETWORK = ("Connection refused", "Failed to resolve", "nreachable", "timed out")
"""What the library says when there is nobody to close a connection."""


def unreachable(store: str, c: Connection, error: KafkaError, reports: Sequence[KafkaError]) -> StoreUnreachable:
    """Why no broker answers. ``error`` is the call's; ``reports`` are those that the client made beside it."""
    why = _telling(c, error, reports)
    for secret in c.secrets:
        why = why.replace(secret, "********")
    if "OAUTHBEARER token" in why:
        return StoreUnreachable(name=store, why=why, hint="Check 'kafka.sasl.oauthbearer.…'.")
    if "SASL" in why:
        return StoreUnreachable(name=store, why=why, hint="Check 'kafka.sasl.…': mechanism and credentials.")
    if (found := complaint(c)) is not None:
        return StoreUnreachable(name=store, why=f"broker {c.brokers}: {found.why}", hint=found.hint)
    reached = not any(word in why for word in _NETWORK)
    closed = error.code() == KafkaError._TRANSPORT and not c.authenticated and reached
    hint = "A broker that wants authentication closes the connection: 'kafka.sasl.…' says how." if closed else None
    return StoreUnreachable(name=store, why=why, hint=hint)


def _telling(c: Connection, error: KafkaError, reports: Sequence[KafkaError]) -> str:
    """The first report that names a broker says more than the error of the call."""
    telling = [r.str() for r in reports if r.code() != KafkaError._ALL_BROKERS_DOWN]
    if not telling:
        return f"broker {c.brokers}: {_sentence(error.str())}"
    m = _REPORT.match(telling[0])
    return f"broker {m['broker']}: {_sentence(m['why'])}" if m else f"broker {c.brokers}: {telling[0]}"


def _sentence(text: str) -> str:
    """The library's text as the end of one of our sentences."""
    text = text.strip().rstrip(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
