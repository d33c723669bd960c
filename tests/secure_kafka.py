"""A real broker with a listener for each way to come in, and a token endpoint; certificates are made at the start.

Listeners: PLAINTEXT; OPEN (SASL without TLS); TLS; MUTUAL (client certificates); SASL (SASL over TLS, whose
SCRAM-SHA-512 clients must prove themselves every few seconds); OAUTH (tokens, checked by a key file); ELSEWHERE (a
certificate of another host); OLD (TLS 1.2 and one cipher suite only); MSK (IAM's tokens, whose signature is checked).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from joserfc import jwt
from joserfc.jwk import RSAKey

from pgstream.config import load
from pgstream.embedded.child import free_port
from pgstream.embedded.jars import broker_jars
from pgstream.embedded.java import find_java
from pgstream.embedded.kafka import open_broker
from tests.false_registry import secured, tls
from tests.pg.door.certificates import Authority
from tests.server import Kafka

USER, PASSWORD, CLIENT, CLIENT_SECRET = "alice", 'al1ce-"s\\ecret', "pgstream", "cl1ent-secret"
LISTENERS = {
    "OPEN": "SASL_PLAINTEXT", "TLS": "SSL", "MUTUAL": "SSL", "SASL": "SASL_SSL", "OAUTH": "SASL_SSL",
    "ELSEWHERE": "SSL", "OLD": "SSL", "MSK": "SASL_SSL",
}  # fmt: skip
ROLE, OTHER_ROLE = (f"arn:aws:iam::123456789012:role/{name}" for name in ("streams", "others"))
REGION = "eu-west-3"
IAM = {
    "key": "ASIATESTTESTTEST",
    "secret": "iam-role-secret",
    "session": "iam-role-session/+=",
    "own": "aws-server-secret",
}
STS_PORT = "PGSTREAM_TEST_STS_PORT"
"""Where executors of a cluster, which were started before, look for it."""
SERVER_KEY = "AKIASERVERSERVER"
SUITE = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
_MODULES = "org.apache.kafka.common.security"
_SCRAM = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}


class TokenEndpoint(ThreadingHTTPServer):
    """Gives a signed token to the client that knows its secret. ``shut``: it answers nobody."""

    daemon_threads = True

    def __init__(self, key: RSAKey, authority: Authority) -> None:
        self.key, self.shut, self.given = key, False, 0
        super().__init__(("127.0.0.1", 0), _Token)
        self.socket = secured(self.socket, tls(authority))
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def handle_error(self, *_: Any) -> None:
        """A client that does not trust the certificate leaves."""

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server_address[1]}/token"


class _Token(BaseHTTPRequestHandler):
    server: TokenEndpoint

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        pair = base64.b64encode(f"{CLIENT}:{CLIENT_SECRET}".encode()).decode()
        if self.server.shut or self.headers.get("Authorization") != f"Basic {pair}":
            return self._say(401, {"error": "invalid_client", "error_description": "unknown client"})
        now = int(time.time())
        claims = {"iss": "test", "aud": "kafka", "sub": CLIENT, "iat": now, "exp": now + 300, "scope": "streams"}
        token = jwt.encode({"alg": "RS256", "kid": "1"}, claims, self.server.key)
        self.server.given += 1
        self._say(200, {"access_token": token, "token_type": "Bearer", "expires_in": 300})

    def _say(self, status: int, what: Any) -> None:
        body = json.dumps(what).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


class Sts(ThreadingHTTPServer):
    """AWS's token service, as far as it lends two roles to who signs with the server's key."""

    daemon_threads = True
    shut = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", int(os.environ.get(STS_PORT, "0"))), _Lend)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def environment(self) -> dict[str, str]:
        return identity(self.server_address[1])


def identity(port: int) -> dict[str, str]:
    """The environment of a process whose AWS identity may take the role, of the service at a port."""
    return {
        "AWS_ENDPOINT_URL_STS": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": SERVER_KEY,
        "AWS_SECRET_ACCESS_KEY": IAM["own"], "AWS_EC2_METADATA_DISABLED": "true",
    }  # fmt: skip


class _Lend(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        said = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        known = f"Credential={SERVER_KEY}/" in self.headers.get("Authorization", "")
        known &= said["RoleArn"][0] in (ROLE, OTHER_ROLE) and f"/{REGION}/sts/" in self.headers["Authorization"]
        if not known or self.server.shut:  # type: ignore[attr-defined]
            text = "<Code>AccessDenied</Code><Message>User is not authorized to perform: sts:AssumeRole</Message>"
            return self._say(403, f"<ErrorResponse><Error><Type>Sender</Type>{text}</Error></ErrorResponse>")
        lent = f"<AccessKeyId>{IAM['key']}</AccessKeyId><SecretAccessKey>{IAM['secret']}</SecretAccessKey>"
        lent += f"<SessionToken>{IAM['session']}</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration>"
        user = f"<AssumedRoleUser><Arn>{ROLE}/x</Arn><AssumedRoleId>A:x</AssumedRoleId></AssumedRoleUser>"
        result = f"<AssumeRoleResult><Credentials>{lent}</Credentials>{user}</AssumeRoleResult>"
        space = "https://sts.amazonaws.com/doc/2011-06-15/"
        self._say(200, f'<AssumeRoleResponse xmlns="{space}">{result}</AssumeRoleResponse>')

    def _say(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/xml")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        pass


class SecureKafka(Kafka):
    """``at`` maps a listener to its HOST:PORT."""

    def __init__(self, bootstrap: str, ports: dict[str, int], authority: Authority, tokens: TokenEndpoint) -> None:
        super().__init__(bootstrap)
        self.at = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        self.authority, self.tokens = authority, tokens
        self.ca = authority.root.read_text()

    def password(self, password: str, *mechanisms: str) -> None:
        """Change the user's SCRAM password."""
        said = [
            UserScramCredentialUpsertion(USER, ScramCredentialInfo(_SCRAM[m], 4096), password.encode())
            for m in mechanisms or _SCRAM
        ]
        for one in said:
            for f in self.admin.alter_user_scram_credentials([one]).values():
                f.result(30)


@contextlib.contextmanager
def secure_kafka(folder: Path) -> Iterator[SecureKafka]:
    """It, while it runs."""
    folder.mkdir()
    authority = Authority(folder / "certificates")
    key = RSAKey.generate_key(2048, {"kid": "1", "use": "sig", "alg": "RS256"})
    jwks = folder / "jwks.json"
    jwks.write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
    ports = {name: free_port() for name in LISTENERS}
    # What the broker may read keys from is a property of its Java.
    os.environ["JAVA_TOOL_OPTIONS"] = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={jwks.as_uri()}"
    try:
        settings = _properties(folder, authority, ports, jwks)
        classes = _validator(folder / "classes")
        broker = asyncio.run(
            open_broker(load({}, os.environ), folder / "kafka", properties=settings, class_path=[classes])
        )
    finally:
        del os.environ["JAVA_TOOL_OPTIONS"]
    tokens = TokenEndpoint(key, authority)
    try:
        kafka = SecureKafka(broker.bootstrap, ports, authority, tokens)
        kafka.password(PASSWORD)
        yield kafka
    finally:
        asyncio.run(broker.stop())
        tokens.shutdown()
        tokens.server_close()


def _validator(folder: Path) -> Path:
    """The broker's side of MSK's tokens, compiled."""
    config = load({}, os.environ)
    source = Path(__file__).with_name("MskValidator.java")
    command = [str(find_java(config)), "-m", "jdk.compiler/com.sun.tools.javac.Main", "-d", str(folder)]
    command += ["-cp", ":".join(map(str, broker_jars(config))), str(source)]
    subprocess.run(command, check=True, env={**os.environ, "JAVA_TOOL_OPTIONS": ""})
    return folder


def _properties(folder: Path, authority: Authority, ports: dict[str, int], jwks: Path) -> dict[str, str]:
    def store(name: str, host: str) -> Path:
        certificate, key = authority.issue(name, hosts=(host,))
        path = folder / f"{name}.pem"
        path.write_text(key.read_text() + certificate.read_text() + authority.root.read_text())
        return path

    def jaas(module: str, more: str = "") -> str:
        # Backslashes are escapes of the properties file, too.
        return f"{_MODULES}.{module} required {more};".replace("\\", "\\\\")

    quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    addresses = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
    out = {
        "listeners": addresses, "advertised.listeners": addresses,
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items()),
        "ssl.keystore.type": "PEM", "ssl.keystore.location": str(store("broker", "127.0.0.1")),
        "ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority.root),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.elsewhere.ssl.keystore.type": "PEM",
        "listener.name.elsewhere.ssl.keystore.location": str(store("elsewhere", "other.host")),
        "listener.name.old.ssl.enabled.protocols": "TLSv1.2",
        "listener.name.old.ssl.cipher.suites": SUITE,
        "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
    }  # fmt: skip
    for name in ("open", "sasl"):
        own = f"listener.name.{name}"
        out[f"{own}.sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
        out[f"{own}.plain.sasl.jaas.config"] = jaas("plain.PlainLoginModule", f'user_{USER}="{quoted}"')
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            out[f"{own}.{mechanism}.sasl.jaas.config"] = jaas("scram.ScramLoginModule")
    out["listener.name.sasl.scram-sha-512.connections.max.reauth.ms"] = "3000"
    iam = {**IAM, "region": REGION, "unsecuredLoginStringClaim_sub": "broker"}
    said = " ".join(f'{name}="{value}"' for name, value in iam.items())
    out |= {
        "listener.name.msk.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.msk.oauthbearer.sasl.server.callback.handler.class": "MskValidator",
        "listener.name.msk.oauthbearer.sasl.jaas.config": jaas("oauthbearer.OAuthBearerLoginModule", said),
    }
    oauth = "listener.name.oauth.oauthbearer.sasl"
    return out | {
        f"{oauth}.jaas.config": jaas("oauthbearer.OAuthBearerLoginModule"),
        f"{oauth}.server.callback.handler.class": f"{_MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler",
        f"{oauth}.oauthbearer.jwks.endpoint.url": jwks.as_uri(),
        f"{oauth}.oauthbearer.expected.audience": "kafka",
        f"{oauth}.oauthbearer.expected.issuer": "test",
    }
