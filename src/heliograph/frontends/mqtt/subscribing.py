"""The subscriptions of an MQTT client: made, changed, resumed and ended.

SUBSCRIBE is answered when all its filters are; what is retained for a filter is looked for then. A client whose
session outlives the connection finds its durable subscriptions again, though it does not ask for them.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from heliograph.frontends.alert_consumer import AlertConsumer
from heliograph.frontends.mqtt import packets
from heliograph.frontends.mqtt.alerts import MOST_QUALITY, wishes_of
from heliograph.frontends.mqtt.packets import V5
from heliograph.frontends.mqtt.reading import protocol_error
from heliograph.frontends.mqtt.reasons import NO_SUBSCRIPTION, suback_reason
from heliograph.frontends.mqtt.subscriptions import (
    Options,
    Subscription,
    durable_name,
    options_of,
    subscribe_command,
)
from heliograph.frontends.mqtt.topics import ChannelFilter, Meaning, parse_channel, parse_filter
from heliograph.frontends.proxy import Answer, Proxy
from heliograph.model.errors import ClientFault, InvalidName
from heliograph.model.limits import ALERT_CREDIT
from heliograph.sessions import commands
from heliograph.sessions.commands import Fail


class _Request(msgspec.Struct):
    """A SUBSCRIBE of which not all filters are answered."""

    packet_id: int
    reasons: list[int]
    awaited: int
    why: str = ""  # of what was refused, the first sentence


class Subscribing:
    """By one client."""

    def __init__(
        self,
        proxy: Proxy,
        *,
        say: Callable[[bytes], None],
        look_for_retained: Callable[[Subscription], None],
        consumer_of: Callable[[Subscription], AlertConsumer],
        alerts: dict[int, AlertConsumer],
    ) -> None:
        """`say` answers the client at once. `consumer_of`: makes a consumer of alerts. `alerts`: those there are."""
        self._proxy = proxy
        self._say = say
        self._look_for_retained = look_for_retained
        self._consumer_of = consumer_of
        self._alerts = alerts
        self.version = V5
        self.tells = True  # the client wants to know why
        self.packet_limit = 0  # the client's
        self.receive_maximum = 0
        self.is_durable = False  # the session outlives the connection
        self.by_filter: dict[str, Subscription] = {}
        self.by_number: dict[int, Subscription] = {}

    # ---- made

    def subscribe(self, _flags: int, body: bytes) -> None:
        """Raises ProtocolFault."""
        wanted = packets.read_subscribe(body, self.version)
        request = _Request(wanted.packet_id, [each.qos for each in wanted.filters], len(wanted.filters))
        for index, each in enumerate(wanted.filters):
            try:
                channel = parse_channel(each.text)
                if channel is not None:
                    self._subscribe_to_alerts(request, index, each, channel, wanted)
                    continue
                meaning = parse_filter(each.text)
            except InvalidName as error:
                self._answered(request, index, error.code, None, error.sentence)
                continue
            if meaning.share and each.no_local:
                raise protocol_error("a shared subscription cannot be no-local")
            self._subscribe_one(request, index, each, meaning, options_of(each, wanted.identifier))

    def _subscribe_one(
        self, request: _Request, index: int, wanted: packets.Filter, meaning: Meaning, options: Options
    ) -> None:
        present = self.by_filter.get(wanted.text)
        is_plain = not meaning.share and not meaning.is_queue
        looks = is_plain and wanted.retain_handling != 2
        if present is not None:
            present.options = options
            self._answered(request, index, "", present if looks and not wanted.retain_handling else None)
            return
        name = durable_name(wanted.text, options) if self.is_durable and is_plain else ""

        def answered(answer: Answer) -> None:
            if isinstance(answer, Fail):
                self.forget(subscription)
                self._answered(request, index, answer.code, None, answer.sentence)
            else:
                self._answered(request, index, "", subscription if looks else None)

        subscription = self.attach(wanted.text, meaning, options, name, answered)

    def _subscribe_to_alerts(
        self,
        request: _Request,
        index: int,
        wanted: packets.Filter,
        channel: ChannelFilter,
        packet: packets.Subscribe,
    ) -> None:
        present = self.by_filter.get(wanted.text)
        try:
            if self.is_durable:
                raise ClientFault(
                    "alerts are for sessions that end with their connection: a subscription-name, in version 5, "
                    "outlives it",
                    code="alerts-only",
                )
            wishes = wishes_of(wanted, channel, packet.said)
            if present is not None and present.wishes != wishes:
                raise ClientFault("unsubscribe before you ask for other alerts", code="consumer-exists")
        except ClientFault as error:
            self._answered(request, index, error.code, None, error.sentence)
            return
        wanted.qos = request.reasons[index] = min(wanted.qos, MOST_QUALITY)
        options = options_of(wanted, packet.identifier)
        if present is not None:
            present.options = options
            self._answered(request, index, "", None)
            return

        def answered(answer: Answer) -> None:
            if isinstance(answer, Fail):
                self.forget(subscription)
                self._answered(request, index, answer.code, None, answer.sentence)
            else:
                self._answered(request, index, "", None)

        number = self._proxy.new_consumer()
        subscription = Subscription(number, wanted.text, Meaning(channel.address), options, "")
        subscription.wishes = wishes
        self.by_filter[wanted.text] = self.by_number[number] = subscription
        consumer = self._alerts[number] = self._consumer_of(subscription)
        credit = min(ALERT_CREDIT, self.receive_maximum)
        consumer.attach(wishes.topics, wishes.acknowledgements, credit, answered)

    def attach(
        self, text: str, meaning: Meaning, options: Options, name: str, on_answer: Callable[[Answer], None]
    ) -> Subscription:
        """`name`: of the durable subscription, empty if it ends with the connection."""
        subscription = Subscription(self._proxy.new_consumer(), text, meaning, options, name)
        self.by_filter[text] = self.by_number[subscription.number] = subscription
        request = self._proxy.ask(on_answer)
        self._proxy.command(subscribe_command(request, subscription, self.receive_maximum))
        return subscription

    def _answered(
        self,
        request: _Request,
        index: int,
        code: str,
        retained_for: Subscription | None,
        sentence: str = "",
    ) -> None:
        if code:
            request.reasons[index] = suback_reason(code, self.version)
            request.why = request.why or sentence
        request.awaited -= 1
        if not request.awaited:
            self._say(self._suback(request))
        if retained_for is not None:
            self._look_for_retained(retained_for)

    def _suback(self, request: _Request) -> bytes:
        """Why something was refused is left out for a client that does not want it, or has no room for it."""
        if request.why and self.tells:
            said = {"reason_string": request.why}
            told = packets.suback(request.packet_id, self.version, request.reasons, said)
            if len(told) <= self.packet_limit:
                return told
        return packets.suback(request.packet_id, self.version, request.reasons)

    # ---- ended

    def unsubscribe(self, _flags: int, body: bytes) -> list[Subscription]:
        """Raises ProtocolFault. Returns those that ended."""
        packet_id, filters = packets.read_unsubscribe(body, self.version)
        reasons = [0 if text in self.by_filter else NO_SUBSCRIPTION for text in filters]
        present = [self.by_filter[text] for text in dict.fromkeys(filters) if text in self.by_filter]
        awaited = [len(present)]

        def ended(_answer: Answer | None) -> None:
            awaited[0] -= 1
            if awaited[0] <= 0:
                self._say(packets.unsuback(packet_id, self.version, reasons))

        for subscription in present:
            self._end(subscription, ended)
        if not present:
            ended(None)
        return present

    def end_durable(self) -> None:
        """The session ends with the connection after all."""
        for subscription in list(self.by_filter.values()):
            if subscription.name:
                self._end(subscription, lambda _: None)

    def _end(self, subscription: Subscription, on_answer: Callable[[Answer], None]) -> None:
        alerts = self._alerts.get(subscription.number)
        self.forget(subscription)
        if alerts is not None:
            alerts.leave(on_answer, ends=True)
            return
        if not subscription.name:
            self._proxy.command(commands.Unsubscribe(self._proxy.ask(on_answer), subscription.number))
            return
        self._proxy.command(commands.Unsubscribe(self._proxy.ask(lambda _: None), subscription.number))
        self._proxy.command(commands.EndSubscription(self._proxy.ask(on_answer), subscription.name))

    def forget(self, subscription: Subscription) -> None:
        self.by_number.pop(subscription.number, None)
        self._alerts.pop(subscription.number, None)
        if self.by_filter.get(subscription.text) is subscription:
            del self.by_filter[subscription.text]
