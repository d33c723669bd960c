"""Whether a text names a stream or changelog at all: asked for every read and write that is relayed.

Owns: looking for names among few and among many, as words of the text, in any case.
Must not know: where in a statement a name means what. Start reading at ``Mentions.within``.
"""

from __future__ import annotations

import re
from collections.abc import Collection

FEW = 8
"""Names that are looked for one by one first; with more of them the words of a text are the cheaper ones to look up."""
_WORD = re.compile(r"[\w$]+")


class Mentions:
    """Of these names."""

    def __init__(self, names: Collection[str]) -> None:
        lowered = {name.lower() for name in names}
        self._few = tuple(lowered) if len(lowered) <= FEW else None
        self._words = frozenset(name for name in lowered if _WORD.fullmatch(name))
        others = "|".join(sorted(map(re.escape, lowered - self._words), key=len, reverse=True))
        self._others = re.compile(rf"(?<![\w$])(?:{others})(?![\w$])") if others else None

    def within(self, text: str) -> bool:
        if not self._words and self._others is None:
            return False
        low = text.lower()
        if self._few is not None:
            for name in self._few:
                if name in low:
                    break
            else:
                return False
        if not self._words.isdisjoint(_WORD.findall(low)):
            return True
        return self._others is not None and self._others.search(low) is not None
