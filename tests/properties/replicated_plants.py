"""Bugs that replication could have. Each is put in by hand, and the run of a cluster has to show it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from heliograph.bus.commands import Command, Dispatched, Leads, Parcelled
from heliograph.destinations.recovery import CatalogueRecovery
from heliograph.journal.files import Journal
from heliograph.journal.records import RecordKind
from heliograph.nodes.cluster_clients import ClusterClients
from heliograph.nodes.following import Fact, Following
from heliograph.nodes.leading import Leading
from heliograph.nodes.replica import Replica

Plant = Callable[[], AbstractContextManager[Any]]
_wrote, _decided, _take_over = Leading.wrote, Following.decided, Following.take_over
_other = ClusterClients._other


def what_is_handed_out_is_not_in_the_log() -> AbstractContextManager[Any]:
    def wrote(self: Leading, kind: int, destination: int, list_number: int, payload: bytes) -> None:
        if kind != RecordKind.DISPATCHED:
            _wrote(self, kind, destination, list_number, payload)

    return patch.object(Leading, "wrote", wrote)


def nobody_remembers_who_was_given_what() -> AbstractContextManager[Any]:
    def decided(self: Following, decision: Command) -> None:
        if not isinstance(decision, Dispatched | Parcelled):
            _decided(self, decision)

    return patch.object(Following, "decided", decided)


def facts_are_never_covered() -> AbstractContextManager[Any]:
    return patch.object(Following, "_drop_handled", lambda _self, _through: None)


def facts_that_nobody_handled_are_dropped() -> AbstractContextManager[Any]:
    def take_over(self: Following, lead: Leading) -> list[Fact]:
        self._facts.clear()
        return _take_over(self, lead)

    return patch.object(Following, "take_over", take_over)


def what_flew_is_not_said_again() -> AbstractContextManager[Any]:
    original = Leading.install

    def install(self: Leading, *, forget_bodies: bool) -> None:
        self._flying = deque()
        original(self, forget_bodies=forget_bodies)

    return patch.object(Leading, "install", install)


def a_log_is_not_cut_at_the_fork() -> AbstractContextManager[Any]:
    return patch.object(Replica, "_cut", lambda self, _index: self.manager)


def what_is_brought_is_not_kept() -> AbstractContextManager[Any]:
    return patch.object(Journal, "pin", lambda _self: None)


def nobody_asks_again() -> AbstractContextManager[Any]:
    def other(self: ClusterClients, command: Command) -> None:
        if not isinstance(command, Leads):
            _other(self, command)

    return patch.object(ClusterClients, "_other", other)


def requests_are_carried_out_twice() -> AbstractContextManager[Any]:
    return patch.object(Leading, "_is_new", lambda _self, _fact: True)


def stages_are_held_by_nobody() -> AbstractContextManager[Any]:
    return patch.object(CatalogueRecovery, "_hold_stage", lambda _self, _block, _holder: None)


# Those that chance brings to light; `a_log_is_not_cut_at_the_fork` has a story. To take every log for the primary's
# is harmless: whoever does is found out by the chain of the next thing that the primary says, and catches up.
PLANTS: list[Plant] = [
    what_is_handed_out_is_not_in_the_log,
    nobody_remembers_who_was_given_what,
    facts_are_never_covered,
    facts_that_nobody_handled_are_dropped,
    what_flew_is_not_said_again,
    what_is_brought_is_not_kept,
    nobody_asks_again,
    requests_are_carried_out_twice,
    stages_are_held_by_nobody,
]
