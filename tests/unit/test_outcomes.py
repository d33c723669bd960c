"""What the runners of foreign suites print, as ``make test-drivers`` reads it."""

from __future__ import annotations

from tests.drivers.outcomes import Comparison, of_cargo, of_go, of_pqxx, of_tap


def test_tap() -> None:
    text = (
        "t/01connect.t .......... \n1..4\nok 1 - Connected\nnot ok 2 - No\n#   Failed test\nok 3 # skip no TLS\n"
        "not ok 4 - Later # TODO\nFailed 1/4 subtests\nt/02attribs.t .. \nok 1 - Again\nok\n"
    )
    assert of_tap(text) == {
        "t/01connect.t::1": "passed",
        "t/01connect.t::2": "failed",
        "t/01connect.t::3": "skipped",
        "t/01connect.t::4": "passed",
        "t/02attribs.t::1": "passed",
    }


def test_cargo() -> None:
    text = (
        "running 4 tests\ntest types::test_bool ... ok\ntest talks ... a word\nand a line\nok\n"
        "test runtime::unix_socket ... ignored\ntest broken ... FAILED\n\ntest result: FAILED. 2 passed; 1 failed\n"
    )
    assert of_cargo(text) == {
        "types::test_bool": "passed",
        "talks": "passed",
        "runtime::unix_socket": "skipped",
        "broken": "failed",
    }


def test_go() -> None:
    lines = (
        '{"Action":"run","Package":"p","Test":"T"}\nnoise\n{"Action":"pass","Package":"p","Test":"T"}\n'
        '{"Action":"fail","Package":"p"}\n{"Action":"skip","Package":"p","Test":"T//tmp/x/001"}'
    )
    assert of_go(lines) == {"p::T": "passed", "p::T//tmp/…": "skipped"}


def test_libpqxx() -> None:
    text = "\nRunning: test_a\n\nRunning: test_b\nSQL error: no\nFAILED: test_b\n"
    assert of_pqxx(f"{text}Ran 2 test(s).\n*** 1 test(s) failed: ***\n\ttest_b\n") == {
        "test_a": "passed",
        "test_b": "failed",
    }
    assert of_pqxx(f"{text}\nRunning: test_c\nAborted\n") == {
        "test_a": "passed",
        "test_b": "failed",
        "test_c": "failed",
    }


def test_what_is_lost_is_what_passes_directly_only() -> None:
    found = Comparison("s 1", {"a": "passed", "b": "failed", "c": "passed"}, {"a": "failed", "b": "passed"})
    assert (found.lost, found.won, found.row) == (["a", "c"], ["b"], "| s 1 | 2 | 1 | 1 | 1 |")
