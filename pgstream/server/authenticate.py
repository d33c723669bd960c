"""How a client proves who it is: SCRAM-SHA-256, a password inside TLS, a certificate.

Owns: the messages of the proof, up to the keys that open PostgreSQL as the user. Who does not exist is answered as one
who gave a wrong password, in the same time.
Must not know: which method is asked for, what comes after. Start reading at ``authenticate``.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pgstream.errors import AuthorizationRefused, PasswordRefused, ProtocolViolation
from pgstream.server.access import CERT, PASSWORD, VERIFY_FULL, Rule
from pgstream.server.admission import Admission
from pgstream.server.tls import common_name
from pgstream.wire import backend, frontend, scram

if TYPE_CHECKING:
    from pgstream.server.listener import Listener
    from pgstream.server.session import ClientSession


async def authenticate(
    client: ClientSession, listener: Listener, rule: Rule, user: str, database: str, *, unknown: str = ""
) -> tuple[scram.Keys | None, Admission]:
    """Ask the client for all that the rule demands. Gives the user's keys, None when there was no password.

    ``unknown``: an organization that does not exist, in which nobody does either.
    Errors: PasswordRefused, AuthorizationRefused, ProtocolViolation.
    """
    if rule.clientcert and client.certificate is None:
        raise AuthorizationRefused(what="connection requires a valid client certificate")
    admission = await listener.admissions.ask(user, database)
    if unknown or not listener.snapshot.knows(user):  # PostgreSQL's logins may be others' too
        admission = Admission()
    keys = None
    if rule.method != CERT:
        verifier = _verifier(client, listener, unknown + user, admission.verifier)
        keys = await (_password if rule.method == PASSWORD else _scram)(client, user, verifier)
    if rule.clientcert == VERIFY_FULL:
        name = common_name(client.certificate) if client.certificate else None
        if name is None or not rule.lets(name, user) or not admission.may:
            raise AuthorizationRefused(what=f'certificate authentication failed for user "{user}"')
    if unknown:
        raise PasswordRefused(user=user)
    return keys, admission


def _verifier(client: ClientSession, listener: Listener, user: str, text: str | None) -> scram.Verifier:
    """What PostgreSQL keeps of the user's password, or one that no password fits."""
    verifier = scram.Verifier.parse(text) if text else None
    if verifier is None or verifier.iterations > scram.MOST_ITERATIONS:  # PostgreSQL takes any
        verifier = scram.Verifier.mock(user, listener.catalog.mock_secret)
        if text:
            listener.refusals.say(f'user "{user}" has no SCRAM-SHA-256 password{_OR_LONG}', client.address)
    return verifier


_OR_LONG = f" of at most {scram.MOST_ITERATIONS} iterations"
_deriving = ThreadPoolExecutor(2, thread_name_prefix="passwords")


async def _scram(client: ClientSession, user: str, verifier: scram.Verifier) -> scram.Keys:
    exchange = scram.ServerExchange(verifier, binding=client.binding)
    client.write(backend.authentication_sasl(exchange.mechanisms))
    initial = frontend.decode_sasl_initial(await _answer(client))
    client.write(backend.authentication_sasl_continue(exchange.first(initial.mechanism, initial.data)))
    final = exchange.final(await _answer(client))
    if final is None:
        raise PasswordRefused(user=user)
    client.write(backend.authentication_sasl_final(final[0]))
    return final[1]


async def _password(client: ClientSession, user: str, verifier: scram.Verifier) -> scram.Keys:
    client.write(backend.AUTHENTICATION_CLEARTEXT_PASSWORD)
    given = await _answer(client)
    if not given.endswith(b"\0") or b"\0" in given[:-1]:
        raise ProtocolViolation(what="invalid password packet size")
    try:
        password = given[:-1].decode()
    except UnicodeDecodeError:
        raise PasswordRefused(user=user) from None
    # Deriving takes milliseconds, or as long as the user's verifier says: not in the loop that all sessions share, nor
    # on the threads of other work.
    keys = await asyncio.get_running_loop().run_in_executor(_deriving, verifier.keys_of, password)
    if keys is None:
        raise PasswordRefused(user=user)
    return keys


async def _answer(client: ClientSession) -> bytes:
    _, payload = await client.next_message()
    return payload
