"""What may be handed out in a partition state, of queues and of shared subscriptions (PROTOCOL 4, P3, P7, P11), and
of those that get each message in whatever part they are (PROTOCOL 6).

A message that may not go waits for a reason, and each reason names what ends it. What becomes of a dispatch when the
view in which it was made ends is decided here too, and when something in doubt may go to somebody else. Whether
most client managers have seen a dispatch is counted in `seen_marks.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final

import msgspec

from heliograph.cluster.partition_state import State
from heliograph.model.ids import LaneId
from heliograph.model.units import NO_UNIT


class Where(enum.StrEnum):
    """Where a message was accepted, as its place in the log tells (docs/decisions/0014)."""

    CURRENT = "current"  # in this view
    UNRESTRICTED = "unrestricted"  # in one that was in force, or before the last time that all was whole
    RESTRICTED = "restricted"  # in any other, or in no view, and the cluster was not whole since


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What must be known of a message that waits."""

    lane: LaneId  # of its session to this destination
    where: Where
    is_sent_again: bool = False  # it came marked as possibly sent before, and was not known here
    is_behind_gap: bool = False  # an earlier one of its lane is missing (P7)
    unit: int = NO_UNIT
    is_unit_new: bool = False  # its unit was generated, and everything of it was accepted in this view


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """How things stand. `is_whole`: in A, and every message manager has reported the union complete."""

    state: State
    is_in_force: bool
    is_whole: bool = False
    is_joined: bool = True  # all that message managers of the view did in other parts is in the log (P6)
    units_continue: bool = False  # the destination's policy on units of order in D (P11)
    gets_each: bool = False  # a subscription of its own: only what follows a gap waits, for the order
    first_tag: int = 0  # what is handed out has tags from here on, which nobody else gives; 0: as it comes


class Hold(enum.StrEnum):
    """Why a message waits."""

    NOT_IN_FORCE = "not-in-force"
    OLDER = "older"
    FROM_RESTRICTED = "from-restricted"
    SENT_AGAIN = "sent-again"
    UNIT = "unit"
    GAP = "gap"
    BEHIND = "behind"


ENDS: Final[dict[Hold, str]] = {
    Hold.NOT_IN_FORCE: "the view is in force, and what its message managers did in other parts is known here",
    Hold.OLDER: "this part meets the unrestricted one, or all message managers are together",
    Hold.FROM_RESTRICTED: "all message managers are together",
    Hold.SENT_AGAIN: "all message managers are together",
    Hold.UNIT: "this part meets the unrestricted one, or all message managers are together",
    Hold.GAP: "the message manager that has the missing message is back",
    Hold.BEHIND: "the one before it in its session or unit of order may go",
}


class Gate:
    """A queue's messages in their order, in one situation. What waits makes all wait that is behind it on its lane or
    in its unit: nothing overtakes."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._lanes: dict[LaneId, None] = {}
        self._units: dict[int, None] = {}

    def look(self, message: Message) -> Hold | None:
        """The next message. None: it may be handed out."""
        hold = own_hold(self._situation, message)
        if hold is None and (message.lane in self._lanes or message.unit in self._units):
            hold = Hold.BEHIND
        if hold is not None:
            self._lanes[message.lane] = None
            if message.unit != NO_UNIT:
                self._units[message.unit] = None
        return hold


def holds(situation: Situation, messages: Iterable[Message]) -> list[Hold | None]:
    gate = Gate(situation)
    return [gate.look(message) for message in messages]


def own_hold(situation: Situation, message: Message) -> Hold | None:
    """Why a message would wait if nothing were before it."""
    if not situation.is_joined or (situation.state is not State.D and not situation.is_in_force):
        return Hold.NOT_IN_FORCE
    if message.is_behind_gap:
        return Hold.GAP
    if situation.is_whole or situation.gets_each:
        return None
    if message.is_sent_again:
        return Hold.SENT_AGAIN  # ▲ another part may have it, and have handed it out
    if situation.state is State.D:
        return _hold_in_restricted(situation, message)
    return Hold.FROM_RESTRICTED if message.where is Where.RESTRICTED else None  # ▲


def _hold_in_restricted(situation: Situation, message: Message) -> Hold | None:
    if message.where is not Where.CURRENT:
        return Hold.OLDER
    if message.unit != NO_UNIT and not (message.is_unit_new or situation.units_continue):
        return Hold.UNIT
    return None


# ---- what was handed out when the view ended


class Fate(enum.StrEnum):
    """Of a dispatch that was delivered in W, in the next view V."""

    STANDS = "stands"
    DROPPED = "dropped"  # the client manager drops it, the message managers unmark it
    IN_DOUBT = "in-doubt"  # it stays with its session


def fate_of(*, target_came: bool, was_seen: bool, goes_through: bool) -> Fate:
    """`target_came`: its client manager is straight from W together with the managers who ask. One that is here and
    came another way may have heard more, and handed it out: in doubt until it says so. `was_seen`: by most client
    managers in W, the target included, so it may be with the client. `goes_through`: V is unrestricted through W.
    """
    if not target_came:
        return Fate.IN_DOUBT
    return Fate.STANDS if was_seen or goes_through else Fate.DROPPED


class Release(enum.StrEnum):
    """When something in doubt may go to somebody else."""

    NOW = "now"  # its client, or its client manager, has said what became of it
    AFTER_LEASE = "after-lease"  # then marked as redelivered
    WHOLE = "whole"  # when all message managers are together


def release_of(*, situation: Situation, is_told: bool, has_ended: bool) -> Release:
    """`has_ended`: the process of its client manager is known to have left or died, in this lineage. One that was
    lost with its host or network may still be serving the client."""
    if is_told:
        return Release.NOW
    return Release.AFTER_LEASE if situation.is_whole or has_ended else Release.WHOLE
