"""Certificates and keys in options: what they cost is bounded, whoever has written them."""

from __future__ import annotations

import base64

import pytest

from pgstream import pem
from pgstream.errors import InvalidOption

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----"
# One key of a curve, and as OpenSSL 3 encrypts it with the passphrase "secret": openssl pkcs8 -topk8 and an option.
PLAIN = (
    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgScUPTKK0gcX7oT9z"
    "wLsVi2pj10snsGtmXny+b6bfCJahRANCAAT6P4xUYOJoDihXSvbrWRg5TASH5g7a"
    "c9oHswzQoMC14qUNRwpfJmuDJPKrp8K+nRwEtLCUYlibUr3lJL7nD9UZ"
)
PBKDF2 = (
    "MIHtMFgGCSqGSIb3DQEFDTBLMCoGCSqGSIb3DQEFDDAdBAi1XoGdYWqxIAIDBJPg"
    "MAwGCCqGSIb3DQIJBQAwHQYJYIZIAWUDBAEqBBDAP2KU/TQLH8drwKVu4fMbBIGQ"
    "eP9zqY5v5gyIRdi8F7SW1mKBrygQlnTqAncLNU6/eBPgd2qn0X5KgWumsHnGwKpw"
    "U5eSVb7cgfQMKwwCGHLLjtqrB9ddZbOEfUMGk/bMUi6X2/aVXTNZHUPTOHYWZ74V"
    "4DATIeordQJJTPdaTXAOcATpxXVW8WAXTvIT1Q1ZK+D+mfmtsr7k3E2ut2iTrHCj"
)
DEFAULT = (
    "MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAjXDD8KJ+KIFwICCAAw"
    "DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEEL/p1kjjrMViQIGzfuAQecEgZAa"
    "zeZI2QlGvFJ/eLuCkPkBA44TUsYwNx7Cm4sg23KYYfBVBd4iKma5aY4GWVteiK6l"
    "4r6aXyLkVXYpnGLy9vYY2d0BcCgcCSLBIAnHpsn3y8rsaPTcR7ZOFp8NCAiutAps"
    "vMlQJhCG2NKYKEZ2e13oGh2ZH7bLqw11r6z4dfz9+Mc+jhUSDXHhhj0m87yxk9o="
)
SCRYPT = (
    "MIHkME8GCSqGSIb3DQEFDTBCMCEGCSsGAQQB2kcECzAUBAgG2bqdU82jCAICQAAC"
    "AQgCAQEwHQYJYIZIAWUDBAEqBBDeAhJFCVUPqKjqhTYYwEnhBIGQxCZPo4CrTbrP"
    "cANXTQMetgELZlYG+ZLzYjHUNWi28/D5A0g7+nCFC9vnrNwnanbGTuAFabZWay0J"
    "PwF8MMVDFVshOVXJKERYk8zrpZUDojazASjqR3h5kB2a5/d9bu/81eldWokR3v4l"
    "r17HKSGS9RM/7AAAYeqxZFycbeb30qEr9v6Go82aFSDKTMKMhlTq"
)
PBES1 = (
    "MIGyMB0GCiqGSIb3DQEMAQMwDwQIeOFfTXnnVWoCAwST4ASBkDv6cx5nHw4UESz0"
    "PNdPtpG9tRtfobAlR8zyNKQ8alSwkb4YZLF0k6KHt148x9cguo45SU3ElRCmFtC1"
    "NMAx6r4er43o8jQjGJpq3auTXFmkG74UsNyz92Cm4oSjv4FttBqfhQpj/KfFaHYc"
    "HYRZsLaF0Fk/Llba+bOrAayL8B4G+PPyY/JL9yxnBztuvbHecg=="
)


def _key(body: str, what: str = "ENCRYPTED PRIVATE KEY") -> str:
    lines = "\n".join(body[at : at + 64] for at in range(0, len(body), 64))
    return f"-----BEGIN {what}-----\n{lines}\n-----END {what}-----\n"


def _read(key: str, passphrase: str = "secret") -> str:
    return pem.tls_texts({pem.CERTIFICATE: CERTIFICATE, pem.KEY: key, pem.PASSPHRASE: passphrase}).key


def _edited(body: str, *changes: tuple[str, str]) -> str:
    """Its bytes with others in their place, in hexadecimal digits, among those in front of what is encrypted."""
    data = base64.b64decode(body)
    for was, becomes in changes:
        assert bytes.fromhex(was) in data[:120]
        data = data.replace(bytes.fromhex(was), bytes.fromhex(becomes), 1)
    return base64.b64encode(data).decode()


@pytest.mark.parametrize("body", [DEFAULT, PBKDF2, SCRYPT, PBES1])
def test_encrypted_keys_are_opened(body: str) -> None:
    assert _read(_key(body)) == _read(_key(PLAIN, "PRIVATE KEY")) == _key(PLAIN, "PRIVATE KEY")


@pytest.mark.parametrize(
    "body",
    [
        _edited(PBKDF2, ("0203 0493e0", "0203 7fffff")),
        _edited(PBES1, ("0203 0493e0", "0203 7fffff")),
        _edited(SCRYPT, ("0202 4000", "0202 7fff"), ("020108", "02017f"), ("020101", "02017f")),  # its N, r and p
    ],
)
def test_a_key_does_not_choose_how_long_it_takes(body: str) -> None:
    """The number of rounds is in front of what is encrypted, for anybody to change."""
    slow = _key(body)
    for text in (slow, "a key:\n" + slow, slow + _key(DEFAULT)):
        with pytest.raises(InvalidOption, match="takes too many rounds to decrypt"):
            _read(text)
    # The library would read this one over its headers.
    with pytest.raises(InvalidOption, match="does not open the key"):
        _read(slow.replace("KEY-----\n", "KEY-----\nX-Note: a-b\n\n", 1))
    assert _read(_key(DEFAULT) + slow)  # the first one is that which is opened


@pytest.mark.parametrize(
    "broken", ["AAAA", "MIIF", "MIIFNTBf", "not base64!", "MIIFNTBfBgkqhkiG9w0BBQ0wUjAxBgkqhkiG9w0B"]
)
def test_what_is_no_key(broken: str) -> None:
    with pytest.raises(InvalidOption, match="does not open the key"):
        _read(_key(broken))


def test_texts_are_bounded() -> None:
    for name, most in ((pem.KEY, 16384), (pem.CERTIFICATE, 400_000), (pem.AUTHORITIES, 400_000)):
        text = "-----BEGIN PRIVATE KEY----- -----BEGIN CERTIFICATE-----" + "x" * most
        with pytest.raises(InvalidOption, match=f'parameter "{name}" has more than {most} characters'):
            pem.tls_texts({name: text})
