"""From the journal back to a catalogue: the newest snapshot, then the records that follow it."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

import msgspec

from heliograph.cluster.dispatch_rules import Hold
from heliograph.destinations.alert_destination import AlertDestination
from heliograph.destinations.alerts.records import ALERT_KINDS, channel_of
from heliograph.destinations.alerts.replay import machine_was_lost
from heliograph.destinations.alerts.replay import replay as replay_alert
from heliograph.destinations.alerts.replay import restore as restore_channel
from heliograph.destinations.catalogue import Catalogue, KnownSession
from heliograph.destinations.destination import Destination
from heliograph.destinations.documents import decode_document
from heliograph.destinations.ledger import decode_known, decode_missed
from heliograph.destinations.pages import SEGMENT_SHIFT, Entry, Page, pages_of
from heliograph.destinations.pipelines import decode_mark
from heliograph.destinations.placing import runs_in_queue, runs_in_topic
from heliograph.destinations.queue import Queue
from heliograph.destinations.replay import LevelReplay
from heliograph.destinations.snapshot import (
    CatalogueState,
    DestinationState,
    LevelState,
    LogState,
    PreparedState,
    add_ledger,
    decode_state,
    facts_of,
    placements_of,
    sessions_of,
    stages_of,
)
from heliograph.destinations.subscriptions import SubscriptionRecord
from heliograph.destinations.topic import Topic
from heliograph.destinations.topic_replay import CursorReplay, TopicReplay
from heliograph.destinations.transactions import (
    BEFORE,
    CommitRecord,
    FinishedRecord,
    Key,
    Prepared,
    PreparedRecord,
)
from heliograph.journal.records import Record, RecordKind
from heliograph.model.block import LARGE, PRIORITIES, Block, Span, parse_trusted
from heliograph.model.destination import Address
from heliograph.model.errors import HeliographError
from heliograph.model.ids import ConsumerId, LaneId, SessionId, lane_number, session_of
from heliograph.model.large import file_in

_PAIR = struct.Struct("<QQ")
_KINDS = frozenset(map(int, RecordKind))
_decode_subscription = msgspec.msgpack.Decoder(SubscriptionRecord).decode
_decode_commit = msgspec.msgpack.Decoder(CommitRecord).decode
_decode_prepared = msgspec.msgpack.Decoder(PreparedRecord).decode
_decode_finished = msgspec.msgpack.Decoder(FinishedRecord).decode
_OF_VIEWS = (RecordKind.ENTERED, RecordKind.IN_FORCE, RecordKind.HELD)
_MERGING = (RecordKind.JOINED, RecordKind.KNOWN, RecordKind.MISSED, RecordKind.WHOLE, RecordKind.DOUBTED)
_NOTES = (RecordKind.DONE, RecordKind.DISPATCHED, RecordKind.RETURNED, RecordKind.UNSEEN)


class Holder(Protocol):
    """Who keeps count of what is still needed in each segment."""

    def retain(self, position: int, messages: int) -> None: ...


class Log(Protocol):
    """Who counts the records of a log that several servers have."""

    index: int

    def restore(
        self, index: int, chain: int, views: list[bytes], identity: bytes, standing: bytes
    ) -> None: ...

    def add(self, kind: int, destination: int, list_number: int, payload: bytes | memoryview) -> None: ...


class QueueReplay:
    """The levels of a queue."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.levels: dict[int, LevelReplay] = {}

    def level(self, priority: int) -> LevelReplay:
        found = self.levels.get(priority)
        if found is None:
            found = self.levels[priority] = LevelReplay()
        return found

    def restarted(self, *, everything_again: bool) -> None:
        for level in self.levels.values():
            level.restarted(everything_again=everything_again)

    def state(self) -> list[LevelState]:
        return [
            LevelState(priority, level.finish(), level.handed_out())
            for priority, level in self.levels.items()
        ]

    def finish(self) -> list[Page]:
        held: list[Page] = []
        for priority, level in self.levels.items():
            pages = level.finish()
            self.queue.restore(priority, pages)
            held += pages
        return held


class Given(NamedTuple):
    """Messages `first` to `last` of a list were handed to a consumer under tags `tag` and up."""

    consumer: ConsumerId
    tag: int
    destination: int
    list: int
    first: int
    last: int


class Claim(NamedTuple):
    """What a consumer still has of it."""

    tag: int
    destination: int
    list: int
    priority: int
    entry: Entry


class Inheritance(NamedTuple):
    """What a server that takes over finds: how many messages wait, what consumers have, and what returned."""

    messages: int
    claims: dict[ConsumerId, list[Claim]]
    returned: list[tuple[int, int, list[tuple[int, int]]]]


class CatalogueRecovery:
    """Takes a snapshot and records, in order; `finish` hands over a catalogue that can go to work."""

    def __init__(
        self, catalogue: Catalogue, now: float, log: Log | None = None, until: int | None = None
    ) -> None:
        """`log`: records go on coming from another server after those of the journal, perhaps for ever.

        `until`: what is in the journal behind this index of the log does not count, nor does a snapshot that is.
        """
        self._until = until
        self._is_beyond = False
        self._catalogue = catalogue
        self._now = now
        self._log = log
        self._queues: dict[int, QueueReplay] = {}
        self._topics: dict[int, TopicReplay] = {}
        self._stages: dict[SessionId, list[tuple[Destination, Block]]] = {}
        self._prepared: dict[Key, Prepared] = {}
        self.pledged: dict[Key, list[Claim]] = {}  # at the end: what was consumed in those that are prepared
        self.started_on = b""
        self.stopped_clean = True

    # ---- the snapshot

    def snapshot(self, payload: memoryview) -> None:
        state = decode_state(payload)
        if self._until is not None and state.index > self._until:
            self._is_beyond = True
            return
        self.started_on, self.stopped_clean = state.boot, state.stopped_clean
        self._catalogue.placements = {Address(address): place for address, place in state.placements}
        self._catalogue.views.standing = state.standing
        for document in state.documents:
            self._catalogue.documents.restore(document)
        self._catalogue.paths.restore(state.paths)
        for doubt in state.doubts:
            self._catalogue.doubts.note(doubt)
        for mark in state.pipelines:
            self._catalogue.pipelines.restore(mark)
        if self._log is not None:
            self._log.restore(state.index, state.chain, state.views, state.identity, state.cluster)
        for session in state.sessions:
            lanes = {lane: Address(address) for lane, address in session.lanes}
            known = KnownSession(
                session.user,
                session.token,
                lanes,
                lost_at=self._now,
                client=session.client,
                kept=session.kept,
            )
            self._catalogue.sessions[SessionId(session.session)] = known
            if session.transaction:
                number, committed = session.transaction
                self._catalogue.transactions.restore_outcome(SessionId(session.session), number, committed)
        for destination in state.destinations:
            self._restore(destination)
        self._catalogue.graves = {Address(address): grave for address, grave in state.graves.items()}
        numbers = self._catalogue.by_number
        self._catalogue.ledger.restore(state.ledger, {number: numbers[number].address for number in numbers})
        self._catalogue.large.restore(state.large)
        for stage in state.stages:
            target = self._catalogue.by_number[stage.destination]
            self._stage(target, self._block_of(stage.block, stage.position, target), stage.block)
        for promise in state.prepared:
            self._restore_prepared(promise)
        for finishing in state.finishing:
            key = (SessionId(finishing.session), finishing.number)
            self._catalogue.transactions.finishing[key] = finishing

    def _restore_prepared(self, state: PreparedState) -> None:
        staged = []
        for stage in state.stages:
            target = self._catalogue.by_number[stage.destination]
            block = self._block_of(stage.block, stage.position, target)
            self._keep_bytes(block, stage.block)
            staged.append((target, block))
        self._promise(state.record, staged)

    def _restore(self, state: DestinationState) -> None:
        made = self._make(state.number, state.address)
        marks = {LaneId(lane): mark for lane, mark in state.marks}
        made.intake.restore(marks, state.next_number, state.apart)
        if state.policy is not None:
            made.set_policy(state.policy)
        made.set_paused(state.paused)
        made.stamps.restore(state.stamps)
        if isinstance(made, Queue):
            replay = self._queues[state.number]
            for level in state.levels:
                replay.level(level.priority).restore(level.pages, level.dispatched)
        elif isinstance(made, Topic):
            self._restore_topic(made, state)
        elif isinstance(made, AlertDestination) and state.alerts:
            restore_channel(made.channel, state.alerts)

    def _restore_topic(self, topic: Topic, state: DestinationState) -> None:
        replay = self._topics[topic.number]
        for subscription_state in state.subscriptions:
            subscription = topic.restore_subscription(subscription_state.number, subscription_state.terms)
            replay.begins(subscription, subscription_state.begins)
        groups = {group.key: group for group in topic.groups()}
        for kept in state.sequences:
            sequence = replay.sequence(groups[kept.selector, kept.without], kept.priority)
            sequence.pages = kept.pages
            for index, page in enumerate(sequence.pages):
                page.origin = index
        for subscription_state in state.subscriptions:
            subscription = topic.subscriptions[subscription_state.number]
            for cursor_state in subscription_state.cursors:
                cursor = replay.cursor(subscription, cursor_state.priority)
                cursor.next_number = cursor_state.next_number
                cursor.seen = cursor_state.seen
                cursor.waiting.add(cursor_state.waiting)
                cursor.dispatched.add(cursor_state.dispatched)

    def _make(self, number: int, address: str) -> Destination:
        made = self._catalogue.restore_destination(number, address)
        if isinstance(made, Queue):
            self._queues[number] = QueueReplay(made)
        elif isinstance(made, Topic):
            self._topics[number] = TopicReplay(made)
        return made

    # ---- records

    def record(self, record: Record) -> None:
        """Raises HeliographError for one that only a later version knows: what follows may hang on it."""
        kind = record.kind
        if self._is_beyond:
            if kind == RecordKind.RELOCATED:
                self._relocated(record)
            return
        if self._log is not None:
            if self._until is not None and self._log.index >= self._until:
                self._is_beyond = True
                return
            self._log.add(kind, record.destination, record.list, record.payload)
        if kind == RecordKind.PUBLISHED:
            self._published(record)
        elif kind == RecordKind.ADOPTED:
            self._adopted(record)
        elif kind in _NOTES:
            for first, last in _PAIR.iter_unpack(record.payload):
                self._noted(record.kind, record.destination, record.list, first, last)
        elif kind == RecordKind.STAGED:
            self._staged(record)
        elif kind == RecordKind.COMMITTED:
            self._committed(bytes(record.payload))
        elif kind == RecordKind.PREPARED:
            promise = _decode_prepared(bytes(record.payload))
            self._promise(promise, self._stages.pop(promise.key[0], []))
        elif kind == RecordKind.FINISHED:
            finished = _decode_finished(bytes(record.payload))
            key = (SessionId(finished.session), finished.number)
            self._catalogue.transactions.finishing.pop(key, None)
        elif kind == RecordKind.SESSION:
            self._catalogue.replay_session(bytes(record.payload), self._now)
        elif kind == RecordKind.DESTINATION:
            self._destination(bytes(record.payload))
        elif kind == RecordKind.SUBSCRIPTION:
            self._subscription(bytes(record.payload))
        elif kind == RecordKind.DOCUMENT:
            self._catalogue.documents.restore(decode_document(record.payload))
        elif kind in _OF_VIEWS:
            self._catalogue.views.replay(kind, bytes(record.payload))
        elif kind == RecordKind.PATH:
            self._catalogue.paths.replay(bytes(record.payload))
        elif kind == RecordKind.STARTED:
            self._restarted(bytes(record.payload))
            self.started_on, self.stopped_clean = bytes(record.payload), False
        elif kind == RecordKind.STOPPED:
            self.stopped_clean = True
        else:
            self._rarer(record)

    def _rarer(self, record: Record) -> None:
        kind = record.kind
        if kind == RecordKind.RELOCATED:
            self._relocated(record)
        elif kind in _MERGING:
            self._merging(record)
        elif kind in ALERT_KINDS:
            self._alert(kind, bytes(record.payload))
        elif kind == RecordKind.PIPELINE:
            self._catalogue.pipelines.restore(decode_mark(record.payload))
        elif kind not in _KINDS:
            sentence = (
                f"the log has a record of kind {kind}, which this version does not know: start this node with the"
                " version that wrote it, which is that of the node that leads"
            )
            raise HeliographError(sentence, code="journal-version")

    def _alert(self, kind: int, payload: bytes) -> None:
        channel = self._catalogue.channels.get(channel_of(payload))
        if channel is not None:  # otherwise it was deleted since
            replay_alert(channel.channel, kind, payload)

    def _merging(self, record: Record) -> None:
        """Parts met, are about to, or may have something that was handed out here (docs/decisions/0018, 0014)."""
        if record.kind == RecordKind.WHOLE:
            self._catalogue.views.replay(record.kind, bytes(record.payload))
            self._catalogue.became_whole()
            return
        if record.kind == RecordKind.DOUBTED:
            self._catalogue.doubts.replay(record.payload)
            return
        destination = self._catalogue.by_number.get(record.destination)
        if destination is None:
            return  # deleted since
        intake = destination.intake
        if record.kind == RecordKind.JOINED:
            block = self._block_of(record.payload, record.position, destination)
            why = Hold.FROM_RESTRICTED
            destination.stamps.hold(block.lane, block.first, block.last, why, intake.next_number)
            intake.replay_joined(block, record.list)
            self._publish(destination, block)
        elif record.kind == RecordKind.KNOWN:
            known = decode_known(record.payload)
            intake.learn(LaneId(known.lane), known.ranges)
        else:
            missed = decode_missed(record.payload)
            intake.miss(LaneId(missed.lane), missed.first, missed.last)

    def _destination(self, payload: bytes) -> None:
        record = self._catalogue.decode_destination(payload)
        if not record.number:
            self._catalogue.replay_placement(record)
            return
        if self._catalogue.is_volatile(Address(record.address)):
            return
        if record.deleted:
            self._forget(record.number)
            return
        made = self._catalogue.by_number.get(record.number) or self._make(record.number, record.address)
        if record.policy is not None:
            made.set_policy(record.policy)
        if record.paused is not None:
            made.set_paused(record.paused)

    def _forget(self, number: int) -> None:
        self._catalogue.remove(number)
        self._queues.pop(number, None)
        self._topics.pop(number, None)

    def _published(self, record: Record) -> None:
        destination = self._catalogue.by_number.get(record.destination)
        if destination is None:
            return  # deleted since
        block = self._block_of(record.payload, record.position, destination)
        destination.intake.replay(block, record.list)
        self._publish(destination, block)

    def _adopted(self, record: Record) -> None:
        destination = self._catalogue.by_number.get(record.destination)
        if destination is not None:
            block = self._block_of(record.payload, record.position, destination, adopted=True)
            destination.intake.replay_adopted(block, record.list)
            self._publish(destination, block)

    def _block_of(
        self, payload: bytes | memoryview, position: int, destination: Destination, *, adopted: bool = False
    ) -> Block:
        """A block without its bytes, except where they are needed to tell where its messages go.

        `adopted`: its lane leads to another destination.
        """
        block = parse_trusted(payload, position, keep=False)
        if isinstance(destination, Topic) or block.flags & PRIORITIES:
            block.buffer = bytes(payload)
        if block.flags & LARGE:
            self._catalogue.large.persisted(position, file_in(bytes(payload)))
        if not adopted:
            self._lane_used(block.lane, destination)
        return block

    def _publish(self, destination: Destination, block: Block) -> None:
        """A block that has its number takes its place."""
        if self._log is not None:
            self._catalogue.ledger.numbered(destination.number, block.number)
        topic = self._topics.get(destination.number)
        if topic is not None:
            topic.published(block, block.position, runs_in_topic(block))
            block.buffer = None
            return
        queue = self._queues[destination.number]
        for priority, start, stop in runs_in_queue(block):
            queue.level(priority).published(
                block.number + start, block.position, start, stop - start, block.size
            )

    def _staged(self, record: Record) -> None:
        destination = self._catalogue.by_number.get(record.destination)
        if destination is not None:
            block = self._block_of(record.payload, record.position, destination)
            destination.intake.replay_mark(block)
            self._stage(destination, block, record.payload)

    def _stage(self, destination: Destination, block: Block, payload: bytes | memoryview) -> None:
        self._keep_bytes(block, payload)
        self._stages.setdefault(session_of(block.lane), []).append((destination, block))

    def _keep_bytes(self, block: Block, payload: bytes | memoryview) -> None:
        """Whoever takes over from another server needs the bytes when it commits. After a restart only what is
        prepared goes on: that is read again then."""
        if self._log is not None or block.flags & LARGE:
            block.buffer = bytes(payload)

    def _promise(self, record: PreparedRecord, staged: list[tuple[Destination, Block]]) -> None:
        self._prepared[record.key] = Prepared(record, staged, record.since, view=self._present)
        for target, first, last in self._consumed_in(record):
            target.was_pledged(first, last)

    @property
    def _present(self) -> bytes:
        return self._catalogue.views.present or BEFORE

    def _consumed_in(self, record: PreparedRecord) -> Iterator[tuple[LevelReplay | CursorReplay, int, int]]:
        for destination, list_number, ranges in record.consumed:
            for _, target in self._targets(destination, list_number):
                for first, last in ranges:
                    yield target, first, last

    def _committed(self, payload: bytes) -> None:
        record = _decode_commit(payload)
        session = SessionId(record.session)
        transactions = self._catalogue.transactions
        promise = self._prepared.pop((session, record.number), None)
        staged = promise.staged if promise is not None else self._stages.pop(session, [])
        stages = self._still_wanted(staged)
        if record.number and promise is None:
            transactions.restore_outcome(session, record.number, record.committed, self._present)
        elif promise is not None and session in self._catalogue.sessions:
            transactions.was_decided(session, record.number, record.committed, self._present)
        if promise is not None and record.committed:
            transactions.is_decided(promise.record, promise.record.since)
        elif promise is not None:
            for target, first, last in self._consumed_in(promise.record):
                target.was_not_redeemed(first, last)
        if record.committed:
            for (destination, block), number in zip(stages, record.numbers, strict=True):
                destination.intake.replay_number(block, number)
                self._publish(destination, block)
            for destination_number, list_number, ranges in record.done:
                for first, last in ranges:
                    self._noted(RecordKind.DONE, destination_number, list_number, first, last)

    def _still_wanted(self, staged: list[tuple[Destination, Block]]) -> list[tuple[Destination, Block]]:
        by_number = self._catalogue.by_number
        return [stage for stage in staged if by_number.get(stage[0].number) is stage[0]]

    def _lane_used(self, lane: LaneId, destination: Destination) -> None:
        session = self._catalogue.sessions.get(session_of(lane))
        if session is not None:
            session.lanes.setdefault(lane_number(lane), destination.address)

    def _noted(self, kind: int, destination: int, list_number: int, first: int, last: int) -> None:
        if not last:
            return  # it says why the others are done (`removals.py`)
        targets: list[LevelReplay] | list[CursorReplay] = []
        if (queue := self._queues.get(destination)) is not None:
            targets = list(queue.levels.values())
        elif (topic := self._topics.get(destination)) is not None:
            targets = topic.of_list(list_number)
        for target in targets:
            if kind == RecordKind.DONE:
                target.was_done(first, last)
            elif kind == RecordKind.DISPATCHED:
                target.was_dispatched(first, last)
            elif kind == RecordKind.UNSEEN:
                target.was_unseen(first, last)
            else:
                target.was_returned(first, last)

    def _subscription(self, payload: bytes) -> None:
        record = _decode_subscription(payload)
        replay = self._topics.get(record.destination)
        if replay is None:
            return
        topic = replay.topic
        if record.ended:
            topic.forget_subscription(record.number)
            return
        subscription = topic.subscriptions.get(record.number) if record.branch else None
        if subscription is None:
            subscription = topic.restore_subscription(record.number, record.terms)
            replay.begins(subscription, topic.intake.next_number)
        replay.inherits(subscription, record.kept)

    def _relocated(self, record: Record) -> None:
        moves = dict(_PAIR.iter_unpack(record.payload))
        self._catalogue.large.relocate(moves)
        if (queue := self._queues.get(record.destination)) is not None:
            for level in queue.levels.values():
                level.relocate(moves)
        elif (topic := self._topics.get(record.destination)) is not None:
            topic.relocate(moves)

    # ---- a snapshot on the way

    def state(self, place: LogState) -> tuple[CatalogueState, list[Page]]:
        """What the records so far amount to, and the pages that hold something: for who never stops recovering."""
        held: list[Page] = []
        destinations = [self._state_of(number, held) for number in self._catalogue.by_number]
        open_stages = [stage for staged in self._stages.values() for stage in staged]
        promised = [
            (promise.record, self._still_wanted(promise.staged)) for promise in self._prepared.values()
        ]
        stages = [*open_stages, *(stage for _, staged in promised for stage in staged)]
        held += pages_of(Entry(0, block.position, 0, block.count, 0) for _, block in stages)
        found = CatalogueState(
            sessions_of(self._catalogue),
            destinations,
            self.started_on,
            stages_of(open_stages),
            self._catalogue.large.pairs(),
            *place,
            self.stopped_clean,
            placements_of(self._catalogue),
        )
        found.documents = list(self._catalogue.documents.by_key.values())
        found.standing = self._catalogue.views.standing
        found.paths = self._catalogue.paths.states()
        found.pipelines = self._catalogue.pipelines.all()
        found.doubts = list(self._catalogue.doubts)
        found.prepared = [PreparedState(record, stages_of(staged)) for record, staged in promised]
        found.finishing = list(self._catalogue.transactions.finishing.values())
        add_ledger(self._catalogue, found)
        return found, held

    def _state_of(self, number: int, held: list[Page]) -> DestinationState:
        state = facts_of(self._catalogue.by_number[number])
        if (queue := self._queues.get(number)) is not None:
            state.levels = queue.state()
            for level in state.levels:
                held += [*level.pages, *pages_of(level.dispatched)]
        elif (topic := self._topics.get(number)) is not None:
            held += topic.add_state(state)
        return state

    def destination_state(self, number: int) -> DestinationState:
        """What the records so far amount to, of one destination."""
        return self._state_of(number, [])

    def has_stages(self, session: SessionId) -> bool:
        """Whether a session is in a transaction, and has sent something in it."""
        return session in self._stages

    # ---- the end

    def _restarted(self, boot: bytes) -> None:
        """One process ended here and another begins: its transactions are gone, and what it had handed out
        returns, but for what is in doubt. With the machine, the last records may have gone too."""
        lost_machine = not self.stopped_clean and self.started_on != boot
        self._stages.clear()
        for destination in list(self._catalogue.by_number.values()):
            if self._catalogue.is_temporary(destination.address):
                self._forget(destination.number)
        for channel in self._catalogue.channels.values() if lost_machine else ():
            machine_was_lost(channel.channel)
        doubtful = [
            (target, target.dispatched.cut(one.first, one.last))
            for one in self._in_doubt()
            for _, target in self._targets(one.destination, one.list)
        ]
        for queue in self._queues.values():
            queue.restarted(everything_again=lost_machine)
        for topic in self._topics.values():
            topic.end_volatile()
            topic.restarted(everything_again=lost_machine)
        for target, entries in doubtful:
            target.dispatched.add(entries)

    def _in_doubt(self) -> list[Given]:
        """What consumers were given that may be in another part."""
        return [
            Given(doubt.consumer, tag, doubt.destination, doubt.standing.list, first, last)
            for doubt in self._catalogue.doubts
            if doubt.standing is not None
            for tag, first, last in doubt.has
        ]

    def finish(self, holder: Holder, *, boot: bytes) -> Inheritance:
        """Give every destination what waits in it, each message counted once a queue or group. What is in doubt is
        still its consumers'."""
        self._restarted(boot)
        claims = self._claims(self._in_doubt())
        messages = self._hand_over(holder, [claim for claimed in claims.values() for claim in claimed])
        return Inheritance(messages, claims, [])

    def take_over(self, given: list[Given], holder: Holder) -> Inheritance:
        """As `finish`, but nothing has ended: transactions go on, and what consumers were `given`, oldest first, is
        theirs. What was handed out to nobody known returns, marked."""
        claims = self._claims(given)
        returned = []
        for destination, list_number, target in self._all_targets():
            ranges = [(entry.number, entry.last) for entry in target.dispatched.all()]
            if ranges:
                returned.append((destination, list_number, ranges))
            target.restarted(everything_again=False)
        stages, self._stages = self._stages, {}
        for session, staged in stages.items():
            for stage_destination, block in staged:
                self._catalogue.transactions.stage(session, stage_destination, block)
        messages = self._hand_over(holder, [claim for claimed in claims.values() for claim in claimed])
        for staged in stages.values():
            for _, block in staged:
                self._hold_stage(block, holder)
        return Inheritance(messages, claims, returned)

    def _claims(self, given: list[Given]) -> dict[ConsumerId, list[Claim]]:
        """What consumers still have of what they were given, oldest first."""
        claims: dict[ConsumerId, list[Claim]] = {}
        for one in reversed(given):
            for priority, target in self._targets(one.destination, one.list):
                for entry in target.claim(one.first, one.last):
                    claim = Claim(
                        one.tag + entry.number - one.first, one.destination, one.list, priority, entry
                    )
                    claims.setdefault(one.consumer, []).append(claim)
        return claims

    def _hold_stage(self, block: Block, holder: Holder) -> None:
        """Nobody holds it but its transaction."""
        holder.retain(block.position, block.count)
        if block.flags & LARGE:
            assert block.buffer is not None, "references to files are small, and are kept"
            self._catalogue.large.persisted(block.position, file_in(block.buffer))

    def still_given(self, given: list[Given]) -> list[Given]:
        """What of it is still handed out."""
        return [
            one
            for one in given
            if any(
                target.dispatched.has(one.first, one.last)
                for _, target in self._targets(one.destination, one.list)
            )
        ]

    def _targets(self, destination: int, list_number: int) -> list[tuple[int, LevelReplay | CursorReplay]]:
        if (queue := self._queues.get(destination)) is not None:
            return list(queue.levels.items())
        if (topic := self._topics.get(destination)) is not None:
            return list(topic.by_priority(list_number))
        return []

    def _all_targets(self) -> Iterator[tuple[int, int, LevelReplay | CursorReplay]]:
        for number, queue in self._queues.items():
            for level in queue.levels.values():
                yield number, 0, level
        for number, topic in self._topics.items():
            for list_number in topic.topic.subscriptions:
                for cursor in topic.of_list(list_number):
                    yield number, list_number, cursor

    def _hand_over(self, holder: Holder, claims: Iterable[Claim] = ()) -> int:
        """`claims`: what consumers have. What is prepared goes on."""
        self.pledged = {key: self._claims_of(promise.record) for key, promise in self._prepared.items()}
        promised = [claim for claimed in self.pledged.values() for claim in claimed]
        # No queue gives a place to what somebody has.
        held: list[Page] = pages_of(claim.entry for claim in (*claims, *promised) if claim.entry.origin < 0)
        for queue in self._queues.values():
            held += queue.finish()
        for topic in self._topics.values():
            held += topic.finish(self._catalogue.residence)
        for page in held:
            for position, count in page.per_segment().items():
                holder.retain(position, count)
        self._catalogue.large.recount(held)
        for key, promise in self._prepared.items():
            promise.staged = self._still_wanted(promise.staged)
            self._catalogue.transactions.prepared[key] = promise
            for _, block in promise.staged:
                self._hold_stage(block, holder)
        self._catalogue.views.wait_for_view()
        return sum(page.messages for page in held)

    def _claims_of(self, record: PreparedRecord) -> list[Claim]:
        """What a prepared transaction has consumed, which is for nobody to have."""
        return [
            Claim(0, destination, list_number, priority, entry)
            for destination, list_number, ranges in record.consumed
            for priority, target in self._targets(destination, list_number)
            for first, last in ranges
            for entry in target.claim_pledged(first, last)
        ]

    def recount_large(self, held: list[Page]) -> None:
        """`held` as `state` gave it."""
        self._catalogue.large.recount(held)


def relocate(destination: Destination, moves: dict[int, int]) -> None:
    """The journal moved records out of one segment: follow."""
    segment = next(iter(moves)) >> SEGMENT_SHIFT
    if isinstance(destination, Topic):
        for group in destination.groups():
            for sequence in group.sequences().values():
                sequence.relocate(moves, segment)
                _relocate_spans(sequence.spans(), moves)
    for messages in destination.lists():
        for _, page in messages.waiting_pages():
            if page.touches(segment):
                page.relocate(moves)
        messages.schedule.relocate(moves)
        _relocate_spans(messages.all_spans(), moves)


def _relocate_spans(spans: Iterable[Span], moves: dict[int, int]) -> None:
    for span in spans:
        block = span.block
        block.position = moves.get(block.position, block.position)
        if block.positions is not None:
            for index, position in enumerate(block.positions):
                block.positions[index] = moves.get(position, position)
