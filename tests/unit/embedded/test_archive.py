"""The class archive: found for one class path only, tried once, the oldest go."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pgstream.embedded.archive import KEPT, Archive


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    folder = tmp_path / "jars"
    folder.mkdir()
    for name in ("a.jar", "b.jar"):
        (folder / name).write_bytes(b"classes")
    return folder


def archive(jars: Path, java: str = "/nowhere/bin/java") -> Archive:
    return Archive(java, [str(jars / "*")], jars.parent)


def made(jars: Path, java: str = "/nowhere/bin/java", content: bytes = b"archive") -> Archive:
    out = archive(jars, java)
    aside, _ = out.record()
    if content:
        aside.write_bytes(content)
    out.take(aside)
    return out


def test_there_are_flags_once_it_is_made(jars: Path) -> None:
    assert archive(jars).flags() == []
    out = made(jars)
    assert f"-XX:SharedArchiveFile={out.path}" in archive(jars).flags()


def test_another_class_path_or_java_has_another(jars: Path) -> None:
    out = made(jars)
    assert not archive(jars, "/elsewhere/bin/java").made
    (jars / "b.jar").write_bytes(b"other classes")
    assert not archive(jars).made
    assert archive(jars).path != out.path


def test_a_java_that_makes_none_is_not_asked_again(jars: Path) -> None:
    made(jars, content=b"")
    assert archive(jars).made
    assert archive(jars).flags() == []


def test_those_not_used_for_longest_go(jars: Path) -> None:
    every = [made(jars, f"/{n}/bin/java") for n in range(KEPT)]
    for age, one in enumerate(every):
        os.utime(one.path, (1_000_000 - age, 1_000_000 - age))
    every[-1].flags()
    newest = made(jars, "/new/bin/java")
    assert [a.made for a in every] == [True] * (KEPT - 2) + [False, True]
    assert newest.made


def test_what_killed_programs_left_half_made_goes_after_a_day(jars: Path) -> None:
    first = archive(jars)
    old, new = (first.record()[0] for _ in range(2))
    for path, age in ((old, 90_000), (new, 60)):
        path.write_bytes(b"half")
        os.utime(path, (time.time() - age,) * 2)
    made(jars)
    assert not old.exists() and new.exists()
