"""A cluster of two sub-clusters, with transactions over both, and a subscriber to topics of both."""

from __future__ import annotations

from typing import ClassVar

from heliograph.model.limits import TRANSACTION_PATIENCE_SECONDS
from simulation.clients import Client, Receiving, Sending, Transacting, Watching
from simulation.cluster import Cluster
from simulation.play import Outcome
from simulation.weather import STORM, Plan

# Whoever makes a destination gives it to the sub-cluster that has the fewest: of many, each has some.
_TOPICS = ("topic:wide.north", "topic:wide.south", "topic:wide.far")


class SubClusters(Cluster):
    """Two client managers; two message managers in the east, and two in the west."""

    sub_clusters: ClassVar[dict[str, int]] = {"east": 2, "west": 2}
    leisures: ClassVar[tuple[float, ...]] = (16.0, 40.0)
    calm_seconds = 2 * TRANSACTION_PATIENCE_SECONDS  # a transaction in doubt takes its time

    def _cast(self) -> list[Client]:
        return super()._cast() + self._brokers() + self._audience()

    def _brokers(self) -> list[Client]:
        """Who takes from several queues and sends to several, in transactions."""
        scene, machine, dice = self.scene, self._desk(), self.world.dice
        sources = ("queue:orders", "queue:offers", "queue:claims")
        targets = ("queue:bought", "queue:sold", "queue:paid")
        modes = ("individual", "client", "auto")
        return [
            Transacting(scene, machine, "broker", sources, targets),
            Transacting(scene, machine, "dealer", sources, targets),
            *(
                Receiving(scene, machine, name.removeprefix("queue:"), name, mode=dice.choice(modes))
                for name in targets
            ),
            *(Sending(scene, machine, f"to-{name.removeprefix('queue:')}", name) for name in sources),
        ]

    def _audience(self) -> list[Client]:
        scene, machine, pattern = self.scene, self._desk(), "topic:glob:wide.*"
        self.history.subscriptions.update({topic: [] for topic in _TOPICS})
        self.history.audiences.update({topic: [pattern] for topic in _TOPICS})
        return [
            Watching(scene, machine, "watcher", pattern, mode="auto"),
            *(Sending(scene, machine, topic.removeprefix("topic:"), topic) for topic in _TOPICS),
        ]


def run(seed: int, plan: Plan = STORM) -> Outcome:
    return SubClusters(seed, plan).run()
