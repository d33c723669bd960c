"""Writers of transactions, as sinks are, until they are killed; arguments: HOST:PORT TOPIC NAME…

Each writes a record into both partitions of the topic and the transaction's number as its group's offset, and
prints its name and the number once it has the broker's answer.
"""

from __future__ import annotations

import itertools
import sys
import threading

from confluent_kafka import Consumer, Producer, TopicPartition


def producer(bootstrap: str, name: str) -> Producer:
    """A producer of that name, alone; what another has left open is settled."""
    p = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0})
    p.init_transactions(60)
    return p


def write(bootstrap: str, topic: str, name: str) -> None:
    p = producer(bootstrap, name)
    group = Consumer({"bootstrap.servers": bootstrap, "group.id": name}).consumer_group_metadata()
    for number in itertools.count():
        p.begin_transaction()
        for partition in range(2):
            p.produce(topic, f"{name} {number}".encode(), partition=partition)
        p.send_offsets_to_transaction([TopicPartition(topic, 0, number)], group, 60)
        p.commit_transaction(60)
        print(f"{name} {number}\n", end="", flush=True)


if __name__ == "__main__":
    for writer in sys.argv[3:]:
        threading.Thread(target=write, args=(sys.argv[1], sys.argv[2], writer)).start()
