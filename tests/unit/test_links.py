"""Links between the pages of this repository lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")])
_LINK = re.compile(r"\[[^\]\n]*\]\((?!https?:|mailto:|#)([^)\s#]+)[^)]*\)")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.S)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_of(page: Path) -> None:
    text = _CODE.sub("", page.read_text())
    assert [link for link in _LINK.findall(text) if not (page.parent / link).exists()] == []
