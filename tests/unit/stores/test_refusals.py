"""Who was reached and does not let us in is told from who was not reached, and the hint names the parameters for it."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from confluent_kafka import KafkaError

from pgstream import stores
from pgstream.errors import StoreHindered, StoreRefused, StoreUnreachable
from pgstream.stores.kafka import reasons as kafka
from pgstream.stores.kafka.client import connection
from pgstream.stores.kinesis import client as kinesis_client
from pgstream.stores.kinesis import reasons as kinesis
from pgstream.stores.postgresql import reasons as postgresql

PASSWORD = {
    "uris": "h:1",
    "kafka.sasl.hash_function": "SHA512",
    "kafka.sasl.username": "bob",
    "kafka.sasl.password": "wr0ng",
}
TOKENS = {
    "uris": "h:1",
    "kafka.sasl.hash_function": "OAUTHBEARER",
    "kafka.sasl.oauthbearer.token.endpoint.url": "https://t/token",
    "kafka.sasl.oauthbearer.client.id": "me",
    "kafka.sasl.oauthbearer.client.secret": "s3cret",
}
MSK = {"uris": "h:1", "kafka.sasl.hash_function": "AWS_MSK_IAM", "kafka.msk.iam_role_arn": "arn:aws:iam::1:role/r",
       "kafka.msk.aws_region": "eu-west-3"}  # fmt: skip
USER, SECRET, MECHANISM = "'kafka.sasl.username'", "'kafka.sasl.password'", "'kafka.sasl.hash_function'"
NONE = {"uris": "h:1", "tls.disabled": "true"}

# What librdkafka 2 reports, as seen with a real broker.
AUTH, DOWN, TRANSPORT = KafkaError._AUTHENTICATION, KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT
BAD_PASSWORD = (
    "sasl_ssl://h:1/bootstrap: SASL authentication error: Authentication failed during authentication due to invalid "
    "credentials with SASL mechanism SCRAM-SHA-512 (after 331ms in state AUTH_REQ)"
)
OTHER_MECHANISM = (
    "sasl_ssl://h:1/bootstrap: SASL PLAIN mechanism handshake failed: Broker: Unsupported SASL mechanism: broker's "
    "supported mechanisms: OAUTHBEARER (after 302ms in state AUTH_HANDSHAKE)"
)
NO_SASL = (
    "sasl_plaintext://h:1/bootstrap: SASL PLAIN mechanism handshake failed: Broker: Request not valid in current SASL "
    "state: broker's supported mechanisms:  (after 0ms in state AUTH_HANDSHAKE)"
)
CLOSED_PORT = "ssl://h:1/bootstrap: Connect to ipv6#[::1]:1 failed: Connection refused (after 0ms in state CONNECT)"
NO_HOST = (
    "ssl://no.such.host:9092/bootstrap: Failed to resolve 'no.such.host:9092': Name or service not known "
    "(after 12ms in state CONNECT)"
)
OTHER_PROTOCOL = (
    "h:1/bootstrap: Receive failed: Invalid response size 1213486160 (0..100000000): increase "
    "receive.message.max.bytes (after 0ms in state APIVERSION_QUERY)"
)
NO_TOKEN = 'Failed to acquire SASL OAUTHBEARER token: {"error": "invalid_client"}'
NO_ENDPOINT = "Failed to acquire SASL OAUTHBEARER token: Failed to connect to t:443: Could not connect to server"
UNTRUSTED = "Failed to acquire SASL OAUTHBEARER token: SSL peer certificate or SSH remote key was not OK"


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "complaint", lambda c: None)


@pytest.mark.parametrize(
    ("options", "reports", "refused", "hint"),
    [
        (PASSWORD, [(AUTH, BAD_PASSWORD)], True, [USER, SECRET, MECHANISM]),
        # A name with two addresses: nobody at the first one is not what went wrong.
        (PASSWORD, [(TRANSPORT, CLOSED_PORT), (AUTH, BAD_PASSWORD)], True, [SECRET]),
        (PASSWORD, [(AUTH, OTHER_MECHANISM)], True, ["Check 'kafka.sasl.hash_function'."]),
        (PASSWORD, [(AUTH, NO_SASL)], True, ["leave 'kafka.sasl.hash_function' out"]),
        (PASSWORD, [(TRANSPORT, CLOSED_PORT)], False, ["'uris'"]),
        (NONE, [(TRANSPORT, NO_HOST)], False, ["Check 'uris' and the network"]),
        (PASSWORD, [(KafkaError._RESOLVE, NO_HOST)], False, ["Check 'uris' and the network"]),
        (NONE, [(TRANSPORT, OTHER_PROTOCOL)], False, ["Check 'uris'", "other than Kafka"]),
        (PASSWORD, [(DOWN, "1/1 brokers are down")], False, ["refuses the credentials may close", SECRET]),
        (NONE, [(DOWN, "1/1 brokers are down")], False, ["wants authentication closes", USER]),
        (TOKENS, [(AUTH, NO_TOKEN)], True, ["bearer.client.id'", "bearer.client.secret'"]),
        (TOKENS, [(AUTH, NO_ENDPOINT)], True, ["'kafka.sasl.oauthbearer.token.endpoint.url'", "network"]),
        (TOKENS, [(AUTH, UNTRUSTED)], True, ["'kafka.sasl.oauthbearer.ca_cert_file'"]),
        (MSK, [(AUTH, "ssl://h:1/bootstrap: SASL error: Access denied")], True, ["'kafka.msk.iam_role_arn'"]),
    ],
)  # fmt: skip
def test_kafka(options: dict[str, str], reports: list[tuple[int, str]], refused: bool, hint: list[str]) -> None:
    failed = KafkaError(TRANSPORT, "Failed to get metadata: Local: Broker transport failure")
    e = kafka.unreachable("s", connection(options), failed, [KafkaError(*r) for r in reports])
    _is(e, refused, hint)
    if refused:
        assert "uris" not in (e.hint or "") or "another port" in (e.hint or "")


def test_kafka_in_the_middle() -> None:
    """A call that fails after the store was opened."""
    c = connection(PASSWORD)
    _is(kafka.translate(KafkaError(AUTH, "SASL failed for wr0ng"), "s", c), True, [SECRET])
    code = KafkaError.SASL_AUTHENTICATION_FAILED
    _is(kafka.translate(KafkaError(code, "Invalid"), "s", c), True, [SECRET])
    _is(kafka.translate(KafkaError(TRANSPORT, "Disconnected"), "s", c), False, ["'uris'"])


def test_kafka_of_a_query() -> None:
    name = "org.apache.kafka.common.errors."
    told = stores.trouble("kafka", {"class": f"{name}SaslAuthenticationException", "message": "Wrong."}, "s", "")
    assert told is not None
    assert (told.kind, told.message) == ("refused", 'could not log in to store "s": wrong')
    assert "UPDATE STORE" in (told.hint or "")
    told = stores.trouble("kafka", {"class": "javax.security.auth.login.LoginException", "message": ""}, "s", "No.")
    assert told is not None and told.message == 'could not log in to store "s": no'
    told = stores.trouble("kafka", {"class": f"{name}DisconnectException", "message": "Gone."}, "s", "")
    assert told is not None
    assert (told.kind, told.message) == ("store", 'could not reach store "s": gone')


KEYS = {"uris": "https://kinesis.eu-west-3.amazonaws.com", "kinesis.region": "eu-west-3",
        "kinesis.access_key_id": "AKIA", "kinesis.secret_access_key": "wr0ng"}  # fmt: skip


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("UnrecognizedClientException", ["'kinesis.access_key_id'", "'kinesis.secret_access_key'"]),
        ("InvalidSignatureException", ["'kinesis.secret_access_key'"]),
        ("ExpiredTokenException", ["session token"]),
    ],
)
def test_kinesis(code: str, hint: list[str]) -> None:
    c = kinesis_client.connection(KEYS)
    said: Any = {"Error": {"Code": code, "Message": "The key wr0ng is none."}}
    _is(kinesis.translate(ClientError(said, "ListStreams"), "s", c), True, hint)
    told = stores.trouble(
        "kinesis", {"class": "org.apache.spark.sql.pgstream.AwsException", "message": f"{code}: No."}, "s", ""
    )
    assert told is not None and told.message == 'could not log in to store "s": no'
    assert told.hint is not None and all(word in told.hint for word in hint)


def test_kinesis_that_is_away() -> None:
    c = kinesis_client.connection(KEYS)
    _is(kinesis.translate(EndpointConnectionError(endpoint_url="https://k"), "s", c), False, ["Check"])


@pytest.mark.parametrize(
    ("said", "refused", "hint"),
    [
        ('FATAL:  password authentication failed for user "bob"', True, ["'postgres.username'", "'postgres.password'"]),
        ("fe_sendauth: no password supplied", True, ["'postgres.password'"]),
        ('FATAL:  role "bob" does not exist', True, ["Check 'postgres.username'."]),
        ('FATAL:  role "bob" is not permitted to log in', True, ["Check 'postgres.username'."]),
        ('FATAL:  no pg_hba.conf entry for host "1.2.3.4", user "bob"', True, ["'postgres.username'", "pg_hba.conf"]),
        ('FATAL:  database "shop" does not exist', False, ["database in 'uris'"]),
        ('FATAL:  permission denied for database "shop"', False, ["'postgres.username'", "CONNECT"]),
        ("FATAL:  sorry, too many clients already", False, ["has a connection free"]),
        ('FATAL:  too many connections for role "bob"', False, ["has a connection free"]),
        ("connection refused", False, ["'uris'"]),
        ("server does not support SSL, but SSL was required", False, ["'tls.disabled' = TRUE"]),
    ],
)
def test_postgresql(said: str, refused: bool, hint: list[str]) -> None:
    failed = psycopg.OperationalError(f'connection failed: connection to server at "1.2.3.4", port 5432 failed: {said}')
    _is(postgresql.translate(failed, "s", ""), refused, hint)


@pytest.mark.parametrize("state", ["25006", "40P01", "53100", "55P03", "57014"])
def test_postgresql_that_is_there(state: str) -> None:
    failed = psycopg.errors.lookup(state)("no")
    told = postgresql.translate(failed, "s", "")
    assert isinstance(told, StoreHindered) and told.text == 'store "s" could not do what was asked: no'
    assert "uris" not in str(told.hint)


def test_postgresql_of_a_query() -> None:
    told = stores.trouble("postgresql", {"class": "x.TableFault", "message": "refused\n58000\nNo.\nCheck it."}, "s", "")
    assert told is not None
    assert (told.kind, told.message, told.hint) == ("refused", 'could not log in to store "s": no', "Check it.")


def _is(e: Exception, refused: bool, hint: list[str]) -> None:
    assert isinstance(e, StoreUnreachable) and isinstance(e, StoreRefused) == refused
    assert e.text.startswith("could not log in to" if refused else "could not reach")
    assert e.sqlstate == "58000"
    assert all(word in (e.hint or "") for word in hint), e.hint
    assert "wr0ng" not in f"{e.text} {e.detail} {e.hint}" and "s3cret" not in f"{e.text} {e.hint}"
