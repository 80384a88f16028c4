"""Lends the messages of a queue to a reader, an epoch at a time (D2).

A lease is a prepared transaction that has consumed messages and sent none (docs/decisions/0024): it is in the journal
before the reader hears of it, it is the same whoever reads it and however often, units of order wait for it, and it
ends by the reader's word or by time. For taking, a consumer is attached for a moment, so that a lease gets what any
consumer would get, in the same order; nobody is sent anything meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.admin.handlers import destination_named
from heliograph.admin.pipelines import name_in, number_in, seconds_in
from heliograph.admin.subjects import argument
from heliograph.bus.commands import Answered, Asked, ConsumerAttached, ConsumerDetached, Dispatched, Parcelled
from heliograph.destinations.competing import Consumer
from heliograph.destinations.effects import AnyEffect, Continue, Multicast
from heliograph.destinations.moving import wants_another_turn
from heliograph.destinations.pipelines import DECIDER, Kind, session_named
from heliograph.destinations.queue import Queue
from heliograph.destinations.transactions import Key, Prepared, PreparedRecord
from heliograph.journal.records import RecordKind
from heliograph.model.block import UNITS, Span, slice_span
from heliograph.model.errors import ClientFault, Unavailable
from heliograph.model.hash_ranges import VALUES, stretches_in
from heliograph.model.ids import IdIssuer
from heliograph.model.limits import (
    FEED_PORTION_BYTES,
    LEASE_SECONDS,
    MAX_FEED_PORTION_BYTES,
    MAX_LEASE_MESSAGES,
    MAX_LEASE_SECONDS,
    MAX_PREPARED_TRANSACTIONS,
)
from heliograph.model.portions import LENT
from heliograph.model.selector import parse_selector

if TYPE_CHECKING:
    from heliograph.nodes.message_manager import MessageManager
    from heliograph.nodes.pipelines import Pipelines

_LOOK_AGAIN_SECONDS: Final = 0.002
_MOST: Final = 1 << 62
_encode = msgspec.msgpack.Encoder().encode


class Leasing:
    """The leases of one message manager."""

    def __init__(self, manager: MessageManager, pipelines: Pipelines, issuer: IdIssuer) -> None:
        self._manager = manager
        self._pipelines = pipelines
        self._issuer = issuer
        self._taking: dict[Key, _Taking] = {}

    def depth(self, question: Asked) -> None:
        """How many messages wait in a queue, for a reader that wants to end when it has them; and, for a `name`, the
        last epoch and the last batch under it that took effect, for one that goes on."""
        queue = destination_named(self._manager.catalogue, question.arguments)
        body = {"messages": queue.figures().depth}
        if "name" in question.arguments:
            name, marks = name_in(question.arguments), self._pipelines.marks
            body["epoch"], body["batch"] = marks.number(Kind.EPOCH, name), marks.number(Kind.BATCH, name)
        self._pipelines.answer(question.request, body)

    # ---- taking

    def lease(self, question: Asked) -> None:
        """Lend up to `messages` messages under a name and an epoch. Asked again, it is what it was, and the
        answer says so (`again`). Who asks for 0 messages wants to know just that."""
        arguments, manager = question.arguments, self._manager
        name, epoch = name_in(arguments), number_in(arguments, "epoch", 0, _MOST)
        wanted = number_in(arguments, "messages", 0, MAX_LEASE_MESSAGES)
        seconds = seconds_in(arguments, LEASE_SECONDS, MAX_LEASE_SECONDS)
        selector = argument(arguments, "selector", str, "")
        parse_selector(selector)
        queue = destination_named(manager.catalogue, arguments)
        if not isinstance(queue, Queue):
            raise ClientFault(f"{queue.address} is no queue: read its feed", code="destination-invalid")
        if epoch <= self._pipelines.marks.number(Kind.EPOCH, name):
            raise ClientFault(f"epoch {epoch} of {name} is over", code="lease-lost")
        key = (session_named(name), epoch)
        prepared = manager.catalogue.transactions.prepared.get(key)
        if prepared is not None:
            prepared.asked_at = manager.now()
            body = {"messages": self._messages(prepared), "again": True}
            manager.answer_when_stored(question.request, body)
        elif key in self._taking:
            raise Unavailable("the lease is being made: ask again", code="lease-busy")
        elif not wanted:
            self._pipelines.answer(question.request, {"messages": 0, "again": False})
        elif len(manager.catalogue.transactions.prepared) >= MAX_PREPARED_TRANSACTIONS:
            raise Unavailable("too many leases and transactions wait here", code="too-many-transactions")
        else:
            taking = _Taking(self, manager, self._issuer, queue, question.request, key, name, wanted, seconds)
            self._taking[key] = taking
            taking.begin(selector)

    def stop(self) -> None:
        """This manager decides nothing any more: what was not written down was not lent."""
        for taking in self._taking.values():
            taking.is_over = True
        self._taking.clear()

    def taken(self, taking: _Taking) -> None:
        """Write down what was lent; nobody hears of it before that is stored."""
        manager, queue = self._manager, taking.queue
        del self._taking[taking.key]
        if taking.messages:
            record = PreparedRecord(
                taking.key[0],
                taking.key[1],
                DECIDER,
                [taking.name, str(taking.seconds), "lease"],
                "",
                b"",
                manager.now(),
                [(queue.number, queue.messages.number, taking.numbers)],
            )
            manager.catalogue.transactions.prepare(record)
            manager.append(RecordKind.PREPARED, 0, 0, _encode(record), wait=True)
        manager.answer_when_stored(taking.request, {"messages": taking.messages, "again": False})

    # ---- reading

    def read(self, question: Asked) -> None:
        """A portion of a lease: the blocks behind the first `after`, those that can have values from `low` to
        `high`."""
        arguments = question.arguments
        prepared = self._find(arguments)
        prepared.asked_at = self._manager.now()
        low = number_in(arguments, "low", 0, VALUES, 0)
        high = number_in(arguments, "high", 0, VALUES, VALUES)
        after = number_in(arguments, "after", 0, _MOST, 0)
        limit = number_in(arguments, "bytes", 1, MAX_FEED_PORTION_BYTES, FEED_PORTION_BYTES)
        pieces: list[bytes | memoryview] = []
        size, spans = 0, self._spans(prepared)
        at = after
        while at < len(spans) and size < limit:
            if _may_be_in(spans[at], low, high):
                parts = slice_span(spans[at])
                length = sum(map(len, parts))
                number = spans[at].block.number + spans[at].start
                pieces += (LENT.pack(length, spans[at].deliveries, number), *parts)
                size += length
            at += 1
        body = {"blocks": b"".join(pieces), "next": at if at < len(spans) else 0}
        self._pipelines.answer(question.request, body)

    def _find(self, arguments: dict[str, Any]) -> Prepared:
        name, epoch = name_in(arguments), number_in(arguments, "epoch", 0, _MOST)
        prepared = self._manager.catalogue.transactions.prepared.get((session_named(name), epoch))
        if prepared is None:
            raise ClientFault(
                f"epoch {epoch} of {name} is not lent: its time passed, and its messages went back",
                code="lease-lost",
            )
        return prepared

    def _spans(self, prepared: Prepared) -> list[Span]:
        number, list_number, _ = prepared.record.consumed[0]
        queue = self._manager.catalogue.by_number.get(number)
        messages = queue.list_by_number(list_number) if queue is not None else None
        holder = messages.pledged.get(prepared.record.key) if messages is not None else None
        return holder.outstanding.spans() if holder is not None else []

    def _messages(self, prepared: Prepared) -> int:
        return sum(span.stop - span.start for span in self._spans(prepared))

    # ---- ending

    def acknowledge(self, question: Asked) -> None:
        """Everything lent under a name up to and including an epoch was processed: it is done."""
        arguments = question.arguments
        name, epoch = name_in(arguments), number_in(arguments, "epoch", 0, _MOST)
        if epoch <= self._pipelines.marks.number(Kind.EPOCH, name):
            self._manager.answer_when_stored(question.request, {"took_effect": False})
            return
        self._find(arguments)  # or it is told that this went back
        ended = [each for each in self._of(name) if each.record.number <= epoch]
        self._pipelines.carry_out(question.request, Kind.EPOCH, name, epoch, ended)

    def give_back(self, question: Asked) -> None:
        """Everything lent under a name from an epoch on goes back, in order."""
        arguments = question.arguments
        name, epoch = name_in(arguments), number_in(arguments, "epoch", 0, _MOST)
        for prepared in self._of(name):
            if prepared.record.number >= epoch:
                self._pipelines.preparing.abort(prepared)
        self._manager.answer_when_stored(question.request, {})

    def sweep(self) -> None:
        """Leases and stages whose pipeline was not heard of in time end: messages go back, rows are dropped."""
        now = self._manager.now()
        for prepared in self._all():
            name, seconds, what = prepared.record.participants[:3]
            if now >= prepared.asked_at + float(seconds):
                self._pipelines.preparing.abort(prepared)
                self._manager.record("lease-expired", name=name, number=prepared.record.number, what=what)

    def _all(self) -> list[Prepared]:
        transactions = self._manager.catalogue.transactions
        return [each for each in transactions.prepared.values() if each.record.decider == DECIDER]

    def _of(self, name: str) -> list[Prepared]:
        session = session_named(name)
        return [each for each in self._all() if each.record.key[0] == session]

    def shown(self) -> list[dict[str, Any]]:
        now = self._manager.now()
        return [
            {
                "name": each.record.participants[0],
                "epoch": each.record.number,
                "messages": self._messages(each),
                "seconds_left": round(each.asked_at + float(each.record.participants[1]) - now, 1),
            }
            for each in self._all()
            if each.record.participants[2] == "lease"
        ][:100]


class _Taking:
    """One lease in the making."""

    def __init__(
        self,
        leasing: Leasing,
        manager: MessageManager,
        issuer: IdIssuer,
        queue: Queue,
        request: int,
        key: Key,
        name: str,
        wanted: int,
        seconds: float,
    ) -> None:
        self._leasing = leasing
        self._manager = manager
        self._consumer = issuer.consumer()
        self.queue, self.request, self.key, self.name = queue, request, key, name
        self._wanted, self.seconds = wanted, seconds
        self.is_over = False
        self.messages = 0
        self.numbers: list[tuple[int, int]] = []

    def begin(self, selector: str) -> None:
        attached = ConsumerAttached(
            0,
            self.queue.address,
            self._consumer,
            self.key[0],
            self._wanted,
            create=False,
            selector=selector,
            prompt=False,
        )
        effects = self.queue.handle(attached, self._manager.microseconds())
        self._run(effects)
        self._go_on(again=wants_another_turn(effects))

    def _step(self) -> None:
        """One turn of the queue; between two of them everybody else has one, too."""
        if self.is_over:
            return
        effects: list[AnyEffect] = []
        self.queue.dispatch(effects, self._manager.microseconds())
        self._run(effects)
        self._go_on(again=wants_another_turn(effects))
        self._manager.ask_for_tick()

    def _go_on(self, *, again: bool) -> None:
        """As long as there may be more: whatever else waits is not for anybody now."""
        has_more = self._has_room and self.queue.messages.depth > 0
        if has_more and again:
            self._manager.soon(self._step)
        elif has_more and self._manager.is_loading(self.queue):
            asyncio.get_running_loop().call_later(_LOOK_AGAIN_SECONDS, self._step)
        else:
            self._end()

    @property
    def _has_room(self) -> bool:
        consumer = self._found()
        return consumer is not None and consumer.room > 0  # a lease is as large as a transaction may be

    def _found(self) -> Consumer | None:
        """None: the queue has ended meanwhile."""
        return None if self.queue.has_ended else self.queue.messages.consumers.get(self._consumer)

    def _end(self) -> None:
        """Everything at once: as soon as a transaction has something of a unit, nobody is given more of it."""
        consumer = self._found()
        if consumer is not None:
            self.messages = consumer.outstanding.messages
            spans = consumer.outstanding.tagged()
            ranges = [(tag, tag + span.stop - span.start - 1) for tag, span in spans]
            self.numbers = self.queue.messages.pledge(self.key, self._consumer, ranges)
            left = ConsumerDetached(self.queue.address, self._consumer)
            self._run(self.queue.handle(left, self._manager.microseconds()))
            self._manager.hand_out(self.queue)  # others waited for their turn
        self._leasing.taken(self)
        self._manager.ask_for_tick()

    def _run(self, effects: list[AnyEffect]) -> None:
        """Nobody is to hear of a consumer that is only there for a moment, and its turns come from here."""
        self._manager.run(self.queue, [effect for effect in effects if not self._is_for_nobody(effect)])

    def _is_for_nobody(self, effect: AnyEffect) -> bool:
        if isinstance(effect, Continue):
            return True
        command = effect.command if isinstance(effect, Multicast) else None
        if isinstance(command, Dispatched | Parcelled):
            return command.consumer == self._consumer
        return isinstance(command, Answered) and not command.request


def _may_be_in(span: Span, low: int, high: int) -> bool:
    """Whether any message of a span can have a value in a range; what has units, or was picked, is sorted by who
    reads."""
    block = span.block
    if high - low == VALUES or block.flags & UNITS:
        return True
    return stretches_in(block.lane, block.first + span.start, block.first + span.stop - 1, low, high)
