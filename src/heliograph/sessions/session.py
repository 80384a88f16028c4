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
    BrowseEnded,
    CommitAsked,
    Confirmed,
    ConsumerAttached,
    ConsumerDetached,
    CreditGranted,
    DestinationDeleted,
    DestinationWanted,
    Dispatched,
    Published,
    Refused,
    Rejected,
    RollbackAsked,
    Settled,
    SubscriptionEnded,
)
from heliograph.model.destination import TEMPORARY_PREFIX, Address, Kind, name_of, parse_address
from heliograph.model.errors import ClientFault, HeliographError, NotAllowed
from heliograph.model.ids import ConsumerId, IdIssuer, LaneId, SessionId, lane_number, lane_of, text_of
from heliograph.model.limits import (
    MAX_CONSUMER_NUMBER,
    MAX_CONSUMERS_PER_SESSION,
    MAX_CREDIT,
    MAX_LANES_PER_SESSION,
    MAX_TEMPORARIES_PER_CONNECTION,
)
from heliograph.model.selector import parse_selector
from heliograph.sessions import commands
from heliograph.sessions.access import AccessControl, Identity, Right, is_reserved
from heliograph.sessions.commands import (
    AnyCommand,
    AnySessionEffect,
    Commit,
    Confirm,
    DeleteTemporary,
    Deliver,
    Done,
    EndBrowse,
    EndConsumer,
    EndSubscription,
    Fail,
    GrantCredit,
    LaneReady,
    MakeTemporary,
    Multicast,
    OpenLane,
    Publish,
    Recover,
    RefuseLane,
    Rollback,
    SettlementStored,
    Subscribe,
    Tell,
    Unsubscribe,
)

FromBus = Confirmed | Refused | Dispatched | BrowseEnded | Answered | Rejected


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


class ConnectionFacts:
    """What the sessions of one connection share: who it says it is, and its temporary destinations."""

    def __init__(self, identity: bytes, client_id: str) -> None:
        self.identity = identity
        self.client_id = client_id
        self.temporaries: dict[Address, None] = {}
        self._made = 0

    def new_temporary(self, kind: Kind) -> Address:
        self._made += 1
        address = Address(f"{kind}:{TEMPORARY_PREFIX}{text_of(self.identity)}.{self._made}")
        self.temporaries[address] = None
        return address


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
        connection: ConnectionFacts,
    ) -> None:
        self.identity = identity
        self.user = user
        self._access = access
        self._issuer = issuer
        self._next_request = next_request
        self._create = create_on_first_use
        self._connection = connection
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
            EndSubscription: self._end_subscription,
            Recover: self._recover,
            Commit: self._commit,
            Rollback: self._rollback,
            MakeTemporary: self._make_temporary,
            DeleteTemporary: self._delete_temporary,
            Refused: self._refused,
            BrowseEnded: self._browse_ended,
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
        return [Multicast(Published(address, block, command.resent, command.staged))]

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
            address = self._checked(command.destination, Right.BROWSE if command.browse else Right.RECEIVE)
            parse_selector(command.selector)
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
            request,
            address,
            consumer.identity,
            self.identity,
            command.credit,
            self._may_create(address),
            command.selector,
            command.subscription,
            self._connection.client_id,
            command.durable,
            command.shared,
            command.no_local,
            command.browse,
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
            gone = EndConsumer(
                command.consumer, "consumer-unknown", "the consumer is gone, and what it had went back"
            )
            return [gone] if command.confirm else []
        request = 0
        if command.confirm:
            request = self._ask(commands.Settle, 0, command.consumer, consumer.address)
        settled = Settled(
            consumer.address,
            consumer.identity,
            command.returned,
            command.ranges,
            command.replenish,
            request,
            command.error,
        )
        return [Multicast(settled)]

    def _dispatched(self, decision: Dispatched) -> list[AnySessionEffect]:
        number = self._numbers.get(decision.consumer)
        if number is None:
            return []  # ended meanwhile; the destination has the messages back
        return [Deliver(number, decision.tag, decision.span, decision.user)]

    def _browse_ended(self, decision: BrowseEnded) -> list[AnySessionEffect]:
        number = self._numbers.get(decision.consumer)
        return [] if number is None else [EndBrowse(number)]

    def _recover(self, command: Recover) -> list[AnySessionEffect]:
        # A rollback of no transaction: everything returns before the answer, which comes before anything is
        # handed out again.
        return self._roll_back(0, self._ask(Recover, command.request, 0, Address("")))

    def _end_subscription(self, command: EndSubscription) -> list[AnySessionEffect]:
        request = self._ask(EndSubscription, command.request, 0, Address(""))
        return [Multicast(SubscriptionEnded(request, self._connection.client_id, command.subscription))]

    # ---- transactions

    def _commit(self, command: Commit) -> list[AnySessionEffect]:
        consumed = []
        for number, ranges in command.consumed:
            consumer = self._consumers.get(number)
            if consumer is None:
                # What it had went back; but where this is asked again, it may have been decided before.
                consumed.append((Address(""), ConsumerId(b""), ranges))
            else:
                consumed.append((consumer.address, consumer.identity, ranges))
        request = self._ask(Commit, command.request, command.transaction, Address(""))
        asked = CommitAsked(request, self.identity, command.transaction, command.messages, consumed)
        return [Multicast(asked)]

    def _rollback(self, command: Rollback) -> list[AnySessionEffect]:
        request = self._ask(Rollback, command.request, command.transaction, Address(""))
        return self._roll_back(command.transaction, request)

    def _roll_back(self, transaction: int, request: int) -> list[AnySessionEffect]:
        consumers = [(consumer.address, consumer.identity) for consumer in self._consumers.values()]
        return [Multicast(RollbackAsked(request, self.identity, transaction, consumers))]

    # ---- temporary destinations

    def _make_temporary(self, command: MakeTemporary) -> list[AnySessionEffect]:
        if command.kind not in tuple(Kind):
            return [
                Fail(command.request, "invalid-destination", "a temporary destination is a queue or a topic")
            ]
        if len(self._connection.temporaries) >= MAX_TEMPORARIES_PER_CONNECTION:
            sentence = f"a connection has at most {MAX_TEMPORARIES_PER_CONNECTION} temporary destinations"
            return [Fail(command.request, "too-many-destinations", sentence)]
        address = self._connection.new_temporary(Kind(command.kind))
        request = self._ask(MakeTemporary, command.request, 0, address)
        # Nobody sends on lane 0: it only makes the destination.
        return [Multicast(DestinationWanted(request, address, True, lane_of(self.identity, 0)))]

    def _delete_temporary(self, command: DeleteTemporary) -> list[AnySessionEffect]:
        address = Address(command.destination)
        if address not in self._connection.temporaries:
            return [
                Fail(command.request, "not-allowed", "that is no temporary destination of this connection")
            ]
        if any(consumer.address == address for consumer in self._consumers.values()):
            return [Fail(command.request, "destination-in-use", "it has a consumer: close it first")]
        del self._connection.temporaries[address]
        return [Multicast(DestinationDeleted(address)), Done(command.request)]

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
        if asked.purpose is MakeTemporary:
            return [Tell(asked.request, {"destination": asked.address})]
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
        address = parse_address(destination, system=True)
        if name_of(address).startswith(TEMPORARY_PREFIX):
            return self._checked_temporary(address, right)
        # What a well-known destination admits is decided by access control; any other name with `_` is
        # nobody's.
        address = parse_address(destination, system=self._access.allows(self.user, right, destination))
        self._access.check(self.user, right, address)
        return address

    def _checked_temporary(self, address: Address, right: Right) -> Address:
        """Everybody may answer to a temporary destination; only the connection that made it may receive
        (J9)."""
        if right is not Right.SEND and address not in self._connection.temporaries:
            raise NotAllowed(f"{address} belongs to another connection")
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
