"""The tables of facts: settings, types, errors, plans."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pgstream import config, errors, statements, types
from pgstream.names import FullName
from pgstream.planner import plan

ROOT = Path(__file__).parents[2]


def test_every_setting_is_a_field_with_the_same_default() -> None:
    fields = {f.name: f for f in dataclasses.fields(config.Config)}
    assert list(fields) == [s.name for s in config.SETTINGS]
    for s in config.SETTINGS:
        default = fields[s.name].default
        assert (default or "") == (s.default or "") or str(default) == str(s.default)


def test_a_flag_wins_over_the_environment_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('listen = "127.0.0.1:1"\ndatabase = "a"\nadmin_user = "f"\n')
    env = {"PGSTREAM_CONFIG": str(file), "PGSTREAM_DATABASE": "b", "PGSTREAM_LISTEN": "127.0.0.1:2"}
    c = config.load({"listen": "127.0.0.1:3"}, env)
    assert (c.host_port, c.database, c.admin_user) == (("127.0.0.1", 3), "b", "f")


def test_a_bad_setting_is_named_with_its_origin() -> None:
    with pytest.raises(
        errors.ConfigurationError, match=r'"max_connections" \(PGSTREAM_MAX_CONNECTIONS\) must be integer'
    ):
        config.load({}, {"PGSTREAM_MAX_CONNECTIONS": "many"})


def test_secrets_are_not_in_the_repr() -> None:
    assert "s3cret" not in repr(config.load({}, {"PGSTREAM_ADMIN_PASSWORD": "s3cret"}))


@pytest.mark.parametrize(
    ("text", "canonical", "spark", "pg"),
    [
        ("int", "INTEGER", "int", "integer"),
        ("varchar(3)", "VARCHAR(3)", "string", "character varying(3)"),
        ("DECIMAL", "DECIMAL", "decimal(10,0)", "numeric(10,0)"),
        ("decimal(5,2)", "DECIMAL(5, 2)", "decimal(5,2)", "numeric(5,2)"),
        ("TIMESTAMP(3)", "TIMESTAMP(3)", "timestamp_ntz", "timestamp(3) without time zone"),
        ("array<bigint>", "ARRAY<BIGINT>", "array<bigint>", "bigint[]"),
        ("MAP<VARCHAR, INT>", "MAP<VARCHAR, INTEGER>", "map<string,int>", "jsonb"),
        ('struct<A int, "B c" array<varchar>>', 'STRUCT<a INTEGER, "B c" ARRAY<VARCHAR>>',
         "struct<`a`:int,`B c`:array<string>>", "jsonb"),
    ],
)  # fmt: skip
def test_types(text: str, canonical: str, spark: str, pg: str) -> None:
    t = types.parse(text)
    assert (str(t), t.spark, t.pg) == (canonical, spark, pg)
    assert types.parse(str(t)) == t
    assert types.from_spark(t.spark).spark == t.spark


@pytest.mark.parametrize("text", ["", "STRUCT<a>", "VARCHAR(", "NOPE", "ARRAY<INT", "INT INT"])
def test_what_is_no_type(text: str) -> None:
    with pytest.raises(errors.InvalidStatement):
        types.parse(text)


def test_errors_have_distinct_conditions_and_filled_templates() -> None:
    e = errors.UndefinedEntity(name="t", store="s", at=4)
    assert str(e) == 'entity "t" does not exist in store "s"'
    assert (e.hint, e.condition, e.at) == ("LIST ENTITIES IN STORE s shows what is there.", "undefined_entity", 4)


def test_a_plan_survives_json_and_a_newer_one_is_refused() -> None:
    source = plan.Source("s", "a.b.s", "stream", "k", "t", [plan.Column("x", "BIGINT")], "json")
    p = plan.Plan(plan.Filter(source, plan.Expr("c", "`x` > 1", 3)), plan.ResultSink(5))
    assert plan.load(p.json()) == p
    with pytest.raises(ValueError, match="newer"):
        plan.load(p.json().replace(f'"version":{plan.VERSION}'.encode(), b'"version":99'))


def test_generated_pages_are_current() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs/generate.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "docs are current", done.stdout + done.stderr


# The manual's stores hold no tables (docs/tutorials has them), DROP VIEW never succeeds, a sandbox is a worker apart.
WITHOUT_EXAMPLE = {"create_table_as", "describe_table", "describe_table_columns", "drop_table", "drop_view",
                   "start_sandbox"}  # fmt: skip


def test_every_statement_has_an_executed_example() -> None:
    text = "".join(path.read_text() for path in sorted((ROOT / "tests/stream/manual").glob("*.test")))
    shown = set(re.findall(r"^(?:statement|query|error) .*\bpage=(\w+)", text, re.M))
    made = {re.sub(r"(?<!^)(?=[A-Z])", "_", s.__name__).lower() for s in statements.STATEMENTS}
    assert made - shown == WITHOUT_EXAMPLE
    assert shown - made == {"system_tables"}


@pytest.mark.parametrize("path", [("main", "public", "counts"), ('a "b"', "Ünï.x", "s.t"), ("1", '"', "$")])
def test_full_names_are_read_as_they_were_written(path: tuple[str, str, str]) -> None:
    full = FullName(*path)
    assert FullName.read(str(full)) == full


def test_what_the_protocol_page_names_is_there() -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", (ROOT / "docs" / "protocol.md").read_text())
    assert len(named) > 80
    missing = [
        f"{file}::{test}"
        for file, test in named
        if not re.search(rf"^(async )?def {test}\(", (ROOT / "tests" / file).read_text(), re.M)
    ]
    assert missing == []
