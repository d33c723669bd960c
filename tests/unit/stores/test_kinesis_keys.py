"""Keys of Kinesis' queries: renewed while a query has them, forgotten afterwards."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pgstream.stores.aws import Identity
from pgstream.stores.kinesis import spark
from pgstream.stores.kinesis.client import Connection


class Kernel:
    """What stands for ``AwsKeys`` of the JVM."""

    def __init__(self) -> None:
        self.current: dict[str, tuple[str, str, str]] = {}
        self.running: set[str] = set()

    def renew(self, who: str, *keys: str) -> None:
        self.current[who] = cast(tuple[str, str, str], keys)

    def used(self, who: str) -> bool:
        return who in self.running

    def forget(self, who: str) -> None:
        del self.current[who]


class Credentials:
    """Those of a role: others each time."""

    given = 0

    def get_frozen_credentials(self) -> Any:
        self.given += 1
        return SimpleNamespace(access_key=f"AKIA{self.given}", secret_key="s", token="t")


def test_keys_are_renewed_while_a_query_has_them_and_forgotten_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark.aws, "session", lambda who: SimpleNamespace(get_credentials=Credentials))
    monkeypatch.setattr(spark.Keys, "_renew", lambda *_: None)
    kernel = Kernel()
    jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(spark=SimpleNamespace(
        sql=SimpleNamespace(pgstream=SimpleNamespace(AwsKeys=kernel))))))  # fmt: skip
    session = cast(Any, SimpleNamespace(_jvm=jvm))
    keys = spark.Keys()
    one = Connection(Identity("us-east-1", role="arn:aws:iam::123456789012:role/one"))
    other = Connection(Identity("us-east-1", role="arn:aws:iam::123456789012:role/other"))
    who, first = keys.of(session, "s", one)
    assert keys.of(session, "s", one)[0] == who and keys.of(session, "s", other)[0] != who
    kernel.running.add(who)
    for _ in range(10):
        assert keys.round(session)
    assert kernel.current.keys() == {who}, "what no query has is forgotten, and only that"
    assert kernel.current[who][0] != first["id"], "renewed"
    kernel.running.clear()
    assert keys.round(session), "a query may start again in a moment"
    while keys.round(session):
        pass
    assert kernel.current == {}
    assert keys.of(session, "s", one)[0] != who, "made again when it is wanted again"
