"""Bugs to plant in a cluster: each breaks one rule of replication, fail-over or sessions that move."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.bus.commands import (
    Answered,
    Command,
    ConsumerAttached,
    Dispatched,
    Introduction,
    Leads,
    Logged,
    Parcelled,
    Published,
    RollbackAsked,
    Shipped,
)
from heliograph.bus.interface import Incarnation
from heliograph.cluster.partition_state import Scene
from heliograph.cluster.roles import Roles
from heliograph.cluster.view import View
from heliograph.destinations.destination import Destination
from heliograph.destinations.effects import AnyEffect
from heliograph.destinations.intake import Intake
from heliograph.destinations.message_list import MessageList
from heliograph.destinations.recovery import CatalogueRecovery
from heliograph.destinations.transactions import CommitRecord
from heliograph.frontends.native import conversation
from heliograph.frontends.native.frames import pack_delivery
from heliograph.journal.records import RecordKind
from heliograph.model.block import Block
from heliograph.model.ids import session_of
from heliograph.nodes import catching_up, replica
from heliograph.nodes.cluster_clients import ClusterClients
from heliograph.nodes.committing import Committing
from heliograph.nodes.following import Following
from heliograph.nodes.leading import Leading
from heliograph.nodes.replica import Replica
from heliograph.nodes.seen import Seen
from simulation.plants import PLANTS, Plant

_accept = Intake.accept
_begin_to_lead = Replica._begin_to_lead
_introduced = Following._introduced
_decided = Following.decided
_dispatch = MessageList.dispatch
_install = Leading.install
_lead_init = Leading.__init__
_other = ClusterClients._other
_rank = Scene._rank
_decode_commit = msgspec.msgpack.Decoder(CommitRecord).decode
_recover_committed = CatalogueRecovery._committed
_recover_take_over = CatalogueRecovery.take_over
_restore_standing = MessageList.restore_standing
_seen = Seen.on_apply
_take_over = Following.take_over
_wrote = Leading.wrote


def _stored_here_is_enough(self: Leading) -> int:
    return self._here


def _count_backups_too_late(self: Replica, view: View, roles: Roles) -> None:
    _begin_to_lead(self, view, replace(roles, backups=()))
    self.manager.journal.sync_now()
    assert self._leading is not None
    self._leading._there = dict.fromkeys(roles.backups, 0)  # and what was a "yes" without them stays one
    self._leading._tell()


def _believe_the_log(self: Following, logged: Logged) -> list[Shipped]:
    known = self._manager.place.index + 1 - logged.first
    return logged.records[max(known, 0) :]


def _shortest_log_first(self: Scene, manager: Any) -> Any:
    of_last, leaving, leading, synchronised, end = _rank(self, manager)
    return of_last, leaving, leading, not synchronised, -end


def _oldest(self: Scene, among: Any) -> Any:
    return [min(among, key=lambda each: each.reach)] if among else []


def _yes(*_: object) -> bool:
    return True


def _nothing(*_: object) -> None:
    """What should be done is not."""


def _drop_facts(self: Following, lead: Leading) -> None:
    self._facts.clear()
    _take_over(self, lead)


def _forget_given(self: Following, decision: Command) -> None:
    if not isinstance(decision, Dispatched | Parcelled):
        _decided(self, decision)


def _forget_flying(self: Leading, *, forget_bodies: bool) -> None:
    self._flying = deque()
    _install(self, forget_bodies=forget_bodies)


def _hand_outs_stay_here(self: Leading, kind: int, *rest: Any) -> None:
    if kind != RecordKind.DISPATCHED:
        _wrote(self, kind, *rest)


def _forget_stages(self: CatalogueRecovery, given: Any, holder: Any) -> Any:
    self._stages = {}
    return _recover_take_over(self, given, holder)


def _no_credit(self: MessageList, consumer: Any, _credit: int, *rest: Any, **facts: Any) -> None:
    _restore_standing(self, consumer, 0, *rest, **facts)


def _same_tags_again(
    self: MessageList, consumer: Any, credit: int, _next_tag: int, given: Any, **facts: Any
) -> None:
    _restore_standing(self, consumer, credit, 1, given, **facts)


def _ask_once(self: ClusterClients, command: Command) -> None:
    if not isinstance(command, Leads):
        _other(self, command)


def _not_cut(self: Replica, _index: int) -> Any:
    return self.manager


def _all_in_common(_host: Any, _views: Any, index: int) -> int:
    return index


def _no_lease(self: Leading, *arguments: Any, **options: Any) -> None:
    _lead_init(self, *arguments, **{**options, "lease_seconds": 0.0})


def _accept_again(self: Intake, block: Block, effects: Any, *, number: bool = True) -> bool:
    if block.last <= self._marks.get(block.lane, 0):
        self._marks[block.lane] = block.first - 1
    return _accept(self, block, effects, number=number)


def _first_delivery(consumer: int, _deliveries: int, tag: int, user_bytes: int) -> bytes:
    return pack_delivery(consumer, 0, tag, user_bytes)


def _forget_sessions(self: Following, lead: Leading) -> None:
    self._served = {}
    _take_over(self, lead)


def _forget_the_unconfirmed(self: Following, lead: Leading) -> None:
    self._unconfirmed.clear()
    _take_over(self, lead)


def _introduced_as_it_was(self: Following, introduction: Introduction) -> None:
    _introduced(self, introduction)
    self.sessions.update((session, Incarnation(where)) for session, where, _ in introduction.sessions)


def _as_if_new(self: Seen, sender: Incarnation, commands: list[Command], place: int) -> bool:
    heard = [replace(each, again=False) if isinstance(each, ConsumerAttached) else each for each in commands]
    return _seen(self, sender, heard, place)


def _at_once(_self: Replica, then: Callable[[], None]) -> None:
    then()


def _not_ended(*_: object, **_more: object) -> bool:
    return False


def _publish_what_is_staged(self: Committing, destination: Destination, block: Block) -> None:
    manager, session = self._manager, session_of(block.lane)
    if block.last > destination.intake.marks().get(block.lane, 0):  # otherwise it is here already
        self._transactions.stage(session, destination, block, manager.catalogue.views.present)
        self._transactions.staged_by(
            session
        ).pop()  # it counts for the commit, which has nothing more to publish
    manager.run(
        destination, destination.handle(Published(destination.address, block), manager.microseconds())
    )


def _take_back_for_another(self: MessageList, effects: list[AnyEffect], now: int) -> None:
    if len(self.consumers) > 1:
        for identity, consumer in self.consumers.items():
            if consumer.outstanding.messages:
                self.return_all(identity, effects, now)
    _dispatch(self, effects, now)


def _drop_and_give_nothing_back(self: Committing, command: RollbackAsked) -> None:
    self.drop(command.session, command.number)
    self._manager.multicast(Answered(command.request, {}))


def _forget_rollbacks(self: CatalogueRecovery, payload: bytes) -> None:
    if _decode_commit(payload).committed:
        _recover_committed(self, payload)


CLUSTER_PLANTS: dict[str, Plant] = {
    "confirm before a backup has it": ((Leading, "_stored", _stored_here_is_enough),),
    "count backups behind the first writes": ((Replica, "_begin_to_lead", _count_backups_too_late),),
    "wrong rank": ((Scene, "_rank", _shortest_log_first), (Scene, "_newest", _oldest)),
    "lead although a holder is missing": ((Scene, "_awaited", lambda _: 1),),
    "handle facts twice": ((Following, "_drop_handled", _nothing),),
    "drop facts at a take-over": ((Following, "take_over", _drop_facts),),
    "forget who was given what": ((Following, "decided", _forget_given),),
    "do not say again what flew": ((Leading, "install", _forget_flying),),
    "hand-outs are not in the log": ((Leading, "wrote", _hand_outs_stay_here),),
    "forget credit at a take-over": ((MessageList, "restore_standing", _no_credit),),
    "give tags again after a take-over": (
        (MessageList, "restore_standing", _same_tags_again),
        (MessageList, "begin_tags", _nothing),
    ),
    "do not ask again": ((ClusterClients, "_other", _ask_once),),
    "stored before the file is there": ((Following, "_refers", _nothing),),
    "deliver without the redelivered mark": ((conversation, "pack_delivery", _first_delivery),),
    "forget who waits for a confirmation": ((Following, "take_over", _forget_the_unconfirmed),),
    "what was handed out in vain does not return": ((Leading, "take_back", _nothing),),
    "take again what may have ended": ((Intake, "may_have_ended", _not_ended),),
    "forget the lease": ((Leading, "__init__", _no_lease),),
    "do not cut the log at the fork": ((Replica, "_cut", _not_cut),),
    "keep what is beyond the fork": ((catching_up, "fork_of", _all_in_common),),
    "take every log for the primary's and believe it": (
        (replica, "has_log_of", _yes),
        (Following, "_behind", _believe_the_log),
    ),
    "forget sessions at a take-over": ((Following, "take_over", _forget_sessions),),
    "forget staged blocks at a take-over": ((CatalogueRecovery, "take_over", _forget_stages),),
    "skip a sequence check": ((Intake, "accept", _accept_again),),
    "take back what somebody has": ((MessageList, "dispatch", _take_back_for_another),),
    "hand out before the commit": ((Committing, "stage", _publish_what_is_staged),),
    "a rollback gives nothing back": ((Committing, "roll_back", _drop_and_give_nothing_back),),
    "forget a rollback": ((CatalogueRecovery, "_committed", _forget_rollbacks),),
    **{
        name: PLANTS[name]
        for name in (
            "confirm before sync",
            "replay twice",
            "forget an acknowledgement at recovery",
            "replay a commit in part",
            "commit before it is stored",
            "any unit to anybody",
        )
    },
}

# Not among them, since they make no difference, or none in a cluster whose network is whole:
# - to take every log for the primary's, or to skip the check of the chain: each is enough, and who has another log is
#   found out by the other; so they are planted together;
# - to forget what returned at a take-over: the log says then that it is with somebody who is not there any more, and
#   whoever leads next gives it back in the same way; its delivery count is less by one;
# - to count the marks that backups gave in the last view: whoever still follows has what it said, unless it was cut
#   off, and its log with it;
# - to act between views: it takes another primary that hands out the same messages in another order; it has a test of
#   its own (`test_between_views_a_primary_carries_out_nothing`);
# - to apply decisions of another view: all members hear the same, and go on from the same, unless they were cut from
#   one another ("act on frames of an old view", among the bugs of partitions).

# Tried by name only: a few seeds did not show them, and more were not tried yet. An introduction that takes sessions
# back did not show in 500 seeds, since all that is judged by it is what most have not seen when a view ends:
# tests/suites/test_slow_primary.py shows it, and a claim that is asked again (so did seed 476 of the partitions).
# That a "yes" counts in any view takes two views in a moment: three of 800 seeds of partitions show it (465, 699,
# 757), and tests/properties/test_merging_stories.py.
UNSEEN_PLANTS: dict[str, Plant] = {
    "say hello before the disk has it": ((Replica, "force", _at_once),),
    "who lost a session may end it": ((Leading, "_is_of_sender", _yes),),
    "forget what was answered at a take-over": ((Leading, "answered_before", _nothing),),
    "an introduction takes sessions back": ((Following, "_introduced", _introduced_as_it_was),),
    "a claim that is asked again settles what came since": ((Seen, "on_apply", _as_if_new),),
    "a yes counts in any view": ((Leading, "_hold_back", _nothing),),
}

# What it takes to show some of them soon: in a mixture of twenty kinds of faults it happens too rarely.
FAULTS_OF: dict[str, tuple[str, ...]] = {
    "wrong rank": ("false_start",),
    "count backups behind the first writes": ("behead", "gag"),
    "keep what is beyond the fork": ("gag",),
    "skip a sequence check": ("strand",),
    "forget what was answered at a take-over": ("interrupt", "behead"),
    "a refusal is not taken to the decider first": ("race",),
}
