"""Between the home bus and another one: what a central member does there, be it the relay or not.

Every central member follows both orders: what was said on the other bus and has no place in the order of the channel
yet, and what of that order was not echoed on the other bus yet. The one that leads (`leading.py`) acts on it: it
relays the first, echoes the second, and states on the home bus who is on the other. When it is gone another leads,
and goes on where it was, because it knows the same.

What an outer member said is relayed only after it has followed the last configuration of the home bus (`Followed`):
otherwise a part of the home bus could order it in a configuration that the member never comes to, while another
part, which the member follows, orders it in its own. The exception are orphans, whose relay is gone: what they said
in the old configuration is brought to its end (`home_order.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from heliograph.bus.bridge_words import (
    ENDINGS,
    OUTER_WORDS,
    ConfigurationEchoed,
    Configured,
    Echoed,
    Effect,
    Event,
    Followed,
    Follows,
    Frame,
    Lead,
    Outer,
    OutersStated,
    Present,
    Relayed,
    SayHome,
    SayOuter,
)
from heliograph.bus.commands import Command
from heliograph.bus.echoing import Backlog
from heliograph.bus.home_order import HomeOrder, OuterMember
from heliograph.bus.interface import Configuration, Incarnation, Origin, Place, Reason
from heliograph.bus.leading import NOBODY, Leading
from heliograph.bus.outer_order import HeardFrame
from heliograph.model.limits import BRIDGE_PATIENCE_TICKS


class _Neighbour(msgspec.Struct):
    """A member of the other bus, as it said of itself."""

    incarnation: Incarnation
    is_central: bool
    is_new: bool
    leader: Incarnation


class Crossing:
    """One central member on one other bus. `place` and `incarnation` are what it is there.

    `home_has_room` and `has_room` say whether the buses take more than is needed at once.
    """

    def __init__(
        self,
        bus: str,
        home: HomeOrder,
        *,
        place: Place,
        incarnation: Incarnation,
        home_has_room: Callable[[], bool],
        has_room: Callable[[], bool],
    ) -> None:
        self.bus = bus
        self._home = home
        self._place = place
        self._incarnation = incarnation
        self._home_has_room = home_has_room
        self._has_room = has_room
        self._leading = Leading()
        self._backlog = Backlog()
        self._neighbours: dict[Place, _Neighbour] = {}
        self._followed: dict[Incarnation, bytes] = {}
        self._unheard: dict[Incarnation, None] = {}  # outer members who said something before we came
        self._frames: dict[Incarnation, deque[HeardFrame]] = {}
        self._relayed: dict[Incarnation, int] = {}
        self._departed: dict[Incarnation, Reason] = {}
        self._ended: dict[Place, None] = {}  # members of the home bus whose process is over
        self._has_claimed = False
        self._has_given_up = self._has_corrected = False
        self._is_elsewhere = False  # the leader says so: it is in another part of the home bus
        self._is_foreign = False  # as far as we know
        self._confirmed: dict[
            Incarnation, None
        ] = {}  # outer members that will follow nobody who has not followed us
        self._patience = 0  # ticks until those who do not confirm are left behind
        self._leaderless = 0  # ticks for which nobody led, or one who has ended
        self._silence = 0  # ticks for which the leader echoed nothing, though there was something
        self._owes_statement = False
        self._owes_all = False  # a statement, whether anything changed or not
        self._effects: list[Effect] = []

    @property
    def may_send(self) -> bool:
        """Whether what is not echoed yet is little enough."""
        return self._backlog.is_short

    @property
    def _is_leader(self) -> bool:
        return self._leading.leader == self._incarnation

    def begin(self) -> list[Effect]:
        """The first word of all."""
        return [SayOuter(self._present())]

    def _present(self) -> Present:
        return Present(True, self._home.place, b"", False, self._leading.last)

    # ---- the other bus

    def configured(self, configuration: Configuration) -> list[Effect]:
        for change in (*configuration.left, *configuration.joined):
            neighbour = self._neighbours.pop(change.place, None)
            if neighbour is not None and not neighbour.is_central:
                is_loss = change.reason in (Reason.ENTERED, Reason.HOST_FOUND)
                reason = Reason.HOST_LOST if is_loss else change.reason
                self._departed.setdefault(neighbour.incarnation, reason)
        self._leading.configured(configuration)
        self._backlog.interrupted()
        self._has_claimed = False
        if any(change.place != self._place for change in configuration.joined):
            self._say(self._present())
        return self.look()

    def heard(self, origin: Origin, commands: list[Command]) -> list[Effect]:
        plain = [command for command in commands if not isinstance(command, OUTER_WORDS)]
        if plain:
            self._frames.setdefault(origin.incarnation, deque()).append(HeardFrame(origin, plain))
        for command in commands:
            if isinstance(command, OUTER_WORDS):
                self._word(origin, command)
        return self.look()

    def _word(self, origin: Origin, word: Command) -> None:
        if isinstance(word, Present):
            self._met(origin, word)
        elif isinstance(word, Followed):
            self._followed[origin.incarnation] = word.mark
            if origin.place in self._neighbours:
                self._neighbours[origin.place].is_new = False
        elif isinstance(word, Lead):
            self._lead(origin, word)
        elif isinstance(word, Follows):
            if self._is_leader and word.lead == self._leading.lead:
                self._confirmed[origin.incarnation] = None
        elif origin.incarnation == self._leading.leader:
            if isinstance(word, Echoed | ConfigurationEchoed) and not self._is_foreign:
                self._backlog.echoed(word.chain)
            self._silence = 0
            if isinstance(word, ConfigurationEchoed):
                self._is_elsewhere = self._home.place not in word.configuration.members

    def _met(self, origin: Origin, word: Present) -> None:
        who = origin.incarnation
        is_known = who in self._followed or who in self._frames
        self._neighbours[origin.place] = _Neighbour(who, word.is_central, not word.mark, word.leader)
        if word.is_central:
            return
        self._departed.pop(who, None)
        if word.owes and not is_known:
            self._unheard[who] = None
        self._followed[who] = word.mark
        self._owes_statement = True

    def _lead(self, origin: Origin, word: Lead) -> None:
        if not self._leading.said(origin, word):
            return
        self._is_elsewhere = self._is_foreign = False
        self._confirmed.clear()
        self._silence, self._patience = 0, BRIDGE_PATIENCE_TICKS
        is_mine = origin.incarnation == self._incarnation
        self._has_claimed = False
        self._backlog.led(word.chain, is_mine=is_mine)
        if is_mine:
            self._relayed.clear()
            self._owes_statement = self._owes_all = True
        elif not self._is_on_home(word.home):
            self._is_foreign = True
            self._backlog.lose_step()
            self._let_go()

    def _let_go(self) -> None:
        """Those who were members through us follow another part of the home bus now."""
        home = self._home
        if any(self._is_own(each) for each in home.outers.values()):
            self._say_home(())

    def _is_on_home(self, place: Place | None) -> bool:
        return self._home.raw is not None and place in self._home.raw.members

    # ---- the home bus

    def home_configured(self, configuration: Configuration) -> list[Effect]:
        """Its configuration, when it is told; it may be in the order of the channel only later."""
        self._relayed.clear()
        self._has_given_up = self._has_corrected = False
        for change in configuration.joined:
            self._ended.pop(change.place, None)
        for change in configuration.left:
            if change.reason in ENDINGS:
                self._ended[change.place] = None
        self._owes_statement = self._owes_all = True
        return self.look()

    def ordered(self, event: Event) -> list[Effect]:
        """The next in the order of the channel."""
        if isinstance(event, Frame):
            self._backlog.ordered(event, is_heard=self._take_heard(event.origin))
        else:
            self._backlog.ordered(event, is_heard=False)
            self._has_corrected = False
            self._forget()
            if self._leading.home is not None and not self._is_on_home(self._leading.home):
                self._is_foreign = True
                self._backlog.lose_step()
        return self.look()

    def _take_heard(self, origin: Origin) -> bool:
        kept = self._frames.get(origin.incarnation)
        found = None
        while kept and kept[0].origin.sequence <= origin.sequence:
            found = kept.popleft()
        if found is not None:
            self._unheard.pop(origin.incarnation, None)
        return found is not None and found.origin.sequence == origin.sequence

    def _forget(self) -> None:
        """Those who are neither in the channel nor on the bus."""
        here = [each.incarnation for each in self._neighbours.values()]
        outers = self._home.outers
        kinds: tuple[dict[Incarnation, Any], ...] = (
            self._frames,
            self._followed,
            self._unheard,
            self._departed,
        )
        for kept in kinds:
            for who in [who for who in kept if who not in outers and who not in here]:
                del kept[who]

    # ---- what follows from it

    def look(self) -> list[Effect]:
        if self._home.is_established and self._leading.configuration is not None:
            if not self._is_leader:
                self._claim()
                self._depose()
                self._give_up()
                self._correct()
            if self._is_leader:
                self._state()
                self._relay()
                self._echo()
        effects, self._effects = self._effects, []
        return effects

    def _claim(self) -> None:
        leading = self._leading
        if leading.leader is not None or self._has_claimed:
            return
        was_leader, nobody_was = leading.place == self._place, leading.place is None
        if self._backlog.is_in_step and (was_leader or nobody_was):
            self._say_lead(b"", self._backlog.chain, self._leading.lineage)
        elif was_leader or (nobody_was and self._may_restart()):
            self._backlog.restart()
            self._say_lead(b"", self._backlog.chain)

    def _may_restart(self) -> bool:
        """Those who know better what was echoed come first. Where nobody was followed, there is nothing to know."""
        if self._leaderless >= BRIDGE_PATIENCE_TICKS:
            return True
        assert self._leading.configuration is not None
        others = [place for place in self._leading.configuration.members if place != self._place]
        return all(place in self._neighbours and self._neighbours[place].leader == NOBODY for place in others)

    def _say_lead(self, instead: bytes, chain: bytes, lineage: bytes = b"") -> None:
        self._has_claimed = True
        self._say(Lead(self._leading.mark, instead, chain, lineage, self._home.place))

    def _depose(self) -> None:
        """The leader has ended, as the home bus says; this bus may take long to say so."""
        leading = self._leading
        if leading.leader is None or self._has_claimed:
            return
        if leading.home not in self._ended and self._silence < BRIDGE_PATIENCE_TICKS:
            return
        if self._backlog.is_in_step:
            self._say_lead(leading.lead, b"", leading.lineage)
        elif self._leaderless >= BRIDGE_PATIENCE_TICKS:
            self._backlog.restart()
            self._say_lead(leading.lead, self._backlog.chain)

    def _give_up(self) -> None:
        """Orphans that follow somebody in another part of the home bus are no longer members here."""
        home, leading = self._home, self._leading
        if self._has_given_up or not home.is_held or not home.has_orphans(self.bus):
            return
        if leading.leader is None or self._is_on_home(leading.home) or leading.home in self._ended:
            return
        if self._is_elsewhere or self._is_foreign:
            self._has_given_up = True
            self._say_home(())

    def _correct(self) -> None:
        """Another leads, and states whom. Those who were members through us and are not here are nobody's."""
        home = self._home
        if self._has_corrected or home.is_held or self._leading.leader is None:
            return
        own = {who: each for who, each in home.outers.items() if self._is_own(each)}
        here = [each.incarnation for each in self._neighbours.values()]
        if any(who not in here for who in own):
            self._has_corrected = True
            staying = [(who, each) for who, each in own.items() if who in here]
            self._say_home(tuple(Outer(each.place, who, each.last, is_new=False) for who, each in staying))

    def _is_own(self, member: OuterMember) -> bool:
        return member.relay == self._home.place and member.bus == self.bus

    def _state(self) -> None:
        if not self._owes_statement or (self._patience and self._awaits_anybody()):
            return
        self._owes_statement = False
        if not self._owes_all and not self._is_anybody_new():
            return
        self._owes_all = False
        self._relay(before_statement=True)
        self._say_home(tuple(self._outers()))

    def _say_home(self, outers: tuple[Outer, ...]) -> None:
        gone = self._gone()
        self._effects.append(SayHome(OutersStated(self._home.raw_mark, self.bus, outers, gone)))

    def _is_anybody_new(self) -> bool:
        outers = self._home.outers
        return any(
            not each.is_central and each.incarnation not in outers for each in self._neighbours.values()
        )

    def _outers(self) -> list[Outer]:
        """Those who can come along: newcomers, and members of whom we have heard everything."""
        found = []
        for place, each in self._neighbours.items():
            who = each.incarnation
            if each.is_central:
                continue
            member = self._home.outers.get(who)
            if member is None and each.is_new:
                found.append(Outer(place, who, 0, is_new=True))
            elif member is not None and (member.relay == self._home.place or self._comes_along(who)):
                last = max(member.last, self._relayed.get(who, 0))
                found.append(Outer(place, who, last, is_new=False))
        return found

    def _comes_along(self, who: Incarnation) -> bool:
        """From one relay to the next: it follows nobody who knows nothing of it, and we heard all that it said."""
        return who in self._confirmed and who not in self._unheard

    def _awaits_anybody(self) -> bool:
        return any(
            each.incarnation in self._home.outers
            and self._home.outers[each.incarnation].relay != self._home.place
            and each.incarnation not in self._confirmed
            for each in self._neighbours.values()
        )

    def tick(self) -> list[Effect]:
        """Time passes. Those who are stopped are not waited for."""
        self._patience = max(0, self._patience - 1)
        self._silence = self._silence + 1 if self._backlog.owes else 0
        leading = self._leading
        is_led = leading.leader is not None and leading.home not in self._ended
        self._leaderless = 0 if is_led else self._leaderless + 1
        return self.look()

    def _gone(self) -> tuple[tuple[Incarnation, Reason], ...]:
        return tuple((who, reason) for who, reason in self._departed.items() if who in self._home.outers)

    def _relay(self, *, before_statement: bool = False) -> None:
        for who, kept in self._frames.items():
            if kept and self._may_relay(who, before_statement=before_statement):
                self._relay_frames(who, kept, heedless=before_statement)

    def _may_relay(self, who: Incarnation, *, before_statement: bool) -> bool:
        home = self._home
        member = home.outers.get(who)
        if member is None or self._followed.get(who) != home.mark or not self._is_ours(who):
            return False
        if home.is_held:
            return before_statement and home.is_orphan(who)
        return before_statement or member.relay == home.place

    def _is_ours(self, who: Incarnation) -> bool:
        """It is on this bus, or was to its end. One that was lost may be led by another, who relays what it said."""
        if self._departed.get(who) in ENDINGS:
            return True
        member = self._home.outers[who]
        is_here = any(each.incarnation == who for each in self._neighbours.values())
        return is_here and (member.relay == self._home.place or self._comes_along(who))

    def _relay_frames(self, who: Incarnation, kept: deque[HeardFrame], *, heedless: bool) -> None:
        relayed = self._relayed.get(who, 0)
        for frame in kept:
            if frame.origin.sequence <= relayed:
                continue
            if not heedless and not self._home_has_room():
                break
            relayed = frame.origin.sequence
            self._effects.append(SayHome(Relayed(self._home.raw_mark, frame.origin, frame.commands)))
        self._relayed[who] = relayed

    def _echo(self) -> None:
        while self._has_room():
            entry = self._backlog.next_to_echo()
            if entry is None:
                break
            event, is_heard = entry
            if isinstance(event, Frame):
                commands = [] if is_heard else event.commands
                self._say(Echoed(event.chain, event.origin, is_heard, commands))
            else:
                self._say(_echo_of(event))
        if self._backlog.is_overrun:
            # Whoever follows cannot be brought along: it notices, and comes again.
            self._backlog.restart()
            self._say_lead(self._leading.lead, self._backlog.chain)

    def _say(self, word: Command) -> None:
        self._effects.append(SayOuter(word))


def _echo_of(event: Configured) -> ConfigurationEchoed:
    return ConfigurationEchoed(event.before, event.chain, event.mark, event.configuration, event.admitted)
