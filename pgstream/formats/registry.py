"""A schema registry: how it is reached, and what the server asks of it.

Owns: one description of a connection, its spelling for the JVM (``java``), and the calls for schemas by subject.
Must not know: what a schema says (``avro``), the catalogue. Protocol: Confluent's "Schema Registry API reference".
Start reading at ``Registry``.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self
from urllib.parse import quote, urlsplit

import httpx2 as httpx

from pgstream import pem
from pgstream.errors import RegistryUnreachable, SchemaRefused

_CONNECT_S, _URL_S, _CALL_S = 3.0, 5.0, 9.0
_LARGEST = 8 << 20
"""Bytes of an answer, and of all of a call: a schema and those that it refers to. One has some kilobytes."""
_LONGEST = 2000
"""Characters of why a schema does not fit."""


_REFUSES = "refuses the credentials"
_WHO = "'confluent.username' and 'confluent.password', or 'confluent_cloud.key' and 'confluent_cloud.secret'"


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach a registry. Empty texts mean: not given."""

    uris: tuple[str, ...]
    username: str = ""
    password: str = field(default="", repr=False)
    tls: pem.Texts = field(default_factory=pem.Texts)


def urls(text: str) -> str:
    """The value of ``uris``, checked. ValueError with a sentence, which shows nothing of what may be a password."""
    given = [u.strip() for u in text.split(",") if u.strip()]
    for number, one in enumerate(given, 1):
        try:
            there = urlsplit(one)
            known = there.scheme in ("http", "https") and there.hostname and (there.port or True)
        except ValueError:
            known = False
        if not known:
            raise ValueError(f"URL {number} is not http://host:port or https://host:port")
        if "?" in one or "#" in one:
            # What is asked for would not be what comes behind it, but any path.
            raise ValueError(f"URL {number} has a ? or # in it")
        if "@" in there.netloc:
            raise ValueError(
                f"URL {number} has a user name or password in it; those belong into parameters of their own"
            )
    if not given:
        raise ValueError("it names no URL")
    return ",".join(given)


def connection(options: Mapping[str, str]) -> Connection:
    """Read checked options. InvalidOption as ``pem.tls_texts``."""
    uris = tuple(u.strip().rstrip("/") for u in options["uris"].split(",") if u.strip())
    return Connection(
        # A catalogue of an older version may hold URLs with a user name and password: not to be shown by any error.
        uris=tuple(_bare(u) for u in uris),
        username=options.get("confluent_cloud.key") or options.get("confluent.username", ""),
        password=options.get("confluent_cloud.secret") or options.get("confluent.password", ""),
        tls=pem.tls_texts(options),
    )


def advice(why: str) -> str | None:
    """What to look at where a registry is not to be had; of a query, too (``Registry.scala`` has the same words)."""
    if why.endswith(_REFUSES):
        return f"Check {_WHO}."
    return RegistryUnreachable.class_hint


def _bare(uri: str) -> str:
    scheme, mark, rest = uri.partition("://")
    place, slash, path = rest.partition("/")
    return scheme + mark + place.rpartition("@")[2] + slash + path


def java(name: str, options: Mapping[str, str]) -> str:
    """The connection as ``Registry.scala`` reads it: JSON, certificates in Kafka's words."""
    c = connection(options)
    who = {"user": c.username, "password": c.password} if c.username else {}
    return json.dumps({"name": name, "uris": c.uris, "ssl": pem.java(c.tls), **who}, sort_keys=True)


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema of a registry: ``kind`` is AVRO, PROTOBUF or JSON; ``refers`` are those that its text names.

    ``name``: by which another refers to this one, as that version of that subject.
    """

    id: int
    kind: str
    text: str
    refers: tuple[Registered, ...] = ()
    name: str = ""
    subject: str = ""
    version: int = 0


class Registry:
    """A registry for one statement. Every call answers or raises RegistryUnreachable within seconds."""

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        self.name, self._c = name, connection(options)
        self._room = _LARGEST

    async def __aenter__(self) -> Self:
        who = httpx.BasicAuth(self._c.username, self._c.password) if self._c.username else None
        self._http = httpx.AsyncClient(
            auth=who, verify=_trust(self._c), timeout=httpx.Timeout(_URL_S, connect=_CONNECT_S), trust_env=False
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def latest(self, subject: str) -> Registered | None:
        """The newest schema of a subject; None when it has none."""
        async with self._in_time():
            return await self._version(subject, "latest")

    async def schema(self, id_: int) -> Registered | None:
        """The schema of this id; None when there is none."""
        async with self._in_time():
            found = await self._ask("GET", f"/schemas/ids/{id_}")
            return None if found is None else await self._registered({**found, "id": id_}, 0)

    async def register(self, subject: str, text: str, kind: str = "AVRO", refers: Sequence[Registered] = ()) -> int:
        """The id of a schema, registered if need be. SchemaRefused when it does not fit the subject's earlier ones."""
        body: dict[str, Any] = {"schema": text} | ({"schemaType": kind} if kind != "AVRO" else {})
        if refers:
            body["references"] = [{"name": r.name, "subject": r.subject, "version": r.version} for r in refers]
        async with self._in_time():
            found = await self._ask("POST", f"/subjects/{quote(subject, safe='')}/versions", body, subject)
        if found is None or not isinstance(found.get("id"), int):
            raise self._strange()
        return int(found["id"])

    async def check(self) -> None:
        """Raise RegistryUnreachable, saying why, when it does not answer or refuses the credentials."""
        async with self._in_time():
            await self._ask("GET", "/config")

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        """The whole of a call, with all URLs and all that a schema refers to."""
        self._room = _LARGEST
        try:
            async with asyncio.timeout(_CALL_S):
                yield
        except TimeoutError:
            raise RegistryUnreachable(name=self.name, why=f"it does not answer within {_CALL_S:.0f} s") from None

    def _strange(self) -> RegistryUnreachable:
        return RegistryUnreachable(name=self.name, why="it answers with something else than a schema registry does")

    async def _version(self, subject: str, version: str, depth: int = 0) -> Registered | None:
        found = await self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/{version}")
        return None if found is None else await self._registered(found, depth)

    async def _registered(self, found: Mapping[str, Any], depth: int) -> Registered:
        if depth > 20:
            raise RegistryUnreachable(name=self.name, why="schemas refer to each other")
        refers = []
        try:
            for r in found.get("references") or ():
                inner = await self._version(r["subject"], str(r["version"]), depth + 1)
                if inner is None:
                    raise RegistryUnreachable(name=self.name, why=f'it has no subject "{r["subject"]}"')
                refers.append(replace(inner, name=r["name"], subject=r["subject"], version=r["version"]))
            return Registered(int(found["id"]), found.get("schemaType") or "AVRO", found["schema"], tuple(refers))
        except (KeyError, TypeError, ValueError):
            raise self._strange() from None

    async def _ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, subject: str = ""
    ) -> dict[str, Any] | None:
        """Ask each URL in turn until one answers. None for what is not there."""
        why = "it has no URL"
        for uri in self._c.uris:
            try:
                async with asyncio.timeout(_URL_S):
                    answer, text = await self._answer(method, uri + path, body)
            except TimeoutError:
                why = f"{uri} does not answer in time"
                continue
            except httpx.RemoteProtocolError:  # whose text has a part of what came
                why = f"{uri} does not speak HTTP"
                continue
            except (httpx.HTTPError, httpx.InvalidURL, OSError) as e:
                why = f"{uri}: {str(e) or type(e).__name__}"
                continue
            if answer.status_code in (401, 403):
                why = f"{uri} {_REFUSES}"
            elif len(text) > self._room:
                why = f"{uri} answers with more than {_LARGEST >> 20} MB"
            elif answer.status_code in (409, 422) and subject:
                raise SchemaRefused(subject=subject, detail=_said(text))
            elif answer.status_code == 404 and b"error_code" in text:
                return None
            elif not answer.is_success:
                why = f"{uri} answers with status {answer.status_code}"
            elif (found := _object(text)) is not None:
                self._room -= len(text)
                return found
            else:
                raise self._strange()
        raise RegistryUnreachable(name=self.name, why=why, hint=advice(why))

    async def _answer(self, method: str, url: str, body: dict[str, Any] | None) -> tuple[httpx.Response, bytes]:
        """The head of an answer, and its body as far as there is room and what shows that it is longer."""
        text = b""
        async with self._http.stream(method, url, json=body) as answer:
            async for part in answer.aiter_bytes():
                text += part
                if len(text) > self._room:
                    break
        return answer, text


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _said(text: bytes) -> str | None:
    found = _object(text)
    return str(found["message"])[:_LONGEST] if found is not None and "message" in found else None


def _trust(c: Connection) -> ssl.SSLContext | bool:
    if not any(u.startswith("https:") for u in c.uris):
        return True
    return pem.context(c.tls)
