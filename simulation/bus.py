"""SimBus: Corosync's process groups in virtual time, with every oddity they have (PROTOCOL 1), as the seed has it.

What is imitated is libcpg, the interface below `bus/corosync.py`; above it runs the bus of production with its
frames, its assembling and its flow control.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from heliograph.bus.corosync import CorosyncMembership
from heliograph.bus.cpg import Address, GroupCallbacks
from heliograph.bus.interface import INCARNATION_BYTES, Incarnation, Listener, Place, Ring
from heliograph.model.errors import Unavailable
from simulation.loop import ProcessLoop
from simulation.network import TAME, Entry, Network, Oddities
from simulation.world import SimLoop, World

_ENTERED, _LEFT, _HOST_LOST, _HOST_FOUND, _DIED = 1, 2, 3, 4, 5
# What a host takes from its processes and has not ordered yet; beyond, "try again".
_QUEUE: Final = 64
# How long a listed process that is not there stays listed, at most.
_GHOST_SECONDS: Final = 120.0


class SimBus:
    """A number of hosts with a corosync each."""

    def __init__(self, world: World, hosts: int, oddities: Oddities = TAME, *, descriptors: int = 0) -> None:
        """`descriptors`: where their numbers begin, so that a process can be on several buses."""
        self.world = world
        self.network = Network(world, hosts, oddities)
        self._descriptors = descriptors
        self._daemons: dict[int, SimDaemon] = {}
        for number in self.network.hosts:
            self.boot(number)

    def boot(self, number: int) -> None:
        self._daemons[number] = SimDaemon(self.world, self.network, number)
        self.network.boot(number, self._daemons[number])

    def crash(self, number: int) -> None:
        """The host is gone, and its processes with it."""
        self.network.crash(number)
        self._daemons.pop(number).end()

    def process(self, host: int, number: int, loop: SimLoop | ProcessLoop | None = None) -> SimProcess:
        """`loop`: of a process that does more than to be on the bus."""
        return SimProcess(self, host, number, loop or SimLoop(self.world))

    def connect(self, process: SimProcess, channel: str, callbacks: GroupCallbacks) -> SimGroup:
        daemon = self._daemons.get(process.host)
        if daemon is None:
            raise Unavailable("no corosync on this host", code="bus-unavailable")
        self._descriptors += 1
        return SimGroup(daemon, process, channel, callbacks, self._descriptors)


class SimProcess:
    """A process on a host. It enters a channel as any process does."""

    def __init__(self, bus: SimBus, host: int, number: int, loop: SimLoop | ProcessLoop) -> None:
        self.host = host
        self.number = number
        self.loop = loop
        self.groups: list[SimGroup] = []
        self._bus = bus

    def enter(self, channel: str, listener: Listener) -> CorosyncMembership:
        connect: Callable[[GroupCallbacks], SimGroup] = partial(self._bus.connect, self, channel)
        incarnation = Incarnation(self._bus.world.dice.randbytes(INCARNATION_BYTES))
        return CorosyncMembership(self.loop, listener, connect, incarnation=incarnation, process=self.number)

    def stop(self) -> None:
        """As by SIGSTOP: it stays a member and gets everything late."""
        self.loop.stop()

    def resume(self) -> None:
        self.loop.resume()

    def kill(self) -> None:
        self.loop.kill()
        self.died()

    def died(self) -> None:
        for group in self.groups:
            group.process_died()


class SimGroup:
    """A process's connection to its daemon, for one group: what `CpgHandle` is in production."""

    def __init__(
        self, daemon: SimDaemon, process: SimProcess, channel: str, callbacks: GroupCallbacks, descriptor: int
    ) -> None:
        self.place = Place(process.host, process.number)
        self.node = process.host
        self.descriptor = descriptor
        self.channel = channel
        self._daemon = daemon
        self._loop = process.loop
        self._callbacks = callbacks
        self._wake_now = (
            self._loop.readable_now if isinstance(self._loop, ProcessLoop) else self._loop.readable
        )
        self._inbox: deque[Callable[[], None]] = deque()
        self._has_joined = False
        self.is_closed = False
        process.groups.append(self)

    def join(self) -> bool:
        if not self._daemon.connect(self):
            return False  # the one before it on this place is not out yet
        self._has_joined = True
        self._daemon.say(self, "join")
        return True

    def leave(self) -> bool:
        self._has_joined = False
        self._daemon.say(self, "leave")
        return True

    def multicast(self, message: bytearray) -> bool:
        if self._daemon.is_over:
            raise Unavailable("the connection to corosync is gone", code="bus-lost")
        if self._daemon.is_full:
            return False
        self._daemon.say(self, "piece", bytes(message))
        return True

    def dispatch_one(self) -> bool:
        """False: there is no more, which the library does not know; it would have to be asked again."""
        if self._daemon.is_over:
            raise Unavailable("the connection to corosync is gone", code="bus-lost")
        inbox = self._inbox
        if not inbox:
            return False
        inbox.popleft()()
        if not inbox:
            return False
        self._loop.readable(self.descriptor)
        return True

    def take_failure(self) -> BaseException | None:
        return None

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._inbox.clear()
            if self._has_joined:
                self._daemon.say(self, "leave")

    def process_died(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._daemon.died(self)

    # ---- what the daemon tells it

    def put(self, event: Callable[[], None]) -> None:
        if not self.is_closed:
            self._inbox.append(event)
            self._loop.readable(self.descriptor)

    def deliver(self, place: Place, payload: bytes) -> None:
        """It learns that when it is woken."""
        if not self.is_closed:
            self._inbox.append(
                partial(self._callbacks.delivered, place.node, place.process, memoryview(payload))
            )

    def tell(self, members: list[Address], left: list[Address], joined: list[Address]) -> None:
        self.put(lambda: self._callbacks.group_changed(members, left, joined))

    def tell_ring(self, ring: Ring) -> None:
        self.put(lambda: self._callbacks.ring_changed(ring.node, ring.sequence))

    def wake(self, *, at_once: bool = False) -> None:
        if at_once:
            self._wake_now(self.descriptor)
        else:
            self._loop.readable(self.descriptor)


class SimDaemon:
    """The corosync of one host: which processes are in which group, as far as this host has heard."""

    def __init__(self, world: World, network: Network, number: int) -> None:
        self.is_over = False
        self._world = world
        self._network = network
        self._number = number
        self._ring = Ring(number, 0)
        self._members: dict[str, list[Place]] = {}
        self._local: dict[tuple[str, Place], SimGroup] = {}
        self._listening: dict[str, list[tuple[Place, SimGroup]]] = {}  # of each channel, until that changes
        self._to_wake: dict[SimGroup, None] = {}

    @property
    def is_full(self) -> bool:
        return len(self._network.hosts[self._number].queue) >= _QUEUE

    def connect(self, group: SimGroup) -> bool:
        """A process is in a group once at a time."""
        before = self._local.get((group.channel, group.place))
        if before is not None and before is not group:
            return False
        self._local[group.channel, group.place] = group
        self._listening.clear()
        return True

    def say(self, group: SimGroup, kind: str, payload: bytes = b"") -> None:
        if self.is_over:
            return
        known = tuple(self._members.get(group.channel, ()))
        self._network.say(self._number, Entry(self._number, kind, group.channel, group.place, payload, known))

    def died(self, group: SimGroup) -> None:
        """Its death is said to the group. Now and then that is lost, and the dead stay listed for a while."""
        if self.is_over or self._local.get((group.channel, group.place)) is not group:
            return
        if self._world.chance(self._network.oddities.ghost):
            self._world.after(self._world.between(1.0, _GHOST_SECONDS), lambda: self.say(group, "died"))
        else:
            self.say(group, "died")

    def end(self) -> None:
        self.is_over = True
        for group in self._local.values():
            group.wake()

    # ---- the ring

    def deliver(self, entry: Entry) -> None:
        if entry.kind == "join":
            self._joined(entry)
        elif entry.kind != "piece":
            self._gone(entry, _LEFT if entry.kind == "leave" else _DIED)
        elif entry.place in self._members.get(entry.channel, ()):  # nearly all of them
            listening = self._listening.get(entry.channel)
            if listening is None:
                listening = self._listening[entry.channel] = self._listeners(entry.channel)
            for place, group in listening:
                if place in entry.known or not self._world.chance(self._network.oddities.missed):
                    group.deliver(entry.place, entry.payload)
                    self._to_wake[group] = None

    def _listeners(self, channel: str) -> list[tuple[Place, SimGroup]]:
        members = self._members[channel]
        return [
            (place, group) for (of, place), group in self._local.items() if of == channel and place in members
        ]

    def wake_readers(self, *, at_once: bool) -> None:
        groups, self._to_wake = self._to_wake, {}
        for group in groups:
            group.wake(at_once=at_once)

    def _joined(self, entry: Entry) -> None:
        members = self._members.setdefault(entry.channel, [])
        if entry.place in members:
            return
        members.append(entry.place)
        members.sort()
        self._listening.clear()
        self._tell(entry.channel, [], [_address(entry.place, _ENTERED)])
        newcomer = self._local.get((entry.channel, entry.place))
        if newcomer is not None:
            newcomer.tell_ring(self._ring)

    def _gone(self, entry: Entry, reason: int) -> None:
        members = self._members.setdefault(entry.channel, [])
        if entry.place in members:
            members.remove(entry.place)
            self._tell(entry.channel, [_address(entry.place, reason)], [], entry.place)
        self._local.pop((entry.channel, entry.place), None)
        self._listening.clear()

    def _tell(
        self, channel: str, left: list[Address], joined: list[Address], also: Place | None = None
    ) -> None:
        members = self._members[channel]
        addresses = [_address(place, 0) for place in members]
        for (of, place), group in self._local.items():
            if of == channel and (place in members or place == also):
                group.tell(addresses, left, joined)

    def own_members(self, channel: str) -> list[Place]:
        return [place for place in self._members.get(channel, ()) if place.node == self._number]

    def ring_formed(self, ring: Ring, hosts: tuple[int, ...], together: tuple[int, ...]) -> None:
        self._ring = ring
        on_ring = (self._network.hosts[number].daemon for number in hosts)
        daemons = [daemon for daemon in on_ring if isinstance(daemon, SimDaemon)]
        for channel in {name: None for daemon in daemons for name in daemon._members}:
            found = [place for daemon in daemons for place in daemon.own_members(channel)]
            self._tell_ring(channel, ring, sorted(found), together)

    def _tell_ring(self, channel: str, ring: Ring, found: list[Place], together: tuple[int, ...]) -> None:
        """Whoever comes from another ring was lost, and is found again, even if nobody had noticed yet."""
        before = self._members.get(channel, [])
        staying = [place for place in before if place in found and place.node in together]
        lost = [_address(place, _HOST_LOST) for place in before if place not in staying]
        new = [_address(place, _HOST_FOUND) for place in found if place not in staying]
        if lost:
            self._members[channel] = staying
            self._tell(channel, lost, [])
        self._members[channel] = found
        self._listening.clear()
        if new:
            self._tell(channel, [], new)
        for (of, place), group in self._local.items():
            if of == channel and place in found:
                group.tell_ring(ring)


def _address(place: Place, reason: int) -> Address:
    return place.node, place.process, reason
