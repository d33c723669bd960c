"""Logs: structlog to standard error, one line an event.

Owns: how a log line looks. Standard output belongs to what scripts read (the ready line).
Must not know: who logs. Start reading at ``configure``.
"""

from __future__ import annotations

import logging
import sys

import structlog

from pgstream.errors import ConfigurationError

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


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
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
