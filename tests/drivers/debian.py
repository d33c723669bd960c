"""Sources as Debian publishes them, fetched by apt: suites that no driver's own registry carries.

Owns: a private configuration of apt, so that the machine's own stays as it is. Must not know: which suites.
Start reading at ``unpack_debian``.
"""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from tests.drivers.suite import CACHE, must, run

HOME = CACHE / "apt"
_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
_SOURCES = "".join(
    f"deb-src [signed-by={_KEYS}] http://deb.debian.org/debian {suite} main\n"
    for suite in ("bookworm", "trixie", "sid")
)


def unpack_debian(package: str, version: str, source: Path) -> None:
    """The upstream sources of ``package=version`` in the folder ``source``."""
    if shutil.which("apt-get") is None:
        raise SystemExit("apt-get is not here: this suite comes from Debian's sources")
    folder = source.parent
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    env = {"APT_CONFIG": str(_configuration())}
    must(["apt-get", "update", "-q"], folder, folder / "update.log", env)
    # A mirror may lack the smaller archives that belong to a package: what counts is that the large one has come.
    fetch = ["apt-get", "source", "-q", "--download-only", "--tar-only", f"{package}={version}"]
    run(fetch, folder, folder / "fetch.log", env)
    found = sorted(folder.glob("*.orig.tar.[gbx]*[z2]"))
    if not found:
        raise SystemExit(f"apt has no source of {package} {version}\n{(folder / 'fetch.log').read_text()[-2000:]}")
    with tarfile.open(found[0]) as archive:
        archive.extractall(folder, filter="data")
    next(p for p in folder.iterdir() if p.is_dir()).rename(source)


def _configuration() -> Path:
    for made in ("lists/partial", "cache/archives/partial"):
        (HOME / made).mkdir(parents=True, exist_ok=True)
    (HOME / "sources.list").write_text(_SOURCES)
    lines = {"Dir::Etc::sourcelist": HOME / "sources.list", "Dir::Etc::sourceparts": "/dev/null",
             "Dir::State::lists": HOME / "lists", "Dir::Cache": HOME / "cache"}  # fmt: skip
    file = HOME / "apt.conf"
    file.write_text("".join(f'{name} "{value}";\n' for name, value in lines.items()))
    return file
