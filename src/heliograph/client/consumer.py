"""A consumer: hands messages to the application, and tells the server which are done.

Acknowledgements travel as merged ranges: when a quarter of the credit is collected, when nothing more
waits, and otherwise at the end of the loop's turn, but then not again within `PAUSE_SECONDS`; so a slow
application is acknowledged message by message and a quick one in large steps. In mode "dups-ok" it takes the
first, a pause of `LAZY_SECONDS`, or `LAZY_MESSAGES` when nothing more waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from heliograph.client.incoming import (
    BY_ITSELF,
    Inbox,
    Mode,
    Range,
    common,
    frames_of,
    merged,
    without_ranges,
)
from heliograph.client.large_reading import MessageStream
from heliograph.client.message import Delivery, Message, Received, open_delivery
from heliograph.client.preparing import MessageOptions
from heliograph.client.sender import renewed
from heliograph.client.subscribing import Terms
from heliograph.client.waiting import Signal
from heliograph.frontends.native.frames import (
    CONFIRM_SETTLEMENT,
    DELIVERY,
    DONE,
    REPLENISH,
    Completed,
    Retire,
    Return,
    Subscribe,
    Unsubscribe,
    control_frame,
    settle_frame,
)
from heliograph.model.claim import Claim
from heliograph.model.errors import ClientFault, ConnectionLost, HeliographError, ProtocolFault
from heliograph.model.large import LargeReference
from heliograph.model.limits import (
    HANDSHAKE_SECONDS,
    MAX_CLAIM_RANGES,
    MAX_ERROR_LENGTH,
    PRIORITY_PREFETCH,
)
from heliograph.model.message import Body

if TYPE_CHECKING:
    from heliograph.client.session import Session
    from heliograph.client.wire import Wire

T = TypeVar("T")
# Five hundred small frames a second cost the server next to nothing, and nobody notices two milliseconds.
PAUSE_SECONDS = 0.002
# How long acknowledgements may wait for company where the application does not mind duplicates.
LAZY_SECONDS = 0.1
# When nothing more is here, they do not wait if there are as many: a queue with priorities sends few ahead,
# and may be waiting for them.
LAZY_MESSAGES = PRIORITY_PREFETCH // 2
# Modes in which messages stay undecided after they were handed over, together with others of the session.
_DECIDED_LATER = frozenset({Mode.CLIENT, Mode.TRANSACTED})
# Messages of one `receive_batch` unless told otherwise: enough that the call itself does not count.
BATCH_MESSAGES = 1024


class _Settlement(NamedTuple):
    """What somebody waits for the server to have stored."""

    ranges: list[Range]
    stored: asyncio.Future[None]


class Consumer:
    """Receives from one destination. Made by `Session.consumer`; ends with `close()` or with its session.

    Use one way of receiving at a time: `async for`, `receive` or `receive_batch`; they share one place in
    the stream, so going from one to another loses nothing.
    """

    def __init__(
        self,
        session: Session,
        number: int,
        terms: Terms,
        *,
        mode: Mode,
        message_type: type[Received] = Message,
    ) -> None:
        self.number = number
        self.is_subscribed = False
        self.was_asked_for = False  # whether the server may know it, though it has not said so
        self._session = session
        self._terms = terms
        self.inbox = Inbox(mode, terms.credit, message_type)
        self._acknowledges_itself = mode in BY_ITSELF
        self._pause_seconds = LAZY_SECONDS if mode is Mode.DUPS_OK else PAUSE_SECONDS
        self._is_suspended = False
        self._loop = asyncio.get_running_loop()
        self._wire: Wire | None = None
        self._changed = Signal()
        self._is_closed = False
        self._is_retired = False  # closed, with messages that are not decided yet
        self._has_left = False
        self._is_acknowledging = False
        self._ended: HeliographError | None = None
        # What the server has to be told again if the connection is lost before it answers, or was not told yet.
        self._settling: deque[_Settlement] = deque()
        self._returning: deque[tuple[int, str]] = deque()
        self._untold: list[Range] = []
        self._unclaimed: list[Range] = []
        self._wanted_again: int | None = None  # all up to this tag is to come again, and the rest unseen

    @property
    def destination(self) -> str:
        return self._terms.destination

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.destination}>"

    # ---- receiving

    def __aiter__(self) -> AsyncIterator[Message]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Message]:
        while await self.more():
            inbox = self.inbox
            for message in inbox.messages:
                yield message
                if inbox.quiet:
                    self.acknowledge_soon()

    async def receive(self, timeout: float | None = None) -> Message | None:
        """The next message; None if none came in `timeout` seconds, or the consumer was closed."""
        self.check_open()
        message: Message | None = next(self.inbox.messages, None)
        while message is None:
            if not await self.more(timeout):
                return None
            message = next(self.inbox.messages, None)
        if self.inbox.quiet:
            self.acknowledge_soon()
        return message

    async def receive_batch(self, limit: int = BATCH_MESSAGES, timeout: float | None = None) -> list[Message]:
        """Wait for a message, then take all that are here, at most `limit`.

        Empty if none came in `timeout` seconds. In mode "auto" all of it is processed when more is asked for.
        """
        self.check_open()
        if limit < 1:
            raise ClientFault(f"a batch has at least one message, not {limit}", code="limit-invalid")
        while await self.more(timeout):
            batch: list[Message] = self.inbox.take_batch(limit)
            if batch:
                return batch
        return []

    async def more(self, timeout: float | None = None) -> bool:
        """Wait until the inbox has something to hand over.

        False: it did not come in time, or the consumer was closed.
        """
        if self.take_next():
            return True
        if timeout is not None and timeout <= 0:
            return False
        try:
            async with asyncio.timeout(timeout):
                while not self.take_next():
                    if self.is_over:
                        return False
                    fault = self.fault
                    if fault is not None:
                        raise renewed(fault)
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    @property
    def fault(self) -> HeliographError | None:
        """Why nothing more will come, if that is so and was not wanted."""
        return self._ended

    def take_next(self) -> bool:
        """What was handed over is complete. Whether there is more to hand over."""
        inbox = self.inbox
        found = inbox.take_next()
        if self._acknowledges_itself:
            if inbox.is_due or (not found and (inbox.mode is Mode.AUTO or inbox.done.count >= LAZY_MESSAGES)):
                self._settle()
            elif not found and inbox.done.count:
                self.acknowledge_soon()
        return found

    def set_aside(self) -> None:
        """What was handed over is complete, and the next comes from elsewhere."""
        inbox = self.inbox
        inbox.complete()
        if self._acknowledges_itself and inbox.done.count:
            if inbox.is_due or inbox.mode is Mode.AUTO:
                self._settle()
            else:
                self.acknowledge_soon()

    def share_signal(self, changed: Signal) -> None:
        """Somebody waits for several consumers at once."""
        self._changed = changed

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be expected, and that is all right."""
        return self._is_closed

    def check_open(self) -> None:
        if self._is_closed:
            raise ClientFault(f"the consumer of {self.destination} is closed", code="closed")

    # ---- acknowledging

    async def acknowledge_message(self, delivery: Delivery, index: int, *, confirm: bool) -> None:
        """What `Message.acknowledge` does in each mode."""
        self._session.check_not_closed()
        if self.inbox.mode is Mode.CLIENT:
            await self._session.acknowledge(confirm=confirm)
        elif self.inbox.mode is Mode.INDIVIDUAL:
            if confirm:
                # Before it is marked: what goes back meanwhile, or is lost with the connection, is not done.
                await self.returns_answered()
            if self._mark(delivery, index, confirm=confirm):
                if confirm:
                    await self.acknowledge(confirm=True)
                else:
                    self.acknowledge_soon()

    def acknowledge_from_thread(self, delivery: Delivery, index: int, *, confirm: bool) -> None:
        """The same for the blocking face, called on the application's thread."""
        self._session.check_not_closed()
        if self._acknowledges_itself:
            return
        if self.inbox.mode is Mode.INDIVIDUAL and not confirm and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._acknowledge_one_soon, delivery, index)
        else:
            self.run_from_thread(self.acknowledge_message(delivery, index, confirm=confirm))

    def open_large(self, destination: str, reference: LargeReference) -> MessageStream:
        """What `Message.open` does for a large message."""
        return self._session.open_large(destination, reference)

    def run_from_thread(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something for a message of the blocking face, and wait for it."""
        if self._loop.is_closed():
            work.close()
            raise ClientFault("the connection is closed", code="closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _acknowledge_one_soon(self, delivery: Delivery, index: int) -> None:
        if self._mark(delivery, index, confirm=False):
            self.acknowledge_soon()

    def _mark(self, delivery: Delivery, index: int, *, confirm: bool) -> bool:
        """Whether the server can still be told; if not, it delivers the message again, marked."""
        if not self.inbox.is_current(delivery) or self._is_closed or self._ended is not None:
            if confirm:
                raise _unconfirmed()
            return False
        tag = delivery.first_tag + index
        if not self._is_ours(delivery, index):
            if confirm:
                raise _unconfirmed()
            return False
        self.inbox.done.add(tag, tag)
        return True

    def _is_ours(self, delivery: Delivery, index: int) -> bool:
        """Whether a message was neither decided about nor went back, alone or with one before it."""
        tag = delivery.first_tag + index
        return self.inbox.is_held(tag) and not (
            self.inbox.is_barred and self.inbox.goes_back(tag, delivery.unit(index))
        )

    async def acknowledge(self, *, confirm: bool) -> None:
        """Settle all that was handed over (mode "client") or marked (mode "individual")."""
        await self.returns_answered()
        self.inbox.complete()
        is_too_late = self.inbox.forgive() or self._has_left or self._ended is not None
        if confirm:
            await self._settle_confirmed()
        else:
            self._settle()
        if self._is_retired and not self._settling:
            await self.unsubscribe()  # it has nothing left
        if confirm and is_too_late:
            raise _unconfirmed()

    def acknowledge_soon(self) -> None:
        """At the end of this turn of the loop, or of the pause since the last time."""
        self.inbox.quiet = False
        if not self._is_acknowledging:
            self._is_acknowledging = True
            if self.inbox.mode is Mode.DUPS_OK:
                self._loop.call_later(LAZY_SECONDS, self._acknowledge_turn)
            else:
                self._loop.call_soon(self._acknowledge_turn)

    def _acknowledge_turn(self) -> None:
        if self._acknowledges_itself:
            self.inbox.complete_but_last()
        if self._settle():
            self._loop.call_later(self._pause_seconds, self._acknowledge_turn)
        else:
            self._is_acknowledging = False
            self.inbox.quiet = self._acknowledges_itself

    def _settle(self) -> bool:
        """Tell the server what is done, or, while there is none, keep it for the next. Whether it was told."""
        if self.inbox.may_lose_some:
            return False
        ranges = self.inbox.take_done()
        if not ranges:
            return False
        if self._wire is None:
            self._untold += ranges
            return False
        self._tell_done(self._wire, ranges)
        return True

    def _tell_done(self, wire: Wire, ranges: list[Range]) -> None:
        self.inbox.settled(ranges)
        for piece in frames_of(ranges):
            wire.write(settle_frame(self._session.number, self.number, DONE, piece, REPLENISH))

    async def _settle_confirmed(self) -> None:
        """The same, and wait until it is stored. Until that is answered, it counts as held."""
        ranges = merged([*self._untold, *self.inbox.take_done()])
        self._untold = []
        if not ranges or self._ended is not None or self._has_left:
            return
        settlement = _Settlement(ranges, self._loop.create_future())
        self._settling.append(settlement)
        if self._wire is not None:
            self._write_confirmed(self._wire, ranges)
        await settlement.stored

    def _write_confirmed(self, wire: Wire, ranges: list[Range]) -> None:
        pieces = list(frames_of(ranges))
        for piece in pieces:
            flags = REPLENISH | (CONFIRM_SETTLEMENT if piece is pieces[-1] else 0)
            wire.write(settle_frame(self._session.number, self.number, DONE, piece, flags))

    # ---- giving back, answering

    async def return_message(self, delivery: Delivery, index: int, error: str) -> None:
        """One message goes back to the destination, unless it went already or is done."""
        if not self.inbox.is_current(delivery) or self._is_closed or self._ended is not None:
            return
        tag = delivery.first_tag + index
        if self._is_ours(delivery, index) and self.inbox.leave_out(tag):
            self.inbox.bar(tag, delivery.unit(index))
            self._returning.append((tag, error[:MAX_ERROR_LENGTH]))
            if self._wire is not None:
                self._write_return(self._wire, *self._returning[-1])

    def _write_return(self, wire: Wire, tag: int, error: str) -> None:
        seen = self.inbox.last_seen
        wire.write(control_frame(Return(self._session.number, self.number, [(tag, tag)], error, seen)))

    def recalled(self, tags: list[Range]) -> None:
        """The server has taken back what we gave back, and these with it."""
        if self._returning:
            tag, _ = self._returning.popleft()
            self.inbox.gone([(tag, tag)])
        self.inbox.lift(tags)
        if self.inbox.mode is Mode.INDIVIDUAL and self.inbox.done.count:
            self.acknowledge_soon()
        self._changed.wake()

    async def returns_answered(self) -> None:
        """Until the server has said what went back with what was given back."""
        while self.inbox.is_barred and self._ended is None and not self._has_left:
            await self._changed.wait()

    async def reply(self, message: Received, body: Body, options: MessageOptions) -> None:
        """Answer a request where it says, as part of the transaction if the session has one."""
        if message.reply_to is None:
            raise ClientFault("the message does not say where to reply to", code="reply-to-missing")
        options.setdefault("correlation_id", message.correlation_id or message.id)
        await self._session.reply(message.reply_to, body, options)

    def suspend(self) -> int:
        """All that is not settled is about to come again: forget it, and what arrives until `go_on`.

        Returns the last tag that was handed to the application.
        """
        if self._acknowledges_itself:
            self.inbox.complete_but_last()
        if self._acknowledges_itself or self.inbox.mode is Mode.INDIVIDUAL:
            self._settle()
        self._is_suspended = True
        self._untold.clear()
        self._returning.clear()
        self._wanted_again = max(self.inbox.reset(wanted=True), self._wanted_again or 0)
        return self._wanted_again

    def go_on(self) -> None:
        """What arrives from here on came again."""
        self._is_suspended = False
        self._wanted_again = None

    def suspension_over(self) -> None:
        """Whatever became of it: if the server did not answer, the next claim says the same."""
        self._is_suspended = False

    @property
    def has_consumed(self) -> bool:
        """In a transacted session: whether anything was handed over since the last commit."""
        self.inbox.complete()
        return self.inbox.done.count > 0

    def take_consumed(self) -> list[Range]:
        self.inbox.complete()
        return self.inbox.take_done()

    def committed(self, ranges: list[Range]) -> None:
        """What was consumed is done. Until that is known, it counts as held."""
        self.inbox.settled(ranges)

    # ---- start and stop

    def stop(self) -> None:
        self.inbox.stop()

    def start(self) -> None:
        if not self._is_closed:
            self.inbox.start()
            self._changed.wake()

    # ---- what the server said

    def deliver(
        self, payload: bytes, earlier: int, first_tag: int, user_bytes: int, destination: str = ""
    ) -> None:
        start = DELIVERY.size + user_bytes
        try:
            user = payload[DELIVERY.size : start].decode() if user_bytes else None
        except UnicodeDecodeError:
            raise ProtocolFault("a delivery's user id is not text") from None
        inbox = self.inbox
        if self._is_suspended or self._is_closed:
            return
        inbox.put(
            open_delivery(
                payload[start:],
                self,
                first_tag=first_tag,
                earlier=earlier,
                user_id=user,
                epoch=inbox.epoch,
                destination=destination,
            )
        )
        if inbox.known.count and self._wire is not None:
            self._tell_done(self._wire, inbox.known.take())
        if self._changed:
            self._changed.wake()

    def settled(self) -> None:
        if self._settling:
            self._stored(self._settling.popleft())

    def _stored(self, settlement: _Settlement) -> None:
        self.inbox.settled(settlement.ranges)
        if not settlement.stored.done():
            settlement.stored.set_result(None)

    # ---- the connection

    def subscription(self) -> Subscribe:
        return self._terms.frame(self._session.number, self.number, prompt=self._acknowledges_itself)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def is_resumable(self) -> bool:
        """Whether it goes on when there is another connection."""
        return not self._is_closed or self._is_retired

    @property
    def is_retired(self) -> bool:
        return self._is_retired

    @property
    def is_missed(self) -> bool:
        """Whether the session's next acknowledgement comes too late for what it handed over."""
        return self.inbox.has_forgotten

    def attach(self, wire: Wire) -> None:
        self._wire = wire
        self.inbox.come_back()
        if self.inbox.known.count:
            self._tell_done(wire, self.inbox.known.take())

    def detach(self) -> None:
        """Hand over nothing until the next connection, where the server says what of it is still ours."""
        self._wire = None
        self._is_suspended = False
        self.inbox.go_away()

    def claim(self) -> Subscribe:
        """What we have, for a server that is to go on with us."""
        inbox = self.inbox
        held = inbox.holding.held()
        self._unclaimed = held[MAX_CLAIM_RANGES:]  # so many that it cannot be said: they come again
        held = held[:MAX_CLAIM_RANGES]
        settled = inbox.holding.settled_lately(MAX_CLAIM_RANGES - len(held))
        seen = inbox.last_seen if self._wanted_again is None else self._wanted_again
        return self._terms.resumption(
            self._session.number,
            self.number,
            prompt=self._acknowledges_itself,
            credit=0 if self._is_closed else self._terms.credit,
            claim=Claim(held, settled, seen, inbox.progress.elsewhere()),
        )

    def claimed(self, wire: Wire, answer: dict[str, Any]) -> None:
        """The server has answered. What it delivers since it took the claim is looked at after this."""
        if answer.get("apart"):
            self.inbox.memory.is_consulted = True
        if answer["resumed"]:
            self._wanted_again = None
            gone = [(first, last) for first, last in answer.get("gone", [])]
            self._say_again(wire, gone, unknown=[(first, last) for first, last in answer.get("unknown", [])])
        else:
            self._start_over()
        if not self._has_left:
            self.attach(wire)
            self._changed.wake()

    def _say_again(self, wire: Wire, gone: list[Range], *, unknown: list[Range]) -> None:
        """What the server has not heard of, in the order in which it was to be said. Of what is gone, `unknown` was
        given by another part of a cut: whether that stored what became of it, nobody knows here."""
        gone = merged([*gone, *self._unclaimed])
        self._unclaimed = []
        self.inbox.settled(common(self._untold, unknown))
        untold, self._untold = without_ranges(self._untold, gone), []
        settling, self._settling = self._settling, deque()
        again: list[tuple[_Settlement, list[Range]]] = []
        for settlement in settling:
            rest = without_ranges(settlement.ranges, gone)
            if common(settlement.ranges, unknown):
                _fail(settlement)
                untold += rest
            elif rest:
                again.append((settlement, rest))
            else:
                self._stored(settlement)
        self.inbox.drop(gone)
        if untold:
            self._tell_done(wire, untold)
        for settlement, rest in again:
            self._settling.append(settlement)
            self._write_confirmed(wire, rest)
        self.inbox.lift_gone()
        self._returning = deque(each for each in self._returning if self.inbox.is_held(each[0]))
        for tag, error in self._returning:
            self._write_return(wire, tag, error)

    def _start_over(self) -> None:
        """The server knows nothing of what we had: it delivers again, to whomever, what is not settled."""
        self.inbox.reset()
        self._wanted_again = None
        self._untold.clear()
        self._returning.clear()
        self._fail_settling()
        self._changed.wake()  # who waits for an answer waits in vain

    def _fail_settling(self) -> None:
        for settlement in self._settling:
            _fail(settlement)
        self._settling.clear()

    def end(self, error: HeliographError) -> None:
        """Nothing more will come; what was not handed over is the server's to give to somebody else."""
        if self._ended is None:
            self._ended = error
            self._wire = None
            self._is_suspended = False
            self._start_over()
            self._changed.wake()

    async def close(self) -> None:
        """End it.

        Messages not handed over return to the destination; in mode "auto" those handed over are done. In
        modes "transacted" and "client" they stay with the session until it decides about them.
        """
        await self.leave(complete=True)

    async def leave(self, *, complete: bool, with_session: bool = False) -> None:
        """Close; `complete`: the message in the application's hands is processed (mode "auto").

        `with_session`: nobody is going to decide about what was handed over.
        """
        if self._is_closed:
            return
        inbox = self.inbox
        if self._acknowledges_itself:
            inbox.complete_but_last()
        inbox.stop()
        if self._acknowledges_itself and complete:
            inbox.complete()
        if self._acknowledges_itself or inbox.mode is Mode.INDIVIDUAL:
            self._settle()
        is_undecided = inbox.mode in _DECIDED_LATER and self.has_consumed and self._ended is None
        self._is_closed = True
        self._changed.wake()
        if is_undecided and not with_session:
            await self._retire()
        else:
            await self.unsubscribe()

    async def _retire(self) -> None:
        """Take nothing more, but keep what was handed over until it is decided."""
        self._is_retired = True
        self.inbox.waiting.clear()
        if self._wire is not None:
            await self.tell_retired(self._wire)

    async def tell_retired(self, wire: Wire) -> None:
        retiring = Retire(
            request=0, number=self._session.number, consumer=self.number, seen=self.inbox.last_seen
        )
        # If the server ended it meanwhile, that is told elsewhere.
        with suppress(HeliographError, TimeoutError):
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                await wire.request(retiring, Completed)

    async def unsubscribe(self) -> None:
        """Tell the server that a closed consumer is gone; the next one, if there is none now."""
        wire, self._wire = self._wire, None
        is_heard = self._ended is not None or self._has_left
        self._has_left = True
        self._session.forget_consumer(self)
        if not is_heard:
            try:
                if wire is None:
                    raise ConnectionLost("there is no connection")
                await self.tell_left(wire)
            except ConnectionLost:
                self._session.let_go_later(self)
                return
        self._fail_settling()

    async def tell_left(self, wire: Wire) -> None:
        """Raises ConnectionLost. Anything else that the server may say makes no difference."""
        seen = self.inbox.last_seen if self._wanted_again is None else self._wanted_again
        leaving = Unsubscribe(request=0, number=self._session.number, consumer=self.number, seen=seen)
        with suppress(TimeoutError):
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                await wire.request(leaving, Completed)

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        await self.leave(complete=kind is None)


def _fail(settlement: _Settlement) -> None:
    if not settlement.stored.done():
        settlement.stored.set_exception(_unconfirmed())


def _unconfirmed() -> ConnectionLost:
    return ConnectionLost(
        "the acknowledgement came too late or was not confirmed: expect redelivery",
        code="acknowledgement-unknown",
    )
