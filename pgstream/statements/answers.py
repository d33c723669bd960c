"""The rows that statements answer with.

Owns: the DDL row (``statements.md`` "DDL result row"), its sentences, and command tags.
Must not know: what was done. Start reading at ``ddl``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pgstream.catalog.kinds import KINDS
from pgstream.statements.base import DDL_ROW, Column, Context, Result, TextRow, rows

ROWS = "SELECT {rows}"
CONTEXT_ROW = DDL_ROW[:4]
_JSON = json.JSONEncoder(ensure_ascii=False).encode
_DONE = {"CREATE": "created", "DROP": "dropped", "UPDATE": "updated", "TERMINATE": "terminated",
         "RESTART": "restarted", "START": "started", "STOP": "stopped"}  # fmt: skip
# Kinds whose names the product's sentences do not quote.
_BARE = frozenset(("query", "api_token", "security_integration", "metrics_integration"))


def ddl(kind: str, name: str, command: str, path: Sequence[str], summary: str | None = None) -> TextRow:
    """One row of ``DDL_ROW``; without ``summary`` the product's usual sentence."""
    quoted = name if kind in _BARE else f'"{name}"'
    # A row's Type is the kind as statements spell it: api_token, but security integration.
    type_ = KINDS[kind].words.lower() if kind in KINDS else kind
    return [type_, name, command, summary or f"{type_} {quoted} was successfully {_DONE[command]}", json_text(path)]


def exists(kind: str, name: str, path: Sequence[str]) -> TextRow:
    """The row of CREATE … IF NOT EXISTS when there was nothing to do."""
    return ddl(kind, name, "CREATE", path, f'{kind} "{name}" already exists')


def missing(ctx: Context, tag: str, kind: str, name: str, path: Sequence[str]) -> Result:
    """What DROP … IF EXISTS answers when there is nothing to drop."""
    return done(tag, absent(ctx, kind, name, path))


def absent(ctx: Context, kind: str, name: str, path: Sequence[str]) -> TextRow:
    """The row of DROP … IF EXISTS for what is not there, said in a notice too."""
    sentence = f'{kind} "{name}" does not exist'
    ctx.notice(f"{sentence}, skipping")
    return ddl(kind, name, "DROP", path, sentence)


def done(tag: str, *lines: TextRow) -> Result:
    """The answer of a DDL statement."""
    return Result(tag, DDL_ROW, lines)


def listing(columns: Sequence[Column], lines: Sequence[Sequence[Any]]) -> Result:
    """The answer of LIST and DESCRIBE: Python values, in order."""
    return Result(ROWS, columns, rows(*lines))


def json_text(value: Sequence[Any] | Mapping[str, Any]) -> str:
    """JSON as the product prints it: ``<`` and ``>`` escaped, so that it may stand in HTML."""
    return _JSON(value).replace("<", "\\u003c").replace(">", "\\u003e")
