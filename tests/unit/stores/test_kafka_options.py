"""Kafka's options: validation with positions, and the settings of both clients made from them."""

from __future__ import annotations

import pytest

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
        ("('uris' = 'a', 'kafka.sasl.hash_function' = AWS_MSK_IAM)", NotYet, 44, "AWS_MSK_IAM"),
        ("('uris' = 'a', 'kafka.sasl.hash_function' = PLAIN)", MissingOption, None, "kafka.sasl.username"),
        ("('uris' = 'a', 'kafka.msk.aws_region' = r)", NotYet, 15, "kafka.msk.aws_region"),
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
        "kafka.sasl.password", "tls.ca_cert_file", "tls.client.cert_file", "tls.client.key_file", "properties.file",
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
    ],
)  # fmt: skip
def test_one_description_two_clients(text: str, librdkafka: dict[str, str], java: dict[str, str]) -> None:
    options = checked(text)
    assert client.librdkafka(options) == librdkafka
    assert client.java(options) == java


def test_a_connection_does_not_print_secrets() -> None:
    text = "('uris' = 'a', 'kafka.sasl.hash_function' = PLAIN, 'sasl.username' = u, 'sasl.password' = 'hush')"
    assert "hush" not in repr(client.connection(checked(text)))


def test_no_file_of_the_server_is_read() -> None:
    with pytest.raises(InvalidOption):
        client.connection(checked("('uris' = 'a', 'tls.ca_cert_file' = '/etc/passwd')"))


def test_registry() -> None:
    assert stores.find("Kafka") is STORE and stores.find("CONFLUENT_KAFKA") is STORE
    with pytest.raises(NotYet) as planned:
        stores.find("kinesis", 7)
    assert planned.value.at == 7 and "KINESIS" in planned.value.text
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
     "ui.enabled", "driver.bindAddress", "eventLog.dir", "local.dir", "sql.warehouse.dir", "master", "metrics.conf"],
)  # fmt: skip
def test_a_pool_only_tunes_spark(name: str) -> None:
    from pgstream.statements.compute_pools import OPTIONS

    e = fault(f"('spark.{name}' = 'x')", OPTIONS)
    assert isinstance(e, InvalidOption) and e.at == 1 and "cannot be set by a statement" in e.text
    assert checked("('spark.sql.shuffle.partitions' = 7)", OPTIONS)["spark.sql.shuffle.partitions"] == "7"
