"""QUERY WITH ('execution.mode' = …): batches run, real time is refused aloud, what is neither is no mode."""

from __future__ import annotations

import pytest

from pgstream.errors import PgStreamError
from pgstream.properties import Given
from pgstream.statements.continuous import query_options


@pytest.mark.parametrize(
    ("value", "code", "said"),
    [
        ("realtime", "0A000", 'value REALTIME of parameter "execution.mode" is not supported yet'),
        ("fast", "22023", "invalid value 'fast' for parameter \"execution.mode\""),
    ],
)
def test_a_mode_that_does_not_run(value: str, code: str, said: str) -> None:
    with pytest.raises(PgStreamError) as e:
        query_options({"execution.mode": Given("execution.mode", value, 30, 49)})
    assert (e.value.sqlstate, e.value.at, e.value.text) == (code, 49, said)


def test_batches_run() -> None:
    given = {"execution.mode": Given("execution.mode", "microbatch", 30, 49)}
    assert query_options(given) == query_options({})
