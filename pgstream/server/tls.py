"""The server's certificate: given by files, or self-signed and kept in the data folder.

Owns: ``server.crt`` and ``server.key`` of ``tls=auto``, the TLS context, the certificate's channel binding.
Must not know: sessions. Start reading at ``open_tls``.
"""

from __future__ import annotations

import datetime as dt
import os
import ssl
from pathlib import Path

from pgstream.config import Config
from pgstream.errors import ConfigurationError

ALPN = "postgresql"


def open_tls(config: Config, data_dir: Path, *, make: bool = True) -> tuple[ssl.SSLContext, bytes] | None:
    """The context and its ``tls-server-end-point`` binding; None when TLS is off. Errors: ConfigurationError.

    Without ``make`` it is None as well when ``tls=auto`` has no certificate yet.
    """
    if config.tls == "off":
        return None
    if config.tls == "auto":
        certificate, key = data_dir / "server.crt", data_dir / "server.key"
        if not make and not certificate.exists():
            return None
        if not (certificate.exists() and key.exists()):
            _make(certificate, key, config.host_port[0])
    elif config.tls == "on":
        if config.tls_cert_file is None or config.tls_key_file is None:
            raise ConfigurationError(what='setting "tls" is "on", but "tls_cert_file" or "tls_key_file" is not set')
        certificate, key = config.tls_cert_file, config.tls_key_file
    else:
        raise ConfigurationError(what=f'setting "tls" must be off, auto or on, not "{config.tls}"')
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols([ALPN])
    try:
        context.load_cert_chain(certificate, key)
        return context, _binding(certificate.read_bytes())
    except (OSError, ValueError) as e:
        raise ConfigurationError(what=f'could not load certificate "{certificate}" with key "{key}": {e}') from None


def _binding(pem: bytes) -> bytes:
    """RFC 5929: the certificate's hash by its signature's hash function, SHA-256 in place of MD5 and SHA-1."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    certificate = x509.load_pem_x509_certificate(pem)
    algorithm = certificate.signature_hash_algorithm
    if algorithm is None or isinstance(algorithm, hashes.MD5 | hashes.SHA1):
        algorithm = hashes.SHA256()
    return certificate.fingerprint(algorithm)


def _make(certificate: Path, key: Path, host: str) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host or "pgstream")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=3650))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(private, hashes.SHA256())
    )
    with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(
            private.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
