"""Embedded programs die with the server, and reach their folders without being root."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pgstream.embedded import child
from pgstream.errors import ConfigurationError

PARENT = """
import subprocess, sys, time
from pgstream.embedded.child import spawn
print(spawn([sys.executable, "-c", "import time; time.sleep(600)"], output=subprocess.DEVNULL).pid, flush=True)
time.sleep(600)
"""
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@linux_only
def test_child_dies_with_a_killed_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout as out:
        pid = int(out.readline())
    assert lives(pid)
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 5
    while lives(pid):
        assert time.monotonic() < deadline, "the child outlived its parent"
        time.sleep(0.01)


async def test_ended() -> None:
    process = child.spawn([sys.executable, "-c", "input()"], output=subprocess.PIPE)
    assert await child.ended(process, 10)
    assert process.returncode == 1
    assert process.stdout is not None
    with process.stdout as out:
        # One stream: what a program says last is kept with the rest.
        assert b"EOFError" in out.read()
    process = child.spawn([sys.executable, "-c", "import time; time.sleep(600)"], output=subprocess.DEVNULL)
    assert not await child.ended(process, 0.01)
    process.kill()
    await asyncio.to_thread(process.wait)


@root_only
@pytest.mark.parametrize("capability", [-1, child.CAP_DAC_READ_SEARCH, child.CAP_DAC_OVERRIDE])
def test_unprivileged_child(capability: int) -> None:
    ask = ["/bin/cat", "/proc/self/status"]
    process = child.spawn(ask, user=child.User(65534, 65534, capability), output=subprocess.PIPE)
    words = process.communicate()[0].decode()
    lines = dict(line.split(":\t", 1) for line in words.splitlines() if ":\t" in line)
    assert lines["Uid"].split() == lines["Gid"].split() == ["65534"] * 4
    assert lines["Groups"].strip() == ""
    held = 0 if capability < 0 else 1 << capability
    assert int(lines["CapEff"], 16) == int(lines["CapPrm"], 16) == held


@root_only
def test_capability_counts_in_access(tmp_path: Path) -> None:
    """initdb finds postgres by access(2), which looks at the real user."""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    tmp_path.chmod(0o700)
    user = child.User(65534, 65534, child.CAP_DAC_READ_SEARCH)
    process = child.spawn(["/usr/bin/test", "-x", program], user=user, output=subprocess.DEVNULL)
    assert process.wait(30) == 0


@root_only
def test_capability_only_where_a_folder_is_closed(tmp_path: Path) -> None:
    open_program = Path("/bin/true").resolve()
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    assert child.unprivileged(Path("/var/x"), open_program).capability == -1
    user = child.unprivileged(closed / "data", open_program)
    assert user.capability == child.CAP_DAC_READ_SEARCH and user.uid > 0
    program = closed / "program"
    program.touch(mode=0o700)
    assert child.unprivileged(Path("/var/x"), program).capability == child.CAP_DAC_OVERRIDE


@root_only
def test_owner_of_an_existing_cluster_stays(tmp_path: Path) -> None:
    owned = tmp_path / "postgres"
    owned.mkdir()
    os.chown(owned, 12345, 12346)
    user = child.unprivileged(owned, Path("/bin/true").resolve())
    assert (user.uid, user.gid) == (12345, 12346)


@root_only
def test_container_without_the_capability(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    where = tmp_path / "closed" / "data", Path("/bin/true").resolve()
    monkeypatch.setattr(child, "_capabilities", lambda: 1 << child.CAP_DAC_OVERRIDE)
    assert child.unprivileged(*where).capability == child.CAP_DAC_OVERRIDE
    monkeypatch.setattr(child, "_capabilities", lambda: 0)
    with pytest.raises(ConfigurationError, match="cannot reach") as e:
        child.unprivileged(*where)
    assert "ordinary user" in (e.value.hint or "")


def test_ordinary_user_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(child.os, "geteuid", lambda: 1000)
    assert child.unprivileged(tmp_path, tmp_path) == child.User(-1, -1, -1)
