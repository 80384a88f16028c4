"""Publishes what the tasks of a writer staged, a batch at a time and each once (D3).

A task sends in a transaction of its own and leaves it here under a name and a batch (`stage`): it is prepared, in the
journal, and belongs to no connection any more. The driver publishes the batch: one frame of the journal commits
all its tasks and notes the batch. Published again, it is not, and what was staged for it again is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from heliograph.admin.pipelines import name_in, number_in, seconds_in
from heliograph.bus.commands import Asked, PrepareAsked
from heliograph.destinations.pipelines import DECIDER, Kind
from heliograph.destinations.transactions import Prepared
from heliograph.model.errors import ClientFault, NotAllowed
from heliograph.model.ids import SessionId
from heliograph.model.limits import LEASE_SECONDS, MAX_BATCH_PARTS, MAX_LEASE_SECONDS

if TYPE_CHECKING:
    from heliograph.nodes.message_manager import MessageManager
    from heliograph.nodes.pipelines import Pipelines

_STAGE: Final = "stage"
_MOST: Final = 1 << 62
_TRANSACTION: Final = 1
"""A task's session has one transaction."""


class Batching:
    """The batches of one message manager."""

    def __init__(self, manager: MessageManager, pipelines: Pipelines) -> None:
        self._manager = manager
        self._pipelines = pipelines

    def stage(self, question: Asked) -> None:
        """What a task's session has sent in its transaction waits from now on for the batch to be published."""
        arguments, manager = question.arguments, self._manager
        name, batch = name_in(arguments), number_in(arguments, "batch", 0, _MOST)
        seconds = seconds_in(arguments, LEASE_SECONDS, MAX_LEASE_SECONDS)
        session = SessionId(_bytes(arguments, "session"))
        known = manager.catalogue.sessions.get(session)
        if known is None or known.token != _bytes(arguments, "token"):
            raise NotAllowed("only who opened a session stages what it sent")
        if (session, _TRANSACTION) in manager.catalogue.transactions.prepared:
            manager.answer_when_stored(question.request, {})
            return
        kept = [name, str(seconds), _STAGE, str(batch), known.token.hex()]
        manager.pipelines.preparing.prepare(
            PrepareAsked(
                question.request,
                session,
                _TRANSACTION,
                number_in(arguments, "messages", 1, _MOST),
                [],
                DECIDER,
                kept,
                "",
            )
        )

    def publish(self, question: Asked) -> None:
        """Make messages of everything that the named tasks staged for a batch, unless the batch was published
        before."""
        arguments = question.arguments
        name, batch = name_in(arguments), number_in(arguments, "batch", 0, _MOST)
        parts = _parts(arguments)
        if batch <= self._pipelines.marks.number(Kind.BATCH, name):
            self._drop_all(name, batch)
            self._manager.answer_when_stored(question.request, {"took_effect": False})
            return
        staged = [self._staged(name, batch, part) for part in parts]
        self._pipelines.carry_out(question.request, Kind.BATCH, name, batch, staged)
        self._drop_all(name, batch)  # what tasks that were tried again have left behind

    def published(self, question: Asked) -> None:
        """The last batch of a name that took effect, -1 if none did, for a writer that goes on."""
        number = self._pipelines.marks.number(Kind.BATCH, name_in(question.arguments))
        self._manager.answer_when_stored(question.request, {"batch": number})

    def _staged(self, name: str, batch: int, part: tuple[bytes, bytes]) -> Prepared:
        session, token = part
        prepared = self._manager.catalogue.transactions.prepared.get((SessionId(session), _TRANSACTION))
        kept = prepared.record.participants if prepared is not None else []
        if prepared is None or kept[:1] + kept[2:] != [name, _STAGE, str(batch), token.hex()]:
            raise ClientFault(
                f"something that was staged for batch {batch} of {name} is not here any more",
                code="stage-unknown",
            )
        return prepared

    def discard(self, question: Asked) -> None:
        """What tasks staged for a batch is dropped, so far as it is only staged."""
        arguments = question.arguments
        name, batch = name_in(arguments), number_in(arguments, "batch", 0, _MOST)
        for part in _parts(arguments):
            try:
                prepared = self._staged(name, batch, part)
            except ClientFault:
                continue
            self._pipelines.preparing.abort(prepared)
        self._manager.answer_when_stored(question.request, {})

    def _drop_all(self, name: str, batch: int) -> None:
        for prepared in self._all():
            kept = prepared.record.participants
            if kept[0] == name and int(kept[3]) <= batch:
                self._pipelines.preparing.abort(prepared)

    def _all(self) -> list[Prepared]:
        return [
            each
            for each in self._manager.catalogue.transactions.prepared.values()
            if each.record.decider == DECIDER and each.record.participants[2] == _STAGE
        ]

    def shown(self) -> list[dict[str, Any]]:
        now = self._manager.now()
        return [
            {
                "name": each.record.participants[0],
                "batch": int(each.record.participants[3]),
                "messages": sum(block.count for _, block in each.staged),
                "seconds_left": round(each.asked_at + float(each.record.participants[1]) - now, 1),
            }
            for each in self._all()
        ][:100]


def _parts(arguments: dict[str, Any]) -> list[tuple[bytes, bytes]]:
    parts = arguments.get("parts")
    if (
        not isinstance(parts, list)
        or len(parts) > MAX_BATCH_PARTS
        or not all(isinstance(part, list | tuple) and len(part) == 2 for part in parts)
        or not all(isinstance(piece, bytes) for part in parts for piece in part)
    ):
        raise ClientFault(
            f"the argument parts is a list of at most {MAX_BATCH_PARTS} pairs of session and token",
            code="argument-invalid",
        )
    return [(session, token) for session, token in parts]


def _bytes(arguments: dict[str, Any], name: str) -> bytes:
    value = arguments.get(name)
    if not isinstance(value, bytes):
        raise ClientFault(f"the argument {name} is bytes", code="argument-invalid")
    return value
