"""The events of Nexmark, made from a seed: of 50, one is a person, three are auctions and 46 are bids.

Owns: how events are drawn (shares, hot sellers, auctions and bidders, prices, channels), after the generator of Apache
Beam, in a smaller world. Event time rises by ``STEP_MS`` an event; the day changes in the middle, for the queries by
day.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

STEP_MS = 20
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = ("Phoenix", "Los Angeles", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne")
_FIRST = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_LAST = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_HOT = 100
"""Of that many people or auctions one is hot, and takes a good part of what is drawn."""

TABLES = {
    "person": "id BIGINT, name VARCHAR, email VARCHAR, card VARCHAR, city VARCHAR, state VARCHAR, "
    "date_time TIMESTAMP, extra VARCHAR",
    "auction": "id BIGINT, item VARCHAR, description VARCHAR, initial_bid BIGINT, reserve BIGINT, "
    "date_time TIMESTAMP, expires TIMESTAMP, seller BIGINT, category BIGINT, extra VARCHAR",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, "
    "date_time TIMESTAMP, extra VARCHAR",
}
"""Columns of the three streams and of PostgreSQL's tables beside them."""

Row = dict[str, Any]


@dataclass
class _World:
    draw: random.Random
    people: int = 0
    auctions: int = 0

    def text(self, least: int, most: int) -> str:
        return "".join(self.draw.choices("abcdefghijklmnopqrstuvwxyz ", k=self.draw.randint(least, most))).strip()

    def person(self) -> int:
        """One of those who were active lately; three times in four the newest hot one."""
        newest = self.people - 1
        if self.draw.random() < 0.75:
            return 1000 + newest // _HOT * _HOT
        return 1000 + self.draw.randint(max(0, newest - 1000), newest)

    def auction(self) -> int:
        newest = self.auctions - 1
        if self.draw.random() < 0.5:
            return 1000 + newest // _HOT * _HOT
        return 1000 + self.draw.randint(max(0, newest - 100), newest)

    def price(self) -> int:
        return round(10 ** (self.draw.random() * 6) * 100)


def events(count: int, seed: int = 1, begin: dt.datetime | None = None) -> Iterator[tuple[str, Row]]:
    """``count`` events in the order of their event times: the table's name, and the row by column."""
    world = _World(random.Random(seed))
    first = begin or dt.datetime(2026, 1, 2) - dt.timedelta(milliseconds=count * STEP_MS // 2)
    for n in range(count):
        now = first + dt.timedelta(milliseconds=n * STEP_MS)
        turn = n % 50
        if turn == 0:
            yield "person", _person(world, now)
        elif turn <= 3:
            yield "auction", _auction(world, now)
        else:
            yield "bid", _bid(world, now)


def _person(w: _World, now: dt.datetime) -> Row:
    number = 1000 + w.people
    w.people += 1
    first, last = w.draw.choice(_FIRST), w.draw.choice(_LAST)
    return {
        "id": number, "name": f"{first} {last}", "email": f"{w.text(5, 9)}@{w.text(4, 7)}.com".replace(" ", ""),
        "card": " ".join(f"{w.draw.randrange(10_000):04}" for _ in range(4)), "city": w.draw.choice(_CITIES),
        "state": w.draw.choice(_STATES), "date_time": now, "extra": w.text(10, 40),
    }  # fmt: skip


def _auction(w: _World, now: dt.datetime) -> Row:
    number = 1000 + w.auctions
    w.auctions += 1
    first = w.price()
    return {
        "id": number, "item": w.text(5, 20), "description": w.text(10, 60), "initial_bid": first,
        "reserve": first + w.price(), "date_time": now,
        "expires": now + dt.timedelta(milliseconds=STEP_MS * w.draw.randint(50, 1500)), "seller": w.person(),
        "category": 10 + w.draw.randrange(5), "extra": w.text(10, 40),
    }  # fmt: skip


def _bid(w: _World, now: dt.datetime) -> Row:
    url = "https://www.nexmark.com/" + "".join(f"{w.text(3, 5)}/" for _ in range(3)) + "item.htm?query=1"
    if w.draw.random() < 0.5:
        channel = w.draw.choice(_CHANNELS)
    else:
        number = w.draw.randrange(10_000)
        channel = f"channel-{number % 100}"
        url += f"&channel_id={number}"
    return {
        "auction": w.auction(), "bidder": w.person(), "price": w.price(), "channel": channel,
        "url": url.replace(" ", "_"), "date_time": now, "extra": w.text(10, 60),
    }  # fmt: skip


def text(row: Row) -> Row:
    """The row as JSON can hold it: times as SQL writes them."""
    return {
        k: v.isoformat(sep=" ", timespec="milliseconds") if isinstance(v, dt.datetime) else v for k, v in row.items()
    }
