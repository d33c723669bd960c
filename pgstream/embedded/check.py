"""What would keep the server from starting, found out without starting it.

Owns: ``pgstream check``. Must not know: the server. Start reading at ``CHECKS``.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pgstream import traces
from pgstream.config import Config
from pgstream.embedded import cluster, jars
from pgstream.embedded.datadir import DataDir
from pgstream.embedded.java import find_java, java_version
from pgstream.embedded.postgres import check_external, external
from pgstream.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the answer; ``fault`` is None when nothing is wrong."""

    name: str
    words: str
    fault: ConfigurationError | None = None


def check(config: Config) -> list[Finding]:
    """Ask every check; a fault of one does not hide the others."""
    findings = []
    for name, ask in CHECKS.items():
        try:
            findings.append(Finding(name, ask(config)))
        except ConfigurationError as e:
            findings.append(Finding(name, e.text, e))
    return findings


def _java(config: Config) -> str:
    java = find_java(config)
    return f"Java {java_version(java)} at {java}"


def _jars(config: Config) -> str:
    if config.jars_dir is not None:
        return f"{len(jars.fetch(config))} jars in {config.jars_dir}"
    if absent := jars.missing("connectors", config):
        return f"{len(absent)} are still to be downloaded, by the first start or by: pgstream jars"
    return f"{len(jars.fetch(config))} in {config.cache / 'jars'}"


def _postgres(config: Config) -> str:
    if config.postgres_url:
        postgres = external(config.postgres_url)
        asyncio.run(check_external(postgres))
        return f"external, at {postgres.host} port {postgres.port}"
    program = cluster.binaries() / "postgres"
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise ConfigurationError(what=f'"{program}" does not run', detail=answer.stderr.strip())
    return f"embedded, {answer.stdout.strip()}"


def _data_dir(config: Config) -> str:
    path = config.data_dir.expanduser().absolute()
    if path.exists():
        DataDir.claim(path).release()
        return str(path)
    above = next(folder for folder in path.parents if folder.exists())
    if not os.access(above, os.W_OK | os.X_OK):
        raise ConfigurationError(
            what=f'could not make data directory "{path}": "{above}" is not writable',
            hint="Choose a writable folder with --data-dir.",
        )
    return f"{path}, to be made by the first start"


def _listen(config: Config) -> str:
    host, port = config.host_port
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, proto) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
    except OSError as e:
        raise ConfigurationError(
            what=f'could not listen on "{config.listen}": {(e.strerror or str(e)).lower()}',
            hint="Stop what listens there, or choose another HOST:PORT with --listen; port 0 picks a free one.",
        ) from None
    return config.listen


def _tls(config: Config) -> str:
    if config.tls not in ("off", "auto", "on"):
        raise ConfigurationError(what=f'setting "tls" must be off, auto or on, not "{config.tls}"')
    for name in ("tls_cert_file", "tls_key_file"):
        file: Path | None = getattr(config, name)
        if config.tls == "on" and (file is None or not os.access(file, os.R_OK)):
            raise ConfigurationError(
                what=f'setting "{name}" names no readable file', hint="tls=on needs both; tls=auto makes its own."
            )
    return config.tls


def _traces(_: Config) -> str:
    return "off" if traces.load() is None else "by OTLP over HTTP"


CHECKS: dict[str, Callable[[Config], str]] = {
    "java": _java,
    "jars": _jars,
    "postgres": _postgres,
    "data directory": _data_dir,
    "listen": _listen,
    "tls": _tls,
    "traces": _traces,
}
