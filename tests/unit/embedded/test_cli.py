"""The command line: help, flags from the table of settings, errors without a traceback."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pgstream import __version__
from pgstream.cli import COMMANDS, main
from pgstream.config import SETTINGS, Config, load
from pgstream.errors import ConfigurationError


def run(*argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PGSTREAM_")}
    return subprocess.run(
        [sys.executable, "-m", "pgstream", *argv], capture_output=True, text=True, env=kept | environ, check=False
    )


def test_secrets_never_show_in_a_logged_configuration() -> None:
    shown = {field.name: field.repr for field in dataclasses.fields(Config)}
    assert shown == {setting.name: setting.kind != "secret" for setting in SETTINGS}


def test_flag_environment_file(tmp_path: Path) -> None:
    file = tmp_path / "pgstream.toml"
    file.write_text("listen = 'file:1'\ndatabase = 'file'\nadmin_user = 'file'\nspark_fast_start = true\n")
    environ = {"PGSTREAM_LISTEN": "environment:2", "PGSTREAM_DATABASE": "environment", "PGSTREAM_CONFIG": str(file)}
    config = load({"listen": "flag:3"}, environ)
    assert (config.listen, config.database, config.admin_user) == ("flag:3", "environment", "file")
    assert config.spark_fast_start and config.host_port == ("flag", 3)
    for words, fault in [
        ("x = 1", 'unknown setting "x"'),
        ("trigger_ms = 'soon'", "must be integer"),
        ("=", "could not"),
    ]:
        file.write_text(words)
        with pytest.raises(ConfigurationError, match=fault):
            load({}, environ)


@pytest.mark.parametrize("command", COMMANDS)
def test_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    words = capsys.readouterr().out
    assert f"pgstream {command}" in words.split("examples:")[1]
    flags = COMMANDS[command].settings or ()
    for setting in SETTINGS:
        shown = setting.flag in words.split("examples:")[0].replace(",", " ").split()
        assert shown == (setting.name in flags and setting.kind != "secret"), setting.name


def test_version_is_quick_and_plain() -> None:
    answer = run("version")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, f"pgstream {__version__}\n", "")
    loaded = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "pgstream", "version"], capture_output=True, text=True, check=True
    ).stderr
    assert not [name for name in ("sqlglot", "sqlalchemy", "psycopg", "structlog", "pyspark") if f" {name}\n" in loaded]


def test_error_form() -> None:
    answer = run("check", "--log-level", "loud")
    assert answer.returncode == 1 and answer.stdout == ""
    assert answer.stderr == 'error: setting "log_level" must be one of debug, info, warning, error, not "loud"\n'
    answer = run("jars", PGSTREAM_JARS_DIR="/nowhere")
    assert answer.returncode == 1
    assert [line.split(":")[0] for line in answer.stderr.splitlines()] == ["error", "detail", "hint"]


def test_wrong_flag() -> None:
    answer = run("serve", "--admin-password", "x")
    assert answer.returncode == 2 and "unrecognized arguments" in answer.stderr


def test_list_of_jars() -> None:
    lines = run("jars", "--broker", "--list").stdout.splitlines()
    assert len(lines) == 56 and all(len(line.split()) == 3 for line in lines)


def test_check(tmp_path: Path) -> None:
    listen = "127.0.0.1:0"
    good = run("check", "--data-dir", str(tmp_path / "new"), "--listen", listen, "--cache-dir", str(tmp_path))
    lines = {line[8:24].strip(): line[:8].strip() for line in good.stdout.splitlines() if not line.startswith(" ")}
    assert set(lines) == {"java", "jars", "postgres", "data directory", "listen", "tls", "traces"}
    assert set(lines.values()) == {"ok"} and good.returncode == 0, good.stdout
    assert not (tmp_path / "new").exists()

    (tmp_path / "version").write_text("99\n")
    bad = run("check", "--data-dir", str(tmp_path), "--listen", "nowhere", "--tls", "on", "--java-home", "/nowhere",
              "--jars-dir", "/nowhere", PGSTREAM_POSTGRES_URL="postgresql://u:secret@127.0.0.1:1/x",
              OTEL_EXPORTER_OTLP_ENDPOINT="http://nowhere", OTEL_EXPORTER_OTLP_PROTOCOL="grpc")  # fmt: skip
    assert bad.returncode == 1
    assert [line[:6] for line in bad.stdout.splitlines() if not line.startswith(" ")] == ["FAILED"] * 7
    assert "secret" not in bad.stdout + bad.stderr
