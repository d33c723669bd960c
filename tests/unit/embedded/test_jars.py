"""The lock file, and that no jar is used whose checksum is not the locked one."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pgstream.config import Config
from pgstream.embedded import jars, maven
from pgstream.embedded.maven import Jar, Outcome
from pgstream.errors import ConfigurationError
from pgstream.pem import system_authorities

GOOD = {"a-1.jar": b"one", "b-2.jar": b"two"}


@pytest.mark.parametrize(("part", "count"), [("connectors", 10), ("broker", 46)])
def test_lock_file(part: str, count: int) -> None:
    locked = jars.locked(part)
    assert len(locked) == count == len({jar.file for jar in locked})
    for jar in locked:
        assert len(jar.sha256) == 64 and int(jar.sha256, 16)
        # A range or LATEST resolves to previews.
        assert jar.version[0].isdigit() and not set(jar.version) & set("[](),")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Two small jars in the lock, and a download that serves ``GOOD``."""
    lock = tmp_path / "jars.lock"
    lines = [f'"g:{file[0]}:{file[2]}" = "{hashlib.sha256(content).hexdigest()}"' for file, content in GOOD.items()]
    lock.write_text("[connectors]\n" + "\n".join(lines))
    monkeypatch.setattr(jars, "LOCK", lock)
    monkeypatch.setattr(jars, "find_java", lambda config: Path("java"))
    serve(monkeypatch, GOOD)
    return Config(cache_dir=tmp_path / "cache")


def serve(monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes]) -> None:
    def download(java: Path, wanted: Sequence[Jar], folder: Path, *rest: Any) -> list[Outcome]:
        for jar in wanted:
            if jar.file in files:
                (folder / jar.file).write_bytes(files[jar.file])
        return [Outcome(jar, folder / jar.file, "Server access error at url …") for jar in wanted]

    monkeypatch.setattr(jars, "download", download)


def test_downloaded_once(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    paths = jars.fetch(config, said.append)
    assert [path.read_bytes() for path in paths] == [b"one", b"two"]
    assert said == ["downloading 2 jars from Maven Central"]
    serve(monkeypatch, {})
    assert jars.fetch(config, said.append) == paths
    assert len(said) == 1
    assert sorted(path.name for path in paths[0].parent.iterdir()) == ["a-1.jar", "b-2.jar", "checked.json"]


def test_warm_start_does_not_hash(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    jars.fetch(config)
    monkeypatch.setattr(jars, "_digest", lambda file: pytest.fail("hashed again"))
    jars.fetch(config)


def test_changed_file_is_fetched_again(config: Config) -> None:
    path = jars.fetch(config)[0]
    path.write_bytes(b"bad")
    assert jars.fetch(config)[0].read_bytes() == b"one"


def test_lost_stamp_is_harmless(config: Config) -> None:
    stamp = jars.fetch(config)[0].parent / "checked.json"
    stamp.write_text("{")
    jars.fetch(config)
    assert len(json.loads(stamp.read_text())) == 2


def test_wrong_checksum_is_not_kept(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, GOOD | {"b-2.jar": b"evil"})
    with pytest.raises(ConfigurationError, match="g:b:2 from Maven Central has the wrong checksum"):
        jars.fetch(config)
    assert not (config.cache / "jars" / "b-2.jar").exists()


def test_download_that_fails_names_the_jar_and_the_ways_out(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, {"a-1.jar": b"one"})
    with pytest.raises(ConfigurationError, match="could not download g:b:2 from Maven Central") as e:
        jars.fetch(config)
    assert e.value.detail and "Server access" in e.value.detail
    assert e.value.hint and "JARS_MIRROR" in e.value.hint and "JARS_DIR" in e.value.hint


def test_offline_folder(config: Config, tmp_path: Path) -> None:
    folder = tmp_path / "offline"
    folder.mkdir()
    offline = Config(cache_dir=config.cache_dir, jars_dir=folder)
    (folder / "a-1.jar").write_bytes(b"one")
    assert [jar.coordinates for jar in jars.missing("connectors", offline)] == ["g:b:2"]
    with pytest.raises(ConfigurationError, match=r'"b-2.jar" is missing in "'):
        jars.fetch(offline)
    (folder / "b-2.jar").write_bytes(b"evil")
    with pytest.raises(ConfigurationError, match="wrong checksum"):
        jars.fetch(offline)
    (folder / "b-2.jar").write_bytes(b"two")
    assert [path.parent for path in jars.fetch(offline)] == [folder, folder]


def test_unwritable_cache(config: Config, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(ConfigurationError, match="could not make the jar cache"):
        jars.fetch(config)


def test_proxy_is_said_in_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maven.urllib.request, "getproxies", lambda: {"https": "http://proxy.example:3128", "no": "x"})
    assert maven._proxies() == ["-Dhttps.proxyHost=proxy.example", "-Dhttps.proxyPort=3128"]


def test_authorities_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = maven._trust(tmp_path / "trust.p12")
    assert bool(flags) == (system_authorities() is not None) == (tmp_path / "trust.p12").exists()
