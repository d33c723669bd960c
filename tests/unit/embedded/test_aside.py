"""Folders to work in: that of a killed maker goes when the next one is made, that of a living one stays."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pgstream.embedded import aside

MAKER = """
import sys, time
from pathlib import Path
from pgstream.embedded import aside
with aside.folder(Path(sys.argv[1]), ".made-") as folder:
    (folder / "part").mkdir()
    print(folder, flush=True)
    time.sleep(600)
"""


def maker(cache: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen([sys.executable, "-c", MAKER, str(cache)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def ago(folder: Path, hours: float) -> None:
    os.utime(folder, (time.time() - hours * 3600,) * 2)


def test_it_is_there_for_as_long_as_it_is_worked_in(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), aside.folder(tmp_path, ".made-") as folder:
        (folder / "file").write_bytes(b"x")
        assert folder.parent == tmp_path and folder.name.startswith(".made-")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_that_of_a_killed_maker_goes(tmp_path: Path) -> None:
    (living, kept), (dead, left), (also_dead, recent) = maker(tmp_path), maker(tmp_path), maker(tmp_path)
    other = tmp_path / ".other-1"
    other.mkdir()
    try:
        for process in (dead, also_dead):
            process.kill()
            process.wait()
        for folder in (kept, left, other):
            ago(folder, 50)  # as that of a maker that was suspended
        ago(recent, 0.9)
        with aside.folder(tmp_path, ".made-") as folder:
            assert set(tmp_path.iterdir()) == {kept, recent, other, folder}
            assert (kept / "part").exists()
    finally:
        for process in (living, dead, also_dead):
            process.kill()
            process.communicate()
    ago(kept, 2)
    with aside.folder(tmp_path, ".made-") as folder:
        assert set(tmp_path.iterdir()) == {recent, other, folder}


def test_without_locks_a_day_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_file: int, _how: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    young, old = tmp_path / ".made-1", tmp_path / ".made-2"
    for folder, hours in ((young, 20), (old, 30)):
        folder.mkdir()
        ago(folder, hours)
    with aside.folder(tmp_path, ".made-") as folder:
        assert set(tmp_path.iterdir()) == {young, folder}


def test_what_somebody_else_removes_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter([self / ".made-gone"]))
    with aside.folder(tmp_path, ".made-") as folder:
        assert folder.exists()
