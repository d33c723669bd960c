"""SCRAM-SHA-256 (RFC 5802, 7677): the server's side, and the client's side without a password.

Owns: PostgreSQL's verifier text, the proof, and the recovery of the client key from it. What the server recovers from
a client's proof (client key) together with the verifier (server key) is enough to be a client of PostgreSQL as the
same user: no password is kept.
Must not know: messages, sockets, where verifiers are stored. Start reading at ``ServerExchange``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import unicodedata
from dataclasses import dataclass, field

from pgstream.errors import ProtocolViolation

MECHANISM = "SCRAM-SHA-256"
MECHANISM_PLUS = "SCRAM-SHA-256-PLUS"
ITERATIONS = 4096
MOST_ITERATIONS = 1_000_000
"""Of a verifier that somebody gives ready-made: deriving a password's keys takes as long as it says."""
NONCE_BYTES = 18


def _hmac(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, "sha256")


def _sha(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _xor(a: bytes, b: bytes) -> bytes:
    return bytes(x ^ y for x, y in zip(a, b, strict=True))


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unb64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ProtocolViolation(what="malformed SCRAM message") from None


@dataclass(frozen=True, slots=True)
class Keys:
    """What authenticates as a user: kept in a session's memory, never written."""

    client: bytes = field(repr=False)
    server: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Verifier:
    """What PostgreSQL keeps of a password (``pg_authid.rolpassword``)."""

    iterations: int
    salt: bytes
    stored: bytes = field(repr=False)
    server: bytes = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> Verifier | None:
        """Read ``SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey``; None when it is not one (md5)."""
        try:
            mechanism, head, tail = text.split("$")
            iterations, salt = head.split(":")
            stored, server = (base64.b64decode(part, validate=True) for part in tail.split(":"))
            if mechanism != MECHANISM or len(stored) != 32 or len(server) != 32:
                return None
            return cls(int(iterations), base64.b64decode(salt, validate=True), stored, server)
        except ValueError:
            return None

    @classmethod
    def mock(cls, user: str, secret: bytes) -> Verifier:
        """For a user who does not exist: the same salt every time, and no password fits."""
        return cls(ITERATIONS, _hmac(secret, user.encode())[:16], secrets.token_bytes(32), secrets.token_bytes(32))

    @classmethod
    def make(cls, password: str, salt: bytes, iterations: int = ITERATIONS) -> Verifier:
        keys = derive(password, salt, iterations)
        return cls(iterations, salt, _sha(keys.client), keys.server)

    def keys_of(self, password: str) -> Keys | None:
        """The keys of a password; None when it is another than this was made of."""
        keys = derive(password, self.salt, self.iterations)
        return keys if hmac.compare_digest(_sha(keys.client), self.stored) else None

    def is_of(self, keys: Keys) -> bool:
        """Whether this was made of the password, and with the salt, that the keys come from."""
        return hmac.compare_digest(_sha(keys.client), self.stored) and hmac.compare_digest(keys.server, self.server)

    def __str__(self) -> str:
        return f"{MECHANISM}${self.iterations}:{_b64(self.salt)}${_b64(self.stored)}:{_b64(self.server)}"


def derive(password: str, salt: bytes, iterations: int) -> Keys:
    """The keys of a password, normalised as PostgreSQL does (SASLprep's NFKC; other text passes as it is)."""
    salted = hashlib.pbkdf2_hmac("sha256", unicodedata.normalize("NFKC", password).encode(), salt, iterations)
    return Keys(_hmac(salted, b"Client Key"), _hmac(salted, b"Server Key"))


def _attributes(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",")]
    return {name: value for name, equals, value in pairs if equals and len(name) == 1}


class ServerExchange:
    """One authentication as the server: ``first`` then ``final``.

    ``binding`` is the certificate's ``tls-server-end-point`` hash when the session has TLS: SCRAM-SHA-256-PLUS is then
    offered too.
    """

    def __init__(self, verifier: Verifier, *, binding: bytes | None = None, nonce: str | None = None) -> None:
        self._verifier = verifier
        self._binding = binding
        self._nonce = nonce or _b64(secrets.token_bytes(NONCE_BYTES))
        self._transcript = ""
        self._header = ""

    @property
    def mechanisms(self) -> list[str]:
        return [MECHANISM_PLUS, MECHANISM] if self._binding else [MECHANISM]

    def first(self, mechanism: str, message: bytes) -> bytes:
        """Take client-first-message, give server-first-message."""
        if mechanism not in self.mechanisms:
            raise ProtocolViolation(what="client selected an invalid SASL authentication mechanism")
        parts = _text(message).split(",", 2)
        if len(parts) != 3:
            raise ProtocolViolation(what="malformed SCRAM message")
        flag, authzid, bare = parts
        self._check_flag(flag, mechanism)
        nonce = _attributes(bare).get("r", "")
        if authzid or not nonce or bare.startswith("m="):
            raise ProtocolViolation(what="malformed SCRAM message")
        self._header = f"{flag},{authzid},"
        self._nonce = nonce + self._nonce
        server = f"r={self._nonce},s={_b64(self._verifier.salt)},i={self._verifier.iterations}"
        self._transcript = f"{bare},{server}"
        return server.encode()

    def _check_flag(self, flag: str, mechanism: str) -> None:
        plus = mechanism == MECHANISM_PLUS
        if plus != flag.startswith("p=") or (plus and flag != "p=tls-server-end-point"):
            raise ProtocolViolation(what="unsupported SCRAM channel-binding type")
        if flag == "y" and self._binding:
            # RFC 5802: the client believes we have no channel binding, yet we offered it: somebody is in between.
            raise ProtocolViolation(what="SCRAM channel binding negotiation error")
        if flag not in ("n", "y") and not plus:
            raise ProtocolViolation(what="malformed SCRAM message")

    def final(self, message: bytes) -> tuple[bytes, Keys] | None:
        """Take client-final-message; give server-final-message and the recovered keys, or None: wrong password."""
        text = _text(message)
        without_proof, marker, proof_text = text.rpartition(",p=")
        given = _attributes(without_proof)
        bound = self._binding or b"" if self._header.startswith("p=") else b""
        if not marker or _unb64(given.get("c", "")) != self._header.encode() + bound:
            raise ProtocolViolation(what="SCRAM channel binding check failed")
        if given.get("r") != self._nonce:
            raise ProtocolViolation(what="invalid SCRAM nonce")
        proof = _unb64(proof_text)
        if len(proof) != 32:
            raise ProtocolViolation(what="malformed SCRAM message")
        transcript = f"{self._transcript},{without_proof}".encode()
        client_key = _xor(proof, _hmac(self._verifier.stored, transcript))
        if not hmac.compare_digest(_sha(client_key), self._verifier.stored):
            return None
        signature = _b64(_hmac(self._verifier.server, transcript))
        return f"v={signature}".encode(), Keys(client_key, self._verifier.server)


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ProtocolViolation(what="malformed SCRAM message") from None


class ClientExchange:
    """One authentication as the client: ``first``, ``final``, ``check``. Give it ``keys``, or a ``password``.

    ``binding``: of the connection's TLS; ``offered``: the server offers SCRAM-SHA-256-PLUS, which is then used.
    """

    def __init__(
        self,
        *,
        keys: Keys | None = None,
        password: str = "",
        user: str = "",
        nonce: str | None = None,
        binding: bytes | None = None,
        offered: bool = False,
    ) -> None:
        plus = binding is not None and offered
        self.mechanism = MECHANISM_PLUS if plus else MECHANISM
        # RFC 5802: "y" tells a server that offered it, and was not heard, that somebody is in between.
        self._header = "p=tls-server-end-point,," if plus else "n,," if binding is None else "y,,"
        self._bound = binding if binding is not None and plus else b""
        self._keys = keys
        self._password = password
        self._nonce = nonce or _b64(secrets.token_bytes(NONCE_BYTES))
        self._bare = f"n={user},r={self._nonce}"
        self._signature = b""

    def first(self) -> bytes:
        return f"{self._header}{self._bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        given = _attributes(_text(server_first))
        nonce, salt, iterations = given.get("r", ""), _unb64(given.get("s", "")), given.get("i", "")
        if not nonce.startswith(self._nonce) or not iterations.isdigit():
            raise ProtocolViolation(what="malformed SCRAM message")
        keys = self._keys or derive(self._password, salt, int(iterations))
        without_proof = f"c={_b64(self._header.encode() + self._bound)},r={nonce}"
        transcript = f"{self._bare},{server_first.decode()},{without_proof}".encode()
        self._signature = _hmac(keys.server, transcript)
        proof = _xor(keys.client, _hmac(_sha(keys.client), transcript))
        return f"{without_proof},p={_b64(proof)}".encode()

    def check(self, server_final: bytes) -> bool:
        """Whether the server knows the user's verifier too."""
        return hmac.compare_digest(server_final, f"v={_b64(self._signature)}".encode())
