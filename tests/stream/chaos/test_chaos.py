"""Fifty deaths within ``make test`` (``PGSTREAM_CHAOS_KILLS`` for another number), shared out among two rigs of a few
queries each, without Spark's code generation: what a death costs is mostly the next worker and the starts of its
queries. ``make chaos`` is the same with a thousand, all queries in one rig, code generation and other numbers.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.stream.chaos.__main__ import play
from tests.stream.chaos.rig import Rig
from tests.stream.conftest import INTERPRETED

KILLS = int(os.environ.get("PGSTREAM_CHAOS_KILLS", "50"))
SHARES = (("every", "counted", "bank", "summed"), ("every", "counted", "joined"))


@pytest.mark.stream
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("share", range(len(SHARES)), ids=["-".join(s) for s in SHARES])
def test_nothing_is_lost_or_doubled(worker_settings: dict[str, Any], workspace: Path, share: int) -> None:
    first, last = (KILLS * n // len(SHARES) for n in (share, share + 1))
    interpreted = {**worker_settings, "spark": INTERPRETED}
    play(Rig(interpreted, workspace / f"chaos_{share}", SHARES[share]), range(first, last))
