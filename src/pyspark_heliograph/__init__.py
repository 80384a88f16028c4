"""Where Spark looks for data sources: `spark.read.format("heliograph")` works wherever the package is installed."""

from heliograph.spark.source import HeliographSource as DefaultSource

__all__ = ["DefaultSource"]
