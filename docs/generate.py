"""Writes the pages that come from tables in the code: errors, settings, statements, store options.

``python docs/generate.py`` writes them; ``--check`` fails when a page is not what the code says (a unit test runs it).
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Collection
from pathlib import Path

# A checkout's own code, whichever one is installed in the environment that runs this.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from docs import tested
from pgstream import errors, statements, stores, types
from pgstream.catalog.system_tables import TABLES
from pgstream.config import SETTINGS
from pgstream.planner.functions import ANY, FUNCTIONS, GROUPS, SAME
from pgstream.server import metrics
from pgstream.stores.spec import Can, Full, Option, OptionTable, StoreType
from tests.datadriven import Case, cases

DOCS = Path(__file__).parent
SYSTEM_TABLES = "system_tables"
NOTE = "<!-- Made by docs/generate.py from {origin}; do not edit. -->\n\n"


def errors_page() -> str:
    """docs/errors.md: every condition, by SQLSTATE."""
    out = ["# Errors\n\n" + NOTE.format(origin="pgstream/errors.py")]
    out.append("SQLSTATEs have PostgreSQL's meaning. The condition's name is the field `R` of the error.\n\n")
    out.append("| SQLSTATE | DeltaStream | condition | message | when |\n|---|---|---|---|---|\n")
    for c in sorted(errors.CATALOGUE.values(), key=lambda c: (c.sqlstate, c.__name__)):
        if c is not errors.RelayedError:
            when = " ".join((c.__doc__ or "").split())
            name = _snake(c.__name__)
            out.append(f"| `{c.sqlstate}` | `{c.ds_code}` | `{name}` | {_cell(c.message)} | {_cell(when)} |\n")
    return "".join(out)


def settings_page() -> str:
    """docs/settings.md: every setting."""
    out = ["# Settings\n\n" + NOTE.format(origin="pgstream/config.py")]
    out.append("A flag wins over the environment, the environment over the file (`--config FILE`, TOML).\n")
    out.append("Secrets have no flag: a command line is visible to every user of the machine.\n\n")
    out.append("| flag | environment | type | default | meaning |\n|---|---|---|---|---|\n")
    for s in SETTINGS:
        flag = "" if s.kind == "secret" else f"`{s.flag}`"
        default = f"`{s.default}`" if s.default not in ("", None) else ""
        out.append(f"| {flag} | `{s.variable}` | {s.kind} | {default} | {_cell(s.say)} |\n")
    return "".join(out)


def statement_pages() -> dict[str, str]:
    """docs/statements/<statement>.md with executed examples, and the index."""
    shown = examples()
    shown.pop(SYSTEM_TABLES, None)
    pages = {}
    index = ["# Statements\n\n" + NOTE.format(origin="the docstrings of pgstream/statements")]
    for cls in sorted(statements.STATEMENTS, key=page_title):
        module, name = cls.__module__.rsplit(".", 1)[1], _snake(cls.__name__)
        syntax, _, rest = inspect.cleandoc(cls.__doc__ or "").partition("\n\n")
        out = [f"# {page_title(cls)}\n\n" + NOTE.format(origin=f"pgstream/statements/{module}.py and its examples")]
        out.append(f"```\n{syntax}\n```\n\n{rest}\n\n")
        if cls.columns:
            out.append("Answers: " + " · ".join(f"`{c.name}` {c.type}" for c in cls.columns) + "\n\n")
        cases_ = shown.pop(name, [])
        if cases_:
            out.append("## Examples\n\n" + "\n".join(map(_example, cases_)))
        index.append(f"- [{page_title(cls)}]({name}.md)\n")
        pages[f"statements/{name}.md"] = "".join(out).rstrip() + "\n"
    if shown:
        raise ValueError(f"examples of no statement: {', '.join(sorted(shown))}")
    pages["statements/README.md"] = "".join(index)
    return pages


# Titles of statements whose first words are not their own.
_TITLES = {
    "AlterOwner": "ALTER … OWNER TO", "AlterRelation": "ALTER … SET description", "CopyStream": "COPY of a stream",
    "CreateChangelogAs": "CREATE CHANGELOG AS SELECT", "CreateStreamAs": "CREATE STREAM AS SELECT",
    "CreateMaterializedViewAs": "CREATE MATERIALIZED VIEW AS SELECT",
    "ReplaceMaterializedViewAs": "CREATE OR REPLACE MATERIALIZED VIEW",
    "CreateTableAs": "CREATE TABLE AS SELECT", "DescribeStatement": "DESCRIBE a statement",
    "GrantPrivileges": "GRANT of privileges", "RevokePrivileges": "REVOKE of privileges", "CloseCursor": "CLOSE",
    "InsertInto": "INSERT INTO … SELECT", "InsertValues": "INSERT INTO … VALUES", "SelectStream": "SELECT",
}  # fmt: skip


def page_title(cls: type[statements.Statement]) -> str:
    """A statement's name on its page."""
    return _TITLES.get(cls.__name__) or " ".join(cls.words)


def examples() -> dict[str, list[Case]]:
    """The cases of tests that say on which page they are shown; the tests run them, so they are true."""
    out: dict[str, list[Case]] = {}
    for path in sorted((DOCS.parent / "tests" / "stream" / "manual").glob("*.test")):
        for case in cases(path):
            if page := case.args.get("page"):
                out.setdefault(page, []).append(case)
    return out


# What stands for a test's own places.
_SHOWN = (("$bootstrap", "localhost:9092"), ("$db", "main"), ("manual_", ""), ("man_", ""), ("manq_", ""),
          ("$invitation", "bd5b2db3-8c5f-4a4e-9c1a-0c3f6f3d1a55"))  # fmt: skip


def _example(case: Case) -> str:
    texts = [case.input, case.expected]
    for i, text in enumerate(texts):
        for said, shown in _SHOWN:
            text = text.replace(said, shown)
        texts[i] = re.sub(r"base64:[\w+/=]{40,}", "base64:…", text)
    error = "ERROR " if case.directive == "error" else ""
    return f"```sql\n{texts[0]};\n```\n```\n{error}{texts[1]}\n```\n"


def store_pages() -> dict[str, str]:
    """docs/stores/<type>.md and options.yaml: every option of every store type."""
    pages, yaml = {}, ["# Made by docs/generate.py from pgstream/stores/*/options.py; do not edit.\n"]
    for name in [n.lower() for n in stores.names()]:
        store = stores.find(name)
        out = [f"# {store.label} stores\n\n" + NOTE.format(origin=f"pgstream/stores/{name}/options.py")]
        out.append(_abilities(store))
        yaml.append(f"{name}:\n")
        for place, table in _tables(store):
            out.append(f"\n## {table.title[0].upper() + table.title[1:]}\n\n")
            out.append("| parameter | type | required | default | meaning |\n|---|---|---|---|---|\n")
            yaml.append(f"  {place}:\n")
            for o in table.options:
                out.append(_option_row(o))
                facts = f"type: {o.kind.value}, required: {str(o.required).lower()}, default: {o.default or 'null'}"
                yaml.append(f"    {o.name}: {{{facts}}}\n")
        pages[f"stores/{name}.md"] = "".join(out)
    pages["stores/options.yaml"] = "".join(yaml)
    return pages


def _option_row(o: Option) -> str:
    kind = " \\| ".join(o.choices) or o.kind.value
    need = "yes" if o.required else (f"with {o.when}" if o.when else "")
    also = f" Also: {', '.join(f'`{a}`' for a in o.aliases)}." if o.aliases else ""
    name = o.name + ("…" if o.prefix else "")
    also += f" Not yet: {_cell(o.later)}" if o.later else ""
    return f"| `{name}` | {kind} | {_cell(need)} | {o.default or ''} | {_cell(o.say)}{also} |\n"


def _tables(store: StoreType) -> list[tuple[str, OptionTable]]:
    return [("store", store.options), ("entity", store.entity_options), ("relation", store.relation_options),
            ("source", store.source_options)]  # fmt: skip


def _abilities(store: StoreType) -> str:
    lines = []
    for can in Can:
        support = store.can.get(can)
        word = (
            "yes"
            if isinstance(support, Full)
            else f"{type(support).__name__.lower()}: {support.why}"
            if support
            else "never"
        )
        lines.append(f"| {can.value} | {word} |\n")
    return "| ability | |\n|---|---|\n" + "".join(lines)


def _snake(name: str) -> str:
    return "".join("_" + c.lower() if c.isupper() and i else c.lower() for i, c in enumerate(name))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


FUNCTION_TITLES = {
    "aggregates": "Aggregate functions", "math": "Mathematical functions", "strings": "String functions",
    "times": "Date and time functions", "conditions": "Conditional functions", "collections": "Arrays and maps",
    "json": "JSON functions", "hashes": "Hashes", "rows": "Functions of a row's record",
}  # fmt: skip


_RESULTS = {
    "0": "that of the first argument", "0*": "the common one of the arguments", "1*": "the common one of the values",
    None: "",
}  # fmt: skip
_COUNTS = {"JSON_OBJECTAGG": "2", "JSON_ARRAYAGG": "1"}  # as written


FUNCTION_NOTES = {
    "aggregates": """`LISTAGG`, `ARRAY_AGG`, `JSON_ARRAYAGG`, `JSON_OBJECTAGG`, `FIRST_VALUE` and `LAST_VALUE` take rows
in the order of their arrival. `JSON_ARRAYAGG(value [NULL | ABSENT ON NULL])` leaves NULLs out unless told otherwise,
`JSON_OBJECTAGG([KEY] key VALUE value [NULL | ABSENT ON NULL])` keeps them; of a key that comes twice the last value
counts, and what has no key is left out. `COLLECT` gives a MAP of each value and how often it is there.
`STRING_AGG`, `BOOL_AND`, `EVERY`, `BOOL_OR` and `ANY_VALUE` are PostgreSQL's names for what `LISTAGG`, `MIN`, `MAX` and
`FIRST_VALUE` do; `APPROX_COUNT_DISTINCT(x)` is `COUNT(DISTINCT x)`, exact.\n\n""",
    "times": """`timestamp AT TIME ZONE 'Europe/Berlin'` is the moment at which clocks there show the `TIMESTAMP`, and
what they show at a moment, of a `TIMESTAMP_LTZ`, as in PostgreSQL.\n\n""",
    "rows": """`CURRENT_WATERMARK(time)` is what event time had passed when the row's batch began, in the type of the
column that it is given; NULL until event time is known.
`WHERE CURRENT_WATERMARK(t) IS NULL OR t > CURRENT_WATERMARK(t)` leaves out what came too late. It
is of a stream's rows: those of a changelog, and groups, may be taken back, and it would be another then.\n\n""",
    "json": """`JSON_VALUE` takes `RETURNING type`, then `NULL | ERROR | DEFAULT value` `ON EMPTY` and `ON ERROR`;
`JSON_QUERY` takes `WITH [CONDITIONAL | UNCONDITIONAL] [ARRAY] WRAPPER`, then `NULL | ERROR | EMPTY ARRAY | EMPTY
OBJECT` for the two. A path that is not there is empty in mode `lax` and an error in mode `strict`, the default;
JSON's null is empty in both. Without these words both are NULL. The steps of a path are `.name`, `['name']`, `[0]`, and
for all of them `.*` and `[*]`: what such a path finds is an array. `JSON_ERROR`, `JSON_TEXT` and `JSON_WRAPPED` are
what they are made of.\n\n""",
}


def function_pages() -> dict[str, str]:
    """docs/functions.md, and a page a group: every function with an executed example."""
    shown = _calls_shown()
    index = ["# Functions\n\n" + NOTE.format(origin="pgstream/planner/functions.py")]
    index.append("Functions follow Flink 1.20 where DeltaStream's manual is silent; operators and types are in\n")
    index.append(
        "[types.md](types.md) and [semantics.md](semantics.md). Every example is run by `tests/stream/functions`,\n"
    )
    index.append("over this row:\n\n" + _row_shown() + "\n")
    pages = {}
    for group, title in FUNCTION_TITLES.items():
        names = sorted({f.name for f in GROUPS[group]} | (SAME.keys() if group == "aggregates" else set()))
        pages[f"functions/{group}.md"] = _function_page(title, names, shown, FUNCTION_NOTES.get(group, ""))
        index.append(f"- [{title}](functions/{group}.md): {', '.join(f'`{n}`' for n in names)}\n")
    return {"functions.md": "".join(index)} | pages


def _function_page(title: str, names: list[str], shown: dict[str, list[tuple[str, str]]], note: str) -> str:
    out = [f"# {title}\n\n" + NOTE.format(origin="pgstream/planner/functions.py"), note]
    out.append("The row of the examples stands in [functions.md](../functions.md).\n\n")
    out.append("| function | arguments | result | example | gives |\n|---|---|---|---|---|\n")
    for name in names:
        f = FUNCTIONS[name]
        counts = _COUNTS.get(name) or ", ".join(
            f"{f.least} or more" if n == ANY else str(n) for n in sorted(f.templates)
        )
        result = _RESULTS.get(f.type, _cell(str(f.type)))
        examples_ = shown.get(name, [])[:2] or [("", "")]
        for i, (call, value) in enumerate(examples_):
            first = f"`{name}` | {counts} | {result}" if i == 0 else " | | "
            code = f"`` {call.replace('|', chr(92) + '|')} ``" if call else ""
            out.append(f"| {first} | {code} | {_cell(value)} |\n")
    return "".join(out)


def _calls_shown() -> dict[str, list[tuple[str, str]]]:
    """Executed examples by the function that they call first."""
    out: dict[str, list[tuple[str, str]]] = {}
    spelled = {"SIMILAR": "SIMILAR TO", "IS_JSON": "IS JSON", "TRIM_LEADING": "TRIM(LEADING",
               "TRIM_TRAILING": "TRIM(TRAILING", "JSON_QUERY_ARRAY": "RETURNING ARRAY",
               "JSON_ERROR": "ERROR ON ERROR"}  # fmt: skip
    for case in cases(DOCS.parent / "tests/stream/functions/functions.test"):
        for line in case.expected.split("\n"):
            call, _, value = line.partition("  =>  ")
            for name in FUNCTIONS:
                word = spelled.get(name, name)
                if re.search(rf"(?<![\w]){re.escape(word)}(?![\w])", call, re.I):
                    out.setdefault(name, []).append((call, value.rpartition(" : ")[0]))
    for name, found in out.items():
        # What begins with the call first.
        found.sort(key=lambda c: not c[0].upper().startswith(name))
    return out


def _row_shown() -> str:
    from tests.stream.functions import row

    columns = zip(row.COLUMNS.items(), row.FIRST, strict=True)
    return "".join(f"- `{n}` {_cell(t)}: {_cell(str(v))}\n" for (n, t), v in columns)


def system_tables_page() -> str:
    """docs/system_tables.md: every system table and its columns."""
    out = ["# System tables\n\n" + NOTE.format(origin="pgstream/catalog/system_tables.py")]
    out.append(
        "```sql\nSELECT name, state FROM deltastream.sys.\"relations\" WHERE database_name = 'main';\n"
        "SELECT query_name, lag FROM deltastream.sys.query_health WHERE NOT healthy OR lag > 100000;\n```\n\n"
        "They are read from every database, by every client, like any view: joined, prepared, in cursors and COPY.\n"
        "A role sees the rows of what it has a privilege on. `query_health` and `query_lag` are additions of ours:\n"
        "they follow a running query every two seconds. Who made or changed an object is NULL where that was the\n"
        "server itself, or before this was kept. Why it works as it does: `docs/decisions/0020-system-tables.md`.\n"
    )
    out.append("\n## Example\n\n" + "\n".join(map(_example, examples()[SYSTEM_TABLES])))
    for name, table in sorted(TABLES.items()):
        out.append(f"\n## {name}\n\n{table.say}\n\n| column | type |\n|---|---|\n")
        for column in table.columns.split(", "):
            out.append("| `{0}` | {2} |\n".format(*column.partition(" ")))
    return "".join(out)


def metrics_page() -> str:
    """docs/metrics.md: every metric."""
    out = ["# Metrics\n\n" + NOTE.format(origin="pgstream/server/metrics.py")]
    out.append(
        "What `/metrics` tells. How to ask for it, and what to watch: [See what a server does](howto/observe.md).\n\n"
    )
    out.append("| metric | type | labels | what it is |\n|---|---|---|---|\n")
    for name, family in metrics.FAMILIES.items():
        shown = name + ("_total" if family.kind == "counter" else "")
        labels = ", ".join(f"`{label}`" for label in family.labels)
        out.append(f"| `{shown}` | {family.kind} | {labels} | {_cell(family.say)} |\n")
    out.append("\nA summary has two series, `_count` and `_sum`.\n")
    return "".join(out)


def types_page() -> str:
    """docs/types.md: the type table."""
    out = [
        "# Types\n\n" + NOTE.format(origin="pgstream/types.py"),
        "| DeltaStream | Spark | PostgreSQL |\n|---|---|---|\n",
    ]
    for name, row in types.TABLE.items():
        others = ", ".join(f"`{a}`" for a, n in types.ALIASES.items() if n == name)
        also = f" (also {others})" if others else ""
        out.append(f"| `{name}`{also} | `{row.spark}` | `{row.pg}` |\n")
    out.append("| `ARRAY<T>` | `array<…>` | an array of T; `jsonb` when T is nested |\n")
    out.append("| `MAP<K, V>` | `map<…>` | `jsonb` |\n| `STRUCT<name T, …>` | `struct<…>` | `jsonb` |\n\n")
    out.append(
        "`VARCHAR(n)` keeps n for PostgreSQL; `DECIMAL` is `DECIMAL(10, 0)`; times have microseconds, whatever their "
        "precision says. `TIMESTAMP(p) WITH [LOCAL] TIME ZONE` is `TIMESTAMP_LTZ(p)`, `TIMESTAMP WITHOUT TIME ZONE` is "
        "`TIMESTAMP`.\n"
    )
    return "".join(out)


def pages() -> dict[str, str]:
    """Every generated page by its path under docs/."""
    return {
        "errors.md": errors_page(),
        "settings.md": settings_page(),
        **function_pages(),
        "metrics.md": metrics_page(),
        "types.md": types_page(),
        "system_tables.md": system_tables_page(),
        **statement_pages(),
        "statements/coverage.md": tested.page(),
        **store_pages(),
    }


def stale() -> list[str]:
    """Pages that are not what the code says, and those of statements that are no more."""
    now = pages()
    old = [p for p, text in now.items() if not (DOCS / p).exists() or (DOCS / p).read_text() != text]
    return old + left_over(now)


def left_over(now: Collection[str]) -> list[str]:
    """Pages of statements that the code has not."""
    return [p for p in (f"statements/{f.name}" for f in (DOCS / "statements").glob("*.md")) if p not in now]


if __name__ == "__main__":
    if "--check" in sys.argv:
        old = stale()
        print(f"stale: {', '.join(old)}; run make docs" if old else "docs are current")
        sys.exit(bool(old))
    written = pages()
    for path in left_over(written):
        (DOCS / path).unlink()
    for path, text in written.items():
        (DOCS / path).parent.mkdir(parents=True, exist_ok=True)
        (DOCS / path).write_text(text)
        print(path)
