"""CREATE OR REPLACE MATERIALIZED VIEW over a data stream, the changes of a table, and another view: readers see the old
view or the new one, whole, while records come and the worker dies."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.aws import Aws, serving
from tests.postgres import Postgres, postgres
from tests.server import Server, within
from tests.stream.test_kill import killed
from tests.stream.test_outage import run

pytestmark = [pytest.mark.stream, pytest.mark.timeout(600)]
ACCOUNTS = 20
VIEWS = {
    "rs_shards": "SELECT k, count(*) AS n, max(id) AS last, max('{rule}') AS rule FROM rs_sent GROUP BY k",
    "rs_rows": "SELECT id, v, '{rule}' AS rule FROM rs_accounts",
    "rs_sum": "SELECT sum(v) AS total, count(*) AS n, max('{rule}') AS rule FROM rs_rows",
}


@pytest.fixture(scope="module")
def sent() -> Iterator[Aws]:
    with serving() as aws:
        aws.stream("rs_sent", 2)
        yield aws


@pytest.fixture(scope="module")
def shop(workspace: Path) -> Iterator[Postgres]:
    with postgres(workspace / "rs_shop") as p:
        p.run(
            "CREATE TABLE accounts (id bigint PRIMARY KEY, v bigint)",
            f"INSERT INTO accounts SELECT i, 0 FROM generate_series(1, {ACCOUNTS}) i",
        )
        yield p


class Records(threading.Thread):
    """Sends records, and moves money from one account to another, until it is over."""

    def __init__(self, sent: Aws, shop: Postgres) -> None:
        super().__init__(daemon=True)
        self.aws, self.shop, self.over = sent, shop, threading.Event()
        self.sent = 0

    def run(self) -> None:
        choose = random.Random(17)
        while not self.over.is_set():
            records = [json.dumps({"id": n, "k": f"k{n % 7}"}) for n in range(self.sent, self.sent + 20)]
            self.aws.put("rs_sent", [(f"k{n % 7}", r) for n, r in enumerate(records, self.sent)])
            self.sent += 20
            one, other = choose.sample(range(1, ACCOUNTS + 1), 2)
            self.shop.run(
                f"UPDATE accounts SET v = CASE id WHEN {one} THEN v - 7 ELSE v + 7 END WHERE id IN ({one}, {other})"
            )
            time.sleep(0.05)


class Readers(threading.Thread):
    """Reads all views in a loop; what is not whole, and what fails, is kept."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self.server, self.over = server, threading.Event()
        self.wrong: list[object] = []
        self.reads = 0

    def run(self) -> None:
        most = 0
        try:
            with self.server.connect() as db:
                while not self.over.is_set():
                    row = db.execute("SELECT sum(n), count(DISTINCT rule) FROM rs_shards").fetchone()
                    if row is None or row[0] < most or row[1] != 1:
                        self.wrong.append(("rs_shards", most, row))
                    else:
                        most = row[0]
                    row = db.execute("SELECT sum(v), count(*), count(DISTINCT rule) FROM rs_rows").fetchone()
                    if row != (0, ACCOUNTS, 1):
                        self.wrong.append(("rs_rows", row))
                    row = db.execute("SELECT sum(total), sum(n), count(*) FROM rs_sum").fetchone()
                    if row != (0, ACCOUNTS, 1):
                        self.wrong.append(("rs_sum", row))
                    self.reads += 1
        except Exception as e:
            self.wrong.append(e)


def test_views_of_every_source_are_replaced(
    server: Server, db: psycopg.Connection[Any], sent: Aws, shop: Postgres
) -> None:
    run(
        db,
        f"""CREATE STORE rs_kinesis WITH ('type' = KINESIS, {sent.ddl});
        CREATE STORE rs_shop WITH ({shop.store});
        CREATE STREAM rs_sent (id BIGINT, k VARCHAR) WITH ('store' = rs_kinesis, 'value.format' = 'json',
          'starting.position' = 'earliest');
        CREATE CHANGELOG rs_accounts (id BIGINT, v BIGINT, PRIMARY KEY (id)) WITH ('store' = rs_shop,
          'postgresql.table.name' = 'accounts', 'starting.position' = 'earliest')""",
    )
    for name, text in VIEWS.items():
        run(db, f"CREATE MATERIALIZED VIEW {name} AS {text.format(rule='one')}")

    def rules() -> set[tuple[str, str]]:
        return {(v, str(r)) for v in VIEWS for (r,) in db.execute(f"SELECT DISTINCT rule FROM {v}".encode()).fetchall()}

    records = Records(sent, shop)
    records.start()
    within(180, lambda: rules() == {(v, "one") for v in VIEWS})
    within(60, lambda: db.execute("SELECT total, n FROM rs_sum").fetchone() == (0, ACCOUNTS))
    readers = Readers(server)
    readers.start()
    for rule in ("two", "three"):
        for name, text in VIEWS.items():
            run(db, f"CREATE OR REPLACE MATERIALIZED VIEW {name} AS {text.format(rule=rule)}")
        if rule == "three":
            within(60, lambda: killed(server))
        within(240, lambda rule=rule: rules() == {(v, rule) for v in VIEWS})
    records.over.set()
    records.join(30)
    counted = {f"k{k}": len(range(k, records.sent, 7)) for k in range(7)}
    within(120, lambda: dict(db.execute("SELECT k, n FROM rs_shards").fetchall()) == counted)
    wanted = shop.rows("SELECT id, v FROM accounts ORDER BY id")
    within(120, lambda: db.execute("SELECT id, v FROM rs_rows ORDER BY id").fetchall() == [tuple(r) for r in wanted])
    readers.over.set()
    readers.join(30)
    assert not readers.wrong and readers.reads > 50, readers.wrong[:5]
