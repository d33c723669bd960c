"""A certificate authority made by the test: servers' and clients' certificates, expired, revoked and of strangers."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NOW = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(days=1)


def _name(*common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in common])


class Authority:
    """Files in ``folder``: ``ca.crt``, and ``NAME.crt`` with ``NAME.key`` for each certificate made."""

    def __init__(self, folder: Path, name: str = "test ca") -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.name = folder, _name(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._serials: dict[str, int] = {}
        own = self._builder(self.name, self._key, NOW + 30 * DAY)
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.root = folder / "ca.crt"
        self._write(self.root, own.sign(self._key, hashes.SHA256()))

    def _builder(self, name: x509.Name, key: ec.EllipticCurvePrivateKey, until: dt.datetime) -> x509.CertificateBuilder:
        return x509.CertificateBuilder(
            subject_name=name, issuer_name=self.name, public_key=key.public_key(),
            serial_number=x509.random_serial_number(), not_valid_before=NOW - 10 * DAY, not_valid_after=until,
        )  # fmt: skip

    def issue(
        self, *common: str, hosts: tuple[str, ...] = (), until: dt.datetime = NOW + DAY, file: str = ""
    ) -> tuple[Path, Path]:
        """A certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(_name(*common), key, until)
        if hosts:
            names: list[x509.GeneralName] = [
                x509.IPAddress(ipaddress.ip_address(h)) if h[0].isdigit() else x509.DNSName(h) for h in hosts
            ]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        made = builder.sign(self._key, hashes.SHA256())
        file = file or common[0]
        self._serials[file] = made.serial_number
        certificate, private = self.folder / f"{file}.crt", self.folder / f"{file}.key"
        self._write(certificate, made)
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        private.chmod(0o600)
        return certificate, private

    def revoke(self, *files: str) -> Path:
        """The list of revoked certificates."""
        builder = x509.CertificateRevocationListBuilder(
            issuer_name=self.name, last_update=NOW - DAY, next_update=NOW + DAY
        )
        for file in files:
            builder = builder.add_revoked_certificate(
                x509.RevokedCertificateBuilder(serial_number=self._serials[file], revocation_date=NOW - DAY).build()
            )
        path = self.folder / "ca.crl"
        path.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return path

    @staticmethod
    def _write(path: Path, made: x509.Certificate) -> None:
        path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
