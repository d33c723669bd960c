"""The data directory: one server at a time, of a layout we know.

Owns: ``server.lock``, ``version``, and the private folders for sockets that a killed server left behind.
Must not know: what others keep in the directory. Start reading at ``DataDir.claim``.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile
from pathlib import Path
from types import TracebackType

import pgstream
from pgstream.errors import ConfigurationError

LAYOUT = 1
_SOCKETS = "pgstream-"


class DataDir:
    """A claimed data directory; ``release`` gives it back, and so does the end of the process."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock
        self._sockets: Path | None = None

    @classmethod
    def claim(cls, path: Path) -> DataDir:
        """Make or take the directory. Errors: ConfigurationError if in use, from a newer version, or not writable."""
        path = path.expanduser().absolute()
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(path / "server.lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as e:
            raise ConfigurationError(
                what=f'could not use data directory "{path}": {e.strerror}',
                hint="Choose a writable folder with --data-dir.",
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(lock, 64).decode(errors="replace").partition("\n")[0].strip()
            os.close(lock)
            raise ConfigurationError(
                what=f'data directory "{path}" is in use by process {holder or "unknown"}',
                hint="Stop that server first, or choose another folder with --data-dir.",
            ) from None
        claimed = cls(path, lock)
        try:
            claimed._check_version()
        except BaseException:
            os.close(lock)
            raise
        claimed._sweep()
        return claimed

    def __enter__(self) -> DataDir:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.release()

    def _check_version(self) -> None:
        file = self.path / "version"
        if not file.exists():
            replace(file, f"{LAYOUT}\npgstream {pgstream.__version__}\n")
            return
        layout, _, writer = file.read_text().partition("\n")
        if not layout.strip().isdigit():
            raise ConfigurationError(
                what=f'"{file}" is damaged', hint=f'It should hold the number "{LAYOUT}" in its first line.'
            )
        if int(layout) > LAYOUT:
            raise ConfigurationError(
                what=f'data directory "{self.path}" comes from a newer version ({writer.strip() or "unknown"})',
                hint=f"This is pgstream {pgstream.__version__}: install that version or a newer one, "
                "or choose another folder with --data-dir.",
            )

    def _sweep(self) -> None:
        """Remove the socket folder of a server that was killed, and write who holds the lock now."""
        _, _, rest = os.read(self._lock, 4096).decode(errors="replace").partition("\n")
        left = Path(rest.strip() or "/")
        if left.name.startswith(_SOCKETS) and left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        self._write_lock()

    def _write_lock(self) -> None:
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n{self._sockets or ''}\n".encode(), 0)

    def open_sockets(self) -> Path:
        """A private folder for unix sockets, whose path is short enough for the kernel (107 bytes)."""
        if self._sockets is None:
            folder = tempfile.mkdtemp(prefix=_SOCKETS)
            if len(folder) > 80:
                os.rmdir(folder)
                folder = tempfile.mkdtemp(prefix=_SOCKETS, dir="/tmp")
            self._sockets = Path(folder)
            self._write_lock()
        return self._sockets

    def password(self, name: str) -> str:
        """The secret kept in ``<name>.password`` (0600), made at first use."""
        file = self.path / f"{name}.password"
        if not file.exists():
            replace(file, secrets.token_urlsafe(24) + "\n")
        return file.read_text().strip()

    def release(self) -> None:
        """Let another server have the directory. May be called twice."""
        if self._sockets is not None:
            shutil.rmtree(self._sockets, ignore_errors=True)
            self._sockets = None
        if self._lock >= 0:
            os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = -1


def replace(file: Path, text: str) -> None:
    """Write a private file so that a crash leaves the old one or the new one."""
    temporary = file.with_name(file.name + ".new")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(file)
