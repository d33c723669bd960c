"""What the values of PostgreSQL's options look like: each function reads one kind and gives its one spelling.

Owns: the shapes that ``options.py`` names, and which table a relation's parameters mean. A ValueError is the end of a
sentence and never repeats the value, which may hold a secret. Must not know: the options, any client library.
Start reading at ``uri`` and ``entity_of``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from pgstream.errors import InvalidOption

_SLOT = re.compile(r"\A[a-z0-9_]{1,63}\Z")
SCHEMA = "public"
LIST = "postgresql.cdc.table.list"


def uri(text: str) -> str:
    """``postgresql://host:port/database``; scheme and port may be left out."""
    given = text.strip()
    try:
        there = urlsplit(given if "://" in given else f"postgresql://{given}")
        port = there.port or 5432
    except ValueError:
        raise ValueError("it is not postgresql://host:port/database") from None
    if "@" in there.netloc:
        raise ValueError("user and password have parameters of their own")
    if there.scheme not in ("postgresql", "postgres") or not there.hostname or "," in there.netloc:
        raise ValueError("it is not postgresql://host:port/database")
    database = there.path.strip("/")
    if not database or "/" in database or there.query:
        raise ValueError("it must name one database, as postgresql://host:port/database")
    host = f"[{there.hostname}]" if ":" in there.hostname else there.hostname
    return f"postgresql://{host}:{port}/{database}"


def own_prefix(query: str) -> str:
    """How the names of slots begin that are a query's own."""
    return f"pgstream_{''.join(c for c in query.lower() if c.isalnum())}_"


def slot(text: str) -> str:
    """The name of a replication slot, as PostgreSQL takes it."""
    if not _SLOT.match(text):
        raise ValueError("it has lower-case letters, digits and underscores, 63 at most")
    return text


def database(uris: str) -> str:
    """The database that a store is of."""
    return unquote(urlsplit(uris).path.strip("/"))


def split(entity: str, own: str) -> tuple[str, str]:
    """Schema and table of ``[[database.]schema.]table``. ``own``: the store's database. Errors: InvalidOption."""
    parts = entity.split(".")
    if len(parts) > 3 or not all(parts):
        raise InvalidOption(what=f'entity "{entity}" is not schema.table')
    if len(parts) == 3 and parts[0] != own:
        raise _elsewhere(parts[0], own)
    schema, table = [SCHEMA, *parts][-2:]
    return schema, table


def several(entity: str) -> list[str]:
    """The tables that a relation's entity stands for."""
    return entity.split(",")


def entity_of(properties: dict[str, str], name: str, options: Mapping[str, str]) -> str:
    """The entity of a relation: ``schema.table``, or some of them with commas. See ``stores.spec.StoreType.names``."""
    named = [properties.pop(f"postgresql.{part}.name", None) for part in ("db", "schema", "table")]
    own = database(options["uris"])
    if named[0] is not None and named[0] != own:
        raise _elsewhere(named[0], own)
    if (listed := properties.pop(LIST, None)) is not None:
        if named[1] is not None or named[2] is not None:
            raise InvalidOption(what=f'parameter "{LIST}" names the tables with their schemas, and by itself')
        tables = [".".join(split(t.strip(), own)) for t in several(listed)]
        return ",".join(dict.fromkeys(tables))
    schema, table = named[1] or SCHEMA, named[2] or name
    if any(c in schema + table for c in ".,"):
        raise InvalidOption(what="a schema or table whose name has a dot or a comma cannot be an entity")
    return f"{schema}.{table}"


def shows(entity: str) -> dict[str, str]:
    """The parameters that name an entity."""
    if "," in entity:
        return {LIST: entity}
    schema, _, table = entity.partition(".")
    return {"postgresql.schema.name": schema, "postgresql.table.name": table}


def spelled(entity: str, options: Mapping[str, str]) -> str:
    """An entity as relations know it: ``schema.table``. Errors: InvalidOption."""
    return ".".join(split(entity, database(options["uris"])))


def _elsewhere(given: str, own: str) -> InvalidOption:
    hint = "Another database is another store."
    return InvalidOption(what=f'database "{given}" is not the store\'s, which is "{own}"', hint=hint)
