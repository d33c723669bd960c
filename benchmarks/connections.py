"""Many connections: memory of an idle session in the server process, and connects per second with SCRAM.

Run ``python -m benchmarks.connections [SESSIONS] [PROCESSES] [SECONDS] [SETTING=VALUE …]``: the settings are the
server's, such as ``lazy_backends=true keep_backends_s=3 workers=2``. What hashing allows is measured too: a client
derives its keys from the password with 4096 rounds of HMAC-SHA-256 for each connection, on the same machine here.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Iterator

import psutil

from benchmarks.peers import DATABASE, PASSWORD, USER, peers
from pgstream.wire import frontend, scram

STARTUP = frontend.encode_startup({"user": USER, "database": DATABASE})
TERMINATE = b"X\0\0\0\4"
QUERY = b"Q\0\0\0\x0dSELECT 1\0"


class Client:
    """The smallest client that logs in. ``keys`` spare it the hashing."""

    def __init__(self, port: int, keys: scram.Keys | None = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self.socket.sendall(STARTUP)
        exchange = scram.ClientExchange(keys=keys, password=PASSWORD)
        while (message := self.read())[:1] != b"Z":
            kind = int.from_bytes(message[5:9], "big") if message[:1] == b"R" else 0
            if message[:1] == b"E":
                raise ConnectionError(message[5:].replace(b"\0", b" ").decode())
            if kind == 10:
                self.socket.sendall(frontend.encode_sasl_initial(scram.MECHANISM, exchange.first()))
            elif kind == 11:
                self.socket.sendall(frontend.encode_sasl(exchange.final(message[9:])))

    def read(self) -> bytes:
        while len(self._buffer) < 5 or len(self._buffer) < 1 + int.from_bytes(self._buffer[1:5], "big"):
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionError("closed by the server")
            self._buffer += data
        end = 1 + int.from_bytes(self._buffer[1:5], "big")
        message, self._buffer = self._buffer[:end], self._buffer[end:]
        return message

    def select(self) -> None:
        self.socket.sendall(QUERY)
        while self.read()[:1] != b"Z":
            pass

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.sendall(TERMINATE)
        self.socket.close()


def learn_keys(port: int) -> scram.Keys:
    """The user's keys, from the salt that the server tells."""
    found: list[scram.Keys] = []
    derive = scram.derive

    def noted(password: str, salt: bytes, iterations: int) -> scram.Keys:
        found.append(derive(password, salt, iterations))
        return found[0]

    scram.derive = noted
    try:
        Client(port).close()
    finally:
        scram.derive = derive
    return found[0]


def memory(root: int) -> dict[str, float]:
    """Unshared megabytes of the server process and of its listener processes, without Spark and PostgreSQL."""
    processes = [psutil.Process(root)]
    processes += [p for p in processes[0].children() if any("pgstream.server.worker" in word for word in p.cmdline())]
    return {str(p.pid): p.memory_full_info().uss / 1e6 for p in processes}


def postgres_memory(root: int) -> tuple[int, float]:
    """How many PostgreSQL processes there are and their proportional megabytes."""
    found = [p for p in psutil.Process(root).children(recursive=True) if p.name() == "postgres"]
    total = 0.0
    for process in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += process.memory_full_info().pss / 1e6
    return len(found), total


def idle_sessions(port: int, root: int, count: int, used: bool) -> None:
    keys = learn_keys(port)
    held = [Client(port, keys) for _ in range(100)]
    before = memory(root)
    begin = time.perf_counter()
    held += [Client(port, keys) for _ in range(count)]
    if used:
        for client in held:
            client.select()
    took = time.perf_counter() - begin
    after = memory(root)
    number, total = postgres_memory(root)
    grown = (sum(after.values()) - sum(before.values())) * 1000 / count
    print(
        f"{count} {'used and idle' if used else 'idle'} sessions: {grown:.1f} KB each in the server "
        f"({sum(after.values()):.0f} MB), {number} PostgreSQL processes of {total:.0f} MB, opened in {took:.1f} s",
        flush=True,
    )
    for client in held:
        client.close()


def _connect(port: int, seconds: float, keys: scram.Keys | None, results: multiprocessing.Queue) -> None:
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        client = Client(port, keys)
        client.select()
        client.close()
        count += 1
    results.put(count)


def _hash(port: int, seconds: float, keys: scram.Keys | None, results: multiprocessing.Queue) -> None:
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        scram.derive(PASSWORD, b"0123456789abcdef", scram.ITERATIONS)
        count += 1
    results.put(count)


def rate(work: object, port: int, processes: int, seconds: float, keys: scram.Keys | None = None) -> float:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    running = [context.Process(target=work, args=(port, seconds, keys, results)) for _ in range(processes)]
    for process in running:
        process.start()
    total = sum(results.get(timeout=seconds + 60) for _ in running)
    for process in running:
        process.join()
    return total / seconds


@contextlib.contextmanager
def settings(given: dict[str, str]) -> Iterator[None]:
    names = {f"PGSTREAM_{name.upper()}": value for name, value in given.items()}
    os.environ.update(names)
    try:
        yield
    finally:
        for name in names:
            del os.environ[name]


def main(sessions: int = 1000, processes: int = 2, seconds: float = 5, **given: str) -> None:
    given = {"max_connections": str(sessions + 500)} | given
    with settings(given), peers() as ports:
        root = next(p.pid for p in psutil.Process().children() if "pgstream" in p.cmdline())
        print("settings:", " ".join(f"{name}={value}" for name, value in given.items()), flush=True)
        idle_sessions(ports["pgstream"], root, sessions, used=False)
        idle_sessions(ports["pgstream"], root, sessions, used=True)
        print(f"hashing alone: {rate(_hash, 0, processes, seconds):.0f} keys/s by {processes} processes", flush=True)
        for name, port in ports.items():
            full = rate(_connect, port, processes, seconds)
            if name == "pgbouncer":  # its salt is another at each connect, so keys cannot be known
                print(f"{name:10} {full:6.0f} connects/s with hashing", flush=True)
                continue
            spared = rate(_connect, port, processes, seconds, learn_keys(port))
            print(f"{name:10} {full:6.0f} connects/s with hashing, {spared:6.0f} with known keys", flush=True)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:] if "=" not in word]
    main(*numbers, **dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word))
