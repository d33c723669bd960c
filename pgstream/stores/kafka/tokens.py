"""Tokens of OAUTHBEARER, from an OIDC provider's endpoint by client_credentials (RFC 6749, "Client Credentials Grant").

librdkafka would show all that an endpoint answers, and hold 500 MB of it; whoever makes a store chooses the address.
Owns: the callback that librdkafka asks for a token; ``TokenLogin.scala`` does the same in the worker, in the same
words. Must not know: confluent-kafka. Start reading at ``Bearer``.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx2 as httpx

from pgstream import pem

_CONNECT_S, _CALL_S = 3.0, 8.0
_LARGEST = 1 << 20
_REST_S, _LASTS_S = 30, 300
_LONGEST = 200
"""Characters that are shown of what an endpoint says."""
_TOKEN = re.compile(r"[\w.~+/-]+=*", re.A)


class NoToken(Exception):
    """There is no token; the text is the end of a sentence."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Where an OAUTHBEARER client gets its tokens."""

    endpoint: str
    client: str
    secret: str = field(repr=False)
    scope: str = ""
    extensions: str = ""
    authorities: str = field(default="", repr=False)


Made = tuple[str, float, str, dict[str, str]]


class Bearer:
    """Called with the client's configuration: a token, the second at which it ends, whose it is, and the extensions.
    It blocks, on a thread without an event loop. One token serves all clients."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self._made: Made = ("", 0.0, "", {})

    def __call__(self, _configuration: str | None = "") -> Made:
        """NoToken says why there is none."""
        if self._made[1] < time.time() + _REST_S:
            self._made = asyncio.run(self._fetch())
        return self._made

    async def _fetch(self) -> Made:
        try:
            async with asyncio.timeout(_CALL_S):
                status, text = await self._answer()
        except TimeoutError:
            raise self._none("it does not answer in time") from None
        except httpx.ConnectError as e:
            raise self._none(f"could not connect to it: {e or type(e).__name__}") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as e:
            # Of what is not HTTP its text would have a part.
            raise self._none(f"it does not answer as a token endpoint does ({type(e).__name__})") from None
        found = _object(text)
        if len(text) > _LARGEST:
            raise self._none(f"it answers with more than {_LARGEST >> 20} MB")
        if status != 200:
            raise self._none(self._refusal(status, found))
        token = found.get("access_token")
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise self._none("it answers without a token")
        claims = _claims(token)
        ends = _number(claims.get("exp")) or time.time() + (_number(found.get("expires_in")) or _LASTS_S)
        if ends <= time.time():
            raise self._none("it answers with a token that has ended")
        named = claims.get("sub")
        given = dict(pair.split("=", 1) for pair in self.tokens.extensions.split(",") if pair)
        return token, ends, named if isinstance(named, str) and named else self.tokens.client, given

    async def _answer(self) -> tuple[int, bytes]:
        """The status, and the body as far as ``_LARGEST`` and what shows that it is longer."""
        t = self.tokens
        asked = {"grant_type": "client_credentials"} | ({"scope": t.scope} if t.scope else {})
        trusted = pem.context(pem.Texts(t.authorities)) if t.endpoint.startswith("https:") else True
        text = b""
        async with (
            httpx.AsyncClient(
                auth=httpx.BasicAuth(t.client, t.secret),
                verify=trusted,
                timeout=httpx.Timeout(_CALL_S, connect=_CONNECT_S),
                trust_env=False,
            ) as http,
            http.stream("POST", t.endpoint, data=asked, headers={"Accept": "application/json"}) as answer,
        ):
            async for part in answer.aiter_bytes():
                text += part
                if len(text) > _LARGEST:
                    break
        return answer.status_code, text

    def _refusal(self, status: int, found: dict[str, Any]) -> str:
        """Only the two fields that a refusal has: what else answers at some address is nobody's to read."""
        error, more = found.get("error"), found.get("error_description")
        if not isinstance(error, str):
            return f"it answers with status {status}"
        said = [text for text in (error, more) if isinstance(text, str)]
        return "it refuses: " + ": ".join(_short(text.replace(self.tokens.secret, "********")) for text in said)

    def _none(self, why: str) -> NoToken:
        return NoToken(f"no OAUTHBEARER token from {_place(self.tokens.endpoint)}: {why}")


def _place(endpoint: str) -> str:
    """Without what may stand behind its path."""
    there = urlsplit(endpoint)
    return f"{there.scheme}://{there.netloc}{there.path}"


def _short(text: str) -> str:
    plain = "".join(c if c.isprintable() else " " for c in text[: _LONGEST + 1])
    return plain if len(plain) <= _LONGEST else f"{plain[:_LONGEST]}…"


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _claims(token: str) -> dict[str, Any]:
    """What a token says of itself, if it is a JSON Web Token; whether that is so is the broker's to check."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        return _object(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}


def _number(value: object) -> float:
    """0 for what is none."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e11 else 0.0
