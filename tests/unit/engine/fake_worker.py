"""A worker without Spark: speaks the channel, and does what a query's settings say.

``fault``: kind of the fault that ends the query, at once, ``after_running`` or ``after_a_batch``; ``die``: this process
kills itself; ``crash``: it ends by itself; all only for the first ``times`` attempts. ``slow``: the first batch of the
query never ends. ``deaf``: Stop is answered only at the second one. Interactive queries count up for ever, within their
credit. Every request is noted in the file ``FAKE_TRACE``, one JSON line each; without the file ``FAKE_PREPARES``, where
one is named, the worker does not become ready. ``unserved``: it has no executor until there is a file of this name.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

from pgstream.engine.channel import (
    Alive,
    Analyze,
    Analyzed,
    Ended,
    Executors,
    Failed,
    Fault,
    More,
    Preparing,
    Progress,
    Ready,
    Request,
    Rows,
    Running,
    Shutdown,
    Start,
    Stop,
    decode_request,
    encode,
)
from pgstream.planner.plan import ResultSink, load, sources

SOCKET = socket.socket(fileno=int(os.environ["PGSTREAM_CHANNEL"]))
STARTS: dict[str, Start] = {}
SENT: dict[str, int] = {}
STOPS: dict[str, int] = {}


def send(*events: object) -> None:
    for event in events:
        SOCKET.sendall(encode(event))


def read() -> Request:
    def exactly(n: int) -> bytes:
        data = b""
        while len(data) < n:
            part = SOCKET.recv(n - len(data))
            if not part:
                sys.exit(0)
            data += part
        return data

    return decode_request(exactly(int.from_bytes(exactly(4), "big")))


def note(request: Request) -> None:
    fields = {"type": type(request).__name__}
    told = ("query", "attempt", "credit", "databases", "forget", "beside", "limits", "ceiling_ms", "checkpoint")
    told += ("trace", "origin")
    fields |= {k: getattr(request, k) for k in told if hasattr(request, k)}
    if isinstance(request, Start):
        fields["stores"] = {k: v.options for k, v in request.stores.items()}
    with open(os.environ["FAKE_TRACE"], "a") as file:
        file.write(json.dumps(fields) + "\n")


def start(request: Start) -> None:
    STARTS[request.query] = request
    settings = request.settings
    hit = request.attempt <= int(settings.get("times", "1000000"))
    if "fault" in settings and hit:
        fault = Fault(settings["fault"], "22000", "no good", hint="Try another.", at=7)
        if settings.get("after_running") or settings.get("after_a_batch"):
            send(Running(request.query, request.attempt))
        if settings.get("after_a_batch"):
            send(Alive(request.query, request.attempt))
        send(Ended(request.query, request.attempt, fault))
        return
    if "die" in settings and hit:
        os.kill(os.getpid(), signal.SIGKILL)
    if "crash" in settings and hit:
        os._exit(1)
    send(Running(request.query, request.attempt))
    if "slow" in settings:
        return
    if "unserved" in settings:
        send(Executors(True))
        while not Path(settings["unserved"]).exists():
            time.sleep(0.01)
        send(Executors(False))
    alias = sources(load(request.plan).root)[0].alias
    if request.beside and alias == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if request.beside and alias == "fails":
        send(Ended(request.query, 1, Fault("data", "22000", "record 4 is rotten")))
        return
    send(Alive(request.query, request.attempt))
    if request.checkpoint is not None:
        Path(request.checkpoint).mkdir(parents=True, exist_ok=True)
    if not isinstance(load(request.plan).sink, ResultSink):
        send(Progress(request.query, 1, 10, 5, 1.5, 20, 3, 400, 0, None, {"main.public.s": {"lag": request.attempt}}))


def more(request: More) -> None:
    begun = STARTS[request.query]
    plan = load(begun.plan)
    alias = sources(plan.root)[0].alias
    for _ in range(request.credit):
        if alias == "crashes":
            os._exit(1)
        n = SENT[request.query] = SENT.get(request.query, 0) + 1
        send(Rows(request.query, [[str(n), None]]))
        if alias == "dies" and n == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        if alias == "fails" and n == 3:
            send(Ended(request.query, 1, Fault("data", "22000", "row 4 is rotten")))
            return
        if n == plan.sink.limit:
            send(Ended(request.query, 1))
            return


def analyze(request: Analyze) -> None:
    alias = sources(load(request.plan).root)[0].alias
    if alias == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if alias == "wrong":
        send(Failed(request.id, Fault("user", "42804", "types differ", at=12)))
    else:
        send(Analyzed(request.id, [("n", "bigint", False), ("d", "decimal(10,2)", True), ("a", "array<string>", True)]))


def stop(request: Stop) -> None:
    STOPS[request.query] = STOPS.get(request.query, 0) + 1
    begun = STARTS.get(request.query)
    if begun and begun.settings.get("deaf") and STOPS[request.query] < 2:
        return
    send(Ended(request.query, begun.attempt if begun else 0))


if os.environ.get("FAKE_MUTE"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pause()
if waits := os.environ.get("FAKE_PREPARES"):
    send(Preparing("its operators are being compiled"))
    while not os.path.exists(waits):
        time.sleep(0.01)
send(Ready("4.1.4", "17", os.getpid()))
while True:
    request = read()
    note(request)
    match request:
        case Shutdown():
            sys.exit(0)
        case Start():
            start(request)
        case More():
            more(request)
        case Analyze():
            analyze(request)
        case Stop():
            stop(request)
