"""The jobs in Flink SQL, in a local mini cluster of two slots; its jars come by Maven into the cache folder."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from pgstream import config

VERSION = "2.2.0"
PARTS = ["flink-clients", "flink-table-planner_2.12", "flink-table-runtime", "flink-table-api-java-bridge",
         "flink-statebackend-rocksdb", "flink-connector-base", "flink-connector-files", "flink-json"]  # fmt: skip
OTHERS = [
    ("org.apache.flink", "flink-connector-kafka", "5.0.0-2.2"),
    ("org.apache.flink", "flink-connector-jdbc-core", "4.0.0-2.0"),
    ("org.apache.flink", "flink-connector-jdbc-postgres", "4.0.0-2.0"),
    ("org.apache.kafka", "kafka-clients", "4.1.1"),
    ("org.postgresql", "postgresql", "42.7.8"),
]
OPENS = ("lang", "util", "io", "net", "nio", "time", "util.concurrent", "util.concurrent.atomic")
SETTINGS = {
    "state.backend.type": "rocksdb",
    "execution.checkpointing.interval": "1 s",
    "execution.checkpointing.incremental": "true",
    "execution.checkpointing.storage": "filesystem",
    "table.local-time-zone": "UTC",
    "table.exec.source.idle-timeout": "2 s",
    "taskmanager.memory.managed.size": "512 mb",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "100 ms",
    "table.exec.mini-batch.size": "5000",
}
EVENTS = ("n BIGINT, ts BIGINT, k1 BIGINT, k2 BIGINT, v BIGINT, et AS TO_TIMESTAMP_LTZ(ts, 3), "
          "WATERMARK FOR et AS et - INTERVAL '5' SECOND")  # fmt: skip
COLUMNS = {
    "J1": "n BIGINT, k2 BIGINT, w BIGINT",
    "J2": "k BIGINT, w BIGINT, c BIGINT, s BIGINT, PRIMARY KEY (k, w) NOT ENFORCED",
    "J3": "k BIGINT, c BIGINT, s BIGINT, PRIMARY KEY (k) NOT ENFORCED",
    "J4": "a BIGINT, b BIGINT, k BIGINT",
}
JOBS = {
    "J1": "SELECT n, k2, v * 2 FROM ev WHERE MOD(v, 2) = 0",
    # A window that is updated as it fills, as pgstream's view is: no table function, which waits for its end.
    "J2": "SELECT k1, w, COUNT(*), SUM(v) FROM (SELECT k1, ts / 10000 * 10 AS w, v FROM ev) GROUP BY k1, w",
    "J3": "SELECT k2, COUNT(*), SUM(v) FROM ev GROUP BY k2",
    "J4": "SELECT a.n, b.n, a.k2 FROM a, b WHERE a.k2 = b.k2 AND b.et BETWEEN a.et - INTERVAL '10' SECOND "
    "AND a.et + INTERVAL '10' SECOND",
}


def _jars() -> Path:
    """The folder of Flink's jars, fetched with what they depend on once."""
    folder = config.load({}).cache / "benchmarks" / f"flink-{VERSION}"
    if (folder / "fetched").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [("org.apache.flink", part, VERSION) for part in PARTS] + OTHERS
    lines = [
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        for group, name, version in wanted
    ]
    (folder / "pom.xml").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>p</groupId><artifactId>p</artifactId><version>1</version>"
        f"<dependencies>{''.join(lines)}</dependencies></project>"
    )
    copy = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
    subprocess.run(["mvn", "-q", "-B", "-f", str(folder / "pom.xml"), copy, f"-DoutputDirectory={folder}"], check=True)
    (folder / "fetched").touch()
    return folder


def _script(a: dict[str, Any]) -> str:
    sources = [
        f"CREATE TABLE {topic} ({EVENTS}) WITH ({kafka(a['kafka'], topic, a['out'], a['position'])})"
        for topic in a["topics"]
    ]
    if a["job"] in ("J1", "J4"):
        sink = (f"'connector' = 'kafka', 'properties.bootstrap.servers' = '{a['kafka']}', 'format' = 'json', "
                f"'topic' = '{a['out']}', 'sink.delivery-guarantee' = 'at-least-once', "
                "'properties.linger.ms' = '5', 'properties.batch.size' = '131072'")  # fmt: skip
    else:
        sink = f"{jdbc(a['port'], a['password'], a['out'])}, {BATCHES}"
    return ";\n".join([*sources, f"CREATE TABLE o ({COLUMNS[a['job']]}) WITH ({sink})",
                       f"INSERT INTO o {JOBS[a['job']]}"])  # fmt: skip


def command(argument: dict[str, Any]) -> list[str]:
    return program(Path(argument["folder"]), _script(argument))


def program(folder: Path, script: str) -> list[str]:
    """What runs statements; its files are in ``folder``. It prints START before each INSERT, and waits for its end."""
    (folder / "job.sql").write_text(script)
    settings = SETTINGS | {"execution.checkpointing.dir": (folder / "checkpoints").as_uri()}
    opens = [word for package in OPENS for word in ("--add-opens", f"java.base/java.{package}=ALL-UNNAMED")]
    return ["java", *opens, "-Xmx2g", "-cp", f"{_jars()}/*", str(Path(__file__).with_name("Flink.java")),
            str(folder / "job.sql"), json.dumps(settings)]  # fmt: skip


def kafka(bootstrap: str, topic: str, group: str, position: str) -> str:
    """The options of a table over a topic of JSON records."""
    return (
        f"'connector' = 'kafka', 'properties.bootstrap.servers' = '{bootstrap}', 'format' = 'json', "
        f"'topic' = '{topic}', 'properties.group.id' = '{group}', 'scan.startup.mode' = '{position}-offset'"
    )


def jdbc(port: int, password: str, table: str) -> str:
    """The options of a table of pgstream's PostgreSQL."""
    return (
        f"'connector' = 'jdbc', 'url' = 'jdbc:postgresql://127.0.0.1:{port}/main?reWriteBatchedInserts=true', "
        f"'username' = 'pgstream', 'password' = '{password}', 'table-name' = '{table}'"
    )


BATCHES = "'sink.buffer-flush.max-rows' = '5000', 'sink.buffer-flush.interval' = '100ms'"
"""Of a sink by JDBC."""
