"""The registry's client of the server: TLS, several URLs, answers that never end, and what errors may not show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pgstream.errors import InvalidOption, PgStreamError, RegistryUnreachable
from pgstream.formats import registry
from pgstream.formats.registry import Registry, advice
from pgstream.statements.schema_registries import OPTIONS
from tests.false_registry import LONG, client, false_registry, tls
from tests.pg.door.certificates import Authority
from tests.unit.stores.test_kafka_options import fault

DEAD = "http://127.0.0.1:9"


async def latest(uris: str, **options: str) -> str:
    async with Registry("reg", {"uris": uris, **{k.replace("__", "."): v for k, v in options.items()}}) as r:
        found = await r.latest("t-value")
        assert found is not None
        return found.text


async def why(uris: str, **options: str) -> str:
    with pytest.raises(RegistryUnreachable) as e:
        await latest(uris, **options)
    assert 'schema registry "reg"' in e.value.text
    return e.value.text


@pytest.mark.parametrize(
    "uris",
    ["http://bob:hush@h:8081", "https://a:1,http://hush@b", "bob:hush@h", "ftp://hush", "http://h:hush", "", "http://",
     "http://h/hush?", "http://h#hush"],
)  # fmt: skip
def test_urls_hold_no_credentials_and_errors_do_not_repeat_them(uris: str) -> None:
    e = fault(f"('type' = CONFLUENT, 'uris' = '{uris}')", OPTIONS)
    assert isinstance(e, InvalidOption) and e.at == 30
    assert "hush" not in f"{e.text} {e.detail} {e.hint}"


def test_credentials_in_urls_of_an_older_catalogue_are_not_shown() -> None:
    options = {"uris": "http://bob:hush@h:8081/p@th, https://b"}
    assert registry.connection(options).uris == ("http://h:8081/p@th", "https://b")
    assert "hush" not in registry.java("reg", options)


def test_a_connection_does_not_print_secrets() -> None:
    made = registry.connection({"uris": "http://h", "confluent.username": "u", "confluent.password": "hush"})
    assert made.password == "hush" and "hush" not in repr(made)


async def test_keys_of_confluent_cloud_are_sent() -> None:
    """Whatever says that it is Confluent Cloud: the row of the catalogue keeps the type apart."""
    options = {"uris": "http://h", "confluent_cloud.key": "key", "confluent_cloud.secret": "secret"}
    assert json.loads(registry.java("reg", options))["user"] == "key"
    with false_registry() as r:
        await latest(r.url, confluent_cloud__key="key", confluent_cloud__secret="secret")
        assert r.headers == ["Basic a2V5OnNlY3JldA=="]


async def test_tls_by_an_authority_of_ones_own(tmp_path: Path) -> None:
    own, other = Authority(tmp_path / "own"), Authority(tmp_path / "other", "another ca")
    root = own.root.read_text()
    with false_registry(tls(own)) as r, false_registry(tls(own, hosts=("other.host",))) as elsewhere:
        assert json.loads(await latest(f"{DEAD},{r.url}", tls__ca_cert_file=root)) == LONG
        assert "unable to get local issuer certificate" in await why(r.url, tls__ca_cert_file=other.root.read_text())
        assert "certificate" in await why(r.url)
        assert "is not valid for '127.0.0.1'" in await why(elsewhere.url, tls__ca_cert_file=root)


async def test_mutual_tls(tmp_path: Path) -> None:
    own = Authority(tmp_path / "own")
    options = {k.replace(".", "__"): v for k, v in client(own).items()}
    with false_registry(tls(own, mutual=True)) as r:
        assert json.loads(await latest(r.url, **options)) == LONG
        assert r.url in await why(r.url, tls__ca_cert_file=own.root.read_text())


@pytest.mark.parametrize(
    ("manner", "said"),
    [("endless", "more than 1 MB"), ("slow", "in time"), ("silent", "ReadTimeout|in time"), ("page", "something else"),
     ("refuses", "refuses the credentials")],
)  # fmt: skip
async def test_a_broken_registry_is_named_soon(manner: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if manner != "endless":  # which is told by its size, however slowly that comes
        monkeypatch.setattr(registry, "_URL_S", 0.3)
    monkeypatch.setattr(registry, "_LARGEST", 1 << 20)
    with false_registry() as r:
        r.manner = manner
        text = await why(r.url, confluent__username="bob", confluent__password="hush")
        assert any(word in text for word in said.split("|")) and "hush" not in text


async def test_all_that_a_schema_refers_to_is_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_LARGEST", 1 << 20)
    other = [{"name": "o", "subject": "o", "version": 1}]
    with false_registry() as r:
        r.schemas["/subjects/o/versions/1"] = {"id": 2, "schema": "x" * 300_000}
        for n in (3, 4):
            r.schemas["/subjects/t-value/versions/latest"] = {"id": 1, "schema": "{}", "references": other * n}
            if n == 3:
                assert await latest(r.url) == await latest(r.url) == "{}"
            else:
                assert "more than 1 MB" in await why(r.url)


async def test_the_hint_names_what_was_refused() -> None:
    with false_registry() as r:
        r.manner = "refuses"
        with pytest.raises(RegistryUnreachable) as refused:
            await latest(r.url, confluent__username="bob", confluent__password="hush")
    assert "'confluent.password'" in str(refused.value.hint)
    assert advice(refused.value.text) == refused.value.hint
    with pytest.raises(RegistryUnreachable) as away:
        await latest(DEAD)
    assert "'uris'" in str(away.value.hint) and "password" not in str(away.value.hint)


async def test_the_next_url_is_asked_when_one_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_URL_S", 0.3)
    with false_registry() as slow, false_registry() as r:
        slow.manner = "slow"
        assert json.loads(await latest(f"{slow.url},{r.url}")) == LONG


async def test_a_call_ends_however_much_a_schema_refers_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_CALL_S", 0.5)
    with false_registry() as r:
        loop = {"id": 1, "schema": "{}", "references": [{"subject": "t-value", "version": "latest"}] * 100}
        r.schemas["/subjects/t-value/versions/latest"] = loop
        text = await why(r.url)
        assert "within" in text or "refer to each other" in text


async def test_an_answer_without_a_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    with false_registry() as r:
        r.schemas["/subjects/t-value/versions/latest"] = {"id": "x"}
        assert "something else" in await why(r.url)


@pytest.mark.parametrize("passphrase", [None, "wrong"])
def test_a_key_that_does_not_open_is_named(tmp_path: Path, passphrase: str | None) -> None:
    options = client(Authority(tmp_path))
    options["tls.client.key_file"] = options["tls.client.key_file"].replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY")
    options |= {"tls.client.key_passphrase": passphrase} if passphrase else {}
    with pytest.raises(PgStreamError) as e:
        registry.connection({"uris": "https://h", **options})
    assert "tls.client.key" in e.value.text and "wrong" not in e.value.text
