"""Bugs to plant in a cluster of several sub-clusters: each breaks one promise of a transaction over them, or of what
is everywhere at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from heliograph.bus.commands import Answered, CommitStateAsked, SessionLost
from heliograph.destinations.recovery import CatalogueRecovery
from heliograph.destinations.transactions import Transactions
from heliograph.nodes.message_manager import MessageManager
from heliograph.nodes.preparing import Preparing
from heliograph.sessions.coordinating import Coordinating
from simulation.plants import Plant

_session_lost = MessageManager._session_lost
_state_asked = Preparing._state_asked


def _abort_alone(self: MessageManager, command: SessionLost) -> None:
    for prepared in list(self.catalogue.transactions.prepared.values()):
        self._preparing._abort(prepared)
    _session_lost(self, command)


def _hold_nothing(_self: CatalogueRecovery, _record: Any) -> Iterator[Any]:
    return iter(())


def _no_promises(_self: Transactions) -> list[Any]:
    return []


def _answer_at_once(self: Preparing, request: int, body: dict[str, str]) -> None:
    self._manager.multicast(Answered(request, body, self._manager.view_of_decisions))


def _nothing(*_: object) -> None:
    """What should be done is not."""


def _no(*_: object) -> bool:
    return False


def _abort_before_the_decider(
    self: Coordinating, transaction: Any, _name: str, code: str, sentence: str
) -> Any:
    transaction.refusal = (code, sentence)
    return self._learned(transaction, "aborted")


def _unknown_though_prepared(self: Preparing, command: CommitStateAsked) -> None:
    if (command.session, command.number) in self._transactions.prepared:
        body = {"state": "unknown", "decider": "", "participants": []}
        self._manager.multicast(Answered(command.request, body))
    else:
        _state_asked(self, command)


SUB_CLUSTER_PLANTS: dict[str, Plant] = {
    "abort alone when the session is lost": ((MessageManager, "_session_lost", _abort_alone),),
    "recovery gives out what is promised": ((CatalogueRecovery, "_consumed_in", _hold_nothing),),
    "a snapshot forgets promises": ((Transactions, "all_prepared", _no_promises),),
    "READY before it is stored": ((Preparing, "_answer", _answer_at_once),),
    "the decider does not write that it aborts": ((Preparing, "_abort_for_good", _nothing),),
}

# Tried by name only. A refusal that goes past the decider does harm where two client managers are at the same commit
# within a few frames of each other, and no run has met that yet. The other two make no difference to clients on this
# library over a network that is whole: what comes late is refused already because its session has moved, and nobody
# rolls back what it has asked to commit. The properties of transactions over sub-clusters
# (tests/properties/test_two_phase.py and its stories) have what all three take. Whoever does not say that it has
# promised is asked to promise once more, and does: what it has to answer, a story says.
HIDDEN_SUB_CLUSTER_PLANTS: dict[str, Plant] = {
    "a refusal is not taken to the decider first": ((Coordinating, "_refused", _abort_before_the_decider),),
    "no fence against what is past": ((Transactions, "is_past", _no),),
    "a rollback ends a promise": ((Transactions, "is_promised", _no),),
    "unknown is answered for a prepared one": ((Preparing, "_state_asked", _unknown_though_prepared),),
}
