"""Faults of a network on top of those of machines: cuts into any parts, one-way loss, flapping, a cut before the last
one is noticed or while parts merge, and everything off at once. In between, parts heal in any order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from heliograph.model.errors import HeliographError
from heliograph.nodes.cluster_server import ClusterServer
from heliograph.nodes.event_log import ignore
from heliograph.nodes.partition_orders import NOTHING, PartitionOrders
from simulation.clients import Client
from simulation.cuts import Cuts
from simulation.disk import SimDisk
from simulation.holding import Holding, replica_of
from simulation.machines import Machine
from simulation.network import Network
from simulation.partition_story import Story
from simulation.partition_watch import Watch
from simulation.sockets import Sockets
from simulation.supervisor import Supervisor
from simulation.weather import Plan, Weather
from simulation.world import World

CUTS: Final = (
    "cut",
    "cut_off_primary",
    "cut_twice",
    "lose",
    "flap",
    "cut_in_merge",
    "crash_in_merge",
    "regroup",
)
HEALS: Final = ("heal", "mend")
OTHERS: Final = (
    "kill",
    "kill_at_call",
    "power",
    "blackout",
    "restart_all",
    "replace_disk",
    "break",
    "client",
    "stop",
    "pause",
    "hang",
    "slow",
    "slow_disk",
    "skew",
)
_OF_NO_MACHINE: Final = ("blackout", "restart_all", "break", "client")
# A cut that nobody else ends, ends after so long: from, to.
_CUT_SECONDS: Final = (0.2, 8.0)
# How long somebody who merges is given until something happens again.
_MERGE_SECONDS: Final = (0.0, 1.0)

# How long it takes until the others are in a view without a node that was switched off.
OPERATOR_SECONDS: Final = 3.0
# How long a node is off that an operator takes for lost, and how often the others are told so meanwhile.
_OFF_SECONDS: Final = (5.0, 10.0)
_TELL_SECONDS: Final = 0.5
# When it has to be off at last, if others are to strike as well.
_BY_SECONDS: Final = 6.0
# In some seeds a node is removed, before anything else happens: by chance it happens too rarely. All other seeds go
# the way that they went before: what they showed once is worth running again only as long as they do.
_OF_SEEDS: Final = 16
_REMOVING: Final = 7
# And in some, disks are full or give back what was not written, and power fails in the middle of a write.
_WITH_BAD_DISKS: Final = 15
BAD_DISKS: Final = ("full_disk", "rot", "power_at_call")


class PartitionWeather(Weather):
    """Of a cluster on a bus."""

    kinds: tuple[str, ...] = (*CUTS, *HEALS, *OTHERS)
    desks: dict[int, Machine]  # where clients sit, by the node that is beside them; 0: all are reached

    def __init__(
        self,
        world: World,
        supervisors: list[Supervisor],
        clients: list[Client],
        sockets: Sockets,
        plan: Plan,
        *,
        network: Network,
        watch: Watch,
        holdings: list[Holding],
    ) -> None:
        super().__init__(world, supervisors, clients, sockets, plan)
        if not plan.kinds and world.seed % _OF_SEEDS == _WITH_BAD_DISKS:
            self._kinds = (*self._kinds, *BAD_DISKS)
        self._begins_with_removal = not plan.kinds and world.seed % _OF_SEEDS == _REMOVING
        cuts = [kind for kind in (plan.kinds or self.kinds) if kind in CUTS]
        if cuts and not any(kind in CUTS for kind in self._kinds):
            self._kinds = (*self._kinds, self.dice.choice(cuts))
        self._pace = world.between(0.3, 3.0)
        self.cuts = Cuts(world, network)
        self.cuts.on_changed = self._changed
        self._network = network
        self._watch = watch
        self._story: Story = watch.story
        self._holdings = holdings
        self._is_over = False
        self.desks = {}
        self.with_new_disk: Supervisor | None = None
        self.removed: Supervisor | None = None  # or about to be

    def begin(self) -> None:
        if self._begins_with_removal:
            self._begins_with_removal = not self._remove_node() and self.world.now < _BY_SECONDS
            self.world.after(_TELL_SECONDS if self._begins_with_removal else OPERATOR_SECONDS, self.begin)
        else:
            super().begin()

    def end(self) -> None:
        """What is under way still happens; nothing new does."""
        super().end()
        self._is_over = True

    def heal_all(self) -> None:
        """For good."""
        self._network.notices.clear()
        self.cuts.heal()
        for supervisor in self._supervisors:
            if supervisor.process is not None and supervisor.process.loop.is_stopped:
                supervisor.process.loop.resume()
            supervisor.start()

    def _changed(self, what: str) -> None:
        parts = " | ".join(" ".join(f"node{host}" for host in part) for part in self._network.parts)
        deaf = "".join(f", node{b} does not hear node{a}" for a, b in self._network.one_way)
        self._story.tell(f"--- the network is {what}: {parts}{deaf}")
        self.world.note("network", what, self._network.parts)

    def struck(self, kind: str) -> None:
        if kind in (*OTHERS, *BAD_DISKS):
            where = "" if kind in _OF_NO_MACHINE else f" at {self._supervisor.machine.name}"
            self._story.tell(f"--- {kind}{where}")

    # ---- cuts

    def _random_parts(self) -> list[list[int]]:
        """Any number of them, two more often than not."""
        hosts = list(self._network.hosts)
        count = 2 if self.world.chance(0.6) else self.dice.randint(2, len(hosts))
        parts: list[list[int]] = [[] for _ in range(count)]
        for host in hosts:
            self.dice.choice(parts).append(host)
        return [part for part in parts if part]

    def _cut(self) -> None:
        self._cut_into(self._random_parts())

    def _cut_into(self, parts: list[list[int]]) -> None:
        self.cuts.choose_windows(parts)
        self.cuts.cut_into(parts)
        if self.world.chance(0.7):
            end = self.cuts.heal if self.world.chance(0.6) else self.cuts.mend
            self._later(self.world.between(*_CUT_SECONDS), end)

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        def unless_over() -> None:
            if not self._is_over:
                action()

        self.world.after(seconds, unless_over)

    def _cut_off_primary(self) -> None:
        """The one that leads, with some client managers or none, from the others."""
        leading = [
            int(each.machine.name.removeprefix("node"))
            for each in self._supervisors
            if (replica := replica_of(each)) is not None and replica.is_leading
        ]
        if not leading:
            self._cut()
            return
        first = self.dice.choice(leading)
        others = [host for host in self._network.hosts if host != first]
        with_it = self.dice.sample(others, self.dice.randint(0, len(others) - 1))
        self._cut_into([[first, *with_it], [host for host in others if host not in with_it]])

    def _cut_twice(self) -> None:
        """The second before anybody, or everybody, has noticed the first."""
        self._cut_into(self._random_parts())
        self._later(self.world.between(0.0, 0.6), self._cut)

    def _lose(self) -> None:
        self.cuts.lose()
        if self.world.chance(0.8):
            self._later(self.world.between(0.2, 4.0), self.cuts.heal)

    def _flap(self) -> None:
        self.cuts.flap()

    def _heal(self) -> None:
        self.cuts.heal()

    def _mend(self) -> None:
        self.cuts.mend()

    def _cut_in_merge(self) -> None:
        self._in_merge(self._cut)

    def _crash_in_merge(self) -> None:
        """A node or its machine, or all machines, while the parts have just met."""
        self._in_merge(self.dice.choice((self._kill, self._kill_at_call, self._power, self._restart_all)))

    def _in_merge(self, action: Callable[[], None]) -> None:
        if len(self._network.parts) == 1:
            self._cut_into(self._random_parts())
            self._later(self.world.between(1.0, 4.0), partial(self._in_merge, action))
            return
        self.cuts.heal() if self.world.chance(0.7) else self.cuts.mend()
        self._watch.on_view.append(lambda: self._later(self.world.between(*_MERGE_SECONDS), action))

    def _regroup(self) -> None:
        """A new ring, and nobody came or went."""
        self._network.form_again(self.dice.choice(list(self._network.hosts)))

    # ---- machines

    def _restart_all(self) -> None:
        for supervisor in self._supervisors:
            if supervisor.process is not None:
                supervisor.process.kill()

    def _hang(self) -> None:
        """A process that stops and does not go on until it is calm."""
        process = self._supervisor.process
        if process is not None and process.is_alive:
            process.loop.stop()

    def _replace_disk(self) -> bool:
        """A node comes back with nothing. Where it had the only copy of something, that would be lost rightly: so
        only once in a run, and when all have everything. Its old disk is waited for until an operator says that it
        is lost."""
        machine = self._supervisor.machine
        if not self._may_be_missed(machine):
            return False
        self.with_new_disk = self._supervisor
        self._supervisor.power_off(self.world.between(0.05, 2.0))
        machine.disk = SimDisk(self.world)
        return True

    def _may_be_missed(self, machine: Machine) -> bool:
        """It has a message manager, nothing that the others have not, and nobody else was given up in this run."""
        if self.with_new_disk is not None or self.removed is not None:
            return False
        if not machine.is_up or replica_of(self._supervisor) is None or len(self._network.parts) > 1:
            return False
        return not any(holding.differences() for holding in self._holdings)

    def _remove_node(self) -> bool:
        """PROTOCOL 8 while the network is cut: a node without power is taken for lost, and the part that goes on is
        told to go on without it (`helio cluster remove`). It was not lost: it comes back, to whatever part it is in
        by then, and belongs to the others again when all are there."""
        managers = [each for each in self._supervisors if replica_of(each) is not None]
        if not managers:
            return False
        self._supervisor = lost = self.dice.choice(managers)
        replica = replica_of(lost)
        if replica is None or not self._may_be_missed(lost.machine):
            return False
        self.removed = lost
        self._story.tell(f"--- {lost.machine.name} has no power")
        lost.power_off(self.world.between(*_OFF_SECONDS))
        self._later(self.world.between(0.0, 1.5), self._cut)
        self._later(OPERATOR_SECONDS, partial(self._tell_to_remove, lost, replica.name))
        return True

    def _tell_to_remove(self, lost: Supervisor, name: str) -> None:
        """Whoever leads a part that is unrestricted, if there is one; sooner or later it is in force."""
        if lost.machine.is_up or self.faults.get("removed"):
            return
        for supervisor in self._supervisors:
            replica, process = replica_of(supervisor), supervisor.process
            if replica is None or process is None or len(self._network.parts) == 1:
                continue
            assert isinstance(supervisor.server, ClusterServer), "it has a message manager"
            standing = supervisor.server.own.standing
            if replica.is_leading and standing is not None and standing.partition.is_unrestricted:
                process.loop.call_soon(partial(self._removes, supervisor.server, name))
        self._later(_TELL_SECONDS, partial(self._tell_to_remove, lost, name))

    def _removes(self, server: ClusterServer, name: str) -> None:
        if _remove(server, name):
            self.faults["removed"] = 1
            self._story.tell(f"--- an operator removes {name}")

    def give_up_old_disk(self) -> None:
        """What an operator does who knows that a disk is lost: while its node is off, the others are told to go on
        without it (`helio cluster remove`); then it is started as a new one."""
        lost = self.with_new_disk
        replica = replica_of(lost) if lost is not None else None
        if lost is None or replica is None:
            return
        lost.power_off(2 * OPERATOR_SECONDS)
        self.world.run(self.world.now + OPERATOR_SECONDS)
        self._story.tell(f"--- an operator gives up the old disk of {lost.machine.name}")
        for supervisor in self._supervisors:
            server = supervisor.server
            if replica_of(supervisor) is None or supervisor.process is None:
                continue
            assert isinstance(server, ClusterServer), "it has a message manager"
            supervisor.process.loop.call_soon(partial(_remove, server, replica.name))
        self.world.run(self.world.now + 2 * OPERATOR_SECONDS)


def _remove(server: ClusterServer, name: str) -> bool:
    """Whether somebody does it."""
    assert server.replica is not None, "it has a message manager"
    try:
        done = PartitionOrders(server.own, server.replica, ignore).remove(name, by="an operator")
    except HeliographError:  # of another sub-cluster, or it does not wait for it
        return False
    return bool(done["done"] != NOTHING)
