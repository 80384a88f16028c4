"""A driver that can be killed: messages of a queue, changed, to another queue. `python -m tests.spark.relay`.

It says `done` when the queue was empty, and ends.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from heliograph.spark.pipelines.running import start_spark


def start(spark: Any, url: str, mode: str, checkpoint: Path | str, rows: int) -> Any:
    """The query: everything that is there now, and no more."""
    from pyspark.sql import functions as f

    options = {
        "url": url,
        "destination": "queue:in",
        "mode": mode,
        "partitions": "2",
        "maxRowsPerTrigger": str(rows),
        "lease": "relay",
    }
    messages = spark.readStream.format("heliograph").options(**options).load()
    changed = messages.withColumn(
        "body", f.concat(f.lit("out "), f.col("body").cast("string")).cast("binary")
    )
    writer = changed.drop("destination").writeStream.format("heliograph").option("url", url)
    writer = writer.option("destination", "queue:out").option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


def main(url: str, mode: str, checkpoint: str, rows: str, master: str = "local[2]") -> None:
    settings = {"spark.sql.shuffle.partitions": "2", "spark.driver.host": "127.0.0.1"}
    settings |= {"spark.executor.memory": "600m"} if master.startswith("spark:") else {}
    spark = start_spark("relay", master, settings)
    start(spark, url, mode, checkpoint, int(rows)).awaitTermination()
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
