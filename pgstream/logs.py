"""Logs: structlog to standard error, one line an event.

Owns: how a log line looks. Standard output belongs to what scripts read (the ready line).
Must not know: who logs. Start reading at ``configure``.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import TextIO, cast

import structlog

from pgstream.errors import ConfigurationError

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


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


def configure(level: str) -> None:
    """Set up structlog; colours only on a terminal. Errors: ConfigurationError for a level that is none."""
    if level not in LEVELS:
        raise ConfigurationError(
            what=f'setting "log_level" must be one of {", ".join(LEVELS)}, not "{level}"',
        )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=False),
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(file=cast(TextIO, _Stderr())),
        cache_logger_on_first_use=True,
    )
