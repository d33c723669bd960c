"""``python -m tests.fuzz.guided TARGET [libFuzzer options]``: a target of ``parsers`` under atheris (extra ``fuzz``).

Without options it runs until Ctrl-C; ``-max_total_time=600`` ends it; a crash file is run again by naming it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["pgstream"]):
    from tests.fuzz import parsers


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in parsers.TARGETS:
        sys.exit(f"usage: python -m tests.fuzz.guided {{{'|'.join(parsers.TARGETS)}}} [libFuzzer options]")
    target = parsers.TARGETS[sys.argv[1]]
    with tempfile.TemporaryDirectory() as corpus:
        for n, seed in enumerate(parsers.seeds(sys.argv[1])):
            Path(corpus, str(n)).write_bytes(seed)
        atheris.Setup([sys.argv[0], *sys.argv[2:], corpus], lambda data: parsers.run(target, data))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
