"""Why a query failed at a PostgreSQL store: the kernel's ``TableFault`` says it in parts.

Owns: reading them. Must not know: how they reach Python. Start reading at ``trouble``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pgstream.errors import StoreHindered, StoreRefused, StoreUnreachable
from pgstream.stores.spec import Trouble, sentence


def trouble(link: Mapping[str, Any], store: str, root: str) -> Trouble | None:
    """See ``stores.spec.TroubleOf``."""
    if not str(link["class"]).endswith(".TableFault"):
        return None
    kind, code, text, hint, named = [*str(link["message"]).split("\n"), "", "", "", ""][:5]
    if code == "55006":  # it is there, but another reads the slot
        return Trouble(kind, code, sentence(text), None, hint or None)
    if kind in ("store", "refused"):
        answered = StoreHindered if code != "58000" else StoreUnreachable
        condition = StoreRefused if kind == "refused" else answered
        e = condition(name=named or store, why=sentence(text), hint=hint or None)
        return Trouble(kind, e.sqlstate, e.text, e.detail, e.hint)
    return Trouble(kind, code, text, None, hint or None)
