"""What BI tools and drivers ask of the catalogues: PostgreSQL's answer, and in it what is pgstream's.

Each ``.test`` file asks what one tool asks, in the tool's way: the same catalogues, functions and joins. ``shows``
compares the answer with PostgreSQL's own and prints it; ``same`` compares only, for answers that are long or hold oids.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import pq

from tests.datadriven import Case, cases, check
from tests.pg.catalogues.conftest import Both

pytestmark = pytest.mark.pg
CASES = [c for path in sorted(Path(__file__).parent.glob("*.test")) for c in cases(path)]


def answers(url: str, text: str) -> list[Any]:
    """Everything that a client sees of a text's results, in the simple protocol, then in the extended one as binary."""
    with psycopg.connect(url, autocommit=True) as c:
        c.execute("SET extra_float_digits = 3")
        sent = [c.pgconn.exec_(text.encode())]
        if ";" not in text:
            sent.append(c.pgconn.exec_params(text.encode(), [], result_format=1))
        return [_seen(r) for r in sent]


def _seen(r: pq.abc.PGresult) -> Any:
    if r.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
        return r.status, r.error_message
    head = [(r.fname(i), r.ftype(i), r.fmod(i), r.ftable(i), r.ftablecol(i), r.fsize(i)) for i in range(r.nfields)]
    rows = [[r.get_value(n, i) for i in range(r.nfields)] for n in range(r.ntuples)]
    return r.status, r.command_status, head, rows


@pytest.mark.parametrize("case", CASES, ids=str)
def test_tool(both: Both, case: Case) -> None:
    ours, direct = answers(both.ours, case.input), answers(both.direct, case.input)
    assert ours == direct
    status, *rest = ours[0]
    assert status == pq.ExecStatus.TUPLES_OK, rest
    _, head, rows = rest
    if case.directive == "same":
        check(case, "")
        return
    assert case.directive == "shows"
    lines = [" | ".join("NULL" if v is None else v.decode() for v in row) for row in rows]
    check(case, "\n".join(["-- " + ", ".join(h[0].decode() for h in head), *lines]))
