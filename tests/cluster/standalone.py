"""A Spark standalone cluster on this machine: a master and workers, from the jars that PySpark brings.

``Cluster`` is started, and workers and executors of it killed, by tests. Owns: its processes and its folder.
``python -m tests.cluster.standalone COMMAND…`` runs a command whose servers' default pool is on a cluster.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyspark

from pgstream.config import Config
from pgstream.embedded.child import free_port
from pgstream.embedded.java import find_java
from tests.secure_kafka import STS_PORT, identity
from tests.server import within

SPARK_HOME = Path(pyspark.__file__).parent
HOST = "127.0.0.1"
DEPLOY = "org.apache.spark.deploy."
DEFAULTS = f"""
spark.driver.host {HOST}
spark.driver.bindAddress {HOST}
spark.executor.memory 768m
spark.executor.cores 1
spark.cores.max 2
spark.authenticate true
spark.authenticate.secret test-cluster-secret
spark.network.crypto.enabled true
"""
"""What who runs a cluster says of it: of the drivers' machine, of executors, of ways between them."""


class Cluster:
    """``url`` is its master's; ``environ`` what a server is started with whose default pool is on it."""

    def __init__(self, folder: Path, cores: int = 1) -> None:
        folder.mkdir(parents=True)
        self.folder, self.port, self._cores = folder, free_port(), cores
        self.url = f"spark://{HOST}:{self.port}"
        self.conf = folder / "conf"
        self.conf.mkdir()
        (self.conf / "spark-defaults.conf").write_text(DEFAULTS)
        self.environ = {"SPARK_CONF_DIR": str(self.conf), "PGSTREAM_SPARK_MASTER": self.url}
        self._java = find_java(Config())
        self._processes: list[subprocess.Popen[bytes]] = []
        self.workers: list[subprocess.Popen[bytes]] = []
        try:
            self._spawn("master", "master.Master", "--port", str(self.port))
            within(120, lambda: "I have been elected leader" in self.log("master"))
            for _ in range(2):
                self.add_worker()
        except BaseException:
            self.close()
            raise

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def add_worker(self) -> None:
        """One more; it has a gigabyte for each core."""
        name = f"worker{len(self.workers)}"
        size = ("--cores", str(self._cores), "--memory", f"{self._cores}g", "--work-dir", str(self.folder / name))
        self.workers.append(self._spawn(name, "worker.Worker", *size, self.url))
        within(120, lambda: "Successfully registered with master" in self.log(name))

    def _spawn(self, name: str, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        # The log's level is Spark's own, so that its words can be waited for.
        environ = {"SPARK_HOME": str(SPARK_HOME), "SPARK_CONF_DIR": str(self.conf), "SPARK_LOCAL_IP": HOST,
                   "SPARK_SCALA_VERSION": "2.13",  # as Spark's scripts say: else a worker looks for it and fails
                   "JAVA_HOME": str(self._java.parents[1])}  # fmt: skip
        command = [str(self._java), "-Xmx256m", "-cp", f"{SPARK_HOME}/jars/*", DEPLOY + program,
                   "--host", HOST, "--webui-port", "0"]  # fmt: skip
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen([*command, *arguments], env={**os.environ, **environ}, stdout=log, stderr=log)
        self._processes.append(process)
        return process

    def executors(self) -> list[psutil.Process]:
        """Those that run now, of all workers."""
        found = []
        for worker in self.workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in psutil.Process(worker.pid).children():
                    with contextlib.suppress(psutil.NoSuchProcess):
                        if any("CoarseGrainedExecutorBackend" in part for part in child.cmdline()):
                            found.append(child)
        return found

    def kill_worker(self, index: int) -> None:
        """A machine that is gone: the worker and its executors, by kill -9."""
        worker = self.workers[index]
        below = psutil.Process(worker.pid).children(recursive=True)
        worker.kill()
        for process in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        worker.wait()

    def close(self) -> None:
        for process in reversed(self._processes):
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def running(folder: Path, cores: int = 1) -> Iterator[Cluster]:
    """A cluster with two workers of so many cores each."""
    cluster = Cluster(folder, cores)
    try:
        yield cluster
    finally:
        cluster.close()


def main(command: list[str]) -> int:
    """Run a command with a cluster that servers started by it use. A pool holds its two cores for as long as it runs:
    there are those of three, for tests that start a server or two beside the one of all.
    """
    port = free_port()
    os.environ.update({STS_PORT: str(port), **identity(port)})  # executors have an AWS identity of their own
    with tempfile.TemporaryDirectory(prefix="pgsc") as folder, running(Path(folder) / "cluster", 3) as cluster:
        return subprocess.call(command, env={**os.environ, **cluster.environ})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
