"""A text of several statements, some of them ours, is one transaction as PostgreSQL's own texts are."""

from __future__ import annotations

import re

import psycopg
import pytest

from tests.pg.door.raw import SYNC, Wire, bind, execute, parse, query

INSERT = "INSERT INTO m VALUES (1)"
TEXTS = [
    f"{INSERT}; LIST DOORS",
    f"{INSERT}; LIST DOORS; SELECT 1/0",
    f"{INSERT}; LIST DOORS !; SELECT 1",
    f"LIST DOORS; {INSERT}; LIST DOORS !",
    f"BEGIN; {INSERT}; LIST DOORS; COMMIT; {INSERT}; LIST DOORS !",
    f"{INSERT}; LIST DOORS; BEGIN; {INSERT}",
    f"{INSERT}; LIST DOORS; BEGIN; {INSERT}; COMMIT; {INSERT}; SELECT 1/0",
    f"{INSERT}; LIST DOORS; COMMIT; {INSERT}; LIST DOORS !",
    f"{INSERT}; LIST DOORS; ROLLBACK; {INSERT}",
    f"{INSERT}; LIST DOORS; COMMIT AND CHAIN; {INSERT}",
    f"LIST DOORS; {INSERT}; SAVEPOINT s; {INSERT}",
    f"LIST DOORS; {INSERT}; ROLLBACK TO s",
    f"LIST DOORS; {INSERT}; RELEASE s",
    f"BEGIN; {INSERT}; SAVEPOINT s; LIST DOORS; {INSERT}; ROLLBACK TO s; COMMIT",
    f"BEGIN; {INSERT}; LIST DOORS !; COMMIT",
    f"BEGIN; {INSERT}; LIST DOORS; ROLLBACK; {INSERT}",
    f"LIST DOORS; SET LOCAL statement_timeout = '1s'; SHOW statement_timeout; {INSERT}",
    f"{INSERT}; LIST DOORS; INSERT INTO later VALUES (1), (1); LIST DOORS",
    f"{INSERT}; LIST DOORS; VACUUM",
    f"LIST DOORS; {INSERT}; COMMIT PREPARED 'x'",
    f"LIST DOORS; {INSERT}; ROLLBACK PREPARED 'x'; LIST DOORS",
    "LIST DOORS; COMMIT PREPARED 'x'",
    f"LIST DOORS; {INSERT}; BEGIN nobody",
    f"LIST DOORS; {INSERT}; COMMIT nobody",
    f"{INSERT}; LIST DOORS; INSERT INTO later VALUES (1), (1); COMMIT",
    f"LIST DOORS; SAVEPOINT s; {INSERT}",
    "LIST DOORS; RELEASE s",
    "LIST DOORS; START TRANSACTION READ ONLY; INSERT INTO m VALUES (1)",
    "; LIST DOORS;; LIST DOORS;",
]


def _outcome(url: str, text: str) -> tuple[object, ...]:
    """What PostgreSQL has afterwards: the code of an error, the status, warnings, rows after a ROLLBACK."""
    warned: list[str | None] = []
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("CREATE TEMP TABLE m (a int)")
        conn.execute("CREATE TEMP TABLE later (a int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        conn.add_notice_handler(lambda d: warned.append(d.message_primary))
        code = None
        try:
            conn.execute(text)
        except psycopg.Error as e:
            code = e.sqlstate
        status = conn.info.transaction_status
        warnings = list(warned)
        conn.execute("ROLLBACK")
        return code, status, warnings, conn.execute("SELECT count(*) FROM m").fetchone()


@pytest.mark.parametrize("text", TEXTS)
def test_one_transaction(door, text):
    # An error at run time: PostgreSQL would refuse a text with a syntax error as a whole.
    plain = text.replace("LIST DOORS !", "SELECT nobody").replace("LIST DOORS", "SELECT 'front'")
    ours, theirs = _outcome(door.url, text), _outcome(door.direct, plain)
    if theirs[0] == "42703":
        theirs = ("42601", *theirs[1:])
    assert ours == theirs


@pytest.mark.parametrize(
    ("text", "left"),
    [(f"{INSERT}; CREATE DOOR; SELECT 1/0", 1), (f"{INSERT}; CREATE DOOR; {INSERT}; LIST DOORS !", 1),
     (f"CREATE DOOR; {INSERT}; LIST DOORS; SELECT 1/0", 0), (f"BEGIN; {INSERT}; CREATE DOOR; SELECT 1/0", 0)],
)  # fmt: skip
def test_a_change_of_ours_keeps_what_stands_before_it(door, text, left):
    """It takes effect at once, and sees what the statements before it did; a block that was begun is not ended."""
    code, _, _, found = _outcome(door.url, text)
    assert (code, found) == ("22012" if "1/0" in text else "42601", (left,))


@pytest.mark.parametrize("text", ["LIST DOORS; SELECT 'é'; SELECT nobody", "LIST DOORS ; SELECT 1 + 'x'"])
def test_a_position_counts_in_the_whole_text(door, text):
    found = []
    for url, sent in ((door.url, text), (door.direct, text.replace("LIST DOORS", "SELECT 123"))):
        with psycopg.connect(url, autocommit=True) as conn, pytest.raises(psycopg.Error) as caught:
            conn.execute(sent)
        found.append((caught.value.sqlstate, caught.value.diag.statement_position))
    assert found[0] == found[1]
    assert int(found[0][1]) > len("LIST DOORS; SELECT")


PIPELINES = [
    ["INSERT", "LIST DOORS", "INSERT"],
    ["INSERT", "LIST DOORS !", "INSERT"],
    ["LIST DOORS", "INSERT", "SELECT 1/0", "LIST DOORS"],
    ["INSERT", "LIST DOORS", "COMMIT", "INSERT", "LIST DOORS !"],
    ["BEGIN", "INSERT", "LIST DOORS"],
    ["BEGIN", "INSERT", "LIST DOORS !"],
    ["BEGIN", "INSERT", "LIST DOORS", "COMMIT", "LIST DOORS", "SELECT 1/0"],
]


@pytest.mark.parametrize("texts", PIPELINES, ids=", ".join)
def test_a_pipeline_is_one_transaction(door, texts):
    """What stands before a Sync, of the extended protocol."""
    found = []
    for port, ours in ((door.port, "LIST DOORS"), (door.postgres.port, "SELECT 'front'")):
        with Wire(port, door.USER, door.PASSWORD) as wire:
            wire.send(query("CREATE TEMP TABLE m (a int)"))
            wire.until_ready()
            plain = [t.replace("LIST DOORS !", "SELECT nobody") if port != door.port else t for t in texts]
            for text in plain:
                wire.send(parse(text.replace("INSERT", INSERT).replace("LIST DOORS", ours)) + bind() + execute())
            wire.send(SYNC + query("ROLLBACK") + query("SELECT count(*) FROM m"))
            answers = wire.until_ready(3)
            found.append((re.sub("D+", "D", "".join(kind for kind, _ in answers)), answers[-3:]))
    assert found[0] == found[1]
