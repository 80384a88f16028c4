"""A member that is on one bus only, and not on the home bus: it delivers what the relay echoes, and nothing else.

    phase   | heard on its bus                      | does                              | then
    --------+---------------------------------------+-----------------------------------+--------
    waiting | configuration that admits it, echoed  | deliver it, say that it follows   | in
    in      | frame or configuration, echoed        | deliver it                        | in
    in      | somebody leads, from another place    | end                               | over
    in      | configuration that is without it      | end                               | over
    in      | nobody central is left on the bus     | end                               | over

Only the one who leads is listened to (`leading.py`). Frames of this bus were heard before they are echoed; they are
kept until then.
"""

from __future__ import annotations

from collections import deque

import msgspec

from heliograph.bus.bridge_words import (
    OUTER_WORDS,
    ConfigurationEchoed,
    Configured,
    Deliver,
    Echoed,
    Effect,
    End,
    Followed,
    Follows,
    Frame,
    Lead,
    Present,
    SayOuter,
    chained,
)
from heliograph.bus.commands import Command
from heliograph.bus.interface import Configuration, Incarnation, Origin, Place
from heliograph.bus.leading import Leading


class HeardFrame(msgspec.Struct, frozen=True, gc=False):
    """A frame that has no place in the order of the channel yet."""

    origin: Origin
    commands: list[Command]


class OuterOrder:
    """One such member."""

    def __init__(self, *, place: Place, incarnation: Incarnation) -> None:
        self.place = place
        self.incarnation = incarnation
        self.is_over = False
        self._leading = Leading()
        self._is_in = False
        self._chain = b""
        self._mark = b""
        self._centrals: dict[Place, None] = {}
        self._heard: dict[Incarnation, deque[HeardFrame]] = {}
        self._effects: list[Effect] = []

    def begin(self) -> list[Effect]:
        """The first word of all: before anything else is said."""
        return [SayOuter(self._present())]

    def _present(self) -> Present:
        owes = bool(self._heard.get(self.incarnation))
        return Present(False, None, self._mark, owes, self._leading.last)

    def configured(self, configuration: Configuration) -> list[Effect]:
        for change in (*configuration.left, *configuration.joined):
            self._centrals.pop(change.place, None)
        self._leading.configured(configuration)
        if any(change.place != self.place for change in configuration.joined):
            self._say(self._present())
        if self._is_in and not any(place in self._centrals for place in configuration.members):
            self._end("bus-lost", "nobody on this bus reaches the message managers")
        return self._take_effects()

    def heard(self, origin: Origin, commands: list[Command]) -> list[Effect]:
        plain = [command for command in commands if not isinstance(command, OUTER_WORDS)]
        if plain:
            self._heard.setdefault(origin.incarnation, deque()).append(HeardFrame(origin, plain))
        for command in commands:
            if isinstance(command, OUTER_WORDS) and not self.is_over:
                self._word(origin, command)
        return self._take_effects()

    def _word(self, origin: Origin, word: Command) -> None:
        if isinstance(word, Present):
            if word.is_central:
                self._centrals[origin.place] = None
        elif isinstance(word, Lead):
            self._lead(origin, word)
        elif origin.incarnation == self._leading.leader:
            if isinstance(word, Echoed) and self._is_in:
                self._frame_echoed(word)
            elif isinstance(word, ConfigurationEchoed):
                self._configuration_echoed(word)

    def _lead(self, origin: Origin, word: Lead) -> None:
        self._centrals[origin.place] = None
        lineage = self._leading.lineage
        if not self._leading.said(origin, word) or not self._is_in:
            return
        is_next = word.lineage == lineage and word.chain in (b"", self._chain)
        if is_next:
            self._say(Follows(self._leading.lead))
        else:
            self._end("bus-gap", "whoever leads on this bus comes from elsewhere")

    # ---- what is echoed

    def _frame_echoed(self, word: Echoed) -> None:
        found = self._take_heard(word.origin)
        if word.chain != chained(self._chain, word.origin) or (word.is_heard and found is None):
            self._end("bus-gap", "what is echoed is not what comes next here")
            return
        commands = found.commands if word.is_heard and found is not None else word.commands
        self._chain = word.chain
        self._effects.append(Deliver(Frame(word.chain, word.origin, commands)))

    def _take_heard(self, origin: Origin) -> HeardFrame | None:
        kept = self._heard.get(origin.incarnation)
        found = None
        while kept and kept[0].origin.sequence <= origin.sequence:
            found = kept.popleft()
        return found if found is not None and found.origin.sequence == origin.sequence else None

    def _configuration_echoed(self, word: ConfigurationEchoed) -> None:
        members = word.configuration.members
        if not self._is_in:
            if self.incarnation not in word.admitted:
                return
            self._is_in = True
        elif self.place not in members or word.before != self._chain:
            self._end("bus-gap", "this member was lost, and is found again")
            return
        self._chain = word.chain
        event = Configured(word.before, word.chain, word.mark, word.configuration, word.admitted)
        self._effects.append(Deliver(event))
        if word.mark != self._mark:
            self._mark = word.mark
            self._say(Followed(word.mark))
        self._forget(members)

    def _forget(self, members: tuple[Place, ...]) -> None:
        """What was said by those who are neither in the channel nor on the bus."""
        assert self._leading.configuration is not None, "a configuration comes first"
        on_bus = self._leading.configuration.members
        self._heard = {
            who: kept
            for who, kept in self._heard.items()
            if kept and (kept[0].origin.place in members or kept[0].origin.place in on_bus)
        }

    def _take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def _say(self, word: Command) -> None:
        self._effects.append(SayOuter(word))

    def _end(self, code: str, sentence: str) -> None:
        self.is_over = True
        self._effects.append(End(code, sentence))
