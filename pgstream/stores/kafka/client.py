"""A store's options as settings of the two Kafka clients: librdkafka (``admin.py``) and Java's (``spark.py``).

Owns: one description of a connection, ``Connection``, and its two spellings.
Must not know: confluent-kafka, pyspark. Start reading at ``connection``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pgstream.errors import InvalidOption

_MECHANISM = {
    "PLAIN": "PLAIN",
    "SHA256": "SCRAM-SHA-256",
    "SHA512": "SCRAM-SHA-512",
    "SCRAM-SHA-256": "SCRAM-SHA-256",
    "SCRAM-SHA-512": "SCRAM-SHA-512",
}
_FILES = ("tls.ca_cert_file", "tls.client.cert_file", "tls.client.key_file")


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach a cluster, in the words of neither library. Empty texts mean: not given."""

    brokers: str
    protocol: str
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    authorities: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    verify_host: bool = True


def connection(options: Mapping[str, str]) -> Connection:
    """Read checked options. InvalidOption for file names: a server reads no files on a client's word."""
    for name in _FILES:
        if name in options and "-----BEGIN" not in options[name]:
            raise InvalidOption(
                what=f'invalid value for parameter "{name}"', hint="Give the PEM text itself as the value."
            )
    mechanism = _MECHANISM.get(options.get("kafka.sasl.hash_function", "NONE"), "")
    tls = options.get("tls.disabled", "false") != "true"
    protocol = ("SASL_" if mechanism else "") + ("SSL" if tls else "PLAINTEXT")
    return Connection(
        brokers=",".join(u.strip() for u in options["uris"].split(",") if u.strip()),
        protocol=options.get("security.protocol", protocol),
        mechanism=mechanism,
        username=options.get("kafka.sasl.username", ""),
        password=options.get("kafka.sasl.password", ""),
        authorities=options.get("tls.ca_cert_file", ""),
        certificate=options.get("tls.client.cert_file", ""),
        key=options.get("tls.client.key_file", ""),
        verify_host=options.get("tls.verify_server_hostname", "true") == "true",
    )


def librdkafka(options: Mapping[str, str]) -> dict[str, str]:
    """Settings for confluent-kafka's clients."""
    c = connection(options)
    out = {"bootstrap.servers": c.brokers, "security.protocol": c.protocol}
    if c.protocol.startswith("SASL_"):
        out |= {"sasl.mechanism": c.mechanism or "PLAIN", "sasl.username": c.username, "sasl.password": c.password}
    if c.protocol.endswith("SSL"):
        out["ssl.endpoint.identification.algorithm"] = "https" if c.verify_host else "none"
        given = {"ssl.ca.pem": c.authorities, "ssl.certificate.pem": c.certificate, "ssl.key.pem": c.key}
        out |= {k: v for k, v in given.items() if v}
    return out


def java(options: Mapping[str, str]) -> dict[str, str]:
    """Settings for Kafka's Java clients, without any prefix."""
    c = connection(options)
    out = {"bootstrap.servers": c.brokers, "security.protocol": c.protocol}
    if c.protocol.startswith("SASL_"):
        module = "plain.PlainLoginModule" if c.mechanism in ("PLAIN", "") else "scram.ScramLoginModule"
        out["sasl.mechanism"] = c.mechanism or "PLAIN"
        out["sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module} required "
            f"username={_jaas(c.username)} password={_jaas(c.password)};"
        )
    if c.protocol.endswith("SSL"):
        out["ssl.endpoint.identification.algorithm"] = "https" if c.verify_host else ""
        if c.authorities:
            out |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": c.authorities}
        if c.certificate:
            out |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": c.certificate,
                "ssl.keystore.key": c.key,
            }
    return out


def _jaas(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
