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
    StoreRefused,
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
UNTRUSTED = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
}
"""Somebody answered, and does not let us in."""
MISSING = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}


def translate(error: KafkaError, store: str, c: Connection, entity: str = "") -> PgStreamError:
    """Our condition for one of the library's errors; what is not in the tables is a store that cannot serve."""
    code, why = error.code(), _masked(_sentence(error.str()), c)
    if code in MISSING:
        return UndefinedEntity(name=entity, store=store)
    if code == KafkaError.TOPIC_ALREADY_EXISTS:
        return DuplicateObject(kind="entity", name=entity)
    if code in _DENIED:
        return InsufficientPrivilege(kind="entity", name=f'"{entity}"', detail=f"The broker said: {why}.")
    if code in _REFUSED:
        return InvalidOption(what=f'store "{store}" refused entity "{entity}": {why}', hint=meant(why))
    if code in UNTRUSTED:
        return refused(store, c, why)
    return StoreUnreachable(name=store, why=why)


_NETWORK = ("onnection refused", "ailed to resolve", "nreachable", "timed out")
"""What the library says when there is nobody to close a connection."""
_NOT_KAFKA = "nvalid response size"
"""What it says of bytes that are no answer of Kafka's: what it took for their length is beyond all measure."""


def unreachable(store: str, c: Connection, error: KafkaError, reports: Sequence[KafkaError]) -> StoreUnreachable:
    """Why no broker answers. ``error`` is the call's; ``reports`` are those that the client made beside it."""
    why = _masked(_telling(c, error, reports), c)
    if "SASL" in why or any(r.code() in UNTRUSTED for r in reports):
        return refused(store, c, why)
    if (found := complaint(c)) is not None:
        return StoreUnreachable(name=store, why=f"broker {c.brokers}: {found.why}", hint=found.hint)
    if _NOT_KAFKA in why:
        hint = "Check 'uris': something other than Kafka answers at this host and port."
        return StoreUnreachable(name=store, why=f"{why.partition(': ')[0]}: it does not speak Kafka", hint=hint)
    reached = not any(word in why for word in _NETWORK)
    if error.code() != KafkaError._TRANSPORT or not reached:
        return StoreUnreachable(name=store, why=why)
    wants, how = (
        ("refuses the credentials may close", credentials(c))
        if c.authenticated
        else ("wants authentication closes", _HOW)
    )
    return StoreUnreachable(name=store, why=why, hint=f"A broker that {wants} the connection. {how} {_OTHER}")


_OTHER = "What is not Kafka closes it too: check 'uris'."
_HOW = "'kafka.sasl.hash_function', 'kafka.sasl.username' and 'kafka.sasl.password' say how."
_MECHANISM = "'kafka.sasl.hash_function'"
_TOKENS = "'kafka.sasl.oauthbearer.token.endpoint.url'"
_CLIENT = "'kafka.sasl.oauthbearer.client.id' and 'kafka.sasl.oauthbearer.client.secret'"


def credentials(c: Connection) -> str:
    """The parameters that the store shows who it is by, to be checked."""
    if c.tokens is not None:
        return f"Check {_CLIENT}, and 'kafka.sasl.oauthbearer.scope'."
    if c.msk is not None:
        return "Check 'kafka.msk.iam_role_arn', 'kafka.msk.aws_region' and the server's own AWS identity."
    return f"Check 'kafka.sasl.username' and 'kafka.sasl.password', and that the user was made for {_MECHANISM}."


def refused(store: str, c: Connection, why: str) -> StoreRefused:
    """A broker, or who gives the tokens for it, does not let us in; ``why`` holds no secret."""
    hint = credentials(c)
    if "OAUTHBEARER token" in why and "certificate" in why:
        hint = (
            f"Check {_TOKENS}, and 'kafka.sasl.oauthbearer.ca_cert_file', which gives the authorities to trust there."
        )
    elif "OAUTHBEARER token" in why and any(word in why for word in (*_NETWORK, "onnect to")):
        hint = f"Check {_TOKENS} and the network between this server and it."
    elif "Unsupported SASL mechanism" in why:
        hint = f"Check {_MECHANISM}."
    elif "not valid in current SASL state" in why:
        hint = f"The broker wants no SASL at this port: leave {_MECHANISM} out, or give another port in 'uris'."
    return StoreRefused(name=store, why=why, hint=hint)


def _masked(text: str, c: Connection) -> str:
    for secret in c.secrets:
        text = text.replace(secret, "********")
    return text


def _telling(c: Connection, error: KafkaError, reports: Sequence[KafkaError]) -> str:
    """The first report of a broker says more than the error of the call; best is one that a broker answered."""
    known = [r for r in reports if r.code() != KafkaError._ALL_BROKERS_DOWN]
    telling = [r.str() for r in sorted(known, key=lambda r: r.code() not in UNTRUSTED)]
    if not telling:
        return f"broker {c.brokers}: {_sentence(error.str())}"
    m = _REPORT.match(telling[0])
    return f"broker {m['broker']}: {_sentence(m['why'])}" if m else f"broker {c.brokers}: {telling[0]}"


def _sentence(text: str) -> str:
    """The library's text as the end of one of our sentences."""
    text = text.strip().rstrip(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
