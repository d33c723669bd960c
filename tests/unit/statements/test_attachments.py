"""Files that options name: read in the folder that is allowed, and nowhere else."""

from __future__ import annotations

import asyncio
import base64
import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest

from pgstream.errors import InvalidOption
from pgstream.properties import Given
from pgstream.statements import attachments
from pgstream.stores.spec import Kind, Option, OptionTable

TABLE = OptionTable(
    "a test", (Option("ca", Kind.FILE, "Text."), Option("jar", Kind.BINARY, "Bytes."), Option("uris", Kind.TEXT, "U."))
)


def resolve(folder: Path | None, **values: str) -> dict[str, str | None]:
    ctx = SimpleNamespace(config=SimpleNamespace(attachments_dir=folder))
    given = {k.replace("_", "."): Given(k.replace("_", "."), v, 1, 7) for k, v in values.items()}
    out = asyncio.run(attachments.resolve(ctx, given, TABLE))  # type: ignore[arg-type]
    return {k: g.value for k, g in out.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "allowed"
    inside.mkdir()
    (inside / "ca.pem").write_text("PEM")
    (inside / "x.jar").write_bytes(b"\x00\xff")
    (inside / "more.yaml").write_text("uris: http://file\nca: '@ca.pem'\n")
    (tmp_path / "outside").write_text("nobody's business")
    (inside / "link").symlink_to(tmp_path / "outside")
    return inside


def test_a_file_of_the_folder_is_read(folder: Path) -> None:
    assert resolve(folder, ca="@ca.pem", jar="@x.jar", uris="@ca.pem") == {
        "ca": "PEM",
        "jar": "AP8=",
        "uris": "@ca.pem",
    }
    assert resolve(None, ca="base64:UEVN") == {"ca": "PEM"}


def test_options_of_the_statement_win_over_those_of_the_file(folder: Path) -> None:
    assert resolve(folder, properties_file="@more.yaml", uris="http://mine") == {"uris": "http://mine", "ca": "PEM"}


@pytest.mark.parametrize("name", ["../outside", "/../outside", "link", "none", "", "."])
def test_what_is_not_in_the_folder_is_not_read(folder: Path, name: str) -> None:
    with pytest.raises(InvalidOption, match="not in the folder for attachments") as e:
        resolve(folder, ca="@" + name)
    assert "business" not in str(e.value)


def test_wrong_contents_are_refused(folder: Path) -> None:
    for values in ({"ca": "@x.jar"}, {"ca": "base64:AA=="}, {"jar": "base64:#"}, {"properties_file": "{"}):
        with pytest.raises(InvalidOption):
            resolve(folder, **values)
    with pytest.raises(InvalidOption, match="no folder for attachments"):
        resolve(None, ca="@ca.pem")


@pytest.mark.parametrize("value", ["@x.jar", "base64:AAAA", "base64:AA" + " " * 5 + "==", "text"])
def test_what_is_larger_than_a_file_may_be_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setattr(attachments, "LIMIT", 1)
    with pytest.raises(InvalidOption, match="is larger than"):
        resolve(folder, jar=value)


def test_base64_may_have_blanks_and_ends_of_lines() -> None:
    assert resolve(None, jar="base64: AA\r\nAA\n") == {"jar": "AAAA"}
    with pytest.raises(InvalidOption, match="is not base64"):
        resolve(None, jar="base64:ÄAAA")


MANY = "a: &a {x: 1}\n" + "".join(
    f"{c}: &{c} {{<<: [*{b}, *{b}]}}\n" for b, c in itertools.pairwise("abcdefghijklmnopq")
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (MANY, "aliases cannot be used here"), ("[" * 5000, "nested too deeply"), ("a: 2001-99-99", "cannot be read"),
        ("a: 0x" + "f" * 5000, "too long"), ('a: "x\\0y"', "NUL"), ("a: [1]", "must be one value"), ("- a", "mapping"),
        ("a: !!set {b}", "one value"), ("a: b\n" * 300_000, "larger than 1 MB"), ("a: !!python/name:os.system", "YAML"),
        ("x: 1\npassword: [hunter2", "Line 2"),
    ],
)  # fmt: skip
def test_a_file_of_properties_is_a_few_words(folder: Path, text: str, said: str) -> None:
    """Whoever makes something may send one: it takes neither memory nor time without end."""
    with pytest.raises(InvalidOption) as e:
        resolve(folder, properties_file="base64:" + base64.b64encode(text.encode()).decode())
    shown = f"{e.value} {e.value.detail}"
    assert said in shown
    assert "hunter2" not in shown
