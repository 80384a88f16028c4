"""One channel over several buses: message managers are on all of them, client managers on one each (M3).

A channel has a home bus, which gives it its order (`home_order.py`). Message managers are *central*: they carry
between the home bus and the others (`crossing.py`). A client manager is on the home bus, or it is *outer*, and hears
what is echoed on its own (`outer_order.py`). To whoever enters, it is a bus like any other.

This file is the hands of those engines: it has memberships on the buses, takes one thing at a time, and waits where a
bus is full.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from heliograph.bus.bridge_words import Deliver, Effect, End, Event, Frame, SayHome
from heliograph.bus.commands import Command
from heliograph.bus.crossing import Crossing
from heliograph.bus.home_order import HomeOrder
from heliograph.bus.interface import (
    ChannelBus,
    Configuration,
    Damage,
    Incarnation,
    Listener,
    Membership,
    Origin,
    Place,
    Stamp,
)
from heliograph.bus.outer_order import OuterOrder
from heliograph.model.errors import Unavailable
from heliograph.model.limits import BRIDGE_COMMANDS, BRIDGE_HIGH_WATER, BRIDGE_LOW_WATER, BRIDGE_TICK_SECONDS

CallLater = Callable[[float, Callable[[], Any]], Any]
"""A loop's way to do something later."""


class BridgedBus:
    """The buses that this process is on, by name. `home_of` says which one gives a channel its order."""

    def __init__(
        self,
        buses: Mapping[str, ChannelBus],
        *,
        home_of: Callable[[str], str],
        is_central: bool,
        call_later: CallLater | None = None,
    ) -> None:
        """A process that is not central is on one bus. Without `call_later`, those who are stopped are waited for."""
        assert is_central or len(buses) == 1
        self._buses = dict(buses)
        self._home_of = home_of
        self._is_central = is_central
        self._call_later = call_later

    def enter(self, channel: str, listener: Listener) -> BridgedMembership:
        home = self._home_of(channel)
        if self._is_central:
            others = {name: bus for name, bus in self._buses.items() if name != home}
            return CentralMembership(channel, listener, self._buses[home], others, self._call_later)
        [(name, bus)] = self._buses.items()
        kind = HomeMembership if name == home else OuterMembership
        return kind(channel, listener, bus)


class _Engine(Protocol):
    """Who knows what follows from what is heard on a bus."""

    def heard(self, origin: Origin, commands: list[Command]) -> list[Effect]: ...

    def configured(self, configuration: Configuration) -> list[Effect]: ...


class _Leg:
    """A membership on one of the buses, and what waits for it."""

    membership: Membership
    _engine: _Engine

    def __init__(self, whole: BridgedMembership) -> None:
        self.is_over = False
        self._whole = whole
        self._unsaid: deque[Command] = deque()

    def enter(self, bus: ChannelBus, channel: str) -> None:
        self.membership = bus.enter(channel, self)

    def follow(self, engine: _Engine) -> None:
        """Who hears what happens here; before that, it waits."""
        self._engine = engine

    def has_room(self) -> bool:
        return not self._unsaid and self.membership.may_send

    def say(self, word: Command) -> None:
        self._unsaid.append(word)
        self.flush()

    def flush(self) -> None:
        while self._unsaid and not self.is_over:
            try:
                self.membership.multicast(self._unsaid[0])
            except Unavailable as error:
                if error.code != "bus-full":
                    self._unsaid.clear()  # the bus says itself that it is over
                return
            self._unsaid.popleft()

    def on_frame(self, origin: Origin, commands: list[Command]) -> None:
        self._whole.happened(partial(self._frame, origin, commands))

    def _frame(self, origin: Origin, commands: list[Command]) -> None:
        self._whole.carry_out(self, self._engine.heard(origin, commands))

    def on_configuration(self, configuration: Configuration) -> None:
        self._whole.happened(partial(self._configured, configuration))

    def _configured(self, configuration: Configuration) -> None:
        self._whole.carry_out(self, self._engine.configured(configuration))

    def on_flow(self, may_send: bool) -> None:
        self._whole.happened(self._whole.go_on)

    def on_damage(self, damage: Damage) -> None:
        self._whole.happened(partial(self._whole.listener.on_damage, damage))

    def on_ended(self, error: Unavailable | None) -> None:
        self.is_over = True
        self._whole.happened(partial(self._whole.leg_ended, error))


class BridgedMembership:
    """What all kinds have in common: turns, windows, and the end."""

    _legs: Sequence[_Leg] = ()
    _main: _Leg  # where its own words are said

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self._events: deque[Callable[[], None]] = deque()
        self._is_busy = True  # until it has entered
        self._is_in = False  # the listener was told of a configuration
        self._unheard = 0  # own commands that have no place in the order yet
        self._may_send = True  # as far as that goes
        self._flow_told = True
        self._early: deque[Command | Stamp] = deque()
        self._is_leaving = False
        self._is_over = False
        self._error: Unavailable | None = None

    # ---- what a member does

    @property
    def place(self) -> Place:
        return self._main.membership.place

    @property
    def incarnation(self) -> Incarnation:
        return self._main.membership.incarnation

    @property
    def heard_bytes(self) -> int:
        return sum(leg.membership.heard_bytes for leg in self._legs)

    @property
    def may_send(self) -> bool:
        return self._may_send and not self._is_leaving and all(leg.has_room() for leg in self._legs)

    def multicast(self, command: Command) -> None:
        if self._is_leaving or self._is_over:
            raise Unavailable("this member is no longer in the channel", code="bus-lost")
        if self._unheard >= BRIDGE_COMMANDS:
            raise Unavailable(f"{self._unheard} commands wait for the bus already", code="bus-full")
        if self._is_early:
            self._early.append(command)
        else:
            self._main.membership.multicast(command)
        self._unheard += 1
        if self._unheard > BRIDGE_HIGH_WATER:
            self._may_send = False

    @property
    def _is_early(self) -> bool:
        return False

    def restamp(self, stamp: Stamp) -> None:
        self._main.membership.restamp(stamp)

    def leave(self) -> None:
        if not self._is_leaving:
            self._is_leaving = True
            for leg in self._legs:
                leg.membership.leave()

    # ---- turns

    def happened(self, what: Callable[[], None]) -> None:
        """On one of the buses. It waits while something else is done: a bus may deliver from inside calls."""
        self._events.append(what)
        if not self._is_busy:
            self._take_turns()

    def _take_turns(self) -> None:
        self._is_busy = True
        try:
            while self._events:
                self._events.popleft()()
                for leg in self._legs:
                    leg.flush()
                self._tell_flow()
        finally:
            self._is_busy = False

    def _tell_flow(self) -> None:
        if self._is_over or not self._is_in or self._is_leaving:
            return
        may_send = self.may_send
        if may_send is not self._flow_told:
            self._flow_told = may_send
            self.listener.on_flow(may_send)

    def go_on(self) -> None:
        """A bus has room again."""

    def carry_out(self, leg: _Leg, effects: list[Effect]) -> None:
        """What an engine wants that heard something on this leg."""
        for effect in effects:
            if self._is_over or self._error is not None:
                return
            if isinstance(effect, Deliver):
                self._deliver(effect.event)
            elif isinstance(effect, End):
                self._end(Unavailable(effect.sentence, code=effect.code))
            elif isinstance(effect, SayHome):
                self._main.say(effect.word)
            else:
                leg.say(effect.word)

    def _deliver(self, event: Event) -> None:
        if isinstance(event, Frame):
            if event.origin.incarnation == self.incarnation:
                self._heard_own(len(event.commands))
            self.listener.on_frame(event.origin, event.commands)
            return
        self._is_in = True
        self.listener.on_configuration(event.configuration)

    def _heard_own(self, count: int) -> None:
        self._unheard -= count
        if self._unheard <= BRIDGE_LOW_WATER:
            self._may_send = True

    # ---- the end

    def _end(self, error: Unavailable) -> None:
        if self._error is None:
            self._error = error
        self.leave()

    def leg_ended(self, error: Unavailable | None) -> None:
        """All buses have let go before the listener hears of it: it may enter again at once."""
        if self._is_over:
            return
        if error is not None and self._error is None:
            self._error = error
        if not self._is_leaving:
            self.leave()
        if all(leg.is_over for leg in self._legs):
            self._is_over = True
            self.listener.on_ended(self._error)

    def _has_entered(self) -> None:
        self._is_busy = False
        self._take_turns()


class HomeMembership(BridgedMembership):
    """On the home bus only."""

    def __init__(self, channel: str, listener: Listener, bus: ChannelBus) -> None:
        super().__init__(listener)
        self._main = _Leg(self)
        self._main.enter(bus, channel)
        self._legs = (self._main,)
        member = self._main.membership
        order = HomeOrder(place=member.place, incarnation=member.incarnation, is_central=False)
        self._main.follow(order)
        self._has_entered()


class OuterMembership(BridgedMembership):
    """On one bus, which is not the home bus. What it says before it is in the channel waits."""

    def __init__(self, channel: str, listener: Listener, bus: ChannelBus) -> None:
        super().__init__(listener)
        self._main = _Leg(self)
        self._main.enter(bus, channel)
        self._legs = (self._main,)
        member = self._main.membership
        order = OuterOrder(place=member.place, incarnation=member.incarnation)
        self._main.follow(order)
        self.carry_out(self._main, order.begin())
        self._has_entered()

    @property
    def _is_early(self) -> bool:
        return not self._is_in

    def restamp(self, stamp: Stamp) -> None:
        if self._is_early:
            self._early.append(stamp)
        else:
            super().restamp(stamp)

    def leave(self) -> None:
        if not self._is_in:
            self._say_early()
        super().leave()

    def _deliver(self, event: Event) -> None:
        if not self._is_in:
            self._is_in = True
            self._say_early()
        super()._deliver(event)

    def _say_early(self) -> None:
        early, self._early = self._early, deque()
        for each in early:
            if isinstance(each, Command):
                self._main.say(each)
            else:
                self._main.membership.restamp(each)


class CentralMembership(BridgedMembership):
    """On all buses."""

    def __init__(
        self,
        channel: str,
        listener: Listener,
        home: ChannelBus,
        others: Mapping[str, ChannelBus],
        call_later: CallLater | None,
    ) -> None:
        super().__init__(listener)
        self._main = _Leg(self)
        self._main.enter(home, channel)
        self._legs = [self._main]
        member = self._main.membership
        self._order = HomeOrder(place=member.place, incarnation=member.incarnation, is_central=True)
        self._main.follow(self)
        self._crossings: list[tuple[_Leg, Crossing]] = []
        try:
            for name, bus in others.items():
                self._cross(name, bus, channel)
        except Unavailable:
            self._is_over = True
            for leg in self._legs:
                leg.membership.leave()
            raise
        self._call_later = call_later
        self._ask_tick()
        self._has_entered()

    def _ask_tick(self) -> None:
        if self._call_later is not None and not self._is_over:
            self._call_later(BRIDGE_TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self.happened(self._time_passed)
        self._ask_tick()

    def _time_passed(self) -> None:
        for leg, crossing in self._crossings:
            self.carry_out(leg, crossing.tick())

    def _cross(self, name: str, bus: ChannelBus, channel: str) -> None:
        leg = _Leg(self)
        leg.enter(bus, channel)
        self._legs = [*self._legs, leg]
        crossing = Crossing(
            name,
            self._order,
            place=leg.membership.place,
            incarnation=leg.membership.incarnation,
            home_has_room=self._main.has_room,
            has_room=leg.has_room,
        )
        leg.follow(crossing)
        self._crossings.append((leg, crossing))
        self.carry_out(leg, crossing.begin())

    @property
    def may_send(self) -> bool:
        return super().may_send and all(crossing.may_send for _, crossing in self._crossings)

    def heard(self, origin: Origin, commands: list[Command]) -> list[Effect]:
        """On the home bus."""
        return self._order.heard(origin, commands)

    def configured(self, configuration: Configuration) -> list[Effect]:
        effects = self._order.configured(configuration)
        for leg, crossing in self._crossings:
            self.carry_out(leg, crossing.home_configured(configuration))
        return effects

    def _deliver(self, event: Event) -> None:
        for leg, crossing in self._crossings:
            self.carry_out(leg, crossing.ordered(event))
        super()._deliver(event)

    def go_on(self) -> None:
        for leg, crossing in self._crossings:
            self.carry_out(leg, crossing.look())
