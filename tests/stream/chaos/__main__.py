"""``make chaos``: a thousand deaths, in rounds of a rig each; ``--kills`` and ``--seed`` choose others."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.stream.chaos.kills import suffer
from tests.stream.chaos.rig import Rig
from tests.stream.conftest import worker_options

A_ROUND = 100


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stream.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    settings = worker_options()
    done, began = 0, time.monotonic()
    while done < args.kills:
        number = min(A_ROUND, args.kills - done)
        with tempfile.TemporaryDirectory(prefix="pgs") as folder:
            rig = Rig(settings, Path(folder) / "rig")
            try:
                r = random.Random(f"{args.seed} {done}")
                rig.goes_on(0)
                for i in range(number):
                    print(f"{done + i + 1}: {suffer(rig, r)}", flush=True)
                rig.finish()
                print(f"{rig.load.sent} events, {rig.reader.looks} looks: nothing lost, nothing doubled", flush=True)
            except BaseException:
                print((rig.folder / "worker.log").read_text()[-8000:])
                raise
            finally:
                rig.close()
        done += number
    print(f"{done} kills in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
