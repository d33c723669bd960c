"""Ports for servers that are about to start."""

from __future__ import annotations

import errno
import socket

import pytest

from pgstream.embedded import child
from pgstream.embedded.child import free_port


def test_a_free_port_is_kept_for_the_server() -> None:
    port = free_port()
    with socket.socket() as another, pytest.raises(OSError) as e:
        another.bind(("127.0.0.1", port))  # as a connection that begins here takes a port
    assert e.value.errno == errno.EADDRINUSE
    with socket.create_server(("127.0.0.1", port)) as server:  # allows itself the reuse of its address
        server.listen()


def test_who_looks_for_a_server_that_was_there_before_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    make, strangers = socket.create_server, []

    def visited(address: tuple[str, int]) -> socket.socket:
        listener = make(address)
        strangers.append(socket.create_connection(listener.getsockname()))
        return listener

    monkeypatch.setattr(child.socket, "create_server", visited)
    assert free_port() == strangers[0].getpeername()[1]
    strangers[0].close()
