"""A C compiler: the one of the system, else the one from PyPI.

Owns: where to look. Must not know: what is compiled. Start reading at ``find_compiler``.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys

NAMES = ("cc", "gcc", "clang")


def find_compiler() -> list[str] | None:
    """The command, to which options and files are added; None: there is none."""
    for name in NAMES:
        if path := shutil.which(name):
            return [path]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    return None
