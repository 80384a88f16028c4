"""Clusters of consumers that act as one, on any middleware (H1-H4).

    async with ClusteredConsumer(adapter, cluster="billing", name="billing-1", handler=handle): ...

Adapters are in modules of their own (`on_heliograph`, `on_rabbitmq`, …), which import the client of their
middleware when they connect. `docs/guides/clustered-consumers.md` shows how it is used, `docs/decisions/0021`
why it works.
"""

from heliograph.clustered.adapter import Acknowledge, Adapter, Delivery
from heliograph.clustered.consumer import ClusteredConsumer
from heliograph.clustered.events import Terms
from heliograph.clustered.ranges import Assignment, Even, Ranges, Table, Weighted
from heliograph.clustered.verifier import MessageVerifier, even, weighted
from heliograph.clustered.working import ClusteredMessage

__all__ = [
    "Acknowledge",
    "Adapter",
    "Assignment",
    "ClusteredConsumer",
    "ClusteredMessage",
    "Delivery",
    "Even",
    "MessageVerifier",
    "Ranges",
    "Table",
    "Terms",
    "Weighted",
    "even",
    "weighted",
]
