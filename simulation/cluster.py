"""A cluster of client managers and message managers, each a process on a machine of its own, with clients:
production's `ClusterServer` on the simulated Corosync."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar, Final

from msgspec.structs import replace

from heliograph.bus.interface import ChannelBus
from heliograph.model.errors import HeliographError
from heliograph.nodes.cluster_server import ClusterServer
from heliograph.nodes.configuration import Configuration, load
from simulation.bus import SimBus
from simulation.holding import Holding, replica_of
from simulation.machines import Machine, Process
from simulation.network import TAME, WILD, Oddities
from simulation.play import PORT, SETTINGS, Outcome, Play
from simulation.supervisor import Server, Supervisor
from simulation.weather import KINDS, STORM, Plan, Weather

CLIENT_MANAGERS: Final = 2
# How much longer senders pause than those of a single server: some runs have many messages, others more faults for
# each of them.
_LEISURE: Final = (4.0, 16.0, 40.0)
# Some buses do what PROTOCOL 1 says that they can do, often; there are no cuts here, so nobody keeps a token.
_OF_THE_BUS: Final[tuple[Oddities, ...]] = (TAME, replace(WILD, token_held=0.0))
# When everything is calm, so long at most until all have the same log: longer than the patience of who catches up.
_TO_AGREE_SECONDS: Final = 45.0


class Cluster(Play):
    """Two client managers, three message managers, one sub-cluster."""

    sub_clusters: ClassVar[dict[str, int]] = {"main": 3}  # and how many message managers each has

    def servers(self) -> list[Supervisor]:
        self.leisure = self.world.dice.choice(_LEISURE)
        managers = [name for name, count in self.sub_clusters.items() for _ in range(count)]
        hosts = CLIENT_MANAGERS + len(managers)
        self.bus = SimBus(self.world, hosts, self.world.dice.choice(_OF_THE_BUS))
        clients = [self._node(host, "client-manager") for host in range(1, CLIENT_MANAGERS + 1)]
        groups: dict[str, list[Supervisor]] = {name: [] for name in self.sub_clusters}
        for host, name in enumerate(managers, start=CLIENT_MANAGERS + 1):
            groups[name].append(self._node(host, "message-manager", name))
        self.holding = Holding(self.history, *groups.values())
        self.history.on_confirmed = self.holding.confirmed
        return clients + [node for group in groups.values() for node in group]

    def make_weather(self, plan: Plan) -> Weather:
        return ClusterWeather(self.world, self.supervisors, self.clients, self.sockets, plan)

    def judge(self) -> list[str]:
        self._until(lambda: not self.holding.differences(), _TO_AGREE_SECONDS)
        return super().judge() + self.holding.violations + self.holding.differences()

    def _node(self, host: int, role: str, sub_cluster: str = "") -> Supervisor:
        machine = Machine(self.world, self.sockets, f"node{host}")
        machine.on_crash = partial(self._crash, host)
        machine.on_boot = partial(self._boot, host)
        cluster: dict[str, object] = {
            "cluster.name": "sim",
            "cluster.role": role,
            "cluster.seniority": host,
            "cluster.message_managers": max(self.sub_clusters.values()),
        }
        if sub_cluster:
            cluster["cluster.sub_cluster"] = sub_cluster
        if len(self.sub_clusters) > 1:
            cluster["cluster.sub_clusters"] = ", ".join(self.sub_clusters)
        cluster |= self._of_the_buses(host)
        configuration = load(None, {**SETTINGS, **cluster, "identity.node": host})
        return Supervisor(machine, self._server(host, configuration))

    def _server(self, host: int, configuration: Configuration) -> Callable[[Process], Server]:
        def make(process: Process) -> Server:
            self.starts += 1
            on_bus = self._on_bus(host, process, configuration)
            return Node(configuration, on_bus, disk=process.mount, clock=process.clock, owns_process=False)

        return make

    starts = 0

    def _on_bus(self, host: int, process: Process, _configuration: Configuration) -> ChannelBus:
        on_bus = self.bus.process(host, self.starts, process.loop)
        process.at_death.append(on_bus.died)
        return on_bus

    def _of_the_buses(self, _host: int) -> dict[str, object]:
        """Settings, if there are several."""
        return {}

    def _crash(self, host: int) -> None:
        self.bus.crash(host)

    def _boot(self, host: int) -> None:
        self.bus.boot(host)

    def urls(self) -> tuple[str, ...]:
        """All client managers, each of them first in one."""
        nodes = [f"node{node}:{PORT}" for node in range(1, CLIENT_MANAGERS + 1)]
        return tuple("helio://" + ",".join(nodes[at:] + nodes[:at]) for at in range(len(nodes)))


class ClusterWeather(Weather):
    """With faults that chance alone brings about too rarely: one primary after the other is gone; clients are gone
    together with the client manager that would say so."""

    kinds = (*KINDS, "behead", "desert")

    def _desert(self) -> None:
        for client in self.dice.sample(self._clients, self.dice.randint(1, 6)):
            client.kill()
        for supervisor in self.dice.sample(
            self._supervisors[:CLIENT_MANAGERS], self.dice.randint(1, CLIENT_MANAGERS)
        ):
            if supervisor.process is not None:
                supervisor.process.kill()

    def _behead(self) -> None:
        """Whoever leads is killed, and whoever leads then, a few times in a row."""
        for count in range(self.dice.randint(1, 4)):
            self.world.after(count * self.world.between(0.05, 1.5), self._kill_who_leads)

    def _kill_who_leads(self) -> None:
        if not self._left:  # it is calm
            return
        for supervisor in self._supervisors:
            replica = replica_of(supervisor)
            if replica is not None and replica.is_leading and supervisor.process is not None:
                supervisor.process.kill()
                return


class Node(ClusterServer):
    """With the face that a supervisor knows."""

    async def wait_failed(self) -> HeliographError:
        return await self.failed


def run(seed: int, plan: Plan = STORM) -> Outcome:
    return Cluster(seed, plan).run()
