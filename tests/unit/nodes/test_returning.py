"""Clients that come back to a primary that does not know yet what other parts did."""

from __future__ import annotations

from heliograph.bus.commands import Command, SessionLost, SessionResumed
from heliograph.bus.interface import NO_VIEW, Incarnation, Origin, Place
from heliograph.model.ids import SessionId
from heliograph.model.limits import UNION_WAIT_SECONDS
from heliograph.nodes.returning import Returning

ANN, BOB = SessionId(b"ann".rjust(16)), SessionId(b"bob".rjust(16))
EAST = Origin(Place(1, 1), Incarnation(b"east".rjust(16)), 1, NO_VIEW)
WEST = Origin(Place(2, 2), Incarnation(b"west".rjust(16)), 1, NO_VIEW)


def resumed(request: int, session: SessionId) -> SessionResumed:
    return SessionResumed(request, session, "user", b"token")


def test_who_comes_back_waits_and_what_is_said_of_the_session_waits_behind_it() -> None:
    returning = Returning()
    said: list[tuple[Origin, Command]] = [
        (EAST, resumed(1, ANN)),
        (EAST, SessionLost(ANN)),
        (WEST, resumed(2, ANN)),
    ]
    for origin, command in said:
        assert returning.keeps(origin, command, 10.0)
    assert not returning.keeps(EAST, SessionLost(BOB), 10.0)
    assert returning.taken() == said
    assert not returning.is_waited_for


def test_nobody_overtakes_a_session_that_waits_when_the_wait_is_over() -> None:
    """The client is with another client manager by now: to let that one in first would leave the session where the
    client is no more."""
    returning = Returning()
    late = 10.0 + UNION_WAIT_SECONDS
    assert returning.keeps(EAST, resumed(1, ANN), 10.0)
    assert returning.keeps(WEST, resumed(2, ANN), late)
    assert not returning.keeps(WEST, resumed(3, BOB), late)
    assert [origin for origin, _ in returning.taken()] == [EAST, WEST]


def test_what_is_said_of_a_session_that_waits_is_behind_it_until_all_are_let_in() -> None:
    returning = Returning()
    assert returning.keeps(EAST, resumed(1, ANN), 10.0)
    assert returning.is_behind(resumed(2, ANN))
    assert returning.is_behind(SessionLost(ANN))
    assert not returning.is_behind(resumed(3, BOB))
    returning.taken()
    assert not returning.is_behind(resumed(4, ANN))
