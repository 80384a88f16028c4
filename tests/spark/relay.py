"""A driver that can be killed: messages of a queue, changed, to another queue. `python -m tests.spark.relay`.

It says `done` when the queue was empty, and ends.
"""

from __future__ import annotations

import sys

from heliograph.spark.pipelines.running import start_spark


def main(url: str, mode: str, checkpoint: str, rows: str, master: str = "local[2]") -> None:
    from pyspark.sql import functions as f

    settings = {"spark.sql.shuffle.partitions": "2", "spark.driver.host": "127.0.0.1"}
    settings |= {"spark.executor.memory": "600m"} if master.startswith("spark:") else {}
    spark = start_spark("relay", master, settings)
    options = {
        "url": url,
        "destination": "queue:in",
        "mode": mode,
        "partitions": "2",
        "maxRowsPerTrigger": rows,
        "lease": "relay",
    }
    messages = spark.readStream.format("heliograph").options(**options).load()
    changed = messages.withColumn(
        "body", f.concat(f.lit("out "), f.col("body").cast("string")).cast("binary")
    )
    writer = changed.drop("destination").writeStream.format("heliograph").option("url", url)
    writer = writer.option("destination", "queue:out").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
