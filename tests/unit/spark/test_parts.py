"""The worker's parts that need no JVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgstream.errors import InvalidOption
from pgstream.planner import plan as p
from pgstream.spark import checkpoints, events, settings
from pgstream.spark.jdbc import jdbc
from pgstream.spark.jvm import flags
from pgstream.spark.kernel import build
from pgstream.spark.sources import Sources, ddl
from pgstream.stores.kafka.spark import KafkaStreams, starting


def source(**kw: object) -> p.Source:
    given = {"alias": "s", "relation": "d.s.r", "kind": "stream", "store": "k", "entity": "t",
             "columns": [p.Column("Odd name", "STRUCT<a BIGINT>"), p.Column("ts", "TIMESTAMP")],
             "value_format": "JSON"}  # fmt: skip
    return p.Source(**(given | kw))  # type: ignore[arg-type]


def test_libpq_url_becomes_jdbc() -> None:
    assert jdbc("postgresql://us%40er:p%2Fw@10.0.0.1:5439/my%20db?sslmode=require") == {
        "url": "jdbc:postgresql://10.0.0.1:5439/my%20db?sslmode=require",
        "user": "us@er",
        "password": "p/w",
    }
    assert jdbc("postgresql://u@[::1]/d")["url"] == "jdbc:postgresql://[::1]:5432/d"


def test_source_columns_as_ddl() -> None:
    assert ddl(source()) == "`Odd name` struct<`a`:bigint>, `ts` timestamp_ntz"


def test_decoder_is_told_everything_in_lower_case() -> None:
    reader = Sources.__new__(Sources)
    reader.stores, reader.limits = None, {"t": {1: 7}}
    told = reader.decoder(source(kind="changelog", primary_key=["ts"], key_format="JSON", key_type="BIGINT"))
    assert (told["value"]["format"], told["key"]["format"], told["key_type"]) == ("json", "json", "bigint")
    assert told["limits"] == {"1": 7}


def test_starting_positions() -> None:
    def at(position: str) -> dict[str, str]:
        return starting(position, lambda: ("t", 3))

    assert at("earliest") == {"startingOffsets": "earliest"}
    assert at("timestamp:17")["startingTimestamp"] == "17"
    assert at("offset:2:5,0:17") == {"startingOffsets": '{"t": {"0": 17, "1": -2, "2": 5}}'}
    assert at("earliest:0:17,1:0,2:5") == {"startingOffsets": '{"t": {"0": 17, "1": 0, "2": 5}}'}
    with pytest.raises(InvalidOption) as e:
        at("offset:3:1")
    assert "has no partition 3" in e.value.text


def test_sources_read_committed_records_only() -> None:
    consumer = KafkaStreams().consumer({"uris": "b:1", "tls.disabled": "true"}, {"kafka.consumer.client.id": "me"})
    assert consumer["isolation.level"] == "read_committed"
    assert (consumer["bootstrap.servers"], consumer["client.id"]) == ("b:1", "me")
    patient = KafkaStreams().consumer(
        {"uris": "b:1", "tls.disabled": "true"}, {"kafka.consumer.request.timeout.ms": "30000"}
    )
    assert (patient["request.timeout.ms"], patient.get("default.api.timeout.ms")) == ("30000", None)


def test_settings_of_both_clients_reach_the_one_that_knows_them() -> None:
    store = {"uris": "b:1", "tls.disabled": "true"}
    given = {"kafka.properties.linger.ms": "5", "kafka.properties.request.timeout.ms": "60000",
             "kafka.properties.client.id": "both", "kafka.producer.client.id": "mine"}  # fmt: skip
    own = KafkaStreams().producer(store, {})
    assert KafkaStreams().producer(store, given) == own | {
        "linger.ms": "5", "request.timeout.ms": "60000", "client.id": "mine"
    }  # fmt: skip
    consumer = KafkaStreams().consumer(store, given)
    assert (consumer["request.timeout.ms"], consumer["client.id"]) == ("60000", "both")
    assert "linger.ms" not in consumer and "default.api.timeout.ms" not in consumer


def test_lag_is_added_up_over_partitions() -> None:
    told = {"type": "progress", "query": "q", "batch": 3, "rows_in": 5, "rows_out": 4, "rows_per_s": 10.04,
            "batch_ms": 12, "state_rows": 0, "state_bytes": 0, "late_rows": 0, "bad_records": 0,
            "watermark": "1970-01-01T00:00:00.000Z", "began": "2026-01-01T00:00:00.000Z", "totals": {"batches": 3},
            "sources": [{"description": "KafkaV2[Subscribe[t]]", "end": '{"t":{"0":5,"1":2}}',
                         "latest": '{"t":{"0":9,"1":3}}', "rows_in": 5}]}  # fmt: skip
    progress = events.progress(told, [[source()]])
    figures = {"offset": {"0": 5, "1": 2}, "latest": {"0": 9, "1": 3}, "lag": 5, "rows_in": 5}
    assert progress.sources == {"d.s.r": figures}
    assert progress.watermark is None
    assert not progress.caught_up and progress.totals == {"batches": 3}


@pytest.mark.parametrize(
    ("end", "latest", "caught_up"),
    [
        ('{"t":{"0":5}}', '{"t":{"0":5}}', True),
        ('{"t":{"0":5}}', '{"t":{"0":6}}', False),
        ('{"t":{"0":5}}', '{"t":{"0":5,"1":1}}', False),  # a partition that it has not seen
        ('{"t":{"0":"49z"}}', '{"t":{"0":"49z"}}', True),  # places that are not counted
        ('{"t":{"0":"49y"}}', '{"t":{"0":"49z"}}', False),
        ('{"t":{"0":5}}', None, True),  # it tells no end
    ],
)
def test_a_batch_that_took_all_there_was(end: str, latest: str | None, caught_up: bool) -> None:
    assert events._is_read({"end": end, "latest": latest}) is caught_up


def test_progress_before_the_first_offset() -> None:
    assert events._offsets(None) == {} and events._offsets("null") == {}


def test_blank_newest_files_are_removed(tmp_path: Path) -> None:
    for name, content in {"offsets/0": b"v1", "offsets/1": b"", "commits/0": b"v1", "commits/10": b"\0" * 20,
                          "commits/9": b"v1", "state/0/1/2.changelog": b"", "state/0/1/1.changelog": b"x",
                          "metadata": b""}.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    removed = {str(f.relative_to(tmp_path)) for f in checkpoints.repair(str(tmp_path))}
    assert removed == {"offsets/1", "commits/10", "state/0/1/2.changelog"}
    assert checkpoints.repair(f"file://{tmp_path}") == []
    assert checkpoints.repair("s3a://bucket/x") == []


def test_damaged_files_come_back_from_their_copies(tmp_path: Path) -> None:
    whole = {"offsets/6": b"v1\n{}", "commits/5": b"v1", "sources/0/0": b"v1\n{}", "metadata": b"{}",
             "state/0/0/6.changelog": b"LZ4Block", "state/0/1/6.changelog": b"LZ4Block"}  # fmt: skip
    damage = {"offsets/6": b"", "sources/0/0": b"\0" * 5, "state/0/0/6.changelog": b"LZ4" + b"\0" * 5, "metadata": b"{"}
    for name, content in whole.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(damage.get(name, content))
        (file.parent / f".{file.name}.copy").write_bytes(content)
    # The copy is not synced: it may be the one that is lost.
    (tmp_path / "commits" / ".5.copy").write_bytes(b"\0\0")
    # What a killed worker left, and a copy whose file is gone.
    for name in ("offsets/.7.a-b.tmp", "offsets/.7.a-b.tmp.copy", "offsets/.3.copy", "state/0/0/.7.changelog.c.tmp"):
        (tmp_path / name).write_bytes(b"v1")
    assert {str(f.relative_to(tmp_path)) for f in checkpoints.repair(str(tmp_path))} == set(damage)
    assert {n: (tmp_path / n).read_bytes() for n in whole} == whole
    left = {str(f.relative_to(tmp_path)) for f in tmp_path.rglob("*") if f.is_file()}
    assert left == whole.keys() | {str(Path(n).parent / f".{Path(n).name}.copy") for n in whole}
    assert checkpoints.repair(str(tmp_path)) == []


def test_kernel_is_compiled_again_when_anything_changes(tmp_path: Path) -> None:
    a = tmp_path / "A.scala"
    a.write_text("object A")
    first = build.fingerprint([a], [Path("x-1.jar")], "4.1.4")
    assert first == build.fingerprint([a], [Path("/other/x-1.jar")], "4.1.4")
    assert first != build.fingerprint([a], [Path("x-2.jar")], "4.1.4")
    a.write_text("object B")
    assert first != build.fingerprint([a], [Path("x-1.jar")], "4.1.4")


def test_settings_of_a_newer_server_are_read() -> None:
    read = settings.load('{"java": "/j", "memory_mb": 512, "invented_later": 1}')
    assert (read.java, read.memory_mb, read.trigger_ms) == ("/j", 512, 100)


def test_flags_bound_the_heap_and_keep_sparks_openings(tmp_path: Path) -> None:
    given = flags(settings.Settings(memory_mb=512, fast_start=True), tmp_path)
    bounds = {"-Xms256m", "-Xmx512m", "-XX:MaxHeapFreeRatio=50"}
    assert {*bounds, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"} <= set(given)
    assert "--add-opens=java.base/java.nio=ALL-UNNAMED" in given


def test_walk_visits_inputs_first() -> None:
    a, b = source(), source(entity="u")
    joined = p.IntervalJoin(a, b, "inner", 1, p.Expr("", "`x`"), p.Expr("", "`y`"))
    top = p.Filter(joined, p.Expr("", "true"))
    assert p.walk(top) == [a, b, joined, top]


def test_which_masters_run_tasks_in_the_drivers_process() -> None:
    others = ("local-cluster[2,1,512]", "spark://h:7077", "yarn", "k8s://https://h:443")
    assert not any(settings.Settings(master=m).in_one_jvm for m in others)
    assert all(settings.Settings(master=m).in_one_jvm for m in ("local", "local[2]", "local[*]", "local[2,4]"))
