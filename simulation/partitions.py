"""A cluster on a bus that is cut, with clients on every side: production's nodes on the simulated Corosync with all
its oddities. Clients sit at desks, each beside a node or where they reach all of them, and are cut off with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from heliograph.nodes.configuration import Configuration, load
from simulation.accepting import Accepting
from simulation.bus import SimBus
from simulation.checkers import named
from simulation.cluster import Node
from simulation.holding import Holding
from simulation.machines import Machine, Process
from simulation.network import TAME, WILD, Oddities
from simulation.overhearing import Overheard
from simulation.partition_checkers import Judge, abridged
from simulation.partition_faults import PartitionWeather
from simulation.partition_plays import LAYOUT_OF, PartitionPlays
from simulation.partition_story import PartedHistory
from simulation.partition_watch import Ear, Watch, partition_of, station_of
from simulation.play import CALM_SECONDS, PORT, SETTINGS, Outcome, Play
from simulation.supervisor import Server, Supervisor
from simulation.weather import STORM, Plan

_CM, _MM, _BOTH = "client-manager", "message-manager", "both"
MAIN: Final = "main"
# Roles of the hosts, and the sub-cluster whose messages each keeps.
Layout = tuple[tuple[str, str], ...]
APART: Final[Layout] = ((_CM, MAIN),) * 3 + ((_MM, MAIN),) * 3
TOGETHER: Final[Layout] = ((_BOTH, MAIN),) * 3
MIXED: Final[Layout] = ((_BOTH, MAIN), (_BOTH, MAIN), (_CM, MAIN), (_MM, MAIN))
# The drawing of three message managers and five client managers.
FIVE: Final[Layout] = ((_CM, MAIN),) * 5 + ((_MM, MAIN),) * 3
TWO_SUB_CLUSTERS: Final[Layout] = ((_CM, "east"),) * 3 + ((_MM, "east"),) * 2 + ((_MM, "west"),) * 2
FIVE_AND_ANOTHER: Final[Layout] = ((_CM, "east"),) * 5 + ((_MM, "east"),) * 3 + ((_MM, "west"),) * 2
_BY_NAME: Final = {"apart": APART, "five": FIVE, "two sub-clusters": TWO_SUB_CLUSTERS}
_LAYOUTS: Final = (APART, APART, TOGETHER, TOGETHER, MIXED, FIVE, TWO_SUB_CLUSTERS, TWO_SUB_CLUSTERS)
# How much longer senders pause than those of a single server.
_LEISURE: Final = (8.0, 16.0, 40.0)
# What was still to happen when the storm ended has happened by then.
_AFTERMATH_SECONDS: Final = 3.0
# What is not drained in time is waited for, so as to tell what is late from what is lost.
_LATE_SECONDS: Final = 80.0
_TO_AGREE_SECONDS: Final = 45.0


class Partitions(Play):
    """One seed."""

    storm_seconds = 20.0
    history: PartedHistory
    weather: PartitionWeather
    kind_of_weather: type[PartitionWeather] = PartitionPlays

    def __init__(
        self, seed: int, plan: Plan, *, layout: Layout | None = None, oddities: Oddities | None = None
    ) -> None:
        """Without a layout, and without oddities of the bus, as the dice fall."""
        asked = next((LAYOUT_OF[kind] for kind in plan.kinds if kind in LAYOUT_OF), "")
        self._given = layout or _BY_NAME.get(asked), oddities
        super().__init__(seed, plan)

    def make_history(self) -> PartedHistory:
        return PartedHistory(self.world)

    def servers(self) -> list[Supervisor]:
        dice, (layout, oddities) = self.world.dice, self._given
        self.leisure = dice.choice(_LEISURE)
        self.layout: Layout = layout or dice.choice(_LAYOUTS)
        self.bus = SimBus(self.world, len(self.layout), oddities or dice.choice((TAME, WILD, WILD)))
        self.watch = Watch(self.world, self.history.story)
        self.starts = 0
        self.drained_after: float | None = None
        self._locations: dict[str, int] = {}  # of machines: the host that they share their wire with
        nodes = [self._node(host, *kind) for host, kind in enumerate(self.layout, start=1)]
        self.managers: dict[str, list[Supervisor]] = {}
        for node, (role, sub_cluster) in zip(nodes, self.layout, strict=True):
            if role != _CM:
                self.managers.setdefault(sub_cluster, []).append(node)
        self.holdings = [Holding(self.history, managers) for managers in self.managers.values()]
        if len(self.holdings) == 1:
            self.history.on_confirmed = self.holdings[0].confirmed
        self.accepting = Accepting(self.world, self.history, nodes, next(iter(self.managers)))
        self.sockets.reaches = self._reaches
        return nodes

    def begin(self) -> None:
        super().begin()
        if len(self.managers) == 1:
            self.accepting.watch(self.clients)

    def make_desks(self) -> list[Machine]:
        """Beside each node that clients come to, and one from where all of them are reached."""
        desks = [Machine(self.world, self.sockets, "desk")]
        for host in self._client_managers:
            desk = Machine(self.world, self.sockets, f"desk{host}")
            self._locations[desk.name] = host
            desks.append(desk)
        return desks

    def make_weather(self, plan: Plan) -> PartitionWeather:
        self.history.clients = {client.name: client for client in self.clients}
        weather = self.kind_of_weather(
            self.world,
            self.supervisors,
            self.clients,
            self.sockets,
            plan,
            network=self.bus.network,
            watch=self.watch,
            holdings=self.holdings,
        )
        weather.desks = {self._locations.get(desk.name, 0): desk for desk in self.desks}
        return weather

    @property
    def _client_managers(self) -> list[int]:
        return [host for host, (role, _) in enumerate(self.layout, start=1) if role != _MM]

    def urls(self) -> tuple[str, ...]:
        """All client managers, each of them first in one."""
        nodes = [f"node{host}:{PORT}" for host in self._client_managers]
        return tuple("helio://" + ",".join(nodes[at:] + nodes[:at]) for at in range(len(nodes)))

    def _reaches(self, one: str, other: str) -> bool:
        a, b = self._locations.get(one), self._locations.get(other)
        return a is None or b is None or a == b or self.bus.network.is_wired(a, b)

    # ---- nodes

    def _node(self, host: int, role: str, sub_cluster: str) -> Supervisor:
        machine = Machine(self.world, self.sockets, f"node{host}")
        machine.on_crash = partial(self.bus.crash, host)
        machine.on_boot = partial(self.bus.boot, host)
        self._locations[machine.name] = host
        names = sorted({name for _, name in self.layout})
        cluster = {
            "cluster.name": "sim",
            "cluster.role": role,
            "cluster.seniority": host,
            "cluster.sub_cluster": sub_cluster,
            "cluster.sub_clusters": ",".join(names) if len(names) > 1 else "",
            "cluster.message_managers": sum(
                1 for kind, name in self.layout if kind != _CM and name == sub_cluster
            ),
        }
        configuration = load(None, {**SETTINGS, **cluster, "identity.node": host})
        return Supervisor(machine, self._server(host, configuration))

    def _server(self, host: int, configuration: Configuration) -> Callable[[Process], Server]:
        def make(process: Process) -> Server:
            self.starts += 1
            on_bus = self.bus.process(host, self.starts, process.loop)
            process.at_death.append(on_bus.died)
            bus = Overheard(on_bus, partial(self._ear, host))
            return Node(configuration, bus, disk=process.mount, clock=process.clock)

        return make

    def _ear(self, host: int, channel: str) -> Ear:
        sub_cluster = channel.rpartition("/")[2]
        return self.watch.ear(
            f"node{host}", sub_cluster, lambda: station_of(self.supervisors[host - 1], sub_cluster)
        )

    def states(self, sub_cluster: str) -> dict[str, str]:
        """What nodes take their views for now, by name; those that say nothing are left out."""
        found = {}
        for supervisor in self.supervisors:
            partition = partition_of(station_of(supervisor, sub_cluster))
            if partition is not None:
                found[supervisor.machine.name] = str(partition.state)
        return found

    # ---- the end

    def calm_down(self) -> None:
        self.world.run(self.world.now + _AFTERMATH_SECONDS)
        self.weather.heal_all()
        if self.weather.with_new_disk is not None:
            self.world.run(self.world.now + _AFTERMATH_SECONDS)
            self.weather.give_up_old_disk()
        self.scene.is_sending = False
        self.outlast_turns()
        healed_at = self.world.now
        self._until(self._is_quiet, CALM_SECONDS)
        if self._is_quiet():
            self.drained_after = self.world.now - healed_at
        else:
            self._until(self._is_quiet, _LATE_SECONDS)

    def judge(self) -> list[str]:
        late = (
            []
            if self.drained_after is not None
            else named("late", [f"not drained {CALM_SECONDS:.0f} s after the last heal"])
        )
        self._until(lambda: not self._differences(), _TO_AGREE_SECONDS)
        managers = {
            name: [each.machine.name for each in managers if each is not self.weather.removed]
            for name, managers in self.managers.items()
        }
        judge = Judge(self.history, self.watch, managers)
        held = [each for holding in self.holdings for each in holding.violations]
        refused = named("accepts nothing", self.accepting.violations)
        return abridged(late + super().judge() + held + refused + self._differences() + judge.violations())

    def _differences(self) -> list[str]:
        return [each for holding in self.holdings for each in holding.differences()]

    def _judged(self) -> Outcome:
        outcome = super()._judged()
        outcome.covered = dict(sorted(self.watch.covered.items()))
        outcome.counts["views"] = len(self.watch.views)
        if outcome.violations:
            outcome.story = self.history.story.about(outcome.violations)
        return outcome


def run(seed: int, plan: Plan = STORM) -> Outcome:
    return Partitions(seed, plan).run()
