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
    context = _context(config)
    try:
        _check_private(key)
        context.load_cert_chain(certificate, key, password=no_passphrase)
        return context, binding(ssl.PEM_cert_to_DER_cert(_first(certificate.read_text())))
    except (OSError, ValueError) as e:
        raise ConfigurationError(what=f'could not load certificate "{certificate}" with key "{key}": {e}') from None


def _context(config: Config) -> ssl.SSLContext:
    """With what holds for every certificate of the server; a client's is asked for, and wrong ones are refused."""
    versions = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
    if config.tls_min_version not in versions:
        raise ConfigurationError(what=f'setting "tls_min_version" must be 1.2 or 1.3, not "{config.tls_min_version}"')
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = versions[config.tls_min_version]
    context.set_alpn_protocols([ALPN])
    for file in (config.tls_ca_file, config.tls_crl_file):
        if file is not None:
            try:
                context.load_verify_locations(file)
            except (OSError, ValueError) as e:
                raise ConfigurationError(what=f'could not load certificates of clients from "{file}": {e}') from None
    if config.tls_ca_file is not None:
        context.verify_mode = ssl.CERT_OPTIONAL
    if config.tls_crl_file is not None:
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_CHAIN
    return context


def _check_private(key: Path) -> None:
    """PostgreSQL's rule: nobody but its owner reads a key, or root's is read by a group."""
    status = key.stat()
    if status.st_mode & (0o027 if status.st_uid == 0 else 0o077):
        raise ValueError(f"others can read the key; chmod 0600 {key}")


def no_passphrase() -> str:
    """OpenSSL would ask for it at the terminal."""
    raise ValueError("the key has a passphrase, which is not supported")


def common_name(certificate: bytes) -> str | None:
    """The CN of a client's certificate (DER); None when it has none, or several to choose from."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    names = x509.load_der_x509_certificate(certificate).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if len(names) == 1 else None


def _first(chain: str) -> str:
    """The server's own certificate, which a chain begins with."""
    end = "-----END CERTIFICATE-----"
    before, found, _ = chain.partition(end)
    begin = before.find("-----BEGIN CERTIFICATE-----")
    if not found or begin < 0:
        raise ValueError("no certificate in it")
    return before[begin:] + end


def binding(certificate: bytes) -> bytes:
    """RFC 5929: the hash of a certificate (DER) by its signature's hash function, SHA-256 in place of MD5 and SHA-1."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    read = x509.load_der_x509_certificate(certificate)
    algorithm = read.signature_hash_algorithm
    if algorithm is None or isinstance(algorithm, hashes.MD5 | hashes.SHA1):
        algorithm = hashes.SHA256()
    return read.fingerprint(algorithm)


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
