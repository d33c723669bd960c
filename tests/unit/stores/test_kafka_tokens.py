"""Tokens of OAUTHBEARER from an endpoint that is another thing, says too much, or never ends."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pgstream.errors import StoreRefused
from pgstream.stores.kafka import tokens
from pgstream.stores.kafka.admin import KafkaAdmin
from pgstream.stores.kafka.tokens import Bearer, NoToken
from tests.pg.door.certificates import Authority
from tests.token_endpoint import LATER, SECRET, Endpoint, jwt
from tests.unit.stores.test_refusals import TOKENS


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as found:
        yield found


def why(bearer: Bearer) -> str:
    with pytest.raises(NoToken) as e:
        bearer()
    text = str(e.value)
    assert text.startswith("no OAUTHBEARER token from http") and SECRET not in text and "internal" not in text
    return text


def test_a_token_and_what_it_says_of_itself(endpoint: Endpoint) -> None:
    endpoint.answers(200, {"access_token": jwt(exp=LATER, sub="her")})
    bearer = endpoint.asked(scope="a&b=c d", extensions="one=1,two=2=3")
    assert bearer() == (jwt(exp=LATER, sub="her"), LATER, "her", {"one": "1", "two": "2=3"})
    assert endpoint.told == {"grant_type": ["client_credentials"], "scope": ["a&b=c d"]}
    assert endpoint.who == "Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()
    endpoint.answers(500, b"")
    assert bearer()[2] == "her"  # for all clients


def test_a_token_that_says_nothing_of_itself(endpoint: Endpoint) -> None:
    endpoint.answers(200, {"access_token": "opaque", "expires_in": 1000})
    token, ends, who, _ = endpoint.asked()()
    assert (token, who) == ("opaque", "me") and ends > time.time()


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, {"error": "invalid_client", "error_description": "unknown client"},
         "it refuses: invalid_client: unknown client"),
        (400, {"error": "no", "error_description": SECRET}, "it refuses: no: ********"),
        (400, {"error": "x" * 900 + "internal"}, f"it refuses: {'x' * 200}…"),
        (400, {"error": "a\r\nb"}, "it refuses: a  b"),
        (403, {"AccessKeyId": "internal", "message": "internal"}, "it answers with status 403"),
        (403, {"error": {"internal": 1}, "error_description": "internal"}, "it answers with status 403"),
        (403, b"internal", "it answers with status 403"),
        (302, b"internal", "it answers with status 302"),
        (200, {"AccessKeyId": "internal"}, "it answers without a token"),
        (200, {"access_token": "internal\n"}, "it answers without a token"),
        (200, b"internal", "it answers without a token"),
        (200, b"[" * 100_000, "it answers without a token"),
        (200, {"access_token": jwt(exp=1)}, "it answers with a token that has ended"),
    ],
)  # fmt: skip
def test_no_more_of_an_answer_is_shown_than_a_refusal_has(
    endpoint: Endpoint, status: int, body: Any, said: str
) -> None:
    endpoint.answers(status, body)
    assert why(endpoint.asked()).endswith(f"/token: {said}")


@pytest.mark.parametrize(
    ("manner", "said"),
    [("endless", "more than 1 MB"), ("slow", "in time"), ("silent", "in time"), ("other", "does not answer as")],
)
def test_a_broken_endpoint_is_named_soon(
    endpoint: Endpoint, manner: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if manner != "endless":
        monkeypatch.setattr(tokens, "_CALL_S", 0.5)
    endpoint.manner = manner
    assert said in why(endpoint.asked())


def test_its_certificate(tmp_path: Path) -> None:
    own = Authority(tmp_path / "own")
    with Endpoint(own) as there:
        there.answers(200, {"access_token": jwt(exp=LATER)})
        assert there.asked(authorities=own.root.read_text())()[1] == LATER
        assert "could not connect to it: " in why(there.asked()) and "certificate" in why(there.asked())


async def test_a_store_says_why(endpoint: Endpoint) -> None:
    endpoint.answers(401, {"error": "invalid_client"})
    place = f"http://127.0.0.1:{endpoint.server_address[1]}/t?x=hush"
    admin = KafkaAdmin("s", TOKENS | {"kafka.sasl.oauthbearer.token.endpoint.url": place})
    with pytest.raises(StoreRefused, match="it refuses: invalid_client") as e:
        await admin.check()
    assert "client.secret'" in str(e.value.hint) and "hush" not in e.value.text
    await admin.close()
    gone = KafkaAdmin("s", TOKENS | {"kafka.sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:9/t"})
    with pytest.raises(StoreRefused, match="could not connect to it") as e:
        await asyncio.wait_for(gone.check(), 30)
    assert "network" in str(e.value.hint)
    await gone.close()
