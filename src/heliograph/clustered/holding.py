"""What a member holds: every message that is not done, whoever's it is. An engine: no clock, no I/O.

A message comes in once, is begun by its owner, and leaves when the word `Done` is heard, by its owner like everybody
else: then its copy is acknowledged. Whoever takes over a range begins with what it holds of it, in the order of
arrival. The ids of what is done are remembered for a while, because a copy may come after the word.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from heliograph.clustered.adapter import Delivery
from heliograph.clustered.ranges import Ranges
from heliograph.model import limits


@dataclass(slots=True)
class Held:
    """One message that is not done."""

    delivery: Delivery
    value: int
    arrived: float
    is_begun: bool = False
    is_finished: bool = False
    asked: float = 0.0
    pause: float = limits.CLUSTERED_ASK_SECONDS
    failures: int = 0
    again: list[Delivery] = field(default_factory=list)
    """The same copy, delivered later, each time to be acknowledged with it: the earlier delivery may belong to a
    connection that is lost."""

    def comes_again(self, delivery: Delivery) -> bool:
        """False: this is another copy, and can be acknowledged. One that is not is enough. The same copy is not
        acknowledged before it is done, by none of its deliveries: the middleware would let go of the message.

        One that another member sent has no handle; the middleware's own copy brings it."""
        if delivery.handle is None:
            return True
        if self.delivery.handle is None:
            self.delivery.handle, self.delivery.copy = delivery.handle, delivery.copy
            return True
        if delivery.copy != self.delivery.copy:
            return False
        self.again.append(delivery)
        del self.again[: -limits.CLUSTERED_DELIVERIES_OF_ONE]
        return True


class Holding:
    """The messages of one member. What is mine is taken lane by lane, each lane in the order of arrival."""

    def __init__(
        self,
        *,
        lanes: int = 1,
        messages: int = limits.CLUSTERED_HELD_MESSAGES,
        known: OrderedDict[str, None] | None = None,
    ) -> None:
        """`known`: ids of what is done, from an earlier incarnation; this one adds to them."""
        self.mine = Ranges()
        self.held: dict[str, Held] = {}
        self.bytes = 0
        self._most = messages
        self._doubtful = Ranges()
        self._done: OrderedDict[str, None] = OrderedDict() if known is None else known
        self._lanes: list[deque[Held]] = [deque() for _ in range(lanes)]
        self._begun: dict[str, Held] = {}

    @property
    def is_full(self) -> bool:
        return len(self.held) >= self._most or self.bytes >= limits.CLUSTERED_HELD_BYTES

    # ---- messages come and go

    def receive(self, delivery: Delivery, value: int, now: float) -> bool:
        """False: it is done already, or another copy of it is here, and this one can be acknowledged. One that is
        here already and is delivered again is not processed again, but acknowledged with it."""
        if delivery.id in self._done:
            return False
        if delivery.id in self.held:
            return self.held[delivery.id].comes_again(delivery)
        if value in self._doubtful:
            delivery.redelivered = True
        held = self.held[delivery.id] = Held(delivery, value, now)
        self.bytes += len(delivery.body)
        if value in self.mine:
            self._lane(value).append(held)
        return True

    def _lane(self, value: int) -> deque[Held]:
        return self._lanes[value % len(self._lanes)]

    def take(self, lane: int) -> Held | None:
        """The next message of a lane that is mine to process."""
        waiting = self._lanes[lane]
        while waiting:
            held = waiting.popleft()
            if held.delivery.id in self.held and not held.is_begun:
                held.is_begun = True
                self._begun[held.delivery.id] = held
                return held
        return None

    def finish(self, held: Held) -> None:
        """Its handler is through; it leaves when everybody is told."""
        held.is_finished = True

    def give_up(self, held: Held) -> None:
        """Its handler failed: it is the next of its lane again, and marked."""
        self._begun.pop(held.delivery.id, None)
        held.is_begun = False
        held.delivery.redelivered = True
        if held.value in self.mine:
            self._lane(held.value).appendleft(held)

    def done(self, ids: Iterable[str]) -> list[Delivery]:
        """Everybody was told: the copies that are here, to be acknowledged."""
        gone = []
        for identity in ids:
            self._done[identity] = None
            self._begun.pop(identity, None)
            held = self.held.pop(identity, None)
            if held is not None:
                self.bytes -= len(held.delivery.body)
                gone += [held.delivery, *held.again]
        while len(self._done) > limits.CLUSTERED_REMEMBERED_IDS:
            self._done.popitem(last=False)
        return gone

    def is_done(self, identity: str) -> bool:
        return identity in self._done

    # ---- ranges come and go

    def act_on(self, ranges: Ranges) -> None:
        """Begin with nothing outside; what is held inside waits for its turn in the order of arrival."""
        self.mine = ranges
        for lane in self._lanes:
            lane.clear()
        for held in self.held.values():
            held.pause = limits.CLUSTERED_ASK_SECONDS  # whoever owns it now was not asked yet
            if not held.is_begun and held.value in ranges:
                self._lane(held.value).append(held)

    @property
    def is_drained(self) -> bool:
        """Nothing is under way that is not mine any more, and everybody was told of what was."""
        return all(held.value in self.mine for held in self._begun.values())

    def doubt(self, ranges: Ranges) -> None:
        """Somebody may have begun these: mark what is here, and what comes until it is caught up."""
        self._doubtful = Ranges(_united(self._doubtful, ranges))
        for held in self.held.values():
            if held.value in ranges:
                held.delivery.redelivered = True

    def caught_up(self) -> None:
        self._doubtful = Ranges()

    # ---- copies that nobody speaks of

    def overdue(self, now: float) -> list[Held]:
        """Others' messages that have been here for long, the oldest first; each is asked about ever more rarely."""
        found: list[Held] = []
        for held in self.held.values():
            if (
                len(found) == limits.CLUSTERED_ASK_MESSAGES
                or now - held.arrived < limits.CLUSTERED_ASK_SECONDS
            ):
                break
            if (
                held.value not in self.mine
                and not held.is_begun
                and now - max(held.asked, held.arrived) >= held.pause
            ):
                held.asked = now
                held.pause *= 2
                found.append(held)
        return found


def _united(one: Ranges, other: Ranges) -> list[tuple[int, int]]:
    """All values of either."""
    united: list[tuple[int, int]] = []
    for first, stop in sorted([*one, *other]):
        if united and first <= united[-1][1]:
            united[-1] = (united[-1][0], max(united[-1][1], stop))
        else:
            united.append((first, stop))
    return united
