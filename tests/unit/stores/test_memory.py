"""The how-to, followed: a toy type found by its entry point, which keeps what every type promises."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from pgstream import stores
from pgstream.errors import InvalidOption, NotInstalled, NotYet
from pgstream.stores.spec import Can
from tests.compliance import Compliance, Place
from tests.unit.stores.memory import STORE


class TestMemory(Compliance):
    @pytest.fixture
    def place(self) -> Place:
        return Place(STORE, {"place": "here"}, {"place": "nowhere"}, "things", {"memory.cells": "3"})


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a package with this entry point were installed."""
    found = [EntryPoint("memory", "tests.unit.stores.memory:STORE", "pgstream.stores")]
    monkeypatch.setattr(stores, "entry_points", lambda group: found if group == "pgstream.stores" else [])


def test_a_type_of_a_third_party_is_found_by_its_entry_point(installed: None) -> None:
    assert stores.find("MEMORY") is STORE
    assert "MEMORY" in stores.names()


def test_what_it_cannot_do_yet_is_refused_with_its_sentence(installed: None) -> None:
    with pytest.raises(NotYet) as e:
        stores.find("memory").require(Can.STREAM, 7)
    assert (e.value.detail, e.value.at) == ("It is a toy.", 7)


def test_without_the_package_it_is_unknown() -> None:
    with pytest.raises(InvalidOption):
        stores.find("memory")


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(stores.REGISTRY, "odd", "no_such_library_of_a_store")
    with pytest.raises(NotInstalled) as e:
        stores.find("odd")
    assert e.value.hint == 'pip install "pgstream[odd]"'
