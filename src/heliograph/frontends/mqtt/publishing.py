"""Messages from an MQTT client: where they go, and when they are answered.

    quality 0   ──PUBLISH──▶
    quality 1   ──PUBLISH──▶ stored ◀──PUBACK──
    quality 2   ──PUBLISH──▶ stored ◀──PUBREC── ──PUBREL──▶ ◀──PUBCOMP──

The number of a message of quality 2 is remembered from PUBLISH to PUBREL: one that comes again under it is not taken
again. A message that is to be retained goes to two places, and is answered when it is stored in both.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec

from heliograph.frontends.alert_consumer import AlertConsumer
from heliograph.frontends.alert_desk import AlertDesk
from heliograph.frontends.alert_messages import ALERT_ID, is_channel, meant_by
from heliograph.frontends.mqtt import packets
from heliograph.frontends.mqtt.alerts import addressed, prepared_alert
from heliograph.frontends.mqtt.messages import correlated, prepared, prepared_retained, prepared_will
from heliograph.frontends.mqtt.packets import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    V5,
    Publish,
    Will,
    acknowledgement,
)
from heliograph.frontends.mqtt.properties import Properties
from heliograph.frontends.mqtt.reading import protocol_error
from heliograph.frontends.mqtt.reasons import PACKET_UNKNOWN, reason_of
from heliograph.frontends.mqtt.topics import address_of, retained_queue, split_channel
from heliograph.frontends.prepared import Prepared
from heliograph.frontends.proxy import Proxy
from heliograph.model.alert import text_of_alert
from heliograph.model.destination import Kind
from heliograph.model.errors import ClientFault, HeliographError, InvalidName, ProtocolFault, from_code
from heliograph.model.limits import MAX_MESSAGE_BYTES, MQTT_TOPIC_ALIASES, TOPICS_REMEMBERED
from heliograph.sessions.commands import Fail

# Of the flags of PUBLISH, all but the one that says that it is sent again; and those of quality 1, not retained.
_ALL_BUT_AGAIN: Final = 0x07
_QUALITY_1: Final = 0x02
_PUBACK = struct.Struct(">BBH")


class Receipt(msgspec.Struct, gc=False):
    """The answer that a PUBLISH waits for, from so many lanes. For a PUBACK from one lane its number stands alone."""

    kind: int
    packet_id: int
    awaited: int = 1


class Publishing:
    """By one client."""

    def __init__(self, say: Callable[[bytes], None]) -> None:
        """`say` answers the client."""
        self._say = say
        self.proxy = Proxy(on_stored=self._stored, on_refused=self._refused)
        self.alerts: AlertDesk[AlertConsumer] = AlertDesk(
            self.proxy, on_stored=self._alert_stored, on_refused=self._alert_refused, correlate=correlated
        )
        self.version = V5
        self.tells = True  # the client wants to know why
        self.packet_limit = MAX_MESSAGE_BYTES  # the client's
        self.received: dict[int, bool] = {}  # of quality 2, not released: whether it is stored
        self._addresses: dict[str, str] = {}
        self._addresses_said: dict[bytes, str] = {}  # the same, by topics as they are said
        self._aliases: dict[int, str] = {}

    # ---- from the client

    def publish(self, flags: int, body: bytes) -> None:
        """Raises ProtocolFault; in version 3.1.1, which cannot say no to a message, ClientFault."""
        if flags & _ALL_BUT_AGAIN == _QUALITY_1 and self._publish_plain(body):
            return
        packet = packets.read_publish(flags, body, self.version)
        if packet.qos == 2 and packet.packet_id in self.received:
            if self.received[packet.packet_id]:
                self._say(acknowledgement(PUBREC, packet.packet_id, self.version))
            return  # it came before
        try:
            address = self._address(packet)
            if is_channel(address):
                self._publish_alert(packet, *split_channel(address))
                return
            message = prepared(packet, self.proxy.now)
        except InvalidName as error:
            self._refuse(packet, error)
            return
        receipt = self._receipt(packet)
        if packet.retain and address.startswith(Kind.TOPIC):
            if receipt is not None:
                receipt.awaited = 2
            self.proxy.put(retained_queue(address), prepared_retained(packet, self.proxy.now), receipt)
        self.proxy.put(address, message, receipt)

    def _publish_alert(self, packet: Publish, channel: str, destination: str) -> None:
        """Raises ClientFault, where there is no other way to say no."""
        receipt = Receipt(PUBACK if packet.qos == 1 else PUBREC, packet.packet_id) if packet.qos else None
        try:
            message = prepared_alert(packet, destination, self.proxy.now)
            self.alerts.put(channel, message, receipt)
        except ClientFault as error:
            if self.version != V5 or receipt is None:
                raise
            self._acknowledge(receipt, reason_of(error), {"reason_string": error.sentence})
            return
        if packet.qos == 2:
            self.received[packet.packet_id] = False

    def _publish_plain(self, body: bytes) -> bool:
        """A message of quality 1 to a topic that was used before, about which nothing more is said, as most are.
        Whether it is one; if not, nothing was done."""
        end = 2 + (body[0] << 8 | body[1]) if len(body) > 2 else 0
        address = self._addresses_said.get(body[2:end])
        start = end + 3 if self.version == V5 else end + 2
        if address is None or not start <= len(body) <= MAX_MESSAGE_BYTES:
            return False
        number = body[end] << 8 | body[end + 1]
        if not number or (self.version == V5 and body[end + 2]):
            return False
        self.proxy.put(address, Prepared(body[start:]), number)
        return True

    def _receipt(self, packet: Publish) -> Receipt | None:
        if not packet.qos:
            return None
        if packet.qos == 2:
            self.received[packet.packet_id] = False
        return Receipt(PUBACK if packet.qos == 1 else PUBREC, packet.packet_id)

    def _address(self, packet: Publish) -> str:
        topic = packet.topic
        if packet.properties and "topic_alias" in packet.properties:
            topic = self._aliased(packet)
        elif not topic:
            raise protocol_error("a message has a topic")
        found = self._addresses.get(topic)
        if found is None:
            found = address_of(topic)
            if len(self._addresses) < TOPICS_REMEMBERED and not is_channel(found):
                self._addresses[topic] = self._addresses_said[topic.encode()] = found
        return found

    def _aliased(self, packet: Publish) -> str:
        alias = packet.properties["topic_alias"]
        if alias > MQTT_TOPIC_ALIASES:
            raise ProtocolFault(
                f"there are {MQTT_TOPIC_ALIASES} short names for topics", code="alias-invalid"
            )
        if packet.topic:
            self._aliases[alias] = packet.topic
        topic = self._aliases.get(alias)
        if topic is None:
            raise ProtocolFault("a short name stands for no topic yet", code="alias-invalid")
        return topic

    def _refuse(self, packet: Publish, error: ClientFault) -> None:
        """Version 5 can say no to a message; 3.1.1 only by ending the connection."""
        if self.version != V5:
            raise error
        if packet.qos:
            kind = PUBACK if packet.qos == 1 else PUBREC
            self._say(acknowledgement(kind, packet.packet_id, V5, reason_of(error)))

    def release(self, _flags: int, body: bytes) -> None:
        """PUBREL: the client will not send the message again."""
        packet_id, _ = packets.read_acknowledgement(PUBREL, body, self.version)
        known = self.received.pop(packet_id, None)
        reason = 0 if known is not None else PACKET_UNKNOWN
        self._say(acknowledgement(PUBCOMP, packet_id, self.version, reason))

    # ---- what became of it

    def _stored(self, receipts: list[Any]) -> None:
        for receipt in receipts:
            if type(receipt) is int:
                self._say(_PUBACK.pack(PUBACK << 4, 2, receipt))
                continue
            receipt.awaited -= 1
            if receipt.awaited:
                continue
            if receipt.kind == PUBREC:
                self.received[receipt.packet_id] = True
            self._say(acknowledgement(receipt.kind, receipt.packet_id, self.version))

    def _refused(self, receipts: list[Any], why: Fail) -> None:
        """Of those of quality 0 nobody is told."""
        error: HeliographError = from_code(why.code, why.sentence)
        if self.version != V5 and receipts:
            raise error if isinstance(error, ClientFault) else ClientFault(why.sentence, code=why.code)
        for each in receipts:
            receipt = Receipt(PUBACK, each) if type(each) is int else each
            if receipt.awaited > 0:
                receipt.awaited = 0
                if receipt.kind == PUBREC:
                    self.received.pop(receipt.packet_id, None)
                self._say(acknowledgement(receipt.kind, receipt.packet_id, V5, reason_of(error)))

    def _alert_stored(self, receipts: list[Any], identity: bytes | None) -> None:
        """The answer says what the alert is called."""
        pairs = [] if identity is None else [(ALERT_ID, text_of_alert(identity))]
        for receipt in receipts:
            if receipt.kind == PUBREC:
                self.received[receipt.packet_id] = True
            self._acknowledge(receipt, 0, {"user_property": pairs} if pairs else {})

    def _alert_refused(self, receipts: list[Any], why: Fail) -> None:
        """An alert of quality 0 cannot be refused, but by ending the connection."""
        error = from_code(why.code, why.sentence)
        if self.version != V5 or not receipts:
            raise error if isinstance(error, ClientFault) else ClientFault(why.sentence, code=why.code)
        for receipt in receipts:
            if receipt.kind == PUBREC:
                self.received.pop(receipt.packet_id, None)
            self._acknowledge(receipt, reason_of(error), {"reason_string": why.sentence})

    def _acknowledge(self, receipt: Receipt, reason: int, said: Properties) -> None:
        """What is said besides is left out for a client that does not want it, or has no room for it."""
        told = acknowledgement(receipt.kind, receipt.packet_id, self.version, reason, said)
        if not self.tells or len(told) > self.packet_limit:
            told = acknowledgement(receipt.kind, receipt.packet_id, self.version, reason)
        self._say(told)

    # ---- the will

    def check(self, will: Will) -> None:
        """Raises ClientFault where it could not be carried out."""
        address = address_of(will.topic)
        if is_channel(address):
            if will.retain:
                raise ClientFault("alerts are not retained", code="alerts-only")
            meant_by(self._last_alert(will, split_channel(address)[1]), self.proxy.now)

    def _last_alert(self, will: Will, destination: str) -> Prepared:
        message = prepared_will(will.payload, will.qos, will.retain, will.properties, self.proxy.now)
        return addressed(message, destination)

    def prepare_for(self, will: Will) -> None:
        """When it is to be sent, there is no time to open lanes."""
        address = address_of(will.topic)
        if is_channel(address):
            return
        self.proxy.open_lane(address)
        if will.retain and address.startswith(Kind.TOPIC):
            self.proxy.open_lane(retained_queue(address))

    def carry_out(self, will: Will) -> None:
        address = address_of(will.topic)
        if is_channel(address):
            channel, destination = split_channel(address)
            with suppress(ClientFault):  # it was checked, and nobody is left to be told
                self.alerts.put(channel, self._last_alert(will, destination))
            return
        if will.retain and address.startswith(Kind.TOPIC):
            packet = Publish(will.topic, will.payload, will.qos, True, False, 0, {})
            self.proxy.put(retained_queue(address), prepared_retained(packet, self.proxy.now))
        self.proxy.put(
            address, prepared_will(will.payload, will.qos, will.retain, will.properties, self.proxy.now)
        )
