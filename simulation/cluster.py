"""A cluster of client managers and message managers, each a process on a machine of its own, with clients:
production's `ClusterServer` on the simulated Corosync."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from heliograph.model.errors import HeliographError
from heliograph.nodes.cluster_server import ClusterServer
from heliograph.nodes.configuration import Configuration, load
from simulation.bus import SimBus
from simulation.holding import Holding
from simulation.machines import Machine, Process
from simulation.play import PORT, SETTINGS, Outcome, Play
from simulation.supervisor import Server, Supervisor
from simulation.weather import STORM, Plan

_CLIENT_MANAGERS: Final = 2
_MESSAGE_MANAGERS: Final = 3
# How much longer senders pause than those of a single server: some runs have many messages, others more faults for
# each of them.
_LEISURE: Final = (4.0, 16.0, 40.0)
# When everything is calm, so long at most until all have the same log: longer than the patience of who catches up.
_TO_AGREE_SECONDS: Final = 45.0


class Cluster(Play):
    """Two client managers, three message managers, one sub-cluster, one bus without oddities."""

    def servers(self) -> list[Supervisor]:
        self.leisure = self.world.dice.choice(_LEISURE)
        roles = ["client-manager"] * _CLIENT_MANAGERS + ["message-manager"] * _MESSAGE_MANAGERS
        self.bus = SimBus(self.world, len(roles))
        nodes = [self._node(host, role) for host, role in enumerate(roles, start=1)]
        self.holding = Holding(self.history, nodes[_CLIENT_MANAGERS:])
        self.history.on_confirmed = self.holding.confirmed
        return nodes

    def judge(self) -> list[str]:
        self._until(lambda: not self.holding.differences(), _TO_AGREE_SECONDS)
        return super().judge() + self.holding.violations + self.holding.differences()

    def _node(self, host: int, role: str) -> Supervisor:
        machine = Machine(self.world, self.sockets, f"node{host}")
        machine.on_crash = partial(self.bus.crash, host)
        machine.on_boot = partial(self.bus.boot, host)
        cluster = {
            "cluster.name": "sim",
            "cluster.role": role,
            "cluster.seniority": host,
            "cluster.message_managers": _MESSAGE_MANAGERS,
        }
        configuration = load(None, {**SETTINGS, **cluster, "identity.node": host})
        return Supervisor(machine, self._server(host, configuration))

    def _server(self, host: int, configuration: Configuration) -> Callable[[Process], Server]:
        def make(process: Process) -> Server:
            self.starts += 1
            on_bus = self.bus.process(host, self.starts, process.loop)
            process.at_death.append(on_bus.died)
            return Node(configuration, on_bus, disk=process.mount, clock=process.clock, owns_process=False)

        return make

    starts = 0

    def urls(self) -> tuple[str, ...]:
        """All client managers, each of them first in one."""
        nodes = [f"node{node}:{PORT}" for node in range(1, _CLIENT_MANAGERS + 1)]
        return tuple("helio://" + ",".join(nodes[at:] + nodes[:at]) for at in range(len(nodes)))


class Node(ClusterServer):
    """With the face that a supervisor knows."""

    async def wait_failed(self) -> HeliographError:
        return await self.failed


def run(seed: int, plan: Plan = STORM) -> Outcome:
    return Cluster(seed, plan).run()
