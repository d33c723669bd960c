"""Whether a text names a stream or changelog at all: asked for every read and write that is relayed.

Owns: looking for names among few and among many, as words of the text, in any case.
Must not know: where in a statement a name means what. Start reading at ``Mentions.within``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

FEW = 8
"""Names that are looked for one by one first; with more of them the words of a text are the cheaper ones to look up."""
_WORD = re.compile(r"[\w$]+")


class Mentions:
    """Of these names. Several relations may have one name."""

    def __init__(self, names: Iterable[str]) -> None:
        self._words: dict[str, int] = {}
        self._phrases: dict[str, int] = {}
        self._enter(names, 1)

    def changed(self, gone: Iterable[str], come: Iterable[str]) -> Mentions:
        """Without some and with others; the text of no other name is looked at."""
        out = Mentions(())
        out._words, out._phrases = dict(self._words), dict(self._phrases)
        out._enter(gone, -1)
        out._enter(come, 1)
        return out

    def _enter(self, names: Iterable[str], times: int) -> None:
        for name in names:
            low = name.lower()
            among = self._words if _WORD.fullmatch(low) else self._phrases
            among[low] = among.get(low, 0) + times
            if not among[low]:
                del among[low]
        few = len(self._words) + len(self._phrases) <= FEW
        self._few = (*self._words, *self._phrases) if few else None
        others = "|".join(sorted(map(re.escape, self._phrases), key=len, reverse=True))
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
        if not self._words.keys().isdisjoint(_WORD.findall(low)):
            return True
        return self._others is not None and self._others.search(low) is not None
