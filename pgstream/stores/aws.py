"""What stores of AWS have in common: the values of their options, and who one is to AWS.

Owns: regions, names of roles, endpoints; a session of botocore from keys, a profile or a role. Secrets never show.
Must not know: any service. Start reading at ``Identity`` and ``session``.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from pgstream.errors import InvalidOption, NotInstalled

LARGEST, _ANSWER_S = 64 << 20, 9.0
"""Bytes of an answer, and how long its body may take. Records are asked for by some 10 MB."""
_ROLE = re.compile(r"\Aarn:aws[\w-]*:iam::\d{12}:role/[\w+=,.@/-]+\Z", re.A)
_REGION = re.compile(r"\A[a-z]{2}[a-z0-9-]{3,30}\Z")
_HOST_OF_REGION = re.compile(r"\.([a-z]{2}(?:-[a-z]+)+-\d)(?:\.vpce)?\.(?:amazonaws\.com|api\.aws)")
_PROFILE = re.compile(r"\Apgstream-[\w.-]+\Z", re.A)


def role_arn(text: str) -> str:
    """The Amazon resource name of an IAM role."""
    if not _ROLE.match(text.strip()):
        raise ValueError("it is not the ARN of an IAM role")
    return text.strip()


def region(text: str) -> str:
    """An AWS region."""
    if not _REGION.match(text.strip()):
        raise ValueError("it is not an AWS region")
    return text.strip()


def account(text: str) -> str:
    """The number of an AWS account."""
    if not re.match(r"\A\d{12}\Z", text.strip(), re.A):
        raise ValueError("it is not the twelve digits of an AWS account")
    return text.strip()


def endpoint(text: str) -> str:
    """An address of the web, without credentials or a path in it; https unless it says otherwise."""
    said = text.strip() if "://" in text else f"https://{text.strip()}"
    try:
        there = urlsplit(said)
        known = there.scheme in ("http", "https") and there.hostname and "@" not in there.netloc and (there.port or 1)
    except ValueError:
        known = False
    if not known or there.path.strip("/") or there.query or there.fragment:
        raise ValueError("it is not http://host:port or https://host:port")
    return f"{there.scheme}://{there.netloc}"


def region_of(address: str) -> str | None:
    """The region that AWS's own host names carry."""
    found = _HOST_OF_REGION.search(address)
    return found[1] if found else None


def profile(text: str) -> str:
    """A profile that the server's administrator has made for stores."""
    if not _PROFILE.match(text.strip()):
        raise ValueError("the profiles that stores may use have names that begin with pgstream-")
    return text.strip()


@dataclass(frozen=True, slots=True)
class Identity:
    """Who one is to AWS. Keys or a profile, or neither: then the server's own identity, which only takes a role."""

    region: str
    key: str = ""
    secret: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    profile: str = ""
    role: str = ""
    external_id: str = field(default="", repr=False)
    sts: str = ""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no text may show, wherever it comes from."""
        return tuple(s for s in (self.secret, self.token, self.external_id) if s)


def session(who: Identity) -> Any:
    """A session of botocore with the credentials; those of a role are fetched when they are first used, and renewed.

    Errors: NotInstalled; InvalidOption for a profile that is not there.
    """
    try:
        from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
        from botocore.exceptions import ProfileNotFound
        from botocore.session import Session
    except ModuleNotFoundError as e:
        raise NotInstalled(name="kinesis", detail=f"Python module {e.name} is missing.") from e
    made = Session(profile=who.profile or None)
    if who.key:
        made.set_credentials(who.key, who.secret, who.token or None)
    try:
        base = made.get_credentials()
    except ProfileNotFound:
        raise InvalidOption(
            what=f'the server\'s AWS configuration has no profile "{who.profile}"',
            hint="The server's administrator adds profiles to its AWS configuration file.",
        ) from None
    if base is None:
        raise InvalidOption(
            what="the server has no AWS credentials of its own",
            hint="Give 'kinesis.access_key_id' and 'kinesis.secret_access_key', or 'kinesis.profile'.",
        )
    if who.role:
        more = {"RoleSessionName": "pgstream"} | ({"ExternalId": who.external_id} if who.external_id else {})
        fetcher = AssumeRoleCredentialFetcher(_sts(made, who), base, who.role, extra_args=more, cache={})
        # botocore takes such credentials from a profile only; this is where it keeps them.
        made._credentials = DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")
    return made


def _sts(made: Any, who: Identity) -> Any:
    def create(service: str, **credentials: Any) -> Any:
        return bounded(
            made.create_client(
                service, region_name=who.region, endpoint_url=who.sts or None, config=settings(), **credentials
            )
        )

    return create


def bounded(client: Any) -> Any:
    """A client of botocore that reads no more of an answer than a service sends, and not for ever: it reads all that
    comes into memory, on a thread that nothing ends.
    """
    http = client._endpoint.http_session
    for scheme, pool in http._pool_classes_by_scheme.items():
        timed = type("Timed", (_Timed, pool.ConnectionCls), {})
        http._pool_classes_by_scheme[scheme] = type("Pool", (pool,), {"ConnectionCls": timed})
    client._endpoint.http_session = _Bounded(http)
    return client


class _Timed:
    """A connection of botocore's on which the head of an answer comes in time: its client waits for each byte anew."""

    sock: socket.socket

    def getresponse(self, *given: Any, **named: Any) -> Any:
        end = threading.Timer(_ANSWER_S, _shut, (self.sock,))
        end.daemon = True
        end.start()
        try:
            return super().getresponse(*given, **named)  # type: ignore[misc]
        finally:
            end.cancel()


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # beneath TLS; wakes who reads


class _Bounded:
    """botocore's session of HTTP; bodies that it would read it reads itself."""

    def __init__(self, http: Any) -> None:
        self._http = http
        self.close = http.close

    def send(self, request: Any) -> Any:
        if request.stream_output:
            return self._http.send(request)
        from botocore.exceptions import HTTPClientError

        request.stream_output = True
        answer, end, body = self._http.send(request), time.monotonic() + _ANSWER_S, b""
        try:
            read = getattr(answer.raw, "read1", answer.raw.read)  # older ones gather as much as was asked for
            while part := read(1 << 16):
                body += part
                if len(body) > LARGEST:
                    raise HTTPClientError(error=f"an answer of more than {LARGEST >> 20} MB")
                if time.monotonic() > end:
                    raise HTTPClientError(error="an answer that does not end in time")
        except HTTPClientError:
            answer.raw.close()
            raise
        except Exception as e:  # as botocore does with what urllib3 raises there
            raise HTTPClientError(error=type(e).__name__) from e
        answer._content = body
        return answer


def settings() -> Any:
    """How clients behave: what is throttled is tried again, and nothing waits longer than a statement may."""
    from botocore.config import Config

    return Config(
        connect_timeout=2.5, read_timeout=4, retries={"mode": "standard", "total_max_attempts": 3},
        ignore_configured_endpoint_urls=True, user_agent_extra="pgstream",
    )  # fmt: skip
