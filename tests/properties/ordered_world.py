"""One queue with units of order, its disk and its consumers, and an obvious model of what may happen.

The queue is the real engine. The disk keeps blocks and gives them back when asked, now or later. The model is
one letter per message: where it is, and how often it was handed out. It judges each hand-out by the rule
itself: nothing goes while anything earlier of its unit is not done, unless the same consumer has it.
"""

from __future__ import annotations

from collections import deque

import msgspec

from heliograph.bus.commands import (
    Command,
    ConsumerAttached,
    ConsumerDetached,
    CreditGranted,
    Dispatched,
    Parcelled,
    Published,
    Recalled,
    Settled,
)
from heliograph.destinations.effects import AnyEffect, Bury, Continue, Load, Multicast, Persist
from heliograph.destinations.events import (
    BlocksReady,
    BlocksStored,
    BuryFailed,
    PageLoaded,
    Swept,
    TimeCame,
    TurnCame,
)
from heliograph.destinations.pages import Entry, Page, pages_of
from heliograph.destinations.queue import Queue
from heliograph.destinations.replay import LevelReplay
from heliograph.destinations.settling import UNKNOWN
from heliograph.destinations.snapshot import levels_of
from heliograph.destinations.waiting import Residence
from heliograph.model.block import Span, pack, parse
from heliograph.model.destination import Address
from heliograph.model.ids import ConsumerId, IdIssuer, lane_of
from heliograph.model.message import Head, encode_head
from heliograph.model.policy import Policy

ADDRESS = Address("queue:ordered")
MICROSECONDS = 1_000_000
ISSUER = IdIssuer(site=1, node=2, started_ms=3)


class Letter(msgspec.Struct):
    """One message as the model knows it."""

    number: int
    unit: int
    priority: int
    colour: str
    expiry: int
    due: int
    holder: ConsumerId | None = None
    tag: int = 0
    deliveries: int = 0
    fate: str = ""
    position: int = 0
    index: int = 0


class Taker(msgspec.Struct):
    """A consumer as the model knows it."""

    identity: ConsumerId
    colour: str
    credit: int
    tags: dict[int, int] = msgspec.field(default_factory=dict)  # tag → number
    last_tag: int = 0

    @property
    def held(self) -> list[int]:
        return [self.tags[tag] for tag in sorted(self.tags)]


class OrderedWorld:
    """The queue, its surroundings, and the model."""

    def __init__(self, policy: Policy, *, resident_bytes: int = 4000) -> None:
        self.policy = policy
        self.now = 1_000 * MICROSECONDS
        self.letters: dict[int, Letter] = {}
        self.takers: dict[ConsumerId, Taker] = {}
        self._residence = resident_bytes
        self._disk: dict[int, bytes] = {}
        self._next_position = 1 << 32
        self._lane = lane_of(ISSUER.session(), 1)
        self._sequence = 1
        self._loads: deque[Load] = deque()
        self._turns = 0
        self.bury_fails = False
        self.queue = self._new_queue()

    def _new_queue(self) -> Queue:
        queue = Queue(ADDRESS, 1, residence=Residence(self._residence), user_of=lambda _lane: "somebody")
        queue.set_policy(self.policy)
        return queue

    # ---- what somebody does

    def publish(self, messages: list[tuple[int, int, str, int, int]], *, persistent: bool = True) -> None:
        """One block: unit, priority, colour, seconds to live and to wait (0: neither) of each message."""
        expiries = [self.now + live * MICROSECONDS if live else 0 for _, _, _, live, _ in messages]
        dues = [self.now + wait * MICROSECONDS if wait else 0 for *_, wait in messages]
        units = [unit for unit, *_ in messages]
        priorities = [priority for _, priority, *_ in messages]
        raw = pack(
            [b"body"] * len(messages),
            lane=self._lane,
            first=self._sequence,
            timestamp=self.now,
            persistent=persistent,
            priority=priorities[0],
            heads=[encode_head(Head(properties={"colour": colour})) for _, _, colour, _, _ in messages],
            units=units if any(units) else None,
            priorities=priorities if len(set(priorities)) > 1 else None,
            expiries=expiries if any(expiries) else None,
            delivery_times=dues if any(dues) else None,
        )
        self._sequence += len(messages)
        number = self.queue.intake.next_number
        for index, (unit, priority, colour, _, _) in enumerate(messages):
            letter = Letter(number + index, unit, priority, colour, expiries[index], dues[index], index=index)
            self.letters[letter.number] = letter
        self._handle(Published(ADDRESS, parse(raw)))

    def attach(self, colour: str, credit: int, *, prompt: bool) -> ConsumerId:
        identity = ISSUER.consumer()
        self.takers[identity] = Taker(identity, colour, credit)
        self._handle(
            ConsumerAttached(
                address=ADDRESS,
                consumer=identity,
                session=ISSUER.session(),
                credit=credit,
                request=0,
                selector=f"colour = '{colour}'" if colour else "",
                prompt=prompt,
            )
        )
        return identity

    def grant(self, taker: Taker, count: int) -> None:
        taker.credit += count
        self._handle(CreditGranted(ADDRESS, taker.identity, count))

    def finish(self, taker: Taker, count: int, *, skip: int = 0) -> None:
        """It is through with some messages."""
        for tag in sorted(taker.tags)[skip : skip + count]:
            number = taker.tags.pop(tag)
            self.letters[number].fate = "done"
            self.letters[number].holder = None
            taker.credit += 1
            self._handle(Settled(ADDRESS, taker.identity, False, [(tag, tag)], replenish=True))

    def give_back(self, taker: Taker, place: int, seen: int) -> None:
        """It gives one message back; of the rest it has seen so many."""
        tags = sorted(taker.tags)
        tag = tags[place]
        last_seen = tags[min(max(place, seen), len(tags) - 1)]
        self._came_back(taker, tag, seen=True)
        taker.credit += 1
        self._handle(Settled(ADDRESS, taker.identity, True, [(tag, tag)], replenish=True, seen=last_seen))

    def return_all(self, taker: Taker, seen: int) -> None:
        """Rollback or recover."""
        tags = sorted(taker.tags)
        last_seen = tags[min(seen, len(tags) - 1)] if tags and seen >= 0 else 0
        taker.credit += len(tags)
        for tag in tags:
            self._came_back(taker, tag, seen=tag <= last_seen)
        effects: list[AnyEffect] = []
        self.queue.messages.return_all(taker.identity, effects, self.now, last_seen)
        self.queue.dispatch(effects, self.now)
        self._carry_out(effects)

    def leave(self, taker: Taker, seen: int) -> None:
        """It is closed, having seen some of what it has; or lost, which nobody knows more of (-1)."""
        tags = sorted(taker.tags)
        last_seen = UNKNOWN if seen < 0 else tags[min(seen, len(tags) - 1)] if tags and seen else 0
        for tag in tags:
            self._came_back(taker, tag, seen=seen < 0 or tag <= last_seen)
        del self.takers[taker.identity]
        self._handle(ConsumerDetached(ADDRESS, taker.identity, 0, last_seen))

    def pass_time(self, seconds: int) -> None:
        self.now += seconds * MICROSECONDS
        if 0 < self.queue.next_due <= self.now:
            self._handle(TimeCame())
        self._handle(Swept())

    def sort(self, sort_keys: str) -> None:
        """An administrator wants another order among messages of different units."""
        self.policy = msgspec.structs.replace(self.policy, sort_keys=sort_keys)
        self.queue.set_policy(self.policy)
        self._handle(TurnCame())

    def crash(self, *, after_snapshot: bool) -> None:
        """Only what is on disk remains; what was handed out comes again, marked."""
        snapshot = self._kept_by_snapshot()
        for taker in list(self.takers.values()):
            for tag in sorted(taker.tags):
                self._came_back(taker, tag, seen=True)
        self.takers.clear()
        self._loads.clear()
        self._turns = 0
        self._lane, self._sequence = lane_of(ISSUER.session(), 1), 1
        number = self.queue.intake.next_number
        self.queue = self._new_queue()
        self.queue.intake.next_number = number
        kept = snapshot if after_snapshot else self._kept_by_records()
        for priority, pages in kept.items():
            self.queue.restore(priority, pages)
        self.queue.recovered()

    def _kept_by_snapshot(self) -> dict[int, list[Page]]:
        """As a server finds it that starts from what was on disk a moment ago, with nothing behind it."""
        kept: dict[int, list[Page]] = {}
        for level in levels_of(self.queue):
            replay = LevelReplay()
            replay.restore(level.pages, level.dispatched)
            replay.restarted(everything_again=False)
            kept[level.priority] = replay.finish()
        return kept

    def _kept_by_records(self) -> dict[int, list[Page]]:
        by_priority: dict[int, list[Entry]] = {}
        for letter in self.letters.values():
            if not letter.fate:
                entry = Entry(letter.number, letter.position, letter.index, 1, letter.deliveries)
                by_priority.setdefault(letter.priority, []).append(entry)
        return {priority: pages_of(sorted(entries)) for priority, entries in by_priority.items()}

    # ---- what the engine asks for

    def settle_down(self) -> None:
        """Everything that can happen by itself has happened."""
        for _ in range(10_000):
            if self._loads:
                load = self._loads.popleft()
                buffers = load.page.buffers([self._disk[position] for position in load.page.records()])
                self._handle(PageLoaded(load.list_number, load.priority, load.page, buffers))
            elif self._turns:
                self._turns = 0
                self._handle(TurnCame())
            else:
                return
        raise AssertionError("it never comes to rest")

    def _handle(self, event: object) -> None:
        self._carry_out(self.queue.handle(event, self.now))  # type: ignore[arg-type]

    def _carry_out(self, effects: list[AnyEffect]) -> None:
        for effect in effects:
            if isinstance(effect, Multicast):
                self._told(effect.command)
            elif isinstance(effect, Persist):
                block = effect.block
                assert block.buffer is not None
                block.position = self._next_position
                self._disk[block.position] = block.buffer
                self._next_position += block.size + 64
                for index in range(block.count):
                    self.letters[block.number + index].position = block.position
                self._handle(BlocksStored([block]))
                self._handle(BlocksReady([block]))
            elif isinstance(effect, Load):
                self._loads.append(effect)
            elif isinstance(effect, Continue):
                self._turns += 1
            elif isinstance(effect, Bury):
                self._bury(effect)

    def _bury(self, order: Bury) -> None:
        if self.bury_fails:
            self._handle(BuryFailed(order.list_number, order.spans, order.reason))
            return
        for number in _numbers(order.spans):
            letter = self.letters[number]
            assert letter.holder is None, "what somebody has is not buried"
            letter.fate = order.reason
        effects: list[AnyEffect] = []
        self.queue.messages.buried(order.spans, effects)
        self._carry_out(effects)

    # ---- the judge

    def _told(self, command: Command) -> None:
        if isinstance(command, Dispatched):
            self._handed_out(command.consumer, command.tag, [command.span])
        elif isinstance(command, Parcelled):
            self._handed_out(command.consumer, command.tag, command.spans)
        elif isinstance(command, Recalled):
            taker = self.takers[command.consumer]
            for first, last in command.tags:
                for tag in range(first, last + 1):
                    # Whether it counts as a delivery, the engine knows from what was seen.
                    self.letters[taker.tags[tag]].deliveries = -1
                    self._came_back(taker, tag, seen=False)
                    taker.credit += 1

    def _handed_out(self, consumer: ConsumerId, tag: int, spans: list[Span]) -> None:
        taker = self.takers[consumer]
        for span in spans:
            for number in _numbers([span]):
                letter = self.letters[number]
                assert not letter.fate, f"{number} was {letter.fate} and is handed out"
                assert letter.holder is None, f"{number} is with two consumers"
                assert tag == taker.last_tag + 1, "tags have no gap"
                assert not taker.colour or taker.colour == letter.colour, "the selector says no"
                assert letter.due <= self.now, "before its time"
                if letter.deliveries >= 0:
                    assert span.deliveries == letter.deliveries, "not marked as it should be"
                letter.deliveries = span.deliveries
                self._judge(letter, taker)
                letter.holder = consumer
                letter.tag = taker.last_tag = tag
                taker.tags[tag] = number
                taker.credit -= 1
                assert taker.credit >= 0, "more than it has credit for"
                tag += 1

    def _judge(self, letter: Letter, taker: Taker) -> None:
        if not letter.unit:
            return
        for other in self.letters.values():
            if other.unit == letter.unit and not other.fate and other is not letter:
                if other.holder is not None:
                    assert other.holder == taker.identity, (
                        f"{letter.number} of unit {letter.unit} goes to another than {other.number}"
                    )
                if other.number < letter.number:
                    is_over = 0 < other.expiry <= self.now
                    assert other.holder is not None or is_over, (
                        f"{letter.number} of unit {letter.unit} goes while {other.number} waits"
                    )
                else:
                    assert other.holder is None, f"{letter.number} comes after {other.number}"

    def _came_back(self, taker: Taker, tag: int, *, seen: bool) -> None:
        letter = self.letters[taker.tags.pop(tag)]
        letter.holder = None
        if seen and letter.deliveries >= 0:
            letter.deliveries += 1

    def note_expired(self) -> None:
        """What is past its time may be gone."""
        here = {number for number, letter in self.letters.items() if not letter.fate}
        known = self.numbers_in_engine()
        for number in here - known:
            letter = self.letters[number]
            assert 0 < letter.expiry <= self.now, f"{number} is lost"
            letter.fate = "expired"
        assert known <= here, "something came back to life"

    def numbers_in_engine(self) -> set[int]:
        messages = self.queue.messages
        found = _numbers(list(messages.all_spans()))
        for _, page in messages.waiting_pages():
            found += [entry.number + at for entry in page.entries() for at in range(entry.messages)]
        for _, _, what in messages.schedule.everything():
            found += (
                [what.number + at for at in range(what.messages)]
                if isinstance(what, Entry)
                else _numbers([what])
            )
        assert len(found) == len(set(found)), "a message is in two places"
        return set(found)

    def check(self) -> None:
        """Nothing is lost, and nobody waits in vain."""
        self.note_expired()
        messages = self.queue.messages
        waiting = [letter for letter in self.letters.values() if not letter.fate and letter.holder is None]
        assert messages.depth == len(waiting), (messages.depth, len(waiting))
        assert messages.in_flight == sum(len(taker.tags) for taker in self.takers.values())
        for taker in self.takers.values():
            consumer = messages.consumers[taker.identity]
            if consumer.room > 0:
                for letter in waiting:
                    assert not self._could_go(letter, taker), f"{letter.number} waits in vain"

    def _could_go(self, letter: Letter, taker: Taker) -> bool:
        if taker.colour not in ("", letter.colour) or letter.due > self.now:
            return False
        if 0 < letter.expiry <= self.now or self.is_aside(letter.number):
            return False
        if not letter.unit:
            return True
        before = [
            other
            for other in self.letters.values()
            if other.unit == letter.unit and not other.fate and other.number < letter.number
        ]
        if any(other.holder != taker.identity for other in before):
            return False
        unit = dict(self.queue.messages.units.items()).get(letter.unit)
        if unit is not None and (unit.stopped or unit.burying):
            return False
        return all(
            other.holder in (None, taker.identity)
            for other in self.letters.values()
            if other.unit == letter.unit and not other.fate
        )

    def is_aside(self, number: int) -> bool:
        """Backing off."""
        for _, _, what in self.queue.messages.schedule.everything():
            first = what.number if isinstance(what, Entry) else what.block.number + what.start
            count = what.messages if isinstance(what, Entry) else what.stop - what.start
            if first <= number < first + count:
                return True
        return False


def _numbers(spans: list[Span]) -> list[int]:
    return [span.block.number + index for span in spans for index in range(span.start, span.stop)]
