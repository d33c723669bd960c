"""One server a data directory, of a layout we know."""

import os
from pathlib import Path

import pytest

from pgstream.embedded.datadir import LAYOUT, DataDir
from pgstream.errors import ConfigurationError


def test_second_claim_is_refused_until_release(tmp_path: Path) -> None:
    first = DataDir.claim(tmp_path / "data")
    with pytest.raises(ConfigurationError, match=f'data" is in use by process {os.getpid()}$') as e:
        DataDir.claim(tmp_path / "data")
    assert e.value.hint
    first.release()
    first.release()
    DataDir.claim(tmp_path / "data").release()


def test_private(tmp_path: Path) -> None:
    with DataDir.claim(tmp_path / "data") as data_dir:
        password = data_dir.password("postgres")
        assert len(password) > 20 and data_dir.password("postgres") == password
        modes = {p.name: p.stat().st_mode & 0o777 for p in data_dir.path.iterdir()}
        assert modes == {"server.lock": 0o600, "version": 0o600, "postgres.password": 0o600}
        assert data_dir.path.stat().st_mode & 0o777 == 0o700


def test_newer_layout_is_refused(tmp_path: Path) -> None:
    (tmp_path / "version").write_text(f"{LAYOUT + 1}\npgstream 9.9.0\n")
    with pytest.raises(ConfigurationError, match=r"comes from a newer version \(pgstream 9.9.0\)"):
        DataDir.claim(tmp_path)
    # The refusal must not leave the lock behind.
    (tmp_path / "version").write_text(f"{LAYOUT}\n")
    DataDir.claim(tmp_path).release()


def test_damaged_version(tmp_path: Path) -> None:
    (tmp_path / "version").write_text("\0\0")
    with pytest.raises(ConfigurationError, match="damaged"):
        DataDir.claim(tmp_path)


def test_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="could not use data directory"):
        DataDir.claim(tmp_path / "file")


def test_sockets_of_a_killed_server_are_removed(tmp_path: Path) -> None:
    killed = DataDir.claim(tmp_path)
    left = killed.open_sockets()
    assert len(str(left)) < 90 and left.stat().st_mode & 0o777 == 0o700
    # What kill -9 does: the lock goes, the rest stays.
    os.close(killed._lock)
    with DataDir.claim(tmp_path) as successor:
        assert not left.exists()
        mine = successor.open_sockets()
        assert mine == successor.open_sockets()
    assert not mine.exists()


def test_a_strange_lock_file_removes_nothing(tmp_path: Path) -> None:
    victim = tmp_path / "precious"
    victim.mkdir()
    (tmp_path / "server.lock").write_text(f"1\n{victim}\n")
    DataDir.claim(tmp_path).release()
    assert victim.exists()
