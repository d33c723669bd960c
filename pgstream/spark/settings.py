"""The worker's own settings, handed over by the engine as JSON in the environment variable ``PGSTREAM_WORKER``.

Owns: their names and defaults. Secrets never stand here: they travel in ``Start``.
Must not know: ``pgstream.config``; a worker may run on another machine than the server.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import msgspec

ARENAS = {"MALLOC_ARENA_MAX": "2"}
"""In the environment of all JVMs, unless it says otherwise: what RocksDB takes and gives back is torn into pieces over
the arenas of glibc, eight for each core. 250 cycles of ``make leaks`` left 70 MB more with those, and they grew still.
"""
TRIM = ["-XX:+IgnoreUnrecognizedVMOptions", *(["-XX:TrimNativeHeapInterval=60000"] if sys.platform == "linux" else [])]
"""Flags of all JVMs: each minute glibc gives back what is free, a hundred megabytes after an hour of queries that come
and go. Versions of Java that are without it do not mind; where there is no glibc, Java would say so at each start.
"""
_IN_ONE_JVM = re.compile(r"local(\[[^\]]*\])?\Z")


class Settings(msgspec.Struct, frozen=True):
    """``java``: the executable. ``jars``: connector jars; ``msk_jar``: one that only MSK needs. ``memory_mb``: heap of
    the Spark driver.

    ``spark``: Spark settings of the pool's own, which win over ours.
    ``checkpoints``: folder or URL that the server builds checkpoint paths under; on a cluster we do, of interactive
    queries. ``lookup_timeout_s``: how long PostgreSQL or a store may take to answer for rows that are looked up.
    """

    java: str = "java"
    jars: list[str] = []
    master: str = "local[*]"
    memory_mb: int = 1024
    cache_dir: str = ""
    checkpoints: str = ""
    fast_start: bool = False
    trigger_ms: int = 100
    spark: dict[str, str] = {}
    log_level: str = "info"
    log_format: str = "text"
    msk_jar: str = ""
    lookup_timeout_s: int = 60

    @property
    def in_one_jvm(self) -> bool:
        """Whether tasks run in the driver's own process, not in executors of a cluster."""
        return _IN_ONE_JVM.match(self.master) is not None

    @property
    def cache(self) -> Path:
        return Path(self.cache_dir) if self.cache_dir else Path.home() / ".cache" / "pgstream"


def load(text: str) -> Settings:
    """Read the settings; unknown names are ignored, so that a newer server can start an older worker."""
    return msgspec.json.decode(text or "{}", type=Settings)


def from_environment() -> Settings:
    return load(os.environ.get("PGSTREAM_WORKER", ""))
