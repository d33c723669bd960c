"""Every way to open a Kafka cluster, on a real broker: both clients from one CREATE STORE, and what errors say.

MSK is not quite real: the broker checks IAM's tokens by code of ours, which computes each signature anew.

One server and one worker for all; each way reads a topic and writes another one by a continuous query.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from tests.false_registry import client
from tests.pg.door.certificates import Authority
from tests.secure_kafka import (
    CLIENT,
    CLIENT_SECRET,
    IAM,
    OTHER_ROLE,
    PASSWORD,
    REGION,
    ROLE,
    SUITE,
    USER,
    SecureKafka,
    Sts,
    secure_kafka,
)
from tests.server import Server, within

pytestmark = pytest.mark.stream
WRONG, PASSPHRASE = "wr0ng-one", "open-sesame"
Options = dict[str, str]


@pytest.fixture(scope="module")
def kafka(workspace: Path) -> Iterator[SecureKafka]:
    with secure_kafka(workspace / "secure") as k:
        k.topic("numbers")
        k.produce("numbers", [(None, f'{{"n": {n}}}') for n in range(3)])
        yield k


@pytest.fixture(scope="module")
def sts() -> Iterator[Sts]:
    service = Sts()
    yield service
    service.shutdown()
    service.server_close()


@pytest.fixture(scope="module")
def server(workspace: Path, sts: Sts) -> Iterator[Server]:
    """A server of its own, whose AWS identity may take the role that opens MSK."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in sts.environment().items():
            patch.setenv(name, value)
        s = Server(workspace / "secured")
    yield s
    assert s.stop() == 0


@pytest.fixture(scope="module")
def db(server: Server, kafka: SecureKafka) -> Iterator[psycopg.Connection[Any]]:
    with server.connect() as c:
        c.execute("CREATE DATABASE secured")
    with server.connect("secured") as c:
        yield c


@pytest.fixture(scope="module")
def ways(kafka: SecureKafka, workspace: Path) -> dict[str, Options]:
    """Parameters of a store by name: those of the first dictionary open the cluster."""
    sasl = {"kafka.sasl.username": USER, "kafka.sasl.password": PASSWORD}
    ca = {"tls.ca_cert_file": kafka.ca}
    mine = client(kafka.authority)
    plain = load_pem_private_key(mine["tls.client.key_file"].encode(), None)
    encrypted = plain.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSPHRASE.encode())
    ).decode()
    oauth = {
        "kafka.sasl.hash_function": "OAUTHBEARER", "kafka.sasl.oauthbearer.token.endpoint.url": kafka.tokens.url,
        "kafka.sasl.oauthbearer.client.id": CLIENT, "kafka.sasl.oauthbearer.client.secret": CLIENT_SECRET,
        "kafka.sasl.oauthbearer.scope": "streams", "kafka.sasl.oauthbearer.ca_cert_file": kafka.ca,
    }  # fmt: skip

    def at(listener: str, *more: Mapping[str, str], **words: str) -> Options:
        out = {"uris": kafka.at[listener]} | {k.replace("__", "."): v for k, v in words.items()}
        for one in more:
            out |= one
        return out

    other = Authority(workspace / "secure" / "other", "another ca")
    hash_function = "kafka__sasl__hash_function"
    wrong = {"kafka.sasl.password": WRONG}
    msk = {"kafka.sasl.hash_function": "AWS_MSK_IAM", "kafka.msk.iam_role_arn": ROLE, "kafka.msk.aws_region": REGION}
    return {
        "plaintext": {"uris": kafka.bootstrap, "tls.disabled": "TRUE"},
        "plain_open": at("OPEN", sasl, tls__disabled="TRUE", **{hash_function: "PLAIN"}),
        "scram256_open": at("OPEN", sasl, security__protocol="SASL_PLAINTEXT", sasl__mechanism="SCRAM-SHA-256"),
        "plain_tls": at("SASL", sasl, ca, **{hash_function: "PLAIN"}),
        "scram256_tls": at("SASL", sasl, ca, **{hash_function: "SHA256"}),
        "scram512_tls": at("SASL", sasl, ca, **{hash_function: "SHA512"}),
        "oauth": at("OAUTH", ca, oauth),
        "tls": at("TLS", ca),
        "mutual": at("MUTUAL", ca, mine),
        "mutual_encrypted": at("MUTUAL", ca, mine, {"tls.client.key_file": encrypted},
                               tls__client__key_passphrase=PASSPHRASE),
        "no_host_check": at("ELSEWHERE", ca, tls__verify_server_hostname="FALSE"),
        "old_tls": at("OLD", ca, tls__protocols="TLSv1.2", tls__cipher_suites=SUITE),
        "confluent": at("SASL", sasl, ca, **{hash_function: "PLAIN"}, type="CONFLUENT_KAFKA"),
        "msk": at("MSK", ca, msk),
        # These do not.
        "!role": at("MSK", ca, msk, {"kafka.msk.iam_role_arn": ROLE + "2"}),
        "!region": at("MSK", ca, msk, {"kafka.msk.aws_region": "eu-west-1"}),
        "!plain": at("OPEN", sasl, wrong, tls__disabled="TRUE", **{hash_function: "PLAIN"}),
        "!scram": at("SASL", sasl, ca, wrong, **{hash_function: "SHA512"}),
        "!mechanism": at("OAUTH", sasl, ca, **{hash_function: "SHA256"}),
        "!oauth": at("OAUTH", ca, oauth, {"kafka.sasl.oauthbearer.client.secret": WRONG}),
        "!oauth_ca": at("OAUTH", ca, {k: v for k, v in oauth.items() if not k.endswith("ca_cert_file")}),
        "!endpoint": at("OAUTH", ca, oauth, {"kafka.sasl.oauthbearer.token.endpoint.url": "https://127.0.0.1:9/t"}),
        "!ca": at("TLS", {"tls.ca_cert_file": other.root.read_text()}),
        "!host": at("ELSEWHERE", ca),
        "!no_certificate": at("MUTUAL", ca),
        "!certificate": at("MUTUAL", client(other), ca),
        "!passphrase": at("MUTUAL", ca, mine, {"tls.client.key_file": encrypted}, tls__client__key_passphrase=WRONG),
        "!versions": at("OLD", ca, tls__protocols="TLSv1.3"),
        "!suites": at("OLD", ca, tls__cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
        "!no_tls": at("TLS", tls__disabled="TRUE"),
        "!tls": at("OPEN"),
    }  # fmt: skip


GOOD = ("plaintext", "plain_open", "scram256_open", "plain_tls", "scram256_tls", "scram512_tls", "oauth", "tls",
        "mutual", "mutual_encrypted", "no_host_check", "old_tls", "confluent", "msk")  # fmt: skip
BAD = {
    "!role": "AccessDenied",
    "!region": "AccessDenied",
    "!plain": "Authentication failed: Invalid username or password",
    "!scram": "invalid credentials with SASL mechanism SCRAM-SHA-512",
    "!mechanism": "Unsupported SASL mechanism",
    "!oauth": "invalid_client",
    "!oauth_ca": "certificate",
    "!endpoint": "could not connect to it",
    "!ca": "certificate is not trusted: ",
    "!host": "is not valid for '127.0.0.1'",
    "!no_certificate": "wants a client certificate",
    "!certificate": "refuses the client certificate",
    "!passphrase": "does not open the key",
    "!versions": "TLS handshake failed",
    "!suites": "TLS handshake failed",
    "!no_tls": "it speaks TLS",
    "!tls": "it does not speak TLS",
}


def create(name: str, options: Options) -> bytes:
    said = ", ".join(f"'{k}' = '{v}'" for k, v in ({"type": "KAFKA"} | options).items())
    return f"CREATE STORE {name} WITH ({said})".encode()


def rows(db: psycopg.Connection[Any], sql: str) -> list[Any]:
    return db.execute(sql.encode()).fetchall()


@pytest.mark.parametrize("way", GOOD)
def test_a_query_reads_and_writes(
    way: str, db: psycopg.Connection[Any], kafka: SecureKafka, ways: dict[str, Options]
) -> None:
    db.execute(create(way, ways[way]))
    assert ("numbers",) in [r[:1] for r in rows(db, f"LIST ENTITIES IN STORE {way}")]
    db.execute(
        f"CREATE STREAM in_{way} (n BIGINT) WITH ('store' = {way}, 'topic' = 'numbers', 'value.format' = 'json', "
        "'starting.position' = 'earliest')".encode()
    )
    db.execute(
        f"CREATE STREAM out_{way} WITH ('store' = {way}, 'topic.partitions' = 1, 'topic.replicas' = 1) "
        f"AS SELECT n + 1 AS n FROM in_{way} QUERY WITH ('query.name' = 'q_{way}')".encode()
    )
    got = kafka.consume(f"out_{way}", 3)
    assert [value for _, value, _ in got] == ['{"n":1}', '{"n":2}', '{"n":3}']
    shown = str(rows(db, f"DESCRIBE STORE {way}")) + str(rows(db, "DESCRIBE QUERY q_" + way))
    assert not any(secret in shown for secret in (PASSWORD, CLIENT_SECRET, PASSPHRASE, "-----BEGIN"))
    if way != "scram512_tls":  # whose password changes under it later
        db.execute(f"TERMINATE QUERY q_{way}".encode())


@pytest.mark.parametrize("way", BAD)
def test_what_is_wrong_is_named_soon(way: str, db: psycopg.Connection[Any], ways: dict[str, Options]) -> None:
    started = time.monotonic()
    with pytest.raises(psycopg.Error) as e:
        db.execute(create("bad", ways[way]))
    said = f"{e.value.diag.message_primary} {e.value.diag.message_detail} {e.value.diag.message_hint}"
    assert BAD[way] in said
    assert time.monotonic() - started < 10
    assert e.value.sqlstate in ("58000", "22023") and WRONG not in said and PASSWORD not in said


def events(db: psycopg.Connection[Any], query: str) -> list[tuple[str, str]]:
    return [(r[1], r[4] or "") for r in rows(db, f"DESCRIBE QUERY EVENTS {query}")]


def test_credentials_that_stop_working_hold_a_query_until_they_work_again(
    db: psycopg.Connection[Any], kafka: SecureKafka, server: Server
) -> None:
    """The listener asks each connection to prove itself again every three seconds."""
    reason = re.compile(r'waiting: .*store "scram512_tls".*invalid credentials with SASL mechanism SCRAM-SHA-512')

    def listed() -> str:
        return next(str(r) for r in rows(db, "LIST QUERIES") if "q_scram512_tls" in str(r))

    kafka.password(WRONG, "SCRAM-SHA-512")
    # Some five seconds, with a busy machine's share.
    within(20, lambda: reason.search(listed()))
    assert reason.search(str(rows(db, "DESCRIBE QUERY q_scram512_tls")))
    told = [why for what, why in events(db, "q_scram512_tls") if what == "waiting"]
    assert any("invalid credentials" in why and 'store "scram512_tls"' in why for why in told)
    assert b"invalid credentials with SASL mechanism SCRAM-SHA-512" in server.log.read_bytes()
    kafka.password(PASSWORD, "SCRAM-SHA-512")
    kafka.produce("numbers", [(None, '{"n": 3}')])
    assert [v for _, v, _ in kafka.consume("out_scram512_tls", 4)][-1] == '{"n":4}'
    within(20, lambda: events(db, "q_scram512_tls")[-1][0] == "running")


# Another scope and another role, so that the worker has no token for it yet.
OTHERS = {
    "oauth": ("'kafka.sasl.oauthbearer.scope' = 'others'", "it refuses: invalid_client: unknown client"),
    "msk": (f"'kafka.msk.iam_role_arn' = '{OTHER_ROLE}'", "is not authorized"),
}


@pytest.mark.parametrize("store", OTHERS)
def test_who_gives_tokens_and_refuses_later_is_named_and_waited_for(
    store: str, db: psycopg.Connection[Any], kafka: SecureKafka, sts: Sts
) -> None:
    change, reason = OTHERS[store]
    query, service = f"q_tokened_{store}", kafka.tokens if store == "oauth" else sts
    db.execute(f"UPDATE STORE {store} WITH ({change})".encode())
    service.shut = True
    view = f"tokened_{store} AS SELECT n FROM in_{store} QUERY WITH ('query.name' = '{query}')"
    db.execute(f"CREATE MATERIALIZED VIEW {view}".encode())
    within(40, lambda: any("could not log in" in why for what, why in events(db, query) if what == "waiting"))
    assert reason in str(events(db, query))
    service.shut = False
    within(60, lambda: rows(db, f"SELECT count(*) FROM tokened_{store}")[0][0] >= 3)


def test_no_secret_is_left_anywhere(
    db: psycopg.Connection[Any], server: Server, kafka: SecureKafka, ways: dict[str, Options]
) -> None:
    """The server's and the worker's log, the catalogue, checkpoints, PostgreSQL's files, command lines."""
    keys = (o.get("tls.client.key_file", "").split("\n")[1] for o in ways.values() if "tls.client.key_file" in o)
    secrets = [s.encode() for s in (PASSWORD, CLIENT_SECRET, PASSPHRASE, WRONG, IAM["secret"], IAM["own"], *keys)]
    assert all(len(s) > 8 for s in secrets)
    found = re.compile(b"|".join(map(re.escape, secrets)))
    assert not found.search(server.log.read_bytes())
    files = [Path(at) / name for at, _, names in os.walk(server.data_dir) for name in names]
    assert any("checkpoints" in f.parts for f in files) and len(files) > 100
    assert [f for f in files if found.search(_content(f))] == []
    assert not any(found.search(_content(p)) for p in Path("/proc").glob("[0-9]*/cmdline"))
    shown = [str(rows(db, f"SELECT * FROM deltastream.sys.{t}")).encode() for t in ('"stores"', '"queries"')]
    assert not any(found.search(text) for text in shown)


def _content(path: Path) -> bytes:
    """Nothing, if it has gone meanwhile: PostgreSQL and Spark go on."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
