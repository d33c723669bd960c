"""What a worker's Spark listens on asks for a secret: other users of the machine reach 127.0.0.1."""

from __future__ import annotations

import socket
import struct

import psutil

from tests.stream.worker.driver import WorkerProcess

RPC_REQUEST = 3
"""The type of a message in Spark's own protocol between its processes; the answer is an error with a text."""


def answer(port: int) -> bytes:
    """What is answered to a request without a secret; nothing by what is no port of that protocol."""
    body = struct.pack(">BqI", RPC_REQUEST, 7, 5) + b"hello"
    with socket.create_connection(("127.0.0.1", port), 5) as s:
        s.settimeout(3)
        s.sendall(struct.pack(">q", 8 + len(body)) + body)
        try:
            return s.recv(1 << 16)
        except OSError:
            return b""


def test_spark_asks_for_a_secret(worker: WorkerProcess) -> None:
    java = [p for p in psutil.Process(worker.process.pid).children(recursive=True) if "java" in p.name()]
    ports = {c.laddr.port for p in java for c in p.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
    answers = [answer(port) for port in sorted(ports)]
    asked = [a for a in answers if b"Expected SaslMessage" in a]
    assert len(asked) >= 2, answers  # of the driver, and of its block manager
    assert all(b"Exception" not in a for a in answers if a not in asked), answers
