"""Fifty deaths within ``make test`` (``PGSTREAM_CHAOS_KILLS`` for another number); ``make chaos`` is the same with a
thousand, more queries and other numbers.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.stream.chaos.__main__ import play
from tests.stream.chaos.queries import FEW
from tests.stream.chaos.rig import Rig

KILLS = range(int(os.environ.get("PGSTREAM_CHAOS_KILLS", "50")))


@pytest.mark.stream
@pytest.mark.timeout(1800)
def test_nothing_is_lost_or_doubled(worker_settings: dict[str, Any], workspace: Path) -> None:
    play(Rig(worker_settings, workspace / "chaos", FEW), KILLS)
