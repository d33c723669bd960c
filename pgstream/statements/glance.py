"""Texts that are PostgreSQL's at a glance: most of what clients send, settled by one pattern and a few plain searches.

Owns: the forms that are so common that they must cost next to nothing: reads, writes and the borders of transactions,
one to a text, in ASCII. It may say no to any text, ``recognize`` then takes the long way; a yes must be right.
Must not know: statements of ours, beyond the words that begin like these. Start reading at ``is_postgres``.
"""

from __future__ import annotations

import re

from pgstream.catalog.records import Snapshot
from pgstream.statements.heading import OLDER
from pgstream.statements.shared import UPDATES

LONGEST = 4096
"""Bytes of a text; in a longer one the few searches are no longer next to nothing, and what PostgreSQL does is more."""

_UPDATED = "|".join([*UPDATES, *(OLDER[word] for word in UPDATES if word in OLDER)])
# INSERT INTO ENTITY and UPDATE STORE may be ours. A name that begins with a quote or a sign: the long way.
_FORM = re.compile(
    rf"""\s*(?: (?:SELECT|WITH|VALUES)\b(?!\s*(?:PG_CATALOG\s*\.\s*)?PG_(?:TERMINATE|CANCEL)_BACKEND\b)
             | (?P<writes>DELETE\b | INSERT\s+INTO\s+(?!ENTITY|{OLDER["ENTITY"]})[A-Z_] | UPDATE\s+(?!{_UPDATED})[A-Z_])
             | (?:BEGIN|COMMIT|END|ROLLBACK)(?=\s*+;?\s*+\Z)
           )[^;]*+;?\s*\Z""",
    re.I | re.X | re.A,
)


def is_postgres(raw: bytes | bytearray, snapshot: Snapshot) -> bool:
    """Whether this is one statement, surely PostgreSQL's, that changes no setting. No: nothing is known.

    Settings are changed by functions and by an UPDATE of pg_settings, too.
    """
    if len(raw) > LONGEST or not raw.isascii():
        return False
    text = raw.decode("ascii")
    form = _FORM.match(text)
    if form is None:
        return False
    low = text.lower()
    if "set_config" in low or "search_path" in low or "pg_settings" in low or "deltastream" in low:
        return False
    return not (snapshot.mentions(text) or (form["writes"] and snapshot.mentions_view(text)))
