"""The embedded PostgreSQL: kept between runs, one server at a time, never left behind. And an external one."""

import asyncio
import os
import pwd
import signal
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgstream.config import Config
from pgstream.embedded import cluster
from pgstream.embedded.child import CAP_DAC_READ_SEARCH, User, spawn
from pgstream.embedded.postgres import Postgres, open_postgres
from pgstream.errors import ConfigurationError

HOLDER = """
import asyncio, sys
from pathlib import Path
from pgstream import logs
from pgstream.config import Config
from pgstream.embedded.postgres import open_postgres
from pgstream.errors import ConfigurationError

logs.configure("warning")

async def hold():
    postgres = await open_postgres(Config(data_dir=Path(sys.argv[1])))
    print(postgres.postmaster, postgres.url("postgres"), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await postgres.stop()

try:
    asyncio.run(hold())
except ConfigurationError as e:
    sys.exit(f"{e} {e.detail}")
"""


def ask(url: str, query: str) -> Any:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(query)  # type: ignore[call-overload]
        return cursor.fetchone()[0] if cursor.description else None


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pid: int, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while lives(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def config(tmp_path: Path) -> Config:
    # pytest makes tmp_path with mode 0700: as root, the cluster lies where its own user cannot go.
    return Config(data_dir=tmp_path / "data", max_connections=20)


@pytest.fixture
async def postgres(config: Config) -> AsyncIterator[Postgres]:
    opened = await open_postgres(config)
    yield opened
    await opened.stop()


@pytest.fixture
def holder(config: Config) -> Iterator[subprocess.Popen[str]]:
    """Another server, as far as PostgreSQL is concerned, on the same data directory."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(config.data_dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def said(holder: subprocess.Popen[str]) -> tuple[int, str]:
    assert holder.stdout is not None
    pid, url = holder.stdout.readline().split()
    return int(pid), url


async def test_socket_and_tcp(postgres: Postgres) -> None:
    for tcp in (False, True):
        url = postgres.url("postgres", tcp=tcp)
        assert ask(url, "SELECT inet_server_addr() IS NOT NULL") == tcp
        assert ask(url, "SELECT current_user || ' ' || rolsuper FROM pg_roles WHERE rolname = current_user") == (
            "pgstream true"
        )
        with pytest.raises(psycopg.OperationalError, match="password"):
            ask(postgres.url("postgres", "pgstream", "wrong", tcp), "SELECT 1")
    assert len(f"{postgres.host}/.s.PGSQL.{postgres.port}".encode()) < 107


async def test_settings(postgres: Postgres) -> None:
    wanted = {
        "server_encoding": "UTF8",
        "fsync": "on",
        "synchronous_commit": "on",
        "max_connections": "70",
        "wal_level": "replica",
        "TimeZone": "UTC",
        "listen_addresses": "127.0.0.1",
    }
    names = ", ".join(f"'{name}', current_setting('{name}')" for name in wanted)
    assert ask(postgres.url("postgres"), f"SELECT jsonb_build_object({names})") == wanted


async def test_nobody_gets_in_without_a_password(postgres: Postgres) -> None:
    rules = ask(postgres.url("postgres"), "SELECT array_agg(DISTINCT auth_method) FROM pg_hba_file_rules")
    assert rules == ["reject", "scram-sha-256"]


async def test_a_template_is_the_superusers(postgres: Postgres) -> None:
    """PostgreSQL's own rights let everybody in, where what one makes stays in all databases that are made of it."""
    ask(postgres.url("postgres"), "CREATE ROLE someone LOGIN PASSWORD 'someone-1'")
    for database in ("template1", "template0"):
        for url in (postgres.url(database, "someone", "someone-1", tcp) for tcp in (False, True)):
            with pytest.raises(psycopg.OperationalError, match="rejects connection"):
                ask(url, "SELECT 1")
    assert ask(postgres.url("template1"), "SELECT 1") == 1
    assert ask(postgres.url("postgres", "someone", "someone-1"), "SELECT 1") == 1
    ask(postgres.url("postgres"), "DROP ROLE someone")


async def test_data_and_password_are_kept(config: Config) -> None:
    first = await open_postgres(config)
    ask(first.url("postgres"), "CREATE TABLE kept AS SELECT 42 AS n")
    await first.stop()
    await first.stop()
    with pytest.raises(psycopg.OperationalError):
        ask(first.url("postgres"), "SELECT 1")
    second = await open_postgres(config)
    assert second.password == first.password
    assert ask(second.url("postgres"), "SELECT n FROM kept") == 42
    await second.stop()


async def test_killed_it_comes_back_where_it_was(postgres: Postgres) -> None:
    url = postgres.url("postgres")
    ask(url, "CREATE TABLE kept AS SELECT 42 AS n")
    for _ in range(2):
        pid = postgres.postmaster
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while postgres.postmaster == pid or not answers(url):
            assert time.monotonic() < deadline, "it did not come back"
            await asyncio.sleep(0.05)
        assert ask(url, "SELECT n FROM kept") == 42
    pid = postgres.postmaster
    assert pid is not None
    await postgres.stop()
    assert gone(pid, 5)


def answers(url: str) -> bool:
    try:
        return bool(ask(url, "SELECT true"))
    except psycopg.OperationalError:
        return False


async def test_secrets_are_private(config: Config, postgres: Postgres) -> None:
    ask(postgres.url("postgres"), "CREATE ROLE somebody PASSWORD 'hush-hush'")
    with pytest.raises(psycopg.Error):
        ask(postgres.url("postgres"), "CREATE ROLE somebody PASSWORD 'hush-hush'")
    assert "hush" not in (config.data_dir / "postgres.log").read_text()
    for name in ("postgres.password", "postgres.log"):
        assert stat.S_IMODE((config.data_dir / name).stat().st_mode) == 0o600


async def test_two_servers_on_one_directory(config: Config, holder: subprocess.Popen[str]) -> None:
    pid, url = said(holder)
    with pytest.raises(ConfigurationError, match=f'data" is in use by process {holder.pid}$'):
        await open_postgres(config)
    assert lives(pid) and ask(url, "SELECT 1") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
async def test_killed_server_leaves_no_postmaster(config: Config, holder: subprocess.Popen[str]) -> None:
    pid, url = said(holder)
    ask(url, "CREATE TABLE kept AS SELECT 42 AS n")
    holder.kill()
    assert gone(pid, 10), "the postmaster outlived the server by 10 s"
    after = await open_postgres(config)
    assert ask(after.url("postgres"), "SELECT n FROM kept") == 42
    await after.stop()


async def test_next_start_waits_for_a_postmaster_that_ends(config: Config, holder: subprocess.Popen[str]) -> None:
    pid, _ = said(holder)
    holder.kill()
    holder.wait()
    after = await open_postgres(config)
    assert not lives(pid)
    assert ask(after.url("postgres"), "SELECT 1") == 1
    await after.stop()


async def test_left_over_postmaster_is_taken_over(config: Config) -> None:
    left = await open_postgres(config)
    ask(left.url("postgres"), "CREATE TABLE kept AS SELECT 42 AS n")
    assert left._data_dir is not None and left._cluster is not None and left._cluster._process is not None
    # The lock is gone and the postmaster is not: a system that does not tell children that their parent died.
    left._data_dir.release()
    after = await open_postgres(config)
    assert left._cluster._process.poll() == 0
    assert ask(after.url("postgres"), "SELECT n FROM kept") == 42
    await after.stop()


async def test_pid_file_that_names_a_stranger(config: Config, postgres: Postgres) -> None:
    file = config.data_dir / "postgres" / "postmaster.pid"
    text = file.read_text()
    await postgres.stop()
    stranger = spawn(["/bin/sleep", "600"], output=subprocess.DEVNULL)
    file.write_text(text.replace(text.split("\n", 1)[0], str(stranger.pid), 1))
    again = await open_postgres(config)
    assert stranger.poll() is None
    assert ask(again.url("postgres"), "SELECT 1") == 1
    await again.stop()
    stranger.kill()
    stranger.wait()


async def test_killed_postmaster_recovers(config: Config, postgres: Postgres) -> None:
    ask(postgres.url("postgres"), "CREATE TABLE kept AS SELECT 42 AS n")
    assert postgres.postmaster is not None
    os.kill(postgres.postmaster, signal.SIGKILL)
    await postgres.stop()
    again = await open_postgres(config)
    assert ask(again.url("postgres"), "SELECT n FROM kept") == 42
    await again.stop()


async def test_port_taken_in_between(config: Config, postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    ports = [postgres.port, cluster.free_port()]
    monkeypatch.setattr(cluster, "free_port", lambda: ports.pop(0))
    other = await open_postgres(Config(data_dir=config.data_dir.with_name("other"), max_connections=20))
    assert ports == [] and ask(other.url("postgres"), "SELECT 1") == 1
    await other.stop()


async def test_interrupted_initdb_is_begun_anew(config: Config) -> None:
    (config.data_dir / "postgres.new" / "base").mkdir(parents=True)
    postgres = await open_postgres(config)
    assert not (config.data_dir / "postgres.new").exists()
    await postgres.stop()


async def test_other_major_version(config: Config) -> None:
    (config.data_dir / "postgres").mkdir(parents=True)
    (config.data_dir / "postgres" / "PG_VERSION").write_text("15\n")
    with pytest.raises(ConfigurationError, match="is a PostgreSQL 15 cluster, and the embedded PostgreSQL is 16"):
        await open_postgres(config)


async def test_a_strange_folder_is_not_touched(config: Config) -> None:
    (config.data_dir / "postgres").mkdir(parents=True)
    (config.data_dir / "postgres" / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigurationError, match="is not a PostgreSQL cluster"):
        await open_postgres(config)
    assert (config.data_dir / "postgres" / "thesis.txt").read_text() == "mine"


async def test_broken_cluster_says_why(config: Config) -> None:
    await (await open_postgres(config)).stop()
    (config.data_dir / "postgres" / "postgresql.conf").write_text("nonsense = 1\n")
    with pytest.raises(ConfigurationError, match="did not start") as e:
        await open_postgres(config)
    assert "nonsense" in (e.value.detail or "") and "postgres.log" in (e.value.hint or "")


async def test_lost_password(config: Config) -> None:
    await (await open_postgres(config)).stop()
    (config.data_dir / "postgres.password").unlink()
    with pytest.raises(ConfigurationError, match=r'postgres\.password" is missing'):
        await open_postgres(config)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become an ordinary user; run as one, all tests here are")
def test_as_an_ordinary_user(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir(mode=0o700)
    # Allowed to pass through root's folders, where this checkout may lie; otherwise without any right.
    nobody = pwd.getpwnam("nobody")
    user = User(nobody.pw_uid, nobody.pw_gid, CAP_DAC_READ_SEARCH)
    user.own(data_dir)
    script = HOLDER.replace("sys.stdin.read", "print, flush=True")
    for _ in range(2):
        environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "HOME": str(data_dir)}
        process = spawn([sys.executable, "-c", script, data_dir], user=user, environ=environ, output=subprocess.PIPE)
        words = process.communicate(timeout=60)[0].decode()
        assert process.returncode == 0, words
    assert (data_dir / "postgres" / "PG_VERSION").stat().st_uid == nobody.pw_uid


def external(postgres: Postgres, **changes: str) -> Config:
    url = postgres.url("postgres", changes.get("user"), changes.get("password"), tcp=True)
    return Config(data_dir=Path(changes["data_dir"]), postgres_url=url)


async def test_external(postgres: Postgres, tmp_path: Path) -> None:
    other = await open_postgres(external(postgres, data_dir=str(tmp_path / "other")))
    assert (other.embedded, other.host, other.port, other.user) == (False, "127.0.0.1", postgres.port, "pgstream")
    assert ask(other.url("template1"), "SELECT current_database()") == "template1"
    with pytest.raises(ConfigurationError, match="in use by process"):
        await open_postgres(external(postgres, data_dir=str(tmp_path / "other")))
    await other.stop()
    assert ask(postgres.url("postgres"), "SELECT 1") == 1


async def test_external_without_rights(postgres: Postgres, tmp_path: Path) -> None:
    ask(postgres.url("postgres"), "CREATE ROLE plain LOGIN CREATEDB CREATEROLE PASSWORD 'hush'")
    weak = external(postgres, data_dir=str(tmp_path / "other"), user="plain", password="hush")
    with pytest.raises(ConfigurationError, match=r'user "plain" of the PostgreSQL at "127\.0\.0\.1" .* may not') as e:
        await open_postgres(weak)
    assert "superuser" in (e.value.hint or "")
    ask(postgres.url("postgres"), "GRANT SELECT ON pg_authid TO plain")
    await (await open_postgres(weak)).stop()


async def test_external_unreachable(tmp_path: Path) -> None:
    url = f"postgresql://u:hush@127.0.0.1:{cluster.free_port()}/x"
    with pytest.raises(ConfigurationError, match="could not connect to the PostgreSQL at") as e:
        await open_postgres(Config(data_dir=tmp_path / "data", postgres_url=url))
    assert "hush" not in e.value.text + (e.value.detail or "")
