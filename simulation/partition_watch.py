"""Whoever stands beside a cluster and hears everything that nodes say and hear on the bus: which views they entered,
in what partition state, and who decided in which view to hand out what. What nodes take themselves for is only
counted here, never believed: the checkers go by what was done."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.bus.commands import (
    DECISIONS,
    Command,
    ConsumerAttached,
    Dispatched,
    Logged,
    Parcelled,
    Published,
    Shipped,
)
from heliograph.bus.interface import NO_VIEW, Configuration, Incarnation, Origin, Place, Stamp
from heliograph.cluster.log import name_of as block_name
from heliograph.cluster.partition_state import Partition
from heliograph.cluster.partition_table import START, TRANSITIONS
from heliograph.journal.records import RecordKind
from heliograph.model import block as blocks
from heliograph.model.block import LARGE, Span
from heliograph.model.ids import ConsumerId, LaneId
from simulation.partition_story import Story
from simulation.world import World

if TYPE_CHECKING:
    from heliograph.nodes.cluster_member import ClusterMember
    from heliograph.nodes.station import Station
    from simulation.supervisor import Supervisor

# A node's own idea of its state is looked at so long after it entered a view.
_LOOK_AFTER_SECONDS: Final = 1e-3
# Records with which messages come into a log.
_ACCEPTED: Final = (RecordKind.PUBLISHED, RecordKind.STAGED, RecordKind.ADOPTED, RecordKind.JOINED)


class ViewSeen(msgspec.Struct):
    """A view, by those who entered it."""

    channel: str
    name: str
    since: float  # when the first entered it
    nodes: dict[str, float] = {}  # and when each did
    is_restricted: bool = False  # as its members say


class Decision(msgspec.Struct, frozen=True):
    """Somebody decided in a view to hand out a message."""

    at: float
    stamp: Stamp
    node: str
    consumer: ConsumerId
    tag: int
    key: str


class Watch:
    """All nodes of a run, in all their lives."""

    def __init__(self, world: World, story: Story) -> None:
        self.world = world
        self.story = story
        self.views: dict[Stamp, ViewSeen] = {}
        self.decisions: dict[tuple[str, int], list[Decision]] = {}  # by message and tag
        self.covered: dict[str, int] = {}
        self.faults: list[str] = []
        self.on_view: list[Callable[[], None]] = []  # called once, when somebody enters the next view
        self.logged_in: dict[str, dict[Stamp, None]] = {}  # by message, the views in which it came into a log
        self._keys: dict[tuple[LaneId, int], str] = {}
        self._blocks: dict[bytes, list[str]] = {}  # the messages of each that was published, by its name
        self._places: dict[ConsumerId, str] = {}

    def ear(self, node: str, channel: str, station: Callable[[], Station | None]) -> Ear:
        return Ear(self, node, channel, station)

    def entered(self, node: str, channel: str, stamp: Stamp) -> None:
        view = self.views.get(stamp)
        if view is None:
            view = self.views[stamp] = ViewSeen(channel, name_of(stamp), self.world.now)
        view.nodes[node] = self.world.now
        asked, self.on_view = self.on_view, []
        for ask in asked:
            ask()

    def published(self, node: str, stamp: Stamp, command: Published) -> None:
        """Its bytes have the keys of its messages, unless they are elsewhere."""
        block = command.block
        if block.flags & LARGE or block.buffer is None:
            return
        again = " again" if command.resent else ""
        where = f"by {node} in {name_of(stamp)} on lane {block.lane[-6:].hex()}"
        keys = self._blocks[block_name(block)] = _keys_in(block.buffer)
        for sequence, key in enumerate(keys, start=block.first):
            self._keys[block.lane, sequence] = key
            self.story.tell(f"is published{again} {where}, {sequence}", key)

    def attached(self, command: ConsumerAttached) -> None:
        name = command.subscription
        self._places[command.consumer] = (
            f"{command.address}/{command.client}" if name else str(command.address)
        )

    def decided(self, node: str, stamp: Stamp, decision: Dispatched | Parcelled) -> None:
        spans = [decision.span] if isinstance(decision, Dispatched) else decision.spans
        tag = decision.tag
        for key in self._keys_of(spans):
            if key:
                made = Decision(self.world.now, stamp, node, decision.consumer, tag, key)
                self.decisions.setdefault((key, tag), []).append(made)
                place = self._places.get(decision.consumer, "somewhere")
                self.story.tell(f"is handed out by {node} in {name_of(stamp)} at {place}, tag {tag}", key)
            tag += 1

    def _keys_of(self, spans: list[Span]) -> Iterator[str]:
        for span in spans:
            for at in range(span.start, span.stop):
                yield self._keys.get((span.block.lane, span.block.first + at), "")

    def applied(self, node: str, member: ClusterMember, origin: Origin, commands: list[Command]) -> None:
        """PROTOCOL 2 ▲: decisions hold in the view in which they were said, and in no other."""
        view = member.view
        if member.is_installed and view is not None and origin.stamp == view.id:
            return
        stray = next((each for each in commands if type(each) in DECISIONS), None)
        if stray is not None:
            said_in, now_in = name_of(origin.stamp), name_of(view.id) if view is not None else "none"
            kind = type(stray).__name__
            self.faults.append(f"{node} acted on {kind} of {said_in} while its view was {now_in}")

    def took_for(self, stamp: Stamp, partition: Partition | None) -> None:
        """Somebody says what a view is; all who do say the same."""
        if partition is not None:
            self.views[stamp].is_restricted = not partition.is_unrestricted

    def logged(self, stamp: Stamp, partition: Partition | None, logged: Logged) -> None:
        """Somebody acts on what the primary of a view wrote."""
        view = self.views[stamp]
        self.took_for(stamp, partition)
        for record in logged.records:
            for key in self._accepted(record):
                views = self.logged_in.setdefault(key, {})
                if stamp not in views:
                    views[stamp] = None
                    part = "a restricted part" if view.is_restricted else "the log"
                    self.story.tell(f"is in {part} by {view.name}", key)

    def _accepted(self, record: Shipped) -> list[str]:
        if record.kind not in _ACCEPTED:
            return []
        if record.named:
            return self._blocks.get(record.payload, [])
        is_large = blocks.parse_trusted(record.payload, keep=False).flags & LARGE
        return [] if is_large else _keys_in(record.payload)

    def is_unrestricted_from(self, node: str, at: float) -> float:
        """When a node next entered a view that is not restricted."""
        entered = (
            view.nodes[node] for view in self.views.values() if node in view.nodes and not view.is_restricted
        )
        return min((each for each in entered if each > at), default=math.inf)

    def decision_of(self, key: str, tag: int, at: float) -> Decision | None:
        """The last one before a moment by which a message came under a tag."""
        made = [each for each in self.decisions.get((key, tag), ()) if each.at <= at]
        return made[-1] if made else None


class Ear:
    """At one process of a node, in one channel."""

    def __init__(self, watch: Watch, node: str, channel: str, station: Callable[[], Station | None]) -> None:
        self._watch = watch
        self._node = node
        self._channel = channel
        self._station = station
        self._stamp = NO_VIEW
        self._state = START

    def entered(self, who: Incarnation, place: Place) -> None:
        self._stamp = NO_VIEW
        station = self._station()
        if station is not None and "on_apply" not in vars(station):
            self._listen_to(station)

    def _listen_to(self, station: Station) -> None:
        """What it applies, and not only what it hears."""
        apply = station.on_apply

        def on_apply(origin: Origin, commands: list[Command], position: int) -> None:
            self._watch.applied(self._node, station.member, origin, commands)
            for command in commands:
                if isinstance(command, Logged) and command.records:
                    self._watch.logged(origin.stamp, partition_of(station), command)
            apply(origin, commands, position)

        vars(station)["on_apply"] = on_apply

    def heard(self, origin: Origin, commands: list[Command]) -> None: ...

    def configured(self, configuration: Configuration) -> None: ...

    def says(self, command: Command) -> None:
        if isinstance(command, Published):
            self._watch.published(self._node, self._stamp, command)
        elif isinstance(command, ConsumerAttached):
            self._watch.attached(command)
        elif isinstance(command, Logged):
            for decision in command.decisions:
                if isinstance(decision, Dispatched | Parcelled):
                    self._watch.decided(self._node, self._stamp, decision)

    def restamped(self, stamp: Stamp) -> None:
        if stamp in (NO_VIEW, self._stamp):
            return
        self._stamp = stamp
        self._watch.entered(self._node, self._channel, stamp)
        self._watch.world.after(_LOOK_AFTER_SECONDS, self._look)

    def _look(self) -> None:
        """What the node says of itself is counted, and told."""
        partition = partition_of(self._station())
        words = f"{self._node} is in {name_of(self._stamp)} of {self._channel}"
        self._watch.took_for(self._stamp, partition)
        if partition is not None:
            step = step_of(self._state, partition.rule, partition.state)
            self._watch.covered[step] = self._watch.covered.get(step, 0) + 1
            self._state = partition.state
            words += f", state {partition.state} by rule {partition.rule}"
        self._watch.story.tell(words)


def _keys_in(buffer: bytes) -> list[str]:
    bodies = blocks.unpack(buffer).bodies
    return [bytes(body).partition(b"|")[0].decode(errors="replace") for body in bodies]


def step_of(before: str, rule: int, after: str) -> str:
    return f"{before} -{rule}-> {after}"


ALL_STEPS: Final = tuple(step_of(each.before, each.rule, each.after) for each in TRANSITIONS)


def partition_of(station: Station | None) -> Partition | None:
    """The state that a node takes its view for, if it says."""
    parts: tuple[Any, ...] = () if station is None else (station, station.roles)
    for part in parts:
        found = getattr(part, "partition", None)
        if isinstance(found, Partition):
            return found
    return None


def station_of(supervisor: Supervisor, sub_cluster: str) -> Station | None:
    """Of the process that runs there now."""
    stations: dict[str, Station] = getattr(supervisor.server, "stations", {})
    return stations.get(sub_cluster) if supervisor.is_running else None


def name_of(stamp: Stamp) -> str:
    """A view's number, and enough of the rest to tell it from others."""
    return f"v{int.from_bytes(stamp[:8], 'little')}.{stamp[8:10].hex()}"
