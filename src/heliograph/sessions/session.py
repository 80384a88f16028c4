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
    ChunkRead,
    CommitAsked,
    Confirmed,
    ConsumerAttached,
    ConsumerDetached,
    ConsumerRetired,
    CreditGranted,
    DestinationDeleted,
    DestinationGone,
    DestinationMade,
    DestinationWanted,
    Dispatched,
    FlowChanged,
    Published,
    Refused,
    Rejected,
    RollbackAsked,
    Settled,
    SubscriptionEnded,
    TopicsWanted,
    TransferFailed,
    UploadAdvanced,
)
from heliograph.model.destination import TEMPORARY_PREFIX, Address, Kind, kind_of, name_of, parse_address
from heliograph.model.errors import ClientFault, HeliographError, NotAllowed
from heliograph.model.ids import ConsumerId, IdIssuer, LaneId, SessionId, lane_number, lane_of, text_of
from heliograph.model.limits import (
    MAX_CONSUMER_NUMBER,
    MAX_CONSUMERS_PER_SESSION,
    MAX_CREDIT,
    MAX_LANES_PER_SESSION,
    MAX_TEMPORARIES_PER_CONNECTION,
    MAX_WILDCARD_TOPICS,
)
from heliograph.model.patterns import Pattern, parse_pattern
from heliograph.model.selector import parse_selector
from heliograph.sessions import commands
from heliograph.sessions.access import AccessControl, Identity, Right, is_reserved
from heliograph.sessions.commands import (
    AnyCommand,
    AnySessionEffect,
    BeginFetch,
    BeginUpload,
    Commit,
    Confirm,
    DeleteTemporary,
    Deliver,
    Done,
    EndBrowse,
    EndConsumer,
    EndSubscription,
    EndUpload,
    Fail,
    GrantCredit,
    LaneReady,
    MakeTemporary,
    Multicast,
    OpenLane,
    Publish,
    Recover,
    RefuseLane,
    Retire,
    Rollback,
    SettlementStored,
    Subscribe,
    Tell,
    Unsubscribe,
)
from heliograph.sessions.flow import Blocks
from heliograph.sessions.transfers import Transfers
from heliograph.sessions.wildcard import Attachment, Wildcard

FromBus = (
    Confirmed
    | Refused
    | Dispatched
    | BrowseEnded
    | DestinationMade
    | DestinationGone
    | FlowChanged
    | UploadAdvanced
    | ChunkRead
    | TransferFailed
    | Answered
    | Rejected
)


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
        self.temporaries: dict[Address, int] = {}  # with the number of their consumers, over all sessions
        self._made = 0

    @property
    def names(self) -> tuple[bytes, str]:
        """What its messages are known by: no-local subscriptions leave them out."""
        return self.identity, self.client_id

    def new_temporary(self, kind: Kind) -> Address:
        self._made += 1
        address = Address(f"{kind}:{TEMPORARY_PREFIX}{text_of(self.identity)}.{self._made}")
        self.temporaries[address] = 0
        return address

    def count_consumer(self, address: Address, change: int) -> None:
        if address in self.temporaries:
            self.temporaries[address] += change


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
        self._blocks = Blocks()
        self._wildcards: dict[int, Wildcard] = {}
        self._attachments: dict[ConsumerId, Wildcard] = {}
        self._transfers = Transfers(identity)
        self._handlers: dict[type, Callable[..., list[AnySessionEffect]]] = {
            Publish: self._publish,
            commands.Settle: self._settle,
            GrantCredit: self._grant,
            Dispatched: self._dispatched,
            Confirmed: self._confirmed,
            OpenLane: self._open_lane,
            Subscribe: self._subscribe,
            Unsubscribe: self._unsubscribe,
            Retire: self._retire,
            EndSubscription: self._end_subscription,
            Recover: self._recover,
            Commit: self._commit,
            Rollback: self._rollback,
            MakeTemporary: self._make_temporary,
            DeleteTemporary: self._delete_temporary,
            Refused: self._refused,
            BrowseEnded: self._browse_ended,
            DestinationMade: self._destination_made,
            DestinationGone: self._destination_gone,
            FlowChanged: self._flow_changed,
            Answered: self._answered,
            Rejected: self._rejected,
            BeginUpload: self._begin_upload,
            EndUpload: self._end_upload,
            BeginFetch: self._begin_fetch,
            **self._transfers.handlers(),
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
            if parse_pattern(command.destination) is not None:
                raise ClientFault("messages are sent to one topic, not to a pattern", code="pattern-invalid")
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

    def restore_blocks(self, blocked: dict[str, str]) -> list[AnySessionEffect]:
        """What holds for the lanes of a resumed session."""
        addresses = dict.fromkeys(self._lanes.values())
        return [
            told for address in addresses for told in self._blocks.opened(address, blocked.get(address, ""))
        ]

    def _flow_changed(self, news: FlowChanged) -> list[AnySessionEffect]:
        return [*self._blocks.changed(news)]

    def _confirmed(self, decision: Confirmed) -> list[AnySessionEffect]:
        return [Confirm(lane_number(decision.lane), decision.last)]

    def _refused(self, decision: Refused) -> list[AnySessionEffect]:
        # Blocks that are under way on the lane are still accepted here, and ignored by the destination.
        return [RefuseLane(lane_number(decision.lane), decision.first, decision.code, decision.sentence)]

    # ---- receiving

    def _subscribe(self, command: Subscribe) -> list[AnySessionEffect]:
        try:
            pattern = parse_pattern(command.destination)
            if pattern is not None:
                return self._subscribe_to_many(command, pattern)
            address = self._checked(command.destination, Right.BROWSE if command.browse else Right.RECEIVE)
            if (command.durable or command.shared) and kind_of(address) is Kind.QUEUE:
                raise ClientFault(
                    "a queue has no subscriptions: durable and shared are for topics",
                    code="subscription-invalid",
                )
            self._check_new_consumer(command)
        except HeliographError as error:
            return [Fail(command.request, error.code, error.sentence)]
        consumer = _Consumer(self._issuer.consumer(), address, command.consumer)
        self._connection.count_consumer(address, 1)
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
            command.prompt,
        )
        return [Multicast(attached)]

    def _check_new_consumer(self, command: Subscribe) -> None:
        parse_selector(command.selector)
        if not 0 <= command.consumer <= MAX_CONSUMER_NUMBER:
            raise ClientFault(f"consumers are numbered 0 to {MAX_CONSUMER_NUMBER}", code="consumer-invalid")
        if command.consumer in self._consumers or command.consumer in self._wildcards:
            raise ClientFault(f"consumer {command.consumer} is there already", code="consumer-exists")
        if len(self._consumers) + len(self._wildcards) >= MAX_CONSUMERS_PER_SESSION:
            raise ClientFault(
                f"a session has at most {MAX_CONSUMERS_PER_SESSION} consumers", code="too-many-consumers"
            )
        if not 0 <= command.credit <= MAX_CREDIT:
            raise ClientFault(f"credit is 0 to {MAX_CREDIT}, not {command.credit}", code="credit-invalid")

    # ---- consumers of many topics

    def _subscribe_to_many(self, command: Subscribe, pattern: Pattern) -> list[AnySessionEffect]:
        """Raises ClientFault. The client is answered when all topics that exist have been."""
        if command.durable or command.shared or command.browse:
            raise ClientFault(
                "a subscription to a pattern is neither durable nor shared, and nothing can be browsed there",
                code="subscription-invalid",
            )
        self._check_new_consumer(command)
        wildcard = self._wildcards[command.consumer] = Wildcard(
            command.consumer,
            pattern,
            credit=command.credit,
            selector=command.selector,
            no_local=command.no_local,
        )
        wildcard.request = command.request
        request = self._ask(Wildcard, command.request, command.consumer, Address(""))
        return [Multicast(TopicsWanted(request, str(pattern)))]

    def _topics_found(self, asked: _Request, topics: list[Address]) -> list[AnySessionEffect]:
        wildcard = self._wildcards.get(asked.number)
        if wildcard is None:
            return [Done(asked.request)]  # ended meanwhile
        effects = self._attach(wildcard, topics)
        return effects or self._attached(wildcard)

    def _attach(self, wildcard: Wildcard, topics: list[Address]) -> list[AnySessionEffect]:
        """To those that it wants and its user may receive from; of others nothing is said."""
        effects: list[AnySessionEffect] = []
        for address in topics:
            if not wildcard.wants(address) or not self._access.allows(self.user, Right.RECEIVE, address):
                continue
            if len(wildcard) >= MAX_WILDCARD_TOPICS:
                sentence = f"the pattern means more than {MAX_WILDCARD_TOPICS} topics: choose a narrower one"
                ended = self._end_wildcard(wildcard, code="too-many-topics", sentence=sentence)
                return [*effects, *ended]
            identity = self._issuer.consumer()
            wildcard.attach(identity, address)
            wildcard.attaching += 1
            self._attachments[identity] = wildcard
            request = self._ask(Attachment, 0, wildcard.number, address)
            attached = ConsumerAttached(
                request,
                address,
                identity,
                self.identity,
                wildcard.own_credit,
                create=False,
                selector=wildcard.selector,
                client=self._connection.client_id,
                no_local=wildcard.no_local,
            )
            effects.append(Multicast(attached))
        return effects

    def _attached(self, wildcard: Wildcard) -> list[AnySessionEffect]:
        """Tell the client once that everything there was is attached."""
        request, wildcard.request = wildcard.request, None
        return [] if request is None else [Done(request)]

    def _attachment_answered(self, asked: _Request, *, refused: bool) -> list[AnySessionEffect]:
        wildcard = self._wildcards.get(asked.number)
        identity = wildcard.identity_at(asked.address) if wildcard is not None else None
        if wildcard is None or identity is None:
            return []
        wildcard.attaching -= 1
        effects: list[AnySessionEffect] = []
        if refused:  # its topic is gone already, or wants nobody
            del self._attachments[identity]
            effects += [Multicast(ConsumerDetached(asked.address, identity)), *wildcard.detach(identity)]
        return effects if wildcard.attaching else [*effects, *self._attached(wildcard)]

    def _destination_made(self, news: DestinationMade) -> list[AnySessionEffect]:
        wildcards = list(self._wildcards.values())
        return [effect for wildcard in wildcards for effect in self._attach(wildcard, [news.address])]

    def _destination_gone(self, news: DestinationGone) -> list[AnySessionEffect]:
        effects: list[AnySessionEffect] = []
        for identity in news.consumers:
            detached = Multicast(ConsumerDetached(news.address, identity))
            wildcard = self._attachments.pop(identity, None)
            if wildcard is not None:
                effects += [detached, *wildcard.detach(identity)]
            elif (number := self._numbers.get(identity)) is not None:
                self._drop(number)
                sentence = f"{news.address} was deleted"
                effects += [detached, EndConsumer(number, "destination-deleted", sentence)]
        return effects

    def _drop_wildcard(self, wildcard: Wildcard) -> list[AnySessionEffect]:
        del self._wildcards[wildcard.number]
        for identity in wildcard.identities():
            self._attachments.pop(identity, None)
        return [Multicast(detached) for detached in wildcard.farewell()]

    def _end_wildcard(self, wildcard: Wildcard, *, code: str, sentence: str) -> list[AnySessionEffect]:
        effects = self._drop_wildcard(wildcard)
        if wildcard.request is not None:
            return [*effects, Fail(wildcard.request, code, sentence)]
        return [*effects, EndConsumer(wildcard.number, code, sentence)]

    def _settle_wildcard(self, wildcard: Wildcard, command: commands.Settle) -> list[AnySessionEffect]:
        """Nothing of it is on disk, so what is settled is stored."""
        effects, fault = wildcard.settle(command)
        if not command.confirm:
            return effects
        if fault is not None:
            return [*effects, *self._end_wildcard(wildcard, code=fault.code, sentence=fault.sentence)]
        return [*effects, SettlementStored(command.consumer)]

    # ---- consumers of one destination

    def _unsubscribe(self, command: Unsubscribe) -> list[AnySessionEffect]:
        wildcard = self._wildcards.get(command.consumer)
        if wildcard is not None:
            return [*self._drop_wildcard(wildcard), Done(command.request)]
        consumer = self._drop(command.consumer)
        if consumer is None:
            return [Fail(command.request, "consumer-unknown", f"there is no consumer {command.consumer}")]
        request = self._ask(Unsubscribe, command.request, command.consumer, consumer.address)
        return [Multicast(ConsumerDetached(consumer.address, consumer.identity, request, command.seen))]

    def _retire(self, command: Retire) -> list[AnySessionEffect]:
        """A consumer takes nothing more and keeps what it saw until that is settled."""
        if command.consumer in self._wildcards:
            return [Done(command.request)]  # what topics send it is nobody else's
        consumer = self._consumers.get(command.consumer)
        if consumer is None:
            return [Fail(command.request, "consumer-unknown", f"there is no consumer {command.consumer}")]
        request = self._ask(Retire, command.request, command.consumer, consumer.address)
        return [Multicast(ConsumerRetired(consumer.address, consumer.identity, request, command.seen))]

    def _drop(self, number: int) -> _Consumer | None:
        consumer = self._consumers.pop(number, None)
        if consumer is not None:
            del self._numbers[consumer.identity]
            self._connection.count_consumer(consumer.address, -1)
        return consumer

    def _grant(self, command: GrantCredit) -> list[AnySessionEffect]:
        if command.count > MAX_CREDIT:
            raise ClientFault(f"credit is at most {MAX_CREDIT}, not {command.count}", code="credit-invalid")
        consumer = self._consumers.get(command.consumer)
        if consumer is None:
            wildcard = self._wildcards.get(command.consumer)
            return wildcard.grant(command.count) if wildcard is not None else []  # ended meanwhile
        return [Multicast(CreditGranted(consumer.address, consumer.identity, command.count))]

    def _settle(self, command: commands.Settle) -> list[AnySessionEffect]:
        consumer = self._consumers.get(command.consumer)
        if consumer is None:
            wildcard = self._wildcards.get(command.consumer)
            if wildcard is not None:
                return self._settle_wildcard(wildcard, command)
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
            wildcard = self._attachments.get(decision.consumer)
            # Else it ended meanwhile, and the destination has the messages back.
            return wildcard.dispatched(decision) if wildcard is not None else []
        return [Deliver(number, decision.tag, decision.span, decision.user)]

    def _browse_ended(self, decision: BrowseEnded) -> list[AnySessionEffect]:
        number = self._numbers.get(decision.consumer)
        return [] if number is None else [EndBrowse(number)]

    def _recover(self, command: Recover) -> list[AnySessionEffect]:
        # A rollback of no transaction: everything returns before the answer, which comes before anything is
        # handed out again.
        return self._roll_back(0, self._ask(Recover, command.request, 0, Address("")), command.seen)

    def _end_subscription(self, command: EndSubscription) -> list[AnySessionEffect]:
        request = self._ask(EndSubscription, command.request, 0, Address(""))
        return [Multicast(SubscriptionEnded(request, self._connection.client_id, command.subscription))]

    # ---- transactions

    def _commit(self, command: Commit) -> list[AnySessionEffect]:
        consumed = []
        released: list[AnySessionEffect] = []
        for number, ranges in command.consumed:
            consumer = self._consumers.get(number)
            wildcard = self._wildcards.get(number)
            if consumer is not None:
                consumed.append((consumer.address, consumer.identity, ranges))
                continue
            try:
                if wildcard is not None:
                    consumed += wildcard.consumed(ranges)
                    released += wildcard.after_commit()
                    continue
            except ClientFault:
                pass
            # What it had went back; but where this is asked again, it may have been decided before.
            consumed.append((Address(""), ConsumerId(b""), ranges))
        request = self._ask(Commit, command.request, command.transaction, Address(""))
        asked = CommitAsked(request, self.identity, command.transaction, command.messages, consumed)
        return [*released, Multicast(asked)]

    def _rollback(self, command: Rollback) -> list[AnySessionEffect]:
        request = self._ask(Rollback, command.request, command.transaction, Address(""))
        return self._roll_back(command.transaction, request, command.seen)

    def _roll_back(
        self, transaction: int, request: int, seen: list[tuple[int, int]]
    ) -> list[AnySessionEffect]:
        last_seen = dict(seen)
        consumers = [
            (consumer.address, consumer.identity, last_seen.get(consumer.number, -1))
            for consumer in self._consumers.values()
        ]
        for wildcard in self._wildcards.values():
            consumers += wildcard.returned(last_seen.get(wildcard.number, -1))
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
        if self._connection.temporaries[address]:
            return [Fail(command.request, "destination-in-use", "it has a consumer: close it first")]
        del self._connection.temporaries[address]
        return [Multicast(DestinationDeleted(address)), Done(command.request)]

    # ---- very large messages

    def _begin_upload(self, command: BeginUpload) -> list[AnySessionEffect]:
        try:
            address = self._checked(command.destination, Right.SEND)
            begun = self._transfers.begin_upload(
                command,
                lambda: self._ask(BeginUpload, command.request, command.transfer, address),
                address,
            )
        except HeliographError as error:
            return [Fail(command.request, error.code, error.sentence)]
        return [Multicast(begun)]

    def _end_upload(self, command: EndUpload) -> list[AnySessionEffect]:
        ended = self._transfers.end_upload(
            command, lambda: self._ask(EndUpload, command.request, command.transfer, Address(""))
        )
        return [Multicast(ended)]

    def _begin_fetch(self, command: BeginFetch) -> list[AnySessionEffect]:
        try:
            try:
                address = self._checked(command.destination, Right.RECEIVE)
            except NotAllowed:
                address = self._checked(command.destination, Right.BROWSE)
            begun = self._transfers.begin_fetch(
                command, lambda: self._ask(BeginFetch, command.request, command.transfer, address)
            )
        except HeliographError as error:
            return [Fail(command.request, error.code, error.sentence)]
        return [Multicast(begun)]

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
            body = answer.body
            blocked = self._blocks.opened(asked.address, body.get("blocked", ""))
            return [LaneReady(asked.request, body["last"]), *blocked]
        if asked.purpose is Wildcard:
            return self._topics_found(asked, answer.body["topics"])
        if asked.purpose is Attachment:
            return self._attachment_answered(asked, refused=False)
        if asked.purpose is commands.Settle:
            return [SettlementStored(asked.number)]
        if asked.purpose is BeginUpload:
            self._transfers.upload_ready(asked.number, answer.body)
            return [Tell(asked.request, answer.body)]
        if asked.purpose is EndUpload:
            self._transfers.over(asked.number)
        if asked.purpose is MakeTemporary:
            return [Tell(asked.request, {"destination": asked.address})]
        return [Done(asked.request)]

    def _rejected(self, answer: Rejected) -> list[AnySessionEffect]:
        asked = self._requests.pop(answer.request, None)
        if asked is None:
            return []  # the session ended while this was under way
        if asked.purpose is Attachment:
            return self._attachment_answered(asked, refused=True)
        failed = Fail(asked.request, answer.code, answer.sentence)
        if asked.purpose is Subscribe:
            consumer = self._drop(asked.number)
            if consumer is not None:
                return [Multicast(ConsumerDetached(consumer.address, consumer.identity)), failed]
        if asked.purpose in (BeginUpload, EndUpload, BeginFetch):
            self._transfers.over(asked.number)
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
            self._connection.count_consumer(consumer.address, -1)
            yield ConsumerDetached(consumer.address, consumer.identity)
        for wildcard in self._wildcards.values():
            yield from wildcard.farewell()
        self._wildcards.clear()
        self._attachments.clear()
        self._consumers.clear()
        self._numbers.clear()
        self._requests.clear()
