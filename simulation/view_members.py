"""Members of a channel that do nothing but form views, state facts and make decisions; and what they went through.

`ClusterMember` runs here as in production. What it does not tell its handler is overheard between it and the bus.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from heliograph.bus.commands import ChunkSent, Command, Confirmed
from heliograph.bus.interface import Configuration, Incarnation, Origin, Place, Stamp
from heliograph.bus.presence import CLIENT_MANAGER, MESSAGE_MANAGER, Hello, NodeState
from heliograph.cluster.view import View
from heliograph.model.errors import Unavailable
from heliograph.model.ids import LaneId, SessionId
from heliograph.nodes.cluster_member import ClusterMember
from simulation.bus import SimBus, SimProcess
from simulation.overhearing import Overheard
from simulation.world import World

CHANNEL = "views"
_SESSION = SessionId(bytes(16))
_LANE = LaneId(bytes(16))

Frame = tuple[Incarnation, int]


# How much had been delivered since the view when something of a frame was applied, and of which frame.
Counted = tuple[int, Frame]
# Who stated it, and its number.
Fact = tuple[int, int]


class Stage(msgspec.Struct):
    """From one view to the next, as one member lived it: the frames it heard, and where configurations stood."""

    view: View | None
    frames: list[Frame] = []
    counted: list[Counted] = []
    settled: tuple[int, int] = (0, 0)  # how much of both there was when the last attempt at a view began
    parted: dict[Place, None] = {}  # who came or went meanwhile
    arrived: dict[Incarnation, None] = {}  # who was heard in the view


class Life(msgspec.Struct):
    """One incarnation, seen from outside."""

    incarnation: Incarnation
    place: Place
    stores: bool
    stages: list[Stage]
    faults: list[str] = []
    position: int = 0
    heard: int = 0  # frames
    settled: int = 0  # of those, when the last attempt at a view began
    on_disk: int = 0  # of those


class Said(msgspec.Struct):
    """A hello, with the frames since the last view that it speaks of, and who came or went since then."""

    hello: Hello
    frames: list[Frame]
    counted: list[Counted]
    parted: list[Place]


class Ledger(msgspec.Struct):
    """Everything that the checkers need to know of a run."""

    accepted: dict[Fact, dict[Stamp, None]] = {}  # in which views, as somebody sees it
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
        self._guests: tuple[NodeState, ...] = ()
        self._pending: list[Fact] = []  # applied between configuration and view
        self.process: SimProcess | None = None
        self.cluster: ClusterMember | None = None
        self.life: Life | None = None

    # ---- coming and going

    def start(self) -> None:
        self._starts += 1
        self._guests = ()
        process = self.process = self._bus.process(self.host, self._starts)
        self.cluster = ClusterMember(
            Overheard(process, lambda _channel: self),
            CHANNEL,
            nodes=self._nodes,
            handler=self,
            loop=process.loop,
            clock=lambda: self._world.now,
            number=self._number,
        )
        self.cluster.start()
        self._every(self._world.between(0.05, 0.5), self._speak, process)

    def _every(self, period: float, action: Callable[[], None], process: SimProcess) -> None:
        def again() -> None:
            action()
            process.loop.call_later(period, again)

        process.loop.call_later(period, again)

    def _nodes(self) -> tuple[NodeState, ...]:
        return (NodeState(f"n{self.host}", self._role, self._starts), *self._guests)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
        self.process = self.cluster = None

    # ---- what is overheard

    def entered(self, who: Incarnation, place: Place) -> None:
        self._pending = []
        self.life = Life(who, place, self._role == MESSAGE_MANAGER, [Stage(None)])
        self.ledger.lives[who] = self.life

    def heard(self, origin: Origin, _commands: list[Command]) -> None:
        assert self.life is not None
        self.life.heard += 1
        self.life.stages[-1].frames.append((origin.incarnation, origin.sequence))

    def configured(self, configuration: Configuration) -> None:
        self._world.note(self.host, "configuration", configuration)
        assert self.life is not None
        for change in (*configuration.left, *configuration.joined):
            self.life.stages[-1].parted[change.place] = None

    def says(self, command: Command) -> None:
        if isinstance(command, Hello):
            self._says_hello(command)

    def restamped(self, _stamp: Stamp) -> None:
        """Its handler hears of views too."""

    def _says_hello(self, hello: Hello) -> None:
        life = self.life
        assert life is not None
        stage = life.stages[-1]
        frames, counted = stage.settled
        said = Said(hello, stage.frames[:frames], stage.counted[:counted], list(stage.parted))
        self.ledger.hellos.setdefault(life.incarnation, []).append(said)
        if life.stores and life.on_disk < life.settled:
            life.faults.append("a hello before everything is on disk")

    # ---- what it is told

    def on_apply(self, origin: Origin, commands: list[Command], position: int) -> None:
        life, cluster = self.life, self.cluster
        assert life is not None
        assert cluster is not None
        stage = life.stages[-1]
        stage.counted.append((cluster.delivered, (origin.incarnation, origin.sequence)))
        if position <= life.position:
            life.faults.append("a position that does not grow")
        life.position = position
        for command in commands:
            if isinstance(command, Confirmed):
                self._decided(origin, stage.view, life, is_in_view=cluster.is_installed)
            elif isinstance(command, ChunkSent):
                self._stated((command.transfer, command.offset), cluster)

    def _decided(self, origin: Origin, view: View | None, life: Life, *, is_in_view: bool) -> None:
        self.ledger.applied += 1
        if not is_in_view:
            life.faults.append("a decision between configuration and view")
        if view is None or origin.stamp != view.id or origin.incarnation not in view.members:
            life.faults.append("a decision of another view")

    def _stated(self, fact: Fact, cluster: ClusterMember) -> None:
        if cluster.is_installed and cluster.view is not None:
            self._accept(fact, cluster.view)
        else:
            self._pending.append(fact)

    def _accept(self, fact: Fact, view: View) -> None:
        self.ledger.accepted.setdefault(fact, {})[view.id] = None

    def on_suspend(self) -> None:
        """Another attempt at a view begins: the hello will speak of what came before."""
        self._world.note(self.host, "suspend")
        life = self.life
        assert life is not None
        stage = life.stages[-1]
        stage.settled = len(stage.frames), len(stage.counted)
        life.settled = life.heard
        self._pending = []

    def on_install(self, view: View) -> None:
        self._world.note(self.host, "install", view.id, view.members)
        assert self.life is not None
        self._number = view.number
        self.life.stages.append(Stage(view))
        for fact in self._pending if view.is_whole else ():
            self._accept(fact, view)
        self._speak()

    def on_arrive(self, incarnation: Incarnation, agrees: bool) -> None:
        assert self.life is not None
        self.life.stages[-1].arrived[incarnation] = None
        self.ledger.arrivals += 1
        self.ledger.disagreements += not agrees

    def on_flow(self, may_send: bool) -> None: ...

    def force(self, then: Callable[[], None]) -> None:
        life, process = self.life, self.process
        assert life is not None
        assert process is not None
        heard = life.heard

        def done() -> None:
            life.on_disk = max(life.on_disk, heard)
            then()

        slow = self._world.chance(0.02)
        process.loop.call_later(
            self._world.between(1.0, 4.0) if slow else self._world.between(1e-4, 1e-2), done
        )

    def on_left(self, why: str) -> None:
        self._world.note(self.host, "left", why)
        self.ledger.leaves[why] = self.ledger.leaves.get(why, 0) + 1
        assert self.cluster is not None
        self.cluster.re_enter()

    # ---- what it does by itself

    def _speak(self) -> None:
        cluster = self.cluster
        if cluster is None:
            return
        self._said += 1
        size = 400_000 if self._world.chance(0.005) else 10
        try:
            cluster.multicast(ChunkSent(_SESSION, self.host, self._said, bytes(size)))
            if cluster.is_installed:
                self.ledger.decisions += 1
                cluster.multicast(Confirmed(_LANE, self._said))
        except Unavailable:
            return

    def change_nodes(self) -> None:
        """In the middle of speaking, so that a frame begins in one view and ends after it."""
        assert self.cluster is not None
        assert self.process is not None
        self._said += 1
        self._guests = (NodeState(f"x{self._said}", CLIENT_MANAGER),)
        self.cluster.nodes_changed()
        self.process.loop.call_soon(self._speak)
        self._speak()

    @property
    def is_known(self) -> bool:
        """Whether the view that it is in has what it says of itself now."""
        view, life = self.view, self.life
        return (
            view is not None
            and life is not None
            and dict(view.hellos)[life.incarnation].nodes == self._nodes()
        )

    @property
    def view(self) -> View | None:
        """The one that it is in."""
        cluster = self.cluster
        return cluster.view if cluster is not None and cluster.is_installed else None
