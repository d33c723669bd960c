"""A change of the snapshot: the parts that are new, and the snapshot that they make of the one before.

Owns: ``Delta``, which also crosses to other processes of this server. Applied twice it changes nothing more.
Must not know: SQLAlchemy, who changed what. Start reading at ``applied``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pgstream.catalog.records import Snapshot


@dataclass(frozen=True, slots=True)
class Part:
    """Values by key. ``keys``: those that changed, gone unless found; None: whatever was before is gone."""

    found: Mapping[Any, Any]
    keys: frozenset[Any] | None = None

    def onto(self, before: Mapping[Any, Any]) -> Mapping[Any, Any]:
        if self.keys is None:
            return self.found
        out = dict(before)
        for key in self.keys - self.found.keys():
            out.pop(key, None)
        out.update(self.found)
        return out


Delta = Mapping[str, Part]
"""Parts by the name of a field of ``Snapshot``, or of its ``access``."""
_ACCESS = ("memberships", "grants", "tokens")


def applied(before: Snapshot, delta: Delta) -> Snapshot:
    """The snapshot after a change. What was derived from parts that did not change is kept."""
    if not delta:
        return before
    new: dict[str, Any] = {
        name: part.onto(getattr(before, name)) for name, part in delta.items() if name not in _ACCESS
    }
    access = before.access
    if "memberships" in delta:
        access = replace(access, memberships=tuple(delta["memberships"].found.values()))
    if "grants" in delta:
        access = replace(access, grants=delta["grants"].onto(access.grants))
    if "tokens" in delta:
        access = replace(access, tokens=delta["tokens"].found)
    after = replace(before, **new, access=access)
    after.keep_names(before, delta["relations"].keys if "relations" in delta else ())
    return after
