"""The obvious model of queues and topics: every message by name, who has it, and how often it was handed out.

It sees what clients see and the ends of ticks. Nothing here is quick and nothing is shared with the engines
but the packed bytes. Every rule that a destination must keep is an assertion in the place where it could
break.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from heliograph.bus.commands import Confirmed, Dispatched
from heliograph.destinations.dead_letters import DELIVERIES, ORIGINAL_DESTINATION, ORIGINAL_ID, REASON
from heliograph.model.block import Block, Contents, slice_span, unpack
from heliograph.model.destination import DEAD_MESSAGES, Address, Kind, kind_of
from heliograph.model.ids import ConsumerId, LaneId, message_id
from heliograph.model.message import decode_head
from heliograph.model.policy import Policy
from tests.properties.destination_parties import (
    QUEUE_LIST,
    Copy,
    Lane,
    Letter,
    Subscriber,
    Taker,
    matches,
)

SECOND = 1_000_000
BURY_AGAIN = 5 * SECOND
UNKNOWN = -1  # what the application of a consumer saw
ALL = 2**62


class Model:
    """All messages, lanes, subscriptions and consumers of a world."""

    def __init__(self) -> None:
        self.tick = 1
        self.now = 1_000 * SECOND
        self.stored_lsn = 0
        self.letters: dict[tuple[LaneId, int], Letter] = {}
        self.lanes: dict[LaneId, Lane] = {}
        self.takers: dict[ConsumerId, Taker] = {}
        self.subscribers: dict[int, Subscriber] = {}
        self.policies: dict[Address, list[tuple[int, Policy]]] = {}  # by the tick in which they came
        self.pauses: dict[Address, list[tuple[int, bool]]] = {}  # of consumption, likewise
        self.selective: set[Address] = set()  # queues that ever had a consumer with a selector
        self.next_number: Counter[Address] = Counter()
        self._last_subscriber = QUEUE_LIST

    # ---- lists

    def lists_of(self, address: Address) -> list[int]:
        if kind_of(address) is Kind.QUEUE:
            return [QUEUE_LIST]
        return [each.identity for each in self.subscribers.values() if each.is_there_for(address)]

    def all_takers(self) -> list[Taker]:
        """Whoever has something, or may be given something."""
        return list(self.takers.values())

    def subscribed(self, subscriber: Subscriber) -> Subscriber:
        self._last_subscriber += 1
        subscriber.identity = self._last_subscriber
        subscriber.since = self.tick
        self.subscribers[subscriber.identity] = subscriber
        return subscriber

    def unsubscribed(self, subscriber: Subscriber) -> None:
        """What it had waiting is nobody's; should this be lost in a crash, all of it is there again."""
        subscriber.ended = self.tick

    def policy_of(self, address: Address) -> Policy:
        if self.policies.get(address):
            return self.policies[address][-1][1]
        return Policy(redelivery_limit=0) if address == DEAD_MESSAGES else Policy()

    def is_paused(self, address: Address) -> bool:
        """Whether an administrator wants nothing handed out."""
        return bool(self.pauses.get(address)) and self.pauses[address][-1][1]

    def letters_of(self, block: Block) -> list[Letter]:
        return [self.letters[block.lane, block.first + index] for index in range(block.count)]

    # ---- publishing

    def judge(self, block: Block) -> str:
        """What must become of a block that arrives."""
        lane = self.lanes[block.lane]
        if block.last <= lane.mark:
            return "known"
        if lane.refused:
            return "ignored"
        if block.first == lane.mark + 1 or (lane.fresh and block.first > lane.mark):
            return "accepted"
        lane.expects_refusal_of = lane.mark + 1
        return "refused"

    def taken(self, block: Block) -> None:
        """A block moves its lane on, whether or not its transaction is ever committed."""
        lane = self.lanes[block.lane]
        lane.mark, lane.fresh = block.last, False

    def accepted(self, block: Block, address: Address, *, lsn: int) -> None:
        """`lsn`: the record that must be stored before anybody may see it, 0 if there is none."""
        assert block.buffer is not None
        contents = unpack(block.buffer)
        wanted = self.lists_of(address)
        for index, body in enumerate(contents.bodies):
            letter = self._letter(contents, index, address, body, block.persistent)
            letter.lsn = lsn if wanted else 0
            letter.copies = {
                each: Copy() for each in wanted if each == QUEUE_LIST or self.subscribers[each].wants(letter)
            }
            self.letters[letter.lane, letter.sequence] = letter
        self.next_number[address] += block.count

    def ended(self, block: Block) -> None:
        """Nobody gets what was just accepted."""
        for sequence in range(block.first, block.last + 1):
            del self.letters[block.lane, sequence]

    def _letter(
        self, contents: Contents, index: int, address: Address, body: bytes, persistent: bool
    ) -> Letter:
        head = decode_head(contents.heads[index]) if contents.heads and contents.heads[index] else None
        return Letter(
            address=address,
            lane=contents.lane,
            sequence=contents.first + index,
            priority=contents.priorities[index] if contents.priorities else contents.priority,
            persistent=persistent,
            body=body,
            number=self.next_number[address] + index + 1,
            tick=self.tick,
            color=str(head.properties.get("color", "")) if head else "",
            expiry=contents.expiries[index] if contents.expiries else contents.expiry,
            due=contents.delivery_times[index] if contents.delivery_times else contents.delivery_time,
            timestamp=contents.timestamps[index] if contents.timestamps else contents.timestamp,
        )

    def taken_back(self, lane: Lane, first: int) -> None:
        """The disk was full: as if the block had never been."""
        for key in [key for key in self.letters if key[0] == lane.identity and key[1] >= first]:
            assert self.letters.pop(key).tick == self.tick
            self.next_number[lane.address] -= 1
        lane.mark = first - 1
        lane.expects_refusal_of = first

    def added(self, block: Block) -> None:
        """From here on its messages wait."""
        for letter in self.letters_of(block):
            assert self.is_on_disk(letter), "there for all before it is stored"
            letter.added = True

    def is_on_disk(self, letter: Letter) -> bool:
        return letter.lsn <= self.stored_lsn

    def confirmed(self, command: Confirmed) -> None:
        lane = self.lanes.get(command.lane)
        if lane is None or lane.closed:
            return
        assert command.last <= lane.mark, "confirmed what never came"
        self._safe_up_to(lane, command.last)
        lane.confirmed = max(lane.confirmed, command.last)

    def _safe_up_to(self, lane: Lane, last: int) -> None:
        for letter in self.letters.values():
            if letter.lane == lane.identity and letter.sequence <= last:
                in_time = self.is_on_disk(letter) or not letter.persistent or letter.of_transaction
                assert in_time, "confirmed before it was stored"

    def refused(self, identity: LaneId, first: int) -> None:
        lane = self.lanes[identity]
        assert lane.expects_refusal_of == first, "refused for no reason"
        lane.expects_refusal_of = 0
        lane.refused = True

    def resumed(self, identity: LaneId, last: int) -> None:
        """The server told how far the lane has come."""
        lane = self.lanes[identity]
        if lane.cut_off:
            survived = [each.sequence for each in self.letters.values() if each.lane == identity]
            assert max(survived, default=0) <= last <= lane.mark, "its mark did not survive"
            lane.mark = last
        assert last <= lane.mark
        self._safe_up_to(lane, last)
        lane.confirmed = max(lane.confirmed, last)
        lane.refused, lane.fresh, lane.cut_off = False, True, False

    # ---- consuming

    def dispatched(self, command: Dispatched) -> list[Letter]:
        span = command.span
        taker = self.takers[command.consumer]
        contents = unpack(b"".join(slice_span(span)))
        assert contents.count == span.stop - span.start
        assert command.tag == taker.next_tag, "tags have no gap"
        sender = self.lanes.get(contents.lane)
        assert command.user == (sender.user if sender else "") or (
            sender is not None and sender.closed and not command.user
        )
        found = []
        for index, body in enumerate(contents.bodies):
            letter = self.letters[contents.lane, contents.first + index]
            assert body == letter.body
            assert contents.persistent == letter.persistent
            timestamps = contents.timestamps or [contents.timestamp] * contents.count
            assert timestamps[index] == letter.timestamp
            assert span.block.number + span.start + index == letter.number
            found.append(letter)
            if taker.browses:
                self._show(letter, taker)
            else:
                self._hand_out(letter, taker, span.deliveries)
        return found

    def _show(self, letter: Letter, taker: Taker) -> None:
        assert taker.credit > 0, "more than the browser asked for"
        assert letter in taker.may_see, "it did not wait when the browser came"
        taker.may_see.remove(letter)
        taker.credit -= 1
        taker.next_tag += 1

    def browsed(self, taker: Taker) -> None:
        """The browser was told that this is all: what waited all the while, it has seen."""
        for letter in taker.may_see:
            copy = letter.copies[QUEUE_LIST]
            undisturbed = copy.waits and not copy.late and not copy.history and not letter.due
            undisturbed = undisturbed and letter not in taker.on_its_way and matches(taker.selector, letter)
            assert not undisturbed or letter.is_expired(self.now), "a message that waits was not shown"

    def _hand_out(self, letter: Letter, taker: Taker, deliveries: int) -> None:
        copy = letter.copies.get(taker.list)
        assert copy is not None, "handed out to somebody who came later, or did not want it"
        assert not copy.done, "handed out again after it was done"
        assert not self.is_paused(letter.address), "handed out while it was paused"
        assert copy.holder is None, "two holders at a time"
        assert deliveries == copy.deliveries, "a redelivery is marked, and nothing else is"
        assert taker.credit > 0, "more than the consumer asked for"
        assert not letter.is_expired(self.now), "handed out after it expired"
        assert letter.due <= self.now, "handed out before its time"
        assert copy.not_before <= self.now, "handed out again too soon"
        assert matches(taker.selector, letter), "not what the consumer selects"
        self._check_order(letter, taker)
        taker.credit -= 1
        taker.held[taker.next_tag] = letter
        taker.next_tag += 1
        copy.holder = taker.identity
        copy.note(self.tick, "dispatched")

    def _check_order(self, letter: Letter, taker: Taker) -> None:
        if letter.is_late_in(taker.list):
            return  # what comes late finds its place where it can
        for other in self.eligible(taker):
            if other.is_late_in(taker.list):
                continue
            if letter.address not in self.selective:
                assert other.priority <= letter.priority, "higher priorities go first"
            if other.priority == letter.priority:
                if (other.lane, other.persistent) == (letter.lane, letter.persistent):
                    assert other.number >= letter.number, "out of order"
                alike = other.persistent == letter.persistent or letter.address not in self.selective
                if other.copies[taker.list].deliveries and alike:
                    assert other.number >= letter.number, "overtook one that had returned"

    def waiting(self, address: Address, of: int) -> Iterator[Letter]:
        for letter in self.letters.values():
            if letter.address == address and letter.added and of in letter.copies and letter.copies[of].waits:
                yield letter

    def present(self, address: Address) -> list[Letter]:
        """Everything in a queue that is not done, wherever it is."""
        return [
            letter
            for letter in self.letters.values()
            if letter.address == address and not letter.copies[QUEUE_LIST].done
        ]

    def eligible(self, taker: Taker) -> Iterator[Letter]:
        """What waits and could be given to a consumer now."""
        for letter in self.waiting(taker.address, taker.list):
            timely = letter.due <= self.now and letter.copies[taker.list].not_before <= self.now
            if timely and not letter.is_expired(self.now) and matches(taker.selector, letter):
                yield letter

    def settled(self, taker: Taker, ranges: list[tuple[int, int]], *, returned: bool) -> tuple[int, bool]:
        """Returns how many messages that concerned, and whether the client named tags it does not have."""
        count = 0
        for first, last in ranges:
            tags = range(first, last + 1)
            if not tags or any(tag not in taker.held for tag in tags):
                return count, True
            for tag in tags:
                self._settle(taker.held.pop(tag), taker, returned=returned)
            count += len(tags)
        return count, False

    def _settle(self, letter: Letter, taker: Taker, *, returned: bool, suspect: bool = True) -> None:
        copy = letter.copies[taker.list]
        copy.holder = None
        if not returned:
            copy.done = True
            copy.note(self.tick, "done")
            return
        policy = self.policy_of(letter.address)
        if suspect and policy.redelivery_limit and copy.deliveries + 1 >= policy.redelivery_limit:
            copy.dying = True
        else:
            self._comes_back(copy, policy.delay_before(copy.deliveries + 2))

    def _comes_back(self, copy: Copy, delay: float) -> None:
        copy.deliveries += 1
        if delay:
            copy.not_before = self.now + int(delay * SECOND)
            copy.late = True
        copy.note(self.tick, "returned")

    def returned(self, taker: Taker, seen: int) -> None:
        """Everything that it has comes again. What the application never saw was as good as not handed out;
        where nobody knows what it saw, only the oldest message can be the cause of its end."""
        if seen == UNKNOWN:
            held = sorted(taker.held.values(), key=lambda letter: letter.number)
            for index, letter in enumerate(held):
                self._settle(letter, taker, returned=True, suspect=index == 0)
            taker.held = {}
        else:
            self.unseen(taker, seen)
            held, taker.held = list(taker.held.values()), {}
            for letter in held:
                self._settle(letter, taker, returned=True)

    def unseen(self, taker: Taker, seen: int) -> None:
        """What is behind tag `seen` goes back as it was."""
        for tag in [tag for tag in taker.held if tag > seen]:
            copy = taker.held.pop(tag).copies[taker.list]
            copy.holder = None
            copy.note(self.tick, "unseen")

    def rolled_back(self, taker: Taker, seen: int) -> None:
        taker.credit += len(taker.held)
        self.returned(taker, ALL if seen == UNKNOWN else seen)

    def detached(self, identity: ConsumerId, seen: int = UNKNOWN) -> None:
        taker = self.takers.pop(identity)
        subscriber = self.subscribers.get(taker.list)
        alone = all(other.list != taker.list for other in self.all_takers())
        if subscriber is not None and not subscriber.durable and alone:
            self.unsubscribed(subscriber)
        else:
            self.returned(taker, seen)

    # ---- the dead

    def buried(self, block: Block, origin: Address, of: int, *, lsn: int) -> None:
        """The dead message queue was given these messages of a list."""
        assert block.buffer is not None
        contents = unpack(block.buffer)
        policy = self.policy_of(origin)
        for head in map(decode_head, contents.heads or []):
            facts = head.properties
            assert facts[ORIGINAL_DESTINATION] == origin
            letter = self.letter_named(str(facts[ORIGINAL_ID]))
            copy = letter.copies[of]
            assert not copy.done, "buried though it was done"
            if facts[REASON] == "redelivery-limit":
                assert copy.dying, "it came back less often than is allowed"
                assert facts[DELIVERIES] == copy.deliveries + 1
            else:
                assert copy.waits
                self._check_reason(str(facts[REASON]), letter, policy)
            assert facts.get("color", "") == letter.color, "its own properties are kept"
            copy.dying, copy.done = False, True
            copy.note(self.tick, "done")
        self.accepted(block, DEAD_MESSAGES, lsn=lsn)

    def _check_reason(self, reason: str, letter: Letter, policy: Policy) -> None:
        if reason == "expired":
            assert letter.is_expired(self.now)
            assert policy.expired_to_dead
        else:
            assert reason == "undeliverable"
            patience = int(policy.undelivered_to_dead_after * SECOND)
            assert patience
            assert letter.timestamp + patience < self.now

    def not_buried(self, names: list[tuple[LaneId, int]], of: int) -> None:
        """There was no room among the dead: they are tried again later."""
        for name in names:
            copy = self.letters[name].copies[of]
            if copy.dying:
                copy.dying = False
                self._comes_back(copy, BURY_AGAIN / SECOND)
            else:
                copy.not_before, copy.late = self.now + BURY_AGAIN, True

    def letter_named(self, name: str) -> Letter:
        return next(each for each in self.letters.values() if message_id(each.lane, each.sequence) == name)

    def expired(self, letter: Letter, of: int) -> None:
        """The engine has it no more, which is right only for messages that are past their time."""
        assert letter.is_expired(self.now), "a message is gone that nobody had"
        assert not self.policy_of(letter.address).expired_to_dead, "it is neither here nor among the dead"
        letter.copies[of].done = True
        letter.copies[of].note(self.tick, "done")

    def deleted(self, address: Address) -> None:
        """A destination is gone with all that was in it."""
        for key in [key for key, letter in self.letters.items() if letter.address == address]:
            del self.letters[key]
        for identity in [each for each, taker in self.takers.items() if taker.address == address]:
            del self.takers[identity]
        self.next_number.pop(address, None)

    # ---- what is counted

    def in_flight(self, address: Address) -> int:
        return sum(len(taker.held) for taker in self.all_takers() if taker.address == address)

    # ---- crashes

    def crashed(self, kept: int, *, lost_machine: bool) -> None:
        """Only what had happened by the end of tick `kept` is known; consumers and connections are gone."""
        self.takers.clear()
        for address, policies in self.policies.items():
            self.policies[address] = [each for each in policies if each[0] <= kept]
        for address, pauses in self.pauses.items():
            self.pauses[address] = [each for each in pauses if each[0] <= kept]
        for lane in self.lanes.values():
            lane.cut_off = True
            lane.closed = lane.closed or lane.opened > kept  # nobody remembers it: its client opens another
        for identity, subscriber in list(self.subscribers.items()):
            if not subscriber.survives(kept):
                del self.subscribers[identity]
        for key, letter in list(self.letters.items()):
            if self._survives(letter, kept):
                self._restore(letter, kept, lost_machine=lost_machine)
            else:
                del self.letters[key]

    def _survives(self, letter: Letter, kept: int) -> bool:
        if not letter.persistent:
            return False
        letter.copies = {
            of: copy for of, copy in letter.copies.items() if of == QUEUE_LIST or of in self.subscribers
        }
        if letter.tick > kept:
            lane = self.lanes.get(letter.lane)
            lost = lane is not None and letter.copies and letter.sequence <= lane.confirmed
            assert not lost or letter.of_transaction, "confirmed, persistent and lost"
            return False
        return bool(letter.copies)

    def _restore(self, letter: Letter, kept: int, *, lost_machine: bool) -> None:
        letter.lsn, letter.added = 0, True
        for copy in letter.copies.values():
            copy.restore(kept, lost_machine=lost_machine)
