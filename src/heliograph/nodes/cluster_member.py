"""A process in one channel of a cluster, from one incarnation to the next: the shell around `cluster/views.py`.

The bus gives frames and configurations, the engine says what they come to, and the handler hears that: which
commands hold, when a view begins and ends, who else is in it. Nothing is decided here but how soon to come again.

Everything is called from the loop. The handler is never called from inside a call of its own, whatever the bus does,
and hears of one thing at a time, in the order of deliveries. The loop may be asyncio's or the simulation's,
which runs this file as it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol, assert_never

import msgspec

from heliograph.bus import wire
from heliograph.bus.commands import Command
from heliograph.bus.corosync import Loop, Pending
from heliograph.bus.interface import ChannelBus, Configuration, Damage, Incarnation, Membership, Origin, Place
from heliograph.bus.presence import Hello, NodeState, Regrouped
from heliograph.cluster.events import (
    Apply,
    Arrive,
    Configured,
    Effect,
    Event,
    FellBehind,
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
from heliograph.cluster.view import View
from heliograph.cluster.views import Views
from heliograph.model.errors import NotKnownToAll, Unavailable
from heliograph.model.limits import LOCAL_BUS_COMMANDS, RETURN_SECONDS, VIEW_TICK_SECONDS

LEFT = "left"


class MemberHandler(Protocol):
    """What lives on the channel: a node, or the nodes of a process."""

    def on_apply(self, origin: Origin, commands: list[Command], position: int) -> None:
        """These hold, in this order: facts always, decisions only in their view (PROTOCOL 2).

        `position` counts what was delivered to this incarnation, and grows from call to call. What was delivered
        since the view is `ClusterMember.delivered`, the same for the same command at all members of the view.
        """

    def on_suspend(self) -> None:
        """The view is over: nothing is decided until there is another.

        What is applied from here on counts as accepted in the view that is installed next, if that is whole. If it is
        not, or this is called once more before, it counts as accepted in no view (docs/decisions/0009).
        """

    def on_install(self, view: View) -> None:
        """From here on there is this view: forget what was in flight, decide afresh."""

    def on_arrive(self, incarnation: Incarnation, agrees: bool) -> None:
        """This member of the view has installed it too. Not `agrees`: it heard something else on the way."""

    def on_flow(self, may_send: bool) -> None:
        """The bus is behind with what it was given, or no longer is. At first it is not."""

    def force(self, then: Callable[[], None]) -> None:
        """Call `then`, on the loop, when everything that was delivered so far is on disk; who keeps nothing, at once.
        No view is made before."""

    def on_left(self, why: str) -> None:
        """This incarnation is over, and nothing it knew counts: `gap`, `expelled`, `behind`, `left`, or a code of the
        bus (`bus-lost`, `bus-gap`; `bus-unavailable` if it could not enter). `re_enter()` to come again."""


class ClusterMember:
    """One channel, and whoever this process is in it at the moment.

    `nodes` says of the process's nodes what others must know, as it stands when it is asked. `number`: the highest
    number of a view that the journals know. `sync_age`: for how many seconds the oldest unfinished sync has gone on.
    """

    def __init__(
        self,
        bus: ChannelBus,
        channel: str,
        *,
        nodes: Callable[[], tuple[NodeState, ...]],
        handler: MemberHandler,
        loop: Loop,
        clock: Callable[[], float],
        number: int = 0,
        sync_age: Callable[[], float] | None = None,
        on_damage: Callable[[Damage], None] | None = None,
    ) -> None:
        self.nodes = nodes
        self.handler = handler
        self.loop = loop
        self.clock = clock
        self.number = number
        self._bus = bus
        self._channel = channel
        self._sync_age = sync_age
        self.on_damage = on_damage
        self._stay: _Stay | None = None
        self._coming: Pending | None = None
        self._ticking: Pending | None = None
        self._wants_back = False
        self._is_leaving = False
        self._pause = RETURN_SECONDS[0]

    # ---- what can be seen

    @property
    def view(self) -> View | None:
        """The one that is installed, or else the last one of this incarnation."""
        return self._stay.view if self._stay is not None else None

    @property
    def is_installed(self) -> bool:
        return self._stay is not None and self._stay.is_installed

    @property
    def incarnation(self) -> Incarnation | None:
        return self._stay.membership.incarnation if self._stay is not None else None

    @property
    def place(self) -> Place | None:
        return self._stay.membership.place if self._stay is not None else None

    def has_ended(self, incarnation: Incarnation) -> bool:
        """Whether its process is known to be over, rather than out of reach."""
        return self._stay is not None and self._stay.has_ended(incarnation)

    @property
    def may_send(self) -> bool:
        return self._stay is not None and self._stay.membership.may_send

    @property
    def heard_bytes(self) -> int:
        """What the bus carried since this incarnation entered the channel, from whomever."""
        return self._stay.membership.heard_bytes if self._stay is not None else 0

    @property
    def delivered(self) -> int:
        """How much was delivered since the view was installed, what is being applied included.

        Frames are counted, whatever is in them; one that is applied in parts, because its sender says something
        about itself in the middle of it, counts once for each. Installing is 0, so what follows it is 1 at the least.
        The count goes on over `on_suspend` until the next view. Members that came straight from a view together
        have counted the same since then: it names a place in the order of deliveries (docs/reference/views.md).
        """
        return self._stay.position - self._stay.installed_at if self._stay is not None else 0

    # ---- what can be done

    def start(self) -> None:
        assert self._ticking is None, "a member is started once"
        assert not self._is_leaving, "and left once"
        self._ticking = self.loop.call_later(VIEW_TICK_SECONDS, self._tick)
        self._coming = self.loop.call_soon(self._enter)

    def multicast(self, command: Command) -> None:
        """It takes effect when it is delivered. Nothing is kept here: Unavailable `bus-full` and `bus-lost` pass
        through. Raises NotKnownToAll."""
        if self._stay is None or self._stay.is_over:
            raise Unavailable("this process is not in the channel", code="bus-lost")
        level = self._stay.level
        if level < wire.LEVEL and wire.level_of(command) > level:
            raise NotKnownToAll(
                "some nodes of the cluster are of an earlier version, which does not know this: upgrade all of them"
            )
        self._stay.multicast(command)

    @property
    def level(self) -> int:
        """How much may be said: what everybody in the view knows, or in the last one of this incarnation."""
        return self._stay.level if self._stay is not None else wire.FIRST_LEVEL

    def nodes_changed(self) -> None:
        """A node came or went, or wants the others to know something now: that takes a new view."""
        if self._stay is not None:
            self._stay.nodes_changed()

    def fell_behind(self) -> None:
        """More was delivered than the handler can take: this incarnation ends, rather than hold up the others."""
        if self._stay is not None:
            self._stay.fell_behind()

    def re_enter(self) -> None:
        """Come again, as somebody new, after a pause that grows while incarnations are short. Nothing after
        `leave`."""
        assert self._stay is None or self._stay.is_over, "who is in the channel cannot enter it"
        self._wants_back = not self._is_leaving
        self._come_again()

    def leave(self) -> None:
        """For good. What was said is sent first. The last thing to be heard is `on_left("left")`, whatever else
        happens meanwhile."""
        if self._is_leaving:
            return
        self._is_leaving, self._wants_back = True, False
        for pending in (self._ticking, self._coming):
            if pending is not None:
                pending.cancel()
        if self._stay is not None:
            self._stay.leave()
        else:
            self.loop.call_soon(partial(self.handler.on_left, LEFT))

    # ---- coming and going

    def _enter(self) -> None:
        self._coming, self._wants_back = None, False
        stay = _Stay(self)
        try:
            stay.enter(self._bus, self._channel)
        except Unavailable as error:
            self.handler.on_left(error.code)
            return
        self._stay = stay
        stay.begin()

    def ended(self, lasted: float, why: str) -> None:
        """The bus has let go of this incarnation, which was over because of this."""
        self._stay = None
        if self._is_leaving and why != LEFT:
            self.handler.on_left(LEFT)
        if lasted > RETURN_SECONDS[1]:
            self._pause = RETURN_SECONDS[0]
        self._come_again()

    def _come_again(self) -> None:
        if self._wants_back and self._stay is None and self._coming is None:
            self._coming = self.loop.call_later(self._pause, self._enter)
            self._pause = min(2 * self._pause, RETURN_SECONDS[1])

    def _tick(self) -> None:
        self._ticking = self.loop.call_later(VIEW_TICK_SECONDS, self._tick)
        if self._stay is not None:
            age = self._sync_age() if self._sync_age is not None else 0.0
            self._stay.tick(int(age * 1e6))


class _Stay:
    """One incarnation: the bus's listener, and the engine's hands.

    What happens while something else is being done waits for its turn: the in-memory bus delivers from inside calls.
    """

    membership: Membership
    _views: Views

    def __init__(self, member: ClusterMember) -> None:
        self.view: View | None = None
        self.is_installed = False
        self.is_over = False
        self.level = wire.FIRST_LEVEL
        self.position = 0
        self.installed_at = 0
        self._applied_at = 0
        self._member = member
        self._handler = member.handler
        self._entered_at = member.clock()
        self._owes_regrouping = False  # the bus did not take it
        self._why = ""  # as the handler was told, when it is over
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_busy = True  # until it has entered

    def enter(self, bus: ChannelBus, channel: str) -> None:
        membership = bus.enter(channel, self)
        self.membership = membership
        self._views = Views(
            place=membership.place,
            incarnation=membership.incarnation,
            nodes=self._member.nodes(),
            number=self._member.number,
        )

    def begin(self) -> None:
        self._take_turns()

    def has_ended(self, incarnation: Incarnation) -> bool:
        return self._views.has_ended(incarnation)

    # ---- turns

    def _happened(self, what: Callable[[], None]) -> None:
        """From the bus or the loop."""
        self._waiting.append(what)
        if not self._is_busy:
            self._take_turns()

    def _asked(self, what: Callable[[], None]) -> None:
        """By the handler, who must not be called from inside its own call."""
        self._waiting.append(what)
        self._go_on_later()

    def _go_on_later(self) -> None:
        if not self._is_busy:
            self._member.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if not self._is_busy:
            self._take_turns()

    def _take_turns(self) -> None:
        """What fails here is a bug, and what the handler should have been told is lost: it must not go on."""
        self._is_busy = True
        try:
            while self._waiting:
                self._waiting.popleft()()
        except BaseException:
            self._broke_down()
            raise
        finally:
            self._is_busy = False

    def _broke_down(self) -> None:
        self.is_over, self.is_installed = True, False
        self.membership.leave()

    # ---- the handler

    def multicast(self, command: Command) -> None:
        if len(self._waiting) >= LOCAL_BUS_COMMANDS:
            raise Unavailable(f"{LOCAL_BUS_COMMANDS} deliveries wait for this member", code="bus-full")
        was_busy, self._is_busy = self._is_busy, True
        try:
            self.membership.multicast(command)
        finally:
            self._is_busy = was_busy
        if self._waiting:
            self._go_on_later()

    def nodes_changed(self) -> None:
        self._asked(self._regroup)

    def fell_behind(self) -> None:
        self._asked(lambda: self._handle(FellBehind(self._member.clock())))

    def leave(self) -> None:
        self._asked(self.membership.leave)

    # ---- the bus and the clock

    def on_frame(self, origin: Origin, commands: list[Command]) -> None:
        if self._is_busy or self._waiting:
            self._happened(partial(self._heard, origin, commands))
            return
        self._is_busy = True  # nearly always: nothing waits, so it need not stand in line
        try:
            self._heard(origin, commands)
            while self._waiting:
                self._waiting.popleft()()
        except BaseException:
            self._broke_down()
            raise
        finally:
            self._is_busy = False

    def _heard(self, origin: Origin, commands: list[Command]) -> None:
        self.position += 1
        if self.is_over:
            return
        for effect in self._views.handle(Heard(self._member.clock(), origin, commands)):
            if type(effect) is Apply:  # nearly all of them are
                self._apply(effect.origin, effect.commands)
            else:
                self._carry_out(effect)

    def on_configuration(self, configuration: Configuration) -> None:
        self._happened(lambda: self._handle(Configured(self._member.clock(), configuration)))

    def on_flow(self, may_send: bool) -> None:
        self._happened(partial(self._flow, may_send))

    def _flow(self, may_send: bool) -> None:
        if not self.is_over:
            self._handler.on_flow(may_send)

    def on_damage(self, damage: Damage) -> None:
        if self._member.on_damage is not None:
            self._happened(partial(self._member.on_damage, damage))

    def on_ended(self, error: Unavailable | None) -> None:
        self._happened(partial(self._ended, error.code if error is not None else LEFT))

    def _ended(self, why: str) -> None:
        self._end(why)
        self._member.ended(self._member.clock() - self._entered_at, self._why)

    def _end(self, why: str) -> None:
        if not self.is_over:
            self.is_over, self.is_installed = True, False
            self._why = why
            self._handler.on_left(why)

    def tick(self, sync_micros: int) -> None:
        if self._owes_regrouping:
            self._happened(self._regroup)
        self._happened(lambda: self._handle(Ticked(self._member.clock(), sync_micros)))

    def _regroup(self) -> None:
        self._owes_regrouping = False
        self._handle(NodesChanged(self._member.clock(), self._member.nodes()))

    # ---- the engine

    def _handle(self, event: Event) -> None:
        if self.is_over:
            return
        for effect in self._views.handle(event):
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Apply(origin, commands):
                self._apply(origin, commands)
            case Multicast(word):
                self._say(word)
            case Restamp(stamp):
                self.membership.restamp(stamp)
            case Force(mark):
                self._handler.force(lambda: self._asked(partial(self._forced, mark)))
            case Suspend():
                self.is_installed = False
                self._handler.on_suspend()
            case Install(view):
                self._install(view)
            case Arrive(incarnation, agrees):
                self._handler.on_arrive(incarnation, agrees)
            case Leave(why):
                self.membership.leave()
                self._end(str(why))
            case _:
                assert_never(effect)

    def _apply(self, origin: Origin, commands: list[Command]) -> None:
        if self._applied_at == self.position:  # another part of the same frame
            self.position += 1
        self._applied_at = self.position
        self._handler.on_apply(origin, commands, self.position)

    def _install(self, view: View) -> None:
        """Not taken from the engine, which is through with the whole frame already."""
        self.view, self.is_installed, self.level = view, True, view.level
        self.installed_at = self._applied_at = self.position
        self._member.number = view.number
        self._handler.on_install(view)

    def _forced(self, mark: int) -> None:
        self._handle(Forced(self._member.clock(), mark))

    def _say(self, word: Command) -> None:
        """What the nodes say of themselves is asked for now. A word that the bus has no room for is said
        again by the engine, in time; but for one."""
        if isinstance(word, Hello):
            word = msgspec.structs.replace(word, nodes=self._member.nodes())
        try:
            self.membership.multicast(word)
        except Unavailable:
            self._owes_regrouping = self._owes_regrouping or isinstance(word, Regrouped)
