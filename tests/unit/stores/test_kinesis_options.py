"""Kinesis' options: validation, who one is to AWS, and what the kernel is told."""

from __future__ import annotations

import pytest

from pgstream.errors import InvalidOption, MissingOption, PgStreamError
from pgstream.sql.cursor import Cursor
from pgstream.stores.kinesis import STORE
from pgstream.stores.kinesis.client import connection
from pgstream.stores.kinesis.troubles import trouble
from pgstream.stores.spec import OptionTable

KEYS = "'kinesis.access_key_id' = 'AKIA', 'kinesis.secret_access_key' = 's3cret'"


def checked(text: str, table: OptionTable = STORE.options) -> dict[str, str]:
    return table.check(Cursor(f"({text})").properties())


def test_aws_own_endpoint_names_the_region() -> None:
    c = connection(checked(f"'uris' = 'kinesis.eu-west-1.amazonaws.com', {KEYS}"))
    assert (c.endpoint, c.who.region) == ("https://kinesis.eu-west-1.amazonaws.com", "eu-west-1")
    c = connection(checked(f"'uris' = 'https://abc-kinesis.us-gov-west-1.vpce.amazonaws.com:443', {KEYS}"))
    assert c.who.region == "us-gov-west-1"
    assert connection(checked(f"'aws.region' = 'us-east-2', {KEYS}")).place == "Kinesis in us-east-2"
    with pytest.raises(MissingOption, match=r"kinesis\.region"):
        connection(checked(f"'uris' = 'http://localhost:4567', {KEYS}"))


def test_no_secret_shows() -> None:
    c = connection(
        checked(f"'kinesis.region' = 'us-east-1', {KEYS}, 'kinesis.session_token' = t0ken, 'aws.iam_external_id' = ext")
    )
    assert not any(s in repr(c) for s in ("s3cret", "t0ken", "ext'"))
    assert {"kinesis.secret_access_key", "kinesis.session_token", "kinesis.iam_external_id"} == STORE.options.hidden(
        ["kinesis.secret_access_key", "kinesis.session_token", "kinesis.iam_external_id", "kinesis.access_key_id"]
    )


@pytest.mark.parametrize(
    "text",
    [
        "'uris' = 'https://user:word@host'", "'uris' = 'https://host/path'", "'uris' = 'ftp://host'",
        "'kinesis.region' = 'US EAST'", "'kinesis.iam_role_arn' = 'arn:aws:iam::1:role/x'",
        "'kinesis.profile' = 'default'", "'kinesis.account.id' = '12'", "'kinesis.shards' = '1'",
    ],
)  # fmt: skip
def test_values_that_are_none(text: str) -> None:
    with pytest.raises(InvalidOption) as e:
        checked(text)
    assert e.value.at is not None


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("TRIM_HORIZON", "earliest"), ("latest", "latest"), ("at_timestamp:1700000000000", "timestamp:1700000000000"),
        ("timestamp:2023-11-14T22:13:20Z", "timestamp:1700000000000"),
    ],
)  # fmt: skip
def test_positions(text: str, spelled: str) -> None:
    assert checked(f"'starting.position' = '{text}'", STORE.source_options) == {"starting.position": spelled}


def test_positions_of_other_systems_are_refused() -> None:
    with pytest.raises(PgStreamError, match="it is not earliest, latest or timestamp:<time>"):
        checked("'starting.position' = 'offset:0:1'", STORE.source_options)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ExpiredTokenException", "refused"), ("AccessDeniedException", "refused"), ("Unreachable", "store"),
        ("ResourceNotFoundException", "store"), ("ValidationException", "user"), ("InternalFailure", "store"),
        ("ConsumerNotFoundException", "user"),
    ],
)  # fmt: skip
def test_what_exceptions_of_the_kernel_mean(code: str, kind: str) -> None:
    told = trouble({"class": "org.apache.spark.sql.pgstream.AwsException", "message": f"{code}: Why."}, "k", "")
    assert told is not None and told.kind == kind
    assert trouble({"class": "java.io.IOException", "message": "x"}, "k", "") is None
