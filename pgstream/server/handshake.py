"""Becoming a TLS server on a connection that has begun without.

Owns: the step from a plain transport to one of TLS, also when the client's first bytes of TLS have been read already.
Must not know: messages, sessions. Start reading at ``secure``.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import cast


async def secure(
    plain: asyncio.Transport, protocol: asyncio.Protocol, context: ssl.SSLContext, begun: bytes
) -> asyncio.Transport:
    """The transport to use from now on; ``begun``: what the client sent of its handshake so far.

    Errors: ConnectionError, ssl.SSLError; ``protocol`` is then not told that its connection is lost.
    """
    handshake = asyncio.get_running_loop().start_tls(plain, protocol, context, server_side=True)
    try:
        if begun:
            plain.pause_reading()  # what comes next goes to the TLS layer, after what we have
            transport, _ = await asyncio.gather(handshake, _hand_over(plain, protocol, begun))
        else:
            transport = await handshake
    except BaseException:
        plain.abort()
        raise
    if transport is None:
        raise ConnectionResetError
    return transport


async def _hand_over(plain: asyncio.Transport, protocol: asyncio.Protocol, begun: bytes) -> None:
    """Give bytes that were read already to the TLS layer that ``start_tls`` has put on a transport."""
    if plain.get_protocol() is protocol:
        return  # it failed
    await asyncio.sleep(0)  # it is connected in the next turn of the loop, which comes before anything is read
    layer = cast(asyncio.BufferedProtocol, plain.get_protocol())
    while begun:
        room = memoryview(layer.get_buffer(len(begun)))
        part = begun[: len(room)]
        room[: len(part)] = part
        layer.buffer_updated(len(part))
        begun = begun[len(part) :]
