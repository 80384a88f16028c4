"""A session's dealings with alert channels (A1–A6): what its client asks is checked here, and put in words that hold
everywhere. Who the user is and what it is cleared for comes from here, never from the client.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from heliograph.bus.commands import (
    AlertAcknowledged,
    AlertAudited,
    AlertCancelled,
    AlertHanded,
    AlertPublished,
    AlertReceipted,
    AlertsAttached,
    AlertsClosed,
    AlertsDetached,
    AlertsListed,
    AlertsTaken,
    AlertTopicsChanged,
    AlertWithdrawn,
    Rejected,
)
from heliograph.model.alert import ALERT_ID_BYTES, AlertType, check_header
from heliograph.model.alert_topics import parse_topics
from heliograph.model.destination import Address, Kind, kind_of
from heliograph.model.errors import ClientFault, HeliographError, NotAllowed
from heliograph.model.ids import LaneId, SessionId, lane_of
from heliograph.model.limits import (
    MAX_ALERT_BODY_BYTES,
    MAX_ALERT_CREDIT,
    MAX_CONSUMER_NUMBER,
    MAX_LANES_PER_SESSION,
    MAX_NAME_BYTES,
    MAX_SEQUENCE,
)
from heliograph.sessions.access import Right
from heliograph.sessions.admission import Admission
from heliograph.sessions.commands import (
    AcknowledgeAlert,
    AnySessionEffect,
    AttachAlerts,
    AuditAlert,
    CancelAlert,
    ChangeAlerts,
    DetachAlerts,
    Done,
    EndConsumer,
    Fail,
    HandAlert,
    ListAlerts,
    Multicast,
    PublishAlert,
    TakeAlerts,
    Tell,
    TellReceipt,
    WithdrawAlert,
)
from heliograph.sessions.requests import Request, Requests

Wishes = list[tuple[int, str, str]]


class Alerts:
    """Of one session."""

    def __init__(self, session: SessionId, *, admission: Admission, requests: Requests) -> None:
        self._session = session
        self._admission = admission
        self._requests = requests
        self._consumers: dict[int, Address] = {}

    def handlers(self) -> dict[type, Callable[..., list[AnySessionEffect]]]:
        return {
            PublishAlert: self._checking(self._publish),
            AcknowledgeAlert: self._checking(self._acknowledge),
            CancelAlert: self._checking(self._cancel),
            AttachAlerts: self._checking(self._attach),
            ChangeAlerts: self._checking(self._change),
            DetachAlerts: self._checking(self._detach),
            TakeAlerts: self._checking(self._take),
            ListAlerts: self._checking(self._list),
            AuditAlert: self._checking(self._audit),
            AlertHanded: self._handed,
            AlertWithdrawn: self._withdrawn,
            AlertReceipted: self._receipted,
            AlertsClosed: self._closed,
        }

    def answers(self) -> dict[type, Callable[[Request, dict[str, Any]], list[AnySessionEffect]]]:
        """By what was asked; where nothing stands, the client is told that it is done."""

        def tell(asked: Request, body: dict[str, Any]) -> list[AnySessionEffect]:
            return [Tell(asked.request, body)]

        return {
            PublishAlert: tell,
            AcknowledgeAlert: tell,
            ChangeAlerts: tell,
            ListAlerts: tell,
            AuditAlert: tell,
            DetachAlerts: self._detached,
        }

    def _checking(
        self, handle: Callable[[Any], list[AnySessionEffect]]
    ) -> Callable[[Any], list[AnySessionEffect]]:
        """What a client may not do, or said wrongly, it is told."""

        def checked(command: Any) -> list[AnySessionEffect]:
            try:
                return handle(command)
            except HeliographError as error:
                return [Fail(command.request, error.code, error.sentence)]

        return checked

    def _channel(self, destination: str, *rights: Right) -> Address:
        """The address, if it is of a channel and the user has one of these rights there."""
        refusal: NotAllowed | None = None
        for right in rights:
            try:
                address = self._admission.checked(destination, right)
            except NotAllowed as error:
                refusal = refusal or error
                continue
            if kind_of(address) is not Kind.ALERTS:
                raise ClientFault(f"alerts go to alerts:NAME, not to {address}", code="invalid-destination")
            return address
        assert refusal is not None
        raise refusal

    @property
    def _who(self) -> tuple[str, int]:
        user = self._admission.user
        return user.name, user.clearance

    # ---- publishing

    def _publish(self, command: PublishAlert) -> list[AnySessionEffect]:
        address = self._channel(command.destination, Right.SEND)
        check_header(command.header, command.body)
        if command.header.type != AlertType.ALERT or command.header.correlation:
            raise ClientFault("an alert is acknowledged by its id", code="alert-invalid")
        lane = self._lane(command.lane, command.sequence)
        request = self._requests.ask(PublishAlert, command.request, 0, address)
        create = self._admission.may_create(address)
        fact = AlertPublished(
            request, address, create, lane, command.sequence, command.header, command.body, *self._who
        )
        return [Multicast(fact)]

    def _acknowledge(self, command: AcknowledgeAlert) -> list[AnySessionEffect]:
        address = self._channel(command.destination, Right.SEND, Right.RECEIVE)
        if len(command.body) > MAX_ALERT_BODY_BYTES:
            raise ClientFault(f"a body has at most {MAX_ALERT_BODY_BYTES} bytes", code="alert-invalid")
        lane = self._lane(command.lane, command.sequence)
        request = self._requests.ask(AcknowledgeAlert, command.request, 0, address)
        alert = _checked_id(command.alert)
        fact = AlertAcknowledged(request, address, lane, command.sequence, alert, command.body, *self._who)
        return [Multicast(fact)]

    def _lane(self, number: int, sequence: int) -> LaneId:
        if not 0 < number <= MAX_LANES_PER_SESSION:
            raise ClientFault(f"lanes are numbered 1 to {MAX_LANES_PER_SESSION}", code="lane-invalid")
        if not 0 < sequence <= MAX_SEQUENCE:
            raise ClientFault("alerts of a lane are numbered from 1", code="alert-invalid")
        return lane_of(self._session, number)

    def _cancel(self, command: CancelAlert) -> list[AnySessionEffect]:
        address = self._channel(command.destination, Right.SEND, Right.RECEIVE)
        request = self._requests.ask(CancelAlert, command.request, 0, address)
        return [Multicast(AlertCancelled(request, address, _checked_id(command.alert), *self._who))]

    # ---- consuming

    def _attach(self, command: AttachAlerts) -> list[AnySessionEffect]:
        address = self._channel(command.destination, Right.RECEIVE)
        self._check_new(command)
        wishes = wishes_in(command.topics, command.acknowledgements)
        self._consumers[command.consumer] = address
        request = self._requests.ask(AttachAlerts, command.request, command.consumer, address)
        user, clearance = self._who
        fact = AlertsAttached(
            request,
            address,
            self._admission.may_create(address),
            self._session,
            command.consumer,
            user,
            command.name,
            clearance,
            command.credit,
            wishes,
            [_checked_id(each) for each in command.held],
            [_checked_id(each) for each in command.taken],
        )
        return [Multicast(fact)]

    def _check_new(self, command: AttachAlerts) -> None:
        number, name = command.consumer, command.name
        if not 0 <= number <= MAX_CONSUMER_NUMBER:
            raise ClientFault(f"consumers are numbered 0 to {MAX_CONSUMER_NUMBER}", code="consumer-invalid")
        if self._consumers.get(number, command.destination) != command.destination:
            raise ClientFault(f"consumer {number} takes alerts of another channel", code="consumer-exists")
        most = self._admission.max_consumers
        if len(self._consumers) >= most:
            raise ClientFault(f"a session has at most {most} consumers", code="too-many-consumers")
        if not name.isprintable() or len(name.encode()) > MAX_NAME_BYTES:
            raise ClientFault(
                f"a subscriber has a printable name of at most {MAX_NAME_BYTES} bytes",
                code="subscription-invalid",
            )
        if not 0 < command.credit <= MAX_ALERT_CREDIT:
            raise ClientFault(
                f"credit for alerts is 1 to {MAX_ALERT_CREDIT}, not {command.credit}", code="credit-invalid"
            )
        if len(command.held) > MAX_ALERT_CREDIT:
            raise ClientFault("nobody holds more alerts than its credit", code="credit-invalid")

    def _of(self, number: int) -> Address:
        address = self._consumers.get(number)
        if address is None:
            raise ClientFault(f"there is no consumer {number} of alerts", code="consumer-unknown")
        return address

    def _change(self, command: ChangeAlerts) -> list[AnySessionEffect]:
        address = self._of(command.consumer)
        wishes = wishes_in(command.topics, command.acknowledgements)
        added, removed = ([], wishes) if command.removes else (wishes, [])
        request = self._requests.ask(ChangeAlerts, command.request, command.consumer, address)
        fact = AlertTopicsChanged(request, address, self._session, command.consumer, added, removed)
        return [Multicast(fact)]

    def _detach(self, command: DetachAlerts) -> list[AnySessionEffect]:
        address = self._consumers.get(command.consumer)
        if address is None:
            return [Done(command.request)]  # asked again, or never there
        request = self._requests.ask(DetachAlerts, command.request, command.consumer, address)
        fact = AlertsDetached(request, address, self._session, command.consumer, command.unsubscribe)
        return [Multicast(fact)]

    def _detached(self, asked: Request, _body: dict[str, Any]) -> list[AnySessionEffect]:
        self._consumers.pop(asked.number, None)
        return [Done(asked.request)]

    def _take(self, command: TakeAlerts) -> list[AnySessionEffect]:
        address = self._of(command.consumer)
        request = self._requests.ask(TakeAlerts, command.request, command.consumer, address)
        taken, dropped = ([_checked_id(each) for each in ids] for ids in (command.taken, command.dropped))
        return [Multicast(AlertsTaken(request, address, self._session, command.consumer, taken, dropped))]

    # ---- looking

    def _list(self, command: ListAlerts) -> list[AnySessionEffect]:
        address = self._channel(command.destination, Right.RECEIVE, Right.BROWSE)
        wishes: Wishes = []
        if command.topics:
            topics = parse_topics(command.topics)
            wishes = [(kind, str(topic.prefix), topic.text) for kind in AlertType for topic in topics]
        if command.after:
            _checked_id(command.after)
        request = self._requests.ask(ListAlerts, command.request, 0, address)
        clearance = self._admission.user.clearance
        return [Multicast(AlertsListed(request, address, clearance, wishes, command.after))]

    def _audit(self, command: AuditAlert) -> list[AnySessionEffect]:
        address = self._channel(command.destination, Right.RECEIVE, Right.SEND, Right.BROWSE)
        request = self._requests.ask(AuditAlert, command.request, 0, address)
        clearance = self._admission.user.clearance
        return [Multicast(AlertAudited(request, address, _checked_id(command.alert), clearance))]

    # ---- decisions

    def _handed(self, decision: AlertHanded) -> list[AnySessionEffect]:
        return [
            HandAlert(number, msgspec.structs.replace(decision.alert, again=again))
            for session, number, again in decision.recipients
            if session == self._session and number in self._consumers
        ]

    def _withdrawn(self, decision: AlertWithdrawn) -> list[AnySessionEffect]:
        return [
            WithdrawAlert(number, decision.alert)
            for session, number in decision.recipients
            if session == self._session and number in self._consumers
        ]

    def _receipted(self, decision: AlertReceipted) -> list[AnySessionEffect]:
        return [TellReceipt(decision.address, decision.alert, decision.user, decision.name, decision.at)]

    def _closed(self, decision: AlertsClosed) -> list[AnySessionEffect]:
        if self._consumers.pop(decision.number, None) is None:
            return []
        return [EndConsumer(decision.number, decision.code, decision.sentence)]

    def refused(self, asked: Request, answer: Rejected) -> list[AnySessionEffect]:
        """A consumer was not made."""
        self._consumers.pop(asked.number, None)
        return [Fail(asked.request, answer.code, answer.sentence)]


def wishes_in(topics: str, acknowledgements: str) -> Wishes:
    """What a client asks for: topics of alerts, and of acknowledgements. Raises TopicFault or PatternFault."""
    return [
        (kind, str(topic.prefix), topic.text)
        for kind, text in ((AlertType.ALERT, topics), (AlertType.ACKNOWLEDGEMENT, acknowledgements))
        for topic in (parse_topics(text) if text else ())
    ]


def _checked_id(identity: bytes) -> bytes:
    if len(identity) != ALERT_ID_BYTES:
        raise ClientFault(f"an alert's id has {ALERT_ID_BYTES} bytes", code="alert-invalid")
    return identity
