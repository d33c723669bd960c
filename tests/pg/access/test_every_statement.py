"""Who may run which statement: with nothing, with some other privilege, and with exactly the one that it needs."""

from __future__ import annotations

import itertools
import uuid
from typing import Any

import psycopg
import pytest

from pgstream import statements
from pgstream.catalog.privileges import Grant
from pgstream.catalog.records import DEFAULT_ORGANIZATION, ObjectRecord, RelationRecord
from pgstream.errors import StoreUnreachable
from pgstream.names import FullName
from tests.pg.access.conftest import Ask, House, NoEngine

pytestmark = pytest.mark.pg
JAR = (
    "base64:UEsDBBQAAAAAAAAAIQAAAAAAAAAAAAAAAAAHAAAAYS5jbGFzc1BLAQIUAxQAAAAAAAAAIQAAAAAAAAAAAAAAAAAHAAAAAAAAAAAAAACAAQ"
    "AAAABhLmNsYXNzUEsFBgAAAAABAAEANQAAACUAAAAAAA=="
)
NUMBERS = itertools.count(1)
HIDDEN = {"database": "3D000", "schema": "3F000", "relation": "42P01"}
"""What is said of an object that the role may not see; of every other kind 42704."""
OTHER = {"database": ("create", "usage"), "schema": ("create", "usage"), "relation": ("insert", "select")}
"""Privileges by which an object is seen; of every other kind USAGE."""
STREAM = "WITH ('store' = {s}, 'topic' = 't', 'value.format' = 'json')"


@pytest.fixture(scope="module", autouse=True)
def exact(house: House) -> str:
    """A role that sees the schema, of ``eve``, who has no other; a store and a stream of another's."""
    with house.connect() as conn:
        conn.execute("USE ROLE useradmin")
        conn.execute("CREATE ROLE exact")
        conn.execute("CREATE ROLE extra")
    house.user("eve", "exact")
    grants = [("usage", "database", "main"), ("usage", "schema", "main.public")]
    house.run(house.catalog.authority.grant([Grant("exact", *g) for g in grants]))
    make(house, "store", "every_s")
    house.relation("every_in", store="every_s")
    return "exact"


@pytest.fixture(autouse=True)
def unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store is asked after all checks; here none answers."""

    def none(*_: Any) -> None:
        raise StoreUnreachable(name="every_s", why="there is none in this test")

    monkeypatch.setattr("pgstream.stores.open_admin", none)
    monkeypatch.setattr(NoEngine, "pool_state", lambda *_: ("stopped", ""), raising=False)


def make(house: House, kind: str, name: str) -> tuple[str, str]:
    """An object that belongs to sysadmin. Gives its name as privileges have it, and as statements have it."""
    catalog, record = house.catalog, ObjectRecord(kind, name, owner="sysadmin", created_by="admin")
    if kind in ("stream", "changelog", "table", "materialized_view"):
        made = house.relation(name, kind, store=None if kind == "materialized_view" else "every_s")
        return str(made.full), name
    if kind == "index":
        view = house.relation(f"{name}_on", "materialized_view")
        record = RelationRecord(id=str(uuid.uuid4()), full=FullName("main", "public", name), kind=kind, columns=(),
                                owner="sysadmin", properties={"on": str(view.full), "definition": "(id)"})  # fmt: skip
        return str(house.run(catalog.create_relation(record)).full), name
    if kind == "query":
        house.relation(name, "materialized_view")
        return ((id := next(q.id for q in house.run(catalog.queries()) if q.sinks[0].endswith(f".{name}"))), id)
    if kind == "store":
        house.run(catalog.create_store(name, "kafka", {"uris": "127.0.0.1:1"}, frozenset(), "sysadmin"))
    elif kind == "database":
        house.run(catalog.create_database(name, "sysadmin"))
    elif kind == "schema":
        house.run(catalog.create_schema("main", name, "sysadmin"))
        return f"main.{name}", name
    elif kind == "role":
        house.run(catalog.authority.create_role(record, (), ()))
    elif kind == "function":
        signature = {"signature": f"{name}() RETURNS BIGINT"}
        house.run(catalog.inventory.create(ObjectRecord(kind, f"{name}()", options=signature, owner="sysadmin")))
        return f"{name}()", name
    else:
        types = {"schema_registry": "CONFLUENT", "secret": "GENERIC_SECRET", "security_integration": "SCIM",
                 "metrics_integration": "PROMETHEUS"}  # fmt: skip
        options = {"uris": "http://127.0.0.1:1"} if kind == "schema_registry" else {}
        house.run(
            catalog.inventory.create(
                ObjectRecord(kind, name, types.get(kind, ""), options, owner="sysadmin", created_by="admin")
            )
        )
    return name, name


def kept(kind: str) -> str:
    """The kind as privileges have it."""
    return "relation" if kind in ("stream", "changelog", "table", "materialized_view", "index") else kind


def refused(ask: Ask, text: str) -> str | None:
    """The SQLSTATE; None when it was done."""
    try:
        ask(text, user="eve")
    except psycopg.Error as e:
        return e.sqlstate
    return None


@pytest.mark.parametrize(
    ("kind", "privilege", "text", "then"),
    [
        ("database", "usage", "USE DATABASE {o}", None),
        ("database", "create", "CREATE SCHEMA made IN DATABASE {o}", None),
        ("database", "see", "DESCRIBE DATABASE {o}", None),
        ("database", "see", "LIST SCHEMAS IN DATABASE {o}", None),
        ("database", "own", "DROP DATABASE {o}", None),
        ("database", "own", "ALTER DATABASE {o} OWNER TO extra", "42501"),  # a role that it has not got
        ("database", "own", "GRANT OWNERSHIP ON DATABASE {o} TO ROLE extra", "42501"),
        ("database", "own", "GRANT USAGE ON DATABASE {o} TO ROLE extra", None),
        ("database", "own", "REVOKE USAGE ON DATABASE {o} FROM ROLE extra", None),
        ("schema", "usage", "USE SCHEMA {o}", None),
        ("schema", "see", "DESCRIBE SCHEMA {o}", None),
        ("schema", "see", "LIST RELATIONS IN SCHEMA {o}", None),
        ("schema", "own", "COMMENT ON SCHEMA {o} IS 'mine'", None),
        ("schema", "own", "DROP SCHEMA {o}", None),
        ("stream", "select", "SELECT id FROM {o}", "58000"),
        ("stream", "select", "DESCRIBE SELECT id FROM {o}", "58000"),
        ("stream", "see", "DESCRIBE RELATION {o}", None),
        ("stream", "see", "DESCRIBE STREAM {o}", None),
        ("stream", "see", "DESCRIBE RELATION COLUMNS {o}", None),
        ("stream", "see", "DESCRIBE STREAM COLUMNS {o}", None),
        ("changelog", "see", "DESCRIBE CHANGELOG {o}", None),
        ("changelog", "see", "DESCRIBE CHANGELOG COLUMNS {o}", None),
        ("table", "see", "DESCRIBE TABLE {o}", None),
        ("table", "see", "DESCRIBE TABLE COLUMNS {o}", None),
        ("materialized_view", "see", "DESCRIBE MATERIALIZED VIEW {o}", None),
        ("materialized_view", "see", "DESCRIBE MATERIALIZED VIEW COLUMNS {o}", None),
        ("index", "own", "DROP INDEX {o}", None),
        ("schema", "own", "REINDEX SCHEMA {o}", None),
        ("materialized_view", "own", "REINDEX TABLE {o}", None),
        ("stream", "own", "DROP STREAM {o}", None),
        ("stream", "own", "DROP RELATION {o}", None),
        ("stream", "own", "ALTER RELATION {o} SET description = 'mine'", None),
        ("stream", "own", "COMMENT ON VIEW {o} IS 'mine'", None),
        ("changelog", "own", "COMMENT ON COLUMN {o}.id IS 'mine'", None),
        ("changelog", "own", "DROP CHANGELOG {o}", None),
        ("table", "own", "DROP TABLE {o}", None),
        ("materialized_view", "own", "TRUNCATE RELATION {o}", None),
        ("materialized_view", "own", "CREATE INDEX ON {o} (id)", None),
        ("materialized_view", "own", "CREATE POLICY p ON {o} USING (true)", None),
        ("materialized_view", "own", "ALTER POLICY p ON {o} USING (true)", "42704"),
        ("materialized_view", "own", "DROP POLICY p ON {o}", "42704"),
        ("materialized_view", "own", "ALTER MATERIALIZED VIEW {o} ENABLE ROW LEVEL SECURITY", None),
        ("materialized_view", "own", "DROP MATERIALIZED VIEW {o}", "2BP01"),  # its query lives
        ("store", "usage", "USE STORE {o}", None),
        ("store", "usage", "LIST ENTITIES IN STORE {o}", "58000"),
        ("store", "usage", "DESCRIBE ENTITY t IN STORE {o}", "58000"),
        ("store", "usage", "PRINT ENTITY t IN STORE {o}", "58000"),
        ("store", "usage", "CREATE ENTITY t IN STORE {o}", "58000"),
        ("store", "usage", "UPDATE ENTITY t IN STORE {o} WITH ('kafka.partitions' = 2)", "58000"),
        ("store", "usage", "DROP ENTITY t IN STORE {o}", "58000"),
        ("store", "usage", "INSERT INTO ENTITY t IN STORE {o} VALUE('{{}}')", "58000"),
        ("store", "usage", "GENERATE STREAM DDL g WITH ('store' = {o}, 'topic' = 't')", "any"),
        ("store", "usage", "GENERATE COLUMNS WITH ('store' = {o}, 'topic' = 't')", "any"),
        ("store", "see", "DESCRIBE STORE {o}", None),
        ("store", "own", "UPDATE STORE {o} WITH ('uris' = '127.0.0.1:2')", "58000"),
        ("store", "own", "DROP STORE {o}", None),
        ("query", "see", "DESCRIBE QUERY {o}", "any"),
        ("query", "see", "DESCRIBE QUERY STATE {o}", "any"),
        ("query", "see", "DESCRIBE QUERY METRICS {o}", "any"),
        ("query", "see", "DESCRIBE QUERY EVENTS {o}", "any"),
        ("query", "own", "TERMINATE QUERY {o}", "58000"),
        ("query", "own", "ALTER QUERY {o} ADD TAG 'a' = 'b'", None),
        ("query", "own", "ALTER QUERY {o} OWNER TO extra", "42501"),  # a role that it has not got
        ("query", "own", "GRANT OWNERSHIP ON QUERY {o} TO ROLE extra", "42501"),
        ("query", "own", "GRANT USAGE ON QUERY {o} TO ROLE extra", None),
        ("query", "own", "RESTART QUERY {o}", "58000"),
        ("schema_registry", "see", "DESCRIBE SCHEMA_REGISTRY {o}", None),
        ("schema_registry", "own", "UPDATE SCHEMA_REGISTRY {o} WITH ('uris' = 'http://127.0.0.1:2')", None),
        ("schema_registry", "own", "DROP SCHEMA_REGISTRY {o}", None),
        ("secret", "see", "DESCRIBE SECRET {o}", None),
        ("secret", "own", "UPDATE SECRET {o} WITH ('description' = 'x')", "any"),
        ("secret", "own", "DROP SECRET {o}", None),
        ("descriptor_source", "see", "DESCRIBE DESCRIPTOR_SOURCE {o}", None),
        ("descriptor_source", "own", "DROP DESCRIPTOR_SOURCE {o}", None),
        ("function_source", "see", "DESCRIBE FUNCTION_SOURCE {o}", None),
        ("function_source", "own", "DROP FUNCTION_SOURCE {o}", None),
        ("function", "see", "DESCRIBE FUNCTION {o} ()", None),
        ("function", "own", "DROP FUNCTION {o} ()", None),
        ("compute_pool", "usage", "USE COMPUTE_POOL {o}", None),
        ("compute_pool", "see", "DESCRIBE COMPUTE_POOL {o}", "any"),
        ("compute_pool", "own", "UPDATE COMPUTE_POOL {o} WITH ('compute_pool.size' = LARGE)", None),
        ("compute_pool", "own", "START COMPUTE_POOL {o}", "58000"),
        ("compute_pool", "own", "STOP COMPUTE_POOL {o}", "58000"),
        ("compute_pool", "own", "DROP COMPUTE_POOL {o}", "any"),
        ("role", "see", "DESCRIBE ROLE {o}", None),
        ("role", "own", "DROP ROLE {o}", None),
    ],
)  # fmt: skip
def test_on_an_object(  # noqa: PLR0917 - a table's columns
    house: House, ask: Ask, kind: str, privilege: str, text: str, then: str | None
) -> None:
    name, shown = make(house, kind, f"every_{next(NUMBERS)}")
    text, of, give = text.format(o=shown), kept(kind), house.catalog.authority
    hidden = refused(ask, text)
    assert hidden == ("42704" if kind == "index" else HIDDEN.get(of, "42704")), text
    visible = OTHER.get(of, ("usage",))
    others = [p for p in visible if p != privilege] if privilege != "see" else []
    for other in others[:1]:
        house.run(give.grant([Grant("exact", other, of, name)]))
        assert refused(ask, text) == "42501", (other, text)
        house.run(give.revoke([Grant("exact", other, of, name)]))
    if privilege == "own":
        house.run(give.give(of, name, "exact"))
    else:
        house.run(give.grant([Grant("exact", visible[0] if privilege == "see" else privilege, of, name)]))
    found = refused(ask, text)
    assert found == then or (then == "any" and found not in ("42501", HIDDEN.get(of, "42704"))), (text, found)


@pytest.mark.parametrize(
    ("privilege", "text", "then"),
    [
        ("create_database", "CREATE DATABASE {o}", None),
        ("create_store", "CREATE STORE {o} WITH ('type' = KAFKA, 'uris' = '127.0.0.1:1', 'tls.disabled' = TRUE,"
         " 'kafka.sasl.hash_function' = NONE)", "58000"),
        ("create_schema_registry", "CREATE SCHEMA_REGISTRY {o} WITH ('type' = CONFLUENT, 'uris' = 'http://x')", "any"),
        ("create_store", "CREATE SECRET {o} WITH ('type' = GENERIC_SECRET, 'secret_string' = 's')", None),
        ("create_descriptor_source", "CREATE DESCRIPTOR_SOURCE {o} WITH ('file' = 'base64:AAAA')", "any"),
        ("create_function_source", "CREATE FUNCTION_SOURCE {o} WITH ('file' = '" + JAR + "')", None),
        ("create_function", "CREATE FUNCTION {o} () RETURNS BIGINT LANGUAGE JAVA"
         " WITH ('source.name' = nope, 'class.name' = 'a.B')", "42704"),
        ("create_compute_pool", "CREATE COMPUTE_POOL {o}", None),
        ("create_query", "START SANDBOX", "any"),
        ("manage_members", "CREATE ROLE {o}", None),
        ("manage_members", "CREATE SECURITY INTEGRATION {o} WITH ('type' = SCIM)", None),
        ("manage_members", "CREATE METRICS INTEGRATION {o} WITH ('type' = PROMETHEUS)", None),
        ("manage_members", "INVITE USER '{o}' WITH ('default_role' = exact)", None),
        ("manage_members", "LIST PENDING INVITATIONS", None),
        ("manage_members", "REVOKE INVITATION 11111111-1111-4111-8111-111111111111", "42704"),
        ("manage_members", "DESCRIBE USER 'admin'", None),
        ("manage_members", "DROP USER 'nobody'", "42704"),
        ("manage_members", "ALTER USER nobody PASSWORD 'x'", "42704"),
        ("manage_members", "GRANT ROLE extra TO USER 'eve'", None),
        ("manage_members", "REVOKE ROLE extra FROM USER 'eve'", None),
        ("manage_grants", "GRANT CREATE_QUERY ON ORGANIZATION TO ROLE extra", None),
        ("manage_grants", "REVOKE CREATE_QUERY FROM ROLE extra", None),
    ],
)  # fmt: skip
def test_on_the_organization(house: House, ask: Ask, privilege: str, text: str, then: str | None) -> None:
    text, grant = text.format(o=f"every_{next(NUMBERS)}"), Grant("exact", privilege, "organization", "")
    assert refused(ask, text) == "42501"
    house.run(house.catalog.authority.grant([Grant("exact", "usage", "organization", "")]))
    assert refused(ask, text) == "42501"
    house.run(house.catalog.authority.grant([grant]))
    try:
        found = refused(ask, text)
    finally:
        house.run(house.catalog.authority.revoke([grant]))
    assert found == then or (then == "any" and found != "42501"), (text, found)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("security_integration", "DESCRIBE SECURITY INTEGRATION {o}"),
        ("security_integration", "ALTER SECURITY INTEGRATION {o} RENEW TOKEN"),
        ("security_integration", "DROP SECURITY INTEGRATION {o}"),
        ("metrics_integration", "DROP METRICS INTEGRATION {o}"),
    ],
)
def test_what_members_managers_have(house: House, ask: Ask, kind: str, text: str) -> None:
    _, shown = make(house, kind, f"every_{next(NUMBERS)}")
    text, grant = text.format(o=shown), Grant("exact", "manage_members", "organization", "")
    assert refused(ask, text) == "42704"
    house.run(house.catalog.authority.grant([grant]))
    try:
        assert refused(ask, text) is None
    finally:
        house.run(house.catalog.authority.revoke([grant]))


SELECT = ("select", "relation", "main.public.every_in")
QUERY = ("create_query", "organization", "")
PLACE = ("create", "schema", "main.public")
STORE = ("usage", "store", "every_s")


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("CREATE STREAM {o} (id BIGINT) " + STREAM, [PLACE, STORE]),
        ("CREATE CHANGELOG {o} (id BIGINT, PRIMARY KEY (id)) " + STREAM, [PLACE, STORE]),
        ("CREATE TABLE {o} (id BIGINT, PRIMARY KEY (id)) WITH ('store' = {s})", [PLACE, STORE]),
        ("CREATE STREAM {o} WITH ('store' = {s}) AS SELECT * FROM every_in", [QUERY, PLACE, SELECT, STORE]),
        ("CREATE TABLE {o} WITH ('store' = {s}) AS SELECT * FROM every_in", [QUERY, PLACE, SELECT, STORE]),
        ("CREATE CHANGELOG {o} WITH ('store' = {s}) AS SELECT id, count(*) AS n FROM every_in GROUP BY id",
         [QUERY, PLACE, SELECT, STORE]),
        ("CREATE MATERIALIZED VIEW {o} AS SELECT * FROM every_in", [QUERY, PLACE, SELECT]),
        ("CREATE OR REPLACE MATERIALIZED VIEW {o} AS SELECT * FROM every_in", [QUERY, PLACE, SELECT]),
        ("INSERT INTO every_out SELECT * FROM every_in",
         [QUERY, SELECT, ("insert", "relation", "main.public.every_out")]),
        ("INSERT INTO every_out VALUES (1)", [("insert", "relation", "main.public.every_out")]),
        ("BEGIN APPLICATION a INSERT INTO every_out SELECT * FROM every_in; END APPLICATION",
         [QUERY, SELECT, ("insert", "relation", "main.public.every_out")]),
        ("COPY FUNCTION_SOURCE every_fs TO {o}",
         [("usage", "function_source", "every_fs"), ("create_function_source", "organization", "")]),
        ("COPY DESCRIPTOR_SOURCE every_ds TO {o}",
         [("usage", "descriptor_source", "every_ds"), ("create_descriptor_source", "organization", "")]),
    ],
)  # fmt: skip
def test_each_of_several(house: House, ask: Ask, text: str, needs: list[tuple[str, str, str]]) -> None:
    """With all but one it is refused, whichever that is; with all it goes on to the store, the engine, or the end."""
    if "every_out" in text and ("main", "public", "every_out") not in house.catalog.snapshot.relations:
        house.relation("every_out", store="every_s")
    for kind, name in (("function_source", "every_fs"), ("descriptor_source", "every_ds")):
        if name in text:
            make(house, kind, name)
    text, authority = text.format(o=f"every_{next(NUMBERS)}", s="every_s"), house.catalog.authority
    grants = [Grant("exact", *need) for need in needs]
    for without in grants:
        house.run(authority.grant([g for g in grants if g is not without]))
        assert refused(ask, text) in ("42501", "42P01", "42704"), (text, without)
        house.run(authority.revoke(grants))
    house.run(authority.grant(grants))
    try:
        found = refused(ask, text)
    finally:
        house.run(authority.revoke(grants))
    assert found not in ("42501", "42P01"), (text, found)


def test_a_view_is_replaced_by_its_owner_alone(house: House, ask: Ask) -> None:
    """Who sees a view and may run queries does not make it another, nor computes it anew; who owns it does not without
    CREATE_QUERY.
    """
    full, shown = make(house, "materialized_view", f"every_{next(NUMBERS)}")
    text, authority = f"CREATE OR REPLACE MATERIALIZED VIEW {shown} AS SELECT * FROM every_in", house.catalog.authority
    repair, check = f"REPAIR MATERIALIZED VIEW {shown}", f"CHECK MATERIALIZED VIEW {shown}"
    rest = [Grant("exact", *n) for n in (QUERY, PLACE, SELECT)]
    house.run(authority.grant([*rest, Grant("exact", "select", "relation", full)]))
    assert refused(ask, text) == refused(ask, repair) == refused(ask, check) == "42501"
    try:
        house.run(authority.give("relation", full, "exact"))
        assert refused(ask, text) == "58000"  # as far as the engine, which is none here
        assert refused(ask, repair) == refused(ask, check) == "55000"  # its query has no plan here
        house.run(authority.revoke(rest[:1]))
        assert refused(ask, text) == refused(ask, repair) == refused(ask, check) == "42501"
    finally:
        house.run(authority.revoke(rest))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("database", "LIST DATABASES"), ("schema", "LIST SCHEMAS"), ("stream", "LIST RELATIONS"),
        ("stream", "LIST STREAMS"), ("changelog", "LIST CHANGELOGS"), ("materialized_view", "LIST MATERIALIZED VIEWS"),
        ("table", "LIST TABLES"), ("store", "LIST STORES"), ("schema_registry", "LIST SCHEMA_REGISTRIES"),
        ("secret", "LIST SECRETS"), ("descriptor_source", "LIST DESCRIPTOR_SOURCES"),
        ("function_source", "LIST FUNCTION_SOURCES"), ("function", "LIST FUNCTIONS"),
        ("compute_pool", "LIST COMPUTE_POOLS"), ("role", "LIST ROLES"), ("query", "LIST QUERIES"),
    ],
)  # fmt: skip
def test_lists_show_what_is_seen(house: House, ask: Ask, kind: str, text: str) -> None:
    name, shown = make(house, kind, f"every_{next(NUMBERS)}")
    of = kept(kind)

    def seen() -> bool:
        return any(shown in str(value) for row in ask(text, user="eve") for value in row)

    assert not seen()
    house.run(house.catalog.authority.grant([Grant("exact", OTHER.get(of, ("usage",))[0], of, name)]))
    assert seen()


@pytest.mark.parametrize(
    "text",
    [
        "CAN I CREATE_DATABASE", "LIST USER ROLES", "LIST USERS", "LIST API_TOKENS", "LIST ORGANIZATIONS",
        "LIST MY INVITATIONS", "LIST REGIONS", "GENERATE TEMPLATE FOR SECRET",
        "LIST INDEXES", "LIST DESCRIPTORS", "LIST POLICIES",
        "LIST METRICS INTEGRATIONS", "LIST SECURITY INTEGRATIONS", "USE ROLE exact", "USE ORGANIZATION default",
        "DESCRIBE ORGANIZATION default",
        "SET DEFAULT ROLE exact", "CREATE API_TOKEN every WITH ('token.role_name' = exact)",
        "ALTER API_TOKEN every RENEW TOKEN", "DROP API_TOKEN every",
        "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO exact",
    ],
)  # fmt: skip
def test_what_is_everybodys_own(house: House, ask: Ask, text: str) -> None:
    ask(text, user="eve")


def test_the_sandbox(house: House, ask: Ask) -> None:
    """It is a compute pool of one name: seen, and stopped, as such."""
    catalog, key = house.catalog, (DEFAULT_ORGANIZATION, "compute_pool", "sandbox")
    if key in catalog.snapshot.objects:
        house.run(catalog.inventory.drop(key))
    make(house, "compute_pool", "sandbox")
    assert refused(ask, "DESCRIBE SANDBOX") == "42704"
    assert refused(ask, "STOP SANDBOX") == "42704"
    house.run(catalog.authority.grant([Grant("exact", "usage", "compute_pool", "sandbox")]))
    assert ask("DESCRIBE SANDBOX", user="eve")
    assert refused(ask, "STOP SANDBOX") == "42501"
    house.run(catalog.authority.give("compute_pool", "sandbox", "exact"))
    assert refused(ask, "STOP SANDBOX") == "58000"


def test_every_statement_is_here_or_needs_nothing() -> None:
    """A statement that is added says here who may run it, or why that is nobody's question."""
    elsewhere = {
        "AcceptInvitation", "RejectInvitation", "CreateOrganization", "BeginApplication", "CloseCursor",
        "FetchCursor", "MoveCursor",
        "DeclareCursor", "CopyStream", "CreateTable", "DropView", "UseRole", "DescribeColumns", "DescribeStatement",
        "CreateVirtualChangelog", "CreateVirtualStream", "DescribeSandbox", "CheckMaterializedView",
        "RepairMaterializedView", "StopSandbox",
    }  # fmt: skip
    texts = [
        str(value)
        for test in (test_on_an_object, test_on_the_organization, test_what_members_managers_have,
                     test_each_of_several, test_lists_show_what_is_seen, test_what_is_everybodys_own)
        for mark in test.pytestmark  # type: ignore[attr-defined]
        for row in mark.args[1]
        for value in (row if isinstance(row, tuple) else (row,))
    ]  # fmt: skip
    missing = [
        s.__name__
        for s in statements.STATEMENTS
        if s.__name__ not in elsewhere and not any(t.startswith(" ".join(s.words)) for t in texts)
    ]
    assert missing == []
