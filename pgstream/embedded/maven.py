"""Jars by Maven coordinates, downloaded by Ivy, which is among PySpark's own jars: no Maven needed.

Owns: how Ivy is called, proxies and trusted authorities in Java's words.
Must not know: which jars, the cache, checksums: ``jars``. Start reading at ``download``.
"""

from __future__ import annotations

import importlib.util
import ssl
import subprocess
import urllib.request
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore
from cryptography.x509 import load_der_x509_certificate

from pgstream import pem
from pgstream.errors import ConfigurationError

_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Jar:
    """One line of the lock file."""

    group: str
    artifact: str
    version: str
    sha256: str
    classifier: str = ""
    extension: str = "jar"

    @classmethod
    def parse(cls, coordinates: str, sha256: str) -> Jar:
        """``group:artifact:version[:classifier:extension]``"""
        group, artifact, version, *more = coordinates.split(":")
        return cls(group, artifact, version, sha256, *more)

    @property
    def coordinates(self) -> str:
        more = f":{self.classifier}:{self.extension}" if self.classifier else ""
        return f"{self.group}:{self.artifact}:{self.version}{more}"

    @property
    def file(self) -> str:
        return f"{self.artifact}-{self.version}{'-' if self.classifier else ''}{self.classifier}.{self.extension}"

    @property
    def dependency(self) -> str:
        """For Ivy."""
        place = f"org={quoteattr(self.group)} name={quoteattr(self.artifact)} rev={quoteattr(self.version)}"
        name, ext, classifier = map(quoteattr, (self.artifact, self.extension, self.classifier))
        which = f"<artifact name={name} type={ext} ext={ext} m:classifier={classifier}/>" if self.classifier else ""
        return f'<dependency {place} transitive="false" conf="default->*">{which}</dependency>'


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where a jar lies if it came, and what was complained of if not."""

    jar: Jar
    file: Path
    complaint: str


def download(
    java: Path, jars: Sequence[Jar], folder: Path, mirror: str, report: Callable[[str], None]
) -> list[Outcome]:
    """Download into ``folder``, a few at once, from ``mirror`` or Maven Central. Checks nothing."""
    program: list[Path | str] = [
        java,
        *_proxies(),
        *_trust(folder / "trust.p12"),
        "-XX:TieredStopAtLevel=1",
        "-cp",
        _ivy(),
    ]
    chunks = {folder / str(n): jars[n::_AT_ONCE] for n in range(min(_AT_ONCE, len(jars)))}
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        words = threads.map(lambda work: _run_ivy(program, work, chunks[work], mirror, report), chunks)
        return [
            Outcome(jar, work / jar.file, complaint)
            for (work, chunk), complaint in zip(chunks.items(), words, strict=True)
            for jar in chunk
        ]


def _run_ivy(
    program: Sequence[Path | str], work: Path, jars: Sequence[Jar], mirror: str, report: Callable[[str], None]
) -> str:
    """Download some jars into ``work``; the complaints of Ivy."""
    work.mkdir()
    root = f" root={quoteattr(mirror.rstrip('/') + '/')}" if mirror else ""
    (work / "settings.xml").write_text(
        f'<ivysettings><settings defaultResolver="it"/><caches defaultCacheDir={quoteattr(str(work / "ivy"))}/>'
        f'<resolvers><ibiblio name="it" m2compatible="true" usepoms="false" useMavenMetadata="false"{root}/>'
        "</resolvers></ivysettings>"
    )
    (work / "ivy.xml").write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="pgstream" module="jars"/>'
        '<configurations><conf name="default"/></configurations><dependencies>'
        + "".join(jar.dependency for jar in jars)
        + "</dependencies></ivy-module>"
    )
    argv = [*program, "org.apache.ivy.Main"]
    argv += ["-settings", work / "settings.xml", "-ivy", work / "ivy.xml", "-confs", "default"]
    argv += ["-retrieve", f"{work}/[artifact]-[revision](-[classifier]).[ext]"]
    complaints = []
    with subprocess.Popen(
        list(map(str, argv)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout or ():
            if "[SUCCESSFUL ]" in line:
                report("downloaded " + line.split("]", 1)[1].split("!")[0].strip().replace("#", ":").replace(";", ":"))
            elif any(word in line for word in ("Server access", "not found", "Exception", "FAILED")):
                complaints.append(line.strip())
    # "Server access error" says why; the others only that.
    return "\n".join(sorted(complaints, key=lambda line: "Server access" not in line)[:3])


def _ivy() -> Path:
    spec = importlib.util.find_spec("pyspark")
    found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec and spec.origin else []
    if not found:
        raise ConfigurationError(
            what="the package pyspark is not installed", hint='Install it with pip install "pgstream".'
        )
    return found[-1]


def _proxies() -> list[str]:
    """Java reads no ``https_proxy``: say it in its own words."""
    flags = []
    for scheme, url in urllib.request.getproxies().items():
        there = urlsplit(url if "://" in url else f"//{url}")
        if scheme in ("http", "https") and there.hostname:
            flags += [f"-D{scheme}.proxyHost={there.hostname}", f"-D{scheme}.proxyPort={there.port or 8080}"]
    return flags


def _trust(file: Path) -> list[str]:
    """A Java from PyPI trusts its own list of authorities: let it trust the system's, as Python does."""
    bundle = pem.system_authorities()
    if bundle is None:
        return []
    found = []
    with warnings.catch_warnings():
        # Some old authorities have serial numbers that newer rules forbid.
        warnings.simplefilter("ignore")
        for number, der in enumerate(ssl.create_default_context(cafile=bundle).get_ca_certs(binary_form=True)):
            try:
                found.append(PKCS12Certificate(load_der_x509_certificate(der), str(number).encode()))
            except ValueError:
                # And some cannot be read at all: not trusted, then.
                continue
    file.write_bytes(serialize_java_truststore(found, BestAvailableEncryption(b"public")))
    return [f"-Djavax.net.ssl.trustStore={file}", "-Djavax.net.ssl.trustStorePassword=public"]
