"""Heliograph and its peers on the same machine, in the same run, doing the same work.

`python -m benchmarks` starts every message server that it can find or install, one at a time and in turns,
gives each the same workloads through its best Python client, and writes a table, a plot and all raw figures.
Nothing here is part of the product, and nothing here is used by it.
"""
