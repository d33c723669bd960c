"""A worker's tokens of OAUTHBEARER, from an endpoint that is another thing, says too much, or never ends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pgstream import pem
from tests.pg.door.certificates import Authority
from tests.token_endpoint import LATER, SECRET, Endpoint, jwt

pytestmark = pytest.mark.stream


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as found:
        yield found


def asked(spark: SparkSession, there: Endpoint, **more: str) -> Any:
    """The callback that Kafka's client has asked with."""
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    login = jvm.org.apache.spark.sql.pgstream.TokenLogin()
    options = {"clientId": "me", "clientSecret": SECRET} | more
    entry = jvm.javax.security.auth.login.AppConfigurationEntry
    flag = getattr(jvm, "javax.security.auth.login.AppConfigurationEntry$LoginModuleControlFlag").REQUIRED
    place = f"{there.scheme}://127.0.0.1:{there.server_address[1]}/token?hush"
    login.configure(
        {"sasl.oauthbearer.token.endpoint.url": place},
        "OAUTHBEARER",
        [entry("x", flag, jvm.java.util.HashMap(options))],
    )
    callbacks = gateway.new_array(jvm.javax.security.auth.callback.Callback, 2)
    bearer = jvm.org.apache.kafka.common.security.oauthbearer
    callbacks[0] = bearer.OAuthBearerTokenCallback()
    callbacks[1] = jvm.org.apache.kafka.common.security.auth.SaslExtensionsCallback()
    login.handle(callbacks)
    return callbacks


def test_a_token_and_what_it_says_of_itself(spark: SparkSession, endpoint: Endpoint) -> None:
    endpoint.answers(200, {"access_token": jwt(exp=LATER, sub="her")})
    found = asked(spark, endpoint, scope="a&b=c d", extension_one="1")
    token = found[0].token()
    assert (token.value(), token.lifetimeMs(), token.principalName()) == (
        jwt(exp=LATER, sub="her"),
        LATER * 1000,
        "her",
    )
    assert endpoint.told == {"grant_type": ["client_credentials"], "scope": ["a&b=c d"]}
    assert dict(found[1].extensions().map()) == {"one": "1"}
    endpoint.answers(200, {"access_token": "opaque", "expires_in": 1000})
    token = asked(spark, endpoint)[0].token()
    assert token.principalName() == "me" and token.lifetimeMs() > time.time() * 1000


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, {"error": "no", "error_description": f"a\n{SECRET}"}, "it refuses: no: a ********"),
        (400, {"error": "x" * 900}, f"it refuses: {'x' * 200}…"),
        (403, {"AccessKeyId": "internal", "error": {}}, "it answers with status 403"),
        (302, b"internal", "it answers with status 302"),
        (200, b"internal", "it answers without a token"),
        (200, {"access_token": jwt(exp=1)}, "it answers with a token that has ended"),
        (200, b"[" * 100_000, "it answers without a token"),
    ],
)
def test_no_more_of_an_answer_is_shown_than_a_refusal_has(
    spark: SparkSession, endpoint: Endpoint, status: int, body: Any, said: str
) -> None:
    endpoint.answers(status, body)
    why = asked(spark, endpoint)[0].errorDescription()
    assert why.startswith("no OAUTHBEARER token from http://127.0.0.1:") and why.endswith(f"/token: {said}")


@pytest.mark.parametrize(("manner", "said"), [("endless", "does not answer as"), ("other", "does not answer as")])
def test_a_broken_endpoint_is_named(spark: SparkSession, endpoint: Endpoint, manner: str, said: str) -> None:
    endpoint.manner = manner
    why = asked(spark, endpoint)[0].errorDescription()
    assert said in why and "internal" not in why


def test_its_certificate(spark: SparkSession, tmp_path: Path) -> None:
    own = Authority(tmp_path / "own")
    there = Endpoint(own)
    there.answers(200, {"access_token": jwt(exp=LATER)})
    trusted = pem.java(pem.Texts(own.root.read_text()))
    assert asked(spark, there, **trusted)[0].token().lifetimeMs() == LATER * 1000
    assert "could not connect to it: " in asked(spark, there)[0].errorDescription()
    there.shutdown()
    there.server_close()
