"""A store's options as settings of the two Kafka clients: librdkafka (``admin.py``) and Java's (``spark.py``).

Owns: one description of a connection, ``Connection``, and its two spellings.
Must not know: confluent-kafka, pyspark. Start reading at ``connection``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pgstream import pem
from pgstream.stores.kafka.msk import Signer
from pgstream.stores.kafka.tokens import Bearer, Tokens
from pgstream.stores.kafka.values import SUITES

_MECHANISM = {
    "PLAIN": "PLAIN",
    "SHA256": "SCRAM-SHA-256",
    "SHA512": "SCRAM-SHA-512",
    "SCRAM-SHA-256": "SCRAM-SHA-256",
    "SCRAM-SHA-512": "SCRAM-SHA-512",
    "OAUTHBEARER": "OAUTHBEARER",
    # MSK takes IAM's tokens by this mechanism, too, which both clients know.
    "AWS_MSK_IAM": "OAUTHBEARER",
}
_OAUTH = "kafka.sasl.oauthbearer."
_LOGIN = "org.apache.kafka.common.security."


@dataclass(frozen=True, slots=True)
class Identity:
    """The IAM role that the server's own AWS identity takes, and the region of the cluster."""

    role: str
    region: str


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach a cluster, in the words of neither library. Empty texts mean: not given."""

    brokers: str
    protocol: str
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    tokens: Tokens | None = None
    msk: Identity | None = None
    tls: pem.Texts = field(default_factory=pem.Texts)
    verify_host: bool = True
    suites: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no text may show, wherever it comes from."""
        return tuple(s for s in (self.password, self.tokens.secret if self.tokens else "") if s)

    @property
    def encrypted(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def authenticated(self) -> bool:
        return self.protocol.startswith("SASL_")


def connection(options: Mapping[str, str]) -> Connection:
    """Read checked options. InvalidOption as ``pem.tls_texts``."""
    said = options.get("kafka.sasl.hash_function", "NONE")
    mechanism = _MECHANISM.get(said, "")
    tls = options.get("tls.disabled", "false") != "true"
    protocol = ("SASL_" if mechanism else "") + ("SSL" if tls else "PLAINTEXT")
    return Connection(
        brokers=",".join(u.strip() for u in options["uris"].split(",") if u.strip()),
        protocol=options.get("security.protocol", protocol),
        mechanism=mechanism or "PLAIN",
        username=options.get("kafka.sasl.username", ""),
        password=options.get("kafka.sasl.password", ""),
        tokens=_tokens(options) if said == "OAUTHBEARER" else None,
        msk=_identity(options) if said == "AWS_MSK_IAM" else None,
        tls=pem.tls_texts(options),
        verify_host=options.get("tls.verify_server_hostname", "true") == "true",
        suites=_several(options.get("tls.cipher_suites", "")),
        versions=_several(options.get("tls.protocols", "")),
    )


def _several(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def _tokens(options: Mapping[str, str]) -> Tokens:
    return Tokens(
        endpoint=options[f"{_OAUTH}token.endpoint.url"],
        client=options[f"{_OAUTH}client.id"],
        secret=options[f"{_OAUTH}client.secret"],
        scope=options.get(f"{_OAUTH}scope", ""),
        extensions=options.get(f"{_OAUTH}extensions", ""),
        authorities=pem.authorities(options, f"{_OAUTH}ca_cert_file"),
    )


def _identity(options: Mapping[str, str]) -> Identity:
    return Identity(options["kafka.msk.iam_role_arn"], options["kafka.msk.aws_region"])


def librdkafka(options: Mapping[str, str]) -> dict[str, Any]:
    """Settings for confluent-kafka's clients. It knows no list of TLS versions, nor one of TLS 1.3's cipher suites."""
    c = connection(options)
    out: dict[str, Any] = {"bootstrap.servers": c.brokers, "security.protocol": c.protocol}
    if c.authenticated:
        out["sasl.mechanism"] = c.mechanism
        if c.tokens is not None:
            out["oauth_cb"] = Bearer(c.tokens)
        elif c.msk is not None:
            out["oauth_cb"] = Signer(c.msk.role, c.msk.region)
        else:
            out |= {"sasl.username": c.username, "sasl.password": c.password}
    if c.encrypted:
        out["ssl.endpoint.identification.algorithm"] = "https" if c.verify_host else "none"
        given = {
            "ssl.ca.pem": c.tls.authorities,
            "ssl.certificate.pem": c.tls.certificate,
            "ssl.key.pem": c.tls.key,
            "ssl.cipher.suites": ":".join(SUITES[s] for s in c.suites if SUITES[s]),
        }
        out |= {k: v for k, v in given.items() if v}
    return out


def java(options: Mapping[str, str]) -> dict[str, str]:
    """Settings for Kafka's Java clients, without any prefix."""
    c = connection(options)
    out = {"bootstrap.servers": c.brokers, "security.protocol": c.protocol}
    if c.authenticated:
        out["sasl.mechanism"] = c.mechanism
        if c.tokens is not None:
            out |= _java_tokens(c.tokens)
        elif c.msk is not None:
            said = {"role": c.msk.role, "region": c.msk.region}
            out["sasl.jaas.config"] = _jaas("oauthbearer.OAuthBearerLoginModule", said)
            out["sasl.login.callback.handler.class"] = "org.apache.spark.sql.pgstream.MskLogin"
        else:
            module = "plain.PlainLoginModule" if c.mechanism == "PLAIN" else "scram.ScramLoginModule"
            out["sasl.jaas.config"] = _jaas(module, {"username": c.username, "password": c.password})
    if c.encrypted:
        out["ssl.endpoint.identification.algorithm"] = "https" if c.verify_host else ""
        given = {"ssl.cipher.suites": ",".join(c.suites), "ssl.enabled.protocols": ",".join(c.versions)}
        out |= pem.java(c.tls) | {k: v for k, v in given.items() if v}
    return out


def _java_tokens(t: Tokens) -> dict[str, str]:
    said = {"clientId": t.client, "clientSecret": t.secret}
    said |= {"scope": t.scope} if t.scope else {}
    for pair in _several(t.extensions):
        name, _, value = pair.partition("=")
        said[f"extension_{name}"] = value
    return {
        "sasl.jaas.config": _jaas("oauthbearer.OAuthBearerLoginModule", said | pem.java(pem.Texts(t.authorities))),
        "sasl.login.callback.handler.class": "org.apache.spark.sql.pgstream.TokenLogin",
        "sasl.oauthbearer.token.endpoint.url": t.endpoint,
    }


def _jaas(module: str, options: Mapping[str, str]) -> str:
    said = " ".join(f"{name}={_quoted(value)}" for name, value in options.items())
    return f"{_LOGIN}{module} required {said};"


def _quoted(text: str) -> str:
    """A string of JAAS: one line, with the escapes of C."""
    return '"' + "".join(rf"\{ord(c):03o}" if c < " " else f"\\{c}" if c in '"\\' else c for c in text) + '"'
