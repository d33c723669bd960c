"""Why a broker cannot be opened, asked by a TLS handshake of our own: the client library says the same of many causes.

Owns: the handshake and its sentences. It sends nothing but the handshake. Must not know: confluent-kafka.
Start reading at ``complaint``.
"""

from __future__ import annotations

import re
import socket
import ssl
from dataclasses import dataclass

from pgstream import pem
from pgstream.stores.kafka.client import Connection
from pgstream.stores.kafka.values import SUITES

_PATIENCE_S = 2.0
# With TLS 1.3 a server complains of the client's certificate only after the handshake.
_AFTERWARDS_S = 0.5
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_NO_TLS = re.compile("WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE|UNEXPECTED_EOF|PACKET_LENGTH_TOO_LONG")


@dataclass(frozen=True, slots=True)
class Complaint:
    """What is wrong, as the end of a sentence, and what may help."""

    why: str
    hint: str


def complaint(c: Connection) -> Complaint | None:
    """What a handshake with the first broker that accepts connections complains of; None for nothing."""
    for broker in c.brokers.split(","):
        host, _, port = broker.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), _PATIENCE_S) as connection:
                return _encrypted(c, connection, host.strip("[]")) if c.encrypted else _plain(connection, host)
        except (OSError, ValueError):
            continue
    return None


def _encrypted(c: Connection, connection: socket.socket, host: str) -> Complaint | None:
    try:
        with _context(c).wrap_socket(connection, server_hostname=host) as secured:
            secured.settimeout(_AFTERWARDS_S)
            secured.recv(1)
    except ssl.SSLCertVerificationError as e:
        return _untrusted(e)
    except ssl.SSLError as e:
        return _refused(c, str(e.reason or e))
    except OSError:
        pass  # Silence after the handshake: it is the client's turn.
    return None


def _plain(connection: socket.socket, host: str) -> Complaint | None:
    """Whether a broker that was to be opened without TLS speaks it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with context.wrap_socket(connection, server_hostname=host):
            pass
    except ssl.SSLError as e:
        if _NO_TLS.search(str(e.reason or e)):
            return None
    except OSError:
        return None
    return Complaint("it speaks TLS", "Leave 'tls.disabled' out, or give 'tls.disabled' = FALSE.")


def _untrusted(e: ssl.SSLCertVerificationError) -> Complaint:
    text = e.verify_message.rstrip(".")
    if "atch" in text or "not valid for" in text:  # Hostname mismatch, IP address mismatch
        hint = "'uris' must name the host as the certificate does; 'tls.verify_server_hostname' = FALSE takes any."
    else:
        hint = "'tls.ca_cert_file' gives the certificate authorities to trust."
    return Complaint(f"its certificate is not trusted: {text[:1].lower() + text[1:]}", hint)


def _refused(c: Connection, reason: str) -> Complaint:
    text = reason.replace("_", " ").lower()
    if _NO_TLS.search(reason):
        return Complaint("it does not speak TLS", "A broker without TLS needs 'tls.disabled' = TRUE.")
    if "certificate" in text and c.tls.certificate:
        return Complaint(
            f"it refuses the client certificate: {text}", "Check 'tls.client.cert_file' and its authority."
        )
    if "certificate" in text:
        hint = "Give it in 'tls.client.cert_file' and 'tls.client.key_file'."
        return Complaint(f"it wants a client certificate: {text}", hint)
    return Complaint(f"TLS handshake failed: {text}", "Check 'tls.protocols' and 'tls.cipher_suites'.")


def _context(c: Connection) -> ssl.SSLContext:
    context = pem.context(c.tls)
    context.check_hostname = c.verify_host
    if c.versions:
        context.minimum_version, context.maximum_version = _VERSIONS[c.versions[0]], _VERSIONS[c.versions[-1]]
    if older := [SUITES[s] for s in c.suites if SUITES[s]]:
        context.set_ciphers(":".join(older))
    return context
