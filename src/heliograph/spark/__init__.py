"""Spark reads and writes Heliograph (D1–D6): the data source `heliograph`, and pipelines built on it.

    import heliograph.spark
    heliograph.spark.register(spark)
    orders = spark.readStream.format("heliograph").option("destination", "queue:orders").load()

Where the package is installed, Spark finds the source by itself. How it works: docs/decisions/0024.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make the format `heliograph` known to a Spark session."""
    from heliograph.spark.source import HeliographSource

    spark.dataSource.register(HeliographSource)


def _register_with_active_session() -> None:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return
    session = SparkSession.getActiveSession()
    if session is not None:
        register(session)


_register_with_active_session()
