"""What a log has since the cluster was whole, told so that it can be compared with another one and taken into it
(docs/decisions/0018).

An `Account` is of one destination: which sequences of which lanes it has taken, and which of those wait. Both sides
give one; `summary_of` puts them in the words of `cluster/merging.py`, which says what is missing where.
What waits is found by number in a snapshot of the destination; whose messages these are say the headers of their
blocks, which the shell reads.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Final

import msgspec

from heliograph.cluster.merging import LaneSummary, Place, Summary, done_of
from heliograph.cluster.ranges import ALL_THAT_FOLLOWS, NONE, Ranges, common, minus, union
from heliograph.destinations.catalogue import Catalogue
from heliograph.destinations.destination import Destination
from heliograph.destinations.documents import Document
from heliograph.destinations.pages import Entry
from heliograph.destinations.snapshot import DestinationState, SubscriptionState
from heliograph.destinations.subscriptions import Terms
from heliograph.model.block import Block, parse_trusted
from heliograph.model.destination import Address, Kind, kind_of
from heliograph.model.ids import ConsumerId, LaneId
from heliograph.model.policy import Policy

SOMEBODY = ConsumerId(b"")  # the log does not say who had it
# Places that are no subscriptions: those have a client and a name.
MOVED = "\0moved"
NUMBERS = "\0numbers"
NOTHING: Final[Mapping[int, Ranges]] = MappingProxyType({})
_number = attrgetter("number")

ByLane = dict[LaneId, Ranges]


class Body(msgspec.Struct, array_like=True):
    """A block in a branch file, and which of its messages somebody wants."""

    first: int
    last: int
    offset: int
    size: int


class Account(msgspec.Struct, array_like=True):
    """One destination."""

    address: str
    is_deleted: bool = False
    policy: Policy | None = None
    known: ByLane = {}
    moved: ByLane = {}  # of lanes that lead elsewhere
    done: dict[int, Ranges] = {}  # by list: messages that are older than the account, by number
    waiting: ByLane = {}  # in any list: there is a body
    moved_waiting: ByLane = {}
    seen: dict[str, ByLane] = {}  # what waits and was handed out before, by list: "", or the subscription
    wanted_by: dict[str, ByLane] = {}  # what waits for each durable subscription
    bodies: dict[LaneId, list[Body]] = {}
    moved_bodies: dict[LaneId, list[Body]] = {}
    handed_out: dict[int, Ranges] = {}  # by list, as `done`
    doubtful: dict[int, Ranges] = {}  # by list, numbers: consumed in transactions that may not have happened
    perhaps: ByLane = {}  # sent in such transactions: not among what is known
    apart: dict[str, ByLane] = {}  # of `seen`: what a restricted view handed out
    apart_by_number: dict[int, Ranges] = {}  # the same by list and number, of what is older than the account
    before: dict[
        str, ByLane
    ] = {}  # what waits and is older than a durable subscription, of those that were made


class Branch(msgspec.Struct, array_like=True):
    """What a log had behind a fork."""

    id: bytes
    store: bytes
    fork: int
    index: int  # where it ended
    chain: int
    accounts: list[Account] = []
    opened: list[bytes] = []  # sessions, as the journal keeps them
    closed: list[bytes] = []
    outcomes: list[tuple[bytes, int, bool]] = []
    subscribed: list[tuple[str, Terms]] = []
    ended: list[tuple[str, Terms]] = []
    documents: list[Document] = []
    placed: list[bytes] = []  # destinations of other sub-clusters, as the journal keeps them
    paths: list[bytes] = []  # units of distributed destinations, as the journal keeps them
    files: list[bytes] = []  # that hold the content of large messages, as far as it is here
    alerts: list[tuple[str, bytes]] = []  # alert channels, as a snapshot has them


encode_branch = msgspec.msgpack.Encoder().encode
decode_branch = msgspec.msgpack.Decoder(Branch).decode


def key_of(terms: Terms) -> str:
    return f"{terms.client}\0{terms.name}"


# ---- what lies in a destination


class Lying(msgspec.Struct):
    """What a destination holds, by number: in any list, and for each durable subscription; of both, what was handed
    out before, or is; and the block at each position, by the number that its first message has. Of each list, what it
    may still hand out for the first time."""

    waiting: Ranges = NONE
    seen: dict[str, Ranges] = {}
    wanted_by: dict[str, Ranges] = {}
    list_of: dict[str, int] = {}
    positions: dict[int, int] = {}
    unseen_by: dict[int, Ranges] = {}
    marked: dict[int, Ranges] = {}  # by list, whatever its age: handed out, or comes marked if it is
    out: dict[int, Ranges] = {}  # the same: what a consumer has
    out_at_first: dict[int, Ranges] = {}  # of that: what comes without a mark if its consumer never saw it


def lying_in(state: DestinationState, base: int) -> Lying:
    """What is as young as the account."""
    found = Lying()
    entries = [
        entry
        for level in state.levels
        for entry in (
            *(each for page in level.pages for each in page.entries()),
            *map(_out, level.dispatched),
        )
    ]
    waiting = [_add(found, "", entries, base)]
    found.marked[0] = _marked(entries)
    _add_out(found, 0, [entry for level in state.levels for entry in level.dispatched])
    if state.levels:
        found.unseen_by[0] = minus(waiting[0], found.marked[0])
    for subscription in state.subscriptions:
        name = key_of(subscription.terms) if subscription.terms.durable else ""
        entries = list(entries_for(state, subscription))
        numbers = _add(found, name, entries, base)
        seen = found.marked[subscription.number] = _marked(entries)
        found.unseen_by[subscription.number] = minus(numbers, seen)
        waiting.append(numbers)
        _add_out(
            found, subscription.number, [out for cursor in subscription.cursors for out in cursor.dispatched]
        )
        if name:
            found.wanted_by[name] = numbers
            found.list_of[name] = subscription.number
    found.waiting = union(*waiting)
    return found


def _marked(entries: Iterable[Entry]) -> Ranges:
    return union([(entry.number, entry.last) for entry in entries if entry.deliveries])


def _add_out(found: Lying, list_number: int, entries: list[Entry]) -> None:
    found.out[list_number] = union([(entry.number, entry.last) for entry in entries])
    found.out_at_first[list_number] = minus(found.out[list_number], _marked(entries))


def _out(entry: Entry) -> Entry:
    """With a consumer: handed out."""
    return entry._replace(deliveries=entry.deliveries + 1)


def _add(found: Lying, name: str, entries: Iterable[Entry], base: int) -> Ranges:
    waiting: list[tuple[int, int]] = []
    seen: list[tuple[int, int]] = []
    for entry in entries:
        if entry.number >= base:
            found.positions[entry.position] = entry.number - entry.start
            waiting.append((entry.number, entry.last))
            if entry.deliveries:
                seen.append((entry.number, entry.last))
    found.seen[name] = union(found.seen.get(name, NONE), seen)
    return union(waiting)


def entries_for(state: DestinationState, subscription: SubscriptionState) -> Iterator[Entry]:
    """What it has yet to read waits like what it has read and not settled."""
    cursors = {cursor.priority: cursor for cursor in subscription.cursors}
    terms = subscription.terms
    for sequence in state.sequences:
        if (sequence.selector, sequence.without) == (terms.selector, terms.without):
            cursor = cursors.get(sequence.priority)
            begins = cursor.next_number if cursor is not None else subscription.begins
            for entry in (each for page in sequence.pages for each in page.entries()):
                if entry.last >= begins:
                    skipped = max(begins - entry.number, 0)
                    yield entry._replace(
                        number=entry.number + skipped,
                        start=entry.start + skipped,
                        messages=entry.messages - skipped,
                        deliveries=int(cursor is not None and entry.last < cursor.seen),
                    )
    for cursor in subscription.cursors:
        yield from cursor.waiting
        yield from map(_out, cursor.dispatched)


class Layout:
    """Which message has which number."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._is_sorted = True

    def add(self, header: Block, number: int) -> None:
        header.number = number
        self._blocks.append(header)
        self._is_sorted = False

    def blocks(self) -> list[Block]:
        if not self._is_sorted:
            self._blocks.sort(key=_number)
            self._is_sorted = True
        return self._blocks

    def of_numbers(self, numbers: Ranges) -> Iterator[tuple[Block, int, int]]:
        """Blocks with the first and the last number of each range in them."""
        blocks = self.blocks()
        for first, last in numbers:
            at = max(bisect_right(blocks, first, key=_number) - 1, 0)
            while at < len(blocks) and blocks[at].number <= last:
                block = blocks[at]
                low, high = max(first, block.number), min(last, block.number + block.count - 1)
                if low <= high:
                    yield block, low, high
                at += 1

    def by_lane(self, numbers: Ranges) -> ByLane:
        found: dict[LaneId, list[tuple[int, int]]] = {}
        for block, low, high in self.of_numbers(numbers):
            shift = block.first - block.number
            found.setdefault(block.lane, []).append((low + shift, high + shift))
        return {lane: union(ranges) for lane, ranges in found.items()}

    def numbers_of(self, lane: LaneId, sequences: Ranges, among: Ranges) -> Ranges:
        """Where these are, among those numbers."""
        found: list[tuple[int, int]] = []
        for block in self.blocks():
            if block.lane == lane:
                shift = block.number - block.first
                here = common(sequences, ((block.first, block.last),))
                found += [(first + shift, last + shift) for first, last in here]
        return common(union(found), among)


def held_back_in(destination: Destination, list_number: int, layout: Layout) -> Ranges:
    """Numbers of what a list has handed to nobody since it came: it waits until the cluster is whole."""
    held = [
        layout.numbers_of(lane, ((first, ALL_THAT_FOLLOWS),), ((since, ALL_THAT_FOLLOWS),))
        for lane, first, since in destination.held_since_it_came(list_number)
    ]
    return union(*held)


# ---- accounts


def account_of(
    catalogue: Catalogue,
    state: DestinationState,
    lying: Lying,
    layout: Layout,
    untraced: Mapping[int, Ranges] = NOTHING,
) -> Account:
    """Of the lanes that the ledger knows. `untraced`: what a restricted view may have handed out besides, by list and
    number."""
    ledger, address = catalogue.ledger, Address(state.address)
    made, consumed = _doubtful_in(catalogue, state.number)
    taken = {
        LaneId(lane): common(catalogue.known_of(address, LaneId(lane)), sequences)
        for lane, sequences in ledger.lanes_of(state.number).items()
    }
    known = {lane: minus(ranges, made.get(lane, NONE)) for lane, ranges in taken.items()}
    moved = {LaneId(lane): ranges for lane, ranges in ledger.moved_to(state.number).items()}
    done = {
        number: minus(numbers, consumed.get(number, NONE))
        for number, numbers in ledger.done_of(state.number).items()
    }
    account = Account(state.address, False, state.policy, known, moved, done, doubtful=consumed)
    account.perhaps = {lane: common(ranges, made[lane]) for lane, ranges in taken.items() if lane in made}
    older = ((1, ledger.base_of(state.number) - 1),)
    account.handed_out, apart = ledger.handed_out_of(state.number), ledger.apart_of(state.number)
    for number, numbers in untraced.items():
        account.handed_out[number] = union(account.handed_out.get(number, NONE), common(numbers, older))
        apart[number] = union(apart.get(number, NONE), numbers)
    for name, list_number in lists_of(lying):
        lying.seen[name] = union(lying.seen[name], minus(untraced.get(list_number, NONE), older))
    fill(account, lying, layout)
    account.apart = {
        name: layout.by_lane(common(lying.seen[name], apart.get(list_number, NONE)))
        for name, list_number in lists_of(lying)
    }
    account.apart_by_number = {number: common(ranges, older) for number, ranges in apart.items()}
    for name, list_number in lying.list_of.items():
        origin = ledger.made_of(state.number, list_number)
        if origin is not None and not origin.has_kept and origin.begins > 1:
            account.before[name] = layout.by_lane(common(lying.waiting, ((1, origin.begins - 1),)))
    return account


def lists_of(lying: Lying) -> list[tuple[str, int]]:
    """Names and numbers of the lists that outlive their consumers."""
    return [("", 0), *lying.list_of.items()]


def _doubtful_in(catalogue: Catalogue, destination: int) -> tuple[dict[bytes, Ranges], dict[int, Ranges]]:
    """What transactions that may not have happened sent to a destination, by lane, and consumed of it, by list."""
    made: dict[bytes, Ranges] = {}
    consumed: dict[int, Ranges] = {}
    for decided in catalogue.ledger.doubtful():
        for place, lane, first, last in decided.made:
            if place == destination:
                made[lane] = union(made.get(lane, NONE), ((first, last),))
        for place, list_number, numbers in decided.done:
            if place == destination:
                consumed[list_number] = union(consumed.get(list_number, NONE), numbers)
    return made, consumed


def account_like(catalogue: Catalogue, other: Account, number: int) -> Account:
    """Of the same lanes, as far as they are known here."""
    address = Address(other.address)
    known = {lane: catalogue.known_of(address, lane) for lane in other.known}
    moved = {LaneId(lane): ranges for lane, ranges in catalogue.ledger.moved_to(number).items()}
    return Account(other.address, False, None, known, moved, catalogue.ledger.done_of(number))


def as_known_to(ours: Account, theirs: Account) -> Account:
    """What a transaction sent that may not have happened counts for those who know it: to them it is a message as any
    other, and done if it is done anywhere (PROTOCOL 5). For the others there is none."""
    known = {
        lane: union(ranges, common(theirs.perhaps.get(lane, NONE), ours.known.get(lane, NONE)))
        for lane, ranges in theirs.known.items()
    }
    return msgspec.structs.replace(theirs, known=known)


def fill_like(account: Account, other: Account, lying: Lying, layout: Layout) -> None:
    """The same for one that a branch is compared with. The ledger says what was ever handed out; but what went back
    unseen would come without a mark, and somebody in the branch may have had it. So would what somebody has here, and
    may never see, if the branch gave it to a client in its turn (a topic's messages go out in every part)."""
    fill(account, lying, layout)
    account.handed_out = dict(lying.marked)
    for number, apart in other.apart_by_number.items():
        unmarked = common(apart, lying.out_at_first.get(number, NONE))
        account.handed_out[number] = minus(account.handed_out.get(number, NONE), unmarked)
    for name, list_number in lists_of(lying):
        unmarked_of = layout.by_lane(lying.out_at_first.get(list_number, NONE))
        for lane, unmarked in unmarked_of.items():
            apart = other.apart.get(name, {}).get(lane, NONE)
            seen = account.seen[name]
            seen[lane] = minus(seen.get(lane, NONE), common(unmarked, apart))


def kept_for(theirs: Account, name: str, kept: Ranges, layout: Layout) -> Ranges:
    """Of what is kept here for other parts, by number, what a subscription of one of them gets: all that its part did
    not know when they met, for that cannot have been before it; and what its part knew, and it waits for there."""
    found: list[tuple[int, int]] = []
    wanted = theirs.wanted_by.get(name, {})
    for block, low, high in layout.of_numbers(kept):
        lane, shift = block.lane, block.first - block.number
        known = union(*(each.get(lane, NONE) for each in (theirs.known, theirs.perhaps, theirs.moved)))
        here = ((low + shift, high + shift),)
        for first, last in union(minus(here, known), common(here, wanted.get(lane, NONE))):
            found.append((first - shift, last - shift))
    return union(found)


def fill(account: Account, lying: Lying, layout: Layout) -> None:
    """What waits, by lane. What was moved and what came by itself are told apart: a lane leads to one place."""
    for lane, ranges in layout.by_lane(lying.waiting).items():
        moved = common(ranges, account.moved.get(lane, NONE))
        account.moved_waiting[lane] = moved
        known = union(account.known.get(lane, NONE), account.perhaps.get(lane, NONE))
        account.waiting[lane] = common(minus(ranges, moved), known)
    account.seen = {name: layout.by_lane(numbers) for name, numbers in lying.seen.items()}
    account.wanted_by = {name: layout.by_lane(numbers) for name, numbers in lying.wanted_by.items()}


def since(known: Ranges, first: int) -> Ranges:
    return common(known, ((first, ALL_THAT_FOLLOWS),))


def deleted_accounts(catalogue: Catalogue) -> list[Account]:
    """Of destinations that ended: all that was known of them is done."""
    found = []
    for ended in catalogue.ledger.deleted():
        address = Address(ended.address)
        if address not in catalogue.by_address:
            known = {
                LaneId(lane): since(catalogue.known_of(address, LaneId(lane)), first)
                for lane, first in ended.lanes.items()
            }
            done: dict[int, Ranges] = {0: ((1, ended.base - 1),)} if ended.base > 1 else {}
            found.append(Account(ended.address, True, None, known, {}, done))
    return found


def summary_of(store: bytes, accounts: Iterable[Account]) -> Summary:
    lanes: dict[Place, LaneSummary] = {}
    for account in accounts:
        address = Address(account.address)
        for lane, known in account.known.items():
            done = minus(known, account.waiting.get(lane, NONE))
            held = NONE if is_topic(account.address) else _seen(account, "", lane, done)
            lanes[address, "", lane] = LaneSummary(known, done_of(done), _by_somebody(held))
            for name, wanted in account.wanted_by.items():
                done = minus(known, wanted.get(lane, NONE))
                held = _seen(account, name, lane, done)
                lanes[address, name, lane] = LaneSummary(NONE, done_of(done), _by_somebody(held))
        for lane, moved in account.moved.items():
            done = minus(moved, account.moved_waiting.get(lane, NONE))
            lanes[address, MOVED, lane] = LaneSummary(moved, done_of(done))
        for number in {**account.done, **account.handed_out}:
            done = account.done.get(number, NONE)
            held = minus(account.handed_out.get(number, NONE), done)
            place = (address, f"{NUMBERS}{number}", LaneId(b""))
            lanes[place] = LaneSummary(NONE, done_of(done), _by_somebody(held))
    return Summary(store, lanes)


def _seen(account: Account, name: str, lane: LaneId, done: Ranges) -> Ranges:
    seen = account.seen.get(name, {}).get(lane, NONE)
    return minus(common(seen, account.known.get(lane, NONE)), done)


def _by_somebody(ranges: Ranges) -> tuple[tuple[ConsumerId, Ranges], ...]:
    return ((SOMEBODY, ranges),) if ranges else ()


def is_topic(address: str) -> bool:
    return kind_of(Address(address)) is Kind.TOPIC


def header_of(buffer: bytes) -> Block:
    return parse_trusted(buffer, keep=False)
