"""Which organization a start-up packet asks for, and what sessions of several have in common."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from pgstream.catalog.records import FIRST_ORGANIZATION, DatabaseRecord, Snapshot
from pgstream.config import Config
from pgstream.server.listener import Listener


class Session:
    def __init__(self, listener: Listener) -> None:
        self.listener, self.canceled = listener, 0
        self.runner = SimpleNamespace(cancel=self.cancel)

    def runs_own(self, pid: int, user: str) -> bool:
        return True

    def cancel(self) -> None:
        self.canceled += 1


def two() -> tuple[Listener, Listener]:
    first = Listener(Config())
    acme = first.annex(Config())
    record = replace(FIRST_ORGANIZATION, name="acme", id="1")
    databases = {name: DatabaseRecord(name, "sysadmin") for name in ("main", "a/b", "acme/main")}
    defaults = {("ann", FIRST_ORGANIZATION.id): {"organization": "1"}}
    first.catalog = SimpleNamespace(snapshot=Snapshot(databases=databases, defaults=defaults))  # type: ignore[assignment]
    acme.catalog = SimpleNamespace(snapshot=Snapshot(objects={record.key: record}))  # type: ignore[assignment]
    first.organizations._more["acme"] = SimpleNamespace(listener=acme)  # type: ignore[assignment]
    return first, acme


@pytest.mark.parametrize(
    ("database", "user", "where", "prefix", "inner"),
    [
        ("main", "bob", "first", "", "main"), ("", "bob", "first", "", ""), ("main", "ann", "acme", "acme/", "main"),
        ("acme/main", "bob", "acme", "acme/", "main"), ("acme/", "bob", "acme", "acme/", ""),
        ("acme/x/y", "bob", "acme", "acme/", "x/y"), ("default/main", "ann", "first", "", "main"),
        # A database of the first one cannot stand in the way of an organization.
        ("a/b", "ann", "first", "", "a/b"), ("default/acme/main", "bob", "first", "", "acme/main"),
        ("nowhere/main", "bob", None, "nowhere/", "main"), ("/", "bob", None, "/", ""),
    ],
)  # fmt: skip
def test_the_place_that_is_asked_for(database: str, user: str, where: str | None, prefix: str, inner: str) -> None:
    first, acme = two()
    found = first.organizations.place(database, user)
    assert (found.listener, found.prefix, found.database) == ({"first": first, "acme": acme, None: None}[where], prefix,
                                                              inner)  # fmt: skip


def test_the_same_user_in_another_organization_cannot_cancel() -> None:
    first, acme = two()
    session: Any = Session(acme)
    first.admitted.add(session)
    assert not first.cancel_own_here(1, "ann") and not session.canceled
    assert acme.cancel_own_here(1, "ann") and session.canceled == 1
