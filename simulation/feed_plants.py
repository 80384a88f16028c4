"""Bugs to plant in what readers of a cluster's history are told (PROTOCOL 5): each breaks a promise of
docs/decisions/0024, and a run must show it."""

from __future__ import annotations

from typing import Any, Final

from heliograph.bus.commands import Answered, Rejected
from heliograph.cluster.history import Cut
from heliograph.journal.feed import Walk
from heliograph.journal.records import RecordKind
from heliograph.nodes import bringing
from heliograph.nodes.leading import Leading
from heliograph.nodes.log_history import LogHistory
from heliograph.nodes.pipelines import Pipelines
from simulation.plants import Plant

_record = Walk.record


def _unbound(_self: Pipelines, request: int, body: dict[str, Any]) -> Answered:
    return Answered(request, body)


def _as_it_is(_self: Leading, answer: Answered | Rejected) -> Answered | Rejected:
    return answer


def _yes(_self: object) -> bool:
    return True


def _disowns_nothing(self: LogHistory, cut: Cut) -> None:
    self._unplaced.clear()
    self._open = None
    self._index, self._is_placed = cut.index, True


def _leaves_out_joined(
    self: Walk, kind: int, destination: int, list_number: int, lsn: int, payload: memoryview
) -> None:
    if kind != RecordKind.JOINED:
        _record(self, kind, destination, list_number, lsn, payload)


async def _brings_nothing(*_: object) -> int:
    return 0


FEED_PLANTS: Final[dict[str, Plant]] = {
    "a restricted part shows history": (
        (Pipelines, "_may_act", property(_yes)),
        (Pipelines, "_history", _unbound),
    ),
    "a cut disowns nothing": ((LogHistory, "_cut", _disowns_nothing),),
    "what another part had accepted is not shown": ((Walk, "record", _leaves_out_joined),),
    "who catches up is brought no history": ((bringing, "bring_history", _brings_nothing),),
}
# Caught by tests/suites/test_feed_of_a_cluster.py; in the simulation, a cut must come between two frames. The second
# one, where the cut must come between a question and its answer, shows in one seed of a few.
HIDDEN_FEED_PLANTS: Final[dict[str, Plant]] = {
    "history is told before most know of it": ((Pipelines, "_history", _unbound),),
    "a part that was cut off tells what it was asked before": ((Leading, "_as_may_be_said", _as_it_is),),
}
