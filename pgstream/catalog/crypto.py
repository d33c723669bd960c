"""Encryption of the secrets that the catalogue keeps.

Owns: the key (a file ``secret.key`` of the data folder, mode 0600, or the setting ``secret_key``) and Fernet around it.
Must not know: what is encrypted. Losing the key means giving the stores' secrets again; nothing else depends on it.
Start reading at ``open_cipher``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken

from pgstream.config import Config
from pgstream.errors import ConfigurationError


class Cipher:
    """Encrypts and decrypts texts."""

    def __init__(self, key: bytes) -> None:
        self._fernet = Fernet(key)

    def __repr__(self) -> str:
        return "Cipher(…)"

    def encrypt(self, text: str) -> bytes:
        return self._fernet.encrypt(text.encode())

    def decrypt(self, data: bytes) -> str:
        """The text again. Error: ConfigurationError when the key is not the one that encrypted it."""
        try:
            return self._fernet.decrypt(data).decode()
        except InvalidToken:
            raise ConfigurationError(
                what="the key does not open the catalogue's secrets",
                hint="Give the same secret.key file, or PGSTREAM_SECRET_KEY, that the catalogue was made with.",
            ) from None


def _key_of(setting: str) -> bytes:
    """A Fernet key as it is; any other text is stretched to one (the salt is fixed: the text is the only secret)."""
    try:
        if len(base64.urlsafe_b64decode(setting.encode())) == 32:
            return setting.encode()
    except (binascii.Error, ValueError):
        pass
    stretched = hashlib.scrypt(setting.encode(), salt=b"pgstream secret key", n=2**14, r=8, p=1, dklen=32)
    return base64.urlsafe_b64encode(stretched)


def _key_file(path: Path) -> bytes:
    """The key in the file, made when it is missing; written whole before it has its name, so never half a key."""
    if not path.exists():
        part = path.with_name(f"{path.name}.{os.getpid()}")
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(Fernet.generate_key() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    return path.read_bytes().strip()


def open_cipher(config: Config, data_dir: Path) -> Cipher:
    """The cipher of this data folder. Error: ConfigurationError when the key file holds no key."""
    if config.secret_key:
        return Cipher(_key_of(config.secret_key))
    path = data_dir / "secret.key"
    try:
        return Cipher(_key_file(path))
    except (ValueError, binascii.Error, OSError) as e:
        raise ConfigurationError(what=f'could not use the key file "{path}": {e}') from None
