"""Store types: which there are, and loading one on first use.

Owns: the registry, name → module, then the entry points ``pgstream.stores`` of installed packages.
Must not know: any option of any store. Start reading at ``find``. How to add a type: ``docs/howto/add_a_store.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from pgstream.errors import InvalidOption, NotInstalled, NotYet
from pgstream.stores.spec import Admin, AdminFactory, StoreType, Trouble, TroubleOf

# One line a store type: the SQL keyword in lower case, and the module that holds its ``STORE``.
REGISTRY: dict[str, str] = {
    "kafka": "pgstream.stores.kafka",
    "kinesis": "pgstream.stores.kinesis",
    "postgresql": "pgstream.stores.postgresql",
}
ALIASES = {"confluent_kafka": "kafka", "postgres": "postgresql"}

# Types of the product that have no folder here yet.
PLANNED = (
    "CLICKHOUSE", "DATABRICKS", "ICEBERG_GLUE", "ICEBERG_REST", "ORACLE", "S3", "SNOWFLAKE",
)  # fmt: skip


def names() -> list[str]:
    """The known types' keywords, sorted."""
    return sorted(n.upper() for n in {*REGISTRY, *(e.name for e in entry_points(group="pgstream.stores"))})


def find(word: str, at: int | None = None) -> StoreType:
    """The store type of a keyword, in any case. InvalidOption, NotYet, or NotInstalled when its library is missing."""
    name = ALIASES.get(word.lower(), word.lower())
    if name in REGISTRY:
        return _load(REGISTRY[name], name)
    for entry in entry_points(group="pgstream.stores"):
        if entry.name == name:
            found = entry.load()
            assert isinstance(found, StoreType)
            return found
    if word.upper() in PLANNED:
        raise NotYet(what=f"store type {word.upper()}", at=at, hint=f"Store types today: {', '.join(names())}.")
    raise InvalidOption(what=f'unknown store type "{word}"', at=at, hint=f"Known types: {', '.join(names())}.")


def open_admin(kind: StoreType, name: str, options: Mapping[str, str]) -> Admin:
    """The store's face without Spark, for one statement; close it. ``options`` are in clear."""
    module, _, attribute = kind.admin.partition(":")
    factory: AdminFactory = _attribute(module, attribute, kind.name)
    return factory(name, options)


def trouble(word: str, link: Mapping[str, Any], store: str, root: str) -> Trouble | None:
    """What a Java exception says of a store of this type (``StoreType.trouble``)."""
    kind = find(word)
    if kind.trouble is None:
        return None
    module, _, attribute = kind.trouble.partition(":")
    told: TroubleOf = _attribute(module, attribute, kind.name)
    return told(link, store, root)


@cache
def _load(module: str, name: str) -> StoreType:
    found = _attribute(module, "STORE", name)
    assert isinstance(found, StoreType)
    return found


def _attribute(module: str, attribute: str, name: str) -> Any:
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as e:
        if e.name is not None and e.name.startswith("pgstream"):
            raise
        raise NotInstalled(name=name, detail=f"Python module {e.name} is missing.") from e
