"""Messages from an MQTT client: where they go, and when they are answered.

    quality 0   ──PUBLISH──▶
    quality 1   ──PUBLISH──▶ stored ◀──PUBACK──
    quality 2   ──PUBLISH──▶ stored ◀──PUBREC── ──PUBREL──▶ ◀──PUBCOMP──

The number of a message of quality 2 is remembered from PUBLISH to PUBREL: one that comes again under it is not taken
again. A message that is to be retained goes to two places, and is answered when it is stored in both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from heliograph.frontends.mqtt import packets
from heliograph.frontends.mqtt.messages import prepared, prepared_retained, prepared_will
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
from heliograph.frontends.mqtt.reading import protocol_error
from heliograph.frontends.mqtt.reasons import PACKET_UNKNOWN, reason_of
from heliograph.frontends.mqtt.topics import address_of, retained_queue
from heliograph.frontends.proxy import Proxy
from heliograph.model.destination import Kind
from heliograph.model.errors import ClientFault, HeliographError, InvalidName, ProtocolFault, from_code
from heliograph.model.limits import MQTT_TOPIC_ALIASES, TOPICS_REMEMBERED
from heliograph.sessions.commands import Fail


class Receipt(msgspec.Struct, gc=False):
    """The answer that a PUBLISH waits for, from so many lanes."""

    kind: int
    packet_id: int
    awaited: int = 1


class Publishing:
    """By one client."""

    def __init__(self, say: Callable[[bytes], None]) -> None:
        """`say` answers the client."""
        self._say = say
        self.proxy = Proxy(on_stored=self._stored, on_refused=self._refused)
        self.version = V5
        self.received: dict[int, bool] = {}  # of quality 2, not released: whether it is stored
        self._addresses: dict[str, str] = {}
        self._aliases: dict[int, str] = {}

    # ---- from the client

    def publish(self, flags: int, body: bytes) -> None:
        """Raises ProtocolFault; in version 3.1.1, which cannot say no to a message, ClientFault."""
        packet = packets.read_publish(flags, body, self.version)
        if packet.qos == 2 and packet.packet_id in self.received:
            if self.received[packet.packet_id]:
                self._say(acknowledgement(PUBREC, packet.packet_id, self.version))
            return  # it came before
        try:
            address = self._address(packet)
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
            if len(self._addresses) < TOPICS_REMEMBERED:
                self._addresses[topic] = found
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
        for receipt in receipts:
            if receipt.awaited > 0:
                receipt.awaited = 0
                if receipt.kind == PUBREC:
                    self.received.pop(receipt.packet_id, None)
                self._say(acknowledgement(receipt.kind, receipt.packet_id, V5, reason_of(error)))

    # ---- the will

    def prepare_for(self, will: Will) -> None:
        """When it is to be sent, there is no time to open lanes."""
        address = address_of(will.topic)
        self.proxy.open_lane(address)
        if will.retain and address.startswith(Kind.TOPIC):
            self.proxy.open_lane(retained_queue(address))

    def carry_out(self, will: Will) -> None:
        address = address_of(will.topic)
        if will.retain and address.startswith(Kind.TOPIC):
            packet = Publish(will.topic, will.payload, will.qos, True, False, 0, {})
            self.proxy.put(retained_queue(address), prepared_retained(packet, self.proxy.now))
        self.proxy.put(
            address, prepared_will(will.payload, will.qos, will.retain, will.properties, self.proxy.now)
        )
