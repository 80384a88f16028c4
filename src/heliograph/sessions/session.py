"""One client's conversation: its lanes, its consumers, what it may do (M1, M4).

The session checks what the client asks, translates the client's small numbers into ids that hold everywhere,
and passes the command on to the destination. It keeps nothing that must survive it: sequence marks and
messages live with the message managers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from heliograph.bus.commands import (
    Answered,
    Confirmed,
    ConsumerAttached,
    ConsumerDetached,
    CreditGranted,
    DestinationWanted,
    Dispatched,
    Published,
    Refused,
    Rejected,
    Settled,
)
from heliograph.model.destination import Address, parse_address
from heliograph.model.errors import ClientFault, HeliographError
from heliograph.model.ids import ConsumerId, IdIssuer, LaneId, SessionId, lane_number, lane_of
from heliograph.model.limits import (
    MAX_CONSUMER_NUMBER,
    MAX_CONSUMERS_PER_SESSION,
    MAX_CREDIT,
    MAX_LANES_PER_SESSION,
)
from heliograph.sessions import commands
from heliograph.sessions.access import AccessControl, Identity, Right, is_reserved
from heliograph.sessions.commands import (
    AnyCommand,
    AnySessionEffect,
    Confirm,
    Deliver,
    Done,
    EndConsumer,
    Fail,
    GrantCredit,
    LaneReady,
    Multicast,
    OpenLane,
    Publish,
    RefuseLane,
    SettlementStored,
    Subscribe,
    Unsubscribe,
)

FromBus = Confirmed | Refused | Dispatched | Answered | Rejected


class _Consumer(msgspec.Struct, gc=False):
    identity: ConsumerId
    address: Address
    number: int


class _Request(msgspec.Struct, gc=False):
    """What a request on the bus was for."""

    purpose: type
    request: int
    number: int
    address: Address


class Session:
    """A session as its client manager holds it."""

    def __init__(
        self,
        identity: SessionId,
        *,
        user: Identity,
        access: AccessControl,
        issuer: IdIssuer,
        next_request: Callable[[], int],
        create_on_first_use: bool,
    ) -> None:
        self.identity = identity
        self.user = user
        self._access = access
        self._issuer = issuer
        self._next_request = next_request
        self._create = create_on_first_use
        self._lanes: dict[LaneId, Address] = {}
        self._consumers: dict[int, _Consumer] = {}
        self._numbers: dict[ConsumerId, int] = {}
        self._requests: dict[int, _Request] = {}
        self._handlers: dict[type, Callable[..., list[AnySessionEffect]]] = {
            Publish: self._publish,
            commands.Settle: self._settle,
            GrantCredit: self._grant,
            Dispatched: self._dispatched,
            Confirmed: self._confirmed,
            OpenLane: self._open_lane,
            Subscribe: self._subscribe,
            Unsubscribe: self._unsubscribe,
            Refused: self._refused,
            Answered: self._answered,
            Rejected: self._rejected,
        }

    def handle(self, event: AnyCommand | FromBus) -> list[AnySessionEffect]:
        """Raises ClientFault where the client broke the protocol beyond repair: the connection ends."""
        return self._handlers[type(event)](event)

    # ---- sending

    def _publish(self, command: Publish) -> list[AnySessionEffect]:
        block = command.block
        address = self._lanes.get(block.lane)
        if address is None:
            raise ClientFault("a block came on a lane that is not open in this session", code="lane-unknown")
        return [Multicast(Published(address, block, command.resent))]

    def _open_lane(self, command: OpenLane) -> list[AnySessionEffect]:
        try:
            address = self._checked(command.destination, Right.SEND)
            if not 0 < command.lane <= MAX_LANES_PER_SESSION:
                raise ClientFault(f"lanes are numbered 1 to {MAX_LANES_PER_SESSION}", code="lane-invalid")
            lane = lane_of(self.identity, command.lane)
            if self._lanes.get(lane, address) != address:
                # A lane and a sequence name one message for ever (M5).
                raise ClientFault(f"lane {command.lane} leads elsewhere: open another", code="lane-exists")
        except HeliographError as error:
            return [Fail(command.request, error.code, error.sentence)]
        request = self._ask(OpenLane, command.request, command.lane, address)
        return [Multicast(DestinationWanted(request, address, self._may_create(address), lane))]

    def restore_lanes(self, lanes: list[tuple[int, str, int]]) -> list[tuple[int, str, int]]:
        """The lanes of a resumed session, without those that its user may not use any more."""
        kept = [
            (number, address, last)
            for number, address, last in lanes
            if self._access.allows(self.user, Right.SEND, address)
        ]
        for number, address, _ in kept:
            self._lanes[lane_of(self.identity, number)] = Address(address)
        return kept

    def _confirmed(self, decision: Confirmed) -> list[AnySessionEffect]:
        return [Confirm(lane_number(decision.lane), decision.last)]

    def _refused(self, decision: Refused) -> list[AnySessionEffect]:
        # Blocks that are under way on the lane are still accepted here, and ignored by the destination.
        return [RefuseLane(lane_number(decision.lane), decision.first, decision.code, decision.sentence)]

    # ---- receiving

    def _subscribe(self, command: Subscribe) -> list[AnySessionEffect]:
        try:
            address = self._checked(command.destination, Right.RECEIVE)
            if not 0 <= command.consumer <= MAX_CONSUMER_NUMBER:
                raise ClientFault(
                    f"consumers are numbered 0 to {MAX_CONSUMER_NUMBER}", code="consumer-invalid"
                )
            if command.consumer in self._consumers:
                raise ClientFault(f"consumer {command.consumer} is there already", code="consumer-exists")
            if len(self._consumers) >= MAX_CONSUMERS_PER_SESSION:
                raise ClientFault(
                    f"a session has at most {MAX_CONSUMERS_PER_SESSION} consumers", code="too-many-consumers"
                )
            if not 0 <= command.credit <= MAX_CREDIT:
                raise ClientFault(f"credit is 0 to {MAX_CREDIT}, not {command.credit}", code="credit-invalid")
        except HeliographError as error:
            return [Fail(command.request, error.code, error.sentence)]
        consumer = _Consumer(self._issuer.consumer(), address, command.consumer)
        self._consumers[command.consumer] = consumer
        self._numbers[consumer.identity] = command.consumer
        request = self._ask(Subscribe, command.request, command.consumer, address)
        attached = ConsumerAttached(
            request, address, consumer.identity, self.identity, command.credit, self._may_create(address)
        )
        return [Multicast(attached)]

    def _unsubscribe(self, command: Unsubscribe) -> list[AnySessionEffect]:
        consumer = self._drop(command.consumer)
        if consumer is None:
            return [Fail(command.request, "consumer-unknown", f"there is no consumer {command.consumer}")]
        request = self._ask(Unsubscribe, command.request, command.consumer, consumer.address)
        return [Multicast(ConsumerDetached(consumer.address, consumer.identity, request))]

    def _drop(self, number: int) -> _Consumer | None:
        consumer = self._consumers.pop(number, None)
        if consumer is not None:
            del self._numbers[consumer.identity]
        return consumer

    def _grant(self, command: GrantCredit) -> list[AnySessionEffect]:
        consumer = self._consumers.get(command.consumer)
        if consumer is None:
            return []  # ended while this was under way
        if command.count > MAX_CREDIT:
            raise ClientFault(f"credit is at most {MAX_CREDIT}, not {command.count}", code="credit-invalid")
        return [Multicast(CreditGranted(consumer.address, consumer.identity, command.count))]

    def _settle(self, command: commands.Settle) -> list[AnySessionEffect]:
        consumer = self._consumers.get(command.consumer)
        if consumer is None:
            # Ended while this was under way: its messages are back at the destination, and that is no
            # confirmation.
            sentence = "the consumer is gone, and what it had went back"
            return [EndConsumer(command.consumer, "consumer-unknown", sentence)] if command.confirm else []
        request = 0
        if command.confirm:
            request = self._ask(commands.Settle, 0, command.consumer, consumer.address)
        settled = Settled(
            consumer.address, consumer.identity, command.returned, command.ranges, command.replenish, request
        )
        return [Multicast(settled)]

    def _dispatched(self, decision: Dispatched) -> list[AnySessionEffect]:
        number = self._numbers.get(decision.consumer)
        if number is None:
            return []  # ended meanwhile; the destination has the messages back
        return [Deliver(number, decision.tag, decision.span, decision.user)]

    def owns(self, consumer: ConsumerId) -> bool:
        return consumer in self._numbers

    # ---- requests

    def _ask(self, purpose: type, request: int, number: int, address: Address) -> int:
        identity = self._next_request()
        self._requests[identity] = _Request(purpose, request, number, address)
        return identity

    def awaits(self, request: int) -> bool:
        return request in self._requests

    def _answered(self, answer: Answered) -> list[AnySessionEffect]:
        asked = self._requests.pop(answer.request, None)
        if asked is None:
            return []  # the session ended while this was under way
        if asked.purpose is OpenLane:
            self._lanes[lane_of(self.identity, asked.number)] = asked.address
            return [LaneReady(asked.request, answer.body["last"])]
        if asked.purpose is commands.Settle:
            return [SettlementStored(asked.number)]
        return [Done(asked.request)]

    def _rejected(self, answer: Rejected) -> list[AnySessionEffect]:
        asked = self._requests.pop(answer.request, None)
        if asked is None:
            return []  # the session ended while this was under way
        failed = Fail(asked.request, answer.code, answer.sentence)
        if asked.purpose is Subscribe:
            consumer = self._drop(asked.number)
            if consumer is not None:
                return [Multicast(ConsumerDetached(consumer.address, consumer.identity)), failed]
        if asked.purpose is commands.Settle:
            return self._end_consumer(asked.number, answer)
        return [failed]

    def _end_consumer(self, number: int, answer: Rejected) -> list[AnySessionEffect]:
        """Client and destination disagree about what is outstanding: the destination gets all of it back."""
        consumer = self._drop(number)
        if consumer is None:
            return []
        detached = ConsumerDetached(consumer.address, consumer.identity)
        return [Multicast(detached), EndConsumer(number, answer.code, answer.sentence)]

    def _checked(self, destination: str, right: Right) -> Address:
        """The address, if there can be such a destination and the user has the right there."""
        # Access control remembers what it decided, so it must never see a name without a bound.
        parse_address(destination, system=True)
        # What a well-known destination admits is decided by access control; any other name with `_` is
        # nobody's.
        address = parse_address(destination, system=self._access.allows(self.user, right, destination))
        self._access.check(self.user, right, address)
        return address

    def _may_create(self, address: Address) -> bool:
        if is_reserved(address):
            return False
        return self._create and self._access.allows(self.user, Right.CREATE, address)

    # ---- the end

    def farewell(self) -> Iterator[ConsumerDetached]:
        """The connection is gone: every consumer leaves, and what it had returns."""
        for consumer in self._consumers.values():
            yield ConsumerDetached(consumer.address, consumer.identity)
        self._consumers.clear()
        self._numbers.clear()
        self._requests.clear()
