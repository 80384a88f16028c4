"""What one connection of another protocol has to do with alerts: what it sends to channels, who is told what became
of it, and which consumer gets what the session hands out. `frontends/alert_messages.py` says how alerts are messages.

    put ──▶ PublishAlert, AcknowledgeAlert, CancelAlert ──▶ on_stored, with the id of the alert; or on_refused
                  └── has a reply-to ──▶ an empty message there with the id, and one for each receipt
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from heliograph.frontends.alert_messages import (
    ALERT_ID,
    Acknowledging,
    Cancelling,
    Publishing,
    meant_by,
)
from heliograph.frontends.prepared import Prepared, head_of, prepare
from heliograph.frontends.proxy import Answer, Proxy
from heliograph.model.alert import AcknowledgePolicy, AlertView, text_of_alert
from heliograph.model.errors import ClientFault
from heliograph.model.limits import ALERT_RECEIPTS_AWAITED, FOREIGN_ALERTS_UNDER_WAY, FOREIGN_HELD_BYTES
from heliograph.model.message import Head, Property
from heliograph.sessions import commands
from heliograph.sessions.commands import AnySessionEffect, Fail


class Outlet(Protocol):
    """A consumer of alerts, as a protocol has it."""

    def hand(self, view: AlertView) -> None:
        """The client is to get it."""

    def withdraw(self, identity: bytes) -> None:
        """It ended."""

    def flush(self) -> None:
        """What the client has taken is said."""


O = TypeVar("O", bound=Outlet)  # noqa: E741 - the usual letter, and the only type here


class Answering(msgspec.Struct):
    """Where a message wants answers, and how they say what they are the answer to: by a correlation id, or where it
    is none that others could read, by properties of the protocol's own."""

    reply_to: str
    correlation: str | None
    properties: dict[str, Property]


def by_correlation(head: Head) -> tuple[str | None, dict[str, Property]]:
    """An answer has the correlation id of what it answers."""
    return head.correlation_id, {}


class AlertDesk(Generic[O]):
    """Of one connection."""

    def __init__(
        self,
        proxy: Proxy,
        *,
        on_stored: Callable[[list[Any], bytes | None], None],
        on_refused: Callable[[list[Any], Fail], None],
        correlate: Callable[[Head], tuple[str | None, dict[str, Property]]] = by_correlation,
    ) -> None:
        """`on_stored`: what these receipts were for is done; the id of the alert that came of it, if one did.
        `correlate`: what the answers to a message say of it."""
        self._proxy = proxy
        self._on_stored = on_stored
        self._on_refused = on_refused
        self._correlate = correlate
        self._awaited: dict[bytes, Answering] = {}  # alerts whose receipts are wanted
        self._under_way = self._bytes_under_way = 0
        self.outlets: dict[int, O] = {}

    @property
    def is_full(self) -> bool:
        """As much waits to be stored as may."""
        return self._under_way > FOREIGN_ALERTS_UNDER_WAY or self._bytes_under_way > FOREIGN_HELD_BYTES

    # ---- from the client

    def put(self, address: str, message: Prepared, receipt: Any = None) -> None:
        """A message to a channel. `receipt`: who is told what became of it. Raises ClientFault."""
        wish = meant_by(message, self._proxy.now)
        if isinstance(wish, Cancelling):
            request = self._ask(message, wish, receipt, "")
            self._proxy.command(commands.CancelAlert(request, address, wish.alert))
            return
        for outlet in self.outlets.values():
            outlet.flush()  # who acknowledges an alert has it
        lane, sequence = self._proxy.next_alert(address)
        request = self._ask(message, wish, receipt, address)
        if isinstance(wish, Publishing):
            command: Any = commands.PublishAlert(request, address, lane, sequence, wish.header, wish.body)
        else:
            command = commands.AcknowledgeAlert(request, address, lane, sequence, wish.alert, wish.body)
        self._proxy.command(command)

    def _ask(
        self, message: Prepared, wish: Publishing | Cancelling | Acknowledging, receipt: Any, named_at: str
    ) -> int:
        """`named_at`: the channel at which it was given a name; empty if it needs none."""

        def answered(answer: Answer) -> None:
            if named_at:
                self._proxy.alert_answered(named_at, answer)
            self._answered(message, wish, answer, receipt)

        self._under_way += 1
        self._bytes_under_way += message.size
        return self._proxy.ask(answered)

    def _answered(
        self,
        message: Prepared,
        wish: Publishing | Cancelling | Acknowledging,
        answer: Answer,
        receipt: Any,
    ) -> None:
        self._under_way -= 1
        self._bytes_under_way -= message.size
        receipts = [] if receipt is None else [receipt]
        if isinstance(answer, Fail):
            self._on_refused(receipts, answer)
            return
        head = head_of(message)
        identity = answer.body.get("id") if isinstance(answer, commands.Tell) else None
        if head.reply_to is not None and identity is not None:
            answering = Answering(head.reply_to, *self._correlate(head))
            if isinstance(wish, Publishing) and wish.header.acknowledge_policy == AcknowledgePolicy.RECEIPT:
                self._await(identity, answering)
            self._reply(answering, {ALERT_ID: text_of_alert(identity)})
        self._on_stored(receipts, identity)

    def _await(self, identity: bytes, answering: Answering) -> None:
        self._awaited[identity] = answering
        if len(self._awaited) > ALERT_RECEIPTS_AWAITED:
            del self._awaited[next(iter(self._awaited))]

    def _reply(self, answering: Answering, said: dict[str, Property]) -> None:
        properties = {**said, **answering.properties}
        with suppress(ClientFault):  # if there is no way to it, the alert is published all the same
            answer = prepare(b"", properties=properties, correlation_id=answering.correlation)
            self._proxy.put(answering.reply_to, answer)

    # ---- from the session

    def tell(self, effect: AnySessionEffect) -> bool:
        """Whether it was about alerts."""
        if isinstance(effect, commands.HandAlert):
            if effect.consumer in self.outlets:
                self.outlets[effect.consumer].hand(effect.alert)
        elif isinstance(effect, commands.WithdrawAlert):
            if effect.consumer in self.outlets:
                self.outlets[effect.consumer].withdraw(effect.alert)
        elif isinstance(effect, commands.TellReceipt):
            if effect.alert in self._awaited:
                said: dict[str, Property] = {
                    ALERT_ID: text_of_alert(effect.alert),
                    "alert_receipt_user": effect.user,
                    "alert_receipt_name": effect.name,
                }
                self._reply(self._awaited[effect.alert], said)
        else:
            return False
        return True
