"""Offsets of a topic's partitions, whose leaders may not know yet that they are."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from pgstream.stores.kafka.topics import extents
from pgstream.stores.spec import Extent


class Client:
    """Fails as it is told, then answers."""

    def __init__(self, *codes: int) -> None:
        self.codes, self.asked = list(codes), 0

    def list_offsets(self, wanted: dict[Any, Any], request_timeout: float) -> dict[Any, Future[Any]]:
        self.asked += 1
        out = {}
        for place in wanted:
            out[place] = Future[Any]()
            if self.codes:
                out[place].set_exception(KafkaException(KafkaError(self.codes[0])))
            else:
                out[place].set_result(SimpleNamespace(offset=self.asked))
        del self.codes[:1]
        return out


def test_a_partition_without_a_leader_is_asked_for_again() -> None:
    client = Client(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
    assert extents(client, "t", [0, 1], 8.0) == [Extent(0, 3, 4), Extent(1, 3, 4)]


@pytest.mark.parametrize(
    ("code", "patience_s"), [(KafkaError.TOPIC_AUTHORIZATION_FAILED, 8.0), (KafkaError.NOT_LEADER_FOR_PARTITION, 0.0)]
)
def test_what_does_not_pass_is_told(code: int, patience_s: float) -> None:
    client = Client(*[code] * 50)
    with pytest.raises(KafkaException) as e:
        extents(client, "t", [0], patience_s)
    assert e.value.args[0].code() == code and client.asked <= 2
