"""Data-driven tests: text in, text out, in files that read as documents.

A file is a list of cases: a directive line (``word key=value …``), its input, ``----``, the expected output up to a
blank line. Output that holds blank lines stands between two more ``----`` lines. ``#`` lines before a directive say
why the case exists. ``pytest --bless`` rewrites expectations; the diff is reviewed by a person.

Start reading at ``cases`` and ``check``.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

_BLESSED: dict[Path, dict[int, str]] = {}
_BLESS = False


@dataclass(frozen=True)
class Case:
    """One case; ``line`` is the 1-based line of its directive, ``marker`` that of its ``----``."""

    directive: str
    args: dict[str, str]
    input: str
    expected: str
    line: int
    marker: int
    end: int
    file: Path

    def __str__(self) -> str:
        return f"{self.file.stem}:{self.line}"


def cases(path: Path | str) -> list[Case]:
    """Read a file. A malformed one raises ValueError with file and line."""
    path = Path(path)
    lines = path.read_text().split("\n")
    out: list[Case] = []
    i = 0
    while i < len(lines):
        if not lines[i].strip() or lines[i].startswith("#"):
            i += 1
            continue
        start = i
        word, *rest = shlex.split(lines[i])
        args = {k: v for k, _, v in (r.partition("=") for r in rest)}
        i += 1
        body = i
        while i < len(lines) and lines[i] != "----":
            i += 1
        if i == len(lines):
            raise ValueError(f"{path}:{start + 1}: no ---- after this directive")
        marker = i
        i += 1
        if i < len(lines) and lines[i] == "----":
            first = i + 1
            while i < len(lines) and not (i >= first and lines[i] == "----" and lines[i + 1 : i + 2] == ["----"]):
                i += 1
            expected = "\n".join(lines[first:i])
            i += 2
        else:
            first = i
            while i < len(lines) and lines[i].strip():
                i += 1
            expected = "\n".join(lines[first:i])
        out.append(Case(word, args, "\n".join(lines[body:marker]), expected, start + 1, marker, i, path))
    return out


def check(case: Case, actual: str) -> None:
    """Compare, or under ``--bless`` remember the actual output for the rewrite at the end of the session."""
    actual = actual.rstrip("\n")
    if _BLESS:
        if actual != case.expected:
            _BLESSED.setdefault(case.file, {})[case.marker] = actual
        return
    assert actual == case.expected, f"{case.file}:{case.line}"


def same_file(path: Path, actual: str, *, bless: bool = True) -> None:
    """Compare with a whole file, or under ``--bless`` rewrite it (``bless``: whether this caller may)."""
    if _BLESS and bless:
        path.write_text(actual)
    assert actual.splitlines() == path.read_text().splitlines(), path


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="rewrite the expectations of data-driven tests")


def pytest_configure(config: pytest.Config) -> None:
    global _BLESS
    _BLESS = config.getoption("--bless")


def pytest_sessionfinish() -> None:
    for path, outputs in _BLESSED.items():
        rewritten: list[str] = []
        lines = path.read_text().split("\n")
        position = 0
        for case in cases(path):
            if case.marker not in outputs:
                continue
            text = outputs[case.marker]
            rewritten += lines[position : case.marker + 1]
            rewritten += ["----", text, "----", "----"] if "\n\n" in f"\n{text}\n" and text else [text] if text else []
            position = case.end
        path.write_text("\n".join(rewritten + lines[position:]))
