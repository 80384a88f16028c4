"""Starting Spark for a pipeline, and seeing a query to its end (D6): the same on `local[*]` and on a cluster."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import heliograph
from heliograph.model.errors import ClientFault, Unavailable
from heliograph.spark import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

LEAST_JAVA: Final = 17
_HOW: Final = (
    "install one, such as `apt install openjdk-21-jre-headless` or https://adoptium.net,"
    " or name one in JAVA_HOME"
)
_POLL_SECONDS: Final = 0.2
_STARTS: Final = 5
_TOO_LATE: Final = "failed to connect back"
Tell = Callable[[str], None]


def check_java() -> None:
    """Raises ClientFault `java-missing` that says how to get it: only pipelines need Java."""
    home = os.environ.get("JAVA_HOME", "")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise ClientFault(
            f"pipelines run on Spark, which needs Java {LEAST_JAVA} or newer: {_HOW}", code="java-missing"
        )
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    if found is not None and int(found[1]) < LEAST_JAVA:
        raise ClientFault(
            f"{java} is Java {found[1]}; Spark needs {LEAST_JAVA} or newer: {_HOW}", code="java-missing"
        )


def start_spark(
    name: str, master: str = "local[*]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session that knows the source `heliograph`. Raises ClientFault where something is missing."""
    check_java()
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Workers of streaming sources see neither --py-files nor what this process imported: they get our path.
    own = str(Path(heliograph.__file__).resolve().parent.parent)
    path = os.pathsep.join(dict.fromkeys([own, *os.environ.get("PYTHONPATH", "").split(os.pathsep)])).strip(
        os.pathsep
    )
    os.environ["PYTHONPATH"] = path
    builder = (
        SparkSession.builder.appName(f"heliograph {name}")
        .master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.executorEnv.PYTHONPATH", path)
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
    )
    if master.startswith("local"):
        builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.sql.shuffle.partitions", "8")
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


def source(spark: SparkSession, options: Mapping[str, Any], *, streams: bool = True) -> DataFrame:
    """Messages of a destination."""
    reader: Any = spark.readStream if streams else spark.read
    return reader.format("heliograph").options(**{key: str(value) for key, value in options.items()}).load()


def start_query(writer: DataStreamWriter, checkpoint: Path | str, *, once: bool) -> StreamingQuery:
    writer = writer.option("checkpointLocation", str(checkpoint))
    return (
        writer.trigger(availableNow=True).start()
        if once
        else writer.trigger(processingTime="1 second").start()
    )


def run_query(
    writer: DataStreamWriter,
    checkpoint: Path | str,
    tell: Tell,
    *,
    once: bool,
    stopped: Callable[[], bool] = lambda: False,
) -> int:
    """See a query to its end, or until it is stopped. Spark gives a Python process of a source ten seconds to start,
    which is little on a busy machine: then the query is started again, and goes on where it was. Returns the rows
    that it has read. Raises Unavailable."""
    for _ in range(_STARTS - 1):
        try:
            return see_through(start_query(writer, checkpoint, once=once), tell, stopped=stopped)
        except Unavailable as failure:
            if _TOO_LATE not in failure.sentence:
                raise
            tell("a Python process of Spark did not start in time: once more")
    return see_through(start_query(writer, checkpoint, once=once), tell, stopped=stopped)


def see_through(query: StreamingQuery, tell: Tell, *, stopped: Callable[[], bool] = lambda: False) -> int:
    """Until the query ends, or is stopped; says how it goes on, and what came too late to count. Returns the rows
    that it has read. Raises Unavailable."""
    seen, rows, late = -1, 0, 0
    while True:
        is_active = query.isActive
        for progress in query.recentProgress:
            if progress["batchId"] > seen:
                seen, rows = progress["batchId"], rows + progress["numInputRows"]
                rate = progress.get("processedRowsPerSecond") or 0.0
                tell(f"batch {seen}: {progress['numInputRows']} rows ({rate:.0f}/s), {rows} in all")
                dropped = dropped_in(progress)
                if dropped:
                    late += dropped
                    tell(f"{dropped} events came too late and were dropped, {late} in all")
        if not is_active:
            break
        if stopped():
            query.stop()
        time.sleep(_POLL_SECONDS)
    failure = query.exception()
    if failure is not None:
        raise Unavailable(f"the query failed: {_reason(str(failure))}", code="pipeline-failed")
    return rows


def dropped_in(progress: Any) -> int:
    """Events of a batch that were behind the watermark when they came."""
    return sum(int(each["numRowsDroppedByWatermark"]) for each in progress["stateOperators"])


def _reason(text: str) -> str:
    """What a person can do something about, out of pages of Java."""
    ours = re.findall(r"[^\n]*\[[a-z-]+\]", text)
    return (ours[-1] if ours else text.strip().splitlines()[0])[:500]
