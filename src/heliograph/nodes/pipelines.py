"""Data pipelines at a message manager (D1–D3, docs/decisions/0024): one door for what readers and writers ask.

`feeding` reads the history and keeps it, `leasing` lends a queue's messages, `batching` publishes what tasks
staged, `raising` raises alerts. Each answers when what it did is stored. What is asked of `pipeline.` goes this way
and no other: portions of messages are no administration, and a lease takes its time.

In a cluster the primary does all of it, and what it remembers is in the replicated log: whoever leads next goes on.
A part that others may have gone on without does nothing for pipelines: who asks waits, or asks elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from heliograph.admin.subjects import PIPELINE_RAISE
from heliograph.bus.commands import Answered, Asked, Rejected
from heliograph.cluster.partition_state import State
from heliograph.destinations.pipelines import Kind, Mark, encode_mark
from heliograph.destinations.transactions import Prepared
from heliograph.journal.records import RecordKind
from heliograph.model.errors import HeliographError, Unavailable
from heliograph.model.ids import IdIssuer
from heliograph.model.limits import PIPELINE_MARK_SECONDS
from heliograph.nodes.batching import Batching
from heliograph.nodes.feeding import Feeding
from heliograph.nodes.leasing import Leasing
from heliograph.nodes.preparing import Preparing
from heliograph.nodes.raising import Raising

if TYPE_CHECKING:
    from heliograph.nodes.message_manager import MessageManager

_MARK_BYTES = 600
"""More than a mark takes in the journal."""
RESTRICTED = Unavailable(
    "this part of the cluster was cut off, and others may have gone on: ask them, or wait",
    code="pipeline-restricted",
)
OF_THE_FEED = (
    "pipeline.feed",
    "pipeline.positions",
    "pipeline.measure",
    "pipeline.hold",
    "pipeline.release",
)
"""These may be asked again, and are then answered again: by whoever leads, from its log."""
_SHOWS = ("pipelines", "pipeline.depth")


class Pipelines:
    """Those of one message manager."""

    def __init__(self, manager: MessageManager, issuer: IdIssuer, preparing: Preparing) -> None:
        self._manager = manager
        self.preparing = preparing
        self.marks = manager.catalogue.pipelines
        feeding = self.feeding = Feeding(manager, self)
        leasing = self._leasing = Leasing(manager, self, issuer)
        batching = self._batching = Batching(manager, self)
        raising = Raising(manager, self)
        self._handlers: dict[str, Callable[[Asked], None]] = {
            "pipeline.feed": feeding.read,
            "pipeline.positions": feeding.positions,
            "pipeline.measure": feeding.measure,
            "pipeline.hold": feeding.hold,
            "pipeline.release": feeding.release,
            "pipeline.lease": leasing.lease,
            "pipeline.depth": leasing.depth,
            "pipeline.read": leasing.read,
            "pipeline.acknowledge": leasing.acknowledge,
            "pipeline.return": leasing.give_back,
            "pipeline.stage": batching.stage,
            "pipeline.publish": batching.publish,
            "pipeline.published": batching.published,
            "pipeline.discard": batching.discard,
            PIPELINE_RAISE: raising.publish,
            "pipelines": self._show,
        }

    def answers_to(self, subject: str) -> bool:
        return subject in self._handlers

    def asked(self, question: Asked) -> None:
        try:
            if self._manager.catalogue.is_replicated:
                self._check_cluster(question.subject)
            self._handlers[question.subject](question)
        except HeliographError as error:
            self.refuse(question.request, error)

    def _check_cluster(self, subject: str) -> None:
        """Raises Unavailable when this part of a cluster does not do what is asked."""
        if subject not in _SHOWS and not self._may_act:
            raise RESTRICTED
        if subject in OF_THE_FEED and self._manager.stable_position < 0:
            raise Unavailable(
                "whoever leads here has only just taken over: ask again", code="pipeline-restricted"
            )

    @property
    def _may_act(self) -> bool:
        """Whether this log is the one that goes on, and has all that managers of the view did elsewhere (PROTOCOL 5,
        P6): what was lent is handed out when it is read, and nothing is handed out by two parts."""
        situation = self._manager.catalogue.views.situation
        return situation is None or (
            situation.state is not State.D and situation.is_in_force and situation.is_joined
        )

    def refuse(self, request: int, error: HeliographError) -> None:
        self._manager.multicast(Rejected(request, error.code, error.sentence))
        self._manager.ask_for_tick()

    def answer(self, request: int, body: dict[str, Any]) -> None:
        self._manager.multicast(Answered(request, body))
        self._manager.ask_for_tick()

    def tell(self, request: int, body: dict[str, Any]) -> None:
        """Answer with what is in the log: who hears it, hears what most client managers know of (PROTOCOL 5)."""
        self._manager.multicast(self._history(request, body))
        self._manager.ask_for_tick()

    def tell_when_stored(self, request: int, body: dict[str, Any]) -> None:
        self._manager.announce_when_stored(self._history(request, body))

    def _history(self, request: int, body: dict[str, Any]) -> Answered:
        return Answered(request, body, self._manager.view_of_decisions, is_history=True)

    def sweep(self) -> None:
        """What nobody asked for in time ends; but a part that was cut off cannot know who was asked elsewhere."""
        if not self._may_act:
            return
        for mark in self.marks.expired(self._manager.now()):
            self.write(mark)
            if mark.kind == Kind.HOLD:
                self.feeding.ended(mark, "expired")
        self.feeding.make_room()
        self._leasing.sweep()

    def recovered(self) -> None:
        self.feeding.recovered()

    def follow_holds(self) -> None:
        """Keep what the holds of whoever leads need."""
        self.feeding.follow()

    def stop(self) -> None:
        self._leasing.stop()
        self.feeding.stop()

    # ---- for those who work here

    def write(self, mark: Mark, *, wait: bool = False) -> None:
        self.marks.restore(mark)
        self._manager.append(RecordKind.PIPELINE, 0, 0, encode_mark(mark), wait=wait)

    def carry_out(self, request: int, kind: Kind, name: str, number: int, prepared: list[Prepared]) -> None:
        """These transactions are committed and it is noted under what number, in one frame of the journal, which
        is all there after a crash or not at all. Answers when it is stored. Raises StorageFull."""
        manager = self._manager
        self.marks.check_room(kind, name)
        self.preparing.reserve(prepared, _MARK_BYTES)
        self.write(Mark(kind, name, number, manager.now() + PIPELINE_MARK_SECONDS), wait=True)
        for each in prepared:
            self.preparing.carry_out(each, [])
        manager.answer_when_stored(request, {"took_effect": True})

    def _show(self, question: Asked) -> None:
        body = {
            "holds": self.feeding.shown(),
            "leases": self._leasing.shown(),
            "stages": self._batching.shown(),
            "marks": [
                {"kind": Kind(mark.kind).name.lower(), "name": mark.name, "number": mark.number}
                for mark in self.marks.all()
                if mark.kind != Kind.HOLD
            ][:100],
        }
        self.answer(question.request, body)
