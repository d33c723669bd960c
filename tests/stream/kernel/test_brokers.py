"""A Kafka cluster that does not answer is waited for once, not by each task of each query."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pgstream.embedded.child import free_port
from tests.server import Kafka

pytestmark = pytest.mark.stream


@pytest.fixture
def brokers(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.spark.sql.pgstream.Brokers


def timed_out(e: Py4JJavaError) -> bool:
    return e.java_exception.getClass().getName() == "org.apache.kafka.common.errors.TimeoutException"


def test_who_waited_in_vain_says_so_to_the_others(brokers: Any) -> None:
    away = {"bootstrap.servers": f"127.0.0.1:{free_port()}"}
    brokers.expect(away)  # nobody has waited for it yet
    with pytest.raises(Py4JJavaError) as e:
        brokers.waited(away | {"group.id": "one", "max.poll.records": "7"})
    assert timed_out(e.value)
    for client in ({"group.id": "another"}, {"transactional.id": "writer", "acks": "all"}):
        assert brokers.isSilent(away | client)
        with pytest.raises(Py4JJavaError) as e:
            brokers.expect(away | client)
        assert timed_out(e.value)
    assert not brokers.isSilent(away | {"security.protocol": "SSL"})  # another store's
    assert not brokers.isSilent({"bootstrap.servers": f"127.0.0.1:{free_port()}"})


def test_a_cluster_that_answers_is_forgotten(brokers: Any, kafka: Kafka) -> None:
    """One partition may have nothing to give, or no leader, while the cluster is well."""
    there = {"bootstrap.servers": kafka.bootstrap}
    brokers.waited(there)
    assert not brokers.isSilent(there)
    brokers.expect(there)
