"""A session's consumers: each has a number of its client's choice, and an id that holds everywhere.

What a client says of a consumer goes to the one destination that it takes from; where the consumer takes
from many topics, to `many_topics`. What is outstanding is known to the destination, and to nobody here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from heliograph.bus.commands import (
    BrowseEnded,
    ConsumerAttached,
    ConsumerDetached,
    ConsumerRetired,
    CreditGranted,
    DestinationGone,
    DestinationMade,
    Dispatched,
    Parcelled,
    Recalled,
    Rejected,
    Settled,
)
from heliograph.model.destination import Address, Kind, kind_of, of_messages
from heliograph.model.errors import ClientFault, HeliographError
from heliograph.model.ids import ConsumerId, IdIssuer, SessionId
from heliograph.model.limits import MAX_CONSUMER_NUMBER, MAX_CREDIT
from heliograph.model.patterns import parse_pattern
from heliograph.model.selector import parse_selector
from heliograph.sessions.access import Right
from heliograph.sessions.admission import Admission
from heliograph.sessions.commands import (
    AnySessionEffect,
    Deliver,
    DeliverParcel,
    Done,
    EndBrowse,
    EndConsumer,
    Fail,
    GrantCredit,
    Multicast,
    Retire,
    Settle,
    Subscribe,
    TellDistributed,
    TellRecalled,
    Unsubscribe,
)
from heliograph.sessions.connection_facts import ConnectionFacts
from heliograph.sessions.many_topics import ManyTopics, check_for_many
from heliograph.sessions.requests import Request, Requests


class Consumer(msgspec.Struct, gc=False):
    """A consumer of one destination."""

    identity: ConsumerId
    address: Address
    number: int
    is_away: bool = False  # of a resumed session, and not claimed yet


class Resumption:
    """What is asked with a `Subscribe` that wants to go on where it was."""


class Consumers:
    """All consumers of one session, under its client's numbers."""

    def __init__(
        self,
        session: SessionId,
        connection: ConnectionFacts,
        *,
        admission: Admission,
        requests: Requests,
        issuer: IdIssuer,
    ) -> None:
        self._session = session
        self._connection = connection
        self._admission = admission
        self._requests = requests
        self._issuer = issuer
        self.many = ManyTopics(
            session, connection.client_id, admission=admission, requests=requests, issuer=issuer
        )
        self.by_number: dict[int, Consumer] = {}
        self._numbers: dict[ConsumerId, int] = {}

    def handlers(self) -> dict[type, Callable[..., list[AnySessionEffect]]]:
        """Commands and decisions that are answered here alone."""
        return {
            Settle: self._settle,
            GrantCredit: self._grant,
            Dispatched: self._dispatched,
            Parcelled: self._parcelled,
            Recalled: self._recalled,
            Unsubscribe: self._unsubscribe,
            Retire: self._retire,
            BrowseEnded: self._browse_ended,
            DestinationMade: self.many.destination_made,
            DestinationGone: self._destination_gone,
        }

    def __contains__(self, identity: ConsumerId) -> bool:
        return identity in self._numbers

    # ---- how a consumer comes to be

    def subscribe(self, command: Subscribe) -> list[AnySessionEffect]:
        former = self.by_number.get(command.consumer)
        if former is not None and not former.is_away:
            former = None
        dropped: list[AnySessionEffect] = []
        if former is not None:
            self._drop(command.consumer)
            dropped = [Multicast(ConsumerDetached(former.address, former.identity))]
        try:
            pattern = parse_pattern(command.destination)
            if pattern is not None:
                check_for_many(command)
                self._check_new(command)
                return [*dropped, *self.many.subscribe(command, pattern)]
            address = self._checked(command)
            self._check_new(command)
        except HeliographError as error:
            return [*dropped, Fail(command.request, error.code, error.sentence)]
        distribution = self._admission.distribution_of(address)
        if distribution is not None:
            return [*dropped, TellDistributed(command.request, distribution)]
        if former is not None and command.claim is not None and former.address == address:
            return [Multicast(self._attach(command, address, former.identity))]
        return [*dropped, Multicast(self._attach(command, address, self._issuer.consumer()))]

    def restore(self, consumers: list[tuple[int, ConsumerId, Address]]) -> None:
        """What consumers of a resumed session wait to be claimed."""
        for number, identity, address in consumers:
            self.by_number[number] = Consumer(identity, address, number, is_away=True)
            self._numbers[identity] = number
            self._connection.count_consumer(address, 1)

    def _checked(self, command: Subscribe) -> Address:
        right = Right.BROWSE if command.browse else Right.RECEIVE
        address = of_messages(self._admission.checked(command.destination, right))
        if (command.durable or command.shared) and kind_of(address) is Kind.QUEUE:
            raise ClientFault(
                "a queue has no subscriptions: durable and shared are for topics",
                code="subscription-invalid",
            )
        return address

    def _check_new(self, command: Subscribe) -> None:
        parse_selector(command.selector)
        if not 0 <= command.consumer <= MAX_CONSUMER_NUMBER:
            raise ClientFault(f"consumers are numbered 0 to {MAX_CONSUMER_NUMBER}", code="consumer-invalid")
        wildcards = self.many.wildcards
        if command.consumer in self.by_number or command.consumer in wildcards:
            raise ClientFault(f"consumer {command.consumer} is there already", code="consumer-exists")
        most = self._admission.max_consumers
        if len(self.by_number) + len(wildcards) >= most:
            raise ClientFault(f"a session has at most {most} consumers", code="too-many-consumers")
        if not 0 <= command.credit <= MAX_CREDIT:
            raise ClientFault(f"credit is 0 to {MAX_CREDIT}, not {command.credit}", code="credit-invalid")

    def _attach(self, command: Subscribe, address: Address, identity: ConsumerId) -> ConsumerAttached:
        consumer = Consumer(identity, address, command.consumer)
        self._connection.count_consumer(address, 1)
        self.by_number[command.consumer] = consumer
        self._numbers[consumer.identity] = command.consumer
        return ConsumerAttached(
            self._requests.ask(
                Resumption if command.claim is not None else Subscribe,
                command.request,
                command.consumer,
                address,
            ),
            address,
            consumer.identity,
            self._session,
            command.credit,
            command.create and self._admission.may_create(address),
            command.selector,
            command.subscription,
            "" if command.common else self._connection.client_id,
            command.durable,
            command.shared,
            command.no_local,
            command.browse,
            command.prompt,
            command.consumer,
            command.claim,
        )

    # ---- what it does

    def _dispatched(self, decision: Dispatched) -> list[AnySessionEffect]:
        number = self._numbers.get(decision.consumer)
        if number is None:
            wildcard = self.many.attachments.get(decision.consumer)
            # Else it ended meanwhile, and the destination has the messages back.
            return wildcard.dispatched(decision) if wildcard is not None else []
        return [Deliver(number, decision.tag, decision.span, decision.user)]

    def _parcelled(self, decision: Parcelled) -> list[AnySessionEffect]:
        number = self._numbers.get(decision.consumer)
        if number is not None:
            return [DeliverParcel(number, decision.tag, decision.spans, decision.user)]
        effects: list[AnySessionEffect] = []
        tag = decision.tag
        for span in decision.spans:
            effects += self._dispatched(Dispatched(decision.consumer, tag, span, decision.user))
            tag += span.stop - span.start
        return effects

    def _recalled(self, decision: Recalled) -> list[AnySessionEffect]:
        number = self._numbers.get(decision.consumer)
        if number is not None:
            return [TellRecalled(number, decision.tags)]
        wildcard = self.many.attachments.get(decision.consumer)
        return [] if wildcard is None else wildcard.recalled(decision)

    def _grant(self, command: GrantCredit) -> list[AnySessionEffect]:
        if command.count > MAX_CREDIT:
            raise ClientFault(f"credit is at most {MAX_CREDIT}, not {command.count}", code="credit-invalid")
        consumer = self.by_number.get(command.consumer)
        if consumer is None:
            wildcard = self.many.wildcards.get(command.consumer)
            return wildcard.grant(command.count) if wildcard is not None else []  # ended meanwhile
        return [Multicast(CreditGranted(consumer.address, consumer.identity, command.count))]

    def _settle(self, command: Settle) -> list[AnySessionEffect]:
        consumer = self.by_number.get(command.consumer)
        if consumer is None:
            return self._settle_elsewhere(command)
        request = 0
        if command.confirm:
            request = self._requests.ask(Settle, 0, command.consumer, consumer.address)
        settled = Settled(
            consumer.address,
            consumer.identity,
            command.returned,
            command.ranges,
            command.replenish,
            request,
            command.error,
            command.seen,
            fate=command.fate,
        )
        return [Multicast(settled)]

    def _settle_elsewhere(self, command: Settle) -> list[AnySessionEffect]:
        wildcard = self.many.wildcards.get(command.consumer)
        if wildcard is not None:
            return self.many.settle(wildcard, command)
        # Ended while this was under way: its messages are back at the destination, and that is no
        # confirmation.
        gone = EndConsumer(
            command.consumer, "consumer-unknown", "the consumer is gone, and what it had went back"
        )
        return [gone] if command.confirm else []

    def _browse_ended(self, decision: BrowseEnded) -> list[AnySessionEffect]:
        number = self._numbers.get(decision.consumer)
        return [] if number is None else [EndBrowse(number)]

    # ---- how it ends

    def _retire(self, command: Retire) -> list[AnySessionEffect]:
        """A consumer takes nothing more and keeps what it saw until that is settled."""
        if command.consumer in self.many.wildcards:
            return [Done(command.request)]  # what topics send it is nobody else's
        consumer = self.by_number.get(command.consumer)
        if consumer is None:
            return [Fail(command.request, "consumer-unknown", f"there is no consumer {command.consumer}")]
        request = self._requests.ask(Retire, command.request, command.consumer, consumer.address)
        return [Multicast(ConsumerRetired(consumer.address, consumer.identity, request, command.seen))]

    def _unsubscribe(self, command: Unsubscribe) -> list[AnySessionEffect]:
        wildcard = self.many.wildcards.get(command.consumer)
        if wildcard is not None:
            return [*self.many.drop(wildcard), Done(command.request)]
        consumer = self._drop(command.consumer)
        if consumer is None:
            return [Fail(command.request, "consumer-unknown", f"there is no consumer {command.consumer}")]
        request = self._requests.ask(Unsubscribe, command.request, command.consumer, consumer.address)
        return [Multicast(ConsumerDetached(consumer.address, consumer.identity, request, command.seen))]

    def _destination_gone(self, news: DestinationGone) -> list[AnySessionEffect]:
        effects: list[AnySessionEffect] = []
        for identity in news.consumers:
            detached = Multicast(ConsumerDetached(news.address, identity))
            of_wildcard = self.many.topic_gone(identity)
            if of_wildcard is not None:
                effects += [detached, *of_wildcard]
            elif (number := self._numbers.get(identity)) is not None:
                self._drop(number)
                sentence = f"{news.address} was deleted"
                effects += [detached, EndConsumer(number, "destination-deleted", sentence)]
        return effects

    def refused(self, asked: Request, answer: Rejected) -> list[AnySessionEffect]:
        """The destination did not want it."""
        failed = Fail(asked.request, answer.code, answer.sentence)
        consumer = self._drop(asked.number)
        if consumer is None:
            return [failed]
        return [Multicast(ConsumerDetached(consumer.address, consumer.identity)), failed]

    def settlement_refused(self, asked: Request, answer: Rejected) -> list[AnySessionEffect]:
        """Client and destination disagree about what is outstanding: the destination gets all of it back."""
        consumer = self._drop(asked.number)
        if consumer is None:
            return []
        detached = ConsumerDetached(consumer.address, consumer.identity)
        return [Multicast(detached), EndConsumer(asked.number, answer.code, answer.sentence)]

    def _drop(self, number: int) -> Consumer | None:
        consumer = self.by_number.pop(number, None)
        if consumer is not None:
            del self._numbers[consumer.identity]
            self._connection.count_consumer(consumer.address, -1)
        return consumer

    def lose(self) -> list[ConsumerId]:
        """The connection is gone, and the message managers see to the consumers. Returns which those were."""
        lost = [*self._numbers, *self.many.attachments]
        self.by_number.clear()
        self._numbers.clear()
        self.many.lose()
        return lost

    def farewell(self) -> Iterator[ConsumerDetached]:
        """The session is closed: every consumer leaves, and what it had returns."""
        for consumer in self.by_number.values():
            self._connection.count_consumer(consumer.address, -1)
            yield ConsumerDetached(consumer.address, consumer.identity)
        yield from self.many.farewell()
        self.by_number.clear()
        self._numbers.clear()
