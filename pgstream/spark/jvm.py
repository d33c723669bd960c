"""The JVM of the worker: launched by us, with our flags and class path, and never outliving the worker.

Owns: Java's flags, the class path, the hand-over of the gateway to PySpark.
Must not know: Spark settings (``session.py``). No launcher script, no second JVM; the JVM reads its standard input
and ends at end of file, and on Linux is killed by the kernel when the worker dies.
Start reading at ``launch``.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyspark
import structlog

from pgstream import traces
from pgstream.embedded.child import LAUNCH
from pgstream.errors import EngineUnavailable
from pgstream.spark.kernel.build import kernel_jar
from pgstream.spark.settings import ARENAS, TRIM, Settings

log = structlog.get_logger(__name__)

SPARK_HOME = Path(pyspark.__file__).parent
_START_TIMEOUT_S = 90
_OPEN = (
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
    "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs",
    "sun.security.action", "sun.util.calendar",
)  # fmt: skip


_PATIENT = [
    "-XX:Tier4InvocationThreshold=50000", "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000", "-XX:Tier4BackEdgeThreshold=200000",
]  # fmt: skip
"""The second compiler begins ten times later than Java's default (5,000, 600, 15,000; 40,000): what runs for each
record gets there within a second of a backlog, what runs for each batch does not keep a core busy for minutes.
"""
_LEVEL = "level{WARN=warning,lowerCase=true}"
_PATTERNS = {
    "text": f"%d{{yyyy-MM-dd HH:mm:ss}}{{ZONE}} [%-9{_LEVEL}] %m  logger=%c{{1}}%n%xThrowable{{40}}",
    "json": f'{{"event": "%enc{{%m}}{{JSON}}", "level": "%{_LEVEL}", "logger": "%enc{{%c{{1}}}}{{JSON}}", '
    '"exception": "%enc{%xThrowable{40}}{JSON}", "timestamp": "%d{yyyy-MM-dd}{UTC}T%d{HH:mm:ss.SSS}{UTC}Z"}%n',
}
"""Log lines of the JVM, in the forms of ``pgstream.logs``."""


def flags(settings: Settings, folder: Path) -> list[str]:
    """Java's flags: Spark's own list of opened packages, a small heap, temporary files in the worker's folder."""
    out = [*TRIM, "--add-modules=jdk.incubator.vector"]
    out += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPEN]
    out += ["--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED", "--enable-native-access=ALL-UNNAMED"]
    out += ["-Djdk.reflect.useDirectMethodHandle=false", "-Dio.netty.tryReflectionSetAccessible=true"]
    memory = settings.memory_mb
    out += [f"-Xmx{memory}m", f"-Xms{memory // 2}m", "-Xss4m", "-XX:+ExitOnOutOfMemoryError", "-Xshare:auto"]
    # A heap that begins small is collected at every start and with every batch, and grows in steps, for hours, as busy
    # moments come; so is all of it collected for Spark's classes.
    out += [f"-XX:NewSize={memory // 6}m", "-XX:MetaspaceSize=192m"]
    # What is not needed any more goes back: with Java's own 70 % a heap stays as large as its busiest moment.
    out += ["-XX:MinHeapFreeRatio=30", "-XX:MaxHeapFreeRatio=50"]
    out += [
        "-XX:+UseSerialGC" if settings.memory_mb <= 2048 else "-XX:+UseParallelGC",
        "-XX:ReservedCodeCacheSize=128m",
    ]
    out += ["-XX:TieredStopAtLevel=1"] if settings.fast_start else _PATIENT
    level = {"debug": "warn", "info": "warn"}.get(settings.log_level, "error")
    out += [f"-Djava.io.tmpdir={folder}", "-Djava.awt.headless=true", "-Duser.timezone=UTC", "-Dfile.encoding=UTF-8",
            f"-Dlog4j2.configurationFile={Path(__file__).parent / 'kernel' / 'log4j2.properties'}",
            f"-Dpgstream.msk.jar={settings.msk_jar}", f"-Dpgstream.log.level={level}",
            f"-Dpgstream.log.pattern={_PATTERNS[settings.log_format].replace('ZONE', _zone())}"]  # fmt: skip
    return out


def _zone() -> str:
    """The local time zone for the JVM's log lines, whose other times are UTC: as ``GMT+02:00``."""
    minutes = time.localtime().tm_gmtoff // 60
    return f"GMT{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


def _unheard(_: str) -> None: ...


_FIRST = ("spark-core_*", "spark-sql_*", "spark-catalyst_*", "scala-library-*")
"""Before Spark's other jars: each batch asks for the bytes of classes of these (``ClosureCleaner``), and Java looks
into every jar that stands before, of which there are hundreds.
"""


def class_path(settings: Settings, report: Callable[[str], None] = _unheard) -> list[str]:
    """The kernel, compiled if need be, which ``report`` is told; Spark's jars, the connectors."""
    jars = [Path(j) for j in settings.jars]
    kernel = kernel_jar(settings.java, SPARK_HOME / "jars", jars, settings.cache, pyspark.__version__, report=report)
    spark = SPARK_HOME / "jars"
    first = [str(jar) for name in _FIRST for jar in sorted(spark.glob(f"{name}.jar"))]
    return [str(kernel), *first, str(spark / "*"), *settings.jars]


def _configuration() -> list[str]:
    """Where Hadoop and YARN say how a cluster is reached, which Spark's own launcher puts there, too."""
    return [found for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR") if (found := os.environ.get(name))]


def launch(settings: Settings, folder: Path, classes: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """Start the JVM and tell PySpark where its gateway is. ``folder`` is the worker's own, for temporary files;
    ``classes``: the flags of the class archive, to use it or to make it.
    """
    path = class_path(settings)
    program = [settings.java, *flags(settings, folder), *classes]
    places = [] if settings.in_one_jvm else _configuration()
    program += ["-cp", os.pathsep.join([*path, *places]), "org.apache.spark.deploy.SparkSubmit"]
    if not settings.in_one_jvm:
        program += ["--conf", f"spark.jars={','.join([path[0], *settings.jars])}"]
        if Path(settings.msk_jar).is_file():
            program += ["--conf", f"spark.files={settings.msk_jar}"]
    program += ["--conf", f"spark.master={settings.master}", "pyspark-shell"]
    info = folder / "gateway"
    head = [sys.executable, "-I", "-S", LAUNCH, os.getpid(), 9, -1, -1, -1, "--"]
    environ = dict(ARENAS | os.environ, _PYSPARK_DRIVER_CONN_INFO_PATH=str(info), SPARK_HOME=str(SPARK_HOME))
    for private in ("PGSTREAM_CHANNEL", "PGSTREAM_WORKER", *traces.PRIVATE):
        environ.pop(private, None)
    process = subprocess.Popen([*map(str, head), *_absolute(program)], stdin=subprocess.PIPE, env=environ)
    port, secret = _gateway(process, info)
    os.environ["PYSPARK_GATEWAY_PORT"] = str(port)
    os.environ["PYSPARK_GATEWAY_SECRET"] = secret
    return process


def _absolute(program: list[str]) -> list[str]:
    """``execv`` does not search the PATH."""
    found = shutil.which(program[0])
    if found is None:
        raise EngineUnavailable(why=f'"{program[0]}" is not a program')
    return [found, *program[1:]]


def _gateway(process: subprocess.Popen[bytes], info: Path) -> tuple[int, str]:
    """Wait until the JVM has written its port and secret."""
    deadline = time.monotonic() + _START_TIMEOUT_S
    while not info.exists():
        if process.poll() is not None:
            raise EngineUnavailable(why=f"the JVM ended with code {process.returncode} before it was up")
        if time.monotonic() > deadline:
            process.kill()
            raise EngineUnavailable(why=f"the JVM was not up within {_START_TIMEOUT_S} s")
        time.sleep(0.02)
    data = info.read_bytes()
    info.unlink()
    port, length = struct.unpack(">ii", data[:8])
    return port, data[8 : 8 + length].decode()
