"""Nodes on a channel, in virtual time, that write down what they are told."""

from collections.abc import Callable
from typing import Any

from heliograph.bus.commands import ChunkSent, Command, Confirmed
from heliograph.bus.interface import ChannelBus, Incarnation, Origin
from heliograph.bus.presence import CLIENT_MANAGER, NodeState
from heliograph.cluster.view import View
from heliograph.model.ids import LaneId, SessionId
from heliograph.nodes.cluster_member import ClusterMember
from simulation.world import SimLoop, World

PATIENCE = 30.0  # seconds of virtual time


def fact(number: int, size: int = 0) -> Command:
    return ChunkSent(SessionId(bytes(16)), 1, number, bytes(size))


def decision(number: int) -> Command:
    return Confirmed(LaneId(bytes(16)), number)


def word_of(command: Command) -> str:
    """For a diary."""
    if isinstance(command, ChunkSent):
        return f"fact {command.offset}"
    assert isinstance(command, Confirmed)
    return f"decision {command.last}"


class Node:
    """A handler that does nothing but write its diary. It comes again whenever it was thrown out."""

    def __init__(
        self, world: World, bus: ChannelBus, loop: SimLoop, name: str, role: str = CLIENT_MANAGER
    ) -> None:
        self.state = NodeState(name, role)
        self.loop = loop
        self.diary: list[tuple[Any, ...]] = []
        self.left: list[tuple[float, str]] = []
        self.views: list[View] = []
        self.answers: dict[str, Callable[[], None]] = {}  # what it says when it hears something
        self.disk_waits = False
        self.unforced: list[Callable[[], None]] = []
        self.sync_age = 0.0
        self._world = world
        self._inside = False
        self._position = 0
        self.member = ClusterMember(
            bus,
            "stories",
            nodes=lambda: (self.state,),
            handler=self,
            loop=loop,
            clock=lambda: world.now,
            sync_age=lambda: self.sync_age,
        )

    # ---- what it does

    def say(self, *commands: Command) -> None:
        """Nothing may reach it from inside this call."""
        self._inside = True
        try:
            for command in commands:
                self.member.multicast(command)
        finally:
            self._inside = False

    # ---- what it is told

    def on_apply(self, origin: Origin, commands: list[Command], position: int) -> None:
        assert position > self._position
        assert position >= self.member.delivered
        self._position = position
        for word in map(word_of, commands):
            self._write(("applied", word, self.member.delivered))
            if word in self.answers:
                self.answers[word]()

    def on_suspend(self) -> None:
        self._write(("suspended",))
        assert not self.member.is_installed

    def on_install(self, view: View) -> None:
        self.views.append(view)
        self._write(("installed", view.number))
        assert self.member.is_installed
        assert self.member.view is view
        assert self.member.delivered == 0

    def on_arrive(self, incarnation: Incarnation, agrees: bool) -> None:
        self._write(("arrived", incarnation, agrees))

    def on_flow(self, may_send: bool) -> None:
        self._write(("flow", may_send))

    def force(self, then: Callable[[], None]) -> None:
        self.unforced.append(then)
        if not self.disk_waits:
            self.sync()

    def sync(self) -> None:
        waiting, self.unforced = self.unforced, []
        for then in waiting:
            then()

    def on_left(self, why: str) -> None:
        self.left.append((self._world.now, why))
        self._position = 0
        self._write(("left", why))
        self.member.re_enter()

    def _write(self, entry: tuple[Any, ...]) -> None:
        assert not self._inside, "called from inside its own call"
        self.diary.append(entry)

    # ---- what is asked of it

    @property
    def applied(self) -> list[str]:
        return [entry[1] for entry in self.diary if entry[0] == "applied"]

    @property
    def arrived(self) -> list[Incarnation]:
        return [entry[1] for entry in self.diary if entry[0] == "arrived"]

    def since_the_view(self) -> list[tuple[Any, ...]]:
        """What it wrote since it installed the present one."""
        last = max(place for place, entry in enumerate(self.diary) if entry[0] == "installed")
        return [entry for entry in self.diary[last:] if entry[0] != "arrived"]


def in_one_view(*nodes: Node) -> bool:
    """All of them, and nobody else."""
    views = [node.views[-1] for node in nodes if node.views and node.member.is_installed]
    if len(views) < len(nodes) or any(view != views[0] for view in views):
        return False
    return views[0].members == tuple(sorted(node.member.incarnation or b"" for node in nodes))


def until(world: World, condition: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    end = world.now + patience
    while not condition():
        assert world.now < end, what
        world.run(world.now + 0.01)
