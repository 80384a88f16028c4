"""What a consumer was sent: deliveries that wait, the one being handed over, and which messages are done.

An `Inbox` knows no socket and no clock. Its one trick: the iterator `messages` *is* the hand-over. A
message is in the application's hands exactly when it was drawn from there, so nothing is counted per
message; how far the application has come is read off the iterator when acknowledgements are collected. From
this follows the rule that no message is ever acknowledged that the application has not been given.

    put ──▶ waiting ──take_next──▶ messages ──drawn by the application──▶ handed over ──complete──▶ done

Whoever asks for the next message has finished those before it (J4, modes "auto" and "dups-ok"). In mode
"transacted" what was handed over is named by the next commit.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count, islice, repeat
from operator import attrgetter, length_hint
from typing import Any

from heliograph.client.holding import Holding
from heliograph.client.memory import Memory
from heliograph.client.message import Delivery, Message, Received
from heliograph.client.progress import Progress
from heliograph.model.limits import MAX_ACK_RANGES
from heliograph.model.units import NO_UNIT

Range = tuple[int, int]


class Mode(enum.StrEnum):
    """When a message counts as processed (J4)."""

    AUTO = "auto"
    CLIENT = "client"
    INDIVIDUAL = "individual"
    DUPS_OK = "dups-ok"
    TRANSACTED = "transacted"


# Modes in which a message is acknowledged without a word from the application.
BY_ITSELF = frozenset({Mode.AUTO, Mode.DUPS_OK})


class Ranges:
    """Delivery tags on their way to the server, as inclusive ranges.

    Neighbours grow together as they come.
    """

    __slots__ = ("_ranges", "count")

    def __init__(self) -> None:
        self._ranges: list[Range] = []
        self.count = 0

    def add(self, first: int, last: int) -> None:
        self.count += last - first + 1
        ranges = self._ranges
        if ranges and ranges[-1][1] + 1 == first:
            ranges[-1] = (ranges[-1][0], last)
        else:
            ranges.append((first, last))

    def take(self) -> list[Range]:
        """All of them, in order and merged; none remain."""
        taken = self._ranges
        if len(taken) > 1:
            taken = merged(taken)
        self._ranges = []
        self.count = 0
        return taken

    def remove(self, ranges: list[Range]) -> None:
        self._ranges = without_ranges(self._ranges, ranges)
        self.count = sum(last - first + 1 for first, last in self._ranges)

    def clear(self) -> None:
        self._ranges = []
        self.count = 0


def merged(ranges: list[Range]) -> list[Range]:
    """The same tags in ascending order, in as few ranges as possible, each tag once."""
    result: list[Range] = []
    for first, last in sorted(ranges):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        else:
            result.append((first, last))
    return result


def without(ranges: list[Range], tags: set[int]) -> list[Range]:
    """The same, less some tags, which are taken from `tags` as they are met."""
    result: list[Range] = []
    for first, last in ranges:
        start = first
        for tag in sorted(tag for tag in tags if first <= tag <= last):
            tags.remove(tag)
            if start < tag:
                result.append((start, tag - 1))
            start = tag + 1
        if start <= last:
            result.append((start, last))
    return result


def without_ranges(ranges: list[Range], less: list[Range]) -> list[Range]:
    """The same tags, less others, in order."""
    left = merged(ranges)
    for low, high in less:
        left = [
            part
            for first, last in left
            for part in ((first, min(last, low - 1)), (max(first, high + 1), last))
            if part[0] <= part[1]
        ]
    return left


def common(ranges: list[Range], others: list[Range]) -> list[Range]:
    """The tags that are in both, in order."""
    return without_ranges(ranges, without_ranges(ranges, others)) if others else []


def frames_of(ranges: list[Range]) -> Iterator[list[Range]]:
    """Cut into as many ranges as the server reads at once."""
    for start in range(0, len(ranges), MAX_ACK_RANGES):
        yield ranges[start : start + MAX_ACK_RANGES]


def _within(tag: int, ranges: Iterable[Range]) -> bool:
    return any(first <= tag <= last for first, last in ranges)


def _is_within(delivery: Delivery, ranges: list[Range], index: int) -> bool:
    return _within(delivery.first_tag + index, ranges)


def _is_of(delivery: Delivery, units: frozenset[int], index: int) -> bool:
    return delivery.unit(index) in units


class Inbox:
    """The deliveries of one consumer."""

    def __init__(self, mode: Mode, credit: int, message_type: type[Received] = Message) -> None:
        self.mode = mode
        self.credit = credit
        self.message_type = message_type
        self.epoch = 0
        self.stopped = False
        # True while nobody is going to collect acknowledgements soon: whoever asks for the next message
        # sees to it.
        self.quiet = mode in BY_ITSELF
        self.is_away = False  # whether the server has yet to say what of all this is still ours
        self.holding = Holding(credit)
        self.memory = Memory()
        self.known = Ranges()  # came again from another part, and the server has to be told that it is done
        self.waiting: deque[Delivery] = deque()
        self.messages: Iterator[Any] = iter(())
        self.done = Ranges()
        self._current: Delivery | None = None
        self._bodies: Iterator[Any] = iter(())
        self._collected = 0  # of the current delivery, how many messages are in `done` or `_held`
        self._has_forgotten = False
        self._held: list[Range] = []  # a batch in the application's hands
        self._returned: set[int] = set()  # given back, and still to be met on the way to `done`
        self.progress = Progress()
        # Messages that were given back, tag and unit, until the server says what else went back with each.
        self._awaited: deque[tuple[int, int]] = deque()
        # What was taken out before the application saw it, though it has seen later tags.
        self._unshown: list[Range] = []
        # Delivered by a server that took our claim and has yet to answer it: what we still wait for, and which
        # epoch this belongs to, only the answer says.
        self._early: list[Delivery] = []

    def put(self, delivery: Delivery) -> None:
        if self.is_away:
            self._early.append(delivery)
            return
        last_tag = delivery.first_tag + len(delivery.bodies) - 1
        self.holding.received(delivery.first_tag, last_tag)
        if self.memory.is_consulted:
            self._put_unknown(delivery)
            return
        self.memory.received(delivery.first_tag, last_tag, delivery.contents)
        if self._awaited:
            self._put_unbarred(delivery)
        else:
            self.waiting.append(delivery)

    def _put_unbarred(self, delivery: Delivery) -> None:
        units = frozenset(unit for _, unit in self._awaited if unit != NO_UNIT)
        self.waiting += self._take_out(delivery, partial(_is_of, delivery, units))

    def _put_unknown(self, delivery: Delivery) -> None:
        """What the application is through with, in whatever part it was, is not shown to it again."""
        contents, first_tag = delivery.contents, delivery.first_tag
        is_known = [self.memory.knows(contents, index) for index in range(len(delivery.bodies))]
        self.memory.received(first_tag, first_tag + len(is_known) - 1, contents)
        for index, known in enumerate(is_known):
            if known:
                self.known.add(first_tag + index, first_tag + index)
        for part in delivery.without(is_known.__getitem__):
            self._put_unbarred_marked(part)

    def _put_unbarred_marked(self, delivery: Delivery) -> None:
        """What another part has shown to the application comes marked, whatever the server knows."""
        indices = range(delivery.start, delivery.start + len(delivery.bodies))
        shown = dict.fromkeys(index for index in indices if self.memory.has_shown(delivery.contents, index))
        if not shown:
            self._put_unbarred(delivery)
            return
        again = delivery.without(lambda index: index not in shown)
        for part in again:
            part.earlier = max(part.earlier, 1)
        new = delivery.without(shown.__contains__) if len(shown) < len(delivery.bodies) else []
        for part in sorted([*again, *new], key=attrgetter("start")):
            self._put_unbarred(part)

    def gone(self, ranges: list[Range]) -> None:
        """The server has these back. Another part may have them too, and not know that the application saw them."""
        self._note_seen()
        self.holding.gone(ranges)
        self.memory.gone(ranges, self._is_shown)
        if self._unshown:
            self._unshown = without_ranges(self._unshown, ranges)

    def settled(self, ranges: list[Range]) -> None:
        """These are done, and the server was told, or has said that it knows."""
        self.holding.settled(ranges)
        self.memory.settled(ranges)

    def take_next(self) -> bool:
        """The application asks for more than `messages` has: what it was given is complete.

        False: nothing is there.
        """
        self.complete()
        if length_hint(self._bodies):
            return True
        self._note_seen()
        self._current = None
        if self.stopped or self._is_paused or not self.waiting:
            return False
        self._open(self.waiting.popleft())
        return True

    def take_batch(self, limit: int) -> list[Any]:
        """Hand over up to `limit` of the messages that are there."""
        self.complete()
        batch: list[Any] = []
        while len(batch) < limit and not self.stopped and not self._is_paused:
            if not length_hint(self._bodies):
                self._put_back()
                if not self.waiting:
                    break
                self._open(self.waiting.popleft())
            batch += islice(self.messages, limit - len(batch))
        self._put_back()
        return batch

    def complete(self) -> None:
        """All that was handed over is processed. In mode "individual" the application says so itself."""
        self._collect(0)

    def complete_but_last(self) -> None:
        """Between two messages: the one in the application's hands is still being worked on."""
        self._collect(1)

    def take_done(self) -> list[Range]:
        """What is done and the server has not been told."""
        ranges = self.done.take()
        if ranges:
            self.progress.took(ranges)
            if self._returned:
                ranges = without(ranges, self._returned)
        return ranges

    def leave_out(self, tag: int) -> bool:
        """This one is given back: it will not be done. False: it is done already."""
        if self.mode is Mode.INDIVIDUAL:
            return True
        if self.progress.is_taken(tag) or tag in self._returned:
            return False
        self._returned.add(tag)
        return True

    # ---- giving back a message of a unit of order

    def bar(self, tag: int, unit: int) -> None:
        """A message goes back: until the server has said what else did, nothing later of its unit is handed over.

        Where its producer gave it no unit, the destination may have one for it: then nothing at all is.
        """
        self._awaited.append((tag, unit))
        self._put_back()
        if unit:
            self._drop(lambda delivery: partial(_is_of, delivery, frozenset({unit})))

    def lift(self, tags: list[Range]) -> None:
        """The server has said what went back; what comes now is new. It answers in the order of giving back."""
        if self._awaited:
            self._awaited.popleft()
        self.drop(tags)

    def lift_gone(self) -> None:
        """The server has said what is still ours: of what went back, it has told all there is to tell."""
        self._awaited = deque(each for each in self._awaited if self.is_held(each[0]))

    def drop(self, tags: list[Range]) -> None:
        """The server has these, whoever has them here."""
        self._note_seen()
        if tags:
            self._put_back()
            self._drop(lambda delivery: partial(_is_within, delivery, tags))
        self.gone(tags)
        if tags:
            if self.mode is Mode.INDIVIDUAL:
                self.done.remove(tags)
            else:
                is_taken, is_seen = self.progress.is_taken, self.progress.is_seen
                back = (tag for first, last in tags for tag in range(first, last + 1))
                self._returned.update(tag for tag in back if is_seen(tag) and not is_taken(tag))

    @property
    def is_barred(self) -> bool:
        """Whether the server has yet to say what went back."""
        return bool(self._awaited)

    @property
    def _awaits_unknown(self) -> bool:
        """Whether something was given back of which only the destination knows the unit, if it has one."""
        return bool(self._awaited) and any(unit == NO_UNIT for _, unit in self._awaited)

    @property
    def _is_paused(self) -> bool:
        return self.is_away or self._awaits_unknown

    @property
    def may_lose_some(self) -> bool:
        """Whether some of what was acknowledged message by message may be on its way back."""
        return self.mode is Mode.INDIVIDUAL and self._awaits_unknown

    def is_held(self, tag: int) -> bool:
        """Whether the server has neither heard that it is done nor taken it back."""
        return self.holding.has(tag)

    def goes_back(self, tag: int, unit: int) -> bool:
        """Whether something before it in its unit was given back, and it with that."""
        return unit != NO_UNIT and any(unit == other and tag > before for before, other in self._awaited)

    def _drop(self, chosen: Callable[[Delivery], Callable[[int], bool]]) -> None:
        self.waiting = deque(
            part for delivery in self.waiting for part in self._take_out(delivery, chosen(delivery))
        )

    def _take_out(self, delivery: Delivery, chosen: Callable[[int], bool]) -> list[Delivery]:
        """What is left of a delivery without some, which nobody was shown."""
        for index in range(delivery.start, delivery.start + len(delivery.bodies)):
            if chosen(index):
                tag = delivery.first_tag + index
                self._unshown.append((tag, tag))
        return delivery.without(chosen)

    def _is_shown(self, tag: int) -> bool:
        return self.progress.is_seen(tag) and not _within(tag, self._unshown)

    @property
    def last_seen(self) -> int:
        """The last tag that was handed to the application, 0 if none was that the server still knows."""
        self._note_seen()
        return self.progress.last_seen

    def _note_seen(self) -> None:
        delivery = self._current
        if delivery is not None and (handed := self._handed(delivery)):
            self.progress.saw(delivery.first_tag + handed - 1)

    @property
    def is_due(self) -> bool:
        """Whether enough is done to be worth a frame of its own."""
        return self.done.count >= max(1, self.credit // 4)

    def is_current(self, delivery: Delivery) -> bool:
        """Whether the server still knows the tags of this delivery."""
        return delivery.epoch == self.epoch

    def stop(self) -> None:
        """Hand over nothing more until `start`; what waits stays in order."""
        self.stopped = True
        self._put_back()

    def start(self) -> None:
        self.stopped = False

    def go_away(self) -> None:
        """Hand over nothing until the server has said what is still ours."""
        self.is_away = True
        self._early.clear()  # nobody saw it, and no claim will name it
        self._put_back()

    def come_back(self) -> None:
        """The server has said what is ours, and what it delivered since it took the claim is taken in."""
        self.is_away = False
        early, self._early = self._early, []
        for delivery in early:
            delivery.epoch = self.epoch
            self.put(delivery)

    def reset(self, *, wanted: bool = False) -> int:
        """The server delivers again whatever is not settled, under new tags.

        That was `wanted`, or happened because it has forgotten the consumer. Returns `last_seen`.
        """
        self._put_back()  # so that nobody draws more
        seen = self.progress.last_seen
        self.complete()
        # Elsewhere a message's own acknowledgement knows that it comes too late.
        if self.mode is Mode.CLIENT and self.done.count and not wanted:
            self._has_forgotten = True
        self.epoch += 1
        if wanted:
            self.holding.clear()
        else:
            self.holding.begin_anew()
        self.memory.clear(self._is_shown)
        self._unshown.clear()
        self.known.clear()
        self.waiting.clear()
        self.done.clear()
        self._held.clear()
        self._returned.clear()
        self._awaited.clear()
        if wanted:
            self._early.clear()
        self.progress.clear()
        return seen

    @property
    def has_forgotten(self) -> bool:
        return self._has_forgotten

    def forgive(self) -> bool:
        """Whether messages that were handed over can no longer be settled; said once."""
        had, self._has_forgotten = self._has_forgotten, False
        return had

    def _open(self, delivery: Delivery) -> None:
        self._current = delivery
        self._collected = delivery.start
        self._bodies = iter(delivery.bodies)
        self.messages = map(self.message_type, self._bodies, repeat(delivery), count(delivery.start))

    def _handed(self, delivery: Delivery) -> int:
        """The place of the next message to hand over."""
        return delivery.start + len(delivery.bodies) - length_hint(self._bodies)

    def _collect(self, hold: int) -> None:
        if self.mode is Mode.INDIVIDUAL:
            return
        if self._held and not hold:
            for first, last in self._held:
                self.done.add(first, last)
            self._held.clear()
        delivery = self._current
        if delivery is not None:
            upto = self._handed(delivery) - hold
            if upto > self._collected:
                self.done.add(delivery.first_tag + self._collected, delivery.first_tag + upto - 1)
                self._collected = upto

    def _put_back(self) -> None:
        """What is left of the current delivery waits again; what was handed over is held.

        The rest is drawn in one go, which is safe against a thread that iterates.
        """
        delivery = self._current
        if delivery is None:
            return
        rest = list(self._bodies)
        handed = delivery.start + len(delivery.bodies) - len(rest)
        if handed:
            self.progress.saw(delivery.first_tag + handed - 1)
        if self.mode is not Mode.INDIVIDUAL and handed > self._collected:
            self._held.append((delivery.first_tag + self._collected, delivery.first_tag + handed - 1))
        if rest:
            delivery.put_back(rest)
            self.waiting.appendleft(delivery)
        self._current = None
