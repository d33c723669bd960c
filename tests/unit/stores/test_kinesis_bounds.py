"""An address that is called Kinesis and whose answers do not end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgstream.errors import StoreUnreachable
from pgstream.stores import aws
from pgstream.stores.kinesis.admin import KinesisAdmin
from tests.token_endpoint import Endpoint


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as found:
        yield found


@pytest.mark.parametrize(("manner", "said"), [("endless", "more than 1 MB"), ("slow", "does not end in time")])
async def test_an_endless_answer_is_left(
    endpoint: Endpoint, manner: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aws, "LARGEST", 1 << 20)
    if manner == "slow":
        monkeypatch.setattr(aws, "_ANSWER_S", 0.3)
    endpoint.manner = manner
    place = f"http://127.0.0.1:{endpoint.server_address[1]}"
    who = {"kinesis.region": "eu-west-3", "kinesis.access_key_id": "A", "kinesis.secret_access_key": "hush-hush"}
    admin = KinesisAdmin("s", {"uris": place} | who)
    with pytest.raises(StoreUnreachable, match=said):
        await admin.check()
    await admin.close()


async def test_an_answer_is_read(endpoint: Endpoint) -> None:
    endpoint.answers(200, {"StreamNames": ["a"], "HasMoreStreams": False})
    place = f"http://127.0.0.1:{endpoint.server_address[1]}"
    who = {"kinesis.region": "eu-west-3", "kinesis.access_key_id": "A", "kinesis.secret_access_key": "hush-hush"}
    admin = KinesisAdmin("s", {"uris": place} | who)
    assert [e.name for e in await admin.list_entities()] == ["a"]
    await admin.close()
