"""Bugs to plant in a cluster whose network is cut: each breaks a rule of PROTOCOL 2 to 7, and a run must show it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from heliograph.bus.commands import SessionLost
from heliograph.cluster import dispatch_rules, in_force, merging
from heliograph.cluster.dispatch_rules import Fate, Hold, Message, Release, Situation
from heliograph.cluster.in_force import InForce
from heliograph.cluster.partition_state import Scene, State, Statement, are_most
from heliograph.cluster.seen_marks import SeenMarks
from heliograph.nodes.message_manager import MessageManager
from simulation.plants import PLANTS, Plant
from simulation.view_plants import PLANTS as VIEW_PLANTS

_own_hold: Final = dispatch_rules.own_hold
_fate_of: Final = dispatch_rules.fate_of
_plan_of: Final = merging.plan_of
_session_lost: Final = MessageManager._session_lost


def _yes(*_: object) -> bool:
    return True


def _straight_if(enough: Callable[[Scene, Statement], bool]) -> Callable[[Scene], tuple[Statement, ...]]:
    """`_find_straight` with another idea of how many it takes."""

    def find(self: Scene) -> tuple[Statement, ...]:
        for manager in self._managers:
            if self._is_of_last(manager) and self._came_from_last(manager) and enough(self, manager):
                together = self._companions[manager.who]
                return (manager, *(each for each in self._clients if each.who in together))
        return ()

    return find


def _with_those_who_were_elsewhere(self: Scene, manager: Statement) -> bool:
    return are_most([each.who for each in self._clients], manager.clients)


def _most_of_the_configured(self: Scene, _manager: Statement) -> bool:
    return are_most([each.client_manager for each in self._clients], self._enrolments[0].client_managers)


def _seen_by_one(self: SeenMarks, _target: object) -> int:
    return self._delivered


def _no_hold(*holds: Hold) -> Callable[[Situation, Message], Hold | None]:
    """`own_hold` without some of its reasons."""

    def own_hold(situation: Situation, message: Message) -> Hold | None:
        hold = _own_hold(situation, message)
        return None if hold in holds else hold

    return own_hold


def _resent_is_new(situation: Situation, message: Message) -> Hold | None:
    return _own_hold(situation, msgspec.structs.replace(message, is_sent_again=False))


def _after_the_lease(*, situation: Situation, is_told: bool, has_ended: bool) -> Release:
    return Release.NOW if is_told else Release.AFTER_LEASE


def _doubt_is_over(*, target_came: bool, was_seen: bool, goes_through: bool) -> Fate:
    fate = _fate_of(target_came=target_came, was_seen=was_seen, goes_through=goes_through)
    return Fate.DROPPED if fate is Fate.IN_DOUBT else fate


def _units_go_on(situation: Situation, message: Message) -> Hold | None:
    return _own_hold(msgspec.structs.replace(situation, units_continue=True), message)


def _everything_is_current(situation: Situation, message: Message) -> Hold | None:
    hold = _own_hold(situation, message)
    return None if hold is Hold.OLDER and situation.state is State.D else hold


def _abort_alone(self: MessageManager, command: SessionLost) -> None:
    for prepared in list(self.catalogue.transactions.prepared.values()):
        self._preparing._abort(prepared)
    _session_lost(self, command)


def _plan_without_marks(summaries: Any) -> merging.Plan:
    return msgspec.structs.replace(_plan_of(summaries), markings=())


def _plan_without_holders(summaries: Any) -> merging.Plan:
    return msgspec.structs.replace(_plan_of(summaries), keepings=())


_MOST_OF_ALL: Final = (in_force, "are_most", _yes)
PARTITION_PLANTS: dict[str, Plant] = {
    "count who does not come straight": (
        (Scene, "_find_straight", _straight_if(_with_those_who_were_elsewhere)),
        _MOST_OF_ALL,
    ),
    "a majority of the configured client managers": (
        (Scene, "_find_straight", _straight_if(_most_of_the_configured)),
        _MOST_OF_ALL,
    ),
    "dispatch without most client managers": ((SeenMarks, "seen_by_most", _seen_by_one),),
    "release in B what a restricted part brought": (
        (dispatch_rules, "own_hold", _no_hold(Hold.FROM_RESTRICTED)),
    ),
    "hand out in D what is old": ((dispatch_rules, "own_hold", _everything_is_current),),
    "take what is sent again for new": ((dispatch_rules, "own_hold", _resent_is_new),),
    "redeliver what a cut-off client holds": ((dispatch_rules, "release_of", _after_the_lease),),
    "drop what is in doubt": ((dispatch_rules, "fate_of", _doubt_is_over),),
    "a participant aborts alone": ((MessageManager, "_session_lost", _abort_alone),),
    "a unit goes on in two parts": ((dispatch_rules, "own_hold", _units_go_on),),
    "act on frames of an old view": VIEW_PLANTS["decisions with any stamp"],
    "in force before anybody arrived": ((InForce, "have_arrived", property(_yes)),),
    "one of the last unrestricted is enough": ((Scene, "_awaited", lambda _self: 1),),
    "what is done elsewhere is not done": ((merging, "plan_of", _plan_without_marks),),
    "what is held elsewhere is free": ((merging, "plan_of", _plan_without_holders),),
    "confirm before sync": PLANTS["confirm before sync"],
}
