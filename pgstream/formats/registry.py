"""A schema registry: how it is reached, and what the server asks of it.

Owns: one description of a connection, its spelling for the JVM (``java``), and the calls for schemas by subject.
Must not know: what a schema says (``avro``), the catalogue. Protocol: Confluent's "Schema Registry API reference".
Start reading at ``Registry``.
"""

from __future__ import annotations

import json
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import quote

import httpx2 as httpx

from pgstream.errors import InvalidOption, RegistryUnreachable, SchemaRefused

_FILES = ("tls.ca_cert_file", "tls.client.cert_file", "tls.client.key_file")
_CONNECT_S, _ANSWER_S = 3.0, 8.0


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach a registry. Empty texts mean: not given."""

    uris: tuple[str, ...]
    username: str = ""
    password: str = field(default="", repr=False)
    authorities: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)


def connection(options: Mapping[str, str]) -> Connection:
    """Read checked options. InvalidOption for file names: a server reads no files on a client's word."""
    for name in _FILES:
        if name in options and "-----BEGIN" not in options[name]:
            raise InvalidOption(
                what=f'invalid value for parameter "{name}"', hint="Give the PEM text itself as the value."
            )
    cloud = options.get("type") == "CONFLUENT_CLOUD"
    return Connection(
        uris=tuple(u.strip().rstrip("/") for u in options["uris"].split(",") if u.strip()),
        username=options.get("confluent_cloud.key" if cloud else "confluent.username", ""),
        password=options.get("confluent_cloud.secret" if cloud else "confluent.password", ""),
        authorities=options.get("tls.ca_cert_file", ""),
        certificate=options.get("tls.client.cert_file", ""),
        key=options.get("tls.client.key_file", ""),
    )


def java(name: str, options: Mapping[str, str]) -> str:
    """The connection as ``Registry.scala`` reads it: JSON, certificates in Kafka's words."""
    c = connection(options)
    tls: dict[str, str] = {}
    if c.authorities:
        tls |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": c.authorities}
    if c.certificate:
        tls |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": c.certificate,
            "ssl.keystore.key": c.key,
        }
    who = {"user": c.username, "password": c.password} if c.username else {}
    return json.dumps({"name": name, "uris": c.uris, "ssl": tls, **who}, sort_keys=True)


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema of a registry: ``kind`` is AVRO, PROTOBUF or JSON; ``refers`` are those that its text names."""

    id: int
    kind: str
    text: str
    refers: tuple[Registered, ...] = ()


class Registry:
    """A registry for one statement. Every call answers or raises RegistryUnreachable within seconds."""

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        self.name, self._c = name, connection(options)

    async def __aenter__(self) -> Self:
        who = httpx.BasicAuth(self._c.username, self._c.password) if self._c.username else None
        self._http = httpx.AsyncClient(
            auth=who, verify=_trust(self._c), timeout=httpx.Timeout(_ANSWER_S, connect=_CONNECT_S), trust_env=False
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def latest(self, subject: str) -> Registered | None:
        """The newest schema of a subject; None when it has none."""
        return await self._version(subject, "latest")

    async def schema(self, id_: int) -> Registered | None:
        """The schema of this id; None when there is none."""
        found = await self._ask("GET", f"/schemas/ids/{id_}")
        return None if found is None else await self._registered({**found, "id": id_}, 0)

    async def register(self, subject: str, text: str, kind: str = "AVRO") -> int:
        """The id of a schema, registered if need be. SchemaRefused when it does not fit the subject's earlier ones."""
        body = {"schema": text} | ({"schemaType": kind} if kind != "AVRO" else {})
        found = await self._ask("POST", f"/subjects/{quote(subject, safe='')}/versions", body, subject)
        assert found is not None
        return int(found["id"])

    async def check(self) -> None:
        """Raise RegistryUnreachable, saying why, when it does not answer or refuses the credentials."""
        await self._ask("GET", "/config")

    async def _version(self, subject: str, version: str, depth: int = 0) -> Registered | None:
        found = await self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/{version}")
        return None if found is None else await self._registered(found, depth)

    async def _registered(self, found: Mapping[str, Any], depth: int) -> Registered:
        if depth > 20:
            raise RegistryUnreachable(
                name=self.name, why=f"the schemas that schema {found['id']} names name each other"
            )
        refers = []
        for r in found.get("references") or ():
            inner = await self._version(r["subject"], str(r["version"]), depth + 1)
            if inner is None:
                raise RegistryUnreachable(name=self.name, why=f'it has no subject "{r["subject"]}"')
            refers.append(inner)
        return Registered(int(found["id"]), found.get("schemaType") or "AVRO", found["schema"], tuple(refers))

    async def _ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, subject: str = ""
    ) -> dict[str, Any] | None:
        """Ask each URL in turn until one answers. None for what is not there."""
        why = "it has no URL"
        for uri in self._c.uris:
            try:
                answer = await self._http.request(method, uri + path, json=body)
            except (httpx.HTTPError, httpx.InvalidURL, OSError) as e:
                why = f"{uri}: {str(e) or type(e).__name__}"
                continue
            if answer.status_code in (401, 403):
                why = f"{uri} refuses the credentials"
            elif answer.status_code in (409, 422) and subject:
                raise SchemaRefused(subject=subject, detail=_said(answer))
            elif answer.status_code == 404 and "error_code" in answer.text:
                return None
            elif answer.is_success:
                return dict(answer.json())
            else:
                why = f"{uri} answers with status {answer.status_code}"
        raise RegistryUnreachable(name=self.name, why=why)


def _said(answer: httpx.Response) -> str | None:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return None


def _trust(c: Connection) -> ssl.SSLContext | bool:
    if not any(u.startswith("https:") for u in c.uris):
        return True
    context = ssl.create_default_context(cadata=c.authorities or None)
    if c.certificate:
        # Python's ssl reads a certificate from a file only.
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(c.certificate.rstrip() + "\n" + c.key.rstrip() + "\n")
            file.flush()
            context.load_cert_chain(file.name)
    return context
