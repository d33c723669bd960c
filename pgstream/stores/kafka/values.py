"""What the values of Kafka's options look like: each function reads one kind and gives its one spelling.

Owns: the shapes that ``options.py`` names. A ValueError is the end of a sentence and never repeats the value, which may
hold a secret. Must not know: the options, the client libraries. Start reading at ``position``.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from pgstream.stores.shared import moment

_SCHEME = re.compile(r"\A(?:PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://", re.I)
_BROKER = re.compile(r"\A(?:\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::(?P<port>\d{1,5}))?\Z", re.A)
_OFFSETS = re.compile(r"\A\d+:\d+(?:,\d+:\d+)*\Z", re.A)
_EXTENSION = re.compile(r"\A[A-Za-z]+=[\x21-\x2b\x2d-\x7e]+\Z")
MOST_BROKERS = 1000
"""Of those to begin with. The client makes a thread for each, and looks for each among all, while nobody is served."""
PROTOCOLS = ("TLSv1.2", "TLSv1.3")

SUITES = {
    "TLS_AES_128_GCM_SHA256": "",
    "TLS_AES_256_GCM_SHA384": "",
    "TLS_CHACHA20_POLY1305_SHA256": "",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
}
"""Suites by their IANA names, which Java uses, with OpenSSL's. Those of TLS 1.3 have none: OpenSSL lists them apart."""


def brokers(text: str) -> str:
    """Comma-separated ``host:port``; the protocol that some consoles print before it is left out."""
    found = [_SCHEME.sub("", one.strip()) for one in text.split(",") if one.strip()]
    for number, one in enumerate(found, 1):
        there = _BROKER.match(one)
        if there is None:
            raise ValueError(f"broker {number} is not host:port")
        if there["port"] is not None and not 0 < int(there["port"]) < 65536:  # librdkafka would wrap it
            raise ValueError(f"the port of broker {number} is not between 1 and 65535")
    if not found:
        raise ValueError("it names no broker")
    if len(found) > MOST_BROKERS:
        raise ValueError(f"it names more than {MOST_BROKERS} brokers")
    return ",".join(found)


def suites(text: str) -> str:
    """Comma-separated cipher suites, by either name."""
    either = {**{n: n for n in SUITES}, **{openssl: n for n, openssl in SUITES.items() if openssl}}
    found = [either.get(one.strip().upper()) for one in text.split(",") if one.strip()]
    if None in found or not found:
        raise ValueError(f"the cipher suites are {', '.join(SUITES)}")
    return ",".join(str(one) for one in found)


def protocols(text: str) -> str:
    """Comma-separated TLS versions."""
    known = {p.lower(): p for p in PROTOCOLS}
    found = {known.get(one.strip().lower()) for one in text.split(",") if one.strip()}
    if None in found or not found:
        raise ValueError(f"the versions are {' and '.join(PROTOCOLS)}")
    return ",".join(p for p in PROTOCOLS if p in found)


def token_endpoint(text: str) -> str:
    """An address of the web without credentials in it: Kafka's clients would also read a file of this machine."""
    try:
        there = urlsplit(text.strip())
        known = there.scheme in ("http", "https") and there.hostname and "@" not in there.netloc and (there.port or 1)
    except ValueError:
        known = False
    if not known:
        raise ValueError("it is not http://host/path or https://host/path")
    return text.strip()


def extensions(text: str) -> str:
    """Comma-separated ``name=value``."""
    found = [one.strip() for one in text.split(",") if one.strip()]
    if not found or not all(_EXTENSION.match(one) for one in found):
        raise ValueError("it is not name=value, name=value and so on")
    return ",".join(found)


def position(text: str) -> str:
    """Where reading begins: ``earliest``, ``latest``, ``timestamp:`` epoch milliseconds, ``offset:`` partition:offset.

    A time may also be written as ISO 8601, and is UTC unless it says otherwise.
    """
    word, _, rest = (part.strip() for part in text.strip().partition(":"))
    match word.lower():
        case ("earliest" | "latest") as plain if not rest:
            return plain
        case "timestamp":
            return f"timestamp:{moment(rest)}"
        case "offset" | "offsets" if _OFFSETS.match(rest := rest.replace(" ", "")):
            pairs = dict(pair.split(":") for pair in rest.split(","))
            return "offset:" + ",".join(f"{int(p)}:{int(o)}" for p, o in sorted(pairs.items(), key=lambda i: int(i[0])))
    raise ValueError("it is not earliest, latest, timestamp:<time> or offset:<partition>:<offset>[,…]")
