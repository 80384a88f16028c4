"""The primary takes in what another part had (P6, docs/decisions/0018).

It does so while it does not act, in the state that a backup is in: each record is written, told to the backups, and
given to recovery, which knows what to make of it. What to write says the plan; a block and all that is noted of its
messages leave in one tick.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import msgspec

from heliograph.bus.interface import Incarnation
from heliograph.cluster.merging import Keeping, Marking, Plan, Transfer, plan_of
from heliograph.cluster.ranges import ALL_THAT_FOLLOWS, NONE, Ranges, common, minus, union
from heliograph.destinations.alert_destination import AlertDestination
from heliograph.destinations.alerts.records import KINDS, decode_channel
from heliograph.destinations.alerts.union import union_of
from heliograph.destinations.branch import (
    MOVED,
    NUMBERS,
    Account,
    Body,
    Branch,
    Layout,
    Lying,
    account_like,
    as_known_to,
    fill_like,
    header_of,
    held_back_in,
    is_topic,
    lying_in,
    summary_of,
)
from heliograph.destinations.catalogue import Catalogue, DestinationRecord, SessionRecord
from heliograph.destinations.documents import encode_document
from heliograph.destinations.intake import number_mark
from heliograph.destinations.ledger import KnownRecord, encode_record
from heliograph.destinations.moving import copies_of
from heliograph.destinations.paths import PathRecord
from heliograph.destinations.snapshot import decode_state
from heliograph.destinations.subscriptions import SubscriptionRecord, Terms
from heliograph.destinations.topic import Topic
from heliograph.destinations.transactions import CommitRecord
from heliograph.journal.records import NO_MOMENT, Record, RecordKind
from heliograph.model.block import LARGE, Block, Span, parse_trusted, verify_checksum
from heliograph.model.destination import Address
from heliograph.model.errors import NO_ROOM, StorageFull, Unavailable
from heliograph.model.ids import LaneId, SessionId, session_of
from heliograph.model.large import FileId, LargeReference, reference_of
from heliograph.nodes.branches import layout_of, read
from heliograph.nodes.message_manager import MessageManager
from heliograph.nodes.subscription_union import (
    SubscriptionUnion,
    has_to_get_more,
    list_named,
    with_what_was_before,
)

_PAIR = struct.Struct("<QQ")
# Bodies that are asked for in one go.
_BATCH: Final = 256
_decode_destination = msgspec.msgpack.Decoder(DestinationRecord).decode
_decode_path = msgspec.msgpack.Decoder(PathRecord).decode
_decode_session = msgspec.msgpack.Decoder(SessionRecord).decode


class Source(Protocol):
    """Where a branch is."""

    async def bodies(self, places: list[tuple[int, int]]) -> list[bytes]:
        """The blocks at these places."""


class Attendance(Protocol):
    """Who is there while nobody acts."""

    sessions: dict[SessionId, Incarnation]

    def is_attended(self, address: Address, number: int) -> bool:
        """Whether anybody consumes from a list, or from any of a destination, -1."""


class Ledge(msgspec.Struct):
    """One destination of the branch, as it is here."""

    number: int
    theirs: Account
    ours: Account
    lying: Lying
    layout: Layout
    joined: Ranges = NONE  # numbers
    ends: dict[LaneId, int] = {}  # lanes of which nothing is taken from here on


class Merger:
    """Takes in one branch."""

    def __init__(
        self,
        manager: MessageManager,
        ship: Callable[[int, int, int, bytes], None],
        end_of_tick: Callable[[], None],
        attendance: Attendance,
        bring: Callable[[LargeReference], Awaitable[bool]],
    ) -> None:
        """`ship` tells the backups of a record; `end_of_tick` lets what was written leave; `bring` gets the content
        of a large message, and says whether anybody has it."""
        assert manager.recovery is not None, "who merges does not act"
        self._manager = manager
        self._ship = ship
        self._end_of_tick = end_of_tick
        self._attendance = attendance
        self._is_attended = attendance.is_attended
        self._bring = bring
        self._transacted: dict[SessionId, None] = {}
        self.taken = 0  # messages
        self.left_out = 0  # lanes that end before what the branch has of them

    async def take_in(self, branch: Branch, source: Source, rest: Callable[[], Awaitable[None]]) -> None:
        """`rest`: called between portions. Raises StorageFull, or what the source raises: then more is for another
        time."""
        self._transacted = {SessionId(session): None for session, _, _ in branch.outcomes}
        self._write(RecordKind.TIME, 0, 0, NO_MOMENT)  # what stands from here to MERGED is of the merge
        self._take_sessions(branch)
        self._take_documents(branch)
        self._take_places(branch)
        await self._take_subscriptions(branch)
        self._take_alerts(branch)
        branch = with_what_was_before(self._manager.catalogue, branch)
        ledges = {account.address: await self._ledge(account) for account in branch.accounts}
        plan = plan_here(branch, [ledge.ours for ledge in ledges.values()])
        for transfer in plan.transfers:
            await self._join(ledges[transfer.place[0]], transfer, plan, source)
            await rest()
        for marking in plan.markings:
            self._mark(ledges[marking.place[0]], marking)
        for keeping in plan.keepings:
            ledge = ledges[keeping.place[0]]
            self._was_seen(ledge, keeping, minus(ledge.lying.waiting, ledge.joined))
        for ledge in ledges.values():
            self._bury(ledge)
        self._end_subscriptions(branch)
        self._close_sessions(branch)
        self._write(RecordKind.MERGED, 0, 0, branch.id)
        self._end_of_tick()

    # ---- who and what there is

    def _take_sessions(self, branch: Branch) -> None:
        catalogue = self._manager.catalogue
        closed = dict.fromkeys(catalogue.ledger.closed())
        for payload in branch.opened:
            session = SessionId(_decode_session(payload).session)
            if session not in catalogue.sessions and session not in closed:
                self._write(RecordKind.SESSION, 0, 0, payload)
        for identity, number, is_committed in branch.outcomes:
            session = SessionId(identity)
            known = catalogue.transactions.outcomes().get(session, (0, False))
            if number > known[0] and session in catalogue.sessions:
                record = CommitRecord(session, number, is_committed, [], [])
                assert self._manager.recovery is not None
                if not self._manager.recovery.has_stages(session):
                    self._write(RecordKind.COMMITTED, 0, 0, encode_record(record))

    def _close_sessions(self, branch: Branch) -> None:
        """Who closed a session in one part does not come back to it; unless somebody has it open."""
        known = self._manager.catalogue.sessions
        for each in branch.closed:
            session = SessionId(each)
            if session in known and session not in self._attendance.sessions:
                record = SessionRecord(session, known[session].user, b"", closed=True)
                self._write(RecordKind.SESSION, 0, 0, encode_record(record))

    def _take_places(self, branch: Branch) -> None:
        """Where destinations and units are that were placed there, if nobody placed them here (U6)."""
        for payload in _unplaced(self._manager.catalogue, branch):
            self._write(RecordKind.DESTINATION, 0, 0, payload)
        for payload in _unrouted(self._manager.catalogue, branch):
            self._write(RecordKind.PATH, 0, 0, payload)

    def _take_documents(self, branch: Branch) -> None:
        """M14: the higher version wins."""
        here = self._manager.catalogue.documents.by_key
        for document in branch.documents:
            if document.key not in here or document.version > here[document.key].version:
                self._write(RecordKind.DOCUMENT, 0, 0, encode_document(document))

    async def _take_subscriptions(self, branch: Branch) -> None:
        def topic_at(address: str) -> Topic | None:
            found = self._manager.catalogue.by_number[self._number_of(address)]
            return found if isinstance(found, Topic) else None

        def write(payload: bytes) -> None:
            self._write(RecordKind.SUBSCRIPTION, 0, 0, payload)

        await SubscriptionUnion(self._manager, branch, write, topic_at).take_in()

    def _end_subscriptions(self, branch: Branch) -> None:
        for address, terms in branch.ended:
            topic = self._manager.catalogue.by_address.get(Address(address))
            if not isinstance(topic, Topic):
                continue
            number = list_named(topic, terms)
            if number is not None and not self._is_attended(topic.address, number):
                record = SubscriptionRecord(topic.number, number, terms, ended=True)
                self._write(RecordKind.SUBSCRIPTION, 0, 0, encode_record(record))

    def _number_of(self, address: str, account: Account | None = None) -> int:
        """The destination's, which is made if need be."""
        catalogue = self._manager.catalogue
        found = catalogue.by_address.get(Address(address))
        if found is not None:
            return found.number
        policy = account.policy if account is not None else None
        record = DestinationRecord(catalogue.next_number, address, policy)
        self._write(RecordKind.DESTINATION, 0, 0, encode_record(record))
        return record.number

    def _take_alerts(self, branch: Branch) -> None:
        """Live alerts, who has taken them, and what has ended (docs/decisions/0020)."""
        for address, payload in branch.alerts:
            channel = self._manager.catalogue.channels[self._number_of(address)].channel
            for record in union_of(channel, decode_channel(payload)):
                self._write(KINDS[type(record)], 0, 0, encode_record(record))
            self._end_of_tick()

    # ---- messages

    async def _ledge(self, theirs: Account) -> Ledge:
        catalogue = self._manager.catalogue
        address = Address(theirs.address)
        has_bodies = bool(theirs.bodies or theirs.moved_bodies)
        if address not in catalogue.by_address and (theirs.is_deleted or not has_bodies):
            return Ledge(0, theirs, account_like(catalogue, theirs, 0), Lying(), Layout())
        number = self._number_of(theirs.address, theirs)
        ours = account_like(catalogue, theirs, number)
        lying, layout = await lying_here(self._manager, number)
        fill_like(ours, theirs, lying, layout)
        return Ledge(number, theirs, ours, lying, layout)

    async def _join(self, ledge: Ledge, transfer: Transfer, plan: Plan, source: Source) -> None:
        """In the order of the sequences, and before what waits here behind them (P7): that takes its place anew, in
        the tick in which what it follows comes. To the next primary, a gap that is filled is none any more."""
        _, kind, lane = transfer.place
        bodies = (ledge.theirs.moved_bodies if kind == MOVED else ledge.theirs.bodies).get(lane, [])
        wanted = [body for body in bodies if common(transfer.sequences, ((body.first, body.last),))]
        behind = await self._behind(ledge, transfer)
        wanted.sort(key=_first)
        for start in range(0, len(wanted), _BATCH):
            batch = wanted[start : start + _BATCH]
            found = await source.bodies([(body.offset, body.size) for body in batch])
            if not all(map(verify_checksum, found)):
                raise Unavailable("a message of a branch came damaged from its disk", code="branch-damaged")
            for part in [part for buffer in found for part in _parts(buffer, transfer.sequences)]:
                if lane in ledge.ends or not await self._has_content(ledge, kind, part):
                    break
                self._publish(ledge, part, kind, plan)
                while behind and behind[0][0] < _next_of(transfer.sequences, header_of(part).last):
                    self._publish_again(ledge, behind.pop(0), plan)
            while behind and lane in ledge.ends:  # nothing more comes
                self._publish_again(ledge, behind.pop(0), plan)
            self._end_of_tick()

    async def _has_content(self, ledge: Ledge, kind: str, buffer: bytes) -> bool:
        """M6: before there is a message that refers to it.

        Whoever says that a message is stored has its content, and its lane up to there. What nobody has was never
        stored, nor what follows on its lane: its sender, who was not told yes, sends both again. Of a transaction
        that was decided the rest would stay, and what was moved is done where it was: those wait for an operator.
        """
        block = parse_trusted(buffer)
        if not block.flags & LARGE:
            return True
        reference = reference_of(block)
        if not self._manager.large.lacks([FileId(reference.file)]) or await self._bring(reference):
            return True
        if kind == MOVED or session_of(block.lane) in self._transacted:
            raise Unavailable("the content of a large message is lost", code="large-damaged")
        ledge.ends[block.lane] = block.first
        self.left_out += 1
        return False

    async def _behind(self, ledge: Ledge, transfer: Transfer) -> list[tuple[int, bytes, int, int]]:
        """What waits here of a lane, was never handed out, and follows on what comes: sequence, block, first and last
        number."""
        _, kind, lane = transfer.place
        if kind:
            return []
        follows = ((transfer.sequences[0][0] + 1, ALL_THAT_FOLLOWS),)
        waiting = common(ledge.ours.waiting.get(lane, NONE), follows)
        numbers = ledge.layout.numbers_of(lane, waiting, union(*ledge.lying.unseen_by.values()))
        found = []
        for block, low, high in list(ledge.layout.of_numbers(numbers)):
            (buffer,) = await read(self._manager, [block.position])
            shift = block.first - block.number
            for part in _parts(buffer, ((low + shift, high + shift),)):
                header = header_of(part)
                found.append((header.first, part, header.first - shift, header.last - shift))
        return sorted(found)

    def _publish_again(self, ledge: Ledge, again: tuple[int, bytes, int, int], plan: Plan) -> None:
        _, buffer, low, high = again
        if is_topic(ledge.theirs.address):
            self._publish_again_to_some(ledge, again)
            return
        self._note(RecordKind.DONE, ledge.number, 0, ((low, high),))
        ledge.lying.waiting = minus(ledge.lying.waiting, ((low, high),))
        shift = self._publish(ledge, buffer, "", plan).number - low
        self._stays_marked(ledge, 0, ((low, high),), shift)

    def _publish_again_to_some(self, ledge: Ledge, again: tuple[int, bytes, int, int]) -> None:
        """Of a topic: for those lists alone that have not handed it out, and are not done with it. To others it is
        nothing new."""
        _, buffer, low, high = again
        lying, old = ledge.lying, ((low, high),)
        moved = {number: common(unseen, old) for number, unseen in lying.unseen_by.items()}
        first = self._append(ledge, buffer, RecordKind.JOINED).number
        shift = first - low
        for number, numbers in moved.items():
            here = tuple((begin + shift, end + shift) for begin, end in numbers)
            self._note(RecordKind.DONE, ledge.number, number, numbers)
            self._note(RecordKind.DONE, ledge.number, number, minus(((first, high + shift),), here))
            self._stays_marked(ledge, number, numbers, shift)
            lying.unseen_by[number] = union(minus(lying.unseen_by[number], old), here)
            for name, wanted in lying.wanted_by.items():
                if lying.list_of[name] == number:
                    lying.wanted_by[name] = union(minus(wanted, numbers), here)

    def _stays_marked(self, ledge: Ledge, list_number: int, numbers: Ranges, shift: int) -> None:
        """Whatever came marked under these numbers does so under those that it has now."""
        marked = common(ledge.lying.marked[list_number], numbers)
        here = tuple((first + shift, last + shift) for first, last in marked)
        self._comes_marked(ledge, list_number, here)

    def _comes_marked(self, ledge: Ledge, list_number: int, numbers: Ranges) -> None:
        """What somebody has here stays with it: if it goes back unseen, it comes marked all the same."""
        out = common(numbers, ledge.lying.out.get(list_number, NONE))
        self._note(RecordKind.RETURNED, ledge.number, list_number, out)
        self._note(RecordKind.DISPATCHED, ledge.number, list_number, out)
        waiting = minus(numbers, out)
        self._note(RecordKind.DISPATCHED, ledge.number, list_number, waiting)
        self._note(RecordKind.RETURNED, ledge.number, list_number, waiting)

    def _publish(self, ledge: Ledge, buffer: bytes, kind: str, plan: Plan) -> Block:
        block = self._append(ledge, buffer, RecordKind.ADOPTED if kind == MOVED else RecordKind.JOINED)
        here = ((block.number, block.number + block.count - 1),)
        for name in ledge.lying.wanted_by:
            self._mark_list(ledge, name, block.lane, here)
        ledge.joined = union(ledge.joined, here)
        for keeping in plan.keepings:
            if keeping.place[0] == ledge.theirs.address and keeping.place[2] == block.lane and kind != MOVED:
                self._was_seen(ledge, keeping, here)
        return block

    def _append(self, ledge: Ledge, buffer: bytes, record: RecordKind) -> Block:
        block = parse_trusted(buffer)
        destination = self._manager.catalogue.by_number[ledge.number]
        block.number = destination.intake.next_number
        self._write(record, ledge.number, number_mark(block), buffer, bulky=True)
        ledge.layout.add(header_of(buffer), block.number)
        self.taken += block.count
        here = ((block.number, block.number + block.count - 1),)
        ledge.lying.waiting = union(ledge.lying.waiting, here)
        return block

    def _mark_list(self, ledge: Ledge, name: str, lane: LaneId, here: Ranges) -> None:
        """A subscription of both parts may be done with it there."""
        theirs = ledge.theirs.wanted_by.get(name)
        if theirs is not None:
            done = minus(ledge.theirs.known.get(lane, NONE), theirs.get(lane, NONE))
            numbers = ledge.layout.numbers_of(lane, done, here)
            self._note(RecordKind.DONE, ledge.number, ledge.lying.list_of[name], numbers)

    def _was_seen(self, ledge: Ledge, keeping: Keeping, among: Ranges) -> None:
        """Whoever had it may have seen it: when it is handed out again, it says so."""
        _, name, lane = keeping.place
        if name.startswith(NUMBERS):
            self._was_seen_by_number(ledge, int(name[len(NUMBERS) :]), keeping.sequences)
            return
        if name and name not in ledge.lying.list_of:
            return
        numbers = ledge.layout.numbers_of(lane, keeping.sequences, among)
        list_number = ledge.lying.list_of[name] if name else 0
        self._comes_marked(ledge, list_number, numbers)

    def _was_seen_by_number(self, ledge: Ledge, list_number: int, numbers: Ranges) -> None:
        if ledge.number:
            self._comes_marked(ledge, list_number, common(numbers, self._common_to_all(ledge)))

    def _common_to_all(self, ledge: Ledge) -> Ranges:
        """Of a destination that was made anew since, the same numbers are other messages."""
        last = self._manager.catalogue.ledger.last_base_of(ledge.number) - 1
        return ((1, last),) if last else NONE

    def _mark(self, ledge: Ledge, marking: Marking) -> None:
        address, kind, lane = marking.place
        if kind.startswith(NUMBERS):
            numbers = common(marking.sequences, self._common_to_all(ledge))
            self._note(RecordKind.DONE, ledge.number, int(kind[len(NUMBERS) :]), numbers)
        elif kind == "":
            self._know(ledge, lane, minus(marking.sequences, ledge.ours.known.get(lane, NONE)))
            if not is_topic(address):
                self._done_here(ledge, 0, lane, marking.sequences, ledge.lying.waiting)
        elif kind == MOVED:
            self._done_here(ledge, 0, lane, marking.sequences, ledge.lying.waiting)
        elif kind in ledge.lying.list_of:
            wanted = ledge.lying.wanted_by[kind]
            self._done_here(ledge, ledge.lying.list_of[kind], lane, marking.sequences, wanted)

    def _done_here(
        self, ledge: Ledge, list_number: int, lane: LaneId, sequences: Ranges, among: Ranges
    ) -> None:
        if ledge.number:
            numbers = ledge.layout.numbers_of(lane, sequences, among)
            numbers = minus(numbers, ledge.theirs.doubtful.get(list_number, NONE))
            self._note(RecordKind.DONE, ledge.number, list_number, numbers)

    def _know(self, ledge: Ledge, lane: LaneId, sequences: Ranges) -> None:
        """Done elsewhere, and never here: whoever sends it again must not succeed. (Of a lane that ends, what follows
        was not persistent: were it known, what is before it would count as stored.)"""
        if lane in ledge.ends:
            sequences = minus(sequences, ((ledge.ends[lane], ALL_THAT_FOLLOWS),))
        if not sequences:
            return
        if not ledge.number:
            if ledge.theirs.is_deleted:
                return  # nobody sends to it, and if it is made again, it is another
            ledge.number = self._number_of(ledge.theirs.address, ledge.theirs)
        self._write(RecordKind.KNOWN, ledge.number, 0, encode_record(KnownRecord(lane, sequences)))

    def _bury(self, ledge: Ledge) -> None:
        """It was deleted there. If nothing came here that they did not know, it is deleted here."""
        if not (ledge.theirs.is_deleted and ledge.number) or self._is_attended(
            Address(ledge.theirs.address), -1
        ):
            return
        catalogue = self._manager.catalogue
        address = Address(ledge.theirs.address)
        for name in catalogue.ledger.lanes_of(ledge.number):
            known = catalogue.known_of(address, LaneId(name))
            if minus(known, ledge.theirs.known.get(LaneId(name), NONE)):
                return
        record = DestinationRecord(ledge.number, ledge.theirs.address, deleted=True)
        self._write(RecordKind.DESTINATION, 0, 0, encode_record(record))

    # ---- writing

    def _note(self, kind: int, destination: int, list_number: int, numbers: Ranges) -> None:
        if numbers:
            payload = b"".join(_PAIR.pack(first, last) for first, last in numbers)
            self._write(kind, destination, list_number, payload)

    def _write(
        self, kind: int, destination: int, list_number: int, payload: bytes, *, bulky: bool = False
    ) -> None:
        manager = self._manager
        lsn = manager.journal.next_lsn
        position = manager.journal.append(
            kind, destination, list_number, (payload,), len(payload), wait=True, bulky=bulky
        )
        if not position:
            raise StorageFull(f"{NO_ROOM}: a branch cannot be taken in")
        self._ship(kind, destination, list_number, payload)
        assert manager.recovery is not None
        manager.recovery.record(Record(kind, destination, list_number, lsn, position, payload))


def plan_here(branch: Branch, ours: list[Account]) -> Plan:
    """What is missing here of a branch."""
    here, by_address = b"here", {account.address: account for account in ours}
    theirs = [as_known_to(by_address[account.address], account) for account in branch.accounts]
    plan = plan_of([summary_of(here, ours), summary_of(b"branch", theirs)])
    return Plan(
        tuple(each for each in plan.markings if each.target == here),
        tuple(each for each in plan.keepings if each.target == here),
        (),
        tuple(each for each in plan.transfers if each.target == here),
    )


async def lying_here(manager: MessageManager, number: int) -> tuple[Lying, Layout]:
    """What a manager that does not act has in a destination, as far as it is younger than the ledger's base.

    Where a machine was lost, all that waits is marked, for it may have been handed out without a trace (PROTOCOL 4).
    What was held back since it came was not, and may still take another place (P7).
    """
    assert manager.recovery is not None
    state = manager.recovery.destination_state(number)
    lying = lying_in(state, manager.catalogue.ledger.base_of(number))
    layout = await layout_of(manager, lying)
    destination = manager.catalogue.by_number[number]
    for list_number, unseen in lying.unseen_by.items():
        held = held_back_in(destination, list_number, layout)
        lying.unseen_by[list_number] = union(unseen, common(lying.marked[list_number], held))
    return lying, layout


async def has_all_of(manager: MessageManager, branch: Branch) -> bool:
    """Whether a manager that acts has all of a branch: another wrote last what nobody heard, and this one heard the
    same facts. Then it need not stop."""
    catalogue = manager.catalogue
    state = {each.address: each for each in decode_state(manager.externalise()).destinations}
    if not _knows_the_rest(manager, branch):
        return False
    ours = []
    for theirs in branch.accounts:
        here = state.get(theirs.address)
        if here is None:
            ours.append(account_like(catalogue, theirs, 0))
            continue
        account = account_like(catalogue, theirs, here.number)
        lying = lying_in(here, catalogue.ledger.base_of(here.number))
        fill_like(account, theirs, lying, await layout_of(manager, lying))
        ours.append(account)
    return plan_here(branch, ours).is_empty


def _has_alerts(catalogue: Catalogue, address: str, payload: bytes) -> bool:
    """Whether the channel of a branch has nothing to tell."""
    found = catalogue.by_address.get(Address(address))
    if not isinstance(found, AlertDestination):
        return False
    return next(union_of(found.channel, decode_channel(payload)), None) is None


def _knows_the_rest(manager: MessageManager, branch: Branch) -> bool:
    catalogue = manager.catalogue
    closed, ended = dict.fromkeys(catalogue.ledger.closed()), catalogue.ledger.ended()
    sessions = [SessionId(_decode_session(payload).session) for payload in branch.opened]
    outcomes = catalogue.transactions.outcomes()
    here = catalogue.documents.by_key
    return (
        all(session in catalogue.sessions or session in closed for session in sessions)
        and all(
            number <= outcomes.get(SessionId(session), (number, True))[0]
            for session, number, _ in branch.outcomes
        )
        and all(each.key in here and each.version <= here[each.key].version for each in branch.documents)
        and all(_has(catalogue, *each) or each in ended for each in branch.subscribed)
        and not any(_lacks_what_was_kept(catalogue, *each) for each in branch.subscribed)
        and not any(_has(catalogue, *each) for each in branch.ended)
        and not any(SessionId(session) in catalogue.sessions for session in branch.closed)
        and not _unplaced(catalogue, branch)
        and not _unrouted(catalogue, branch)
        and all(_has_alerts(catalogue, *each) for each in branch.alerts)
        and not any(
            each.is_deleted and Address(each.address) in catalogue.by_address for each in branch.accounts
        )
    )


def _unplaced(catalogue: Catalogue, branch: Branch) -> list[bytes]:
    found = []
    for payload in branch.placed:
        record = _decode_destination(payload)
        address = Address(record.address)
        if not record.deleted and address not in catalogue.placements and address not in catalogue.by_address:
            found.append(payload)
    return found


def _unrouted(catalogue: Catalogue, branch: Branch) -> list[bytes]:
    found = []
    for payload in branch.paths:
        record = _decode_path(payload)
        if record.member and not catalogue.paths.member_of(Address(record.address), record.unit):
            found.append(payload)
    return found


def _has(catalogue: Catalogue, address: str, terms: Terms) -> bool:
    topic = catalogue.by_address.get(Address(address))
    return isinstance(topic, Topic) and list_named(topic, terms) is not None


def _lacks_what_was_kept(catalogue: Catalogue, address: str, terms: Terms) -> bool:
    topic = catalogue.by_address.get(Address(address))
    number = list_named(topic, terms) if isinstance(topic, Topic) else None
    return isinstance(topic, Topic) and number is not None and has_to_get_more(catalogue, topic, number)


def _parts(buffer: bytes, sequences: Ranges) -> list[bytes]:
    """The block, if all of it is wanted; otherwise each message that is."""
    block = parse_trusted(buffer)
    wanted = common(sequences, ((block.first, block.last),))
    if wanted == ((block.first, block.last),):
        return [buffer]
    spans = [Span(block, first - block.first, last - block.first + 1) for first, last in wanted]
    return [part for span in spans for part in copies_of(span)]


def _next_of(sequences: Ranges, sequence: int) -> int:
    """The first of them behind a sequence."""
    return next((max(first, sequence + 1) for first, last in sequences if last > sequence), ALL_THAT_FOLLOWS)


def _first(body: Body) -> int:
    return body.first
