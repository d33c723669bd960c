"""A store's options as a connection to Kinesis, and botocore's client of it (``admin.py``).

Owns: which options say who one is and where the service is, and what must be given together.
Must not know: what is asked of the service. Start reading at ``connection``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pgstream.errors import InvalidOption, MissingOption
from pgstream.stores import aws

_KEY, _SECRET = "kinesis.access_key_id", "kinesis.secret_access_key"


@dataclass(frozen=True, slots=True)
class Connection:
    """Where the service is, and who asks. ``endpoint`` is empty for AWS's own of the region."""

    who: aws.Identity
    endpoint: str = ""
    account: str = ""

    @property
    def place(self) -> str:
        """For a person."""
        return self.endpoint or f"Kinesis in {self.who.region}"


def connection(options: Mapping[str, str]) -> Connection:
    """Read checked options. MissingOption and InvalidOption for what does not go together."""
    endpoint = options.get("uris", "")
    region = options.get("kinesis.region") or aws.region_of(endpoint)
    if not region:
        raise MissingOption(name="kinesis.region", hint="Give it, or AWS's own endpoint, which names it, in 'uris'.")
    key, secret = options.get(_KEY, ""), options.get(_SECRET, "")
    if bool(key) != bool(secret):
        raise MissingOption(name=_SECRET if key else _KEY, hint="An access key is its id and its secret together.")
    profile, role = options.get("kinesis.profile", ""), options.get("kinesis.iam_role_arn", "")
    if key and profile:
        raise InvalidOption(what='parameters "kinesis.profile" and "kinesis.access_key_id" exclude each other')
    if not (key or profile or role):
        raise MissingOption(
            name=_KEY, hint="Give an access key, 'kinesis.profile', or 'kinesis.iam_role_arn' for the server to take."
        )
    who = aws.Identity(
        region, key, secret, options.get("kinesis.session_token", ""), profile, role,
        options.get("kinesis.iam_external_id", ""), options.get("kinesis.sts.uris", ""),
    )  # fmt: skip
    return Connection(who, endpoint, options.get("kinesis.account.id", ""))


def client(c: Connection) -> Any:
    """botocore's client. It blocks. Errors as ``aws.session``."""
    made = aws.session(c.who).create_client(
        "kinesis", region_name=c.who.region, endpoint_url=c.endpoint or None, config=aws.settings()
    )
    return aws.bounded(made)
