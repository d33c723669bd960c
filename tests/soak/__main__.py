"""``make soak``: random statements and deaths for some minutes. A seed does the same things in the same order."""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.server import broker
from tests.soak.soak import Soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", default=str(random.SystemRandom().randrange(10**6)))
    parser.add_argument("--calm", action="store_true", help="nothing is killed: what grows is told by the memory")
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    folder, end = Path(tempfile.mkdtemp(prefix="pgs")), time.monotonic() + args.minutes * 60
    with broker(folder / "kafka") as kafka:
        soak = Soak(folder, kafka, args.seed, kills=not args.calm)
        try:
            told, memory = time.monotonic(), [soak.memory()]
            while time.monotonic() < end:
                soak.step()
                if time.monotonic() > told + 30:
                    told = time.monotonic()
                    memory.append(soak.memory())
                    print(f"{dict(soak.done)}, {soak.looker.looks} looks, {memory[-1]} MB", flush=True)
            soak.end()
            if args.calm:
                print(f"memory from the second quarter to the last: {grown(memory)}", flush=True)
            print(f"well: {dict(soak.done)}, {soak.looker.looks} looks, {soak.load.sent} events", flush=True)
        except BaseException:
            print(f"the server's log is in {soak.server.log}", file=sys.stderr)
            raise
        finally:
            soak.close()
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def grown(memory: Sequence[dict[str, int]]) -> str:
    """How the mean of each part's megabytes has changed; the first quarter is that of classes and caches."""
    quarter = len(memory) // 4
    out = []
    for part in memory[0]:
        before, after = (
            statistics.mean(m[part] for m in some or memory)
            for some in (memory[quarter : 2 * quarter], memory[len(memory) - quarter :])
        )
        out.append(f"{part} {before:.0f} to {after:.0f} MB ({(after / before - 1) * 100:+.1f} %)")
    return ", ".join(out)


if __name__ == "__main__":
    sys.exit(main())
