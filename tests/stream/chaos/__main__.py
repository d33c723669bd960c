"""``make chaos``: a thousand deaths, in rounds of a rig each. Each has a number, which decides it: ``--first`` says
where to begin, and so goes on with a run that was cut short, or comes back to a failure.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.stream.chaos.kills import suffer
from tests.stream.chaos.queries import ALL
from tests.stream.chaos.rig import Rig
from tests.stream.conftest import worker_options


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stream.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--first", type=int, default=random.SystemRandom().randrange(10**6) * 1000)
    parser.add_argument("--round", type=int, default=100, help="kills until everything is compared")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="begin no death after that; compare, and end"
    )
    args = parser.parse_args()
    settings = worker_options()
    began = time.monotonic()
    for first in range(args.first, args.first + args.kills, args.round):
        last = min(first + args.round, args.first + args.kills)
        print(f"first kill: {first}", flush=True)
        with tempfile.TemporaryDirectory(prefix="pgs") as folder:
            rig = Rig(settings, Path(folder) / "rig", ALL)
            done = play(rig, range(first, last), began + args.minutes * 60)
        print(f"{first + done - args.first} kills in {time.monotonic() - began:.0f} s", flush=True)
        if first + done < last:
            print(f"next kill: {first + done}")
            break
    return 0


def play(rig: Rig, numbers: range, until: float = float("inf")) -> int:
    """A round; on failure the end of the workers' log is shown. Returns how many deaths there were."""
    done = 0
    try:
        rig.goes_on(0)
        for number in numbers:
            if time.monotonic() > until:
                break
            began = time.monotonic()
            told = suffer(rig, number)
            done += 1
            print(f"{number}: {told}; {time.monotonic() - began:.1f} s", flush=True)
        rig.finish()
        print(f"{rig.load.sent} events, {rig.reader.looks} looks: nothing lost, nothing doubled", flush=True)
    except BaseException:
        print((rig.folder / "worker.log").read_text()[-20000:])
        raise
    finally:
        rig.close()
    return done


if __name__ == "__main__":
    sys.exit(main())
