"""``relay.c`` as a library: compiled once for each machine, kept in the cache folder.

Owns: when to compile, the calls and what they return. Without a compiler, and on other systems than Linux, the relay is
Python's. Must not know: sessions. Start reading at ``load``; why: ``docs/decisions/0064-a-relay-in-c.md``.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path

import structlog

from pgstream.config import Config
from pgstream.embedded import aside
from pgstream.embedded.compiler import find_compiler

log = structlog.get_logger(__name__)

SOURCE = Path(__file__).with_name("relay.c")
OWED = 64
"""As in ``relay.c``."""
NOTHING, RELAYED, ENDED, UNKNOWN, TEXT, REST = range(6)
"""What a call returns in its lowest byte; above it, how many bytes lie in the buffer. As in ``relay.c``."""
CLIENT, BACKEND = range(2)
_COMPILE_S = 60


class State(ctypes.Structure):
    """``struct pair`` of ``relay.c``, as far as Python knows it."""

    _fields_ = (
        ("sockets", ctypes.c_int32 * 2), ("live", ctypes.c_int32), ("texts", ctypes.c_int32),
        ("settled", ctypes.c_void_p), ("open", ctypes.c_int64), ("answered", ctypes.c_int64),
        ("status", ctypes.c_int64), ("bound", ctypes.c_int64), ("skip", ctypes.c_int64),
        ("streamed", ctypes.c_int64), ("received", ctypes.c_int64), ("relayed", ctypes.c_int64),
        ("rounds", ctypes.c_int64), ("owed", ctypes.c_int64), ("kinds", ctypes.c_ubyte * OWED),
        ("first", ctypes.c_int64), ("heads", ctypes.c_int64), ("head", ctypes.c_ubyte * 8),
        ("gathers", ctypes.c_int32),
    )  # fmt: skip
    live: int
    texts: int
    settled: int | None
    open: int
    answered: int
    status: int
    bound: int
    skip: int
    streamed: int
    received: int
    relayed: int
    rounds: int
    owed: int
    kinds: ctypes.Array[ctypes.c_ubyte]
    first: int
    heads: int
    head: ctypes.Array[ctypes.c_ubyte]
    gathers: int


class Told(ctypes.Structure):
    """``struct told`` of ``relay.c``, which a hub begins with, without its buffer."""

    _fields_ = (("pair", ctypes.c_void_p), ("side", ctypes.c_int64), ("at", ctypes.c_int64))
    pair: int
    side: int
    at: int


class Native:
    """The library's calls, by their names in ``relay.c``."""

    open: Callable[[], int | None]
    close: Callable[[int], None]
    descriptor: Callable[[int], int]
    run: Callable[[int, bool], int]
    again: Callable[[int, int], int]
    new_pair: Callable[[int, int], int]
    free_pair: Callable[[int], None]
    watch: Callable[[int, int, int], int]
    leave: Callable[[int, int, int], None]
    new_settled: Callable[[], int]
    free_settled: Callable[[int], None]
    forget: Callable[[int | None], None]
    settle: Callable[[int | None, bytes, int], None]

    def __init__(self, library: Path) -> None:
        # `run` waits, without the interpreter's lock; no other call does, and the lock is kept.
        self._library, self._waits = ctypes.PyDLL(str(library)), ctypes.CDLL(str(library))
        pointer, integer, long = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
        for name, gives, *takes in (
            ("open", pointer), ("close", None, pointer), ("descriptor", integer, pointer),
            ("run", long, pointer, integer), ("again", long, pointer, long),
            ("new_pair", pointer, integer, integer), ("free_pair", None, pointer),
            ("watch", integer, pointer, pointer, integer), ("leave", None, pointer, pointer, integer),
            ("new_settled", pointer), ("free_settled", None, pointer), ("forget", None, pointer),
            ("settle", None, pointer, ctypes.c_char_p, long),
        ):  # fmt: skip
            function = getattr(self._waits if name == "run" else self._library, f"relay_{name}")
            function.restype, function.argtypes = gives, takes
            setattr(self, name, function)
        self.gather_ns = ctypes.c_int64.in_dll(self._library, "relay_gather_ns")

    @staticmethod
    def chunk(hub: int, n: int) -> bytes:
        """What the last call left in the buffer, of which it said how much."""
        return ctypes.string_at(hub + ctypes.sizeof(Told), n)


def load(config: Config) -> Native | None:
    """Compile the library if need be (under a second); None: without it, and the log says why."""
    if not config.native_relay:
        return None
    return _load(config.cache)


@functools.cache
def _load(cache: Path) -> Native | None:
    try:
        return Native(_library(cache))
    except (OSError, ValueError, subprocess.SubprocessError) as e:
        log.info("relaying without compiled code", why=str(e))
        return None


def _library(cache: Path) -> Path:
    source = SOURCE.read_bytes()
    machine = f"{platform.machine()} {platform.system()} {platform.libc_ver()}".encode()
    target = cache / f"pgstream-relay-{hashlib.sha256(source + machine).hexdigest()[:20]}.so"
    if target.exists():
        return target
    command = find_compiler()
    if command is None:
        raise ValueError('no C compiler was found; pip install "pgstream[native]" brings one')
    cache.mkdir(parents=True, exist_ok=True)
    with aside.folder(cache, ".relay-") as work:
        made = work / "relay.so"
        done = subprocess.run(
            [*command, "-O2", "-shared", "-fPIC", "-o", str(made), str(SOURCE)],
            capture_output=True, text=True, check=False, timeout=_COMPILE_S, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if done.returncode:
            raise ValueError(f"{command[0]}: {done.stderr.strip()[-500:]}")
        os.replace(made, target)
    return target
