"""A column as declared in DDL.

Owns: ``ColumnDef``. Must not know: which relation it belongs to. ``Cursor.columns`` makes them.
"""

from __future__ import annotations

from dataclasses import dataclass

from pgstream import types
from pgstream.names import Name


@dataclass(frozen=True, slots=True)
class ColumnDef:
    """``name type [NOT NULL]``; ``name.at`` is where it stands in the statement's text."""

    name: Name
    type: types.Type
    not_null: bool = False
