"""Hosts on a wire that can be cut, and the rings they form: who is on one, and what order it gives.

This imitates what Corosync's totem does to its users, not how it does it. A ring has a log; a host adds to the log
what its processes said, and delivers the log up to what it has received. When the hosts of a ring no longer reach
each other, each part delivers what its members have between them and forms a new ring. So the parts of a cut deliver
different tails, and what was not in the log yet goes into that of the next ring.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Final, Protocol

import msgspec

from heliograph.bus.interface import Place, Ring
from simulation.world import World

# How long it takes until a host notices that its ring is no more, from and to, if nobody says otherwise.
_NOTICE_SECONDS: Final = (0.05, 0.6)
# How long a frame is under way, from and to: as a rule, and if it was lost first.
_USUAL: Final = (5e-5, 1e-3)
_USUAL_CHANCE: Final = 0.9
_SENT_AGAIN: Final = (0.01, 0.1)


class Entry(msgspec.Struct):
    """Something said on a ring. `known`: who was in the channel as the host saw it when it took this."""

    host: int
    kind: str  # piece · join · leave · died
    channel: str
    place: Place
    payload: bytes
    known: tuple[Place, ...]


class Daemon(Protocol):
    """What sits on a host and hears the ring: `bus.py`."""

    def deliver(self, entry: Entry) -> None: ...

    def wake_readers(self, *, at_once: bool) -> None:
        """Whoever was given something learns it. `at_once`: nobody else acts now, so it may run here."""

    def ring_formed(self, ring: Ring, hosts: tuple[int, ...], together: tuple[int, ...]) -> None:
        """`together`: hosts that were on one ring with this one until now."""


class Oddities(msgspec.Struct, frozen=True):
    """How often the bus does what PROTOCOL 1 says it can do. Zero is a bus that never does."""

    twice: float = 0.0  # several configurations back to back
    hidden: float = 0.0  # an aborted synchronisation, which hides that somebody was away
    missed: float = 0.0  # a newcomer misses what was under way before it was known
    lost_on_merge: float = 0.0  # those who just met miss the first that one says on the ring
    ghost: float = 0.0  # a process that ended stays listed and never speaks
    token_held: float = 0.0  # one part of a cut goes on ordering until it notices


TAME = Oddities()
WILD = Oddities(twice=0.2, hidden=0.15, missed=0.3, lost_on_merge=0.05, ghost=0.15, token_held=0.7)


class Host:
    """A machine. `queue` is what its processes gave it and the ring has not taken yet."""

    def __init__(self, number: int, ring: SimRing) -> None:
        self.number = number
        self.ring = ring
        self.is_up = True
        self.queue: deque[Entry] = deque()
        self.highest = ring.id.sequence  # kept on disk
        self.daemon: Daemon | None = None
        self.has_turn = False  # a turn to add to the log is under way


class SimRing:
    """One ring, its log, and how much of it each of its hosts has delivered."""

    def __init__(self, id: Ring, hosts: tuple[int, ...], *, is_told: bool = True) -> None:
        self.id = id
        self.hosts = hosts
        self.is_told = is_told
        self.log: list[Entry] = []
        self.delivered = dict.fromkeys(hosts, 0)
        self.token_at: int | None = (
            None  # after a cut: only this host and those it reaches can add to the log
        )
        self.is_broken = False
        self.losses: dict[tuple[int, int], int] = {}  # pieces of a host that another will not get


class Network:
    """All hosts. Links are directed: one way can be lost and the other not."""

    def __init__(self, world: World, hosts: int, oddities: Oddities = TAME) -> None:
        self.world = world
        self.oddities = oddities
        self._cut: dict[tuple[int, int], None] = {}
        self.hosts: dict[int, Host] = {}
        self._reforming: dict[int, None] = {}
        self._gagged: dict[int, None] = {}
        # How long each host takes until it notices that its ring is no more: from, to.
        self.notices: dict[int, tuple[float, float]] = {}
        self.rings = 0
        everybody = tuple(range(1, hosts + 1))
        for number in everybody:
            self.hosts[number] = Host(number, SimRing(Ring(number, 0), (number,)))

    # ---- what happens to it

    def cut(self, parts: Iterable[Iterable[int]]) -> None:
        """Into these parts, whatever was cut before. A host that is in none is alone."""
        part_of = {number: index for index, part in enumerate(parts) for number in part}
        self._cut = {
            (a, b): None
            for a in self.hosts
            for b in self.hosts
            if a != b and part_of.get(a, -a) != part_of.get(b, -b)
        }
        self._changed()

    def lose(self, sender: int, receiver: int) -> None:
        """One way only."""
        self._cut[sender, receiver] = None
        self._changed()

    def mend(self, ones: Iterable[int], others: Iterable[int]) -> None:
        """These reach each other again, whatever else is cut."""
        others = tuple(others)
        for a in ones:
            for b in others:
                self._cut.pop((a, b), None)
                self._cut.pop((b, a), None)
        self._changed()

    def heal(self) -> None:
        self._cut = {}
        self._changed()

    def form_again(self, number: int) -> None:
        """A new ring of the same hosts: nobody came, nobody went."""
        ring = self.hosts[number].ring
        if not ring.is_broken and ring.is_told and all(self.hosts[each].ring is ring for each in ring.hosts):
            self._form(list(ring.hosts), is_told=True)

    def gag(self, number: int) -> None:
        """Nothing that it says gets through any more, and nobody has noticed: until it loses its power."""
        self._gagged[number] = None

    def crash(self, number: int) -> None:
        host = self.hosts[number]
        self._gagged.pop(number, None)
        host.is_up = False
        host.queue.clear()
        host.daemon = None
        self._changed()

    def boot(self, number: int, daemon: Daemon) -> None:
        """A host starts alone and finds the others."""
        host = self.hosts[number]
        host.is_up, host.daemon = True, daemon
        self._form([number], is_told=True)
        self._changed()

    def reaches(self, sender: int, receiver: int) -> bool:
        if sender == receiver:
            return True
        up = self.hosts[sender].is_up and self.hosts[receiver].is_up
        return up and (sender, receiver) not in self._cut

    def is_wired(self, sender: int, receiver: int) -> bool:
        """Whether nothing is cut on the way, though one of them may have no power."""
        return (sender, receiver) not in self._cut

    @property
    def parts(self) -> list[tuple[int, ...]]:
        """Hosts that would be on a ring together if all noticed. With one-way losses a host can be in several."""
        return sorted(
            dict.fromkeys(self._neighbours(number) for number, host in self.hosts.items() if host.is_up)
        )

    @property
    def one_way(self) -> list[tuple[int, int]]:
        """From whom to whom nothing gets through, while the other way is open."""
        return [(a, b) for a, b in self._cut if (b, a) not in self._cut]

    # ---- ordering and delivering

    def say(self, number: int, entry: Entry) -> None:
        host = self.hosts[number]
        host.queue.append(entry)
        self._ask_turn(host)

    def _ask_turn(self, host: Host) -> None:
        if not host.has_turn and host.queue:
            host.has_turn = True
            self.world.after(self.world.between(1e-4, 2e-3), lambda: self._take_turn(host))

    def _take_turn(self, host: Host) -> None:
        host.has_turn = False
        ring = host.ring
        if not host.is_up or not ring.is_told or host.number in self._gagged:
            return
        if ring.is_broken and (ring.token_at is None or not self._talk(ring.token_at, host.number)):
            return  # goes on when there is a new ring
        for _ in range(min(len(host.queue), self.world.dice.randint(1, 40))):
            ring.log.append(host.queue.popleft())
        for number in ring.hosts:
            self.world.after(self._delay(host.number, number), partial(self._deliver, ring, number))
        self._ask_turn(host)

    def _delay(self, sender: int, receiver: int) -> float:
        """Now and then a packet is lost and sent again, and the cut may come first."""
        if sender == receiver:
            return 0.0
        random = self.world.dice.random  # for every frame and host, so the dice are thrown here
        low, high = _USUAL if random() < _USUAL_CHANCE else _SENT_AGAIN
        return low + (high - low) * random()

    def _talk(self, a: int, b: int) -> bool:
        return self.reaches(a, b) and self.reaches(b, a)

    def _deliver(self, ring: SimRing, number: int) -> None:
        """As far as the log can be had from those who can be heard."""
        host, log, delivered = self.hosts[number], ring.log, ring.delivered
        at = delivered[number]
        if at == len(log) or not host.is_up or host.ring is not ring:
            return
        is_whole = not ring.is_broken and not self._cut  # nobody need be asked who can be heard
        while at < len(log) and host.is_up and host.ring is ring:
            if not is_whole and not self._holder(ring, at, number):
                break
            entry = log[at]
            at = delivered[number] = at + 1
            if ring.losses or host.daemon is None:
                self._hand_over(ring, host, entry)
            else:
                host.daemon.deliver(entry)
        if host.daemon is not None:
            host.daemon.wake_readers(at_once=True)

    def _holder(self, ring: SimRing, at: int, number: int) -> bool:
        sayer = ring.log[at].host
        if self.hosts[sayer].ring is ring and self.reaches(sayer, number):
            return True
        return any(
            (ring.log[at].host == other or ring.delivered[other] > at)
            and self.hosts[other].ring is ring
            and self.reaches(other, number)
            for other in ring.hosts
        )

    def _hand_over(self, ring: SimRing, host: Host, entry: Entry) -> None:
        left = ring.losses.get((entry.host, host.number), 0) if ring.losses else 0
        if left and entry.kind == "piece":
            ring.losses[entry.host, host.number] = left - 1
            return
        assert host.daemon is not None
        host.daemon.deliver(entry)

    # ---- rings

    def _changed(self) -> None:
        """Who is no longer on a ring with exactly those it can talk to will notice."""
        for number, host in self.hosts.items():
            if not host.is_up:
                continue
            ring = host.ring
            self._retry_delivery(ring)
            if ring.hosts != self._neighbours(number):
                if not ring.is_broken:
                    ring.is_broken = True
                    held = self.world.chance(self.oddities.token_held)
                    ring.token_at = self.world.dice.choice(ring.hosts) if held else None
                self._notice(number)

    def _retry_delivery(self, ring: SimRing) -> None:
        for number in ring.hosts:
            self.world.after(1e-3, partial(self._deliver, ring, number))

    def _notice(self, number: int) -> None:
        if number not in self._reforming:
            self._reforming[number] = None
            soonest, latest = self.notices.get(number, _NOTICE_SECONDS)
            self.world.after(self.world.between(soonest, latest), lambda: self._reform(number))

    def _neighbours(self, number: int) -> tuple[int, ...]:
        """Hosts that all talk to each other, this one among them."""
        found = [number]
        for other in self.hosts:
            if other != number and all(self._talk(other, each) for each in found):
                found.append(other)
        return tuple(sorted(found))

    def _reform(self, number: int) -> None:
        self._reforming.pop(number, None)
        host = self.hosts[number]
        if not host.is_up:
            return
        neighbours = self._neighbours(number)
        if neighbours == host.ring.hosts and not host.ring.is_broken and host.ring.is_told:
            return
        odd = self.oddities
        is_told = not self.world.chance(odd.hidden)
        if self.world.chance(odd.twice):
            self._form([self.world.dice.choice(neighbours)], is_told=True)
        self._form(list(neighbours), is_told=is_told)
        if is_told and self.world.chance(odd.twice):
            self._form(list(neighbours), is_told=True)
        if not is_told:
            self._notice(number)
        self._changed()

    def _form(self, numbers: list[int], *, is_told: bool) -> None:
        """Deliver what the old rings still have for these hosts, then put them on one ring."""
        old = {number: self.hosts[number].ring for number in numbers}
        for number in numbers:
            together = [other for other in numbers if old[other] is old[number]]
            if together[0] == number:
                self._recover(old[number], together)
        sequence = max(self.hosts[number].highest for number in numbers) + 4
        ring = SimRing(Ring(min(numbers), sequence), tuple(sorted(numbers)), is_told=is_told)
        self.rings += 1
        self._plan_losses(ring, old)
        for number in ring.hosts:
            host = self.hosts[number]
            host.ring, host.highest = ring, sequence
        for number in ring.hosts:
            daemon = self.hosts[number].daemon
            # After an aborted synchronisation nobody remembers who was on the ring before.
            came_along = tuple(
                other for other in ring.hosts if old[other] is old[number] or not old[number].is_told
            )
            if daemon is not None:
                daemon.wake_readers(at_once=False)
            if daemon is not None and is_told:
                daemon.ring_formed(ring.id, ring.hosts, came_along)
            self._ask_turn(self.hosts[number])

    def _recover(self, ring: SimRing, together: list[int]) -> None:
        """Those who go on together deliver the same: all that one of them has, up to the first hole; and beyond it
        what they said themselves."""
        held = [
            any(entry.host == number or ring.delivered[number] > at for number in together)
            for at, entry in enumerate(ring.log)
        ]
        hole = held.index(False) if False in held else len(held)
        for at, entry in enumerate(ring.log):
            if at < hole or entry.host in together:
                for number in together:
                    if ring.delivered[number] <= at and self.hosts[number].is_up:
                        ring.delivered[number] = at + 1
                        self._hand_over(ring, self.hosts[number], entry)

    def _plan_losses(self, ring: SimRing, old: dict[int, SimRing]) -> None:
        for number in ring.hosts:
            for other in ring.hosts:
                met = old[number] is not old[other]
                if met and ring.is_told and self.world.chance(self.oddities.lost_on_merge):
                    ring.losses[other, number] = self.world.dice.randint(1, 3)
