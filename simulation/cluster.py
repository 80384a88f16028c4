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
from simulation.cluster_weather import ClusterWeather
from simulation.holding import Holding
from simulation.in_vain import InVain
from simulation.machines import Machine, Process
from simulation.network import TAME, WILD, Oddities
from simulation.play import PORT, SETTINGS, Outcome, Play
from simulation.succession import Succession
from simulation.supervisor import Server, Supervisor
from simulation.weather import STORM, Plan, Weather

CLIENT_MANAGERS: Final = 2
# Some buses do what PROTOCOL 1 says that they can do, often; there are no cuts here, so nobody keeps a token.
_OF_THE_BUS: Final[tuple[Oddities, ...]] = (TAME, replace(WILD, token_held=0.0))
# When everything is calm, so long at most until all have the same log: longer than the patience of who catches up.
_TO_AGREE_SECONDS: Final = 45.0


class Cluster(Play):
    """Two client managers, three message managers, one sub-cluster."""

    sub_clusters: ClassVar[dict[str, int]] = {"main": 3}  # and how many message managers each has
    # How much longer senders pause than those of a single server: some runs have many messages, others more faults
    # for each of them.
    leisures: ClassVar[tuple[float, ...]] = (4.0, 16.0, 40.0)

    def servers(self) -> list[Supervisor]:
        self.leisure = self.world.dice.choice(self.leisures)
        managers = [name for name, count in self.sub_clusters.items() for _ in range(count)]
        hosts = CLIENT_MANAGERS + len(managers)
        self.bus = SimBus(self.world, hosts, self.world.dice.choice(_OF_THE_BUS))
        clients = [self._node(host, "client-manager") for host in range(1, CLIENT_MANAGERS + 1)]
        groups: dict[str, list[Supervisor]] = {name: [] for name in self.sub_clusters}
        for host, name in enumerate(managers, start=CLIENT_MANAGERS + 1):
            groups[name].append(self._node(host, "message-manager", name))
        self.holding = Holding(self.history, *groups.values())
        self.history.on_confirmed = self.holding.confirmed
        self.in_vain = InVain(self.world, self.history)
        self.succession = Succession()
        return clients + [node for group in groups.values() for node in group]

    def make_weather(self, plan: Plan) -> Weather:
        return ClusterWeather(
            self.world, self.supervisors, self.clients, self.sockets, plan, self.bus.network
        )

    def begin(self) -> None:
        super().begin()
        self.in_vain.watch(self.clients)

    def judge(self) -> list[str]:
        self._until(lambda: not self.holding.differences(), _TO_AGREE_SECONDS)
        found = self.holding.violations + self.holding.differences() + self.in_vain.violations
        return super().judge() + found + self.succession.violations

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
        return Supervisor(machine, self._server(host, configuration), host=host, role=role)

    def _server(self, host: int, configuration: Configuration) -> Callable[[Process], Server]:
        def make(process: Process) -> Server:
            self.starts += 1
            on_bus = self._on_bus(host, process, configuration)
            node = Node(configuration, on_bus, disk=process.mount, clock=process.clock)
            node.on_event = partial(self._heard, host, node)
            return node

        return make

    def _heard(self, host: int, node: Node, event: str, /, **fields: object) -> None:
        self.in_vain.heard(host, event, **fields)
        self.succession.heard(node.replica, event, **fields)

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


class Node(ClusterServer):
    """With the face that a supervisor knows. `on_event` hears what goes into the event log."""

    on_event: Callable[..., None] | None = None

    async def _start_replica(self) -> None:
        record, on_event = self._events.record, self.on_event

        def tell(event: str, /, **fields: object) -> None:
            if on_event is not None:
                on_event(event, **fields)
            record(event, **fields)

        self._events.record = tell  # type: ignore[method-assign]
        await super()._start_replica()

    async def wait_failed(self) -> HeliographError:
        return await self.failed


def run(seed: int, plan: Plan = STORM) -> Outcome:
    return Cluster(seed, plan).run()
