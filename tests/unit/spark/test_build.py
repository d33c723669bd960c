"""The cache of compiled operators does not grow for ever."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from pgstream.spark.kernel import build


def test_jars_that_nobody_uses_any_more_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(_java: str, _path: Any, _files: Any, out: Path) -> None:
        (out / "A.class").write_bytes(b"")

    monkeypatch.setattr(build, "_compile", compiled)
    now = time.time()
    told: list[str] = []

    def make(name: str, days: float) -> Path:
        path = tmp_path / name
        path.mkdir() if name.startswith(".") else path.write_bytes(b"")
        os.utime(path, (now - days * 86400,) * 2)
        return path

    old = [make(f"pgstream-kernel-{n}.jar", days=30 - n) for n in range(10)]
    fresh = [make(f"pgstream-kernel-a{n}.jar", days=0.5) for n in range(6)]
    others = [make("pgstream-classes-1.jsa", days=30), make(".kernel-half", days=0.02)]
    gone = make(".kernel-dead", days=3)
    jar = build.kernel_jar("java", tmp_path, [], tmp_path, "4", report=told.append)
    assert jar.exists() and all(p.exists() for p in fresh + others)
    assert not any(p.exists() for p in old) and not gone.exists()
    os.utime(jar, (now - 9 * 86400,) * 2)
    assert build.kernel_jar("java", tmp_path, [], tmp_path, "4", report=told.append) == jar
    assert len(told) == 1  # of the one that was compiled
    assert now - jar.stat().st_mtime > 8 * 86400  # archives of its classes are bound to that
    used = jar.with_suffix(".used")
    assert now - used.stat().st_mtime < 60
    # Of jars that are all old the newest stay.
    for n, path in enumerate(fresh):
        os.utime(path, (now - (10 + n) * 86400,) * 2)
    fresh[-1].with_suffix(".used").touch()
    fresh[-2].with_suffix(".used").touch()
    os.utime(fresh[-2].with_suffix(".used"), (now - 2 * 86400,) * 2)
    other = build.kernel_jar("java", tmp_path, [], tmp_path, "5", report=told.append)
    assert {p.name for p in tmp_path.glob("*.jar")} == {
        jar.name,
        other.name,
        "pgstream-kernel-a4.jar",
        "pgstream-kernel-a5.jar",
    }
    assert {p.stem for p in tmp_path.glob("*.used")} == {p.stem for p in (jar, *fresh[-2:])}
