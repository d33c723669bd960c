"""What ``--stores all`` adds to the demo: the PostgreSQL of a shop, and a double of Kinesis where there is one.

Owns: starting both and the thread that does the shop's business. Must not know: pgstream.
Start reading at ``Stores.open``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import random
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg

from pgstream.config import Config
from pgstream.embedded.postgres import Postgres, open_postgres

STREAM = "pageviews_kinesis"
NO_DOUBLE = "Kinesis is left out: its double is not installed (pip install 'moto[kinesis,server]')"
# "orders" alone may mean a schema named after the user: pgstream keeps its ledger in one where a query writes here.
_TABLE = """CREATE TABLE IF NOT EXISTS public.orders (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer text, status text, price numeric(10, 2))"""
_NEXT = {"new": "paid", "paid": "sent"}


class Shop:
    """A thread that has orders come, go on and be forgotten, some a second, until ``stop``."""

    def __init__(self, url: str, rate: int = 10) -> None:
        self.url, self.rate = url, rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo shop", daemon=True)
        with psycopg.connect(url, autocommit=True) as c:
            c.execute(_TABLE)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(5)

    def _run(self) -> None:
        rng = random.Random()  # noqa: S311
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self.url, autocommit=True) as c:
            while not self._stop.wait(1 / self.rate):
                c.execute(*business(rng))


def business(rng: random.Random) -> tuple[Any, list[Any]]:
    """A statement of the shop's, with its values."""
    match rng.choice(("come", "come", "go on", "go on", "forget")):
        case "come":
            given = [f"User_{rng.randint(1, 9)}", round(rng.uniform(1, 200), 2)]
            return "INSERT INTO public.orders (customer, status, price) VALUES (%s, 'new', %s)", given
        case "go on":
            status = rng.choice(list(_NEXT))
            one = "(SELECT id FROM public.orders WHERE status = %s ORDER BY id LIMIT 1)"
            return f"UPDATE public.orders SET status = %s WHERE id = {one}", [_NEXT[status], status]
    return "DELETE FROM public.orders WHERE id = (SELECT min(id) FROM public.orders WHERE status = 'sent')", []


class Stores:
    """``values`` is what the script is told. ``kinesis`` is the double, None where it is not installed."""

    def __init__(self, postgres: Postgres, shop: Shop, kinesis: Any, url: str) -> None:
        self.postgres, self.shop, self.kinesis = postgres, shop, kinesis
        self.values = {
            "shop": f"postgresql://127.0.0.1:{postgres.port}/postgres", "password": postgres.password, "kinesis": url,
        }  # fmt: skip

    @classmethod
    async def open(cls, config: Config, folder: Path, ports: Mapping[str, int]) -> Stores:
        """Start what there is, at the ports of PostgreSQL and Kinesis. Errors: those of ``open_postgres``."""
        own = dataclasses.replace(config, data_dir=folder / "shop", postgres_url="")
        settings = {"wal_level": "logical", "cluster_name": "shop", "port": str(ports["PostgreSQL"])}
        postgres = await open_postgres(own, settings=settings)
        try:
            shop = Shop(postgres.url("postgres", tcp=True))
            url = f"http://127.0.0.1:{ports['Kinesis']}"
            made = cls(postgres, shop, _double(ports["Kinesis"], url), url)
        except BaseException:
            await postgres.stop()
            raise
        shop.start()
        return made

    async def stop(self) -> None:
        self.shop.stop()
        if self.kinesis is not None:
            self.kinesis.stop()
        await self.postgres.stop()


def _double(port: int, url: str) -> Any:
    """moto's server with the data stream that an earlier demo wrote: it keeps nothing itself."""
    try:
        from botocore.session import Session
        from moto.server import ThreadedMotoServer
    except ModuleNotFoundError:
        return None
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    own = {"aws_access_key_id": "demo", "aws_secret_access_key": "demo"}
    client = Session().create_client("kinesis", region_name="us-east-1", endpoint_url=url, **own)
    client.create_stream(StreamName=STREAM, ShardCount=2)
    return server
