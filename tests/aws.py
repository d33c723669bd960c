"""Kinesis and STS for tests: moto behind a door that checks signatures and fails when it is told to.

``serving()`` is a thread of this process, and inside ``ending()`` its shards end; ``resharding()`` is
``kinesis-local`` of npm, whose shards end as AWS's do when they are split or merged.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import io
import json
import os
import re
import shutil
import socket
import subprocess
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

import botocore.session
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from moto.kinesis.models import KinesisBackend, Shard, Stream
from moto.kinesis.utils import compose_shard_iterator, decompose_shard_iterator
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from tests.fanout import Subscriptions
from tests.server import within

KEY, SECRET, REGION = "AKIAPGSTREAM", "a+secret/of=tests", "us-east-1"
_SIGNED = re.compile(r"Credential=([^/]+)/\d+/([^/]+)/([^/]+)/aws4_request, ?SignedHeaders=([^,]+), ?Signature=(\w+)")
_RECORDS = ("PutRecord", "PutRecords", "GetRecords", "SplitShard", "MergeShards")

Application = Callable[[dict[str, Any], Any], Iterable[bytes]]


class Aws:
    """An endpoint and a client of it. ``faults``: the action's coming answers, code and message, in order."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.faults: dict[str, list[tuple[int, str, str]]] = {}
        self.partly = 0
        """How many coming calls of PutRecords take only every second record."""
        self.asked: list[str] = []
        self.signed: dict[str, set[str]] = {}
        """Access keys that asked for each action."""
        self.subscriptions = Subscriptions()
        self.sessions: dict[str, tuple[str, str]] = {}
        """Secret and token of the temporary keys that were given."""

    @property
    def options(self) -> dict[str, str]:
        """Of a store."""
        return {"uris": self.url, "kinesis.region": REGION, "kinesis.access_key_id": KEY,
                "kinesis.secret_access_key": SECRET}  # fmt: skip

    @property
    def ddl(self) -> str:
        """The same, in CREATE STORE."""
        return ", ".join(f"'{k}' = '{v}'" for k, v in self.options.items())

    @cached_property
    def client(self) -> Any:
        return botocore.session.Session().create_client(
            "kinesis", region_name=REGION, endpoint_url=self.url, aws_access_key_id=KEY, aws_secret_access_key=SECRET
        )

    def stream(self, name: str, shards: int = 1) -> None:
        client = self.client
        client.create_stream(StreamName=name, ShardCount=shards)
        within(10, lambda: self.status(name) == "ACTIVE")

    def consumer(self, stream: str, name: str) -> str:
        """Registers one, that may be subscribed; its ARN."""
        client = self.client
        of = client.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]["StreamARN"]
        arn = str(client.register_stream_consumer(StreamARN=of, ConsumerName=name)["Consumer"]["ConsumerARN"])

        def status() -> str:
            told = client.describe_stream_consumer(ConsumerARN=arn)["ConsumerDescription"]
            return str(told["ConsumerStatus"])

        within(10, lambda: status() == "ACTIVE")
        return arn

    def status(self, name: str) -> str:
        summary = self.client.describe_stream_summary(StreamName=name)["StreamDescriptionSummary"]
        return str(summary["StreamStatus"])

    def put(self, stream: str, records: Iterable[tuple[str, str | bytes]]) -> None:
        """Partition keys and data."""
        waiting = [{"PartitionKey": k, "Data": v} for k, v in records]
        client = self.client
        for i in range(0, len(waiting), 500):
            assert client.put_records(StreamName=stream, Records=waiting[i : i + 500])["FailedRecordCount"] == 0

    def split(self, stream: str, shard: dict[str, Any]) -> None:
        """In the middle."""
        low, high = (int(shard["HashKeyRange"][f"{end}HashKey"]) for end in ("Starting", "Ending"))
        self.client.split_shard(
            StreamName=stream, ShardToSplit=shard["ShardId"], NewStartingHashKey=str((low + high) // 2)
        )
        within(10, lambda: self.status(stream) == "ACTIVE")

    def merge(self, stream: str, one: str, other: str) -> None:
        """Two that are beside each other, the lower one first."""
        self.client.merge_shards(StreamName=stream, ShardToMerge=one, AdjacentShardToMerge=other)
        within(10, lambda: self.status(stream) == "ACTIVE")

    def records(self, stream: str) -> list[dict[str, Any]]:
        """All that the stream holds, shard by shard."""
        return list(self.following(stream, {}))

    def following(self, stream: str, read: dict[str, str]) -> Iterator[dict[str, Any]]:
        """What the stream holds after what was ``read``: the last sequence number by shard, which it moves."""
        client = self.client
        for shard in client.list_shards(StreamName=stream)["Shards"]:
            name = shard["ShardId"]
            where = {"ShardIteratorType": "TRIM_HORIZON"}
            if name in read:
                where = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": read[name]}
            iterator = client.get_shard_iterator(StreamName=stream, ShardId=name, **where)["ShardIterator"]
            while iterator:
                found = client.get_records(ShardIterator=iterator)
                for record in found["Records"]:
                    read[name] = record["SequenceNumber"]
                    yield record | {"ShardId": name}
                iterator = found.get("NextShardIterator") if found["Records"] else None


class _Door:
    """What AWS does before a service is asked: who is it, and may it. Signatures are computed again by botocore."""

    def __init__(self, aws: Aws, behind: Application) -> None:
        self.aws, self.behind = aws, behind
        self.records = threading.Lock()

    def __call__(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        if environ["PATH_INFO"].startswith("/moto-api"):
            return self.behind(environ, start)
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        action = environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2]
        self.aws.asked.append(action)
        if (signed := _SIGNED.search(environ.get("HTTP_AUTHORIZATION", ""))) is not None:
            self.aws.signed.setdefault(action, set()).add(signed[1])
        refused = self._refused(environ, body) or self._told(action)
        if refused is not None:
            status, code, message = refused
            start(f"{status} Refused", [("Content-Type", "application/x-amz-json-1.1")])
            return [json.dumps({"__type": code, "message": message}).encode()]
        # moto has no lock: of two records that come at once under one number, one would be lost.
        with self.records if action in _RECORDS else contextlib.nullcontext():
            return self._answer(environ | {"wsgi.input": io.BytesIO(body)}, start, body)

    def _told(self, action: str) -> tuple[int, str, str] | None:
        waiting = self.aws.faults.get(action)
        return waiting.pop(0) if waiting else None

    def _answer(self, environ: dict[str, Any], start: Any, body: bytes) -> Iterable[bytes]:
        if environ.get("HTTP_X_AMZ_TARGET", "").endswith(".PutRecords") and self.aws.partly:
            return self._partly(environ, start, body)
        if environ.get("HTTP_X_AMZ_TARGET", "").endswith(".SubscribeToShard"):
            return self.aws.subscriptions.answer(REGION, start, body)
        if b"Action=AssumeRole" not in body:
            return self.behind(environ, start)
        if b"ExternalId=tests" not in body:
            start("403 Refused", [("Content-Type", "text/xml")])
            return [b"<ErrorResponse><Error><Code>AccessDenied</Code><Message>No.</Message></Error></ErrorResponse>"]
        self.aws.asked[-1] = "AssumeRole"
        answer = b"".join(self.behind(environ, start))
        found = [re.search(rf"<{n}>([^<]+)<".encode(), answer) for n in _GIVEN]
        key, secret, token = (m[1].decode() for m in found if m is not None)
        self.aws.sessions[key] = (secret, token)
        return [answer]

    def _partly(self, environ: dict[str, Any], start: Any, body: bytes) -> Iterable[bytes]:
        self.aws.partly -= 1
        asked = json.loads(body)
        every, asked["Records"] = asked["Records"], asked["Records"][1::2]
        answers: list[dict[str, Any]] = []
        if asked["Records"]:
            less = json.dumps(asked).encode()
            within_it = environ | {"wsgi.input": io.BytesIO(less), "CONTENT_LENGTH": str(len(less))}
            answers = json.loads(b"".join(self.behind(within_it, lambda *_: None)))["Records"]
        busy = {"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "Rate exceeded."}
        told = [busy if i % 2 == 0 else answers[i // 2] for i in range(len(every))]
        start("200 OK", [("Content-Type", "application/x-amz-json-1.1")])
        return [json.dumps({"FailedRecordCount": told.count(busy), "Records": told}).encode()]

    def _refused(self, environ: dict[str, Any], body: bytes) -> tuple[int, str, str] | None:
        found = _SIGNED.search(environ.get("HTTP_AUTHORIZATION", ""))
        if found is None:
            return 403, "MissingAuthenticationTokenException", "Missing Authentication Token"
        key, region, service, signed, signature = found.groups()
        secret, token = self.aws.sessions.get(key, (SECRET if key == KEY else "", ""))
        if not secret or token != environ.get("HTTP_X_AMZ_SECURITY_TOKEN", ""):
            return 403, "UnrecognizedClientException", "The security token included in the request is invalid."
        auth = SigV4Auth(Credentials(key, secret, token or None), service, region)
        if self._signed(environ, body, auth, signed) != signature:
            return 403, "InvalidSignatureException", "The request signature we calculated does not match."
        return None

    @staticmethod
    def _signed(environ: dict[str, Any], body: bytes, auth: Any, signed: str) -> str:
        headers = {"host": environ["HTTP_HOST"]}
        for name in signed.split(";"):
            variable = name.upper().replace("-", "_")
            headers[name] = environ.get(f"HTTP_{variable}") or environ.get(variable) or ""
        request = AWSRequest("POST", f"http://{environ['HTTP_HOST']}{environ['PATH_INFO']}", headers, body)
        request.context["timestamp"] = headers["x-amz-date"]
        moment = dt.datetime.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ")
        assert abs((dt.datetime.now(dt.UTC).replace(tzinfo=None) - moment).total_seconds()) < 300
        return str(auth.signature(auth.string_to_sign(request, _canonical(request, signed)), request))


def _canonical(request: AWSRequest, signed: str) -> str:
    lines = "".join(f"{n}:{' '.join(request.headers[n].split())}\n" for n in signed.split(";"))
    return "\n".join(["POST", "/", "", lines, signed, hashlib.sha256(request.body or b"").hexdigest()])


_GIVEN = ("AccessKeyId", "SecretAccessKey", "SessionToken")


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def serving() -> Iterator[Aws]:
    """moto in a thread, on a free port."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    aws = Aws(f"http://127.0.0.1:{port}")
    door = _Door(aws, DomainDispatcherApplication(create_backend_app))
    server: BaseWSGIServer = make_server("127.0.0.1", port, door, threaded=True, request_handler=_Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield aws
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """Shards of ``serving()`` that are split or merged take no more records and end after those they have, as AWS's."""

    def kept(change: Callable[..., None]) -> Callable[..., None]:
        def changed(stream: Stream, *args: Any) -> None:
            parents = [stream.shards[a] for a in args if a in stream.shards]
            records = [p.records for p in parents]
            for parent in parents:
                parent.records = OrderedDict()
            change(stream, *args)
            for parent, had in zip(parents, records, strict=True):
                parent.records = had

        return changed

    def found(backend: Any, stream_arn: str | None, shard_iterator: str, limit: int | None) -> Any:
        # moto looks through all records for those after the last; their numbers are their places.
        name, shard, last = decompose_shard_iterator(shard_iterator)
        at = backend.describe_stream(stream_arn=stream_arn, stream_name=name).shards[shard]
        records = list(islice(at.records.values(), int(last), int(last) + (limit or 10_000)))
        read = int(last) + len(records)
        left = len(at.records) - read
        return compose_shard_iterator(name, at, read) if at.is_open or left else None, records, left

    def taking(stream: Stream, partition_key: str, explicit_hash_key: str) -> Shard:
        at = int(explicit_hash_key or hashlib.md5(partition_key.encode()).hexdigest(), 10 if explicit_hash_key else 16)
        return next(s for s in stream.shards.values() if s.is_open and s.starting_hash <= at <= s.ending_hash)

    with (
        mock.patch.object(Stream, "get_shard_for_key", taking),
        mock.patch.object(Stream, "split_shard", kept(Stream.split_shard)),
        mock.patch.object(Stream, "merge_shards", kept(Stream.merge_shards)),
        mock.patch.object(KinesisBackend, "get_records", found),
        mock.patch.object(Shard, "get_max_sequence_number", lambda shard: next(reversed(shard.records), 0)),
    ):
        yield


@contextlib.contextmanager
def resharding(folder: Path) -> Iterator[Aws]:
    """kinesis-local, whose shards end; skipped where there is no Node."""
    if shutil.which("npm") is None:
        pytest.skip("needs node and npm")
    home = folder / "kinesis-local"
    home.mkdir()
    install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "kinesis-local@0.6.2"]
    subprocess.run(install, cwd=home, check=True, capture_output=True)
    ports = []
    for _ in range(2):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            ports.append(s.getsockname()[1])
    env = os.environ | {"KINESIS_MOCK_PLAIN_PORT": str(ports[0]), "KINESIS_MOCK_TLS_PORT": str(ports[1]),
                        "LOG_LEVEL": "ERROR", "SHARD_LIMIT": "50", "CREATE_STREAM_DURATION": "10ms",
                        "SPLIT_SHARD_DURATION": "10ms", "MERGE_SHARDS_DURATION": "10ms",
                        "DELETE_STREAM_DURATION": "10ms", "UPDATE_SHARD_COUNT_DURATION": "10ms"}  # fmt: skip
    # It looks for its certificate in the folder that it runs in.
    process = subprocess.Popen(
        ["node", "main.js"], cwd=home / "node_modules" / "kinesis-local", env=env, stdout=subprocess.DEVNULL
    )
    aws = Aws(f"http://127.0.0.1:{ports[0]}")
    try:
        within(30, lambda: socket.create_connection(("127.0.0.1", ports[0]), 1).close() is None)
        yield aws
    finally:
        process.kill()
        process.wait()
