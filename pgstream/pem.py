"""PEM texts in options: certificates and keys, as every client library takes them.

Owns: what such an option may hold, and one spelling of private keys: PKCS #8 without a passphrase, which OpenSSL and
Java both read, whatever was given. Must not know: which stores or registries there are. Start reading at ``tls_texts``.
"""

from __future__ import annotations

import base64
import math
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from cryptography.exceptions import InternalError, UnsupportedAlgorithm
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
_MOST = {KEY: 1 << 14}
_MOST_ELSE = 400_000
"""Characters of a text, all authorities of a system among them: whoever uses the store has it taken apart."""
_ROUNDS, _WORK = 1_000_000, 1 << 19
"""Of a passphrase's hash, as PBKDF2 and scrypt (N·r·p) count. An encrypted key says itself how many open it."""
_ENCRYPTED, _END = "-----BEGIN ENCRYPTED PRIVATE KEY-----", "-----END ENCRYPTED PRIVATE KEY-----"
_SCRYPT = bytes.fromhex("06092b06010401da47040b")


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
    if len(options.get(name, "")) > (most := _MOST.get(name, _MOST_ELSE)):
        raise InvalidOption(what=f'parameter "{name}" has more than {most} characters')


@lru_cache(maxsize=32)  # a statement asks several times, and opening one that is encrypted takes its time
def _plain_key(text: str, passphrase: str | None) -> str:
    encrypted = "ENCRYPTED" in text
    if encrypted and not passphrase:
        raise InvalidOption(what=f'the key in "{KEY}" is encrypted', hint=f"Give its passphrase in '{PASSPHRASE}'.")
    if _ENCRYPTED in text:
        # What is looked at is what the library gets: a block may have headers, and a text several blocks.
        body = "".join(text.split(_ENCRYPTED, 1)[1].split(_END, 1)[0].split())
        text = f"{_ENCRYPTED}\n{body}\n{_END}\n"
        if _costs_too_much(body):
            raise InvalidOption(
                what=f'the key in "{KEY}" takes too many rounds to decrypt',
                hint="openssl pkcs8 -topk8 -iter 1000000 writes it with fewer.",
            )
    try:
        # It is not proven here that its numbers are primes, which takes seconds of a long one: it is the user's own.
        found = load_pem_private_key(
            text.encode(),
            passphrase.encode() if encrypted and passphrase else None,
            unsafe_skip_rsa_key_validation=True,
        )
    except (ValueError, UnsupportedAlgorithm, InternalError):
        # What the library says of it may hold parts of the key.
        wrong = f'"{PASSPHRASE}" does not open the key' if encrypted else "it is not a private key in PEM"
        raise InvalidOption(what=f'invalid value for parameter "{KEY}": {wrong}') from None
    return found.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _costs_too_much(body: str) -> bool:
    """Whether an encrypted key of PKCS #8 says that its passphrase is to be hashed for very long (RFC 8018). One that
    is not of its form is for the library to refuse; older forms hash once.
    """
    try:
        data = base64.b64decode(body, validate=True)
        whole = _parts(data)
        algorithm = _parts(next(_parts(next(whole)[1]))[1], deep=True)
        numbers = [int.from_bytes(value) for tag, value in algorithm if tag == _INTEGER]
    except (ValueError, IndexError, StopIteration):
        return False
    is_scrypt = _SCRYPT in data[:64]
    return max(numbers, default=0) > _ROUNDS or (is_scrypt and math.prod(numbers[:3]) > _WORK)


_INTEGER, _SEQUENCE = 0x02, 0x30


def _parts(data: bytes, deep: bool = False) -> Iterator[tuple[int, bytes]]:
    """Tags and contents of what stands in a row in DER. Errors: ValueError, IndexError."""
    at = 0
    while at < len(data):
        tag, size, at = data[at], data[at + 1], at + 2
        if size & 0x80:
            many = size & 0x7F
            size, at = int.from_bytes(data[at : at + many]), at + many
        value = data[at : at + size]
        if len(value) != size:
            raise ValueError("cut")
        at += size
        yield tag, value
        if deep and tag == _SEQUENCE:
            yield from _parts(value, deep)


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
