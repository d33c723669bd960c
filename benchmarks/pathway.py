"""The jobs in Pathway, installed by pip into a virtual environment of its own in the cache folder.

As a program (``python pathway.py JSON``) it runs one of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

VERSION = "0.33.0"


def command(argument: dict[str, Any]) -> list[str]:
    from pgstream import config

    place = config.load({}).cache / "benchmarks" / f"pathway-{VERSION}"
    if not (place / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        subprocess.run([str(place / "bin/pip"), "install", "-q", f"pathway=={VERSION}"], check=True)
        (place / "installed").touch()
    return ["env", "PATHWAY_THREADS=2", str(place / "bin/python"), str(Path(__file__)), json.dumps(argument)]


def main(a: dict[str, Any]) -> None:
    import pathway as pw  # type: ignore[import-not-found]

    events = pw.schema_from_types(n=int, ts=int, k1=int, k2=int, v=int)
    group = {"bootstrap.servers": a["kafka"], "group.id": a["out"], "auto.offset.reset": a["position"]}
    read = [
        pw.io.kafka.read(group | {"group.id": a["out"] + topic}, topic=topic, schema=events, format="json",
                         autocommit_duration_ms=100)
        for topic in a["topics"]
    ]  # fmt: skip
    e = read[0]
    if a["job"] == "J1":
        out = e.filter(pw.this.v % 2 == 0).select(pw.this.n, pw.this.k2, w=pw.this.v * 2)
    elif a["job"] == "J2":
        windows = e.windowby(e.ts, window=pw.temporal.tumbling(duration=10_000), instance=e.k1)
        start, key = pw.this._pw_window_start // 1000, pw.this._pw_instance
        out = windows.reduce(k=key, w=start, c=pw.reducers.count(), s=pw.reducers.sum(pw.this.v))
    elif a["job"] == "J3":
        out = e.groupby(e.k2).reduce(k=e.k2, c=pw.reducers.count(), s=pw.reducers.sum(e.v))
    else:
        other = read[1]
        within = pw.temporal.interval(-10_000, 10_000)
        joined = e.interval_join(other, e.ts, other.ts, within, e.k2 == other.k2)
        out = joined.select(a=e.n, b=other.n, k=e.k2)
    if a["job"] in ("J1", "J4"):
        producer = {"bootstrap.servers": a["kafka"], "linger.ms": "5", "batch.size": "131072",
                    "queue.buffering.max.messages": "1000000"}  # fmt: skip
        pw.io.kafka.write(out, producer, a["out"], format="json")
    else:
        place = {"host": "127.0.0.1", "port": str(a["port"]), "user": "pgstream", "password": a["password"],
                 "dbname": "main"}  # fmt: skip
        keys = [out.k, out.w] if a["job"] == "J2" else [out.k]
        pw.io.postgres.write(out, place, a["out"], output_table_type="snapshot", primary_key=keys, init_mode="default")
    print("START", flush=True)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)


if __name__ == "__main__":
    sys.path.pop(0)  # this file's folder, where ``pathway`` is this file
    main(json.loads(sys.argv[1]))
