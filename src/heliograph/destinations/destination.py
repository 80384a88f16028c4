"""What queues and topics share: intake, storage, and the way of a command to the list it concerns.

Commands in, effects out. Nothing here reads a clock (the time comes with each event, in microseconds) or
touches a disk. A block is accepted (intake), written down if it must survive or cannot stay in memory, and
then added to the lists that want it. A persistent message is handed out only after it is stored: otherwise a
crash could make one that was consumed arrive a second time, unmarked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from heliograph.bus.commands import (
    AlertAcknowledged,
    AlertAudited,
    AlertCancelled,
    AlertPublished,
    AlertsAttached,
    AlertsDetached,
    AlertsListed,
    AlertsTaken,
    AlertTopicsChanged,
    Answered,
    ConsumerAttached,
    ConsumerDetached,
    ConsumerRetired,
    CreditGranted,
    FlowChanged,
    Published,
    Rejected,
    Settled,
)
from heliograph.cluster.dispatch_rules import Hold, Situation
from heliograph.cluster.partition_state import State
from heliograph.destinations.competing import Consumer
from heliograph.destinations.effects import (
    Answer,
    AnyEffect,
    Continue,
    Multicast,
    Persist,
    Release,
    Retain,
    Write,
)
from heliograph.destinations.events import (
    AlertRefused,
    AlertStored,
    AttendantsLost,
    BlockRefused,
    BlocksReady,
    BlocksStored,
    BuryFailed,
    ConsumerAway,
    ConsumersGone,
    DispatchesDropped,
    PageLoaded,
    Swept,
    TimeCame,
    TurnCame,
)
from heliograph.destinations.flow import Flow
from heliograph.destinations.holding_back import in_words
from heliograph.destinations.intake import Intake
from heliograph.destinations.message_list import MessageList, UserOf
from heliograph.destinations.partition_gate import PartitionGate, decides
from heliograph.destinations.pausing import Pause, Paused
from heliograph.destinations.retention import enforce
from heliograph.destinations.stamps import Stamps
from heliograph.destinations.standing import HeldRecord, Standing, encode_record
from heliograph.destinations.waiting import Residence
from heliograph.journal.records import RecordKind
from heliograph.model.block import EXPIRIES, LARGE, Block
from heliograph.model.destination import Address, kind_of
from heliograph.model.errors import ClientFault
from heliograph.model.ids import ConsumerId, LaneId, SessionId
from heliograph.model.policy import DEFAULT_POLICY, Policy

Event = (
    Published
    | ConsumerAttached
    | CreditGranted
    | Settled
    | ConsumerRetired
    | ConsumerDetached
    | ConsumerAway
    | ConsumersGone
    | DispatchesDropped
    | BlocksStored
    | BlocksReady
    | BlockRefused
    | PageLoaded
    | TurnCame
    | TimeCame
    | Swept
    | BuryFailed
    | AlertPublished
    | AlertAcknowledged
    | AlertCancelled
    | AlertsAttached
    | AlertTopicsChanged
    | AlertsDetached
    | AlertsTaken
    | AlertsListed
    | AlertAudited
    | AlertStored
    | AlertRefused
    | AttendantsLost
)


class Figures(msgspec.Struct):
    """What an administrator sees of a destination."""

    address: str
    kind: str
    depth: int
    in_flight: int
    consumers: int
    published: int
    delivered: int
    settled: int
    bytes: int
    subscriptions: int = 0
    held_bytes: int = 0  # about how much is there now, whereas `bytes` is what ever came
    blocked: str = ""  # why its producers are told to wait, if they are
    stopped_units: int = 0  # units of order that wait for an administrator
    production_paused: bool = False
    consumption_paused: bool = False
    held_back: int = 0  # of `depth`, what may not go because the cluster is in parts
    held_back_why: str = ""
    kept_for_others: int = 0  # of a topic: what is kept for subscriptions of other parts


class Destination:
    """A queue or a topic."""

    def __init__(self, address: Address, number: int, *, residence: Residence, user_of: UserOf) -> None:
        self.address = address
        self.number = number
        self.intake = Intake()
        self.policy = DEFAULT_POLICY
        self.flow = Flow()
        self.pause = Pause()
        self.stamps = Stamps()
        self._residence = residence
        self._user_of = user_of
        self._published = 0
        self._bytes = 0
        self._situation: Situation | None = None  # how things stand in a cluster; None: nothing is held back
        self._standing: Standing | None = None
        self._former_lanes: tuple[bytes, dict[LaneId, int]] = (b"", {})
        self.may_expire = False  # whether any message ever came that expires
        self.has_ended = False
        self._handlers: dict[type, Callable[..., None]] = {
            Published: self._published_block,
            Settled: self._settled,
            CreditGranted: self._credit_granted,
            BlocksStored: self._stored,
            BlocksReady: self._ready,
            TurnCame: self._turn_came,
            TimeCame: self._time_came,
            PageLoaded: self._page_loaded,
            ConsumerAttached: self._attached_or_claimed,
            ConsumerAway: self._went_away,
            ConsumersGone: self._left_together,
            DispatchesDropped: self._taken_back,
            ConsumerDetached: self._detached,
            ConsumerRetired: self._retired,
            BlockRefused: self._refused,
            Swept: self._swept,
            BuryFailed: self._bury_failed,
        }

    def handle(self, event: Event, now: int) -> list[AnyEffect]:
        effects: list[AnyEffect] = []
        self._handlers[type(event)](event, effects, now)
        if self.flow.blocked:
            self.measure(effects)
        return effects

    # ---- what a kind of destination decides

    def lists(self) -> Iterator[MessageList]:
        raise NotImplementedError

    def list_by_number(self, number: int) -> MessageList | None:
        raise NotImplementedError

    def list_of(self, consumer: ConsumerId) -> MessageList | None:
        raise NotImplementedError

    def add(self, block: Block, effects: list[AnyEffect], now: int) -> int:
        """Give a block to all that want it. Returns how many messages are held, counting each as often as it
        is."""
        raise NotImplementedError

    def wants(self, block: Block) -> bool:
        """Whether anybody is there for whom the block would have to be kept."""
        raise NotImplementedError

    def _attached(self, event: ConsumerAttached, effects: list[AnyEffect], now: int) -> None:
        raise NotImplementedError

    def restore_consumer(self, event: ConsumerAttached, list_number: int) -> Consumer | None:
        """A consumer that another server had. None: what it took from is gone, or is not worth it."""
        raise NotImplementedError

    def _leave(self, event: ConsumerDetached, effects: list[AnyEffect], now: int) -> None:
        """A consumer leaves; nobody gets what it had before the next dispatch."""
        raise NotImplementedError

    def _page_loaded(self, event: PageLoaded, effects: list[AnyEffect], now: int) -> None:
        raise NotImplementedError

    def _dispatch(self, effects: list[AnyEffect], now: int) -> None:
        """Let everybody who waits for messages have theirs."""
        raise NotImplementedError

    # ---- parts of a cluster

    def regate(
        self, situation: Situation | None, standing: Standing | None, effects: list[AnyEffect]
    ) -> None:
        """How things stand from here on, and the view that the log is in. What may not go is set aside."""
        self._situation, self._standing = situation, standing
        is_parted = situation is not None and standing is not None and not situation.is_whole
        self._handlers[Published] = self._published_in_part if is_parted else self._published_block
        for messages in self.lists():
            self.regate_list(messages, effects)

    @property
    def how_it_stands(self) -> dict[str, bool]:
        """For a consumer that comes: whether another part may know more, so that it has to look at what it is
        given."""
        is_apart = self._situation is not None and not self._situation.is_whole
        return {"apart": True} if is_apart else {}

    def regate_list(self, messages: MessageList, effects: list[AnyEffect]) -> None:
        is_closed = self._situation is not None and not decides(self._situation)
        if self._situation is not None and self._situation.first_tag:
            messages.begin_tags(self._situation.first_tag)
        gate = None if is_closed else self._gate_of(messages)
        messages.regate(gate, effects, is_closed=is_closed)

    def _has_rules(self, messages: MessageList) -> bool:
        """Whether what a list hands out is for one of several, in whatever part: a message that another part may have
        handed out must wait then."""
        raise NotImplementedError

    def _gate_of(self, messages: MessageList) -> PartitionGate | None:
        situation, standing, stamps = self._situation, self._standing, self.stamps
        if situation is None or standing is None or situation.is_whole:
            return None
        gets_each = not self._has_rules(messages)
        is_restricted = situation.state is State.D or not standing.view or bool(stamps.restricted)
        if not stamps.held and (gets_each or not is_restricted):
            return None
        if not standing.view or self._former_lanes[0] != standing.view:
            self._former_lanes = (standing.view, dict(self.intake.marks()))
        return PartitionGate(
            msgspec.structs.replace(
                situation, units_continue=self.policy.unit_continues, gets_each=gets_each
            ),
            stamps,
            standing,
            residence=self._residence,
            keys_of=messages.keys_of,
            former_lanes=self._former_lanes[1],
            open_lanes=self.intake.marks(),
        )

    def hold(self, lane: LaneId, first: int, last: int, why: Hold, effects: list[AnyEffect]) -> None:
        """Messages of a lane that come next wait until the cluster is whole, and all behind them on their lane."""
        is_first = not self.stamps.held
        self.stamps.hold(lane, first, last, why, self.intake.next_number)
        record = HeldRecord(self.number, lane, first, last, why)
        effects.append(Write(RecordKind.HELD, encode_record(record)))
        if is_first:
            for messages in self.lists():
                self.regate_list(messages, effects)

    def gets_each(self, list_number: int) -> bool:
        """Whether a list hands out every message in whatever part it is."""
        messages = self.list_by_number(list_number)
        return messages is not None and not self._has_rules(messages)

    def held_since_it_came(self, list_number: int) -> Iterator[tuple[LaneId, int, int]]:
        """Lanes of which a list has handed out nothing from a sequence on, as far as it came under this number or a
        later one: it waits until the cluster is whole."""
        if self.list_by_number(list_number) is None:
            return
        gets_each = self.gets_each(list_number)
        for lane, held in self.stamps.held.items():
            first = held.behind_gap if gets_each else held.first
            if first:
                yield lane, first, held.number

    def _published_in_part(self, event: Published, effects: list[AnyEffect], now: int) -> None:
        """What may have been sent before, and is not known here, may be known, and done, elsewhere (▲); so may what
        is missing before a message of its lane (P7)."""
        block = event.block
        has_gap = block.first > self.intake.marks().get(block.lane, 0) + 1
        if (event.resent or has_gap) and self.intake.would_accept(block):
            why = Hold.GAP if has_gap else Hold.SENT_AGAIN
            self.hold(block.lane, block.first, block.last, why, effects)
        self._published_block(event, effects, now)

    # ---- messages

    def _published_block(self, event: Published, effects: list[AnyEffect], now: int) -> None:
        block = event.block
        if self.flow.blocked and self._turned_away(block, effects):
            return
        if not self.intake.accept(block, effects):
            return
        if self.intake.may_have_ended(block, resent=event.resent):
            self.intake.confirm(block, effects)
            return
        self.count(block)
        if self.needs_no_disk(block):
            self.intake.confirm(block, effects)
            self.add(block, effects, now)
            self._dispatch(effects, now)
        else:
            self.intake.persist(block)
            effects.append(Persist(block))
        if self.intake.next_number >= self.flow.due_number or self._bytes >= self.flow.due_bytes:
            self.measure(effects)

    def adopt(self, block: Block, effects: list[AnyEffect], now: int) -> bool:
        """Take over a message that another destination had. False: it is to be stored first.

        Its lane leads elsewhere; what of it came, and what its sender is told, is decided there.
        """
        self.count(block)
        if self.needs_no_disk(block):
            self.intake.number(block)
            self.add(block, effects, now)
            return True
        self.intake.adopt(block)
        return False

    def count(self, block: Block) -> None:
        """A block was accepted for good."""
        self._published += block.count
        self._bytes += block.size
        if block.expiry or block.flags & EXPIRIES:
            self.may_expire = True

    def needs_no_disk(self, block: Block) -> bool:
        """Nobody will ever ask for it, or it may be lost and there is room for it in memory."""
        if not self.wants(block):
            return True
        # Once one is on its way to the disk, the next must not overtake it.
        # A large message has its record in any case: what refers to its file is found by it.
        may_stay = not block.persistent and not block.flags & LARGE
        return may_stay and not self.intake.spilling and self._keeps_loaded()

    def dispatch(self, effects: list[AnyEffect], now: int) -> None:
        self._dispatch(effects, now)

    def _keeps_loaded(self) -> bool:
        return all(messages.keeps_loaded for messages in self.lists())

    def _stored(self, event: BlocksStored, effects: list[AnyEffect], _now: int) -> None:
        self.intake.stored(event.blocks, effects)

    def _ready(self, event: BlocksReady, effects: list[AnyEffect], now: int) -> None:
        self.intake.arrived(event.blocks)
        for block in event.blocks:
            self._take_in(block, effects, now)
        self._dispatch(effects, now)

    def _take_in(self, block: Block, effects: list[AnyEffect], now: int) -> None:
        """What is stored is there for all."""
        held = 0 if self.has_ended else self.add(block, effects, now)
        more = held - block.count  # it was held once when it was written
        if not block.position:
            return  # of a transaction, and not persistent: nothing was written
        if more > 0:
            effects.append(Retain(block.position, more))
        elif more < 0:
            effects.append(Release(block.position, -more))

    def _refused(self, event: BlockRefused, effects: list[AnyEffect], _now: int) -> None:
        self._published -= event.block.count
        self._bytes -= event.block.size
        self.intake.not_stored(event.block, event.code, event.sentence, effects)
        self.stamps.taken_back(self.intake.next_number)

    # ---- flow control

    def held(self) -> int:
        """How many messages count for flow control, those on their way to the disk included."""
        raise NotImplementedError

    def measure(self, effects: list[AnyEffect]) -> None:
        """See whether producers must wait, or need not any more."""
        if self.flow.measured(self.held(), self.intake.next_number, self._bytes, self.policy):
            effects.append(Multicast(FlowChanged(self.address, self.flow.blocked)))

    def recovered(self) -> None:
        """What waits was found on disk. Whoever opens a lane hears whether to wait."""
        self.intake.recovered()
        self.may_expire = any(messages.depth for messages in self.lists())
        sizes = [sum(page.bytes for _, page in messages.waiting_pages()) for messages in self.lists()]
        self.flow.restore(max(sizes, default=0), self.intake.next_number)
        self.measure([])

    def _turned_away(self, block: Block, effects: list[AnyEffect]) -> bool:
        """Its sender was told to wait and went on beyond all bounds."""
        if self.pause.is_beyond(block):
            sentence = f"{self.address} is paused, and what you sent since you were told to wait is too much"
            return self.intake.turn_away(block, effects, code="destination-paused", sentence=sentence)
        if not self.flow.is_beyond(self.policy):
            return False
        sentence = f"{self.address} is full, and what you sent since you were told to wait is too much"
        return self.intake.turn_away(block, effects, code="destination-full", sentence=sentence)

    # ---- consumers

    def _attached_or_claimed(self, event: ConsumerAttached, effects: list[AnyEffect], now: int) -> None:
        """A consumer comes, or comes back; one whose lease has passed meanwhile comes as any other."""
        messages = self.list_of(event.consumer)
        if event.claim is None or messages is None:
            self._attached(event, effects, now)
            return
        try:
            gone = messages.claim(event, event.claim, effects, now)
        except ClientFault as fault:
            effects.append(Multicast(Rejected(event.request, fault.code, fault.sentence)))
            return
        if gone is None:
            effects.append(Multicast(Answered(event.request, self.how_it_stands)))
        else:
            unknown = messages.never_given(event.consumer, gone)
            answer = {"resumed": True, "gone": gone, **({"unknown": unknown} if unknown else {})}
            effects.append(Answer(event.request, answer | self.how_it_stands))
        messages.dispatch(effects, now)

    def _detached(self, event: ConsumerDetached, effects: list[AnyEffect], now: int) -> None:
        self._leave(event, effects, now)
        self._dispatch(effects, now)

    def _left_together(self, event: ConsumersGone, effects: list[AnyEffect], now: int) -> None:
        for consumer in event.consumers:
            self._leave(ConsumerDetached(self.address, consumer), effects, now)
        self._dispatch(effects, now)

    def _taken_back(self, event: DispatchesDropped, effects: list[AnyEffect], _now: int) -> None:
        for messages in self.lists():
            messages.take_back(event.of_consumers, effects)
        effects.append(Continue())  # not at once: what may be handed out in the new view is being decided

    def _went_away(self, event: ConsumerAway, _effects: list[AnyEffect], _now: int) -> None:
        messages = self.list_of(event.consumer)
        if messages is not None:
            messages.step_away(event.consumer)

    def _credit_granted(self, event: CreditGranted, effects: list[AnyEffect], now: int) -> None:
        messages = self.list_of(event.consumer)
        if messages is not None:
            messages.grant(event.consumer, event.count)
            messages.dispatch(effects, now)

    def _settled(self, event: Settled, effects: list[AnyEffect], now: int) -> None:
        messages = self.list_of(event.consumer)
        if messages is None:
            if event.request and event.again:  # it left behind this, which was carried out then
                effects.append(Multicast(Answered(event.request, {})))
            elif event.request:
                effects.append(Multicast(Rejected(event.request, "consumer-unknown", "the consumer is gone")))
            return
        try:
            messages.settle(
                event.consumer,
                event.ranges,
                effects,
                now,
                returned=event.returned,
                replenish=event.replenish,
                request=event.request,
                error=event.error,
                seen=event.seen,
                again=event.again,
                fate=event.fate,
            )
        except ClientFault as fault:
            if event.request:
                effects.append(Multicast(Rejected(event.request, fault.code, fault.sentence)))
        messages.dispatch(effects, now)

    def _retired(self, event: ConsumerRetired, effects: list[AnyEffect], now: int) -> None:
        messages = self.list_of(event.consumer)
        if messages is not None:
            messages.retire(event.consumer, effects, now, event.seen)
            messages.dispatch(effects, now)
        effects.append(Multicast(Answered(event.request, {})))

    # ---- time

    def _turn_came(self, _event: TurnCame, effects: list[AnyEffect], now: int) -> None:
        self._dispatch(effects, now)
        self._retain(effects, now)

    def _time_came(self, _event: TimeCame, effects: list[AnyEffect], now: int) -> None:
        for messages in self.lists():
            if 0 < messages.schedule.next_due <= now:
                messages.time_came(now)
                messages.dispatch(effects, now)

    @property
    def next_due(self) -> int:
        """When something that is set aside is due (microseconds), 0 if nothing is."""
        return min((due for messages in self.lists() if (due := messages.schedule.next_due)), default=0)

    @property
    def needs_sweeping(self) -> bool:
        policy = self.policy
        return self.may_expire or policy.undelivered_to_dead_after > 0 or policy.has_retention

    def _swept(self, _event: Swept, effects: list[AnyEffect], now: int) -> None:
        for messages in self.lists():
            messages.sweep(effects, now)
        self._retain(effects, now)

    def _retain(self, effects: list[AnyEffect], now: int) -> None:
        """Remove what the policy does not keep."""
        if self.policy.has_retention:
            held = self.held()
            size = self.flow.bytes_of(held, self.intake.next_number, self._bytes)
            for messages in self.lists():
                if not messages.is_gated:  # what another part may need is not for this one to remove
                    enforce(messages, held, size, effects, now)

    def _bury_failed(self, event: BuryFailed, effects: list[AnyEffect], now: int) -> None:
        messages = self.list_by_number(event.list_number)
        if messages is not None:
            messages.not_buried(event.spans, event.reason, effects, now)

    # ---- administration

    def set_policy(self, policy: Policy) -> None:
        self.policy = policy
        for messages in self.lists():
            messages.set_policy(policy)
            self.regate_list(messages, [])

    def set_paused(self, paused: Paused) -> None:
        self.pause.set(paused)
        self.flow.paused = paused.production
        for messages in self.lists():
            messages.paused = paused.consumption

    def purge(self, effects: list[AnyEffect]) -> int:
        """Everything that waits is done; what consumers have stays with them. Returns how many that was."""
        pending = self.intake.pending
        before = pending[0].number if pending else self.intake.next_number
        purged = sum(messages.purge(before - 1, effects) for messages in self.lists())
        self.measure(effects)
        return purged

    def session_ended(self, session: SessionId, *, but_marks: bool = False) -> None:
        self.intake.forget(session, but_marks=but_marks)

    def consumers(self) -> list[ConsumerId]:
        return [consumer for messages in self.lists() for consumer in messages.consumers]

    def end(self, effects: list[AnyEffect]) -> None:
        """The destination is deleted with all that waits in it, and what is on its way to it."""
        self.has_ended = True
        for messages in list(self.lists()):
            messages.end(effects)

    def held_back(self) -> dict[Hold, int]:
        """How many messages wait, and why, that could go if the cluster were whole."""
        found: dict[Hold, int] = {}
        for messages in self.lists():
            for why, count in messages.held_back.items():
                found[why] = found.get(why, 0) + count
        return found

    def oldest_number(self) -> int:
        """All messages that are here have this number or a higher one; 0: that is not easily said."""
        return (
            0
            if any(messages.depth + messages.in_flight for messages in self.lists())
            else self.intake.next_number
        )

    def counts(self) -> tuple[int, ...]:
        """The figures that are summed up over many thousand destinations: depth, in flight, consumers, delivered,
        settled, stopped units, published, bytes, subscriptions, held back."""
        depth = in_flight = consumers = delivered = settled = stopped = 0
        for messages in self.lists():
            depth += messages.depth
            in_flight += messages.in_flight
            consumers += len(messages.consumers)
            delivered += messages.delivered
            settled += messages.settled
            stopped += messages.units.stopped
        held_back = sum(self.held_back().values()) if self._situation is not None else 0
        return (
            depth,
            in_flight,
            consumers,
            delivered,
            settled,
            stopped,
            self._published,
            self._bytes,
            0,
            held_back,
        )

    def figures(self) -> Figures:
        lists = list(self.lists())
        held_back = self.held_back()
        return Figures(
            address=self.address,
            kind=kind_of(self.address),
            depth=sum(messages.depth for messages in lists),
            in_flight=sum(messages.in_flight for messages in lists),
            consumers=sum(len(messages.consumers) for messages in lists),
            published=self._published,
            delivered=sum(messages.delivered for messages in lists),
            settled=sum(messages.settled for messages in lists),
            bytes=self._bytes,
            held_bytes=self.flow.bytes_of(self.held(), self.intake.next_number, self._bytes),
            blocked=self.flow.blocked,
            stopped_units=sum(messages.units.stopped for messages in lists),
            production_paused=self.pause.state.production,
            consumption_paused=self.pause.state.consumption,
            held_back=sum(held_back.values()),
            held_back_why=in_words(held_back),
        )
