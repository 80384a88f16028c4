"""The state that makes the next recovery short: sessions, destinations, marks, and what waits where.

Queues are kept as their pages' arrays as they stand; topics as one sequence per group and a number per
subscription. Structs are arrays on disk: fields are appended, never reordered.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from heliograph.destinations.alert_destination import AlertDestination
from heliograph.destinations.alerts.replay import state_of
from heliograph.destinations.catalogue import Catalogue, Grave
from heliograph.destinations.destination import Destination
from heliograph.destinations.documents import Document
from heliograph.destinations.doubts import Doubt
from heliograph.destinations.intake import Apart
from heliograph.destinations.message_list import MessageList
from heliograph.destinations.pages import Entry, Page, pages_of
from heliograph.destinations.paths import PathState
from heliograph.destinations.pausing import NOTHING, Paused
from heliograph.destinations.pipelines import Mark
from heliograph.destinations.placing import runs_in_queue, runs_in_topic
from heliograph.destinations.queue import Queue
from heliograph.destinations.stamps import StampsState
from heliograph.destinations.standing import Standing
from heliograph.destinations.subscriptions import Group, Subscription, Terms
from heliograph.destinations.topic import Topic
from heliograph.destinations.transactions import Finishing, PreparedRecord
from heliograph.model.block import Block
from heliograph.model.policy import Policy


class LevelState(msgspec.Struct, array_like=True):
    """One priority of a queue: pages, and entries that are handed out."""

    priority: int
    pages: list[Page]
    dispatched: list[Entry]


class CursorState(msgspec.Struct, array_like=True):
    """One subscription in one sequence: the next message to read, and what was read and is not settled.

    What has a number below `seen` may have been handed out without a trace.
    """

    priority: int
    next_number: int
    waiting: list[Entry]
    dispatched: list[Entry]
    seen: int = 0


class SubscriptionState(msgspec.Struct, array_like=True):
    """A durable subscription. `begins`: the first message of sequences that it has not met."""

    number: int
    terms: Terms
    begins: int
    cursors: list[CursorState]


class SequenceState(msgspec.Struct, array_like=True):
    """What a group keeps at one priority."""

    selector: str
    without: bytes
    priority: int
    pages: list[Page]


class DestinationState(msgspec.Struct, array_like=True):
    """A queue (levels) or a topic (sequences and subscriptions)."""

    number: int
    address: str
    next_number: int
    marks: list[tuple[bytes, int]]
    levels: list[LevelState]
    sequences: list[SequenceState]
    subscriptions: list[SubscriptionState]
    policy: Policy | None
    paused: Paused = NOTHING
    stamps: StampsState | None = None
    apart: Apart | None = None  # in a cluster: what is remembered until it is whole
    alerts: bytes = b""  # of an alert channel: all of it


class SessionState(msgspec.Struct, array_like=True):
    """A session and its lanes."""

    session: bytes
    user: str
    token: bytes
    lanes: list[tuple[int, str]]
    transaction: tuple[int, bool] | None
    client: str = ""
    kept: bool = False


class StageState(msgspec.Struct, array_like=True):
    """A block of a transaction that is not decided."""

    destination: int
    position: int
    block: bytes


class PreparedState(msgspec.Struct, array_like=True):
    """A transaction that is prepared: its record, and what was staged before it. What it consumed is handed out."""

    record: PreparedRecord
    stages: list[StageState]


LogState = tuple[int, int, list[bytes], bytes, bytes]
"""Where a log stands that several servers have: index, chain, the views it came through, the cluster's identity, and
what `cluster/log.py` keeps of the cluster."""


class CatalogueState(msgspec.Struct, array_like=True):
    """The whole snapshot. `boot` names the run of the machine that it was taken in."""

    sessions: list[SessionState]
    destinations: list[DestinationState]
    boot: bytes
    stages: list[StageState]
    large: list[tuple[int, bytes]] = []  # records that refer to files: position, file
    index: int = 0  # of the last record, in a log that several servers have (docs/decisions/0010)
    chain: int = 0
    views: list[bytes] = []  # that the log came through
    identity: bytes = b""  # of the cluster whose log it is
    cluster: bytes = b""  # how it stands with the views and the nodes of the cluster
    stopped_clean: bool = False
    placements: list[tuple[str, str]] = []  # destinations of other sub-clusters, and where they were placed
    prepared: list[PreparedState] = []
    finishing: list[Finishing] = []
    documents: list[Document] = []  # of which every node has a copy
    standing: Standing | None = None  # the view that the log is in, where it is one of a cluster
    ledger: bytes = b""  # in a cluster: what differs where its parts meet
    graves: dict[str, Grave] = {}
    paths: list[PathState] = []  # where units of distributed destinations are
    pipelines: list[Mark] = []
    doubts: list[Doubt] = []  # consumers that may be in another part, and what they have


_Dumped = tuple[list[int], list[bytes]]


def _dump(page: Page) -> _Dumped:
    """For one page at a time, so that millions of positions are not held twice while they are encoded."""
    return page.dump()


def _restore(_page: type[Page], dumped: object) -> Page:
    return Page.restore(*msgspec.convert(dumped, _Dumped))


encode_state = msgspec.msgpack.Encoder(enc_hook=_dump).encode
decode_state = msgspec.msgpack.Decoder(CatalogueState, dec_hook=_restore).decode


def snapshot_of(catalogue: Catalogue, boot: bytes, place: LogState = (0, 0, [], b"", b"")) -> bytes:
    destinations = [
        _state_of(destination)
        for destination in catalogue.all_destinations()
        if not catalogue.is_volatile(destination.address)
    ]
    transactions = catalogue.transactions
    stages = _lasting_stages(catalogue, transactions.all_staged())
    large = catalogue.large.pairs()
    state = CatalogueState(sessions_of(catalogue), destinations, boot, stages, large, *place)
    state.prepared = [
        PreparedState(record, _lasting_stages(catalogue, staged))
        for record, staged in transactions.all_prepared()
    ]
    state.finishing = list(transactions.finishing.values())
    state.placements = placements_of(catalogue)
    state.documents = list(catalogue.documents.by_key.values())
    state.standing = catalogue.views.standing
    add_ledger(catalogue, state)
    state.paths = catalogue.paths.states()
    state.pipelines = catalogue.pipelines.all()
    state.doubts = list(catalogue.doubts)
    return encode_state(state)


def add_ledger(catalogue: Catalogue, state: CatalogueState) -> None:
    if catalogue.is_replicated:
        state.ledger = catalogue.ledger.state()
        state.graves = {str(address): grave for address, grave in catalogue.graves.items()}


def _lasting_stages(catalogue: Catalogue, staged: list[tuple[Destination, Block]]) -> list[StageState]:
    return stages_of(
        (destination, block)
        for destination, block in staged
        if not catalogue.is_volatile(destination.address)
    )


def placements_of(catalogue: Catalogue) -> list[tuple[str, str]]:
    return [(str(address), place) for address, place in catalogue.placements.items()]


def sessions_of(catalogue: Catalogue) -> list[SessionState]:
    transactions = catalogue.transactions
    outcomes = {
        **transactions.outcomes(),
        **{deciding.session: (deciding.number, True) for deciding in transactions.undecided()},
    }
    return [
        SessionState(
            identity,
            session.user,
            session.token,
            [(lane, str(to)) for lane, to in session.lanes.items()],
            outcomes.get(identity),
            session.client,
            session.kept,
        )
        for identity, session in catalogue.sessions.items()
    ]


def stages_of(staged: Iterable[tuple[Destination, Block]]) -> list[StageState]:
    return [
        StageState(destination.number, block.position, block.buffer)
        for destination, block in staged
        if block.buffer is not None
    ]


def _state_of(destination: Destination) -> DestinationState:
    state = facts_of(destination)
    if isinstance(destination, Queue):
        state.levels = levels_of(destination)
    elif isinstance(destination, Topic):
        _add_subscriptions(destination, state)
    return state


def facts_of(destination: Destination) -> DestinationState:
    """All of it but the messages."""
    intake = destination.intake
    alerts = state_of(destination.channel) if isinstance(destination, AlertDestination) else b""
    return DestinationState(
        number=destination.number,
        address=destination.address,
        next_number=intake.next_number,
        marks=[(bytes(lane), mark) for lane, mark in intake.marks().items()],
        levels=[],
        sequences=[],
        subscriptions=[],
        policy=destination.policy,
        paused=destination.pause.state,
        stamps=destination.stamps.state,
        apart=intake.apart,
        alerts=alerts,
    )


# ---- queues


def levels_of(queue: Queue) -> list[LevelState]:
    """What waits and what consumers have. Pages may lie among one another: units of order hold theirs back."""
    messages = queue.messages
    loaded = _by_priority(messages.loaded_entries())
    pending: dict[int, list[Entry]] = {}
    for block in queue.intake.pending:
        if block.persistent:
            for priority, start, stop in runs_in_queue(block):
                entry = Entry(block.number + start, block.position, start, stop - start, 0)
                pending.setdefault(priority, []).append(entry)
    cold: dict[int, list[Page]] = {}
    for priority, page in messages.waiting_pages():
        persistent = page.persistent_part()
        if persistent is not None:
            cold.setdefault(priority, []).append(persistent)
    dispatched = _by_priority(messages.outstanding_entries())
    return [
        LevelState(
            priority,
            [
                *pages_of(sorted(loaded.get(priority, []))),
                *cold.get(priority, []),
                *pages_of(pending.get(priority, [])),
            ],
            sorted(dispatched.get(priority, [])),
        )
        for priority in sorted({*loaded, *cold, *pending, *dispatched})
    ]


def _by_priority(entries: Iterable[tuple[int, Entry]]) -> dict[int, list[Entry]]:
    found: dict[int, list[Entry]] = {}
    for priority, entry in entries:
        found.setdefault(priority, []).append(entry)
    return found


# ---- topics


def _add_subscriptions(topic: Topic, state: DestinationState) -> None:
    durable = [each for each in topic.subscriptions.values() if each.messages.durable]
    for group in topic.groups():
        members = [subscription for subscription in durable if subscription.group is group]
        if members:
            state.sequences += _sequences_of(group, topic)
    state.subscriptions = [_subscription_of(topic, subscription) for subscription in durable]


def _sequences_of(group: Group, topic: Topic) -> list[SequenceState]:
    """What the group keeps; with it what is pending, which each of its subscriptions will get."""
    pages = {priority: sequence.persistent_pages() for priority, sequence in group.sequences().items()}
    for block in topic.intake.pending:
        if block.persistent:
            _add_pending(group, topic, block, pages)
    return [SequenceState(*group.key, priority, kept) for priority, kept in pages.items()]


def _add_pending(group: Group, topic: Topic, block: Block, pages: dict[int, list[Page]]) -> None:
    for wanting, spans in topic.selected(block):
        if wanting is not group:
            continue
        for start, stop in spans:
            for priority, first, last in runs_in_topic(block):
                low, high = max(start, first), min(stop, last)
                if low < high:
                    page = Page()
                    page.append(block.number + low, block.position, low, high - low, block.size)
                    pages.setdefault(priority, []).append(page)


def _subscription_of(topic: Topic, subscription: Subscription) -> SubscriptionState:
    begins = topic.begins_at(subscription)
    cursors = [
        _cursor_of(subscription.messages, priority, sequence.origins(), begins)
        for priority, sequence in subscription.group.sequences().items()
        if subscription.active
    ]
    return SubscriptionState(subscription.messages.number, subscription.terms, begins, cursors)


def _cursor_of(messages: MessageList, priority: int, origins: dict[int, int], begins: int) -> CursorState:
    level = messages.shared_level(priority)
    waiting = [
        *level.private_entries(),
        *(entry for at, entry in messages.schedule.entries(spilled=False) if at == priority),
        *(entry for at, entry in messages.held_entries() if at == priority),
    ]
    dispatched = [entry for at, entry in messages.outstanding_entries() if at == priority]
    return CursorState(
        priority,
        level.next_number or begins,
        sorted(entry._replace(origin=origins[entry.origin]) for entry in waiting),
        sorted(entry._replace(origin=origins[entry.origin]) for entry in dispatched),
        level.seen,
    )
