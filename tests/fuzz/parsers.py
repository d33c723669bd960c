"""What reads a client's bytes before anything else does: each may refuse, and do nothing else.

``TARGETS`` take any bytes. ``test_parsers`` feeds them with hypothesis; ``python -m tests.fuzz.guided`` with atheris,
which watches what each input reaches.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pgstream.catalog.records import DatabaseRecord, Snapshot
from pgstream.errors import PgStreamError
from pgstream.server import hba_lines, proxy
from pgstream.server.language import Language
from pgstream.statements.base import Session
from pgstream.wire import frontend, scram
from pgstream.wire.framing import Framer
from tests.fuzz import transcript

STATEMENTS = Path(__file__).parents[1] / "unit" / "statements"
_LANGUAGE = Language.ours()
_SNAPSHOT = Snapshot(databases={"main": DatabaseRecord("main", "admin")})
_VERIFIER = scram.Verifier.make("secret", b"salt", 1)


def framing(data: bytes) -> None:
    """A stream cut anywhere gives the same messages as whole, and each that can be read is read or refused."""
    if not data:
        return
    cut, data = data[0], data[1:]
    whole, pieces = _frames([data]), _frames([data[:cut], data[cut:]])
    assert whole == pieces
    for kind, payload in whole:
        try:
            frontend.decode(kind, payload)
        except PgStreamError:
            continue


def _frames(pieces: list[bytes]) -> list[tuple[int, bytes]]:
    framer, found = Framer(), []
    try:
        for piece in pieces:
            framer.feed(piece)
            while (message := framer.next()) is not None:
                found.append(message)
    except PgStreamError:
        found.append((0, b"refused"))
    return [m for m in found if m[0]]


def startup(data: bytes) -> None:
    frontend.decode_startup(data)


def proxy_header(data: bytes) -> None:
    head, rest = data[: proxy.HEAD], data[proxy.HEAD :]
    if len(head) == proxy.HEAD:
        length = proxy.rest(head)
        proxy.decode(head, rest[:length].ljust(length, b"\0"))


def proof(data: bytes) -> None:
    """No bytes are a proof."""
    mechanism, _, rest = data.partition(b"|")
    first, _, final = rest.partition(b"|")
    exchange = scram.ServerExchange(_VERIFIER, binding=b"b", nonce="n")
    exchange.first(mechanism.decode(errors="replace"), first)
    assert exchange.final(final) is None


def sasl(data: bytes) -> None:
    frontend.decode_sasl_initial(data)


def access(data: bytes) -> None:
    try:
        hba_lines.fields(data.decode(errors="replace"))
    except hba_lines.BadLine:
        return


def statement(data: bytes) -> None:
    """A text is split into the same characters; whose each piece is can be told, and ours parse or are refused."""
    text = data.decode(errors="replace")
    pieces = list(_LANGUAGE.split(text))
    for part, at in pieces:
        assert text[at : at + len(part)] == part
        kind = _LANGUAGE.recognize(part, _SNAPSHOT, Session(user="admin", database="main"))
        if kind is not None:
            _LANGUAGE.parse(part, kind)


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target for target in (framing, startup, proxy_header, proof, sasl, access, statement)
}


def seeds(name: str) -> list[bytes]:
    """Beginnings that are not random: what clients sent, and the statements that the unit tests know."""
    if name == "statement":
        return [line.encode() for file in sorted(STATEMENTS.glob("*.test")) for line in file.read_text().splitlines()]
    told = [message for messages in transcript.all_of_them().values() for message in messages]
    if name == "framing":
        return [b"\7" + kind.encode() + (len(payload) + 4).to_bytes(4, "big") + payload for kind, payload in told]
    return [payload for _, payload in told]


def run(target: Callable[[bytes], None], data: bytes) -> None:
    """Errors: what is not a refusal."""
    try:
        target(data)
    except PgStreamError as e:
        assert e.sqlstate[:2] != "XX", e
