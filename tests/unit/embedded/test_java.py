"""Which Java is taken, and what is said when none fits."""

from pathlib import Path

import pytest

from pgstream.config import Config
from pgstream.embedded import java
from pgstream.errors import ConfigurationError


@pytest.mark.parametrize(
    ("words", "version"),
    [
        ('IMPLEMENTOR="Debian"\nJAVA_VERSION="17.0.15"\n', 17),
        ('openjdk version "21.0.8" 2025-07-15\nOpenJDK Runtime Environment', 21),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ('java version "1.8.0_402"', 8),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", 0),
        ("", 0),
    ],
)
def test_version(words: str, version: int) -> None:
    assert java.parse_version(words) == version


def home(folder: Path, version: str) -> Path:
    """A JDK as far as ``java_version`` looks."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").touch(mode=0o755)
    (folder / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return folder


def test_setting_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(home(tmp_path / "a", "17.0.1")))
    found = java.find_java(Config(java_home=home(tmp_path / "b", "21.0.8")))
    assert found == tmp_path / "b" / "bin" / "java"


def test_a_setting_that_does_not_fit_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(home(tmp_path / "a", "17.0.1")))
    with pytest.raises(ConfigurationError, match=r"found only java_home: Java 25$"):
        java.find_java(Config(java_home=home(tmp_path / "b", "25")))


def test_environment_that_does_not_fit_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(home(tmp_path / "a", "11.0.2")))
    monkeypatch.setenv("PATH", str(home(tmp_path / "b", "21.0.2") / "bin"))
    assert java.find_java(Config()) == tmp_path / "b" / "bin" / "java"


def test_none_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(home(tmp_path / "a", "1.8.0_402")))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match="Java 17 or 21 is needed, found only JAVA_HOME: Java 8") as e:
        java.find_java(Config())
    assert 'pip install "pgstream[java]"' in (e.value.hint or "")
