"""One run of a worker process: started with one end of a socket pair, spoken to in frames, ended for sure.

Owns: spawning, frames in both directions, the order Shutdown, SIGTERM, SIGKILL. The worker leads a process group, so
its JVM goes with it. Must not know: what the messages mean; when to start another. Start reading at ``spawn``.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator

import structlog

from pgstream.engine.channel import Event, Request, Shutdown, decode_event, encode
from pgstream.engine.launch import Launch
from pgstream.engine.leftover import signal_group

# A frame longer than this is not one of ours: the channel is out of step.
MAX_FRAME = 1 << 30
log = structlog.get_logger(__name__)


class WorkerProcess:
    """A running worker. ``events`` ends when its channel does."""

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self.pid = process.pid

    @classmethod
    async def spawn(cls, launch: Launch) -> WorkerProcess:
        """Its standard output goes to our standard error: ours has one line only, the ready line."""
        ours, theirs = socket.socketpair()
        try:
            fd = theirs.fileno()
            process = await asyncio.create_subprocess_exec(
                *launch.argv,
                pass_fds=[fd],
                env={**launch.environ, "PGSTREAM_CHANNEL": str(fd)},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=_standard_error(),
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        reader, writer = await asyncio.open_connection(sock=ours)
        return cls(process, reader, writer)

    def send(self, message: Request) -> None:
        """Queue a message. One to a worker that is gone is lost, as its death will tell."""
        if not self._writer.is_closing():
            self._writer.write(encode(message))

    async def events(self) -> AsyncIterator[Event]:
        """Messages of the worker until it closes the channel."""
        try:
            while True:
                size = int.from_bytes(await self._reader.readexactly(4), "big")
                if size > MAX_FRAME:
                    log.error("worker channel out of step", frame=size)
                    return
                yield decode_event(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    async def end(self, grace_s: float) -> int:
        """Ask it to shut down, then make it. Returns the exit code; nothing of its group is left."""
        self.send(Shutdown())
        # It may have much to say before it ends; a full channel would keep it from ending.
        draining = asyncio.create_task(self._drain())
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                log.warning("worker does not end", pid=self.pid, signal=number.name)
                signal_group(self.pid, number)
            try:
                async with asyncio.timeout(grace_s):
                    await self._process.wait()
                    break
            except TimeoutError:
                continue
        signal_group(self.pid, signal.SIGKILL)
        draining.cancel()
        await asyncio.wait([draining])
        self._writer.close()
        return await self._process.wait()

    async def _drain(self) -> None:
        try:
            while await self._reader.read(1 << 16):
                pass
        except ConnectionError:
            pass


def _standard_error() -> int:
    try:
        return sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):
        return os.open(os.devnull, os.O_WRONLY)
