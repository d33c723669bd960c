"""SCRAM against the RFC's exchange, and both our ends against each other."""

from __future__ import annotations

import pytest

from pgstream.errors import ProtocolViolation
from pgstream.wire import scram

# RFC 7677, section 3: user "user", password "pencil".
SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CLIENT_FIRST = f"n,,n=user,r={CLIENT_NONCE}".encode()
SERVER_FIRST = f"r={CLIENT_NONCE}{SERVER_NONCE},s={SALT},i=4096".encode()
CLIENT_FINAL = f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
VERIFIER = scram.Verifier.make("pencil", scram._unb64(SALT))


def test_client_against_the_rfc():
    client = scram.ClientExchange(password="pencil", user="user", nonce=CLIENT_NONCE)
    assert client.first() == CLIENT_FIRST
    assert client.final(SERVER_FIRST) == CLIENT_FINAL
    assert client.check(SERVER_FINAL)
    assert not client.check(b"v=AAAA")


def test_server_against_the_rfc():
    server = scram.ServerExchange(VERIFIER, nonce=SERVER_NONCE)
    assert server.first("SCRAM-SHA-256", CLIENT_FIRST) == SERVER_FIRST
    final = server.final(CLIENT_FINAL)
    assert final is not None and final[0] == SERVER_FINAL


def test_recovered_keys_authenticate():
    server = scram.ServerExchange(VERIFIER, nonce=SERVER_NONCE)
    server.first("SCRAM-SHA-256", CLIENT_FIRST)
    _, keys = server.final(CLIENT_FINAL)
    second, client = scram.ServerExchange(VERIFIER), scram.ClientExchange(keys=keys)
    answer = second.final(client.final(second.first("SCRAM-SHA-256", client.first())))
    assert answer is not None and client.check(answer[0])


@pytest.mark.parametrize("password", ["wrong", ""])
def test_wrong_password(password):
    server, client = scram.ServerExchange(VERIFIER), scram.ClientExchange(password=password)
    assert server.final(client.final(server.first("SCRAM-SHA-256", client.first()))) is None


def test_mock_verifier_is_steady_and_never_fits():
    mock = scram.Verifier.mock("nobody", b"secret")
    assert mock.salt == scram.Verifier.mock("nobody", b"secret").salt
    assert mock.salt != scram.Verifier.mock("other", b"secret").salt
    server, client = scram.ServerExchange(mock), scram.ClientExchange(password="x")
    assert server.final(client.final(server.first("SCRAM-SHA-256", client.first()))) is None


def test_verifier_text():
    assert scram.Verifier.parse(str(VERIFIER)) == VERIFIER
    for text in ("", "md5abc", "SCRAM-SHA-256$x", "SCRAM-SHA-256$4096:$:"):
        assert scram.Verifier.parse(text) is None


def test_keys_are_not_shown():
    assert "client" not in repr(scram.derive("pencil", b"salt", 1))
    assert "stored" not in repr(VERIFIER)


@pytest.mark.parametrize(
    ("mechanism", "first"),
    [
        ("SCRAM-SHA-1", b"n,,n=,r=x"),
        ("SCRAM-SHA-256-PLUS", b"p=tls-server-end-point,,n=,r=x"),
        ("SCRAM-SHA-256", b"p=tls-server-end-point,,n=,r=x"),
        ("SCRAM-SHA-256", b"n,,n=,r="),
        ("SCRAM-SHA-256", b"\xff"),
        ("SCRAM-SHA-256", b"n,a=x,n=,r=x"),
    ],
)
def test_malformed_first(mechanism, first):
    with pytest.raises(ProtocolViolation):
        scram.ServerExchange(VERIFIER).first(mechanism, first)


def test_downgrade_is_noticed():
    with pytest.raises(ProtocolViolation, match="negotiation"):
        scram.ServerExchange(VERIFIER, binding=b"hash").first("SCRAM-SHA-256", b"y,,n=,r=x")


@pytest.mark.parametrize("final", [b"c=biws,r=other,p=AAAA", b"c=AAAA,r=x,p=AAAA", b"c=biws,r=x", b"c=biws,r=x,p=!"])
def test_malformed_final(final):
    server = scram.ServerExchange(VERIFIER, nonce="y")
    server.first("SCRAM-SHA-256", b"n,,n=,r=x")
    with pytest.raises(ProtocolViolation):
        server.final(final.replace(b"r=x", b"r=xy"))


def test_channel_binding():
    for binding, seen, mechanism, works in [
        (b"end point", b"end point", "SCRAM-SHA-256-PLUS", True),
        (b"end point", b"another", "SCRAM-SHA-256-PLUS", False),  # somebody in between
        (b"end point", None, "SCRAM-SHA-256", True),  # not offered
        (None, b"end point", "SCRAM-SHA-256", True),  # no TLS here
    ]:
        server = scram.ServerExchange(VERIFIER, binding=seen)
        client = scram.ClientExchange(password="pencil", binding=binding, offered=seen is not None)
        assert client.mechanism == mechanism
        final = client.final(server.first(client.mechanism, client.first()))
        if not works:
            with pytest.raises(ProtocolViolation, match="channel binding check failed"):
                server.final(final)
            continue
        answer = server.final(final)
        assert answer is not None and client.check(answer[0])


def test_an_offer_that_was_hidden():
    server = scram.ServerExchange(VERIFIER, binding=b"end point")
    client = scram.ClientExchange(password="pencil", binding=b"end point", offered=False)
    with pytest.raises(ProtocolViolation, match="channel binding negotiation error"):
        server.first(client.mechanism, client.first())
