"""``python -m pgstream.spark``: a pool's worker process, started by ``engine.pool`` with its end of the channel.

Owns: reading the environment (``PGSTREAM_CHANNEL``: file descriptor; ``PGSTREAM_WORKER``: settings).
"""

from __future__ import annotations

import logging
import os
import signal
import socket

import structlog

from pgstream import logs, traces
from pgstream.errors import PgStreamError
from pgstream.spark import settings as worker_settings
from pgstream.spark.worker import Worker


def main() -> None:
    """Serve until told to end. Ctrl-C in the server's terminal is the server's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = worker_settings.from_environment()
    logs.configure(settings.log_level, settings.log_format)
    # PySpark logs every refusal of the analyzer with its Java stack; the refusal itself is our answer.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    log = structlog.get_logger("pgstream.spark")
    worker = Worker(socket.socket(fileno=int(os.environ["PGSTREAM_CHANNEL"])), settings)
    signal.signal(signal.SIGTERM, lambda *_: worker.die())
    try:
        traces.configure("worker")
        worker.run()
    except PgStreamError as e:
        log.error("worker cannot start", error=e.text)
        worker.die(1)


if __name__ == "__main__":
    main()
