"""PostgreSQL's options: places, types, TLS for both clients, and what its troubles mean."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from pgstream import stores
from pgstream.errors import InvalidOption, MissingOption
from pgstream.sql.cursor import Cursor
from pgstream.stores.postgresql import STORE, client, columns, values
from pgstream.stores.spec import EntityColumn, EntityInfo, OptionTable, Trouble

LOGIN = "'postgres.username' = u, 'postgres.password' = 'p w'"


def checked(text: str, table: OptionTable = STORE.options) -> dict[str, str]:
    return table.check(Cursor(text).properties())


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("db1/shop", "postgresql://db1:5432/shop"),
        ("postgres://db1:6000/shop", "postgresql://db1:6000/shop"),
        ("postgresql://[::1]/my%20db", "postgresql://[::1]:5432/my%20db"),
    ],
)
def test_uris_have_one_spelling(given: str, kept: str) -> None:
    assert checked(f"('uris' = '{given}', {LOGIN})")["uris"] == kept


@pytest.mark.parametrize("uri", ["db1", "http://db1/shop", "postgresql://u:secret@db1/shop", "a,b/shop", "db1:x/shop"])
def test_what_is_no_place_is_refused_without_being_repeated(uri: str) -> None:
    with pytest.raises(InvalidOption) as e:
        checked(f"('uris' = '{uri}', {LOGIN})")
    assert "secret" not in e.value.text + str(e.value.hint)


def test_what_is_missing_or_planned_is_said() -> None:
    with pytest.raises(MissingOption):
        checked("('postgres.username' = u, 'postgres.password' = p)")
    with pytest.raises(MissingOption, match="password"):
        client.libpq(checked("('uris' = 'db1/shop', 'postgres.username' = u)"))
    with pytest.raises(InvalidOption):
        checked("('postgresql.slot.name' = 'Not A Slot')", STORE.source_options)


def test_a_relation_names_its_table() -> None:
    options = {"uris": "postgresql://h:5432/shop"}
    assert values.entity_of({}, "users", options) == "public.users"
    named = {"postgresql.db.name": "shop", "postgresql.schema.name": "s", "postgresql.table.name": "T"}
    assert values.entity_of(named, "users", options) == "s.T"
    assert named == {}, "they are not properties of the relation beside its entity"
    listed = {values.LIST: "users, s.T,shop.s.T"}
    assert values.entity_of(listed, "all", options) == "public.users,s.T"
    assert listed == {} and values.shows("public.users,s.T") == {values.LIST: "public.users,s.T"}
    both = {values.LIST: "a,b", "postgresql.table.name": "c"}
    dotted, elsewhere = {"postgresql.table.name": "a.b"}, {"postgresql.db.name": "other"}
    for wrong in (elsewhere, dotted, {"postgresql.table.name": "a,b"}, both, {values.LIST: "a,,b"}):
        with pytest.raises(InvalidOption):
            values.entity_of(wrong, "users", options)
    assert [values.spelled(e, options) for e in ("t", "s.t", "shop.s.t")] == ["public.t", "s.t", "s.t"]


def test_tls_is_asked_of_both_clients() -> None:
    pem = "-----BEGIN CERTIFICATE-----"

    def modes(text: str) -> tuple[str, str, dict[str, Any]]:
        options = checked(f"('uris' = 'h/d', {LOGIN}{text})")
        java = client.jdbc(options)
        assert java["sslmode"] == client.libpq(options)["sslmode"]
        with client.files(options) as files:
            trusted = files.get("sslrootcert", "")
            found = Path(trusted).read_text().strip() if "/" in trusted else trusted
        assert "/" not in trusted or not Path(trusted).exists()
        return java["sslmode"], found, json.loads(java.get("sslfactoryarg", "{}"))

    assert modes("") == ("verify-full", "system", {})
    assert modes(", 'tls.disabled' = TRUE") == ("disable", "", {})
    assert modes(", 'tls.verify_server_hostname' = FALSE") == ("require", "", {"any": True})
    own = f", 'tls.ca_cert_file' = '{pem}'"
    assert modes(own) == ("verify-full", pem, {"authorities": pem})
    assert modes(own + ", 'tls.verify_server_hostname' = FALSE")[0] == "verify-ca"


def test_arrays_have_the_dimensions_that_they_were_declared_with() -> None:
    assert columns.deltastream("integer[]", 2) == "ARRAY<ARRAY<INTEGER>>"
    assert columns.deltastream("numeric(4,1)[]", 0) == "ARRAY<DECIMAL(4, 1)>"
    assert (
        columns.deltastream("bytea[]", 2**31 - 1) == "ARRAY<" * 6 + "VARBINARY" + ">" * 6
    )  # who says so is no PostgreSQL


def test_a_stream_has_the_change_as_columns() -> None:
    table = EntityInfo("public.t", columns=[EntityColumn("id", "BIGINT", False), EntityColumn('o"dd', "VARCHAR")])
    assert [(c.name, c.type) for c in columns.changes(table)] == [
        ("op", "VARCHAR"), ("ts_ms", "BIGINT"), ("before", 'STRUCT<id BIGINT, "o""dd" VARCHAR>'),
        ("after", 'STRUCT<id BIGINT, "o""dd" VARCHAR>'),
        ("source", 'STRUCT<"db" VARCHAR, "schema" VARCHAR, "table" VARCHAR, "lsn" BIGINT>'),
    ]  # fmt: skip
    several = columns.changes(EntityInfo("public.t,public.u"))
    assert [c.type for c in several if c.name in ("before", "after")] == ["VARBINARY", "VARBINARY"]


def test_troubles_say_what_to_do() -> None:
    def told(message: str) -> Trouble | None:
        return stores.trouble("postgresql", {"class": "x.TableFault", "message": message}, "s", "")

    away, lost = told("store\n58000\nConnection refused\n"), told("data\n55000\nthe slot\nBegin anew.")
    assert away is not None
    assert (away.kind, away.sqlstate) == ("store", "58000")
    assert away.message == 'could not reach store "s": connection refused'
    assert lost is not None
    assert (lost.kind, lost.sqlstate, lost.message, lost.hint) == ("data", "55000", "the slot", "Begin anew.")
    # Where rows are looked up, the store is named: a query may have several.
    looked = told("store\n58000\nConnection refused\n\nother")
    assert looked is not None and looked.message == 'could not reach store "other": connection refused'
    busy = told('store\n55006\nreplication slot "a" is active for PID 7\nAnother query reads this slot.')
    assert busy is not None and (busy.kind, busy.sqlstate, busy.hint) == (
        "store",
        "55006",
        "Another query reads this slot.",
    )
    assert busy.message == 'replication slot "a" is active for PID 7'
    # It is there, and something that passes is in the way.
    hindered = told("store\n55P03\nCanceling statement due to lock timeout\n\nother")
    assert hindered is not None and (hindered.kind, hindered.sqlstate) == ("store", "58000")
    assert hindered.message == 'store "other" could not do what was asked: canceling statement due to lock timeout'
    assert hindered.hint is not None and "locks" in hindered.hint and "uris" not in hindered.hint
    # What a view's database says is not this store's.
    assert stores.trouble("postgresql", {"class": "org.postgresql.util.PSQLException", "message": "x"}, "s", "") is None


def test_columns_are_looked_at_once() -> None:
    found = columns.given(' id  BIGINT  not  null , "a  b" TIMESTAMP(3) WITH TIME ZONE, c VARCHAR ')
    assert [(c.name, c.nullable) for c in found] == [("id", False), ("a  b", True), ("c", True)]
    began = time.monotonic()
    for text in ("a x" + " " * 100_000 + '"', "a" + " " * 100_000, "a x" + " NOT" * 30_000):
        with pytest.raises(InvalidOption):
            columns.given(text)
    assert time.monotonic() - began < 5
