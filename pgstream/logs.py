"""Logs: structlog to standard error, one line an event: for people, or a JSON object.

Owns: how a log line looks. Standard output belongs to what scripts read (the ready line).
Must not know: who logs. Start reading at ``configure``.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable
from typing import TextIO, cast

import structlog
from structlog.typing import Processor

from pgstream.errors import ConfigurationError

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def _for_people() -> list[Processor]:
    return [
        structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=False),
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback),
    ]


def _json() -> list[Processor]:
    return [
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,  # as text: without the values of local variables
        structlog.processors.JSONRenderer(default=str),
    ]


FORMATS: dict[str, Callable[[], list[Processor]]] = {"text": _for_people, "json": _json}


class _Stderr:
    """Standard error as it is when a line is written. A line that nobody takes any more, because the reader of a pipe
    is gone or the disk is full, is lost; what it tells of goes on.
    """

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()


def configure(level: str, format: str = "text") -> None:
    """Set up structlog; colours only on a terminal. Errors: ConfigurationError for a level or format that is none."""
    for name, value, known in (("log_level", level, LEVELS), ("log_format", format, FORMATS)):
        if value not in known:
            raise ConfigurationError(what=f'setting "{name}" must be one of {", ".join(known)}, not "{value}"')
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            *FORMATS[format](),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        # A line and its end in one write: other processes of the server write into the same log.
        logger_factory=structlog.WriteLoggerFactory(file=cast(TextIO, _Stderr())),
        cache_logger_on_first_use=True,
    )
