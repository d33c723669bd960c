"""What a suite's run said: the tests that passed, by name.

Owns: reading JUnit's XML, ``go test -json``, TAP, ``cargo test`` and libpqxx' runner, the comparison of two runs.
Must not know: suites, servers. Start reading at ``Comparison``.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

Outcomes = Mapping[str, str]
"""A test's name to ``passed``, ``failed`` or ``skipped``."""

_TEMPORARY = re.compile(r"/tmp/[^/]*/\d+")
"""Names of Go's tests hold the temporary folders that they work in."""
_TAP_FILE = re.compile(r"(\S+\.t) \.+")
_TAP_TEST = re.compile(r"(not )?ok (\d+)")
_CARGO = re.compile(r"^test (\S+)(?: - .*)? \.\.\. (?:.*\n)*?.*?(ok|FAILED|ignored)", re.M)


def of_junit(files: Iterable[Path]) -> dict[str, str]:
    """JUnit's XML, as pytest and Maven write it. A name that comes again is numbered."""
    out: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for file in sorted(files):
        for case in ET.parse(file).iter("testcase"):
            name = f"{case.get('classname')}::{case.get('name')}"
            seen[name] += 1
            words = {child.tag for child in case}
            outcome = "failed" if words & {"failure", "error"} else "skipped" if "skipped" in words else "passed"
            out[name if seen[name] == 1 else f"{name}#{seen[name]}"] = outcome
    return out


def of_go(text: str) -> dict[str, str]:
    """The stream of events that ``go test -json`` writes."""
    words = {"pass": "passed", "fail": "failed", "skip": "skipped"}
    events = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    done = [e for e in events if "Test" in e and e.get("Action") in words]
    return {_TEMPORARY.sub("/tmp/…", f"{e['Package']}::{e['Test']}"): words[e["Action"]] for e in done}


def of_tap(text: str) -> dict[str, str]:
    """What ``prove --verbose`` prints: a line that names a file, then that file's TAP."""
    out: dict[str, str] = {}
    file = ""
    for line in text.splitlines():
        if begun := _TAP_FILE.match(line):
            file = begun[1]
        elif test := _TAP_TEST.match(line):
            bad = test[1] is not None and "# TODO" not in line
            out[f"{file}::{test[2]}"] = "skipped" if "# skip" in line.lower() else "failed" if bad else "passed"
    return out


def of_cargo(text: str) -> dict[str, str]:
    """What ``cargo test`` prints. Lines of one test may hold words that the test printed before its outcome."""
    words = {"ok": "passed", "FAILED": "failed", "ignored": "skipped"}
    return {m[1]: words[m[2]] for m in _CARGO.finditer(text)}


def of_pqxx(text: str) -> dict[str, str]:
    """What libpqxx' runner prints: a line before each test, and one behind it when it fails."""
    begun = re.findall(r"^Running: (\S+)", text, re.M)
    failed = set(re.findall(r"^FAILED: (\S+)", text, re.M))
    if begun and not re.search(r"^Ran \d+ test", text, re.M):
        failed.add(begun[-1])  # the program did not come to its end
    return {name: "failed" if name in failed else "passed" for name in begun}


@dataclass(frozen=True)
class Comparison:
    """One suite, both ways."""

    suite: str
    direct: Outcomes
    through: Outcomes

    @staticmethod
    def count(outcomes: Outcomes, word: str = "passed") -> int:
        return sum(o == word for o in outcomes.values())

    @property
    def lost(self) -> list[str]:
        """What passes directly only: each is to be explained."""
        return [n for n, o in self.direct.items() if o == "passed" and self.through.get(n) != "passed"]

    @property
    def won(self) -> list[str]:
        """What passes through pgstream only."""
        return [n for n, o in self.through.items() if o == "passed" and self.direct.get(n) != "passed"]

    @property
    def row(self) -> str:
        """A row of the table in docs/clients.md."""
        d, t = self.direct, self.through
        numbers = (self.count(d), self.count(t), self.count(d, "failed"), self.count(t, "failed"))
        return f"| {self.suite} | " + " | ".join(map(str, numbers)) + " |"
