"""Members of a channel that do nothing but form views, state facts and make decisions; and what they went through."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from heliograph.bus.commands import ChunkSent, Command, Confirmed
from heliograph.bus.corosync import CorosyncMembership
from heliograph.bus.interface import Configuration, Damage, Incarnation, Origin, Place, Stamp
from heliograph.bus.presence import CLIENT_MANAGER, MESSAGE_MANAGER, Hello, NodeState
from heliograph.cluster.events import (
    Apply,
    Arrive,
    Configured,
    Effect,
    Event,
    Force,
    Forced,
    Heard,
    Install,
    Leave,
    Multicast,
    NodesChanged,
    Restamp,
    Suspend,
    Ticked,
)
from heliograph.cluster.view import View, number_of
from heliograph.cluster.views import Phase, Views
from heliograph.model.errors import Unavailable
from heliograph.model.ids import LaneId, SessionId
from simulation.bus import SimBus, SimProcess
from simulation.world import World

CHANNEL = "views"
TICK_SECONDS = 0.125
_SESSION = SessionId(bytes(16))
_LANE = LaneId(bytes(16))

Frame = tuple[Incarnation, int]


class Stage(msgspec.Struct):
    """From one view to the next, as one member lived it: the frames it heard, and where configurations stood."""

    view: View | None
    frames: list[Frame] = []
    settled: int = 0  # how many frames had been heard when the last attempt at a view began
    parted: dict[Place, None] = {}  # who came or went meanwhile
    arrived: dict[Incarnation, None] = {}  # who was heard in the view


class Life(msgspec.Struct):
    """One incarnation, seen from outside."""

    incarnation: Incarnation
    place: Place
    stores: bool
    stages: list[Stage]
    faults: list[str] = []
    is_over: bool = False


class Said(msgspec.Struct):
    """A hello, with the frames since the last view that it speaks of, and who came or went since then."""

    hello: Hello
    frames: list[Frame]
    parted: list[Place]


class Ledger(msgspec.Struct):
    """Everything that the checkers need to know of a run."""

    lives: dict[Incarnation, Life] = {}
    hellos: dict[Incarnation, list[Said]] = {}
    decisions: int = 0
    applied: int = 0
    arrivals: int = 0
    disagreements: int = 0
    leaves: dict[str, int] = {}


class Member:
    """A node in a process of its own on a host. It is started again after it died, as somebody new."""

    def __init__(self, world: World, bus: SimBus, ledger: Ledger, host: int) -> None:
        self.host = host
        self.ledger = ledger
        self._world = world
        self._bus = bus
        self._starts = 0
        self._number = 0  # the highest view number, as a journal keeps it
        self._role = MESSAGE_MANAGER if host % 2 else CLIENT_MANAGER
        self._said = 0
        self.process: SimProcess | None = None
        self.views: Views | None = None
        self._membership: CorosyncMembership | None = None
        self.life: Life | None = None
        self._on_disk = 0
        self._in_view = False

    # ---- coming and going

    def start(self) -> None:
        self._starts += 1
        self.process = self._bus.process(self.host, self._starts)
        self._enter(self.process)
        self._every(TICK_SECONDS, self._tick, self.process)
        self._every(self._world.between(0.05, 0.5), self._speak, self.process)

    def _every(self, period: float, action: Callable[[], None], process: SimProcess) -> None:
        def again() -> None:
            action()
            process.loop.call_later(period, again)

        process.loop.call_later(period, again)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
        self._end()
        self.process = self.views = None

    def _end(self) -> None:
        if self.life is not None:
            self.life.is_over = True

    def _enter(self, process: SimProcess) -> None:
        if process is not self.process:
            return
        try:
            membership = process.enter(CHANNEL, self)
        except Unavailable:
            return
        self._membership = membership
        nodes = (NodeState(f"n{self.host}", self._role, self._starts),)
        who = membership.incarnation
        self.views = Views(place=membership.place, incarnation=who, nodes=nodes, number=self._number)
        self.life = Life(who, membership.place, self._role == MESSAGE_MANAGER, [Stage(None)])
        self.ledger.lives[who] = self.life
        self._on_disk = 0
        self._in_view = False

    # ---- the bus's listener

    def on_frame(self, origin: Origin, commands: list[Command]) -> None:
        assert self.life is not None
        self.life.stages[-1].frames.append((origin.incarnation, origin.sequence))
        self._handle(Heard(self._world.now, origin, commands))

    def on_configuration(self, configuration: Configuration) -> None:
        self._world.note(self.host, "configuration", configuration)
        assert self.life is not None
        for change in (*configuration.left, *configuration.joined):
            self.life.stages[-1].parted[change.place] = None
        self._handle(Configured(self._world.now, configuration))

    def on_flow(self, may_send: bool) -> None: ...

    def on_damage(self, damage: Damage) -> None:
        raise AssertionError(damage)

    def on_ended(self, error: Unavailable | None) -> None:
        self._end()
        process = self.process
        assert process is not None
        self.views = None
        why = error.code if error is not None else "left"
        self.ledger.leaves[why] = self.ledger.leaves.get(why, 0) + 1
        process.loop.call_later(0.01, lambda: self._enter(process))

    # ---- the engine

    def _handle(self, event: Event) -> None:
        views, membership = self.views, self._membership
        if views is None or membership is None:
            return
        before = views._attempt
        effects = views.handle(event)
        if views._attempt != before:
            assert self.life is not None
            stage = self.life.stages[-1]
            stage.settled = len(stage.frames)
        for effect in effects:
            self._carry_out(effect, views, membership)

    def _carry_out(self, effect: Effect, views: Views, membership: CorosyncMembership) -> None:
        life = self.life
        assert life is not None
        match effect:
            case Multicast(command):
                self._multicast(command, life, views, membership)
            case Restamp(stamp):
                membership.restamp(stamp)
            case Force(mark):
                self._force(mark, views)
            case Install(view):
                self._world.note(self.host, "install", view.id, view.members)
                self._number = number_of(view.id)
                life.stages.append(Stage(view))
                self._in_view = True
            case Suspend():
                self._world.note(self.host, "suspend")
                self._in_view = False
            case Apply(origin, commands):
                self._apply(origin, commands, life)
            case Arrive(who, agrees):
                life.stages[-1].arrived[who] = None
                self.ledger.arrivals += 1
                self.ledger.disagreements += not agrees
            case Leave(why):
                self.ledger.leaves[str(why)] = self.ledger.leaves.get(str(why), 0) + 1
                self._world.note(self.host, "leave", str(why))
                membership.leave()

    def _multicast(self, command: Command, life: Life, views: Views, membership: CorosyncMembership) -> None:
        if isinstance(command, Hello):
            stage = life.stages[-1]
            said = self.ledger.hellos.setdefault(life.incarnation, [])
            said.append(Said(command, stage.frames[: stage.settled], list(stage.parted)))
            if life.stores and self._on_disk != views._attempt:
                life.faults.append("a hello before everything is on disk")
        try:
            membership.multicast(command)
        except Unavailable:
            return

    def _force(self, mark: int, views: Views) -> None:
        assert self.process is not None

        def done() -> None:
            if self.views is views:
                self._on_disk = max(self._on_disk, mark)
                self._handle(Forced(self._world.now, mark))

        slow = self._world.chance(0.02)
        self.process.loop.call_later(
            self._world.between(1.0, 4.0) if slow else self._world.between(1e-4, 1e-2), done
        )

    def _apply(self, origin: Origin, commands: list[Command], life: Life) -> None:
        view = life.stages[-1].view
        for command in commands:
            if not isinstance(command, Confirmed):
                continue
            self.ledger.applied += 1
            if not self._in_view:
                life.faults.append("a decision between configuration and view")
            if view is None or origin.stamp != view.id or origin.incarnation not in view.members:
                life.faults.append("a decision of another view")

    # ---- what it does by itself

    def _tick(self) -> None:
        self._handle(Ticked(self._world.now))

    def _speak(self) -> None:
        views, membership = self.views, self._membership
        if views is None or membership is None or views.phase in {Phase.OUTSIDE, Phase.OVER}:
            return
        self._said += 1
        size = 400_000 if self._world.chance(0.005) else 10
        try:
            membership.multicast(ChunkSent(_SESSION, self.host, self._said, bytes(size)))
            if views.phase is Phase.INSTALLED:
                self.ledger.decisions += 1
                membership.multicast(Confirmed(_LANE, self._said))
        except Unavailable:
            return

    def change_nodes(self) -> None:
        self._said += 1
        nodes = (
            NodeState(f"n{self.host}", self._role, self._starts),
            NodeState(f"x{self._said}", CLIENT_MANAGER),
        )
        self._handle(NodesChanged(self._world.now, nodes))

    @property
    def view_id(self) -> Stamp | None:
        views = self.views
        if views is None or views.phase is not Phase.INSTALLED or views.view is None:
            return None
        return views.view.id
