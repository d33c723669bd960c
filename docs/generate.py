"""Writes the pages that come from tables in the code: errors, settings, statements, store options.

``python docs/generate.py`` writes them; ``--check`` fails when a page is not what the code says (a unit test runs it).
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

# A checkout's own code, whichever one is installed in the environment that runs this.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from docs import tested
from pgstream import errors, statements, stores, types
from pgstream.catalog.system_tables import TABLES
from pgstream.config import SETTINGS
from pgstream.planner.functions import ANY, FUNCTIONS
from pgstream.stores.spec import Can, Full, Option, OptionTable, StoreType

DOCS = Path(__file__).parent
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
    """docs/statements/<module>.md, and the index."""
    modules: dict[str, list[type[statements.Statement]]] = {}
    for cls in statements.STATEMENTS:
        modules.setdefault(cls.__module__.rsplit(".", 1)[1], []).append(cls)
    pages = {}
    index = ["# Statements\n\n" + NOTE.format(origin="the docstrings of pgstream/statements")]
    for module, classes in sorted(modules.items()):
        out = [
            f"# {module.replace('_', ' ').capitalize()}\n\n" + NOTE.format(origin=f"pgstream/statements/{module}.py")
        ]
        for cls in classes:
            syntax, _, rest = inspect.cleandoc(cls.__doc__ or "").partition("\n\n")
            title = " ".join(cls.words) or cls.__name__
            out.append(f"## {title}\n\n```\n{syntax}\n```\n\n{rest}\n\n")
            if cls.columns:
                out.append("Answers: " + " · ".join(f"`{c.name}` {c.type}" for c in cls.columns) + "\n\n")
            index.append(f"- [{title}]({module}.md)\n")
        pages[f"statements/{module}.md"] = "".join(out).rstrip() + "\n"
    pages["statements/README.md"] = "".join(index)
    return pages


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


def functions_page() -> str:
    """docs/functions.md: every function, its arities, its kind."""
    out = ["# Functions\n\n" + NOTE.format(origin="pgstream/planner/functions.py")]
    out.append("Functions follow Flink 1.20 where DeltaStream's manual is silent. The Spark SQL of each stands in the ")
    out.append("last column; `{0}` is the first argument. Each row is executed by `tests/stream/functions`.\n\n")
    for title, aggregate in (("Scalar functions", False), ("Aggregate functions", True)):
        out.append(f"## {title}\n\n| function | arguments | result | in Spark |\n|---|---|---|---|\n")
        for name, f in sorted(FUNCTIONS.items()):
            if f.aggregate is aggregate:
                counts = ", ".join(f"{f.least} or more" if n == ANY else str(n) for n in sorted(f.templates))
                result = {"0": "that of the first argument", None: ""}.get(f.type, f.type)
                spark = (
                    " · ".join(
                        f"`{_cell(t.replace('{name}', name.lower()))}`" for t in f.templates.values() if t != "{time}"
                    )
                    or "see `planner/calls.py`"
                )
                out.append(f"| `{name}` | {counts} | {result} | {spark} |\n")
        out.append("\n")
    return "".join(out).rstrip() + "\n"


def system_tables_page() -> str:
    """docs/system_tables.md: every system table and its columns."""
    out = ["# System tables\n\n" + NOTE.format(origin="pgstream/catalog/system_tables.py")]
    out.append(
        "```sql\nSELECT name, state FROM deltastream.sys.\"relations\" WHERE database_name = 'main';\n"
        "SELECT query_name, lag FROM deltastream.sys.query_health WHERE NOT healthy OR lag > 100000;\n```\n\n"
        "They are read from every database, by every client, like any view: joined, prepared, in cursors and COPY.\n"
        "A role sees the rows of what it has a privilege on. `query_health` and `query_lag` are additions of ours:\n"
        "they follow a running query every two seconds. What the catalogue does not keep, such as who last updated\n"
        "an object, is NULL. Why it works as it does: `docs/decisions/0020-system-tables.md`.\n"
    )
    for name, table in sorted(TABLES.items()):
        out.append(f"\n## {name}\n\n{table.say}\n\n| column | type |\n|---|---|\n")
        for column in table.columns.split(", "):
            out.append("| `{0}` | {2} |\n".format(*column.partition(" ")))
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
        "`VARCHAR(n)` keeps n for PostgreSQL; `DECIMAL` is `DECIMAL(10, 0)`; timestamps have microseconds. "
        "`TIME` is not there yet.\n"
    )
    return "".join(out)


def pages() -> dict[str, str]:
    """Every generated page by its path under docs/."""
    return {
        "errors.md": errors_page(),
        "settings.md": settings_page(),
        "functions.md": functions_page(),
        "types.md": types_page(),
        "system_tables.md": system_tables_page(),
        **statement_pages(),
        "statements/coverage.md": tested.page(),
        **store_pages(),
    }


def stale() -> list[str]:
    """Pages that are not what the code says."""
    return [p for p, text in pages().items() if not (DOCS / p).exists() or (DOCS / p).read_text() != text]


if __name__ == "__main__":
    if "--check" in sys.argv:
        old = stale()
        print(f"stale: {', '.join(old)}; run make docs" if old else "docs are current")
        sys.exit(bool(old))
    for path, text in pages().items():
        (DOCS / path).parent.mkdir(parents=True, exist_ok=True)
        (DOCS / path).write_text(text)
        print(path)
