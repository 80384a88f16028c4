"""Sending to a distributed destination (U6): each message goes on the lane to the member of its unit of order.

A `DistributedProducer` has a producer for each member and decides which one is meant, nothing else. A member that
cannot be reached is an error for its units (`OrderBroken`) and nothing to anybody else's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack, cast

from heliograph.client.large_source import StreamSource
from heliograph.client.preparing import MessageOptions, OnCompletion, Outgoing, ProducerOptions, SendOptions
from heliograph.client.producer import Producer
from heliograph.client.routes import Route
from heliograph.model.distribution import UNREACHABLE, member_of
from heliograph.model.errors import ClientFault, HeliographError, Unavailable
from heliograph.model.limits import LARGE_THRESHOLD_BYTES
from heliograph.model.message import Body
from heliograph.model.units import NO_UNIT, unit_for_value, unit_number

if TYPE_CHECKING:
    from heliograph.client.sender import Sender
    from heliograph.client.session import Session


class DistributedProducer(Producer):
    """As `Producer`, to whichever member the unit of a message belongs to."""

    def __init__(self, session: Session, route: Route, **options: Unpack[ProducerOptions]) -> None:
        self._route = route
        self._options = options
        self._producers: dict[str, Producer] = {}  # by member
        # It has no lane of its own: everything that would use one is replaced below.
        super().__init__(session, cast("Sender", None), **options)

    # ---- which member

    async def open_members(self) -> None:
        """Ways to all members that can be reached, so that the first message does not have to wait for one."""
        for member in self._route.distribution.members:
            try:
                await self._at(member)
            except HeliographError as refusal:
                if refusal.code != UNREACHABLE:
                    raise

    async def _at(self, member: str) -> Producer:
        """Raises OrderBroken if it cannot be reached."""
        producer = self._producers.get(member)
        if producer is None:
            sender = await self._session.sender_for(member_of(self.destination, member))
            made = Producer(self._session, sender, **self._options)
            producer = self._producers.setdefault(member, made)
        return producer

    async def _for_unit(self, unit: int, timeout: float | None = None) -> Producer:
        if self._is_closed:
            raise ClientFault(f"the producer to {self.destination} is closed", code="closed")
        try:
            async with asyncio.timeout(timeout):
                return await self._at(await self._route.member_for(unit))
        except TimeoutError:
            raise Unavailable(
                f"{self.destination} took no message for {timeout:g} s: try again later", code="send-timeout"
            ) from None

    async def _for_options(
        self, options: SendOptions | MessageOptions, timeout: float | None = None
    ) -> Producer:
        self._name_unit(cast(dict[str, Any], options))
        name = options.get("unit_of_order")
        if name is None:
            name = self._unit
        return await self._for_unit(unit_number(name) if name else NO_UNIT, timeout)

    def _at_once(self, options: SendOptions) -> Producer | None:
        """The producer for a message if everything about it is known: the usual case, and the quick one."""
        route = self._route
        if not route.is_known or route.unit_property or self._is_closed:
            return None
        name = options.get("unit_of_order") if options else None
        if name is None:
            name = self._unit
        return self._producers.get(route.known_member(unit_number(name) if name else NO_UNIT))

    def _name_unit(self, options: dict[str, Any]) -> None:
        """Where a property is the unit of what says nothing else, it is said: the member would conclude the same, but
        only after the message has got there."""
        wanted = self._route.unit_property
        if wanted and not self._unit and options.get("unit_of_order") is None:
            properties: Mapping[str, object] = options.get("properties") or {}
            name = unit_for_value(properties.get(wanted))
            if name:
                options["unit_of_order"] = name

    # ---- what a producer does

    @property
    def destination(self) -> str:
        return self._route.destination

    @property
    def unit_of_order(self) -> str | None:
        """Messages of one unit go to one member and are processed one after the other, whoever sends them."""
        return self._unit

    @unit_of_order.setter
    def unit_of_order(self, name: str | None) -> None:
        if name:
            unit_number(name)  # refuses what is no name
        self._unit = self._options["unit_of_order"] = name
        for producer in self._producers.values():
            producer.unit_of_order = name

    @property
    def unconfirmed(self) -> int:
        return sum(producer.unconfirmed for producer in self._producers.values())

    @property
    def is_blocked(self) -> bool:
        """Whether a member wants us to wait: a `send` of one of its units would."""
        return any(producer.is_blocked for producer in self._producers.values())

    async def send(self, body: Body, **options: Unpack[SendOptions]) -> None:
        """Send to the member of the message's unit; see `Producer.send`. Raises OrderBroken if it is away."""
        producer = self._at_once(options) or await self._for_options(options, options.get("timeout"))
        await producer.send(body, **options)

    async def try_send(self, body: Body, **options: Unpack[SendOptions]) -> bool:
        if not self._route.is_known:
            return False
        producer = await self._for_options(options)
        return await producer.try_send(body, **options)

    async def send_confirmed(self, body: Body, **options: Unpack[MessageOptions]) -> str:
        producer = await self._for_options(options)
        return await producer.send_confirmed(body, **options)

    async def send_stream(
        self,
        source: StreamSource,
        *,
        threshold: int = LARGE_THRESHOLD_BYTES,
        **options: Unpack[MessageOptions],
    ) -> str:
        producer = await self._for_options(options)
        return await producer.send_stream(source, threshold=threshold, **options)

    def prepare(self, body: Body, **options: Any) -> Outgoing:
        self._name_unit(options)
        return super().prepare(body, **options)

    async def post(
        self, message: Outgoing, on_completion: OnCompletion | None = None, timeout: float | None = None
    ) -> None:
        producer = await self._for_unit(message.unit, timeout)
        await producer.post(message, on_completion, timeout)

    async def post_confirmed(self, message: Outgoing) -> str:
        producer = await self._for_unit(message.unit)
        return await producer.post_confirmed(message)

    async def post_streamed(self, message: Outgoing) -> str:
        producer = await self._for_unit(message.unit)
        return await producer.post_streamed(message)

    async def flush(self) -> None:
        """Wait until everything sent so far is confirmed, by every member. Raises, once, what was refused."""
        fault: HeliographError | None = None
        for producer in list(self._producers.values()):
            try:
                await producer.flush()
            except HeliographError as error:
                fault = fault or error
        if fault is not None:
            raise fault

    async def close(self) -> None:
        """Flush, and send no more."""
        if not self._is_closed:
            self._is_closed = True
            self._shut_gate()
            await self.flush()

    def _shut_gate(self) -> None:
        for producer in self._producers.values():
            producer.shut_gate()

    async def __aexit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        if kind is None:
            await self.close()
            return
        self._is_closed = True
        for producer in self._producers.values():
            await producer.__aexit__(kind, *rest)
