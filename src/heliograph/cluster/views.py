"""Views: how members of a channel agree on who is there, out of what the bus tells them (PROTOCOL 1 and 2).

A configuration of the bus is a list of places. It becomes a view when everybody in it has said who it is and where
it comes from, and all have heard the same answers. One machine is one incarnation; when it says `Leave`, its shell
enters the channel again with a new one.

    phase      | event                            | does                                     | then
    -----------+----------------------------------+------------------------------------------+----------
    outside    | configuration                    | beat, force (MM)                         | gathering
    gathering  | every place known, all on disk   | hello                                    | greeting
    gathering  | GATHER_SECONDS passed            | set the unknown aside, hello             | greeting
    greeting   | hello of one set aside           | hello with it                            | greeting
    greeting   | HELLO_SECONDS passed             | hello again                              | greeting
    greeting   | nobody's hello for SILENCE       | set the silent aside, hello without them | greeting
    greeting   | its nodes have news              | hello again                              | greeting
    greeting   | last matching hello              | restamp, install, beat                   | installed
    greeting   | the same, and its news untold    | the same, regrouped                      | installed
    installed  | hello                            | suspend, force (MM)                      | gathering
    installed  | expelled, stamped with the view  | the same, without the expelled           | gathering
    installed  | regrouped, stamped with the view | suspend, force (MM)                      | gathering
    installed  | silence of a member              | multicast expelled                       | installed
    any        | configuration                    | suspend, force (MM)                      | gathering
    any        | frame                            | facts apply; decisions only if installed and stamped so
    any        | gap, expelled oneself, behind    | leave                                    | over

"Gathering" lasts until the hello is said: for places nobody spoke from, and for the disk. Time makes a member give up
waiting, and nothing else; what makes a view, ends it or expels somebody is the order of deliveries (`hellos.py`).
"""

from __future__ import annotations

import enum
from typing import assert_never

from heliograph.bus import wire
from heliograph.bus.commands import FACTS, Command
from heliograph.bus.interface import Configuration, Incarnation, Origin, Place, Reason
from heliograph.bus.presence import (
    MESSAGE_MANAGER,
    Beat,
    Company,
    Expelled,
    Hello,
    NodeState,
    Regrouped,
    Word,
)
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
    Why,
)
from heliograph.cluster.hellos import Hellos, digest_of
from heliograph.cluster.lineage import Lineage
from heliograph.cluster.sequences import Sequences
from heliograph.cluster.view import View
from heliograph.model.limits import (
    BEAT_SECONDS,
    DEAF_SECONDS,
    GATHER_SECONDS,
    HELLO_SECONDS,
    MAX_ENDED_MEMBERS,
    SILENCE_SECONDS,
)

# Codes of docs/reference/bus.md: facts, then decisions, then what members say of themselves. Some facts came later,
# and are among the decisions by their codes alone.
_DECISIONS = {kind: None for kind, code in wire.CODES.items() if 64 <= code < 128 and kind not in FACTS}
_WORDS = {kind: None for kind, code in wire.CODES.items() if code >= 128}
# Of these, what is said where a channel is on several buses. A node that hears it is configured for one.
_BETWEEN_BUSES = {kind: None for kind, code in wire.CODES.items() if code >= 160}


_ENDINGS = (Reason.LEFT, Reason.DIED)


class Phase(enum.StrEnum):
    OUTSIDE = "outside"
    GATHERING = "gathering"
    GREETING = "greeting"
    INSTALLED = "installed"
    OVER = "over"


class Views:
    """One incarnation in one channel. `number`: the highest number of a view that its journals know."""

    def __init__(
        self, *, place: Place, incarnation: Incarnation, nodes: tuple[NodeState, ...], number: int = 0
    ) -> None:
        self.place = place
        self.incarnation = incarnation
        self.phase = Phase.OUTSIDE
        self.view: View | None = None  # the one installed now, or else the last one
        self._nodes = nodes
        self._has_news = False  # of its nodes, and no hello that says so has been delivered yet
        self._configuration: Configuration | None = None
        self._hellos: Hellos | None = None
        self._digest = b""  # of the configuration
        self._since = 0  # where in the order of its own frames this member began in it
        self._sequences = Sequences()
        self._lineage = Lineage(incarnation, number)
        self._ended: dict[Incarnation, None] = {}
        self._aside: dict[Place, None] = {}  # nobody waits for these
        self._expelled: dict[Place, None] = {}  # and these are out until the bus says so too
        self._arrived: dict[Incarnation, None] = {}
        self._attempt = 0
        self._forced = 0  # the last attempt for which everything is on disk
        # How long the bus has carried this member's own words, so far. A bus that stands still, as when it looks for
        # a host that is gone, says nothing about the silence of others.
        self._carried = 0.0
        self._carried_at = 0.0
        self._began = 0.0  # by that clock, as the next two
        self._greeted = 0.0
        self._woke = 0.0
        self._beat_at = 0.0
        self._heard_at: dict[Incarnation, float] = {}
        self._hello_at: dict[Incarnation, float] = {}
        self._expelled_at: dict[Incarnation, float] = {}
        self._sync_micros = 0

    def handle(self, event: Event) -> list[Effect]:
        if self.phase is Phase.OVER:
            return []
        if type(event) is Heard:  # nearly all of them are: a frame costs every member something
            return self._heard(event.at, event.origin, event.commands)
        match event:
            case Configured(at, configuration):
                return self._configured(at, configuration)
            case Ticked(at, sync_micros):
                self._sync_micros = sync_micros
                return self._ticked(at)
            case Forced(at, mark):
                self._forced = max(self._forced, mark)  # a disk may answer out of order
                return self._greet(at)
            case NodesChanged(at, nodes):
                self._nodes = nodes
                return self._nodes_changed(at)
            case FellBehind():
                return self._leave(Why.BEHIND)
            case Heard():
                raise AssertionError("it was looked at first")
            case _:
                assert_never(event)

    # ---- configurations: an attempt at a view begins

    def _configured(self, at: float, configuration: Configuration) -> list[Effect]:
        """PROTOCOL 1: a new ring without a change of members is a configuration too."""
        self._configuration = configuration
        self._note_ended(configuration)
        self._sequences.configured(configuration)
        self._sequences.known[self.place] = self.incarnation
        self._lineage.configured(configuration)
        self._hellos = Hellos(configuration)
        changed = [change.place for change in (*configuration.left, *configuration.joined)]
        stayed = [place for place in configuration.members if place not in changed]
        self._aside = {place: None for place in self._aside if place in stayed}
        self._expelled = {place: None for place in self._expelled if place in stayed}
        self._hello_at = {}
        self._digest = digest_of(configuration)
        self._since = 0
        return self._beat(at) + self._begin(at)

    def _note_ended(self, configuration: Configuration) -> None:
        for change in configuration.left:
            who = self._sequences.known.get(change.place)
            if who is not None and change.reason in _ENDINGS:
                self._ended[who] = None
        while len(self._ended) > MAX_ENDED_MEMBERS:
            del self._ended[next(iter(self._ended))]

    def has_ended(self, incarnation: Incarnation) -> bool:
        """Whether its process is known to be over. One that was lost with its host or network may go on elsewhere."""
        return incarnation in self._ended

    def _begin(self, at: float) -> list[Effect]:
        """What the hello says of the past is what was delivered up to here; an MM has it on disk before it says
        so (PROTOCOL 2)."""
        effects: list[Effect] = [Suspend()] if self.phase is not Phase.OUTSIDE else []
        self.phase = Phase.GATHERING
        self._lineage.settle()
        self._has_news = False  # the hello is still to be said
        self._attempt += 1
        self._began = self._carried
        if self._stores:
            effects.append(Force(self._attempt))
        else:
            self._forced = self._attempt
        return effects + self._greet(at)

    @property
    def _stores(self) -> bool:
        return any(node.role == MESSAGE_MANAGER for node in self._nodes)

    # ---- hellos

    def _greet(self, at: float) -> list[Effect]:
        """The first hello of an attempt, once it can be said."""
        company = self._company()
        if self.phase is not Phase.GATHERING or company is None or self._forced != self._attempt:
            return []
        self.phase = Phase.GREETING
        self._began = self._carried
        return self._hello(at, company)

    def _company(self) -> Company | None:
        """Everybody listed who is neither set aside nor expelled; None while one of them is unknown."""
        configuration = self._configuration
        if configuration is None:
            return None
        awaited = [
            place
            for place in configuration.members
            if place == self.place or (place not in self._aside and place not in self._expelled)
        ]
        known = [self._sequences.known[place] for place in awaited if place in self._sequences.known]
        if len(known) < len(awaited):
            return None
        return Company(configuration.ring, configuration.members, tuple(sorted(known)))

    def _hello(self, at: float, company: Company) -> list[Effect]:
        self._greeted = at
        past = self._lineage
        sequence = self._sequences.last(self.incarnation)
        hello = Hello(
            company,
            past.last,
            past.number,
            past.together,
            past.frames,
            past.way,
            past.passage,
            sequence,
            self._nodes,
            wire.LEVEL,
        )
        return [Multicast(hello)]

    def _hello_again(self, at: float) -> list[Effect]:
        company = self._company()
        assert company is not None, "who was set aside is unknown, everybody else has said who it is"
        return self._hello(at, company)

    def _hello_delivered(self, at: float, origin: Origin, hello: Hello) -> list[Effect]:
        assert self._hellos is not None, "a configuration comes first"
        if not self._hellos.delivered(origin.incarnation, hello):
            return []
        self._hello_at[origin.incarnation] = self._carried
        if origin.incarnation == self.incarnation and hello.nodes == self._nodes:
            self._has_news = False
        effects: list[Effect] = []
        was_out = self._readmit(origin.place)
        if self.phase is Phase.INSTALLED:
            effects += self._begin(at)
        elif self.phase is Phase.GREETING and was_out:
            effects += self._hello_again(at)
        view = self._hellos.take_view(hello)
        if view is not None and self.incarnation in view.members:
            effects += self._install(at, view)
        return effects

    def _readmit(self, place: Place) -> bool:
        """PROTOCOL 2: the later hello of one that was set aside starts a new view. One that was expelled and still
        says hello was away when that was said, and nobody here was told: it comes with its past like everybody."""
        was_out = place in self._aside or place in self._expelled
        self._aside.pop(place, None)
        self._expelled.pop(place, None)
        return was_out

    # ---- views

    def _install(self, at: float, view: View) -> list[Effect]:
        self.phase = Phase.INSTALLED
        self.view = view
        places = {who: place for place, who in self._sequences.known.items()}
        members: dict[Incarnation, Place | None] = {
            who: places[who] for who in view.members if who != self.incarnation
        }
        members[self.incarnation] = None
        self._lineage.installed(view, members)
        self._arrived = {}
        self._expelled_at = {}
        self._heard_at = dict.fromkeys(view.members, self._carried)
        # The hello that tells the news was said before the view, so it does not count in it.
        news = [Multicast(Regrouped())] if self._has_news else []
        self._has_news = False
        return [Restamp(view.id), Install(view), *self._beat(at), *news]

    def _beat_delivered(self, origin: Origin, beat: Beat) -> list[Effect]:
        if beat.configuration == self._digest:
            if origin.incarnation == self.incarnation and not self._since:
                self._since = origin.sequence
            if not self._sequences.heard_since(origin, beat.since):
                return self._leave(Why.GAP)
        return self._arrive(origin, beat)

    def _arrive(self, origin: Origin, beat: Beat) -> list[Effect]:
        """PROTOCOL 2 says when a view is installed here; only what a member says in it shows that it is there too."""
        if not self._is_in_view(origin) or origin.incarnation in self._arrived:
            return []
        self._arrived[origin.incarnation] = None
        past = self._lineage
        agrees = (beat.way, beat.passage) == (past.way, past.passage)
        return [Arrive(origin.incarnation, agrees)]

    def _is_in_view(self, origin: Origin) -> bool:
        """Sent in the view that is installed here, by one of its members. ▲"""
        view = self.view
        return self.phase is Phase.INSTALLED and view is not None and origin.stamp == view.id

    # ---- frames

    def _heard(self, at: float, origin: Origin, commands: list[Command]) -> list[Effect]:
        if not self._sequences.follows(origin):
            return self._leave(Why.GAP)
        self._lineage.delivered(origin)
        if origin.incarnation == self.incarnation:
            self._carried += min(at - self._carried_at, 2 * BEAT_SECONDS)
            self._carried_at = at
        self._heard_at[origin.incarnation] = self._carried
        effects = self._apply(at, origin, commands)
        self._sequences.delivered(origin)
        return effects if self.phase is not Phase.GATHERING else effects + self._greet(at)

    def _apply(self, at: float, origin: Origin, commands: list[Command]) -> list[Effect]:
        """PROTOCOL 2: facts hold wherever they are delivered, decisions only in the view they were made in. ▲"""
        effects: list[Effect] = []
        holding: list[Command] = []
        for command in commands:
            kind = type(command)
            if kind in _WORDS:
                if holding:
                    effects.append(Apply(origin, holding))
                    holding = []
                effects += self._word(at, origin, command)  # type: ignore[arg-type]
            elif kind not in _DECISIONS or self._is_in_view(origin):
                holding.append(command)
        if holding and self.phase is not Phase.OVER:
            effects.append(Apply(origin, holding))
        return effects

    def _word(self, at: float, origin: Origin, word: Word) -> list[Effect]:
        if self.phase is Phase.OVER or type(word) in _BETWEEN_BUSES:
            return []
        match word:
            case Beat(sequence=sequence) | Hello(sequence=sequence) if not self._sequences.heard_up_to(
                origin, sequence
            ):
                return self._leave(Why.GAP)
            case Beat():
                return self._beat_delivered(origin, word)
            case Hello():
                return self._hello_delivered(at, origin, word)
            case Expelled(incarnation):
                return self._expel(at, incarnation) if self._is_in_view(origin) else []
            case Regrouped():
                return self._begin(at) if self._is_in_view(origin) else []
            case _:
                assert_never(word)

    def _expel(self, at: float, incarnation: Incarnation) -> list[Effect]:
        """PROTOCOL 1: the delivery is a configuration without that member, for all."""
        if incarnation == self.incarnation:
            return self._leave(Why.EXPELLED)
        for place, who in self._sequences.known.items():
            if who == incarnation:
                self._expelled[place] = None
        self._lineage.without(incarnation)
        return self._begin(at)

    def _leave(self, why: Why) -> list[Effect]:
        self.phase = Phase.OVER
        return [Leave(why)]

    # ---- time

    def _ticked(self, at: float) -> list[Effect]:
        if self.phase is Phase.OUTSIDE:
            return []
        if at - self._woke > DEAF_SECONDS:
            self._forgive()
        self._woke = at
        effects = self._beat(at) if at - self._beat_at >= BEAT_SECONDS else []
        match self.phase:
            case Phase.GATHERING:
                return effects + self._give_up_gathering(at)
            case Phase.GREETING:
                return effects + self._give_up_waiting(at)
            case _:
                return effects + self._report_silence(at)

    def _forgive(self) -> None:
        """It was this member that was not there: what the others said meanwhile is still to come."""
        self._began = self._carried
        self._heard_at = dict.fromkeys(self._heard_at, self._carried)
        self._hello_at = dict.fromkeys(self._hello_at, self._carried)

    def _beat(self, at: float) -> list[Effect]:
        self._beat_at = at
        past = self._lineage
        sequence = self._sequences.last(self.incarnation)
        beat = Beat(self._digest, self._since, sequence, past.way, past.passage, self._sync_micros)
        return [Multicast(beat)]

    def _give_up_gathering(self, at: float) -> list[Effect]:
        assert self._configuration is not None, "gathering begins with a configuration"
        if self._carried - self._began < GATHER_SECONDS:
            return []
        for place in self._configuration.members:
            if place not in self._sequences.known:
                self._aside[place] = None
        return self._greet(at)

    def _give_up_waiting(self, at: float) -> list[Effect]:
        """PROTOCOL 2: a listed member without a hello is excluded once all others say so. Saying hello to a company
        without it is how they say it."""
        silent = [
            place
            for place, who in self._sequences.known.items()
            if place != self.place
            and self._carried - max(self._hello_at.get(who, 0.0), self._began) > SILENCE_SECONDS
        ]
        newly = [place for place in silent if place not in self._aside]
        self._aside.update(dict.fromkeys(newly))
        if newly or at - self._greeted >= HELLO_SECONDS:
            return self._hello_again(at)
        return []

    def _report_silence(self, at: float) -> list[Effect]:
        """PROTOCOL 1: silence beyond T, anyone multicasts EXPEL."""
        assert self.view is not None, "installed"
        silent = [
            who
            for who in self.view.members
            if who != self.incarnation
            and self._carried - self._heard_at[who] > SILENCE_SECONDS
            and at - self._expelled_at.get(who, 0.0) > HELLO_SECONDS
        ]
        self._expelled_at.update(dict.fromkeys(silent, at))
        return [Multicast(Expelled(who)) for who in silent]

    def _nodes_changed(self, at: float) -> list[Effect]:
        """PROTOCOL 1: a node's hello and bye count as configuration changes."""
        if self.phase is Phase.INSTALLED:
            return [Multicast(Regrouped())]
        if self.phase is not Phase.GREETING:
            return []
        self._has_news = True  # perhaps the hello that was said already makes the view
        return self._hello_again(at)
