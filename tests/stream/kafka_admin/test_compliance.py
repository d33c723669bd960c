"""What every store type promises, kept by Kafka with a real broker."""

from __future__ import annotations

import pytest

from pgstream.stores.kafka import STORE
from tests.compliance import Compliance, Place
from tests.server import Kafka


class TestKafka(Compliance):
    @pytest.fixture
    def place(self, kafka: Kafka) -> Place:
        plain = {"tls.disabled": "true"}
        made = {"kafka.partitions": "2", "kafka.replicas": "1"}
        return Place(STORE, {"uris": kafka.bootstrap, **plain}, {"uris": "127.0.0.1:1", **plain}, "ka_promises", made)
