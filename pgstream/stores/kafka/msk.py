"""Tokens for Amazon MSK, signed by AWS's own library: a request of IAM's that lets its bearer connect for 15 minutes.

Owns: the callback that librdkafka asks for a token. In the worker ``MskLogin.scala`` does the same by AWS's library
for Java. The server's identity is whatever AWS's libraries find: environment, profile, instance or pod.
Must not know: confluent-kafka. Start reading at ``Signer``.
"""

from __future__ import annotations

import time

from pgstream.errors import NotInstalled

_REST_S = 120


class CannotSign(Exception):
    """The role cannot be taken; the text is the end of a sentence."""


class Signer:
    """Called with the client's configuration: a token and the second at which it ends. One token serves all clients."""

    def __init__(self, role: str, region: str) -> None:
        """NotInstalled when AWS's library is not there."""
        try:
            import aws_msk_iam_sasl_signer  # noqa: F401
        except ModuleNotFoundError as e:
            raise NotInstalled(name="msk", detail=f"Python module {e.name} is missing.") from e
        self._role, self._region = role, region
        self._made: tuple[str, float] = ("", 0.0)

    def __call__(self, _configuration: str = "") -> tuple[str, float]:
        """CannotSign says why not."""
        if self._made[1] < time.time() + _REST_S:
            self._made = self._sign()
        return self._made

    def _sign(self) -> tuple[str, float]:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
        from botocore.credentials import CredentialProvider, Credentials
        from botocore.exceptions import BotoCoreError, ClientError

        taken = self._take_role

        class Role(CredentialProvider):  # type: ignore[misc]
            """The library's own way asks the STS of the process's region, which there may be none of."""

            def load(self) -> Credentials:
                found = taken()
                return Credentials(found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"])

        try:
            made, until_ms = MSKAuthTokenProvider.generate_auth_token_from_credentials_provider(self._region, Role())
        except (BotoCoreError, ClientError) as e:
            raise CannotSign(f"could not take role {self._role}: {str(e).rstrip('.')}") from None
        return made, until_ms / 1000

    def _take_role(self) -> dict[str, str]:
        import botocore.session
        from botocore.config import Config

        # Its own patience is five minutes; an error is wanted within ten seconds.
        patience = Config(connect_timeout=3, read_timeout=4, retries={"total_max_attempts": 1})
        sts = botocore.session.get_session().create_client("sts", region_name=self._region, config=patience)
        found: dict[str, str] = sts.assume_role(RoleArn=self._role, RoleSessionName="pgstream")["Credentials"]
        return found
