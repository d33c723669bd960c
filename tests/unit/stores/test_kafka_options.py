"""Kafka's options: validation with positions, and the settings of both clients made from them."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from pgstream import stores
from pgstream.errors import InvalidOption, MissingOption, NotInstalled, NotYet, PgStreamError
from pgstream.properties import Given
from pgstream.sql.cursor import Cursor
from pgstream.stores.kafka import STORE, client
from pgstream.stores.spec import Can, OptionTable

PEM = "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----"


def given(text: str) -> dict[str, Given]:
    return Cursor(text).properties()


def checked(text: str, table: OptionTable = STORE.options) -> dict[str, str]:
    return table.check(given(text))


def fault(text: str, table: OptionTable = STORE.options) -> PgStreamError:
    with pytest.raises(PgStreamError) as e:
        checked(text, table)
    return e.value


def test_defaults_and_aliases() -> None:
    assert checked(
        "('uris' = 'a:1', 'SASL.Mechanism' = 'scram-sha-512', 'sasl.username' = u, 'sasl.password' = p)"
    ) == {
        "uris": "a:1",
        "kafka.sasl.hash_function": "SCRAM-SHA-512",
        "kafka.sasl.username": "u",
        "kafka.sasl.password": "p",
        "tls.disabled": "false",
        "tls.verify_server_hostname": "true",
    }


@pytest.mark.parametrize(
    ("text", "kind", "at", "word"),
    [
        ("('uri' = 'a')", InvalidOption, 1, "uri"),
        ("('tls.disabled' = TRUE)", MissingOption, None, "uris"),
        ("('uris' = 'a', 'tls.disabled' = maybe)", InvalidOption, 32, "tls.disabled"),
        ("('uris' = 'a', 'kafka.sasl.hash_function' = MD5)", InvalidOption, 44, "MD5".lower()),
        ("('uris' = 'a', 'kafka.sasl.hash_function' = AWS_MSK_IAM)", MissingOption, None, "kafka.msk.iam_role_arn"),
        ("('uris' = 'a', 'kafka.sasl.hash_function' = PLAIN)", MissingOption, None, "kafka.sasl.username"),
        ("('uris' = 'a', 'kafka.msk.aws_region' = r)", InvalidOption, 40, "kafka.msk.aws_region"),
        ("('uris' = 'a:1,b:99999')", InvalidOption, 10, "port of broker 2 is not between 1 and 65535"),
        ("('uris' = '[::1]:65536')", InvalidOption, 10, "port of broker 1"),
        ("('uris' = 'a:0')", InvalidOption, 10, "port of broker 1"),
        ("('uris' = 'a', 'sasl.username' = u, 'kafka.sasl.username' = v)", InvalidOption, 36, "more than once"),
    ],
)
def test_faults_say_where(text: str, kind: type[PgStreamError], at: int | None, word: str) -> None:
    e = fault(text)
    assert type(e) is kind and e.at == at and word in e.text


def test_topic_options() -> None:
    table = STORE.entity_options
    assert checked("('topic.partitions' = '5', 'kafka.topic.retention.ms' = '-1')", table) == {
        "kafka.partitions": "5",
        "kafka.topic.retention.ms": "-1",
    }
    assert fault("('kafka.partitions' = 0)", table).at == 22
    assert checked("('value.format' = 'Json', 'kafka.topic.partitions' = 2)", STORE.relation_options) == {
        "value.format": "JSON",
        "topic.partitions": "2",
    }


def test_secrets_are_passwords_and_keys() -> None:
    assert STORE.options.hidden(o.name for o in STORE.options.options) == {
        "kafka.sasl.oauthbearer.ca_cert_file", "kafka.sasl.oauthbearer.client.secret", "kafka.sasl.password",
        "properties.file", "tls.ca_cert_file", "tls.client.cert_file", "tls.client.key_file",
        "tls.client.key_passphrase",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "librdkafka", "java"),
    [
        (
            "('uris' = ' a:1, b:2', 'tls.disabled' = TRUE)",
            {"bootstrap.servers": "a:1,b:2", "security.protocol": "PLAINTEXT"},
            {"bootstrap.servers": "a:1,b:2", "security.protocol": "PLAINTEXT"},
        ),
        (
            "('uris' = 'a:1', 'kafka.sasl.hash_function' = SHA256, 'sasl.username' = 'u\"', 'sasl.password' = 'p\\')",
            {
                "bootstrap.servers": "a:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": 'u"', "sasl.password": "p\\", "ssl.endpoint.identification.algorithm": "https",
            },
            {
                "bootstrap.servers": "a:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
                'username="u\\"" password="p\\\\";',
                "ssl.endpoint.identification.algorithm": "https",
            },
        ),
        (
            f"('uris' = 'a:1', 'security.protocol' = SSL, 'tls.verify_server_hostname' = FALSE, "
            f"'tls.ca_cert_file' = '{PEM}')",
            {
                "bootstrap.servers": "a:1", "security.protocol": "SSL", "ssl.ca.pem": PEM,
                "ssl.endpoint.identification.algorithm": "none",
            },
            {
                "bootstrap.servers": "a:1", "security.protocol": "SSL", "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": PEM, "ssl.endpoint.identification.algorithm": "",
            },
        ),
        (
            "('uris' = 'SASL_SSL://a:1', 'kafka.sasl.hash_function' = OAUTHBEARER, 'sasl.oauthbearer.client.id' = me, "
            "'sasl.oauthbearer.token.endpoint.url' = 'https://i/t', 'sasl.oauthbearer.client.secret' = 's\n', "
            "'sasl.oauthbearer.extensions' = 'logicalCluster=lkc-1, identityPoolId=p', "
            "'tls.cipher_suites' = 'TLS_AES_256_GCM_SHA384, ECDHE-RSA-AES256-GCM-SHA384', 'tls.protocols' = 'tlsv1.3')",
            {
                "bootstrap.servers": "a:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER",
                "ssl.endpoint.identification.algorithm": "https", "ssl.cipher.suites": "ECDHE-RSA-AES256-GCM-SHA384",
            },
            {
                "bootstrap.servers": "a:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER",
                "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
                'clientId="me" clientSecret="s\\012" extension_logicalCluster="lkc-1" extension_identityPoolId="p";',
                "sasl.login.callback.handler.class": "org.apache.spark.sql.pgstream.TokenLogin",
                "sasl.oauthbearer.token.endpoint.url": "https://i/t",
                "ssl.endpoint.identification.algorithm": "https", "ssl.enabled.protocols": "TLSv1.3",
                "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
            },
        ),
    ],
)  # fmt: skip
def test_one_description_two_clients(text: str, librdkafka: dict[str, str], java: dict[str, str]) -> None:
    options = checked(text)
    made = client.librdkafka(options)
    asked = made.pop("oauth_cb", None)
    assert getattr(asked, "tokens", None) == client.connection(options).tokens
    assert made == librdkafka
    assert client.java(options) == java


def test_a_connection_does_not_print_secrets() -> None:
    text = "('uris' = 'a', 'kafka.sasl.hash_function' = PLAIN, 'sasl.username' = u, 'sasl.password' = 'hush')"
    assert "hush" not in repr(client.connection(checked(text)))


@pytest.mark.parametrize(
    "text",
    ["'uris' = 'user:hush@b:1'", "'uris' = ''", "'uris' = 'b:1', 'tls.cipher_suites' = 'RC4-MD5'",
     "'uris' = 'b:1', 'tls.protocols' = 'SSLv3'", "'uris' = 'b:1', 'sasl.oauthbearer.extensions' = 'hush'",
     "'uris' = 'b:1', 'sasl.oauthbearer.token.endpoint.url' = 'file:///etc/hush'",
     "'uris' = 'b:1', 'sasl.oauthbearer.token.endpoint.url' = 'https://me:hush@host/t'"],
)  # fmt: skip
def test_values_out_of_shape_are_refused_and_not_repeated(text: str) -> None:
    e = fault(f"({text})")
    assert isinstance(e, InvalidOption) and e.at is not None and "hush" not in f"{e.text} {e.detail} {e.hint}"


@pytest.mark.parametrize(
    ("text", "read"),
    [("Earliest", "earliest"), ("timestamp:1700000000000", "timestamp:1700000000000"),
     ("timestamp:2026-01-01T00:00:00", "timestamp:1767225600000"),
     ("Timestamp: 2026-01-01 01:00:00+01:00", "timestamp:1767225600000"), ("offset:1:5, 0:17", "offset:0:17,1:5"),
     ("middle", None), ("timestamp:", None), ("timestamp:soon", None), ("offset:1", None), ("offset:-1:2", None),
     ("earliest:1", None)],
)  # fmt: skip
def test_where_reading_begins(text: str, read: str | None) -> None:
    said = f"('starting.position' = '{text}')"
    if read is None:
        assert isinstance(fault(said, STORE.source_options), InvalidOption)
    else:
        assert checked(said, STORE.source_options) == {"starting.position": read}


@pytest.mark.parametrize("name", ["bootstrap.servers", "interceptor.classes", "sasl.jaas.config", "auto.offset.reset"])
def test_a_source_only_tunes_its_consumer(name: str) -> None:
    e = fault(f"('kafka.consumer.{name}' = 'x')", STORE.source_options)
    assert isinstance(e, InvalidOption) and "cannot be set by a statement" in e.text
    assert checked("('kafka.consumer.client.rack' = 'a')", STORE.source_options)


def test_settings_of_both_clients() -> None:
    """What older scripts give as kafka.properties.…: no more than either client's own family takes."""
    for table in (STORE.relation_options, STORE.source_options):
        given = "('kafka.properties.request.timeout.ms' = '60000', 'kafka.properties.linger.ms' = 5)"
        assert checked(given, table) == {
            "kafka.properties.request.timeout.ms": "60000",
            "kafka.properties.linger.ms": "5",
        }
        assert "cannot be set by a statement" in fault("('kafka.properties.sasl.jaas.config' = 'x')", table).text


@pytest.mark.parametrize("kind", [PrivateFormat.TraditionalOpenSSL, PrivateFormat.PKCS8])
def test_keys_of_any_kind_become_one_that_both_clients_read(kind: PrivateFormat) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    made = key.private_bytes(Encoding.PEM, kind, BestAvailableEncryption(b"open")).decode()
    options = {
        "uris": "a:1",
        "tls.client.cert_file": PEM,
        "tls.client.key_file": made,
        "tls.client.key_passphrase": "open",
    }
    plain = client.librdkafka(options)["ssl.key.pem"]
    assert plain.startswith("-----BEGIN PRIVATE KEY-----") and client.java(options)["ssl.keystore.key"] == plain
    for wrong in ({}, {"tls.client.key_passphrase": "hush"}):
        with pytest.raises(InvalidOption) as e:
            client.connection({**options, "tls.client.key_passphrase": "", **wrong})
        assert "hush" not in e.value.text


def test_no_file_of_the_server_is_read() -> None:
    with pytest.raises(InvalidOption):
        client.connection(checked("('uris' = 'a', 'tls.ca_cert_file' = '/etc/passwd')"))


def test_registry() -> None:
    assert stores.find("Kafka") is STORE and stores.find("CONFLUENT_KAFKA") is STORE
    with pytest.raises(NotYet) as planned:
        stores.find("oracle", 7)
    assert planned.value.at == 7 and "ORACLE" in planned.value.text
    with pytest.raises(InvalidOption) as unknown:
        stores.find("nope", 7)
    assert unknown.value.at == 7 and "KAFKA" in (unknown.value.hint or "")


def test_a_missing_library_says_what_to_install() -> None:
    with pytest.raises(NotInstalled) as e:
        stores._attribute("not_there_at_all", "STORE", "snowflake")
    assert e.value.hint == 'pip install "pgstream[snowflake]"'


def test_capabilities_are_said() -> None:
    STORE.require(Can.SINK)
    with pytest.raises(PgStreamError) as e:
        STORE.require(Can.TABLE, 3)
    assert e.value.sqlstate == "0A000" and e.value.at == 3 and e.value.detail


@pytest.mark.parametrize(
    "name",
    ["bootstrap.servers", "interceptor.classes", "metric.reporters", "key.serializer", "sasl.jaas.config",
     "sasl.login.callback.handler.class", "ssl.keystore.location", "ssl.truststore.location", "security.providers",
     "sasl.oauthbearer.token.endpoint.url", "config.providers", "partitioner.class", "transactional.id", "", "linger"],
)  # fmt: skip
def test_a_sink_only_tunes_its_producer(name: str) -> None:
    """What loads classes, reads files or leads elsewhere would act with the server's rights."""
    e = fault(f"('kafka.producer.{name}' = 'x')", STORE.relation_options)
    assert isinstance(e, InvalidOption) and e.at == 1 and "cannot be set by a statement" in e.text
    assert "linger.ms" in (e.hint or "")
    assert checked("('KAFKA.Producer.LINGER.ms' = 5)", STORE.relation_options)


@pytest.mark.parametrize(
    "name",
    ["jars", "jars.packages", "files", "archives", "submit.pyFiles", "plugins", "driver.extraJavaOptions",
     "driver.extraClassPath", "executor.extraLibraryPath", "executorEnv.PATH", "pyspark.python", "extraListeners",
     "sql.extensions", "sql.catalog.x", "sql.streaming.streamingQueryListeners", "SQL.Variable.substitute",
     "ui.enabled", "driver.bindAddress", "eventLog.dir", "local.dir", "sql.warehouse.dir", "master", "metrics.conf",
     "kubernetes.executor.podTemplateFile", "yarn.dist.files", "hadoop.fs.s3a.secret.key",
     "hadoop.fs.azure.account.key.x.dfs.core.windows.net"],
)  # fmt: skip
def test_a_pool_only_tunes_spark(name: str) -> None:
    from pgstream.statements.compute_pools import OPTIONS

    e = fault(f"('spark.{name}' = 'x')", OPTIONS)
    assert isinstance(e, InvalidOption) and e.at == 1 and "cannot be set by a statement" in e.text
    assert checked("('spark.sql.shuffle.partitions' = 7)", OPTIONS)["spark.sql.shuffle.partitions"] == "7"
