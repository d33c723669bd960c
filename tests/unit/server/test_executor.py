"""A statement is run again, once, when what it went by has just been replaced."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pgstream.errors import Superseded
from pgstream.server.executor import Here


class Asks:
    """A statement that is too late ``times`` times; what it needed, and what it did."""

    def __init__(self, times: int) -> None:
        self.times, self.done = times, list[str]()

    def needs(self, ctx: Any) -> list[Any]:
        self.done.append("checked")
        return []

    async def execute(self, ctx: Any) -> Any:
        self.done.append("executed")
        if self.done.count("executed") <= self.times:
            raise Superseded(what='materialized view "v" has another query')
        return "result"


@pytest.fixture
def context() -> Any:
    access = SimpleNamespace(usable=lambda user: {"sysadmin"}, user_of=lambda user: user)
    session = SimpleNamespace(user="ann", role="sysadmin")
    return SimpleNamespace(catalog=SimpleNamespace(snapshot=SimpleNamespace(access=access)), session=session)


async def test_once_more_by_what_there_is_by_then(context: Any) -> None:
    statement: Any = Asks(1)
    assert await Here().execute("…", statement, context) == "result"
    assert statement.done == ["checked", "executed"] * 2


async def test_not_for_ever(context: Any) -> None:
    statement: Any = Asks(2)
    with pytest.raises(Superseded) as e:
        await Here().execute("…", statement, context)
    assert str(e.value).startswith('materialized view "v" has another query by now') and e.value.hint
