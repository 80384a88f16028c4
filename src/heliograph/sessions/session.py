"""One client's conversation: its lanes, and what it may do (M1, M4).

The session checks what the client asks, translates the client's small numbers into ids that hold everywhere,
and passes the command on to the destination. It keeps nothing that must survive it: sequence marks and
messages live with the message managers.

    Session ── lanes, temporary destinations, answers
      ├── Consumers ── one destination each, or
      │     └── ManyTopics ── what a pattern means
      ├── Transactions
      ├── Transfers ── very large messages
      ├── Alerts ── channels of alerts
      └── Blocks ── who told us to wait
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from heliograph.bus.commands import (
    Answered,
    Confirmed,
    ConsumerDetached,
    Decision,
    DestinationDeleted,
    DestinationWanted,
    FlowChanged,
    PathWanted,
    Published,
    Refused,
    Rejected,
    TopicsWanted,
)
from heliograph.model.destination import OF_MESSAGES, Address, Kind, of_messages
from heliograph.model.distribution import NOTHING_DISTRIBUTED, Distributions, Routing, member_of
from heliograph.model.errors import ClientFault, HeliographError, NotAllowed
from heliograph.model.ids import ConsumerId, IdIssuer, LaneId, SessionId, lane_number, lane_of
from heliograph.model.limits import MAX_LANES_PER_SESSION, MAX_TEMPORARIES_PER_CONNECTION
from heliograph.model.patterns import parse_pattern
from heliograph.sessions.access import AccessControl, Identity, Right
from heliograph.sessions.admission import Admission
from heliograph.sessions.alerts import Alerts
from heliograph.sessions.commands import (
    AnyCommand,
    AnySessionEffect,
    AttachAlerts,
    BeginFetch,
    BeginUpload,
    Confirm,
    DeleteTemporary,
    Done,
    EndUpload,
    Fail,
    FindDestinations,
    FindPath,
    LaneReady,
    MakeTemporary,
    Multicast,
    OpenLane,
    Publish,
    RefuseLane,
    Settle,
    SettlementStored,
    Subscribe,
    Tell,
    TellDistributed,
)
from heliograph.sessions.connection_facts import ConnectionFacts
from heliograph.sessions.consumers import Consumers, Resumption
from heliograph.sessions.flow import Blocks
from heliograph.sessions.own_subscriptions import Endings, is_looking
from heliograph.sessions.requests import Request, Requests
from heliograph.sessions.transactions import Transactions
from heliograph.sessions.transfers import Transfers
from heliograph.sessions.wildcard import Attachment


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
        distributions: Distributions = NOTHING_DISTRIBUTED,
    ) -> None:
        self.identity = identity
        self.user = user
        self._connection = connection
        self._lanes: dict[LaneId, Address] = {}
        self._blocks = Blocks()
        self._requests = Requests(next_request)
        self._admission = Admission(
            user, access, connection, creates=create_on_first_use, distributions=distributions
        )
        self._consumers = Consumers(
            identity, connection, admission=self._admission, requests=self._requests, issuer=issuer
        )
        self._transactions = Transactions(identity, self._consumers, self._requests)
        self._transfers = Transfers(identity)
        self._alerts = Alerts(identity, admission=self._admission, requests=self._requests)
        # Made when there is something to handle: many a connection only holds its place, and these are most of it.
        self._endings: Endings
        self._handlers: dict[type, Callable[..., list[AnySessionEffect]]] = {}
        self._answers: dict[type, Callable[[Request, dict[str, Any]], list[AnySessionEffect]]] = {}

    def handle(self, event: AnyCommand | Decision) -> list[AnySessionEffect]:
        """Raises ClientFault where the client broke the protocol beyond repair: the connection ends."""
        if not self._handlers:
            self._make_handlers()
        return self._handlers[type(event)](event)

    def _make_handlers(self) -> None:
        endings = self._endings = Endings(self._connection, self._admission, self._requests)
        self._handlers = {
            Publish: self._publish,
            Confirmed: self._confirmed,
            OpenLane: self._open_lane,
            FindPath: self._find_path,
            FindDestinations: self._find_destinations,
            MakeTemporary: self._make_temporary,
            DeleteTemporary: self._delete_temporary,
            Refused: self._refused,
            FlowChanged: self._flow_changed,
            Answered: self._answered,
            Rejected: self._rejected,
            BeginUpload: self._begin_upload,
            EndUpload: self._end_upload,
            BeginFetch: self._begin_fetch,
            **self._consumers.handlers(),
            Subscribe: self._subscribe,
            **endings.handlers(),
            **self._transactions.handlers(),
            **self._transfers.handlers(),
            **self._alerts.handlers(),
        }
        # By what was asked. Where nothing stands here, the client is told that it is done.
        self._answers = {
            OpenLane: self._lane_ready,
            FindPath: lambda asked, body: [Tell(asked.request, body)],
            FindDestinations: self._destinations_found,
            Settle: lambda asked, _: [SettlementStored(asked.number)],
            BeginUpload: self._upload_ready,
            EndUpload: self._upload_stored,
            MakeTemporary: lambda asked, _: [Tell(asked.request, {"destination": asked.address})],
            Resumption: lambda asked, body: [Tell(asked.request, {"resumed": False, **body})],
            **self._consumers.many.answers(),
            **endings.answers(),
            **self._alerts.answers(),
        }

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
            address = of_messages(self._admission.checked(command.destination, Right.SEND))
            distribution = self._admission.distribution_of(address)
            if distribution is not None:
                return [TellDistributed(command.request, distribution)]
            lane = self._checked_lane(command.lane, address)
        except HeliographError as error:
            return [Fail(command.request, error.code, error.sentence)]
        request = self._requests.ask(OpenLane, command.request, command.lane, address)
        return [Multicast(DestinationWanted(request, address, self._admission.may_create(address), lane))]

    def _find_path(self, command: FindPath) -> list[AnySessionEffect]:
        try:
            address = self._admission.checked(command.destination, Right.SEND)
            distribution = self._admission.distribution_of(address)
            if distribution is None or distribution.routing is not Routing.PATH:
                raise ClientFault(f"units of {address} have no paths", code="argument-invalid")
            if not 0 < command.unit < 1 << 64:
                raise ClientFault("a unit of order is a number of 64 bits that is not 0", code="unit-invalid")
        except HeliographError as error:
            return [Fail(command.request, error.code, error.sentence)]
        request = self._requests.ask(FindPath, command.request, 0, address)
        members, leaving = list(distribution.members), list(distribution.leaving)
        return [Multicast(PathWanted(request, address, command.unit, self.identity, members, leaving))]

    def _find_destinations(self, command: FindDestinations) -> list[AnySessionEffect]:
        try:
            if parse_pattern(command.pattern, of_queues=True) is None:
                raise ClientFault("that is no pattern", code="pattern-invalid")
        except HeliographError as error:
            return [Fail(command.request, error.code, error.sentence)]
        request = self._requests.ask(FindDestinations, command.request)
        return [Multicast(TopicsWanted(request, command.pattern))]

    def _destinations_found(self, asked: Request, body: dict[str, Any]) -> list[AnySessionEffect]:
        may_look = [
            address
            for address in body["topics"]
            if self._admission.allows(Right.RECEIVE, address) or self._admission.allows(Right.BROWSE, address)
        ]
        return [Tell(asked.request, {"destinations": may_look})]

    def _checked_lane(self, number: int, address: Address) -> LaneId:
        if not 0 < number <= MAX_LANES_PER_SESSION:
            raise ClientFault(f"lanes are numbered 1 to {MAX_LANES_PER_SESSION}", code="lane-invalid")
        lane = lane_of(self.identity, number)
        if self._lanes.get(lane, address) != address:
            # A lane and a sequence name one message for ever (M5).
            raise ClientFault(f"lane {number} leads elsewhere: open another", code="lane-exists")
        return lane

    def _lane_ready(self, asked: Request, body: dict[str, Any]) -> list[AnySessionEffect]:
        self._lanes[lane_of(self.identity, asked.number)] = asked.address
        blocked = self._blocks.opened(asked.address, body.get("blocked", ""))
        return [LaneReady(asked.request, body["last"]), *blocked]

    def restore_lanes(self, lanes: list[tuple[int, str, int]]) -> list[tuple[int, str, int]]:
        """The lanes of a resumed session, without those that its user may not use any more."""
        kept = [
            (number, address, last)
            for number, address, last in lanes
            if self._admission.allows(Right.SEND, address)
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

    # ---- consumers

    def _subscribe(self, command: Subscribe) -> list[AnySessionEffect]:
        effects = self._consumers.subscribe(command)
        if not any(isinstance(effect, Fail | TellDistributed) for effect in effects):
            self._endings.note(command)
        return effects

    # ---- temporary destinations

    def _make_temporary(self, command: MakeTemporary) -> list[AnySessionEffect]:
        if command.kind not in OF_MESSAGES:
            return [
                Fail(command.request, "invalid-destination", "a temporary destination is a queue or a topic")
            ]
        if len(self._connection.temporaries) >= MAX_TEMPORARIES_PER_CONNECTION:
            sentence = f"a connection has at most {MAX_TEMPORARIES_PER_CONNECTION} temporary destinations"
            return [Fail(command.request, "too-many-destinations", sentence)]
        address = self._connection.new_temporary(Kind(command.kind))
        request = self._requests.ask(MakeTemporary, command.request, 0, address)
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
            address = of_messages(self._one(self._admission.checked(command.destination, Right.SEND)))
            begun = self._transfers.begin_upload(
                command,
                lambda: self._requests.ask(BeginUpload, command.request, command.transfer, address),
                address,
            )
        except HeliographError as error:
            return [Fail(command.request, error.code, error.sentence)]
        return [Multicast(begun)]

    def _one(self, address: Address) -> Address:
        """The address, if it is of one destination. Raises ClientFault where it is of several (U6)."""
        distribution = self._admission.distribution_of(address)
        if distribution is not None:
            member = member_of(address, distribution.members[0])
            raise ClientFault(
                f"{address} is distributed: name a member, such as {member}", code="destination-distributed"
            )
        return address

    def _upload_ready(self, asked: Request, body: dict[str, Any]) -> list[AnySessionEffect]:
        self._transfers.upload_ready(asked.number, body)
        return [Tell(asked.request, body)]

    def _end_upload(self, command: EndUpload) -> list[AnySessionEffect]:
        ended = self._transfers.end_upload(
            command, lambda: self._requests.ask(EndUpload, command.request, command.transfer)
        )
        return [Multicast(ended)]

    def _upload_stored(self, asked: Request, _body: dict[str, Any]) -> list[AnySessionEffect]:
        self._transfers.over(asked.number)
        return [Done(asked.request)]

    def _begin_fetch(self, command: BeginFetch) -> list[AnySessionEffect]:
        try:
            try:
                address = self._admission.checked(command.destination, Right.RECEIVE)
            except NotAllowed:
                address = self._admission.checked(command.destination, Right.BROWSE)
            self._one(address)
            begun = self._transfers.begin_fetch(
                command,
                lambda: self._requests.ask(BeginFetch, command.request, command.transfer, address),
                address,
            )
        except HeliographError as error:
            return [Fail(command.request, error.code, error.sentence)]
        return [Multicast(begun)]

    # ---- requests

    def owns(self, consumer: ConsumerId) -> bool:
        return consumer in self._consumers

    def awaits(self, request: int) -> bool:
        return request in self._requests

    def _answered(self, answer: Answered) -> list[AnySessionEffect]:
        asked = self._requests.take(answer.request)
        if asked is None:
            return []  # the session ended while this was under way
        follow_up = self._answers.get(asked.purpose)
        return [Done(asked.request)] if follow_up is None else follow_up(asked, answer.body)

    def _rejected(self, answer: Rejected) -> list[AnySessionEffect]:
        asked = self._requests.take(answer.request)
        if asked is None:
            return []  # the session ended while this was under way
        if asked.purpose is Attachment:
            return self._consumers.many.attachment_refused(asked)
        if asked.purpose in (Subscribe, Resumption):
            self._endings.not_attached(asked.number)
            return self._consumers.refused(asked, answer)
        if is_looking(asked.purpose):
            return self._endings.refused(asked, answer)
        if asked.purpose is AttachAlerts:
            return self._alerts.refused(asked, answer)
        if asked.purpose is Settle:
            return self._consumers.settlement_refused(asked, answer)
        if asked.purpose in (BeginUpload, EndUpload, BeginFetch):
            self._transfers.over(asked.number)
        return [Fail(asked.request, answer.code, answer.sentence)]

    # ---- the end

    def restore_consumers(self, consumers: list[tuple[int, ConsumerId, Address]]) -> None:
        """Consumers of a resumed session, which its client may claim."""
        self._consumers.restore(consumers)

    def lose(self) -> list[ConsumerId]:
        """The connection is gone. Returns whose deliveries go nowhere."""
        self._requests.clear()
        return self._consumers.lose()

    def farewell(self) -> Iterator[ConsumerDetached]:
        """The session is closed: every consumer leaves, and what it had returns."""
        yield from self._consumers.farewell()
        self._requests.clear()
