"""``make fuzz``: changed sessions of real clients against a real door, until Ctrl-C, ``--count`` or ``--minutes``.

Session number ``n`` of a seed is the same every time: ``--seed S --only n`` runs it alone. Ends with 1 when something
does not hold, having said what and how to see it again.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz import transcript
from tests.fuzz.mutate import plan
from tests.fuzz.rig import Broken, Rig

SETTLE_EVERY = 50
GROWTH = 64 << 20
"""Bytes that the process may grow by, after its first thousand sessions."""


def fuzz(seed: str, numbers: range, *, minutes: float = 0, every: int = 500) -> int:
    """Run the sessions of these numbers; gives how many. Errors: Broken, its note says which session."""
    transcripts = transcript.all_of_them()
    end = time.monotonic() + minutes * 60 if minutes else float("inf")
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(Path(folder) / "data")
        began, base, done = time.monotonic(), 0, 0
        try:
            for n in numbers:
                if time.monotonic() > end:
                    break
                _one(rig, f"{seed}:{n}", transcripts)
                done += 1
                if done % SETTLE_EVERY == 0:
                    _settle(rig, seed, n)
                if done == 1000:
                    base = rig.memory()
                if done % every == 0:
                    rate = done / (time.monotonic() - began)
                    print(f"{done} sessions, {rate:.0f} a second, {rig.memory() >> 20} MB", flush=True)
                    if base and rig.memory() > base + GROWTH:
                        raise Broken(f"memory grew from {base >> 20} MB to {rig.memory() >> 20} MB")
            rig.settle()
        finally:
            rig.close()
        return done


def _settle(rig: Rig, seed: str, n: int) -> None:
    try:
        rig.settle()
    except Broken as e:
        e.add_note(f"after session {n} of seed {seed}; the {SETTLE_EVERY} before it: --seed {seed} --first "
                   f"{max(0, n - SETTLE_EVERY + 1)} --count {SETTLE_EVERY}")  # fmt: skip
        raise


def _one(rig: Rig, seed: str, transcripts: dict[str, list[transcript.Message]]) -> None:
    planned = plan(seed, transcripts)
    try:
        rig.run(planned, seed)
    except BaseException as e:
        given, _, number = seed.rpartition(":")
        again = f"python -m tests.fuzz --seed {given} --only {number}"
        e.add_note(f"session {number} of seed {given}: {again}\n{str(planned)[:20_000]}")
        raise


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz the front door.")
    parser.add_argument("--seed", default=secrets.token_hex(4), help="default: a new one")
    parser.add_argument("--count", type=int, default=sys.maxsize, help="sessions; default: until Ctrl-C")
    parser.add_argument("--first", type=int, default=0, help="number of the first session")
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--only", type=int, help="run one session, of this number")
    parser.add_argument("--workers", type=int, default=1, help="2: statements of ours run at the other end of a link")
    given = parser.parse_args()
    os.environ["PGSTREAM_WORKERS"] = str(given.workers)
    print(f"seed {given.seed}", flush=True)
    numbers = range(given.first, given.first + given.count) if given.only is None else range(given.only, given.only + 1)
    try:
        print(f"{fuzz(given.seed, numbers, minutes=given.minutes)} sessions, all well")
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
