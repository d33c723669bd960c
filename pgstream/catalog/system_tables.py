"""The system tables ``deltastream.sys."…"``: their columns, and the rows that the catalogue gives.

Owns: what each table shows, and which roles see which row. A row is written as JSON; ``system_copies`` keeps it in the
databases where it is read, behind a view that asks PostgreSQL for the roles of whoever reads.
Must not know: connections, statements. Start reading at ``TABLES`` and ``rows``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pgstream.catalog.delta import Delta
from pgstream.catalog.kinds import KINDS
from pgstream.catalog.privileges import MEMBERS, ORGANIZATION, Access
from pgstream.catalog.records import DEFAULT_ORGANIZATION, ObjectRecord, QueryRecord, RelationRecord, Snapshot
from pgstream.catalog.roles import pg_role
from pgstream.names import FullName

Key = tuple[str, str]
"""Table, and what names the row in it."""
Row = tuple[tuple[str, ...], str]
"""PostgreSQL's names of the roles that see it, and the row (or several) as JSON."""
Rows = dict[Key, Row]
Facts = Mapping[str, Any]

_AUDIT = (
    "owner varchar, created_by_role varchar, created_by_role_deleted boolean, created_by varchar,"
    " created_at timestamptz, updated_by_role varchar, updated_by_role_deleted boolean, updated_by varchar,"
    " updated_at timestamptz, organization_id varchar"
)
_QUERY = "query_id varchar, query_name varchar, query_version bigint"


@dataclass(frozen=True, slots=True)
class SystemTable:
    """One table. ``columns`` are PostgreSQL's; ``within``: a condition on the row ``r`` besides its roles.

    ``many``: what is kept under one key is an array of rows.
    """

    columns: str
    say: str
    within: str = ""
    many: bool = False


_IN_DATABASE = "EXISTS (SELECT FROM pg_deltastream.databases d WHERE d.name = r.database_name)"
_IN_SCHEMA = (
    "EXISTS (SELECT FROM pg_deltastream.schemas s WHERE s.database_name = r.database_name AND s.name = r.schema_name)"
)
# A view may use those before it.
TABLES: Final[dict[str, SystemTable]] = {
    "organizations": SystemTable("id varchar, name varchar, messages varchar", "The organization."),
    "databases": SystemTable(f"name varchar, {_AUDIT}", "Databases."),
    "schemas": SystemTable(
        f"name varchar, database_name varchar, is_default boolean, {_AUDIT}", "Schemas of databases.", _IN_DATABASE
    ),
    "relations": SystemTable(
        "name varchar, schema_name varchar, database_name varchar, fqn varchar, store_name varchar,"
        " relation_type varchar, primary_key varchar, partition_keys varchar, state varchar, entity_name varchar,"
        f" query_id varchar, description varchar, properties varchar, {_AUDIT}",
        "Streams, changelogs, tables, materialized views and their indexes.",
        _IN_SCHEMA,
    ),
    "relation_columns": SystemTable(
        "relation_name varchar, schema_name varchar, database_name varchar, name varchar, type varchar,"
        " nullable boolean, ordinal_position integer, primary_key boolean, organization_id varchar",
        "Columns of relations, in their order.",
        _IN_SCHEMA,
        many=True,
    ),
    "queries": SystemTable(
        "id varchar, name varchar, version bigint, intended_state varchar, current_state varchar, message varchar,"
        " kind varchar, query varchar, database_name varchar, sources varchar, sink varchar, compute_pool varchar,"
        f" attempts integer, {_AUDIT}",
        "Continuous queries, the terminated ones too.",
    ),
    "query_health": SystemTable(
        f"{_QUERY}, intended_state varchar, current_state varchar, healthy boolean, message varchar,"
        " compute_pool varchar, attempts integer, batch bigint, rows_in bigint, rows_out bigint,"
        " rows_per_second double precision, batch_ms bigint, late_rows bigint, bad_records bigint, state_rows bigint,"
        " state_bytes bigint, watermark timestamptz, lag bigint, measured_at timestamptz",
        "One row a query: its states and the figures of its last batch.",
    ),
    "query_lag": SystemTable(
        f"{_QUERY}, relation varchar, partition varchar, read_offset bigint, end_offset bigint, lag bigint,"
        " measured_at timestamptz",
        "One row for each partition that a query reads: where it is, where the partition ends, records between.",
        many=True,
    ),
    "stores": SystemTable(
        f"name varchar, type varchar, status varchar, status_message varchar, schema_registry_name varchar, {_AUDIT}",
        "Stores.",
    ),
    "schema_registries": SystemTable(
        f"name varchar, type varchar, status varchar, status_message varchar, {_AUDIT}", "Schema registries."
    ),
    "secrets": SystemTable(
        f"name varchar, type varchar, description varchar, region varchar, status varchar, {_AUDIT}",
        "Secrets, without what is secret.",
    ),
    "compute_pools": SystemTable(
        f"name varchar, intended_state varchar, size varchar, timeout_min integer, {_AUDIT}", "Compute pools."
    ),
    "functions": SystemTable(
        "name varchar, signature varchar, type varchar, source_name varchar, class_name varchar, status varchar,"
        f" {_AUDIT}",
        "Functions.",
    ),
    "function_sources": SystemTable(
        f"name varchar, language varchar, status varchar, description varchar, download_url varchar, {_AUDIT}",
        "Function sources.",
    ),
    "descriptor_sources": SystemTable(
        f"name varchar, type varchar, status varchar, description varchar, messages varchar, {_AUDIT}",
        "Descriptor sources.",
    ),
    "roles": SystemTable(
        f"name varchar, granted_to varchar, granted_roles varchar, member_count integer, {_AUDIT}", "Roles."
    ),
    "role_privileges": SystemTable(
        "role_name varchar, role_priv_type varchar, role_priv_target varchar, role_priv_target_name varchar,"
        " column_name varchar, grant_option boolean, grantor_role varchar, granted_at timestamptz,"
        " organization_id varchar",
        "What was granted to which role.",
    ),
    "user_grants": SystemTable(
        "org_member_id varchar, user_name varchar, user_email varchar, role_name varchar, granted_at timestamptz,"
        " organization_id varchar",
        "The roles that users were granted.",
    ),
    "userdatas": SystemTable(
        "org_member_id varchar, key varchar, value varchar, created_at timestamptz, updated_at timestamptz,"
        " organization_id varchar",
        "What SET DEFAULT kept of the user who reads.",
        "r.org_member_id = session_user",
    ),
}


def rows(snapshot: Snapshot, queries: Iterable[QueryRecord]) -> Rows:
    """Every row of every table."""
    out: Rows = {}
    for table, key, roles, facts in _of_snapshot(snapshot):
        out[table, key] = roles, _written(snapshot, facts)
    for r in snapshot.relations.values():
        out |= _of_relation(snapshot, r)
    return out | of_queries(snapshot, queries)


def few(delta: Delta) -> frozenset[Key] | None:
    """The rows that a change is about, when it is one of relations only; None: look at all."""
    keys = delta["relations"].keys if delta.keys() == {"relations"} else None
    if keys is None:
        return None
    return frozenset((table, str(FullName(*key))) for key in keys for table in OF_RELATIONS)


def relations(snapshot: Snapshot, keys: Iterable[Key]) -> Rows:
    """The rows of these relations that are there."""
    out: Rows = {}
    for full in {full for _, full in keys}:
        database, schema, name = FullName.parse(full)
        r = snapshot.relations.get((database, schema, name))
        if r is not None:
            out |= _of_relation(snapshot, r)
    return out


OF_RELATIONS = ("relations", "relation_columns")
OF_QUERIES = ("queries", "query_health", "query_lag")


def of_queries(snapshot: Snapshot, queries: Iterable[QueryRecord]) -> Rows:
    """The rows about queries; of each query always the same keys."""
    return {key: row for query in queries for key, row in _of_query(snapshot, query).items()}


def _of_query(s: Snapshot, q: QueryRecord) -> Rows:
    roles = _seen_by(s.access, "query", q.id, q.owner)
    named = {"query_id": q.id, "query_name": q.name, "query_version": q.version}
    states = {"intended_state": q.intended, "current_state": q.actual, "message": q.message or None}
    shared = {**states, "compute_pool": q.pool, "attempts": q.attempt}
    query = {"id": q.id, "name": q.name, "version": q.version, **shared, "kind": q.kind, "query": q.sql,
             "database_name": q.database, "sources": json.dumps(q.sources), "sink": ", ".join(q.sinks),
             **_audit(q)}  # fmt: skip
    lags = list(_lags(q.progress))
    p = q.progress
    health = {
        **named, **shared, "healthy": q.intended == q.actual, "batch": p.get("batch"), "rows_in": p.get("rows_in"),
        "rows_out": p.get("rows_out"), "rows_per_second": p.get("rows_per_s"), "batch_ms": p.get("batch_ms"),
        "late_rows": p.get("late_rows"), "bad_records": p.get("bad_records"), "state_rows": p.get("state_rows"),
        "state_bytes": p.get("state_bytes"), "watermark": p.get("watermark"), "measured_at": p.get("at"),
        "lag": sum(lag["lag"] for lag in lags) if lags else None,
    }  # fmt: skip
    lag_rows = [{**named, **lag} for lag in lags]
    found = (("queries", _written(s, query)), ("query_health", json.dumps(health, default=str)),
             ("query_lag", json.dumps(lag_rows, default=str)))  # fmt: skip
    return {(table, q.id): (roles, facts) for table, facts in found}


def _lags(progress: Facts) -> Iterator[dict[str, Any]]:
    """Where a query stands in each partition that it reads."""
    sources = progress.get("sources")
    for relation, facts in sources.items() if isinstance(sources, Mapping) else ():
        for partition, end in facts.get("latest", {}).items():
            # Nothing was read of it yet: all that is there is behind.
            read = facts.get("offset", {}).get(partition, 0)
            yield {"relation": relation, "partition": partition, "read_offset": read, "end_offset": end,
                   "lag": max(0, end - read), "measured_at": progress.get("at")}  # fmt: skip


def _seen_by(access: Access, kind: str, name: str, owner: str) -> tuple[str, ...]:
    """The roles to which an object shows itself; who inherits one of them sees it too."""
    return tuple(sorted({pg_role(r) for r in {owner, *(g.role for g in access.on(kind, name))} if r}))


def _audit(record: Any) -> Facts:
    return {"owner": record.owner, "created_at": record.created_at, **record.authors._asdict(),
            "updated_at": getattr(record, "updated_at", record.created_at)}  # fmt: skip


def _written(s: Snapshot, facts: Facts) -> str:
    """A row as it is kept, with what all tables have."""
    known: dict[str, Any] = {"organization_id": s.organization.id}
    for column in ("created_by_role", "updated_by_role"):
        if (role := facts.get(column)) is not None:
            known[f"{column}_deleted"] = role not in s.roles
    return json.dumps({**facts, **known}, default=str)


def _of_snapshot(s: Snapshot) -> Iterator[tuple[str, str, tuple[str, ...], Facts]]:
    access = s.access
    for d in s.databases.values():
        yield "databases", d.name, _seen_by(access, "database", d.name, d.owner), {"name": d.name, **_audit(d)}
    for c in s.schemas.values():
        facts = {"name": c.name, "database_name": c.database, "is_default": c.name == "public", **_audit(c)}
        yield "schemas", c.full_name, _seen_by(access, "schema", c.full_name, c.owner), facts
    for t in s.stores.values():
        facts = {"name": t.name, "type": _title(t.type), "status": t.state, "status_message": t.message or None,
                 "schema_registry_name": t.options.get("schema_registry.name"), **_audit(t)}  # fmt: skip
        yield "stores", t.name, _seen_by(access, "store", t.name, t.owner), facts
    for o in s.objects.values():
        if o.organization in ("", DEFAULT_ORGANIZATION) and (made := _object(access, o)) is not None:
            yield made[0], o.name, _object_seen_by(access, o), made[1]
    yield from _of_access(s)


def _of_relation(s: Snapshot, r: RelationRecord) -> Rows:
    roles = _seen_by(s.access, "relation", str(r.full), r.owner)
    place = {"relation_name": r.full.name, "schema_name": r.full.schema, "database_name": r.full.database}
    columns = [
        {**place, "name": c.name, "type": str(c.type), "nullable": c.nullable, "ordinal_position": i,
         "primary_key": c.name in r.primary_key, "organization_id": s.organization.id}
        for i, c in enumerate(r.columns, 1)
    ]  # fmt: skip
    found = (_written(s, _relation(r)), json.dumps(columns))
    return {(table, str(r.full)): (roles, facts) for table, facts in zip(OF_RELATIONS, found, strict=True)}


def _relation(r: RelationRecord) -> Facts:
    return {
        "name": r.full.name, "schema_name": r.full.schema, "database_name": r.full.database, "fqn": str(r.full),
        "store_name": r.store, "relation_type": r.kind, "primary_key": ",".join(r.primary_key) or None,
        "partition_keys": r.properties.get("key.columns"), "state": r.state, "entity_name": r.entity,
        "query_id": r.query, "description": r.description, "properties": json.dumps(dict(r.properties)), **_audit(r),
    }  # fmt: skip


def _title(type: str) -> str:
    """A type as it reads back: CONFLUENT_KAFKA is ConfluentKafka."""
    return type.title().replace("_", "")


def _object_seen_by(access: Access, o: ObjectRecord) -> tuple[str, ...]:
    """As ``records.Sight.object`` has it."""
    if o.kind == "organization":
        return _seen_by(access, *ORGANIZATION, o.owner)
    found = set(_seen_by(access, o.kind, o.name, o.owner))
    if o.kind == "role":
        found.add(pg_role(o.name))
    if KINDS[o.kind].create == MEMBERS:
        found |= _managers(access)
    return tuple(sorted(found))


def _managers(access: Access) -> set[str]:
    return {pg_role(g.role) for g in access.on(*ORGANIZATION) if g.privilege == MEMBERS}


def _object(access: Access, o: ObjectRecord) -> tuple[str, Facts] | None:
    """Table and row of a simple object; None for kinds that have no table."""
    base = {"name": o.name, "type": o.type, "status": o.state, "description": o.options.get("description"),
            "region": o.options.get("access_region"), "status_message": o.message or None, **_audit(o)}  # fmt: skip
    match o.kind:
        case "organization":
            return "organizations", {"id": o.id, "name": o.name, "messages": "[]"}
        case "schema_registry" | "secret":
            return {"secret": "secrets"}.get(o.kind, "schema_registries"), base
        case "compute_pool":
            timeout = o.options.get("compute_pool.timeout_min")
            pool = {"intended_state": "stopped" if o.state == "stopped" else "running",
                    "size": o.options.get("compute_pool.size", "SMALL").lower(),
                    "timeout_min": int(timeout) if timeout else None}  # fmt: skip
            return "compute_pools", base | pool
        case "function":
            function = {
                "name": o.name.partition("(")[0],
                "signature": o.name,
                "source_name": o.options.get("source.name"),
                "class_name": o.options.get("class.name"),
            }
            return "functions", base | function
        case "function_source":
            return "function_sources", base | {"language": "java"}
        case "descriptor_source":
            return "descriptor_sources", base | {"messages": o.options.get("messages")}
        case "role":
            return "roles", base | _role(access, o.name)
    return None


def _role(access: Access, role: str) -> dict[str, Any]:
    members = access.members(role)
    given = sorted(m.role for m in access.memberships if m.member == role and not m.is_user)
    return {"granted_to": json.dumps(sorted(m.member for m in members if not m.is_user)),
            "granted_roles": json.dumps(given), "member_count": sum(m.is_user for m in members)}  # fmt: skip


def _of_access(s: Snapshot) -> Iterator[tuple[str, str, tuple[str, ...], Facts]]:
    """Grants as who sees the role sees them; users' roles as who may use the organization does."""
    access = s.access
    seers = {o.name: _object_seen_by(access, o) for o in s.objects.values() if o.kind == "role"}
    for (kind, name), grants in access.grants.items():
        for g in grants:
            facts = {"role_name": g.role, "role_priv_type": g.privilege, "role_priv_target": kind,
                     "role_priv_target_name": name or None, "column_name": g.column or None,
                     "grant_option": g.grant_option, "grantor_role": g.grantor, "granted_at": g.granted_at}  # fmt: skip
            key = json.dumps((g.role, g.privilege, kind, name, g.column))
            yield "role_privileges", key, seers.get(g.role, (pg_role(g.role),)), facts
    everybody = _seen_by(access, *ORGANIZATION, "")
    for m in access.memberships:
        if m.is_user:
            facts = {"org_member_id": m.member, "user_name": m.member, "user_email": m.member, "role_name": m.role,
                     "granted_at": m.granted_at}  # fmt: skip
            yield "user_grants", json.dumps((m.member, m.role)), everybody, facts
    for (user, organization), kept in s.defaults.items():
        for key, value in kept.items():
            facts = {"org_member_id": user, "key": f"default.{key}", "value": value}
            yield "userdatas", json.dumps((user, organization, key)), everybody, facts
