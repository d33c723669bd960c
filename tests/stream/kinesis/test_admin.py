"""Kinesis without Spark: what every store type promises, and what is Kinesis' own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from pgstream import stores
from pgstream.errors import (
    DuplicateObject,
    InsufficientPrivilege,
    InvalidOption,
    NotSupported,
    PgStreamError,
    StoreUnreachable,
    UndefinedEntity,
)
from pgstream.stores.kinesis import STORE
from pgstream.stores.spec import Admin, NewRecord, Record
from tests.aws import KEY, SECRET, Aws
from tests.compliance import Compliance, Place

ROLE = "arn:aws:iam::123456789012:role/streams"


class TestKinesis(Compliance):
    @pytest.fixture
    def place(self, aws: Aws) -> Place:
        away = aws.options | {"uris": "http://127.0.0.1:1"}
        return Place(STORE, aws.options, away, "kin_promises", {"kinesis.shards": "2"})


@pytest.fixture
async def admin(aws: Aws) -> AsyncIterator[Admin]:
    opened = stores.open_admin(STORE, "kin", aws.options)
    yield opened
    await opened.close()


async def first(admin: Admin, entity: str, count: int) -> list[Record]:
    out: list[Record] = []
    async with aclosing(admin.read(entity, from_beginning=True)) as records:  # type: ignore[type-var]
        async for record in records:
            out.append(record)
            if len(out) == count:
                break
    return out


async def refused(options: dict[str, str]) -> PgStreamError:
    with pytest.raises(PgStreamError) as e:
        admin = stores.open_admin(STORE, "kin", options)
        try:
            await admin.check()
        finally:
            await admin.close()
    said = f"{e.value.text} {e.value.detail} {e.value.hint}"
    assert not any(secret in said for secret in (SECRET, "not-the-secret")), said
    return e.value


async def test_shards_and_retention_change(admin: Admin) -> None:
    await admin.create("kin_shards", {"kinesis.shards": "1", "kinesis.retention.hours": "48"})
    found = await admin.describe("kin_shards")
    assert (found.partitions, found.configs["retention.hours"], found.configs["status"]) == (1, "48", "ACTIVE")
    await admin.update("kin_shards", {"kinesis.shards": "2"}, frozenset({"kinesis.retention.hours"}))
    found = await admin.describe("kin_shards")
    assert (found.partitions, found.configs["retention.hours"]) == (2, "24")
    await admin.drop("kin_shards")


async def test_a_record_is_a_partition_key_and_data(admin: Admin) -> None:
    await admin.create("kin_record", {})
    await admin.insert("kin_record", [NewRecord(b'{"a": 1}', "schlüssel".encode())])
    record = (await first(admin, "kin_record", 1))[0]
    assert (record.key, record.value, record.headers) == ("schlüssel".encode(), b'{"a": 1}', ())
    assert record.position.startswith("shardId-000000000000:") and record.timestamp_ms
    for more in (
        NewRecord(None),
        NewRecord(b"", partition=0),
        NewRecord(b"", timestamp_ms=1),
        NewRecord(b"", headers=[("a", b"b")]),
    ):
        with pytest.raises(NotSupported):
            await admin.insert("kin_record", [more])
    for key in (b"\xff", b"x" * 257, b""):
        with pytest.raises(InvalidOption):
            await admin.insert("kin_record", [NewRecord(b"{}", key)])


async def test_print_goes_on_with_the_shards_that_follow(splitting: Aws) -> None:
    splitting.stream("kin_print", 1)
    splitting.put("kin_print", [(f"k{i}", f"{i}") for i in range(10)])
    shard = splitting.client.list_shards(StreamName="kin_print")["Shards"][0]
    splitting.split("kin_print", shard)
    splitting.put("kin_print", [(f"k{i}", f"{i}") for i in range(10, 20)])
    admin = stores.open_admin(STORE, "kin", splitting.options)
    found = await first(admin, "kin_print", 20)
    await admin.close()
    assert sorted(int(r.value or b"") for r in found) == list(range(20))
    assert [int(r.value or b"") for r in found[:10]] == list(range(10)), "a shard's before those of its children"
    assert len({r.position.split(":")[0] for r in found}) == 3


async def test_wrong_credentials_are_named(aws: Aws, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    e = await refused(aws.options | {"kinesis.secret_access_key": "not-the-secret"})
    assert isinstance(e, StoreUnreachable) and "'kinesis.secret_access_key'" in (e.hint or "")
    e = await refused(aws.options | {"kinesis.access_key_id": "AKIANOBODY"})
    assert "refuses the credentials" in e.text and "'kinesis.access_key_id'" in (e.hint or "")
    e = await refused(aws.options | {"kinesis.account.id": "999999999999"} | await _one_stream(aws))
    assert e.text == 'store "kin" is of AWS account 123456789012, not 999999999999'
    keyless = {k: v for k, v in aws.options.items() if "key" not in k}
    assert (await refused(keyless)).text == 'parameter "kinesis.access_key_id" is required'
    half = {k: v for k, v in aws.options.items() if "secret" not in k}
    assert (await refused(half)).text == 'parameter "kinesis.secret_access_key" is required'
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    e = await refused(keyless | {"kinesis.profile": "pgstream-none"})
    assert e.text == 'the server\'s AWS configuration has no profile "pgstream-none"'


async def _one_stream(aws: Aws) -> dict[str, str]:
    if not aws.client.list_streams()["StreamNames"]:
        aws.stream("kin_one")
    return {}


async def test_a_profile_and_a_role(aws: Aws, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(
        f"[profile pgstream-tests]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    keyless = {k: v for k, v in aws.options.items() if "key" not in k}
    role = {"kinesis.iam_role_arn": ROLE, "kinesis.iam_external_id": "tests", "kinesis.sts.uris": aws.url}
    for options in (keyless | {"kinesis.profile": "pgstream-tests"}, aws.options | role,
                    keyless | role | {"kinesis.profile": "pgstream-tests"}):  # fmt: skip
        admin = stores.open_admin(STORE, "kin", options)
        await admin.check()
        await admin.close()
    assert aws.asked.count("AssumeRole") == 2 and len(aws.sessions) == 2
    e = await refused(aws.options | role | {"kinesis.iam_external_id": "another"})
    assert "external id" in (e.hint or "")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("AccessDeniedException", InsufficientPrivilege),
        ("InvalidArgumentException", InvalidOption),
        ("ResourceNotFoundException", UndefinedEntity),
        ("ResourceInUseException", DuplicateObject),
        ("ExpiredTokenException", StoreUnreachable),
    ],
)
async def test_what_the_service_refuses(admin: Admin, aws: Aws, code: str, kind: type[PgStreamError]) -> None:
    aws.faults["CreateStream"] = [(400, code, "No.")]
    with pytest.raises(kind):
        await admin.create("kin_refused", {})


async def test_what_is_throttled_is_tried_again(admin: Admin, aws: Aws) -> None:
    busy = (400, "ProvisionedThroughputExceededException", "Rate exceeded.")
    aws.faults["ListStreams"] = [busy, busy]
    await admin.list_entities()
    aws.faults["ListStreams"] = [busy] * 3
    with pytest.raises(StoreUnreachable, match="is asked too often"):
        await admin.list_entities()
