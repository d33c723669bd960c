"""The span of a statement of ours: its name, and what is said of it in the words of OpenTelemetry's conventions.

Owns: those attributes, and finding a client's own span in a comment (``/*traceparent='00-…'*/``, as sqlcommenter writes
it). Must not know: where spans go (``traces``). Start reading at ``statement``.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from pgstream import traces
from pgstream.server.counts import name_of
from pgstream.sql.shown import shown

if TYPE_CHECKING:
    from pgstream.server.session import ClientSession
    from pgstream.statements.base import Statement

_PARENT = re.compile(r"traceparent='(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})'")


def statement(
    client: ClientSession, text: str, kind: type[Statement], step: str = ""
) -> AbstractContextManager[object]:
    """A span around a statement, or around a ``step`` of it that a message of the extended protocol asks for."""
    if not traces.is_on():
        return traces.NOTHING
    name = name_of(kind)
    said = {
        "db.system.name": "postgresql",
        "db.namespace": f"{client.context.database}.{client.context.schema}",
        "db.operation.name": name,
    }
    return traces.entry(f"{step} {name}".lstrip(), said, parent(text))


def parsed(text: str) -> None:
    """The current span's statement has a text that can be read: tell it without its values."""
    if traces.is_recorded() and (found := shown(text)) is not None:
        traces.note({"db.query.text": found})


def parent(text: str) -> str:
    """The traceparent in the last comment of a text; empty without one."""
    begin = text.rfind("/*")
    if begin < 0:
        return ""
    found = _PARENT.search(text, begin, max(text.find("*/", begin), begin))
    return found[1] if found is not None else ""
