"""The demo's script and its picture of the view, without anything running."""

from __future__ import annotations

import random
import re
import socket
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from pgstream import demo
from pgstream.config import Config
from pgstream.demo.live import look, picture
from pgstream.demo.script import answer, statements, table, without_kinesis
from pgstream.demo.stores import _TABLE, business
from pgstream.errors import ConfigurationError


def test_every_statement_of_the_script_is_whole() -> None:
    pieces = statements({"bootstrap": "127.0.0.1:9092"})
    assert [sql.split()[0] for _, sql in pieces].count("CREATE") == 6
    assert all(sql and ";" not in sql for _, sql in pieces)
    assert any("127.0.0.1:9092" in sql for _, sql in pieces)


def test_what_all_stores_add() -> None:
    values = {"shop": "postgresql://127.0.0.1:1/postgres", "password": "p", "kinesis": "http://127.0.0.1:2"}
    pieces = statements(values, "stores.sql")
    assert all(sql and ";" not in sql and "$" not in sql for _, sql in pieces)
    assert any(values["kinesis"] in sql for _, sql in pieces)
    assert not any("kinesis" in sql.lower() for _, sql in without_kinesis(pieces))
    assert {business(random.Random(i))[0].split()[0] for i in range(20)} == {"INSERT", "UPDATE", "DELETE"}


def test_the_shop_means_one_table_whatever_schemas_there_are() -> None:
    for sql in (_TABLE, *(business(random.Random(i))[0] for i in range(20))):
        named = re.findall(r"[\w.]*\borders\b", sql)
        assert named and set(named) == {"public.orders"}


def test_table_looks_like_psql() -> None:
    assert table(["Name", "Is Leaf"], [("pageviews", True)]) == (
        " Name      | Is Leaf\n-----------+---------\n pageviews | t"
    )
    assert answer(["Type", "Summary"], [("store", "done")]) == " done"


def test_picture_shows_two_windows_and_a_bar_of_the_newest() -> None:
    def at(second: int) -> datetime:
        return datetime(2026, 1, 1, 12, 0, second)

    rows = [(at(0), "Page_9", 7), (at(10), "Page_1", 40), (at(20), "Page_1", 20), (at(20), "Page_2", 10)]
    lines = picture(rows, views=70, joined=3)
    assert lines[0].startswith(" views_per_10s: 70 page views counted")
    shown = [line for line in lines if line.startswith(" Page_")]
    assert [line.split()[0] for line in shown] == ["Page_1", "Page_2"]
    assert "40" in shown[0] and shown[0].count("█") == 20 and shown[1].count("█") == 10


def test_picture_of_views_of_no_page() -> None:
    window = datetime(2026, 1, 1, 12)
    lines = picture([(window, None, 5), (window, "Page_2", 5), (window, "Page_1", 9)], views=19, joined=0)
    assert [line.split()[0] for line in lines if "█" in line] == ["Page_1", "Page_2", "(null)"]


def test_picture_of_an_empty_view() -> None:
    assert picture([], views=0, joined=0)


async def test_a_view_that_was_dropped_is_a_line_and_a_lost_server_an_error() -> None:
    class Connection:
        def __init__(self, error: psycopg.Error) -> None:
            self.error = error

        async def execute(self, _sql: str) -> None:
            raise self.error

    (line,) = await look(cast(Any, Connection(psycopg.errors.UndefinedTable())))
    assert "Ctrl-C" in line
    with pytest.raises(psycopg.OperationalError):
        await look(cast(Any, Connection(psycopg.OperationalError())))


@pytest.mark.filterwarnings("error")
def test_port_in_use_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigurationError, match=f'could not listen on "{listen}": address already in use') as e:
            demo.main(Config(data_dir=tmp_path / "data", listen=listen))
    assert "--listen" in (e.value.hint or "")
    assert not (tmp_path / "data").exists()
