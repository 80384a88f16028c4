"""The order of a channel that is on several buses, as it follows from the order of its home bus.

Everybody on the home bus comes to the same order, because it depends on what is delivered there and on nothing else:

    heard on the home bus                     | in the order of the channel
    ------------------------------------------+------------------------------------------------------------
    a frame of a member                       | the frame
    `Relayed` by the relay of an outer member | the frame of the outer member, once, in its sequence
    `OutersStated`                            | a configuration, if somebody came or went by it
    a configuration                           | a configuration, at once; or, if it takes away the relay of
                                              | outer members, after the next word about their bus

The last case is the one that needs care. Outer members whose relay is gone are *orphans*. Nobody can tell whether
those who went with the relay have ordered the last that the orphans said. So another central member brings
what it heard of them, and that is put at the end of the old configuration, in every part of a cut alike: as on a
single bus, where a member delivers what it said itself. Only then comes the new configuration, with the orphans
if somebody leads them now and without them if not. What follows waits for it.

A newcomer waits too, until somebody tells it how things stood in the configuration that it came with.
"""

from __future__ import annotations

from collections import deque

import msgspec

from heliograph.bus.bridge_words import (
    ENDINGS,
    HOME_WORDS,
    Acquaintance,
    Acquainted,
    Configured,
    Deliver,
    Effect,
    End,
    Event,
    Frame,
    Introduced,
    Outer,
    OutersStated,
    Related,
    Relayed,
    SayHome,
    chained,
    chained_configuration,
    mark_of,
)
from heliograph.bus.commands import Command
from heliograph.bus.interface import Change, Configuration, Incarnation, Origin, Place, Reason
from heliograph.model.limits import BRIDGE_REMEMBERED_CONFIGURATIONS, BRIDGE_WAITING_UNITS


class OuterMember(msgspec.Struct):
    """An outer member."""

    bus: str
    place: Place
    relay: Place
    last: int


class _Heard(msgspec.Struct, frozen=True):
    """A frame without words, or one word, and the configuration of the bus that it was delivered in."""

    mark: bytes
    origin: Origin
    word: Command | None
    commands: list[Command]


_Unit = _Heard | Configuration


class HomeOrder:
    """One member of the home bus. `raw` and `raw_mark` are the bus's configuration, as it was told last."""

    def __init__(self, *, place: Place, incarnation: Incarnation, is_central: bool) -> None:
        self.place = place
        self.incarnation = incarnation
        self.is_established = False
        self.is_over = False
        self.chain = b""
        self.mark = b""  # of the last configuration that came from the home bus
        self.raw: Configuration | None = None
        self.raw_mark = b""
        self.outers: dict[Incarnation, OuterMember] = {}
        self._is_central = is_central
        self._centrals: dict[Place, None] = {}
        self._configuration: Configuration | None = None  # of the bus, as far as it is in the order
        self._held: Configuration | None = None  # it waits for word about the orphans
        self._orphans: dict[Incarnation, None] = {}
        self._lost: list[Change] = []  # orphans that nobody leads
        self._waiting: deque[_Unit] = deque()
        self._pending: dict[Place, list[Relayed]] = {}  # of outer members that are not the sender's yet
        self._came_with: Configuration | None = (
            None  # before it is established: the configuration that it came with
        )
        self._strangers: dict[Place, None] = {}
        self._remembered: dict[bytes, Acquaintance] = {}
        self._effects: list[Effect] = []

    @property
    def is_held(self) -> bool:
        return self._held is not None

    def is_orphan(self, incarnation: Incarnation) -> bool:
        return incarnation in self._orphans

    def has_orphans(self, bus: str) -> bool:
        return any(self.outers[who].bus == bus for who in self._orphans)

    # ---- the door

    def configured(self, configuration: Configuration) -> list[Effect]:
        self.raw, self.raw_mark = configuration, mark_of(configuration)
        for change in configuration.left:
            self._pending.pop(change.place, None)
        self._receive(configuration)
        return self._take_effects()

    def heard(self, origin: Origin, commands: list[Command]) -> list[Effect]:
        plain = [command for command in commands if not isinstance(command, HOME_WORDS)]
        if plain:
            self._receive(_Heard(self.raw_mark, origin, None, plain))
        if len(plain) < len(commands):
            for command in commands:
                if isinstance(command, HOME_WORDS):
                    self._receive(_Heard(self.raw_mark, origin, command, []))
        return self._take_effects()

    def _take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def _receive(self, unit: _Unit) -> None:
        if self.is_over:
            return
        if not self.is_established:
            self._receive_as_newcomer(unit)
        elif self._held is not None:
            self._receive_while_held(unit)
        else:
            self._take(unit)
        if len(self._waiting) > BRIDGE_WAITING_UNITS:
            self._end("the other members of the home bus say too little and too much to go on")

    def _take(self, unit: _Unit) -> None:
        if isinstance(unit, Configuration):
            self._take_configuration(unit)
            return
        word = unit.word
        if word is None:
            self._deliver_frame(unit.origin, unit.commands)
        elif isinstance(word, Relayed):
            self._take_relayed(unit.mark, unit.origin.place, word)
        elif isinstance(word, OutersStated):
            if word.configuration == unit.mark:
                self._take_stated(unit.origin, word)
        elif isinstance(word, Introduced):
            self._take_introduced(unit.origin, word)

    # ---- newcomers

    def _receive_as_newcomer(self, unit: _Unit) -> None:
        if isinstance(unit, Configuration):
            self._configured_as_newcomer(unit)
            return
        word = unit.word
        if isinstance(word, Acquainted) and word.newcomer == self.incarnation:
            self._establish(word.state)
            return
        if isinstance(word, Introduced) and word.is_new:
            self._strangers[unit.origin.place] = None
            self._give_up_if_all_are_strangers()
        self._waiting.append(unit)

    def _configured_as_newcomer(self, configuration: Configuration) -> None:
        if self._came_with is None:
            self._came_with = configuration
            if configuration.members == (self.place,):
                self.is_established = True
                if self._is_central:
                    self._centrals[self.place] = None
                self._take_configuration(configuration)
                return
        else:
            self._waiting.append(configuration)
            if configuration.members == (self.place,):
                self._end("whoever knew how things stood is gone")
                return
        for change in configuration.left:
            self._strangers.pop(change.place, None)
        self._say(Introduced(mark_of(self._came_with), self._is_central, is_new=True))
        self._give_up_if_all_are_strangers()

    def _give_up_if_all_are_strangers(self) -> None:
        assert self.raw is not None, "a configuration comes first"
        others = [place for place in self.raw.members if place != self.place]
        if others and all(place in self._strangers for place in others):
            self._end("nobody here knows how things stand")

    def _establish(self, state: Acquaintance | None) -> None:
        if state is None:
            self._end("nobody remembers how things stood when this member came")
            return
        self.is_established = True
        self.chain, self.mark = state.chain, state.mark
        self._centrals = dict.fromkeys(state.centrals)
        for each in state.outers:
            member = OuterMember(each.bus, each.outer.place, each.relay, each.outer.last)
            self.outers[each.outer.incarnation] = member
        self._configuration = self._came_with
        self._effects.append(Deliver(Configured(b"", self.chain, self.mark, state.configuration)))
        self._replay()

    def _replay(self) -> None:
        units, self._waiting = self._waiting, deque()
        for unit in units:
            self._receive(unit)

    def _take_introduced(self, origin: Origin, word: Introduced) -> None:
        if word.is_central:
            self._centrals[origin.place] = None
        if word.is_new and origin.incarnation != self.incarnation:
            self._say(Acquainted(origin.incarnation, self._remembered.get(word.configuration)))

    def _remember(self, mark: bytes, configuration: Configuration) -> None:
        outers = tuple(
            Related(each.bus, Outer(each.place, who, each.last, is_new=False), each.relay)
            for who, each in self.outers.items()
        )
        state = Acquaintance(outers, tuple(self._centrals), self.chain, self.mark, configuration)
        self._remembered.pop(mark, None)
        self._remembered[mark] = state
        if len(self._remembered) > BRIDGE_REMEMBERED_CONFIGURATIONS:
            del self._remembered[next(iter(self._remembered))]

    # ---- configurations of the home bus

    def _take_configuration(self, configuration: Configuration) -> None:
        gone = [change.place for change in configuration.left]
        for place in gone:
            self._centrals.pop(place, None)
        self._configuration = configuration
        self._lost = []
        if any(change.reason is not Reason.ENTERED for change in configuration.joined):
            self._meet(configuration)
            return
        self._orphans = {
            who: None
            for who, each in self.outers.items()
            if each.relay in gone or each.relay not in configuration.members
        }
        self._held = configuration
        if not self._orphans or not self._anybody_central(configuration):
            self._go_on()

    def _meet(self, configuration: Configuration) -> None:
        """Parts have found each other, and each knows of its own outer members only. These come again: then all know
        the same, from the first configuration on."""
        lost = tuple(Change(each.place, Reason.HOST_LOST) for each in self.outers.values())
        self.outers, self._pending = {}, {}
        left = (*configuration.left, *lost)
        self._deliver_configuration(configuration.joined, left, from_home=True, fresh=True)
        self._remember(mark_of(configuration), self._last_told)
        self._say(Introduced(b"", self._is_central, is_new=False))

    def _anybody_central(self, configuration: Configuration) -> bool:
        return any(place in self._centrals for place in configuration.members)

    def _receive_while_held(self, unit: _Unit) -> None:
        if isinstance(unit, Configuration):
            self._waiting.append(unit)
            if not self._anybody_central(unit):
                self._go_on()
            return
        word = unit.word
        if isinstance(word, Relayed) and word.origin.incarnation in self._orphans:
            if word.configuration == unit.mark:
                self._keep(unit.origin.place, word)
            return
        self._waiting.append(unit)
        if isinstance(word, OutersStated) and word.configuration == unit.mark and self.has_orphans(word.bus):
            self._settle_orphans(unit.origin.place, word)

    def _settle_orphans(self, relay: Place, stated: OutersStated) -> None:
        """The end of the old configuration: what another heard of them, and who of them comes along."""
        self._deliver_pending(relay, stated)
        listed = [outer.incarnation for outer in stated.outers]
        for who in [who for who in self._orphans if self.outers[who].bus == stated.bus]:
            del self._orphans[who]
            if who in listed:
                self.outers[who].relay = relay
            else:
                reasons = dict(stated.gone)
                self._lost.append(Change(self.outers.pop(who).place, reasons.get(who, Reason.HOST_LOST)))
        if not self._orphans:
            self._go_on()

    def _go_on(self) -> None:
        held, self._held = self._held, None
        assert held is not None
        for who in self._orphans:
            self._lost.append(Change(self.outers.pop(who).place, Reason.HOST_LOST))
        self._orphans = {}
        self._deliver_configuration(held.joined, (*held.left, *self._lost), from_home=True)
        if held.joined:
            self._remember(mark_of(held), self._last_told)
        self._replay()

    # ---- outer members

    def _take_relayed(self, mark: bytes, relay: Place, word: Relayed) -> None:
        if word.configuration != mark:
            return  # those who went another way may have heard it, or not: its relay says it again if it holds
        member = self.outers.get(word.origin.incarnation)
        if member is None or member.relay != relay:
            self._keep(relay, word)
        elif word.origin.sequence > member.last:
            member.last = word.origin.sequence
            self._deliver_frame(word.origin, word.commands)

    def _keep(self, relay: Place, word: Relayed) -> None:
        kept = self._pending.setdefault(relay, [])
        kept.append(word)
        if len(kept) > BRIDGE_WAITING_UNITS:
            self._end("a central member relays more than it says whose")

    def _deliver_pending(self, relay: Place, stated: OutersStated) -> None:
        """Relayed by one whose they were not yet, and now are."""
        named = [outer.incarnation for outer in stated.outers]
        named += [who for who, reason in stated.gone if reason in ENDINGS]
        for word in self._pending.pop(relay, ()):
            who = word.origin.incarnation
            member = self.outers.get(who)
            if member is not None and who in named and word.origin.sequence > member.last:
                member.last = word.origin.sequence
                self._deliver_frame(word.origin, word.commands)

    def _take_stated(self, origin: Origin, stated: OutersStated) -> None:
        relay = origin.place
        self._centrals[relay] = None
        kept = self._pending.get(relay, ())
        self._deliver_pending(relay, stated)
        joined, left = self._admit(relay, stated), self._dismiss(relay, stated)
        admitted = tuple(outer.incarnation for outer in joined)
        if joined or left:
            changes = tuple(
                Change(outer.place, Reason.ENTERED if outer.is_new else Reason.HOST_FOUND) for outer in joined
            )
            self._deliver_configuration(changes, left, from_home=False, admitted=admitted)
        for word in kept:
            if word.origin.incarnation in admitted:
                self._take_relayed(word.configuration, relay, word)

    def _admit(self, relay: Place, stated: OutersStated) -> list[Outer]:
        joined = []
        for outer in stated.outers:
            member = self.outers.get(outer.incarnation)
            if member is not None:
                member.relay = relay
            else:
                joined.append(outer)
        return joined

    def _dismiss(self, relay: Place, stated: OutersStated) -> tuple[Change, ...]:
        """Of the relay's members those it no longer states; who has ended; who was at the place of one that came."""
        listed = {outer.incarnation: outer for outer in stated.outers}
        places = [outer.place for outer in stated.outers]
        reasons = dict(stated.gone)
        left = [
            who
            for who, each in self.outers.items()
            if who not in listed
            and (
                (each.relay == relay and each.bus == stated.bus)
                or each.place in places
                or reasons.get(who) in ENDINGS
            )
        ]
        changes = tuple(Change(self.outers[who].place, reasons.get(who, Reason.HOST_LOST)) for who in left)
        for who in left:
            del self.outers[who]
        for outer in stated.outers:
            self.outers.setdefault(outer.incarnation, OuterMember(stated.bus, outer.place, relay, outer.last))
        return changes

    # ---- the order

    def _deliver_frame(self, origin: Origin, commands: list[Command]) -> None:
        self.chain = chained(self.chain, origin)
        self._effects.append(Deliver(Frame(self.chain, origin, commands)))

    def _deliver_configuration(
        self,
        joined: tuple[Change, ...],
        left: tuple[Change, ...],
        *,
        from_home: bool,
        admitted: tuple[Incarnation, ...] = (),
        fresh: bool = False,
    ) -> None:
        """`fresh`: those who come from different parts count from here."""
        below = self._configuration
        assert below is not None, "there is a configuration of the home bus"
        members = tuple(sorted((*below.members, *(each.place for each in self.outers.values()))))
        told = Configuration(below.ring, members, joined, left)
        before = self.chain
        self.chain = chained_configuration(b"" if fresh else before, told)
        if from_home:
            self.mark = self.chain
        self._last_told = told
        event: Event = Configured(before, self.chain, self.mark, told, admitted)
        self._effects.append(Deliver(event))

    def _say(self, word: Command) -> None:
        self._effects.append(SayHome(word))

    def _end(self, sentence: str) -> None:
        self.is_over = True
        self._effects.append(End("bus-gap", sentence))
