"""PEM texts in options: certificates and keys, as every client library takes them.

Owns: what such an option may hold, and one spelling of private keys: PKCS #8 without a passphrase, which OpenSSL and
Java both read, whatever was given. Must not know: which stores or registries there are. Start reading at ``tls_texts``.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from pgstream.errors import InvalidOption

AUTHORITIES, CERTIFICATE, KEY = "tls.ca_cert_file", "tls.client.cert_file", "tls.client.key_file"
_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
PASSPHRASE = "tls.client.key_passphrase"  # noqa: S105


@dataclass(frozen=True, slots=True)
class Texts:
    """What a connection trusts, and how it says who it is. Empty texts mean: not given."""

    authorities: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)


def tls_texts(options: Mapping[str, str]) -> Texts:
    """Read checked options. InvalidOption for file names, too: a server reads no files on a client's word."""
    for name, kind in ((AUTHORITIES, "CERTIFICATE"), (CERTIFICATE, "CERTIFICATE"), (KEY, "PRIVATE KEY")):
        _check(options, name, kind)
    for name, other in ((CERTIFICATE, KEY), (KEY, CERTIFICATE)):
        if name in options and other not in options:
            raise InvalidOption(what=f'parameter "{name}" needs "{other}"')
    key = _plain_key(options[KEY], options.get(PASSPHRASE)) if KEY in options else ""
    return Texts(options.get(AUTHORITIES, ""), options.get(CERTIFICATE, ""), key)


def authorities(options: Mapping[str, str], name: str) -> str:
    """Authorities of another server than the store's own; empty when not given."""
    _check(options, name, "CERTIFICATE")
    return options.get(name, "")


def _check(options: Mapping[str, str], name: str, kind: str) -> None:
    if name in options and f"{kind}-----" not in options[name]:
        raise InvalidOption(
            what=f'invalid value for parameter "{name}"',
            hint=f"Give the PEM text itself as the value: -----BEGIN {kind}----- and so on.",
        )


def _plain_key(text: str, passphrase: str | None) -> str:
    encrypted = "ENCRYPTED" in text
    if encrypted and not passphrase:
        raise InvalidOption(what=f'the key in "{KEY}" is encrypted', hint=f"Give its passphrase in '{PASSPHRASE}'.")
    try:
        found = load_pem_private_key(text.encode(), passphrase.encode() if encrypted and passphrase else None)
    except (ValueError, UnsupportedAlgorithm):
        # What the library says of it may hold parts of the key.
        wrong = f'"{PASSPHRASE}" does not open the key' if encrypted else "it is not a private key in PEM"
        raise InvalidOption(what=f'invalid value for parameter "{KEY}": {wrong}') from None
    return found.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def system_authorities() -> str | None:
    """The file of the authorities that this system trusts, for programs that look for it elsewhere."""
    paths = [ssl.get_default_verify_paths().cafile, *_BUNDLES]
    return next((path for path in paths if path and Path(path).is_file()), None)


def context(texts: Texts) -> ssl.SSLContext:
    """The texts for Python's own TLS; without authorities those that the system knows."""
    out = ssl.create_default_context(cadata=texts.authorities or None)
    if texts.certificate:
        # It reads a certificate from a file only.
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(texts.certificate.rstrip() + "\n" + texts.key.rstrip() + "\n")
            file.flush()
            out.load_cert_chain(file.name)
    return out


def java(texts: Texts) -> dict[str, str]:
    """The texts in the words of Kafka's Java clients, which the kernel's registry client has borrowed."""
    out: dict[str, str] = {}
    if texts.authorities:
        out |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": texts.authorities}
    if texts.certificate:
        out |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": texts.certificate,
            "ssl.keystore.key": texts.key,
        }
    return out
