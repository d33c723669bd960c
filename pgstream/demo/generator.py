"""Page views and users, written to Kafka at a steady rate: the data of DeltaStream's tutorials.

Owns: the two topics and the thread that fills them. Must not know: pgstream.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from typing import Any

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

TOPICS = ("pageviews", "users")
_CITIES = (
    ("Palo Alto", "CA", "94301"),
    ("Austin", "TX", "73301"),
    ("Denver", "CO", "80202"),
    ("Boston", "MA", "02108"),
    ("Seattle", "WA", "98101"),
)
_INTERESTS = ("News", "Travel", "Sport", "Movies", "Games")


def pageview(rng: random.Random, now_ms: int) -> tuple[str, dict[str, Any]]:
    """A page view: (key, record)."""
    user = f"User_{rng.randint(1, 9)}"
    return user, {"viewtime": now_ms, "userid": user, "pageid": f"Page_{min(int(rng.expovariate(0.5)) + 1, 9)}"}


def user(rng: random.Random, now_ms: int) -> tuple[str, dict[str, Any]]:
    """A user's registration: (key, record)."""
    name = f"User_{rng.randint(1, 9)}"
    city, state, zipcode = rng.choice(_CITIES)
    # Numbers 555-0100 to 555-0199 belong to nobody.
    contact = {"phone": f"555-01{rng.randint(0, 99):02}", "city": city, "state": state, "zipcode": zipcode}
    record = {"registertime": now_ms, "userid": name, "regionid": f"Region_{rng.randint(1, 9)}",
              "gender": rng.choice(("FEMALE", "MALE", "OTHER")), "interests": rng.sample(_INTERESTS, 2),
              "contactinfo": contact}  # fmt: skip
    return name, record


class Generator:
    """A thread that produces until ``stop``: ``rate`` page views a second, and a fiftieth as many users."""

    def __init__(self, bootstrap: str, rate: int = 50) -> None:
        self.rate = rate
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0})
        self._bootstrap = bootstrap
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo generator", daemon=True)

    def start(self) -> None:
        """Create the topics if they are missing, then begin."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})
        for done in admin.create_topics([NewTopic(t, 2, 1) for t in TOPICS]).values():
            try:
                done.result(30)
            except KafkaException as e:
                if e.args[0].name() != "TOPIC_ALREADY_EXISTS":
                    raise
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(5)
        self._producer.flush(5)

    def _run(self) -> None:
        rng = random.Random()  # noqa: S311
        begin = time.time()
        for n in itertools.count():
            now_ms = int(time.time() * 1000)
            self._send("pageviews", *pageview(rng, now_ms))
            if n % 50 == 0:
                self._send("users", *user(rng, now_ms))
            self._producer.poll(0)
            if self._stop.wait(max(0.0, begin + (n + 1) / self.rate - time.time())):
                return

    def _send(self, topic: str, key: str, record: dict[str, Any]) -> None:
        self._producer.produce(topic, json.dumps(record), key)
