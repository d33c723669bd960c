"""Whole flows as .test files under tests/pg and tests/stream, each case one pytest item.

Directives (variables such as ``$bootstrap`` and ``$db`` are replaced in inputs; each file has a database of its own):

``statement [notices] [moments] [tokens]``   SQL through psycopg; prints notices, rows (`` | `` between columns), or the
                         command tag; with ``moments`` those of now show as ``<time>``, with ``tokens`` both as such
``query [within=30s]``   the same, repeated until the expected rows come
``error``                SQL that fails: ``SQLSTATE at POSITION: message`` and, if there, ``HINT: …``
``let name=…``           SQL whose first value ``$name`` stands for from now on
``connect user=… password=… [database=…]``   go on as this user
``topic name=… [partitions=…] [config=value …]``    create a topic
``produce topic=… [timestamp=ms]``   one record a line: ``value`` or ``key => value``; ``NULL`` is a null,
                         ``\\x00ff`` stands for these bytes
``consume topic=… n=…``  committed records as ``key => value @timestamp`` sorted by text, at least n
                         (``latest``: only the last one of each key)
``only=pattern``: rows that fit; other tests' objects are in the same server. ``figures``: times, speeds and sizes show
as ``<n>``. ``page=name`` after a directive: the case is an example on docs/statements/name.md.
UUIDs print as ``<id>``. A case run alone runs the cases before it in its file first.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.datadriven import Case, cases, check
from tests.server import Kafka, Server, Side, within

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?\+00:00")
_FIGURE = re.compile(r" \| [\d.]+ \| (?=ms$|rows/s$|bytes$)", re.M)
_TOKEN = re.compile(r"(?<![\w-])[\w-]{43}(?![\w-])")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Flow:
    """One file's run: its database, its variables, and how far it has come."""

    def __init__(self, path: Path, server: Server, kafka: Kafka | None) -> None:
        self.server, self.kafka = server, kafka
        self.database = "t_" + path.stem
        with server.connect() as c:
            c.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(self.database)))
        self.connection = server.connect(self.database)
        self.notices: list[str] = []
        self.connection.add_notice_handler(lambda d: self.notices.append(f"{d.severity}: {d.message_primary}"))
        self.variables = {"db": self.database, "bootstrap": kafka.bootstrap if kafka else ""}
        self.done = 0
        self.before = self.queries()

    def queries(self) -> set[str]:
        """Ids of the server's continuous queries that have not ended."""
        with self.server.connect() as c:
            return {row[0] for row in c.execute("LIST QUERIES").fetchall()}

    def close(self) -> None:
        """End what the file's statements run: with many files it would leave the next ones no processor."""
        if self.connection.closed:
            return
        self.connection.close()
        with self.server.connect() as c:
            for query in self.queries() - self.before:
                c.execute(f"TERMINATE QUERY {query}".encode())

    def text(self, text: str) -> str:
        return re.sub(r"\$(\w+)", lambda m: self.variables.get(m[1], m[0]), text)

    def run(self, case: Case) -> None:
        getattr(self, "do_" + case.directive)(case, self.text(case.input))

    def rows(self, text: str, only: str = "") -> str:
        cursor = self.connection.execute(text.encode())
        if cursor.description is None:
            return cursor.statusmessage or ""
        lines = [" | ".join(_show(v) for v in row) for row in cursor.fetchall()]
        return self.mask("\n".join(line for line in lines if re.search(only, line)) or "(no rows)")

    def mask(self, text: str) -> str:
        for name, value in self.variables.items():
            if value:
                text = text.replace(value, "$" + name)
        return _UUID.sub("<id>", text)

    def do_statement(self, case: Case, text: str) -> None:
        self.notices.clear()
        out = self.rows(text, self.text(case.args.get("only", "")))
        heard = [n for n in self.notices if "query engine" not in n] if "notices" in case.args else []
        out = _MOMENT.sub("<time>", out) if {"moments", "tokens"} & case.args.keys() else out
        out = _TOKEN.sub("<token>", out) if "tokens" in case.args else out
        out = _FIGURE.sub(" | <n> | ", out) if "figures" in case.args else out
        check(case, "\n".join([*heard, out]))

    def do_query(self, case: Case, text: str) -> None:
        seconds = float(case.args.get("within", "0s").removesuffix("s"))
        if seconds and not case.expected:
            self.settled(seconds, text)
        elif seconds:
            with contextlib.suppress(AssertionError):  # the comparison below shows the difference
                within(seconds, lambda: self.rows(text) == case.expected)
        check(case, self.rows(text))

    def settled(self, seconds: float, text: str) -> None:
        """A new case, which knows no answer yet: wait until there is one that stays."""
        last: list[str] = []

        def same() -> bool:
            last.append(self.rows(text))
            return last[-1] != "(no rows)" and last[-40:] == [last[-1]] * 40

        with contextlib.suppress(AssertionError):
            within(seconds, same)

    def do_error(self, case: Case, text: str) -> None:
        try:
            out = "no error: " + self.rows(text)
        except psycopg.Error as e:
            d = e.diag
            position = f" at {d.statement_position}" if d.statement_position else ""
            out = f"{d.sqlstate}{position}: {d.message_primary}"
            out += f"\nDETAIL: {d.message_detail}" if d.message_detail else ""
            out += f"\nHINT: {d.message_hint}" if d.message_hint else ""
        check(case, self.mask(out))

    def do_let(self, case: Case, text: str) -> None:
        [value, *_] = self.connection.execute(text.encode()).fetchone() or [None]
        self.variables[case.args["name"]] = str(value)

    def do_connect(self, case: Case, text: str) -> None:
        self.connection.close()
        user, password = case.args["user"], case.args["password"]
        database = self.text(case.args.get("database", self.database))
        self.connection = self.server.connect(database, user=user, password=password)

    def do_topic(self, case: Case, text: str) -> None:
        assert self.kafka
        config = {k: v for k, v in case.args.items() if k not in ("name", "partitions")}
        self.kafka.topic(case.args["name"], int(case.args.get("partitions", "1")), **config)

    def do_produce(self, case: Case, text: str) -> None:
        assert self.kafka
        records: list[tuple[Side, Side]] = []
        for line in text.split("\n"):
            key, arrow, value = line.partition(" => ")
            pair = (key, value) if arrow else ("NULL", line)
            records.append((_bytes(pair[0]), _bytes(pair[1])))
        self.kafka.produce(case.args["topic"], records, int(case.args.get("timestamp", "0")))

    def do_consume(self, case: Case, text: str) -> None:
        assert self.kafka
        got = self.kafka.consume(case.args["topic"], int(case.args["n"]))
        if "latest" in case.args:
            # How often a row was written depends on where micro-batches were cut; the last one of a key does not.
            got = list({record[0]: record for record in got}.values())
        show = (f"{k} => {v}" + (f" @{t}" if "timestamps" in case.args else "") for k, v, t in got)
        check(case, self.mask("\n".join(sorted(show))))


def _bytes(text: str) -> Side:
    if text == "NULL":
        return None
    return bytes.fromhex(text[2:]) if text.startswith("\\x") else text


def _show(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


class Flows:
    """The open flows of a test run, one a file."""

    def __init__(self) -> None:
        self.open: dict[Path, Flow] = {}

    def run(self, case: Case, server: Server, kafka: Kafka | None) -> None:
        """Run a case, after the cases before it in its file that have not run yet."""
        flow = self.open.get(case.file)
        if flow is None:
            flow = self.open[case.file] = Flow(case.file, server, kafka)
        earlier = [c for c in cases(case.file) if c.line < case.line]
        for c in earlier[flow.done :]:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("tests.flows.check", lambda *_: None)
                flow.run(c)
        flow.done = len(earlier) + 1
        try:
            flow.run(case)
        finally:
            if case.line == cases(case.file)[-1].line:
                flow.close()


@pytest.fixture(scope="session")
def flows(server: Server) -> Iterator[Flows]:
    f = Flows()
    yield f
    for flow in f.open.values():
        flow.close()


def every(folder: Path) -> list[Case]:
    """All cases of all .test files below a folder, for ``parametrize``."""
    return [c for path in sorted(folder.rglob("*.test")) for c in cases(path)]
