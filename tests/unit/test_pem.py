"""Certificates and keys in options: what they cost is bounded, whoever has written them."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from pgstream import pem
from pgstream.errors import InvalidOption

OPENSSL = shutil.which("openssl")
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----"


@pytest.fixture(scope="module")
def key() -> str:
    assert OPENSSL is not None, "openssl is not on the PATH"
    return _openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048")


def _openssl(*arguments: str, given: str = "") -> str:
    return subprocess.run([OPENSSL or "", *arguments], input=given, capture_output=True, text=True, check=True).stdout


def _encrypted(key: str, *how: str) -> str:
    return _openssl("pkcs8", "-topk8", "-passout", "pass:secret", *how, given=key)


def _read(key: str, passphrase: str = "secret") -> str:
    return pem.tls_texts({pem.CERTIFICATE: CERTIFICATE, pem.KEY: key, pem.PASSPHRASE: passphrase}).key


@pytest.mark.parametrize(
    "how",
    [(), ("-iter", "300000"), ("-v1", "PBE-SHA1-3DES"), ("-scrypt",), ("-v2", "aes256", "-v2prf", "hmacWithSHA512")],
)
def test_encrypted_keys_are_opened(key: str, how: tuple[str, ...]) -> None:
    assert _read(_encrypted(key, *how)) == key
    assert _read(key) == key


@pytest.mark.parametrize(
    ("how", "number", "larger"),
    [
        (("-iter", "300000"), "0203 0493e0", "0203 7fffff"),  # of PBKDF2
        (("-scrypt",), "0202 4000", "0202 7fff"),  # its N; r and p are 8 and 1
        (("-v1", "PBE-SHA1-3DES", "-iter", "300000"), "0203 0493e0", "0203 7fffff"),
    ],
)
def test_a_key_does_not_choose_how_long_it_takes(key: str, how: tuple[str, ...], number: str, larger: str) -> None:
    """The number of rounds is in front of what is encrypted, for anybody to change."""
    encrypted = _encrypted(key, *how)
    data = pem.base64.b64decode("".join(encrypted.split("-----")[2].split()))
    assert bytes.fromhex(number) in data[:120]
    worse = data.replace(bytes.fromhex(number), bytes.fromhex(larger), 1)
    if how == ("-scrypt",):
        worse = worse.replace(bytes.fromhex("020108"), bytes.fromhex("02017f"), 1)
        worse = worse.replace(bytes.fromhex("020101"), bytes.fromhex("02017f"), 1)
    begin, end = "-----BEGIN ENCRYPTED PRIVATE KEY-----\n", "\n-----END ENCRYPTED PRIVATE KEY-----\n"
    slow = begin + pem.base64.b64encode(worse).decode() + end
    for text in (slow, "a key:\n" + slow, slow + encrypted):
        with pytest.raises(InvalidOption, match="takes too many rounds to decrypt"):
            _read(text)
    # The library would read this one over its headers.
    with pytest.raises(InvalidOption, match="does not open the key"):
        _read(slow.replace(begin, begin + "X-Note: a-b\n\n"))
    assert _read(encrypted + slow)


@pytest.mark.parametrize(
    "broken", ["AAAA", "MIIF", "MIIFNTBf", "not base64!", "MIIFNTBfBgkqhkiG9w0BBQ0wUjAxBgkqhkiG9w0B"]
)
def test_what_is_no_key(broken: str) -> None:
    with pytest.raises(InvalidOption, match="does not open the key"):
        _read(f"-----BEGIN ENCRYPTED PRIVATE KEY-----\n{broken}\n-----END ENCRYPTED PRIVATE KEY-----\n")


def test_texts_are_bounded() -> None:
    for name, most in ((pem.KEY, 16384), (pem.CERTIFICATE, 400_000), (pem.AUTHORITIES, 400_000)):
        text = "-----BEGIN PRIVATE KEY----- -----BEGIN CERTIFICATE-----" + "x" * most
        with pytest.raises(InvalidOption, match=f'parameter "{name}" has more than {most} characters'):
            pem.tls_texts({name: text})
