"""psql's backslash commands, of every psql that is here: the same text as from PostgreSQL, and nothing hidden in it."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from pgstream.embedded.cluster import binaries
from tests.pg.catalogues.conftest import Both

pytestmark = pytest.mark.pg
# The one of the PATH is not resolved: Debian's is a program that looks at the name it was called by.
PSQLS = list(dict.fromkeys(str(p) for p in (binaries() / "psql", shutil.which("psql")) if p))
COMMANDS = r"""
\d ; \d+ ; \dS ; \d pageviews ; \d+ pageviews ; \d+ users ; \d+ views_per_user ; \d+ customers ;
\d "Reports"."Odd 'stream'" ; \d nothing ; \dt ; \dt *.* ; \dtvmsE+ ; \dv+ ; \di+ ; \dm ; \ds ; \dE ; \dn ;
\dn+ ; \dnS+ ; \du ; \du+ ; \dg ; \dp ; \dp *.* ; \z ; \ddp ; \drds ; \df ; \df+ ; \df *unreadable* ; \da ;
\do ; \dT ; \dT+ ; \dD ; \dC ; \dc ; \dO ; \dL ; \dL+ ; \dx ; \dx+ ; \dy ; \db ; \db+ ; \dd ; \dF ; \dFp+ ;
\dl ; \dP ; \dA ; \dAc btree int4 ; \dconfig *timeout* ; \dew ; \des ; \det ; \deu ; \dRp ; \dRs ; \dX ; \l ;
\l+ ; \sf twice ; \sf+ twice ; \sv busy ; \sv+ pageviews ; \ef twice ; \encoding ; \copyright ; \pset ;
\timing ; \errverbose
"""


def psql(program: str, url: str, command: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [program, "-X", url, "-c", command],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PSQL_EDITOR": "true"},
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("program", PSQLS)
@pytest.mark.parametrize("command", [c.strip() for c in COMMANDS.split(";")])
def test_commands_answer_as_postgresql_does(both: Both, program: str, command: str) -> None:
    assert psql(program, both.ours, command) == psql(program, both.direct, command)


@pytest.mark.parametrize("program", PSQLS)
def test_nothing_hidden_is_listed(both: Both, program: str) -> None:
    for command in (r"\d", r"\d *.*", r"\dt *", r"\dn", r"\dn+", r"\df", r"\dv", r"\di", r"\dT", r"\dp", r"\dd"):
        code, out, _ = psql(program, both.ours, command)
        assert code == 0
        if "*.*" not in command:
            assert "pg_pgstream" not in out
            assert "ledger" not in out


def test_what_a_relation_shows(both: Both) -> None:
    program = PSQLS[0]
    _, listed, _ = psql(program, both.ours, r"\d+")
    for name, kind, comment in (
        ("pageviews", "view", "stream"),
        ("users", "view", "changelog"),
        ("views_per_user", "table", "materialized view"),
    ):
        line = next(x for x in listed.splitlines() if f" {name} " in x)
        assert [f.strip() for f in line.split("|")][1:4] == [name, kind, "pgstream_worker"]
        assert line.rstrip().endswith(comment)
    assert (
        '"views_per_user_userid_idx" UNIQUE, btree (userid) NULLS NOT DISTINCT'
        in psql(program, both.ours, r"\d views_per_user")[1]
    )
