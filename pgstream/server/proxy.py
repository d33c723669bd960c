"""The PROXY protocol, version 2: the address of a client that comes through a load balancer.

Owns: the header's layout, and which peers must send one. Only configured peers are believed, and they are asked for it:
else a client could claim any address, or a missing header would pass for the balancer's own.
Must not know: sockets, sessions. Start reading at ``decode``.
"""

from __future__ import annotations

import ipaddress

from pgstream.errors import ConfigurationError, ProtocolViolation
from pgstream.server.access import Network

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
HEAD = 16
"""Bytes up to and with the length of the rest."""
LIMIT = 4096
"""Of the rest: addresses and the balancer's own remarks."""
LOCAL, PROXY = 0x20, 0x21
_ADDRESSES = {0x11: 4, 0x21: 16}
"""Families that are served, TCP over IPv4 and IPv6, with the bytes of one address."""


def networks(setting: str) -> tuple[Network, ...]:
    """The peers named by ``proxy_protocol_from``. Errors: ConfigurationError."""
    try:
        return tuple(ipaddress.ip_network(part.strip()) for part in setting.split(",") if part.strip())
    except ValueError as e:
        raise ConfigurationError(
            what=f'setting "proxy_protocol_from": {e}', hint="Addresses with commas between: 10.0.0.5, 10.1.0.0/16."
        ) from None


def rest(head: bytes) -> int:
    """How many bytes follow the header's first ``HEAD``. Errors: ProtocolViolation when it is none."""
    length = int.from_bytes(head[14:16], "big")
    if not head.startswith(SIGNATURE) or head[12] not in (LOCAL, PROXY) or length > LIMIT:
        raise ProtocolViolation(what="expected a PROXY protocol version 2 header")
    return length


def decode(head: bytes, rest: bytes) -> str | None:
    """The client's address; None when the balancer speaks for itself. Errors: ProtocolViolation."""
    if head[12] == LOCAL:
        return None
    size = _ADDRESSES.get(head[13])
    if size is None or len(rest) < 2 * size + 4:
        raise ProtocolViolation(what="PROXY protocol header without a TCP address")
    return str(ipaddress.ip_address(rest[:size]))
