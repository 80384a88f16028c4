"""A producer: sends to one destination.

`send` of plain bytes is one append to a list while the lane's gate is open; everything else takes the
longer way, once per block or where a message has something to say besides its body.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Unpack, cast

from heliograph.client.large_source import StreamSource
from heliograph.client.outgoing import Gate
from heliograph.client.posted import Posted
from heliograph.client.preparing import (
    Headers,
    MessageOptions,
    OnCompletion,
    Outgoing,
    SendOptions,
    prepare,
    prepare_plain,
    unit_alone,
)
from heliograph.client.sender import Sender
from heliograph.model.errors import ClientFault, HeliographError, Unavailable
from heliograph.model.large import LargeReference, encode_reference
from heliograph.model.limits import LARGE_THRESHOLD_BYTES
from heliograph.model.message import DEFAULT_PRIORITY, Body
from heliograph.model.units import unit_number

if TYPE_CHECKING:
    from heliograph.client.session import Session

MICROSECONDS = 1_000_000
# Thousands of years, and still far from the end of a 64-bit number of microseconds.
MAX_SECONDS = 1e11


class Producer:
    """Sends to one destination, in order. Made by `Session.producer`."""

    def __init__(
        self,
        session: Session,
        sender: Sender,
        *,
        priority: int = DEFAULT_PRIORITY,
        persistent: bool = True,
        time_to_live: float | None = None,
        delay: float | None = None,
        unit_of_order: str | None = None,
    ) -> None:
        self._session = session
        self._sender = sender
        self._former: list[Sender] = []  # finished lanes whose first messages are not confirmed yet
        self._has_heard = False  # whether the fault of a finished lane was raised here
        self._priority = priority
        self._persistent = persistent
        self._time_to_live = time_to_live
        self._delay = delay
        self._unit = unit_of_order
        self._is_timed = time_to_live is not None or bool(delay)
        self._gate = Gate()
        self._is_closed = False
        self.prepare(b"")  # refuses defaults that no message could have

    @property
    def destination(self) -> str:
        return self._sender.destination

    @property
    def unit_of_order(self) -> str | None:
        """Messages of one unit are processed one after the other, whoever sends them. None: any order."""
        return self._unit

    @unit_of_order.setter
    def unit_of_order(self, name: str | None) -> None:
        if name:
            unit_number(name)  # refuses what is no name
        self._shut_gate()
        self._unit = name

    def _shut_gate(self) -> None:
        """What comes next is of another kind than what may go through the gate."""
        self._sender.lane.shut_gate()

    def shut_gate(self) -> None:
        """For whoever has this producer as a part."""
        self._shut_gate()

    @property
    def unconfirmed(self) -> int:
        """Messages of this session to this destination that the server has not confirmed."""
        return self._sender.lane.unconfirmed + sum(sender.lane.unconfirmed for sender in self._former)

    def __repr__(self) -> str:
        return f"<Producer to {self.destination}>"

    async def send(self, body: Body, **options: Unpack[SendOptions]) -> None:
        """Send without waiting for the server's yes; wait only while too much is unconfirmed, or the server
        wants us to wait. Raises Unavailable `send-timeout` if that takes longer than `timeout`.

        A refusal is told to `on_completion`, raised once by the next `send` or `flush`, and told to
        `on_error`.
        """
        gate = self._gate
        bodies = gate.bodies
        # Options as one dict: eight keyword-only parameters would cost a third of this path.
        if not options and body.__class__ is bytes and len(bodies) < gate.limit:
            size = len(body)
            if size <= gate.small:
                bodies.append(body)
                return
            if size < gate.room:
                gate.room -= size
                bodies.append(body)
                return
        elif len(bodies) < gate.ordered and len(options) < 2 and body.__class__ is bytes:
            name = options.get("unit_of_order") if options else self._unit
            if name:
                said = unit_alone(name)
                size = len(body) + len(said[1])
                if size < gate.room:
                    gate.room -= size
                    gate.said.append(said)
                    bodies.append(body)
                    return
        on_completion = options.pop("on_completion", None)
        timeout = options.pop("timeout", None)
        await self.post(self.prepare(body, **cast(MessageOptions, options)), on_completion, timeout)

    async def try_send(self, body: Body, **options: Unpack[SendOptions]) -> bool:
        """Send if that is possible without waiting. Whether it was."""
        on_completion = options.pop("on_completion", None)
        options.pop("timeout", None)
        message = self.prepare(body, **cast(MessageOptions, options))
        if self._sender.is_finished and not self.is_blocked:
            await self._admitted()
        if not self._sender.is_open:
            return False
        await self.post(message, on_completion)
        return True

    @property
    def is_blocked(self) -> bool:
        """Whether the server wants us to wait: a `send` would, and a `try_send` would not send."""
        return self._sender.is_blocked

    async def send_confirmed(self, body: Body, **options: Unpack[MessageOptions]) -> str:
        """Send and wait until the server has the message, on disk if it is persistent.

        Returns its id; raises a refusal. In a transacted session nothing is confirmed before the commit.
        """
        if options or body.__class__ is not bytes or self._is_timed or self._unit:
            return await self.post_confirmed(self.prepare(body, **options))
        message = prepare_plain(body, priority=self._priority, persistent=self._persistent)
        return await self.post_confirmed(message)

    async def send_stream(
        self,
        source: StreamSource,
        *,
        threshold: int = LARGE_THRESHOLD_BYTES,
        **options: Unpack[MessageOptions],
    ) -> str:
        """Send what may be far larger than memory: a path, a binary file, or an iterable of bytes, async or not.

        Up to `threshold` bytes it becomes an ordinary message; beyond, it travels in chunks beside other
        messages, and goes on where it was when the connection is lost. Returns the message's id when the
        server has all of it.
        """
        return await self._session.send_stream(self, source, threshold, options)

    async def post_streamed(self, message: Outgoing) -> str:
        """Send a prepared message, and wait for the server's yes unless a commit will give it."""
        if self._session.transaction is None:
            return await self.post_confirmed(message)
        await self.post(message)
        lane = self._sender.lane
        return f"{lane.name}-{lane.last}"

    @property
    def is_transacted(self) -> bool:
        return self._session.transaction is not None

    async def post_large(self, message: Outgoing) -> Posted:
        """Send a prepared message whose content the server may come to lack."""
        sender = self._sender
        if not sender.is_open or self._is_closed:
            sender = await self._admitted()
        posted = Posted(sender)
        sender.put_urgent(message, posted)
        return posted

    async def go_on_behind(self, posted: Posted, reference: LargeReference | None) -> None:
        """The server has the content of a message that it lacked; or, None, the message itself."""
        if reference is not None:
            posted.sender.lane.refer(posted, encode_reference(reference))
        await self._session.go_on_behind(posted)

    def leave(self, posted: Posted) -> None:
        """Nobody waits for a message any more. If it still lacks its content, its lane ends here."""
        posted.cancel()
        if posted.refusal is not None:
            self._session.end_lane(posted, posted.refusal)

    def prepare(
        self,
        body: Body,
        *,
        priority: int | None = None,
        persistent: bool | None = None,
        time_to_live: float | None = None,
        delay: float | None = None,
        deliver_at: float | None = None,
        unit_of_order: str | None = None,
        **headers: Unpack[Headers],
    ) -> Outgoing:
        """The message with this producer's defaults, as bytes. Raises ClientFault where it cannot travel."""
        seconds = self._time_to_live if time_to_live is None else time_to_live
        if seconds is not None and not 0 < seconds < MAX_SECONDS:
            raise ClientFault(
                f"a time to live is a positive number of seconds, not {seconds}", code="time-to-live-invalid"
            )
        return prepare(
            body,
            priority=self._priority if priority is None else priority,
            persistent=self._persistent if persistent is None else persistent,
            expiry=0 if seconds is None else self._session.clock.microseconds() + int(seconds * MICROSECONDS),
            delivery_time=0 if delay is deliver_at is self._delay is None else self._time(delay, deliver_at),
            unit_of_order=self._unit if unit_of_order is None else unit_of_order,
            **headers,
        )

    def _time(self, delay: float | None, deliver_at: float | None) -> int:
        """When a message may be delivered, in microseconds; 0: at once."""
        if delay is not None and deliver_at is not None:
            raise ClientFault(
                "a message has a delay or a time to be delivered, not both", code="delay-invalid"
            )
        if deliver_at is None:
            delay = self._delay if delay is None else delay
        seconds = delay if delay is not None else deliver_at
        assert seconds is not None, "one of them says when"
        if not 0 <= seconds < MAX_SECONDS:
            raise ClientFault(f"a delivery is 0 or more seconds away, not {seconds}", code="delay-invalid")
        if delay == 0:
            return 0
        return int(seconds * MICROSECONDS) + (self._session.clock.microseconds() if delay is not None else 0)

    async def post(
        self, message: Outgoing, on_completion: OnCompletion | None = None, timeout: float | None = None
    ) -> None:
        """Send a prepared message."""
        transaction = self._session.transaction
        if transaction is not None:
            await transaction.decided()
        sender = self._sender
        if not sender.is_open or self._is_closed:
            sender = await self._admitted_within(timeout)
        if transaction is not None and on_completion is not None:
            transaction.watch(on_completion)
            on_completion = None
        sender.put(message, on_completion)
        if message.kind or self._is_timed:
            return
        if message.unit:
            sender.lane.open_ordered_gate(self._gate, self._priority, self._persistent)
        elif not self._unit:
            sender.lane.open_gate(self._gate, self._priority, self._persistent)

    async def post_confirmed(self, message: Outgoing) -> str:
        """Send a prepared message and wait for the server's yes."""
        if self._session.transaction is not None:
            raise ClientFault(
                "in a transacted session messages are confirmed by commit(): use send()", code="transacted"
            )
        sender = self._sender
        if not sender.is_open or self._is_closed:
            sender = await self._admitted()
        receipt: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        sender.put_urgent(message, receipt)
        return await receipt

    async def _admitted_within(self, timeout: float | None) -> Sender:
        try:
            async with asyncio.timeout(timeout):
                return await self._admitted()
        except TimeoutError:
            raise Unavailable(
                f"{self.destination} took no message for {timeout:g} s: try again later", code="send-timeout"
            ) from None

    async def _admitted(self) -> Sender:
        """Wait for room; leave a finished lane for a fresh one, raising once what it still has to tell."""
        while True:
            if self._is_closed:
                raise ClientFault(f"the producer to {self.destination} is closed", code="closed")
            sender = self._sender
            await sender.wait_for_room()
            if not sender.is_finished:
                return sender
            self._hear_fault()
            fresh = await self._session.sender_for(sender.destination)
            if self._sender is sender:
                self._former = [former for former in (*self._former, sender) if former.lane.unconfirmed]
                self._sender = fresh
                self._has_heard = False

    def _hear_fault(self) -> None:
        if self._sender.is_finished and not self._has_heard:
            self._has_heard = True
            fault = self._sender.hear_fault()
            if fault is not None:
                raise fault

    async def flush(self) -> None:
        """Wait until everything sent so far is confirmed. Raises, once, what was refused."""
        self._hear_fault()
        for sender in (*self._former, self._sender):
            try:
                await sender.drained()
            except HeliographError:
                if sender is self._sender and sender.is_finished:
                    self._has_heard = True
                    sender.hear_fault()
                raise
        self._former.clear()

    async def close(self) -> None:
        """Flush, and send no more."""
        if not self._is_closed:
            self._is_closed = True
            self._sender.lane.shut_gate()
            await self.flush()

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if kind is None:
            await self.close()
        else:
            self._is_closed = True
            self._sender.lane.shut_gate()
            self._sender.push()
