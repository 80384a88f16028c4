"""Bugs to plant in a cluster whose network is cut: each breaks a rule of PROTOCOL 2 to 7, and a run must show it.

They are planted where the rule is used: a function that another module has imported stays there what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

import msgspec

from heliograph.bus.commands import SessionLost
from heliograph.bus.interface import Incarnation
from heliograph.client.holding import Holding
from heliograph.client.memory import Memory
from heliograph.cluster import dispatch_rules, handed_out, in_force, merging
from heliograph.cluster.dispatch_rules import Fate, Hold, Message, Situation
from heliograph.cluster.in_force import InForce
from heliograph.cluster.partition_state import Scene, State, Statement, are_most
from heliograph.cluster.seen_marks import SeenMarks
from heliograph.destinations import partition_gate
from heliograph.destinations.destination import Destination
from heliograph.destinations.effects import AnyEffect, Missed
from heliograph.destinations.intake import Intake
from heliograph.destinations.message_list import MessageList
from heliograph.destinations.partition_gate import PartitionGate
from heliograph.destinations.topic import Topic
from heliograph.model.block import Block
from heliograph.nodes import merger
from heliograph.nodes.committing import Committing
from heliograph.nodes.leading import Leading
from heliograph.nodes.message_manager import MessageManager
from heliograph.nodes.reunion import Reunion
from simulation.plants import PLANTS, Plant
from simulation.view_plants import PLANTS as VIEW_PLANTS

_own_hold: Final = dispatch_rules.own_hold
_fate_of: Final = dispatch_rules.fate_of
_plan_of: Final = merging.plan_of
_session_lost: Final = MessageManager._session_lost
_only_these_are_here: Final = Leading.only_these_are_here
_stored: Final = Leading._stored
_accept_odd: Final = Intake._accept_odd
_held_of: Final = PartitionGate._held_of


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


def _no(*_: object) -> bool:
    return False


def _nothing(*_: object) -> None:
    """What should be done is not."""


def _none(*_: object) -> list[Any]:
    return []


def _after_the_lease(self: Leading, came: Collection[Incarnation], _has_ended: object) -> None:
    _only_these_are_here(self, came, _yes)


def _confirm_where_unrestricted(self: Leading) -> int:
    stored = _stored(self)
    situation = self._manager.catalogue.views.situation
    return 0 if situation is not None and situation.state is State.D else stored


def _lost_is_elsewhere(self: Intake, block: Block, mark: int, effects: list[AnyEffect]) -> bool:
    """What a client manager said in vain is taken for what another part has."""
    if block.first > mark + 1 and self._heard is not None and block.lane not in self._heard:
        effects.append(Missed(block.lane, mark + 1, block.first - 1))
        return True
    return _accept_odd(self, block, mark, effects)


def _held_if_shared(self: PartitionGate, lane: Any) -> Any:
    return None if self._situation.gets_each else _held_of(self, lane)


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
        (partition_gate, "own_hold", _no_hold(Hold.FROM_RESTRICTED)),
    ),
    "hand out in D what is old": ((partition_gate, "own_hold", _everything_is_current),),
    "take what is sent again for new": ((partition_gate, "own_hold", _resent_is_new),),
    "dispose of topic messages in C": ((Topic, "regate", Destination.regate),),
    "hand out before the union": ((Reunion, "is_joined", property(_yes)),),
    "redeliver what a cut-off client holds": ((Leading, "only_these_are_here", _after_the_lease),),
    "drop what is in doubt": ((handed_out, "fate_of", _doubt_is_over),),
    "a participant aborts alone": ((MessageManager, "_session_lost", _abort_alone),),
    "a restricted part decides about older transactions": ((Committing, "_may_decide", _yes),),
    "what is unknown was rolled back": ((Committing, "may_be_known_elsewhere", property(_no)),),
    "a unit goes on in two parts": ((partition_gate, "own_hold", _units_go_on),),
    "act on frames of an old view": VIEW_PLANTS["decisions with any stamp"],
    "in force before anybody arrived": ((InForce, "have_arrived", property(_yes)),),
    "one of the last unrestricted is enough": ((Scene, "_awaited", lambda _self: 1),),
    "what is done elsewhere is not done": ((merger, "plan_of", _plan_without_marks),),
    "what is held elsewhere is free": ((merger, "plan_of", _plan_without_holders),),
    "what was lost between views is elsewhere": ((Intake, "_accept_odd", _lost_is_elsewhere),),
    "subscribers are given what follows a gap": ((PartitionGate, "_held_of", _held_if_shared),),
    "each part goes on with the same tags": ((MessageList, "begin_tags", _nothing),),
    "a claim says nothing of what was settled": ((Holding, "settled_lately", _none),),
    "a subscriber forgets what it had elsewhere": ((Memory, "knows", _no),),
    "what another part gave is stored": ((MessageList, "never_given", _none),),
    "who comes back does not wait for the union": ((Reunion, "_waits", _no),),
    "a restricted part accepts nothing": ((Leading, "_stored", _confirm_where_unrestricted),),
    "confirm before sync": PLANTS["confirm before sync"],
}

# What it takes to show some of them soon: by chance it happens too rarely (`partition_plays.py`).
PARTITION_FAULTS: dict[str, tuple[str, ...]] = {
    "a majority of the configured client managers": ("shrink",),
    "release in B what a restricted part brought": ("bring",),
    "take what is sent again for new": ("resend",),
    "dispose of topic messages in C": ("subscribe",),
    "redeliver what a cut-off client holds": ("hold",),
    "hand out before the union": ("greet",),
    "drop what is in doubt": ("blink",),
    "a participant aborts alone": ("orphan",),
    "in force before anybody arrived": ("cut_twice", "cut_off_primary"),
    "a restricted part decides about older transactions": ("recommit",),
    "what is unknown was rolled back": ("forget",),
    "a unit goes on in two parts": ("tear",),
    "what is done elsewhere is not done": ("bury",),
    "what is held elsewhere is free": ("grab",),
    "subscribers are given what follows a gap": ("skip",),
    "each part goes on with the same tags": ("carry",),
    "a claim says nothing of what was settled": ("carry",),
    "a subscriber forgets what it had elsewhere": ("roam",),
    "act on frames of an old view": ("stall",),
    "what another part gave is stored": ("smuggle",),
    "confirm before sync": ("slow_disk",),
}
