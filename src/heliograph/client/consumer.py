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
from typing import TYPE_CHECKING, Any, TypeVar

from heliograph.client.incoming import BY_ITSELF, Inbox, Mode, Range, frames_of
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
from heliograph.model.errors import ClientFault, ConnectionLost, HeliographError, ProtocolFault
from heliograph.model.large import LargeReference
from heliograph.model.limits import HANDSHAKE_SECONDS, MAX_ERROR_LENGTH, PRIORITY_PREFETCH
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
        self._is_acknowledging = False
        self._ended: HeliographError | None = None
        self._settling: deque[asyncio.Future[None]] = deque()

    @property
    def destination(self) -> str:
        return self._terms.destination

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.destination}>"

    # ---- receiving

    def __aiter__(self) -> AsyncIterator[Message]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Message]:
        inbox = self.inbox
        while await self.more():
            for message in inbox.messages:
                yield message
                if inbox.quiet:
                    self.acknowledge_soon()

    async def receive(self, timeout: float | None = None) -> Message | None:
        """The next message; None if none came in `timeout` seconds, or the consumer was closed."""
        self.check_open()
        inbox = self.inbox
        message: Message | None = next(inbox.messages, None)
        while message is None:
            if not await self.more(timeout):
                return None
            message = next(inbox.messages, None)
        if inbox.quiet:
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
        if self._take_next():
            return True
        if timeout is not None and timeout <= 0:
            return False
        try:
            async with asyncio.timeout(timeout):
                while not self._take_next():
                    if self._is_over:
                        return False
                    if self._ended is not None:
                        raise renewed(self._ended)
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def _take_next(self) -> bool:
        inbox = self.inbox
        found = inbox.take_next()
        if self._acknowledges_itself:
            if inbox.is_due or (not found and (inbox.mode is Mode.AUTO or inbox.done.count >= LAZY_MESSAGES)):
                self._settle()
            elif not found and inbox.done.count:
                self.acknowledge_soon()
        return found

    @property
    def _is_over(self) -> bool:
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
        if not self.inbox.is_current(delivery) or self._is_closed or self._wire is None:
            if confirm:
                raise _unconfirmed()
            return False
        tag = delivery.first_tag + index
        if self.inbox.is_recalled(tag):
            if confirm:
                raise _unconfirmed()
            return False
        self.inbox.done.add(tag, tag)
        return True

    async def acknowledge(self, *, confirm: bool) -> None:
        """Settle all that was handed over (mode "client") or marked (mode "individual")."""
        await self.returns_answered()
        self.inbox.complete()
        is_too_late = self.inbox.forgive() or self._wire is None
        if self._settle(confirm=confirm) and confirm:
            settled = self._loop.create_future()
            self._settling.append(settled)
            await settled
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

    def _settle(self, *, confirm: bool = False) -> bool:
        """Tell the server what is done. Whether there was anything."""
        ranges = self.inbox.take_done()
        if not ranges or self._wire is None:
            return False
        pieces = list(frames_of(ranges))
        for piece in pieces:
            last = piece is pieces[-1]
            flags = REPLENISH | (CONFIRM_SETTLEMENT if confirm and last else 0)
            self._wire.write(settle_frame(self._session.number, self.number, DONE, piece, flags))
        return True

    # ---- giving back, answering

    async def return_message(self, delivery: Delivery, index: int, error: str) -> None:
        """One message goes back to the destination, unless it went already or is done."""
        if not self.inbox.is_current(delivery) or self._is_closed or self._wire is None:
            return
        tag = delivery.first_tag + index
        if not self.inbox.is_recalled(tag) and self.inbox.leave_out(tag):
            self.inbox.bar(delivery.unit(index))
            seen = self.inbox.last_seen
            back = Return(self._session.number, self.number, [(tag, tag)], error[:MAX_ERROR_LENGTH], seen)
            self._wire.write(control_frame(back))

    def recalled(self, tags: list[Range]) -> None:
        """The server has taken back what we gave back, and these with it."""
        self.inbox.lift(tags)
        self._changed.wake()

    async def returns_answered(self) -> None:
        """Until the server has said what went back with what was given back."""
        while self.inbox.is_barred and self._ended is None and self._wire is not None:
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
        return self.inbox.reset(wanted=True)

    def go_on(self) -> None:
        self._is_suspended = False

    @property
    def has_consumed(self) -> bool:
        """In a transacted session: whether anything was handed over since the last commit."""
        self.inbox.complete()
        return self.inbox.done.count > 0

    def take_consumed(self) -> list[Range]:
        self.inbox.complete()
        return self.inbox.take_done()

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
        if self._changed:
            self._changed.wake()

    def settled(self) -> None:
        if self._settling:
            settled = self._settling.popleft()
            if not settled.done():
                settled.set_result(None)

    # ---- the connection

    def subscription(self) -> Subscribe:
        return self._terms.frame(self._session.number, self.number, prompt=self._acknowledges_itself)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def is_resumable(self) -> bool:
        """Whether it goes on when there is another connection."""
        return not self._is_closed

    @property
    def is_missed(self) -> bool:
        """Whether the session's next acknowledgement comes too late for what it handed over."""
        return self.inbox.has_forgotten

    def attach(self, wire: Wire) -> None:
        self._wire = wire

    def detach(self) -> None:
        """What waits and is not handed over yet comes again on the next connection."""
        self._wire = None
        self._is_suspended = False
        self.inbox.reset()
        self._fail_settling()
        self._changed.wake()  # who waits for an answer waits in vain

    def end(self, error: HeliographError) -> None:
        """Nothing more will come; what was not handed over is the server's to give to somebody else."""
        if self._ended is None:
            self._ended = error
            self.detach()

    def _fail_settling(self) -> None:
        for settled in self._settling:
            if not settled.done():
                settled.set_exception(_unconfirmed())
        self._settling.clear()

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
            retiring = Retire(
                request=0, number=self._session.number, consumer=self.number, seen=self.inbox.last_seen
            )
            # If the server ended it meanwhile, that is told elsewhere.
            with suppress(HeliographError, TimeoutError):
                async with asyncio.timeout(HANDSHAKE_SECONDS):
                    await self._wire.request(retiring, Completed)

    async def unsubscribe(self) -> None:
        """Tell the server that a closed consumer is gone."""
        wire, self._wire = self._wire, None
        self._session.forget_consumer(self)
        if wire is not None and self._ended is None:
            leaving = Unsubscribe(
                request=0, number=self._session.number, consumer=self.number, seen=self.inbox.last_seen
            )
            # If it cannot be told, the server ends the consumer with the connection.
            with suppress(ConnectionLost, TimeoutError):
                async with asyncio.timeout(HANDSHAKE_SECONDS):
                    await wire.request(leaving, Completed)
        self._fail_settling()

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        await self.leave(complete=kind is None)


def _unconfirmed() -> ConnectionLost:
    return ConnectionLost(
        "the acknowledgement came too late or was not confirmed: expect redelivery",
        code="acknowledgement-unknown",
    )
