"""Rules of several buses that a network breaks only at the wrong moment (docs/decisions/0023), one by one."""

import pytest

from heliograph.bus.bridge_words import (
    ConfigurationEchoed,
    Deliver,
    Effect,
    End,
    Followed,
    Follows,
    Introduced,
    Lead,
    Outer,
    OutersStated,
    Present,
    Relayed,
    SayHome,
    SayOuter,
    mark_of,
)
from heliograph.bus.commands import ChunkSent, Command
from heliograph.bus.crossing import Crossing
from heliograph.bus.home_order import HomeOrder
from heliograph.bus.interface import NO_VIEW, Change, Configuration, Incarnation, Origin, Place, Reason, Ring
from heliograph.bus.leading import NOBODY
from heliograph.bus.outer_order import OuterOrder
from heliograph.model.ids import SessionId
from heliograph.model.limits import BRIDGE_PATIENCE_TICKS

pytestmark = pytest.mark.req("M3")
OURS, OTHER, OUTER = (Place(number, 1) for number in (1, 2, 3))
WHO = {place: Incarnation(bytes([place.node]) * 16) for place in (OURS, OTHER, OUTER)}
NEAR = "near"
WORD = ChunkSent(SessionId(bytes(16)), 0, 0, b"")


class Speaker:
    """Numbers what members say."""

    def __init__(self) -> None:
        self._said = 0

    def origin(self, place: Place) -> Origin:
        self._said += 1
        return Origin(place, WHO[place], self._said, NO_VIEW)


def told(ring: int, members: tuple[Place, ...], *, left: tuple[Change, ...] = ()) -> Configuration:
    return Configuration(Ring(1, ring), members, (), left)


def stated(effects: list[Effect]) -> list[OutersStated]:
    words = [effect.word for effect in effects if isinstance(effect, SayHome)]
    return [word for word in words if isinstance(word, OutersStated)]


def relayed(effects: list[Effect]) -> list[Relayed]:
    words = [effect.word for effect in effects if isinstance(effect, SayHome)]
    return [word for word in words if isinstance(word, Relayed)]


def lead(effects: list[Effect]) -> Lead:
    words = [effect.word for effect in effects if isinstance(effect, SayOuter)]
    [found] = [word for word in words if isinstance(word, Lead)]
    return found


class Central:
    """A central member that follows another, through which the outer member is in the channel."""

    def __init__(self) -> None:
        self.speaker = Speaker()
        self.home = HomeOrder(place=OURS, incarnation=WHO[OURS], is_central=True)
        self.crossing = Crossing(
            NEAR,
            self.home,
            place=OURS,
            incarnation=WHO[OURS],
            home_has_room=lambda: True,
            has_room=lambda: True,
        )
        entered = (Change(OURS, Reason.ENTERED),)
        self._home_told(Configuration(Ring(1, 4), (OURS,), entered))
        self._home_told(Configuration(Ring(1, 4), (OURS, OTHER), (Change(OTHER, Reason.ENTERED),)))
        self.on_home(OTHER, Introduced(b"", is_central=True, is_new=False))
        everybody = told(4, (OURS, OTHER, OUTER))
        self.crossing.configured(everybody)
        self.on_near(OTHER, Present(True, OTHER, b"", False, WHO[OTHER]))
        self.on_near(OTHER, Lead(mark_of(everybody), b"", self.home.chain, b"", OTHER))
        self.on_near(OUTER, Present(False, None, b"", False, WHO[OTHER]))
        outer = Outer(OUTER, WHO[OUTER], 0, is_new=True)
        self.on_home(OTHER, OutersStated(self.home.raw_mark, NEAR, (outer,), ()))
        self.on_near(OUTER, Followed(self.home.mark))

    def _home_told(self, configuration: Configuration) -> list[Effect]:
        effects = self.home.configured(configuration)
        return self.crossing.home_configured(configuration) + self._ordered(effects)

    def _ordered(self, effects: list[Effect]) -> list[Effect]:
        return [
            follows
            for effect in effects
            if isinstance(effect, Deliver)
            for follows in self.crossing.ordered(effect.event)
        ]

    def on_home(self, place: Place, word: Command) -> list[Effect]:
        return self._ordered(self.home.heard(self.speaker.origin(place), [word]))

    def on_near(self, place: Place, word: Command) -> list[Effect]:
        return self.crossing.heard(self.speaker.origin(place), [word])

    def lose_other(self) -> list[Effect]:
        """On the other bus: nobody leads there, and this one wants to."""
        self.echo_everything()
        gone = (Change(OTHER, Reason.HOST_LOST),)
        return self.crossing.configured(told(8, (OURS, OUTER), left=gone))

    def echo_everything(self) -> None:
        """The other has said all that was ordered: this one is in step with it."""
        configuration = told(4, (OURS, OTHER, OUTER))
        for event, _ in list(self.crossing._backlog._entries):
            self.on_near(OTHER, ConfigurationEchoed(b"", event.chain, b"", configuration, ()))

    def say_lead(self, word: Lead) -> tuple[bytes, list[Effect]]:
        origin = self.speaker.origin(OURS)
        named = origin.incarnation + origin.sequence.to_bytes(8, "little")
        return named, self.crossing.heard(origin, [word])


def test_a_new_relay_states_nobody_who_has_not_confirmed_that_it_follows() -> None:
    central = Central()
    name, effects = central.say_lead(lead(central.lose_other()))
    assert stated(effects) == []
    [statement] = stated(central.on_near(OUTER, Follows(name)))
    assert [outer.incarnation for outer in statement.outers] == [WHO[OUTER]]


def test_one_that_does_not_confirm_is_left_behind_in_the_end() -> None:
    central = Central()
    central.say_lead(lead(central.lose_other()))
    said = [statement for _ in range(BRIDGE_PATIENCE_TICKS) for statement in stated(central.crossing.tick())]
    assert [statement.outers for statement in said] == [()]


def test_what_was_said_by_one_that_was_lost_is_not_relayed_by_the_next_leader() -> None:
    for reason, count in ((Reason.HOST_LOST, 0), (Reason.DIED, 1)):
        central = Central()
        central.on_near(OUTER, WORD)
        central.echo_everything()
        gone = (Change(OTHER, Reason.HOST_LOST), Change(OUTER, reason))
        effects = central.crossing.configured(told(8, (OURS,), left=gone))
        _, effects = central.say_lead(lead(effects))
        assert len(relayed(effects)) == count, reason


def test_what_is_said_before_a_configuration_was_followed_is_not_relayed_in_it() -> None:
    central = Central()
    name, _ = central.say_lead(lead(central.lose_other()))
    [statement] = stated(central.on_near(OUTER, Follows(name)))
    central.on_home(OURS, statement)
    assert len(relayed(central.on_near(OUTER, WORD))) == 1
    left = (Change(OTHER, Reason.LEFT),)
    effects = central._home_told(Configuration(Ring(1, 4), (OURS,), (), left))
    assert relayed(effects) == relayed(central.on_near(OUTER, WORD)) == []
    assert len(relayed(central.on_near(OUTER, Followed(central.home.mark)))) == 2


def test_one_whose_leader_is_in_another_part_of_the_home_bus_cannot_go_on_for_it() -> None:
    central = Central()
    central.echo_everything()
    assert central.crossing._backlog.is_in_step
    central.crossing._leading.home = Place(9, 9)
    central.on_home(OURS, WORD)
    assert central.crossing._backlog.owes
    [event] = [
        effect.event
        for effect in central.home.configured(told(8, (OURS, OTHER)))
        if isinstance(effect, Deliver)
    ]
    central.crossing.ordered(event)
    assert not central.crossing._backlog.is_in_step


@pytest.mark.parametrize(("chain", "lineage", "ends"), [(0, 0, False), (1, 0, True), (0, 1, True)])
def test_an_outer_member_follows_only_who_goes_on_where_it_is(chain: int, lineage: int, ends: bool) -> None:
    speaker = Speaker()
    order = OuterOrder(place=OUTER, incarnation=WHO[OUTER])
    first, second = told(4, (OURS, OUTER)), told(8, (OURS, OUTER))
    order.configured(first)
    order.heard(speaker.origin(OURS), [Lead(mark_of(first), b"", b"start", b"", OURS)])
    echo = ConfigurationEchoed(b"start", b"here", b"mark", first, (WHO[OUTER],))
    effects = order.heard(speaker.origin(OURS), [echo])
    assert [type(effect) for effect in effects] == [Deliver, SayOuter]
    known = order._leading.lineage
    order.configured(second)
    word = Lead(mark_of(second), b"", (b"here", b"there")[chain], (known, b"others")[lineage], OURS)
    effects = order.heard(speaker.origin(OURS), [word])
    assert [type(effect) for effect in effects] == [End if ends else SayOuter]


def test_leaders_are_followed_in_the_order_of_the_bus() -> None:
    order = OuterOrder(place=OUTER, incarnation=WHO[OUTER])
    speaker = Speaker()
    everybody = told(4, (OURS, OTHER, OUTER))
    order.configured(everybody)
    for place in (OTHER, OURS):
        order.heard(speaker.origin(place), [Lead(mark_of(everybody), b"", b"", b"", place)])
    assert order._leading.leader == WHO[OTHER]
    order.heard(speaker.origin(OURS), [Lead(mark_of(everybody), order._leading.lead, b"", b"", OURS)])
    assert order._leading.leader == WHO[OURS]
    order.configured(told(8, (OURS, OTHER, OUTER)))
    assert [order._leading.leader, order._leading.last] == [None, WHO[OURS]]
    order.configured(told(8, (OTHER, OUTER), left=(Change(OURS, Reason.DIED),)))
    assert order._leading.last == NOBODY
