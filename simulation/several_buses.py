"""A cluster on two buses: message managers are on both, and each client manager on one (M3)."""

from __future__ import annotations

from typing import Final

from heliograph.bus.interface import ChannelBus
from heliograph.nodes.buses import bus_for
from heliograph.nodes.configuration import Configuration
from simulation.bus import SimBus
from simulation.cluster import Cluster
from simulation.machines import Process
from simulation.network import TAME
from simulation.play import Outcome
from simulation.supervisor import Supervisor
from simulation.weather import STORM, Plan

_NAMESPACE: Final = "other"
_DESCRIPTORS: Final = 1_000_000  # more than are made on the first bus


class SeveralBuses(Cluster):
    """The first client manager is on the bus that gives the order, the second on the other."""

    def servers(self) -> list[Supervisor]:
        hosts = 2 + sum(self.sub_clusters.values())
        self.other = SimBus(self.world, hosts, TAME, descriptors=_DESCRIPTORS)
        return super().servers()

    def _on_bus(self, host: int, process: Process, configuration: Configuration) -> ChannelBus:
        def connect(namespace: str) -> ChannelBus:
            bus = self.other if namespace == _NAMESPACE else self.bus
            on_bus = bus.process(host, self.starts, process.loop)
            process.at_death.append(on_bus.died)
            return on_bus

        return bus_for(configuration.cluster, connect, process.loop.call_later)

    def _of_the_buses(self, host: int) -> dict[str, object]:
        return {
            "cluster.buses": "home, other",
            "cluster.bus_namespaces": f"other={_NAMESPACE}",
            "cluster.bus_layout": "message-managers-on-all",
            "cluster.bus": "home" if host == 1 else "other",
        }

    def _crash(self, host: int) -> None:
        super()._crash(host)
        self.other.crash(host)

    def _boot(self, host: int) -> None:
        super()._boot(host)
        self.other.boot(host)


def run(seed: int, plan: Plan = STORM) -> Outcome:
    return SeveralBuses(seed, plan).run()
