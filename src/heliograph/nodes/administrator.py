"""Carries out what is asked of the administration, by request or by message (M13), and answers.

A change is answered when it is stored. Rights were checked by whoever passed the question on; a message on
`topic:_ADMIN` can only come from an administrator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.admin.administration import Administration, Outcome
from heliograph.admin.by_message import ByMessage, commands_of, reply
from heliograph.admin.finding import FindingHandlers
from heliograph.admin.handlers import CatalogueHandlers
from heliograph.admin.moving import DELETE, MOVE, MoveOrder
from heliograph.admin.pausing import PauseHandlers
from heliograph.admin.subjects import NODE, TOTALS, Arguments, nodes_meant, ordered_by
from heliograph.admin.survey import Answer
from heliograph.admin.transactions import TransactionHandlers
from heliograph.bus.commands import Answered, Asked, Rejected
from heliograph.journal.records import RecordKind
from heliograph.model.block import Block, unpack
from heliograph.model.destination import TEMPORARY_PREFIX, Address, name_of, parse_address
from heliograph.model.errors import ClientFault, HeliographError
from heliograph.nodes.event_log import Record
from heliograph.nodes.gauge import Gauge
from heliograph.nodes.own_messages import OwnMessages

if TYPE_CHECKING:
    from heliograph.nodes.message_manager import MessageManager
    from heliograph.nodes.surveyor import Surveyor


_BY_MESSAGE: Final = "a message"


class Put(msgspec.Struct):
    """A question that somebody else passes on, who wants the answer."""

    subject: str
    arguments: Arguments
    tell: Callable[[Answer], None]


Question = Asked | ByMessage | Put


class Administrator:
    """The administration of one message manager."""

    def __init__(self, manager: MessageManager, messages: OwnMessages, *, node: str, record: Record) -> None:
        self._manager = manager
        self._messages = messages
        self._node = node
        self._record = record
        self.surveyor: Surveyor | None = None  # by whom other nodes are asked
        self.administration = Administration()
        CatalogueHandlers(manager.catalogue).register_with(self.administration)
        PauseHandlers(manager.catalogue).register_with(self.administration)
        TransactionHandlers(manager.catalogue).register_with(self.administration)
        FindingHandlers(manager.catalogue).register_with(self.administration)
        self._gauge = Gauge(manager.catalogue)
        self.administration.register("server", self._server)
        # Changes that wait for the disk, and whom to tell then.
        self._storing: deque[tuple[int, Question, Outcome | HeliographError]] = deque()

    def _server(self, _arguments: Arguments) -> Outcome:
        manager = self._manager
        return Outcome(
            {
                "journal": manager.journal.stats(),
                "resident_bytes": manager.catalogue.residence.used,
                "disk_full": manager.journal.is_tight,
            }
        )

    # ---- what is asked

    def asked(self, question: Question) -> None:
        subject = question.command if isinstance(question, ByMessage) else question.subject
        try:
            if subject in (MOVE, DELETE):
                order = MoveOrder(subject, question.arguments, self._manager.catalogue)
                self._manager.mover.begin(order, lambda outcome: self._tell_when_stored(question, outcome))
                return
            if subject == TOTALS:
                self._gauge.ask(lambda body: self._tell_at_once(question, body))
                return
            arguments = question.arguments
            if isinstance(question, ByMessage):
                arguments = ordered_by(_BY_MESSAGE, subject, arguments)
            outcome = self.administration.ask(subject, arguments)
        except HeliographError as error:
            self._tell(question, error)
            return
        manager = self._manager
        manager.run(outcome.destination, outcome.effects)
        if outcome.event is not None:
            event, fields = outcome.event
            self._record(event, **fields)
        if outcome.effects:
            self._tell_when_stored(question, outcome)
        else:
            self._tell(question, outcome)

    def _tell_at_once(self, question: Question, body: dict[str, Any]) -> None:
        self._tell(question, Outcome(body))
        self._manager.ask_for_tick()

    def _tell_when_stored(self, question: Question, outcome: Outcome | HeliographError) -> None:
        # Nothing is noted by this record: what is behind it is stored when it is.
        lsn = self._manager.append(RecordKind.DONE, 0, 0, b"", wait=True)
        self._storing.append((lsn, question, outcome))

    def by_message(self, block: Block) -> None:
        """The messages of a block are commands."""
        if block.buffer is None:
            return
        for found in commands_of(unpack(block.buffer)):
            if not isinstance(found, ByMessage):
                reply_to, correlation, fault = found
                self._reply(reply_to, correlation, reply(self._node, fault))
            elif self.surveyor is not None and (found.nodes is not None or found.command == NODE):
                self._survey(self.surveyor, found)
            else:
                self.asked(found)

    def _survey(self, surveyor: Surveyor, question: ByMessage) -> None:
        """Of the nodes that are meant, each answers for itself."""

        def answer(composite: dict[str, Any]) -> None:
            if surveyor.is_led_by(self):  # otherwise another leads by now, and knows nothing of the question
                self._reply(question.reply_to, question.correlation_id, composite)

        try:
            nodes = nodes_meant({"nodes": question.nodes})
            arguments = ordered_by(_BY_MESSAGE, question.command, question.arguments)
            surveyor.ask(question.command, arguments, nodes, answer)
        except HeliographError as error:
            answer(reply(self._node, error))

    def put(self, subject: str, arguments: Arguments, tell: Callable[[Answer], None]) -> None:
        """Asked by another way; `tell` hears the answer, when a change is stored."""
        self.asked(Put(subject, arguments, tell))
        self._manager.ask_for_tick()

    def stored(self, lsn: int) -> None:
        """The journal has everything up to here."""
        while self._storing and self._storing[0][0] <= lsn:
            _, question, outcome = self._storing.popleft()
            self._tell(question, outcome)

    # ---- answers

    def _tell(self, question: Question, outcome: Outcome | HeliographError) -> None:
        answer: Answer = outcome.body if isinstance(outcome, Outcome) else outcome
        if isinstance(question, ByMessage):
            self._reply(question.reply_to, question.correlation_id, reply(self._node, answer))
        elif isinstance(question, Put):
            question.tell(answer)
        elif isinstance(outcome, HeliographError):
            self._manager.multicast(Rejected(question.request, outcome.code, outcome.sentence))
        else:
            self._manager.multicast(Answered(question.request, outcome.body))

    def _reply(self, reply_to: str, correlation_id: str, composite: dict[str, Any]) -> None:
        """Whoever names no place for the reply, or one that is not there, gets none."""
        try:
            address = _reply_address(reply_to)
        except ClientFault:
            return
        self._messages.send(address, composite, correlation_id=correlation_id)


def _reply_address(text: str) -> Address:
    """Raises ClientFault. The server's own destinations are nobody's reply-to."""
    address = parse_address(text, system=True)
    if name_of(address).startswith(TEMPORARY_PREFIX):
        return address
    return parse_address(text)
