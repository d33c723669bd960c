"""``make differential``: thousands of random queries, or one: ``python -m tests.stream.differential --case 17``."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pgstream.config import Config
from pgstream.embedded.postgres import open_postgres
from tests.stream.conftest import opened
from tests.stream.differential import queries
from tests.stream.differential.reduce import reduced
from tests.stream.differential.run import Laboratory, Outcome


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.stream.differential", description=__doc__)
    parser.add_argument("--case", help="run this case alone and show its statement")
    parser.add_argument("--reduce", action="store_true", help="leave records out as long as a wrong case stays wrong")
    parser.add_argument("--cases", type=int, default=2000, help="how many")
    parser.add_argument("--first", type=int, help="number of the first case; random unless given")
    parser.add_argument("--shape", choices=list(queries.SHAPES), help="only cases of this shape")
    parser.add_argument("--side-by-side", type=int, default=3, help="how many run at a time")
    return parser.parse_args()


def report(outcomes: list[Outcome], seconds: float) -> int:
    wrong = [o for o in outcomes if o.wrong]
    refused = [o for o in outcomes if o.refused]
    for why, n in Counter(o.refused.split(" at ")[0][:90] for o in refused).most_common():
        print(f"refused {n} times: {why}")
    shapes = Counter(o.case.shape for o in outcomes if not o.refused)
    print(f"{len(outcomes)} cases in {seconds:.0f} s, {len(refused)} refused, {len(wrong)} wrong; {dict(shapes)}")
    return 1 if wrong else 0


def main() -> int:
    args = arguments()
    if args.case:
        numbers = [args.case]
    else:
        first = args.first if args.first is not None else random.SystemRandom().randrange(10**9) * 10
        print(f"first case: {first}", flush=True)
        numbers = [str(first + i) for i in range(args.cases)]
    if args.shape:
        numbers = [n for n in numbers if queries.case(n).shape == args.shape]
    with tempfile.TemporaryDirectory(prefix="pgs", dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        folder = Path(name)
        postgres = asyncio.run(open_postgres(Config(data_dir=folder / "pg")))
        try:
            with opened(folder / "spark") as spark, ThreadPoolExecutor(args.side_by_side) as threads:
                lab = Laboratory(spark, postgres.url("postgres", tcp=True), folder)
                outcomes, began = [], time.monotonic()
                for outcome in threads.map(lab.run, numbers):
                    outcomes.append(outcome)
                    if len(outcomes) % 20 == 0:
                        print(f"… {len(outcomes)} cases, {time.monotonic() - began:.0f} s", flush=True)
                    if outcome.wrong or args.case:
                        print(outcome, flush=True)
                    if outcome.wrong and args.reduce:
                        print(reduced(lab, outcome), flush=True)
                return report(outcomes, time.monotonic() - began)
        finally:
            asyncio.run(postgres.stop())


if __name__ == "__main__":
    sys.exit(main())
