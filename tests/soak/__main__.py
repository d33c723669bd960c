"""``make soak``: random statements and deaths for some minutes. A seed does the same things in the same order."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
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
            told = time.monotonic()
            while time.monotonic() < end:
                soak.step()
                if time.monotonic() > told + 30:
                    told = time.monotonic()
                    print(f"{dict(soak.done)}, {soak.looker.looks} looks, {soak.memory()} MB", flush=True)
            soak.end()
            print(f"well: {dict(soak.done)}, {soak.looker.looks} looks, {soak.load.sent} events", flush=True)
        except BaseException:
            print(f"the server's log is in {soak.server.log}", file=sys.stderr)
            raise
        finally:
            soak.close()
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
