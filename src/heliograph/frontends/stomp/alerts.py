"""Alerts over STOMP: a subscription to a channel, and what its client takes.

SUBSCRIBE says which are wanted with the header `topics`, `acknowledgements`, or both. An alert is the client's as its
mode of acknowledgement says, as a message is; NACK has it come again, or with `requeue:false` takes it too. What is
sent to a channel is the business of `frontends/alert_desk.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from heliograph.bus.commands import DEAD
from heliograph.frontends.alert_consumer import AlertConsumer, check_wishes
from heliograph.frontends.alert_messages import as_message
from heliograph.frontends.conversation import Answered
from heliograph.frontends.held_tags import Ranges
from heliograph.frontends.proxy import Answer, Proxy
from heliograph.frontends.stomp.subscriptions import Subscription, credit_of, fate_of
from heliograph.model.alert import AlertView, text_of_alert
from heliograph.model.errors import ClientFault
from heliograph.model.limits import ALERT_CREDIT

# What a subscription to messages can say, and one to alerts cannot.
_MEANINGLESS: Final = ("selector", "browser", "shared", "no-local", "activemq.noLocal")


class AlertSubscription:
    """One of a client's, under our number for it."""

    def __init__(self, proxy: Proxy, subscription: Subscription) -> None:
        self._proxy = proxy
        self._subscription = subscription
        self._consumer = AlertConsumer(
            proxy,
            subscription.number,
            subscription.address,
            name=subscription.name,
            send=self._send,
            forget=self._forget,
        )
        self.hand = self._consumer.hand
        self.withdraw = self._consumer.withdraw
        self.flush = self._consumer.flush
        self.leave = self._consumer.leave

    def attach(self, headers: dict[str, str], on_answer: Callable[[Answer], None]) -> None:
        """Raises ClientFault."""
        for name in _MEANINGLESS:
            if headers.get(name, "false") not in ("", "false"):
                raise ClientFault(f"{name} is not for alerts, which topics are for", code="alerts-only")
        topics, acknowledgements = headers.get("topics", ""), headers.get("acknowledgements", "")
        check_wishes(topics, acknowledgements)
        self._consumer.attach(topics, acknowledgements, credit_of(headers, ALERT_CREDIT), on_answer)

    def _send(self, tag: int, view: AlertView) -> None:
        subscription, identity = self._subscription, text_of_alert(view.id)
        frame = subscription.encoder.encode(
            as_message(view),
            0,
            destination=subscription.address,
            tag=f"{subscription.number}-{tag}",
            earlier=int(view.again),
            user=view.user,
            identity=identity,
        )
        subscription.sent(tag, tag)
        if subscription.tags is not None:
            subscription.tags[identity] = tag
        self._proxy.add(Answered(frame))

    def _forget(self, tag: int, view: AlertView) -> bool:
        self._subscription.held.take(tag, tag)
        if self._subscription.tags is not None:
            self._subscription.tags.pop(text_of_alert(view.id), None)
        return True

    def written(self) -> None:
        """The network has what was sent: in mode auto it is the client's."""
        self._consumer.take(self._subscription.take_handed())

    def settle(
        self, headers: dict[str, str], ranges: Ranges, on_answer: Callable[[Answer], None], *, returned: bool
    ) -> bool:
        """ACK or NACK of these. Whether it is answered when that is stored; if not, it is done."""
        if returned and fate_of(headers) != DEAD:
            self._consumer.give_back(ranges)
            return False
        return self._consumer.take(ranges, on_answer)
