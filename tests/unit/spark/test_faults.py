"""What a person reads when Spark, Kafka or PostgreSQL fails under a query."""

from __future__ import annotations

import pytest

from pgstream.spark import faults


def link(name: str, message: str, **more: object) -> dict[str, object]:
    return {"class": name, "message": message, **more}


OUTER = link("org.apache.spark.sql.streaming.StreamingQueryException", "[STREAM_FAILED] Query terminated …")
KAFKA = "org.apache.kafka.common.errors."


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("DATATYPE_MISMATCH.BINARY_OP_DIFF_TYPES", "42804"),
        ("UNRESOLVED_COLUMN.WITH_SUGGESTION", "42703"),
        ("UNRESOLVED_ROUTINE", "42883"),
        ("MISSING_AGGREGATION", "42803"),
        ("UNSUPPORTED_FEATURE.X", "0A000"),
        (None, "0A000"),
    ],
)
def test_analysis_conditions_get_postgresql_codes(condition: str | None, code: str) -> None:
    fault = faults.from_analysis(condition, "[X] Something is `wrong`. SQLSTATE: 42K09; line 1 pos 0;\n'Project …", 7)
    assert (fault.kind, fault.sqlstate, fault.at) == ("user", code, 7)


def test_a_cast_that_cannot_be_is_told_in_our_types() -> None:
    text = '[DATATYPE_MISMATCH.X] Cannot resolve "CAST(x AS y)" due to data type mismatch: cannot cast "{}" to "{}".'
    for source, to, words in (
        ("TIMESTAMP_NTZ", "BOOLEAN", "timestamp to boolean"),
        ("DECIMAL(10,2)", "BINARY", "decimal(10, 2) to varbinary"),
        ("ARRAY<STRING>", "INT", "array<varchar> to integer"),
        ("VARIANT", "INT", "variant to integer"),
    ):
        fault = faults.from_analysis("DATATYPE_MISMATCH.CAST_WITHOUT_SUGGESTION", text.format(source, to), 7)
        assert (fault.sqlstate, fault.message, fault.at) == ("42846", f"cannot cast type {words}", 7)


def test_sentences_are_in_postgresql_style() -> None:
    text = '[CONDITION.SUB] Cannot resolve "(id + 1)" because `x` differs. SQLSTATE: 42K09; line 1 pos 0;\nProject'
    assert faults.sentence(text) == 'cannot resolve "(id + 1)" because "x" differs'


@pytest.mark.parametrize(
    ("root", "kind", "code"),
    [
        (link(KAFKA + "TimeoutException", "Call(…) timed out."), "store", "58000"),
        (link(KAFKA + "SaslAuthenticationException", "Authentication failed"), "refused", "58000"),
        (link(KAFKA + "UnknownTopicOrPartitionException", "no such topic"), "store", "42704"),
        (link(KAFKA + "ProducerFencedException", "newer"), "engine", "55000"),
        (link("org.apache.kafka.common.config.ConfigException", "x must be …"), "user", "22023"),
        (link("org.apache.spark.sql.pgstream.FencedException", "attempt 1"), "engine", "55000"),
        (link("org.apache.spark.sql.pgstream.UnendedTransactionException", "a transaction of …"), "store", "58000"),
        (link("org.postgresql.util.PSQLException", "ERROR: value too long", sqlstate="22001"), "data", "22001"),
        (link("org.postgresql.util.PSQLException", "Connection refused", sqlstate="08001"), "engine", "58000"),
        (link("x.SlowLookup", 'store "k" did not answer a lookup within 60 seconds'), "store", "57014"),
        (link("x.SlowLookup", "a lookup was not answered within 60 seconds"), "user", "57014"),
        (link("x.LongLookup", "a lookup found more than 64 MB for one row"), "data", "54000"),
        (link("org.apache.spark.SparkArithmeticException", "[DIVIDE_BY_ZERO] Division by zero."), "data", "22012"),
        (link("java.lang.OutOfMemoryError", "Java heap space"), "engine", "53200"),
        (link("java.lang.NullPointerException", "null"), "engine", "XX000"),
    ],
)
def test_root_causes(root: dict[str, object], kind: str, code: str) -> None:
    fault = faults.from_chain([OUTER, link("org.apache.spark.SparkException", "Job aborted"), root], {"k": "kafka"})
    assert (fault.kind, fault.sqlstate) == (kind, code)


def test_refused_credentials_say_what_changes_them() -> None:
    refused = link(KAFKA + "SaslAuthenticationException", "Authentication failed due to invalid credentials")
    fault = faults.from_chain([OUTER, refused], {"k": "kafka"})
    assert "invalid credentials" in fault.message and "UPDATE STORE" in (fault.hint or "")


def test_bad_record_names_its_place_and_the_way_out() -> None:
    bad = link("x.BadRecordException", "…", topic="t", partition=1, offset=7, reason="not JSON: boom")
    fault = faults.from_chain([OUTER, bad])
    assert (fault.kind, fault.sqlstate) == ("data", "22000")
    assert fault.message == 'record at partition 1, offset 7 of topic "t" could not be decoded: not JSON: boom'
    assert "IGNORE" in (fault.hint or "")


def test_no_reason_is_still_a_fault() -> None:
    assert faults.from_chain([]).kind == "engine"


def test_what_an_expression_raises_keeps_its_code() -> None:
    message = '[USER_RAISED_EXCEPTION] 22P02 invalid input syntax for type integer: "a\nb" SQLSTATE: P0001'
    fault = faults.from_chain([OUTER, link("org.apache.spark.SparkRuntimeException", message)])
    assert (fault.kind, fault.sqlstate) == ("data", "22P02")
    assert fault.message == 'invalid input syntax for type integer: "a\nb"'


def test_what_an_operator_raises_is_data() -> None:
    """A match that cannot be followed by another: the standard's own conditions."""
    message = '[USER_RAISED_EXCEPTION] 2202L AFTER MATCH SKIP to pattern variable "a" leads back to the first row'
    fault = faults.from_chain([OUTER, link("org.apache.spark.sql.pgstream.Raised", message)])
    assert (fault.kind, fault.sqlstate) == ("data", "2202L")
    assert fault.message.startswith("AFTER MATCH SKIP to pattern variable") and "TO NEXT ROW" in (fault.hint or "")


def test_a_folder_that_executors_do_not_share() -> None:
    chain = [OUTER, link("org.apache.spark.sql.pgstream.UnsharedException", "h1 does not see it, h2 does not see it")]
    fault = faults.from_chain(chain)
    assert (fault.kind, fault.sqlstate) == ("refused", "58030")
    assert fault.detail == "h1 does not see it, h2 does not see it."


@pytest.mark.parametrize(
    ("chain", "code", "message"),
    [
        ([link("org.apache.spark.SparkRuntimeException",
               "[INVALID_DATETIME_PATTERN.WITH_SUGGESTION] Unrecognized datetime pattern: '#'. SQLSTATE: 22007"),
          link("java.lang.IllegalArgumentException", "Pattern includes reserved character: '#'")],
         "22007", "invalid pattern of a date or time: pattern includes reserved character: '#'"),
        ([link("org.apache.spark.SparkUpgradeException",
               "[INCONSISTENT_BEHAVIOR_CROSS_VERSION.DATETIME_PATTERN_RECOGNITION] You may get … SQLSTATE: 42K0B"),
          link("org.apache.spark.SparkIllegalArgumentException",
               "[INVALID_DATETIME_PATTERN.LENGTH] Unrecognized datetime pattern: MMMMM. SQLSTATE: 22007")],
         "22007", "invalid pattern of a date or time: unrecognized datetime pattern: MMMMM"),
        ([link("org.apache.spark.SparkRuntimeException",
               "[INVALID_PARAMETER_VALUE.PATTERN] The value of `regexp` … is invalid: '('. SQLSTATE: 22023"),
          link("java.util.regex.PatternSyntaxException", "Unclosed group near index 1\n(")],
         "2201B", "invalid regular expression: unclosed group near index 1"),
        ([link("org.apache.spark.SparkRuntimeException",
               "[INVALID_PARAMETER_VALUE.REGEX_GROUP_INDEX] Expects group index between 0 and 1. SQLSTATE: 22023")],
         "22023", "expects group index between 0 and 1"),
        ([link("org.apache.spark.SparkRuntimeException",
               "[INVALID_VARIANT_GET_PATH] The path `$.a[*]` is not a valid path. SQLSTATE: 22023")],
         "22023", 'the path "$.a[*]" is not a valid path'),
    ],
)  # fmt: skip
def test_patterns_that_only_a_row_shows_to_be_wrong(chain: list[dict[str, object]], code: str, message: str) -> None:
    fault = faults.from_chain([OUTER, *chain])
    assert (fault.kind, fault.sqlstate, fault.message) == ("data", code, message)
